/* What the losses that take the head in share: fused_loss.c lists them. */
#ifndef OOM_FUSED_LOSS_H
#define OOM_FUSED_LOSS_H

#include "blocks.h"

/* A part of a head's work: rows (of a monomial, so that they follow the batch) of all tokens. */
struct oom_head_part {
	uint16_t mono;
	uint64_t rows;
	bool many;              /* there is more than one */
};

/* Parts of `chunk` tokens (--loss-chunk), all tokens being `tokens`. */
struct oom_head_part oom_part_of_tokens(struct oom_tape *t, uint16_t tokens, uint64_t chunk);
/* The head's weight: a parameter of its own, or the embedding where the two are tied. */
struct oom_val oom_head_weight(struct oom_tape *t, const struct oom_arch *a, struct oom_val h, struct oom_val embed,
			       const char *name);
/* TRL's chunks, which the backward computes again (chunked_nll.c). */
struct oom_val oom_chunked_nll(struct oom_tape *t, const struct oom_arch *a, struct oom_val h, struct oom_val embed,
			       const char *name);

#endif
