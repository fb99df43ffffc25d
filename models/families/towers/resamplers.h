/* Resamplers that more than one composition has. */
#ifndef OOM_RESAMPLERS_H
#define OOM_RESAMPLERS_H

#include "vision.h"

/* A Q-Former that runs: n queries, one row of them for all images until they meet them, attend to e->m_tokens rows of
 * `image`, which it consumes (qformer.c). */
struct oom_val oom_qformer_of(struct oom_emit *e, struct oom_reader *r, const char *query, uint64_t n, struct oom_val image);

#endif
