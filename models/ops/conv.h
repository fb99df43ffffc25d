/* Operations on images: convolutions, norms and pools over [b, channels, height, width].
 *
 * The monomial of a map's value is the batch alone, and its width is channels x height x width, because the image
 * size is fixed.  As in ops.h, operations consume their map's value unless it is kept (oom_keep). */
#ifndef OOM_CONV_H
#define OOM_CONV_H

#include "activation.h"
#include "ops.h"
#include "tape/frame.h"

struct oom_map {
	struct oom_val x;
	uint64_t c, h, w;
};

/* nn.Conv2d.  Defaults for 0: kernel_w is kernel, stride_w is stride, pad_w is pad (if kernel_w is 0), dilation
 * and groups are 1. */
struct oom_conv {
	uint64_t out, kernel, stride, pad, dilation, groups;
	uint64_t kernel_w, stride_w, pad_w;
	bool bias;
	/* its input is laid out in memory this way, and so will be the weight's gradient (oom_conv2d) */
	bool channels_last;
	/* the weight is normalised over every output channel first (Qiao et al.,
	 * arXiv:1903.10520) */
	bool standardized;
};
struct oom_map oom_conv2d(struct oom_tape *t, const char *name, struct oom_map m,
			  const struct oom_conv *c);
/* nn.Conv1d over x of (frames x in): the result has mono frames of `out` channels.  groups 0:
 * one. */
struct oom_conv1d {
	uint64_t in, out, kernel, groups;
	bool bias;
};
struct oom_val oom_op_conv1d(struct oom_tape *t, const char *name, struct oom_val x,
			     const struct oom_conv1d *c, uint16_t mono);
/* The length of a side that a kernel leaves, and the elements of a map, which are checked: false and an error where no
 * image makes such a one. */
uint64_t oom_map_side(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t pad, uint64_t dilation);
bool oom_map_elems(struct oom_tape *t, const char *name, uint64_t c, uint64_t h, uint64_t w, uint64_t *n);
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
/* AdaptiveAvgPool2d(1), or the mean over all positions: [b, channels]. */
struct oom_val oom_global_pool(struct oom_tape *t, struct oom_map m);
/* nn.functional.pad to the given size, which copies even if nothing is added. */
struct oom_map oom_pad_map(struct oom_tape *t, struct oom_map m, uint64_t h, uint64_t w);
/* Convolution, batch norm and activation (OOM_ACT_NONE: none) in one module, whose caller holds its input. */
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
/* hidden.div(keep) * floor(rand + keep), with one random number per sample. */
struct oom_val oom_drop_path(struct oom_tape *t, struct oom_val x);

/* The tokens of a map as a view: [b, c, h, w] becomes [b, h * w, c]. */
struct oom_val oom_map_tokens(struct oom_tape *t, struct oom_map m);
/* The monomials of n tokens per image: m_b times n, and n alone. */
uint16_t oom_tokens_of(struct oom_tape *t, uint64_t n);
uint16_t oom_length_of(struct oom_tape *t, uint64_t n);

#endif
