/* Audio as tensors: one-dimensional convolutions over frames, gated linear units, the batch's
 * features. */
#ifndef OOM_AUDIO_H
#define OOM_AUDIO_H

#include "blocks.h"

/* nn.Conv1d over x of (frames x in): the result has mono frames of `out` channels.  groups 0:
 * one. */
struct oom_conv1d {
	uint64_t in, out, kernel, groups;
	bool bias;
};
struct oom_val oom_op_conv1d(struct oom_tape *t, const char *name, struct oom_val x,
			     const struct oom_conv1d *c, uint16_t mono);
/* nn.functional.glu over the channels: half as wide, the input kept. */
struct oom_val oom_op_glu(struct oom_tape *t, struct oom_val x);
/* The batch's features, arch.frame elements each of mono frames, in the model's type. */
struct oom_val oom_features(struct oom_tape *t, const struct oom_arch *a, uint16_t mono);

#endif
