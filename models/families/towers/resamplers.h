/* Resamplers that more than one composition has. */
#ifndef OOM_RESAMPLERS_H
#define OOM_RESAMPLERS_H

#include "blocks/blocks.h"

/* The layers of a Q-Former d wide, as weights: every so-many-th of them, as the config r says, with
 * cross-attention; text: a second feed-forward, of text. */
void oom_qformer_layers(struct oom_tape *t, struct oom_reader *r, uint64_t d, uint64_t from,
			bool text);

#endif
