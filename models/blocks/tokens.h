/* Heads over every token, for families whose models have them. */
#ifndef OOM_TOKENS_H
#define OOM_TOKENS_H

#include "blocks/blocks.h"

struct oom_tokens {
	const char *name;               /* of the classifier */
	double dropout;
	bool converts;                  /* logits.float() before the loss */
};
/* Whether the task is of every token: then the family's step ends in oom_tokens_head. */
bool oom_tokens_asked(const struct oom_tape *t);
/* What is asked for, of the model's last hidden states, which it consumes. */
struct oom_val oom_tokens_head(struct oom_tape *t, const struct oom_tokens *head, struct oom_val h);

#endif
