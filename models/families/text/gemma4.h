/* What Gemma 4's text model and its vision tower share. */
#ifndef OOM_FAMILIES_GEMMA4_H
#define OOM_FAMILIES_GEMMA4_H

#include "blocks/blocks.h"

/* Gemma4RMSNorm over `width` elements (0: all), with a weight or without. */
struct oom_val oom_gemma4_norm(struct oom_tape *t, const char *name, struct oom_val x, uint64_t width, bool weighted);

#endif
