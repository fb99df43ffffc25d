/* MobileViT: what a config says, and the bodies of a block's transformer in both versions. */
#ifndef OOM_MOBILEVIT_H
#define OOM_MOBILEVIT_H

#include "blocks/image.h"

enum { MOBILEVIT_BLOCKS = 3, MOBILEVIT_NECK = 7 };

struct mobilevit {
	uint64_t neck[MOBILEVIT_NECK], hidden[MOBILEVIT_BLOCKS], layers[MOBILEVIT_BLOCKS], heads,
		patch, kernel, output_stride, dim[6];
	double expand, ratio;
	bool qkv_bias;
};
OOM_OWN(mobilevit, struct mobilevit);

/* What sets the versions apart. */
struct mobilevit_kind {
	void (*parse)(struct oom_arch *a);
	/* what follows the inverted residual of layers 3 to 5 */
	struct oom_map (*body)(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
			       struct oom_map m);
	int small;                      /* inverted residuals of layer 2 */
	bool neck;                      /* a last convolution after the encoder */
};

struct oom_map mobilevit_conv_bn(struct oom_tape *t, struct oom_map m, struct oom_conv v,
				 enum oom_act act);
struct oom_map mobilevit_pointwise(struct oom_tape *t, struct oom_map m, uint64_t out,
				   enum oom_act act);
struct oom_map mobilevit_plain_conv(struct oom_tape *t, struct oom_map m, uint64_t out, bool bias);
struct oom_map mobilevit_v1_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				 struct oom_map m);
struct oom_map mobilevit_v2_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				 struct oom_map m);

#endif
