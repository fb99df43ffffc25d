/* From spans to phases: what is resident, what a pass adds, and what both leave behind. */
#include "phases.h"

#include "families/model.h"

uint64_t oom_eval_logits(const struct oom_arch *a, const struct oom_plan *p, uint64_t b, uint64_t s,
			 uint64_t tgt)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : a->default_task;
	const uint64_t bytes = p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4;

	if (task == OOM_TASK_SEQ_CLS || task == OOM_TASK_IMAGE_CLS)
		return b * (p->num_labels ? (uint64_t)p->num_labels : a->config_labels) * bytes;
	return b * (task == OOM_TASK_SEQ2SEQ ? tgt : s) * a->vocab * bytes;
}

void oom_pile_up(struct oom_eval *out, uint64_t n, uint64_t one, uint64_t base, uint64_t held)
{
	const uint64_t most = (uint64_t)1 << 60, pile = one && n > most / one ? most : n * one;
	const uint64_t run = out->peak[OOM_PHASE_EVAL] + held + pile - (pile < one ? pile : one),
		       cat = base + held + 2 * pile;

	out->peak[OOM_PHASE_EVAL] = run > cat ? run : cat;
	if (out->peak[OOM_PHASE_EVAL] > out->overall_peak) {
		out->overall_peak = out->peak[OOM_PHASE_EVAL];
		out->peak_phase = OOM_PHASE_EVAL;
	}
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Peak of the backward passes.  f is what the forward left on the card, all of it with what went to
 * the host: in the last layer that has been freed either way. */
static uint64_t backward_peak(const struct oom_span span[OOM_PASSES], const struct oom_states *s,
			      uint64_t base, uint64_t f, uint64_t all, uint64_t kept, bool many)
{
	const struct oom_span b = span[OOM_PASS_BWD], acc = span[OOM_PASS_BWD_ACC];
	const uint64_t moved = base + s->bwd, late = base + s->bwd_late;
	const uint64_t last = b.late > -(int64_t)all ? all + (uint64_t)b.late : 0,
		       last_acc = acc.late > -(int64_t)all ? all + (uint64_t)acc.late : 0;
	const uint64_t once = most(moved + f + (uint64_t)b.peak, late + last);

	if (!many && !s->grads_reduced)
		return once;
	/* reduced: a gradient is added to its shard and freed as soon as it is made; the shards
	 * fill up meanwhile */
	if (s->grads_reduced)
		return most(moved + f + (many ? kept : s->grads_first) + (uint64_t)acc.peak,
			    most(late + kept + last_acc, base + kept + s->bwd_end));
	return most(once, kept + most(moved + f + (uint64_t)acc.peak, late + last_acc));
}

void oom_phases(const struct program *g, const struct oom_plan *p, struct oom_eval *out,
		uint64_t base, const struct oom_states *states)
{
	const struct oom_tape *t = &g->tape;
	const struct oom_span *const span = g->span;
	const struct oom_span f = span[OOM_PASS_FWD], b = span[OOM_PASS_BWD],
			      e = span[OOM_PASS_EVAL];
	/* activation offloading: what repeated layers keep is on the host but for one (torchtune
	 * _activation_offloading.py) */
	const uint64_t away = p->offload_activations && f.layers > f.one ?
				      (uint64_t)(f.layers - f.one) :
				      0;
	const bool many = p->grad_accum > 1, reduced = states->grads_reduced;
	const uint64_t grads = (uint64_t)(f.net + b.net), kept = reduced ? states->grads : grads;
	const uint64_t held = many ? kept : 0, start = base + states->fwd_start + held,
		       left = (uint64_t)f.net - away;
	const uint64_t fpeak = most(base + states->fwd + held + (uint64_t)f.peak - away, start);
	const uint64_t bpeak = backward_peak(span, states, base, left, (uint64_t)f.net, kept, many);

	out->offloaded_bytes = away;
	out->peak[OOM_PHASE_LOAD] = out->end[OOM_PHASE_LOAD] = states->params + t->buffer_rounded;
	out->peak[OOM_PHASE_EVAL] = base + states->fwd + (uint64_t)e.peak;
	out->end[OOM_PHASE_EVAL] = base;
	for (int step = 0; step < 2; step++) {
		const uint64_t opt = step || states->opt_from_start ? states->opt : 0;
		const int i = step * 3;

		out->peak[OOM_PHASE_FWD1 + i] = fpeak + opt;
		out->end[OOM_PHASE_FWD1 + i] = base + opt + held + left;
		out->peak[OOM_PHASE_BWD1 + i] = bpeak + opt;
		out->end[OOM_PHASE_BWD1 + i] = base + opt + kept;
		out->peak[OOM_PHASE_OPT1 + i] = base + kept + states->opt + states->temps[step];
		out->end[OOM_PHASE_OPT1 + i] = base + states->opt;
	}
	out->overall_peak = 0;
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_OPT2; i++)
		if (out->peak[i] > out->overall_peak) {
			out->overall_peak = out->peak[i];
			out->peak_phase = (enum oom_phase)i;
		}
	out->saved_bytes = left;
	out->floor_bytes = states->comm + (states->bwd > states->fwd ? states->bwd : states->fwd);
}
