/* Between ModernBERT and the image tower of ModernVBERT. */
#ifndef OOM_MODERNVBERT_H
#define OOM_MODERNVBERT_H

#include "config/arch.h"

/* Its sizes; patch: elements of one. */
struct modernvbert_tower {
	uint64_t width, ff, layers, patches, patch, shuffle;
};
/* Reads them, and what stands at the top of such a config. */
void oom_modernvbert_read(struct oom_arch *a, struct modernvbert_tower *v);
/* The tower, its pooling head and the connector: weights alone when the batch is text. */
void oom_modernvbert_emit(struct oom_tape *t, const struct oom_arch *a, const struct modernvbert_tower *v);

#endif
