/* Audio as tensors: gated linear units over frames, the batch's features. */
#ifndef OOM_AUDIO_H
#define OOM_AUDIO_H

#include "blocks.h"
#include "ops/conv.h"

/* nn.functional.glu over the channels: half as wide, the input kept. */
struct oom_val oom_op_glu(struct oom_tape *t, struct oom_val x);
/* The batch's features, arch.frame elements each of mono frames, in the model's type. */
struct oom_val oom_features(struct oom_tape *t, const struct oom_arch *a, uint16_t mono);

#endif
