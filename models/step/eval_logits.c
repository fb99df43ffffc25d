/* An evaluation that keeps its logits for metrics: how large they are, what else the model returns, and how it all piles up
 * before it goes to the host. */
#include <string.h>

#include "config/arch.h"
#include "step/objectives.h"
#include "step/phases.h"
#include "step/program.h"

uint64_t oom_eval_logits(const struct oom_arch *a, const struct oom_plan *p, uint64_t b, uint64_t s,
			 uint64_t tgt)
{
	const enum oom_task task = oom_task_of(p, a);
	const uint64_t bytes = p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4;

	if (task == OOM_TASK_SEQ_CLS || task == OOM_TASK_IMAGE_CLS)
		return b * oom_labels_of(p, a) * bytes;
	return b * (task == OOM_TASK_SEQ2SEQ ? tgt : s) * oom_vocab_of(p, a) * bytes;
}

/* transformers trainer.py prediction_step keeps outputs[1:] but for past_key_values: an encoder's last hidden states, too, of
 * Seq2SeqLMOutput.  accelerate makes all of it fp32 under autocast; Mamba's logits are fp32 anyway (modeling_mamba.py). */
uint64_t oom_eval_outputs(const struct oom_tape *t, const struct oom_arch *a, const struct oom_plan *p, uint64_t b, uint64_t s,
			  uint64_t tgt)
{
	const bool half = p->precision == OOM_BF16 || p->precision == OOM_FP16;
	uint64_t mono[OOM_MAX_MONOS], sum = t->evaluated_logits ? 0 : oom_eval_logits(a, p, b, s, tgt), one;

	oom_monos_eval(t, b, s, tgt, mono);
	for (size_t i = 0; i < t->n_evaluated; i++) {
		const struct oom_val *x = &t->evaluated[i];
		const uint64_t bytes = half ? oom_dtype_bytes((enum oom_dtype)x->dt) : 4;

		if (__builtin_mul_overflow(mono[x->mono], x->width * bytes, &one) || one > OOM_ROW_LIMIT)
			one = OOM_ROW_LIMIT;
		sum += one;
	}
	return sum;
}

void oom_pile_up(const struct oom_schedule *s, struct oom_eval *out, uint64_t n, uint64_t one,
		 struct oom_alive *alive)
{
	const uint64_t most = (uint64_t)1 << 60, pile = one && n > most / one ? most : n * one;
	/* From the third batch on, what the loop calls `logits` is the batch before, of which the pile
	 * has a copy (transformers trainer.py evaluation_loop; nested_concat). */
	const uint64_t waiting = pile - (pile < one ? pile : one) + (n > 2 ? one : 0);
	uint64_t held = 0, *bucket = alive ? alive[OOM_PHASE_EVAL].bucket : NULL;
	uint64_t run, cat;

	for (size_t i = 0; i < s->n_hold; i++)
		held += s->hold[i].from == OOM_AT_STEP && s->hold[i].place == OOM_ON_GPU ?
				s->hold[i].bytes :
				0;
	run = out->peak[OOM_PHASE_EVAL] + held + waiting;
	cat = out->end[OOM_PHASE_EVAL] + held + 2 * pile;
	if (bucket && cat > run) {
		memset(bucket, 0, sizeof(alive->bucket));
		for (size_t i = 0; i < s->n_hold; i++)
			if (s->hold[i].from <= OOM_AT_START && s->hold[i].place == OOM_ON_GPU)
				bucket[s->hold[i].bucket] += s->hold[i].bytes;
	}
	if (bucket) {
		bucket[OOM_BUCKET_OPT] += held;
		bucket[OOM_BUCKET_LOGITS] += cat > run ? 2 * pile : waiting;
		alive[OOM_PHASE_EVAL].op = "logits kept for metrics";
		alive[OOM_PHASE_EVAL].module = "evaluation loop";
	}
	out->peak[OOM_PHASE_EVAL] = run > cat ? run : cat;
	if (out->peak[OOM_PHASE_EVAL] > out->overall_peak) {
		out->overall_peak = out->peak[OOM_PHASE_EVAL];
		out->peak_phase = OOM_PHASE_EVAL;
	}
}
