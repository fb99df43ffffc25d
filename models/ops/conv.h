/* Images as tensors: convolutions, batch norms and pools over [b, channels, height, width].
 *
 * A map's value has the batch alone as its monomial and channels x height x width as its width: the
 * image fixes the rest. All operations consume their map's value unless it is kept (oom_keep),
 * as those of ops.h do. */
#ifndef OOM_CONV_H
#define OOM_CONV_H

#include "blocks/blocks.h"

struct oom_map {
	struct oom_val x;
	uint64_t c, h, w;
};

/* nn.Conv2d.  Zero means: kernel_w as kernel, stride_w as stride, pad_w as pad (with kernel_w
 * 0), dilation and groups 1. */
struct oom_conv {
	uint64_t out, kernel, stride, pad, dilation, groups;
	uint64_t kernel_w, stride_w, pad_w;
	bool bias;
	/* its input lies so in memory, and the weight's gradient will (oom_conv2d) */
	bool channels_last;
	/* the weight is normalised over every output channel first (Qiao et al.,
	 * arXiv:1903.10520) */
	bool standardized;
};
struct oom_map oom_conv2d(struct oom_tape *t, const char *name, struct oom_map m,
			  const struct oom_conv *c);
/* nn.BatchNorm2d with its buffers. */
struct oom_map oom_batch_norm(struct oom_tape *t, const char *name, struct oom_map m);
/* nn.GroupNorm. */
struct oom_map oom_group_norm(struct oom_tape *t, const char *name, struct oom_map m,
			      uint64_t groups);
/* nn.LayerNorm over the channels (the map permuted to channels last and back). */
struct oom_map oom_channel_norm(struct oom_tape *t, const char *name, struct oom_map m);
struct oom_map oom_max_pool(struct oom_tape *t, struct oom_map m, uint64_t kernel, uint64_t stride,
			    uint64_t pad);
struct oom_map oom_avg_pool(struct oom_tape *t, struct oom_map m, uint64_t kernel, uint64_t stride,
			    uint64_t pad);
/* AdaptiveAvgPool2d(1), mean over the places: [b, channels]. */
struct oom_val oom_global_pool(struct oom_tape *t, struct oom_map m);
/* nn.functional.pad to the given size: a copy even where nothing is added. */
struct oom_map oom_pad_map(struct oom_tape *t, struct oom_map m, uint64_t h, uint64_t w);
/* Convolution, batch norm, activation in one module (OOM_ACT_NONE: none).  The module's caller
 * holds its input. */
struct oom_map oom_conv_bn_act(struct oom_tape *t, struct oom_map m, const struct oom_conv *c,
			       enum oom_act act);
struct oom_map oom_map_act(struct oom_tape *t, enum oom_act act, struct oom_map m);
/* torch.cat of n maps over the channels. */
struct oom_map oom_cat_maps(struct oom_tape *t, const struct oom_map *part, int n);
/* A second reference. */
struct oom_map oom_map_share(struct oom_tape *t, struct oom_map m);
static inline struct oom_map oom_map_keep(struct oom_map m)
{
	m.x.kept = true;
	return m;
}
/* Names for maps, as those of frame.h for their values. */
static inline struct oom_map oom_name_map(struct oom_frame *f, struct oom_map m)
{
	m.x = oom_name(f, m.x);
	return m;
}
static inline struct oom_map oom_arg_map(struct oom_frame *f, struct oom_map m)
{
	m.x = oom_arg(f, m.x);
	return m;
}
static inline struct oom_map oom_leave_map(struct oom_frame *f, struct oom_map m)
{
	m.x = oom_leave(f, m.x);
	return m;
}
/* hidden.div(keep) * floor(rand + keep), one number a sample. */
struct oom_val oom_drop_path(struct oom_tape *t, struct oom_val x);

/* Tokens of a map or back: [b, c, h, w] <-> [b, h * w, c] as views; the value's shape becomes (b
 * x n) x c. */
struct oom_val oom_map_tokens(struct oom_tape *t, struct oom_map m);
/* m_b times a constant; the constant alone. */
uint16_t oom_tokens_of(struct oom_tape *t, uint64_t n);
uint16_t oom_length_of(struct oom_tape *t, uint64_t n);

/* ---- attention over patches (patches.c) ---- */

/* Attention written out in the older style: scores, division, added biases (kept; up to two, may be
 * absent), softmax in the scores' own type, dropout, a merged copy.  q, k, v, the scores and the
 * weights are locals of the function, which may go on after it: they are given in held[5] for
 * the caller to drop, or dropped at once when held is NULL. */
struct oom_val oom_written_attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
				     struct oom_val k, struct oom_val v,
				     const struct oom_val bias[2], struct oom_val *held);
/* The same for a function whose frame is f and whose locals these are. */
struct oom_val oom_attention_in(struct oom_frame *f, const struct oom_attn *a, struct oom_val q,
				struct oom_val k, struct oom_val v, const struct oom_val bias[2]);
void oom_drop_all(struct oom_tape *t, const struct oom_val *x, int n);
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
/* Linear classifier and loss; `held` (may be absent) is what the base model's output object
 * holds meanwhile. */
struct oom_val oom_image_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val pooled,
			      struct oom_val held);
/* The map with the channels the next module declares; says so when others arrive, which no run
 * would survive. */
struct oom_map oom_declared(struct oom_tape *t, struct oom_map m, uint64_t c);
/* Says that the architecture has no activation checkpointing in transformers. */
void oom_no_checkpointing(struct oom_tape *t);

#endif
