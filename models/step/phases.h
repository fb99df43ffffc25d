/* A schedule read in the order of the step: peaks, ends, and who is alive. */
#ifndef OOM_PHASES_H
#define OOM_PHASES_H

#include "oomplan/model.h"
#include "step/schedule.h"
#include "step/variant.h"

/* Bytes alive, by bucket. */
struct oom_alive {
	uint64_t bucket[OOM_BUCKETS];
	const char *op, *module;        /* the operation that allocated last */
};

/* Reads every phase of s into out (peaks, ends, overall_peak, peak_phase, saved_bytes).
 *
 * v: the streams, whose spans are up to date (NULL: holdings are all there is); size: their rows in bytes, needed for `alive` alone.
 * alive: NULL, or who is there at the peak of every phase; adds up to it. */
void oom_read_phases(const struct oom_schedule *s, const struct oom_variant *v,
		     const uint64_t *size, struct oom_eval *out, struct oom_alive *alive);

/* Logits of one evaluation batch as Trainer keeps them: under autocast accelerate has made them
 * fp32. */
uint64_t oom_eval_logits(const struct oom_arch *a, const struct oom_plan *plan, uint64_t b,
			 uint64_t s, uint64_t tgt);
/* The same with all else that the model returns beside its loss (t: the step's recording). */
uint64_t oom_eval_outputs(const struct oom_tape *t, const struct oom_arch *a, const struct oom_plan *plan,
			  uint64_t b, uint64_t s, uint64_t tgt);
/* n batches' logits (one each) pile up before they go to the host: the last batch meets n - 1 of
 * them, and torch.cat then copies the pile while it and the newest are alive (trainer.py
 * evaluation_loop, trainer_pt_utils.py nested_concat).  The first evaluation comes after training
 * steps: optimizer states lie there. */
void oom_pile_up(const struct oom_schedule *s, struct oom_eval *out, uint64_t n, uint64_t one,
		 struct oom_alive *alive);

#endif
