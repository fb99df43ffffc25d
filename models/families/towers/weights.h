/* Parts of a model that a step holds but does not run: their weights alone, in the order the
 * modules create them.
 *
 * Adapters and 4-bit storage apply to them as to any other layer; nothing of a forward pass is
 * recorded, and no gradient reaches them. */
#ifndef OOM_WEIGHTS_H
#define OOM_WEIGHTS_H

#include "blocks/blocks.h"

/* Between begin and end parameters (and buffers) are all that is recorded, whatever operations are
 * emitted; w remembers what comes back. */
struct oom_weights {
	bool grad, stopped;
	size_t conds;
	struct oom_tally tally;
};
void oom_weights_begin(struct oom_tape *t, struct oom_weights *w);
void oom_weights_end(struct oom_tape *t, const struct oom_weights *w);

/* One tensor of rows x cols (rows 0: a vector). */
void oom_weight(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols);
/* nn.Linear. */
void oom_weight_linear(struct oom_tape *t, const char *name, uint64_t in, uint64_t out, bool bias);
/* A norm over n elements: weight and, perhaps, bias. */
void oom_weight_norm(struct oom_tape *t, const char *name, uint64_t n, bool bias);
/* A convolution of `out` kernels with `each` elements. */
void oom_weight_conv(struct oom_tape *t, const char *name, uint64_t out, uint64_t each, bool bias);
/* nn.MultiheadAttention: one projection of queries, keys and values as a bare tensor. */
void oom_weight_mha(struct oom_tape *t, uint64_t d);

/* n equal layers; fn is told the number of the layer. */
typedef void (*oom_weights_fn)(struct oom_tape *t, const void *ctx, uint64_t i);
void oom_weight_layers(struct oom_tape *t, uint64_t n, oom_weights_fn fn, const void *ctx);

/* Seamless M4T's speech encoder (speech.c); relative: with positions as its first version has them. */
void oom_seamless_speech(struct oom_tape *t, const struct oom_arch *a, bool relative);

#endif
