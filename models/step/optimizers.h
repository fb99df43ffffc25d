/* What an optimizer keeps and what its step needs. */
#ifndef OOM_OPTIMIZERS_H
#define OOM_OPTIMIZERS_H

#include "oomplan/plan.h"
#include "tape/tape.h"

#define OOM_MAX_OPTIMIZERS 64
#define OOM_PAGED_FROM 100000

/* One entry of the table (optimizers.c). */
struct oom_optimizer {
	struct oom_choice choice;
	const char *setting;            /* HF TrainingArguments optim= */
	/* Bytes of state of one trainable tensor; adds the rounded blocks to *rounded. */
	uint64_t (*state)(const struct oom_param *p, uint64_t *rounded);
	/* Highest temporary above grads + state during the first and the later steps (rounded
	 * bytes). */
	void (*temps)(const struct oom_param *p, size_t n, uint64_t state_rounded, uint64_t out[2]);
	uint8_t slots;                  /* states a parameter, for replays */
	/* bytes an element in managed memory, of tensors of OOM_PAGED_FROM elements on: on the GPU
	 * while there is room, in the host's memory under pressure */
	uint8_t paged;
};
const struct oom_optimizer *oom_optimizer_at(size_t i);
const struct oom_choice *oom_optimizer_choice(size_t i);
/* Whether it keeps this tensor's state in 8 bits. */
bool oom_optimizer_quantises(const struct oom_optimizer *o, const struct oom_param *p);

#endif
