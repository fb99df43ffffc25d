/* From spans to phases. */
#ifndef OOM_PHASES_H
#define OOM_PHASES_H

#include "oomplan/model.h"
#include "program.h"

/* Fills out's phases of plain, sharded and offloaded steps from g's spans.  base: what lies on the
 * card all the time. */
void oom_phases(const struct program *g, const struct oom_plan *plan, struct oom_eval *out,
		uint64_t base, const struct oom_states *states);
/* Logits of one evaluation batch as Trainer keeps them: under autocast accelerate has made them
 * fp32. */
uint64_t oom_eval_logits(const struct oom_arch *a, const struct oom_plan *plan, uint64_t b,
			 uint64_t s, uint64_t tgt);
/* n batches' logits (one each) pile up before they go to the host: the last batch meets n - 1 of
 * them, and torch.cat then copies the pile while it and the newest are alive (trainer.py
 * evaluation_loop, trainer_pt_utils.py nested_concat).  The first evaluation comes after training
 * steps: optimizer states lie there (held). */
void oom_pile_up(struct oom_eval *out, uint64_t n, uint64_t one, uint64_t base, uint64_t held);

#endif
