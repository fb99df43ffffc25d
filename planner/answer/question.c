/* What a question asks once everything that follows from the rest of it is filled in. */
#include <stdio.h>
#include <string.h>

#include "oomplan/answer.h"
#include "oomplan/engine.h"
#include "oomplan/rules.h"

struct oom_question oom_question_default(void)
{
	return (struct oom_question){.plan = oom_plan_default()};
}

struct oom_lengths_report oom_question_lengths(const struct oom_question *q)
{
	const double b = (double)q->plan.micro_batch, steps = (double)q->lengths->total / b;

	return oom_lengths_report(q->lengths, b, steps < 1 ? 1 : steps);
}

/* The longest batch of an epoch is what has to fit (playbook M16). */
static int64_t longest_batch(const struct oom_question *q)
{
	const struct oom_lengths_report r = oom_question_lengths(q);
	const int64_t tokens = r.batching[OOM_BATCH_LONGEST].worst_tokens;

	return tokens < 1 ? 1 : tokens;
}

/* What an engine makes of mixed precision goes by its own name, and is told. */
static void respell(struct oom_question *q)
{
	const struct oom_option *k = oom_knob_find("precision");
	char was[OOM_VALUE_SIZE], is[OOM_VALUE_SIZE];

	oom_plan_get(&q->plan, k, was, sizeof(was));
	oom_engine_respell(&q->plan);
	oom_plan_get(&q->plan, k, is, sizeof(is));
	if (strcmp(was, is))
		snprintf(q->precision_note, sizeof(q->precision_note),
			 oom_engine_at((size_t)q->plan.engine)->casts_model ?
				 "%.20s is %.20s weights and an fp32 master under this engine; autocast over fp32 ones is "
				 "--torch-autocast true" :
				 "%.20s is %.20s under accelerate, which keeps in fp32 what trains; a loop that leaves weights as loaded is "
				 "--torch-autocast true",
			 was, is);
}

/* Settled once more it has nothing to say: what was said stays. */
static void settle_precision(struct oom_question *q)
{
	char told[200];

	if (oom_plan_precision_open(&q->plan))
		oom_model_settle_base(q->model, &q->plan);      /* its loader may have a say */
	oom_model_settle_precision(q->model, &q->plan, told);
	if (*told)
		memcpy(q->precision_note, told, sizeof(told));
}

void oom_question_settle(struct oom_question *q)
{
	struct oom_plan *p = &q->plan;
	char note[300];

	oom_plan_settle(p);
	if (q->gpu && p->compute_capability <= 0)
		p->compute_capability = q->gpu->compute_capability;
	if (q->gpu && !q->capacity_bytes)
		q->capacity_bytes = q->gpu->capacity_bytes;
	/* who says how many logits an evaluation keeps has one */
	if (p->eval_accumulation && p->evaluates == OOM_EVALUATES_UNSAID)
		p->evaluates = OOM_EVALUATES_YES;
	if (q->lengths)
		p->seq_len = longest_batch(q);
	settle_precision(q);
	respell(q);
	oom_plan_settle_for(p, q->model, note);
	if (*note)                      /* settled once more it has nothing to say */
		memcpy(q->note, note, sizeof(note));
}
