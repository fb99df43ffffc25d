/* Speech encoders with a letter for every frame (ctc.c), and what stands between their samples and layers (ctc_frames.c). */
#ifndef OOM_FAMILIES_AUDIO_CTC_H
#define OOM_FAMILIES_AUDIO_CTC_H

#include "blocks/encdec.h"
#include "blocks/image.h"
#include "config/keys.h"

enum { OOM_CTC_CONVS = 16 };
/* How the attention of a conformer's layers knows places. */
enum oom_ctc_places { OOM_CTC_PLACELESS, OOM_CTC_RELATIVE, OOM_CTC_ROTATED, OOM_CTC_KEYED };
struct ctc {
	uint64_t convs, dims[OOM_CTC_CONVS], kernels[OOM_CTC_CONVS], strides[OOM_CTC_CONVS];
	uint64_t pos_kernel, pos_groups;
	uint64_t squeeze;               /* frames that become one in front of the layers; 1 unless the kind is squeezed */
	uint64_t pos_layers;            /* of ctc_kind's stacked: how many convolutions make the positions */
	uint64_t buckets;               /* of relative positions, where the kind is gated */
	uint64_t attn_adapter;          /* width of the layers' adapters; 0: none */
	uint64_t adapter_layers, adapter_kernel, adapter_stride, adapter_width;
	enum oom_act adapter_act;
	uint64_t depth_kernel, left, right, max_places, features;       /* of conformers */
	enum oom_ctc_places places;
	double conv_dropout;
	enum oom_act conv_act;
	double proj_dropout, final_dropout, mask_time, mask_features;
	bool conv_bias, layer_norms;    /* a norm after every convolution, not after the first alone */
	bool stable;                    /* norms before attention and feed-forward */
	bool proj_norm, augments, adapter, adapter_ffn, batch_norm;
};
OOM_OWN(ctc, struct ctc);

struct ctc_kind {
	const char *base;               /* the base model's module */
	bool returns_features;          /* it returns the normed features beside its states */
	/* data2vec: a norm after every convolution; positions by several, each with a norm without weights behind it */
	bool stacked;
	bool gated;                     /* attention with a gated bias of relative positions (WavLM, ctc_gated.c) */
	bool conformer;                 /* its layers are those of ctc_conformer.c */
	bool features;                  /* a conformer that takes filter banks, not samples, and looks back alone */
	bool squeezed;                  /* fewer frames in the layers than before and behind them (SEW, ctc_squeezed.c) */
};
OOM_KIND(ctc, struct ctc_kind);

/* The context of the layers. */
struct ctc_stack {
	struct oom_encdec s;
	struct oom_val bias;            /* of a gated kind: for every sample, head and pair of frames */
	uint64_t frames;
	/* of a conformer: how it knows places, its width, the types of its positions and of its attention's weights */
	enum oom_ctc_places places;
	uint64_t width;
	enum oom_dtype table, weights;
};

struct oom_val oom_ctc_relative_bias(struct oom_tape *t, const struct oom_arch *a, uint64_t frames);
/* Consumes x. */
struct oom_val oom_ctc_gated_attention(struct oom_tape *t, const struct ctc_stack *l, uint32_t layer, struct oom_val x);

/* intermediate_dense, an activation, output_dense. */
struct oom_val oom_ctc_feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, enum oom_act act);
/* What add_adapter puts behind the encoder: convolutions that halve the frames, in W2v-BERT with attention and a feed-forward.
 * x stays the caller's; *frames: how many are left. */
struct oom_val oom_ctc_adapted(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t *frames);
/* Attention of a conformer's kind over x, which stays the caller's; the weights are given to it. */
struct oom_val oom_ctc_conformer_attention(struct oom_tape *t, const struct ctc_stack *l, struct oom_val x, struct oom_val *weights);
/* The encoder of a conformer over x, which stays the caller's. */
struct oom_val oom_ctc_conformer(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames);

/* How many frames the layers have of so many. */
static inline uint64_t oom_ctc_inside(const struct oom_arch *a, uint64_t frames)
{
	return frames / ctc_of(a)->squeeze;
}
/* Of a squeezed kind: what the base model makes of the convolutions' frames x, a name of f; what the layers take, of which f
 * holds the parts; as many frames as there were. */
struct oom_val oom_ctc_squeezed_input(struct oom_frame *f, const struct oom_arch *a, struct oom_val x);
struct oom_val oom_ctc_squeezed(struct oom_frame *f, const struct oom_arch *a, struct oom_val x, uint64_t frames);
struct oom_val oom_ctc_upsampled(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames);

/* What the convolutions make of n samples of audio; *frames: how many remain. */
struct oom_val oom_ctc_features(struct oom_tape *t, const struct oom_arch *a, uint64_t n, uint64_t *frames);
/* SpecAugment: a learned vector at some frames (in place), zeros at some features. */
struct oom_val oom_ctc_augmented(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
/* A convolution as wide as its kernel, cut where the kernel is even, and an activation; of stacked ones several. */
struct oom_val oom_ctc_positions(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames);

#endif
