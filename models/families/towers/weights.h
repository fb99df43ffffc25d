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

/* The same as rows, for modules that differ in sizes only:
 *
 *     enum { H = YES + 1, FF };
 *     static const struct oom_weight_row mlp[] = {
 *             NORM("norm", H, NO), LINEAR("fc1", H, FF, YES), LINEAR("fc2", FF, H, YES), OOM_WEIGHTS_END};
 *     oom_weight_rows(t, mlp, (const uint64_t[]){[YES] = 1, [H] = d, [FF] = 4 * d});
 *
 * What a row says are places in the caller's list of numbers, whose first two are NO, 0, and YES, 1: a
 * bias that the config decides on has a place of its own.  ONLY(place, n): the next n rows are there
 * where the number is not 0. */
enum oom_weight_kind {
	OOM_WEIGHT_END, OOM_WEIGHT_LINEAR, OOM_WEIGHT_NORM, OOM_WEIGHT_CONV, OOM_WEIGHT_ALONE,
		OOM_WEIGHT_ONLY,
};
struct oom_weight_row {
	const char *name;
	uint8_t kind;           /* enum oom_weight_kind */
	uint8_t in, out, bias;
};
enum { NO, YES };
#define LINEAR(name, in, out, bias) {name, OOM_WEIGHT_LINEAR, in, out, bias}
#define NORM(name, n, bias) {name, OOM_WEIGHT_NORM, n, 0, bias}
#define CONV(name, out, each, bias) {name, OOM_WEIGHT_CONV, each, out, bias}
#define ALONE(name, rows, cols) {name, OOM_WEIGHT_ALONE, rows, cols, NO}
#define ONLY(place, n) {NULL, OOM_WEIGHT_ONLY, n, place, NO}
#define OOM_WEIGHTS_END {NULL, OOM_WEIGHT_END, 0, 0, 0}
void oom_weight_rows(struct oom_tape *t, const struct oom_weight_row *rows, const uint64_t *n);
/* So many layers of them. */
void oom_weight_stack(struct oom_tape *t, uint64_t layers, const struct oom_weight_row *rows,
		      const uint64_t *n);

/* Seamless M4T's speech encoder (seamless.c); relative: with positions as its first version has them. */
void oom_seamless_speech(struct oom_tape *t, const struct oom_arch *a, bool relative);

#endif
