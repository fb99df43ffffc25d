/* What vision models share over the operations of conv.h: attention over patches, and the frame of an
 * image classifier. */
#ifndef OOM_IMAGE_H
#define OOM_IMAGE_H

#include "blocks.h"
#include "ops/conv.h"

/* ---- attention over patches (patches.c) ---- */

/* Attention written out in the older style: scores, division, added biases (up to two, may be
 * absent; the caller's), softmax in the scores' own type, dropout, a merged copy.  q, k, v, the
 * scores and the weights are locals of the function. */
struct oom_val oom_written_attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
				     struct oom_val k, struct oom_val v,
				     const struct oom_val bias[2]);
/* The same for a function that goes on after it, whose frame is f. */
struct oom_val oom_attention_in(struct oom_frame *f, const struct oom_attn *a, struct oom_val q,
				struct oom_val k, struct oom_val v, const struct oom_val bias[2]);
/* nn.Linear, split into heads; heads 1: for the written-out attention, which has nothing to copy
 * then (0: for any). */
struct oom_val oom_project_heads(struct oom_tape *t, const char *name, struct oom_val x,
				 uint64_t width, bool bias, uint64_t heads);
/* An attention of `heads` over `queries` of every image to `keys`, without a causal mask. */
struct oom_attn oom_attn_over(struct oom_tape *t, const struct oom_arch *a, uint64_t heads,
			      uint64_t width, uint64_t queries, uint64_t keys);
/* Learned position embeddings or tokens, [1, n, width], as a tensor of n rows. */
struct oom_val oom_param_tokens(struct oom_tape *t, const char *name, uint64_t n, uint64_t width);
/* torch.linalg.vector_norm over all but (mono, width): keeps its input and its result. */
struct oom_val oom_vector_norm(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width);
/* nn.functional.normalize: x / max(|x|, eps), one norm for each of (x's tokens, groups). */
struct oom_val oom_normalize(struct oom_tape *t, struct oom_val x, uint64_t groups);
/* torch.cat of three along the tokens. */
struct oom_val oom_cat3(struct oom_tape *t, struct oom_val a, struct oom_val b, struct oom_val c,
			uint16_t mono, struct oom_dim width);
/* Tokens (b x n) x c as a map of c x h x w: a view. */
struct oom_map oom_tokens_map(struct oom_tape *t, struct oom_val x, uint64_t c, uint64_t h,
			      uint64_t w);

/* ---- the frame of an image classifier ---- */

/* Up to max whole numbers in [1, 2^20] of a list key; returns how many there are, 0 (with a
 * failure) when there are none, too many or others. */
uint64_t oom_read_counts(struct oom_reader *r, const char *key, uint64_t *out, uint64_t max);
/* A count for each of n stages, at most max; a failure when the list is shorter. */
void oom_read_stages(struct oom_reader *r, const char *key, uint64_t *out, uint64_t max,
		     uint64_t n);
/* A mask of so many pairs of places out of a map of region numbers, for windows that were shifted: subtraction, two
 * comparisons, two fills (Swin). */
struct oom_val oom_shifted_mask(struct oom_tape *t, uint16_t pairs, enum oom_dtype dt);
/* value rounded to a multiple of divisor, at least `least`, never a tenth below value
 * (MobileNet's make_divisible). */
uint64_t oom_make_divisible(double value, uint64_t divisor, uint64_t least);
/* The first n elements of a list of numbers, def where one is missing. */
void oom_read_reals(struct oom_reader *r, const char *key, double *out, uint64_t n, double def);
/* image_size (the first of two), num_channels. */
void oom_read_image(struct oom_arch *a, uint64_t side);
/* The batch's images in the model's type. */
struct oom_map oom_pixels(struct oom_tape *t, const struct oom_arch *a);
/* The pixels alone, for so many images of so many elements. */
struct oom_val oom_pixel_values(struct oom_tape *t, uint16_t images, uint64_t elements);
/* Linear classifier and loss of a class whose frame holds what the base model returned. */
struct oom_val oom_image_loss(struct oom_tape *t, const struct oom_arch *a, struct oom_val pooled);
/* The map with the channels the next module declares; says so when others arrive, which no run
 * would survive. */
struct oom_map oom_declared(struct oom_tape *t, struct oom_map m, uint64_t c);
/* Stage j of an architecture whose stages are checkpointed, not its layers: fn of a copy of what ctx
 * tells, of so many bytes. */
struct oom_val oom_run_stage(struct oom_tape *t, uint64_t j, oom_block_fn fn, const void *ctx,
			     size_t size, struct oom_val x);
/* `m = f(m)` for a map that has a name. */
static inline struct oom_map oom_rename_map(struct oom_frame *f, struct oom_map old,
					    struct oom_map m)
{
	m.x = oom_rename(f, old.x, m.x);
	return m;
}
/* Says that the architecture has no activation checkpointing in transformers. */
void oom_no_checkpointing(struct oom_tape *t);

#endif
