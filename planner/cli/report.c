/* Text reports: the answer first, then the anatomy, the phases, the ladder. */
#include <string.h>

#include "cli.h"
#include "oomplan/engine.h"
#include "term.h"

static void bar(uint64_t part, uint64_t whole, int width)
{
	const int room = oom_term_width() - 58;         /* what the numbers and " <- peak" leave */
	char buf[200];

	if (oom_term_is_tty())
		fputs(oom_bar(part, whole, width < room ? width : room, oom_term_unicode(), buf,
			      sizeof(buf)),
		      stdout);
}

/* A knob's value, to the end of the block. */
#define VALUE(p, knob) oom_plan_get((p), oom_knob_find(knob), (char[64]){0}, 64)

static const char *card(const struct oom_target *t)
{
	return t->q.gpu ? oom_shown(t->gpu.name) : "the card";
}

const char *oom_used_or_wanted(const struct oom_target *t, const struct oom_judged *j)
{
	return j->eval.used_bytes <= oom_budget(t->q.capacity_bytes, &j->plan) ? "used" : "wanted";
}

static void predicted(const struct oom_target *t, const struct oom_judged *j)
{
	const uint64_t capacity = t->q.capacity_bytes, used = j->eval.used_bytes;

	printf("%s%s%s: peak %s %s of %s on %s", oom_paint(j->fits ? OOM_GOOD : OOM_BAD),
	       j->fits	   ? j->eval_fits ? "FITS" : "FITS TRAINING" :
	       j->fits_gpu ? "FITS THE GPU, NOT THE HOST" :
			     "DOES NOT FIT",
	       oom_paint(OOM_PLAIN), oom_gib(used), oom_used_or_wanted(t, j), oom_gib(capacity), card(t));
	if (j->fits_gpu)
		printf(", %s free\n", oom_gib(capacity - used));
	else if (used <= oom_budget(capacity, &j->plan))
		putchar('\n');
	else
		printf(", %s too much (margin %.0f %%)\n",
		       oom_gib(used - oom_budget(capacity, &j->plan)), j->plan.margin * 100);
}

/* By one's own runs, or the shipped ones: what is expected, and how sure that is. */
static void expected(const struct oom_target *t, const struct oom_judged *j)
{
	const struct oom_expectation *x = &j->expected;
	const double capacity = (double)t->q.capacity_bytes, short_of = x->needed_bytes - capacity;
	char odds[32];

	oom_calibrated_percent(x, odds);
	printf("%s%s%s%s%s: peak %s expected of %s on %s",
	       oom_paint(j->fits ? OOM_GOOD : OOM_BAD),
	       j->fits	   ? "FITS with " :
	       j->fits_gpu ? "FITS THE GPU, NOT THE HOST, with " :
			     "DOES NOT FIT (fits with ",
	       odds, j->fits_gpu ? "" : ")", oom_paint(OOM_PLAIN), oom_gib_real(x->used_bytes),
	       oom_gib(t->q.capacity_bytes), card(t));
	if (j->fits_gpu)
		printf(", %s free\n", oom_gib_real(capacity - x->used_bytes));
	else if (t->q.confidence > 0)
		printf(", %s too little for %g %%\n", oom_gib_real(short_of), 100 * t->q.confidence);
	else
		printf(", %s too little (margin %.0f %%)\n", oom_gib_real(short_of),
		       100 * j->plan.margin);
}

const char *oom_used_of(char buf[80], uint64_t used, uint64_t capacity)
{
	char a[32], b[32];
	char *unit = strchr(oom_format_bytes(used, a, sizeof(a)), ' ');

	oom_format_bytes(capacity, b, sizeof(b));
	if (unit && strchr(b, ' ') && !strcmp(unit, strchr(b, ' ')))
		*unit = 0;
	snprintf(buf, 80, "%s of %s", a, b);
	return buf;
}

/* Training fits, and an evaluation in between would not. */
static void evaluation(const struct oom_target *t, const struct oom_judged *j)
{
	if (!t->q.capacity_bytes || j->eval_fits)
		return;
	printf("  evaluation (batch %lld) %s ", (long long)j->plan.eval_batch,
	       j->plan.evaluates == OOM_EVALUATES_YES ? "needs" : "would need");
	fputs(oom_used_of((char[80]){0}, j->eval_used_bytes, t->q.capacity_bytes), stdout);
	puts(j->plan.evaluates == OOM_EVALUATES_YES ? "" : ": --eval-batch, or --evaluates no");
}

/* What frameworks make of the plan: what it is refused for, and what has to be set besides.  brief: only what says
 * that it does not run, or not as it was priced. */
static void compat(const struct oom_judged *j, bool brief)
{
	struct oom_compat_rule r;

	for (size_t i = 0; oom_compat_next(&j->broken, &i) && oom_compat_rule_at(i, &r); i++) {
		if (brief && r.verdict > OOM_BECOMES_OTHER)
			continue;
		if (r.verdict == OOM_CONDITIONAL)
			printf("  needs %s: %s", r.setting, r.happens);
		else
			printf("  %s%s%s: %s%s", oom_paint(OOM_BAD),
			       r.verdict == OOM_REFUSED       ? "REFUSED" :
			       r.verdict == OOM_BECOMES_OTHER ? "BECOMES ANOTHER RUN" :
								 "INADVISABLE",
			       oom_paint(OOM_PLAIN), r.happens, *r.instead ? "; instead:" : "");
		for (char *rest = r.instead, *word; (word = strsep(&rest, " ")) && *word;)
			printf(" --%s", word);
		putchar('\n');
	}
}

void oom_report_precision(const struct oom_target *t)
{
	const struct oom_plan *p = &t->q.plan;

	if (*t->q.precision_note)
		printf("  precision: %s\n", t->q.precision_note);
	if (!p->zero_said && p->zero_stage)
		printf("  sharding: --zero %lld by default, which is what %s does unless it is told a stage\n",
		       (long long)p->zero_stage, VALUE(p, "engine"));
}

static void set_up(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e)
{
	char count[32];

	printf("  model: %s, %s parameters", oom_shown(oom_model_type(t->model)),
	       oom_format_count(e->total_params, count, sizeof(count)));
	if (e->trainable_params != e->total_params)
		printf(" (%s trainable)",
		       oom_format_count(e->trainable_params, count, sizeof(count)));
	printf("; %s, batch %lld x accumulation %lld, %lld tokens, %s, %s, checkpointing %s\n",
	       VALUE(p, "precision"), (long long)p->micro_batch, (long long)p->grad_accum,
	       (long long)p->seq_len, VALUE(p, "attn"), VALUE(p, "optimizer"),
	       VALUE(p, "grad-ckpt"));
	if (*oom_model_unasked(t->model, p))
		printf("  inputs: %s\n", oom_model_unasked(t->model, p));
	if (p->precision == t->q.plan.precision)
		oom_report_precision(t);
}

static void verdict(const struct oom_job *job, const struct oom_target *t,
		    const struct oom_judged *j)
{
	const struct oom_plan *p = &j->plan;
	const struct oom_eval *e = &j->eval;

	if (t->q.capacity_bytes && j->expected.needed_bytes > 0)
		expected(t, j);
	else if (t->q.capacity_bytes)
		predicted(t, j);
	else
		printf("peak %s used\n", oom_gib(e->used_bytes));
	evaluation(t, j);
	compat(j, job->quiet);
	if (job->quiet)
		return;
	printf("  binding phase: %s (%s%s%s)\n", oom_phase_str(e->peak_phase),
	       e->peak_module ? e->peak_module : "", e->peak_module && *e->peak_module ? ": " : "",
	       e->peak_op ? e->peak_op : "");
	if (e->peak_phase == OOM_PHASE_EVAL)
		puts("  no rung cures this: a smaller --eval-batch, eval_accumulation_steps=1, or "
		     "preprocess_logits_for_metrics (oomplan explain M15)");
	if (e->peak_phase == OOM_PHASE_ROLLOUTS)
		puts("  no rung cures this: fewer answers at once (--grad-accum, --micro-batch), shorter ones "
		     "(--completion-len), or --rollouts engine");
	oom_report_allocation(e);
	set_up(t, p, e);
	oom_report_time(t, p, e);
	if (t->q.gpu && t->gpu.capacity_kind == OOM_CAPACITY_MARKETING)
		printf("  note: only the marketed size of %s is known; the driver reports less\n",
		       oom_shown(t->gpu.name));
	oom_report_calibrated(t, p, e);
	oom_report_several(t, p, e);
	if (p->vllm_share > 0)
		printf("  rollouts: their engine takes %s of the card%s\n",
		       oom_gib(oom_rollout_bytes(t->q.capacity_bytes, p)),
		       p->vllm_sleep ? ", beside weights and states while it generates" : " besides");
	if (e->host_pinned_bytes || e->host_pageable_bytes || e->nvme_bytes)
		printf("  off the GPU, per rank: %s pinned and %s pageable host memory, %s on "
		       "disk\n",
		       oom_gib(e->host_pinned_bytes), oom_gib(e->host_pageable_bytes), oom_gib(e->nvme_bytes));
	for (size_t i = 0; i < OOM_WARNINGS && e->warning[i]; i++)
		printf("  WARNING: %s\n", oom_shown(e->warning[i]));
	if (*t->note)
		printf("  note: %s\n", oom_shown(t->note));
}

static void anatomy(const struct oom_eval *e)
{
	const uint64_t small = (uint64_t)1 << 20;
	uint64_t rest = 0;

	printf("\nwho is alive at the peak (%s)\n", oom_phase_str(e->peak_phase));
	for (int b = 0; b < OOM_BUCKETS; b++) {
		if (e->bucket[b] < small && e->overall_peak >= 100 * small) {
			rest += e->bucket[b];
			continue;
		}
		if (!e->bucket[b])
			continue;
		printf("  %-26s %12s", oom_bucket_str((enum oom_bucket)b), oom_gib(e->bucket[b]));
		if (b == OOM_BUCKET_PARAMS || b == OOM_BUCKET_GRADS || b == OOM_BUCKET_OPT)
			printf("  %5.2f B/param ", (double)e->bucket[b] / (double)e->total_params);
		else
			printf("%17s", "");
		bar(e->bucket[b], e->overall_peak, 30);
		putchar('\n');
	}
	if (rest)
		printf("  %-26s %12s\n", "everything below 1 MiB", oom_gib(rest));
}

static void phases(const struct oom_judged *j)
{
	const struct oom_eval *e = &j->eval;

	printf("\npeak of each phase (allocated)\n");
	for (int p = 0; p < OOM_PHASES; p++) {
		if (!oom_phase_occurs(e, (enum oom_phase)p))
			continue;               /* answers where none are generated, a run that never evaluates */
		printf("  %-18s %12s  ", oom_phase_str((enum oom_phase)p), oom_gib(e->peak[p]));
		bar(e->peak[p], e->overall_peak, 40);
		if ((enum oom_phase)p == OOM_PHASE_EVAL)
			printf(" batch %lld", (long long)j->plan.eval_batch);
		printf("%s\n", (enum oom_phase)p == e->peak_phase ? " <- peak" : "");
	}
}

/* What the machine needs besides the card, and which limit shows itself how. */
static void host(const struct oom_target *t, const struct oom_judged *j)
{
	const struct oom_host_need *n = &j->host;

	printf("\nalso needed per node: %s of host RAM (processes %s, loading %s, offload %s, loader %s, "
	       "saving %s), %s of disk\n",
	       oom_gib(n->ram_peak), oom_gib(n->processes), oom_gib(n->loading),
	       oom_gib(n->pinned + n->pageable), oom_gib(n->loader), oom_gib(n->saving),
	       oom_gib(n->disk_peak));
	printf("  the page cache takes up to %s more: it is given back when memory is short, but it makes a "
	       "container look full, and dirty pages count against its limit\n",
	       oom_gib(n->page_cache));
	if (t->q.host_ram_bytes)
		printf("  there are %s: %s\n", oom_gib(t->q.host_ram_bytes),
		       oom_limit_str(j->first_limit));
	else
		printf("  a run that is short of GPU memory ends in a traceback, one that is short of host memory in "
		       "\"Killed\" (exit 137)\n");
}

static void rungs(const struct oom_ladder *l, bool whole)
{
	static const char *const words[] = {"not needed",	 "TAKEN", "does not help",
					    "nothing to change", "OFFER", "given back",
					    "refused"};

	if (whole || !l->start_fits)
		printf("\nthe ladder, cheapest first%s\n", whole ? "" : " (all of it: --ladder)");
	for (int i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at((size_t)i);
		const struct oom_rung_result *s = &l->rung[i];
		const bool quiet = s->outcome == OOM_RUNG_NOT_NEEDED ||
				   s->outcome == OOM_RUNG_NOT_APPLICABLE;

		if (!whole && quiet)
			continue;
		printf("  %2d %-47s %-17s", r->number, r->name, words[s->outcome]);
		if (!quiet)
			printf(" %s -> %s%s", oom_gib(s->before_bytes), oom_gib(s->after_bytes),
			       s->fits ? ", fits" : "");
		putchar('\n');
		if (!whole || (quiet && !*s->note))
			continue;
		printf("       %s; costs: %s\n       set: %s   [%s]\n", oom_class_str(r->cls),
		       r->cost, r->setting, r->source);
		if (s->outcome == OOM_RUNG_OFFERED)
			printf("       changes the science: taken only with --allow %s\n",
			       oom_allow_str(r->allow));
		if (*s->note)
			printf("       %s\n", oom_shown(s->note));
	}
}

/* Of what was asked, and of what does instead: one never without the other. */
static void both(const struct oom_target *t, const struct oom_answer *a)
{
	const struct oom_judged *asked = &a->as_asked, *best = &a->best;
	char options[600];

	printf("%s%s%s as asked (", oom_paint(OOM_BAD),
	       !asked->fits_gpu ? "DOES NOT FIT" : !asked->fits ? "FITS THE GPU, NOT THE HOST" :
								   "DOES NOT RUN",
	       oom_paint(OOM_PLAIN));
	/* where the evaluation is what does not fit, its bytes */
	if (!asked->eval_fits && asked->plan.evaluates == OOM_EVALUATES_YES &&
	    asked->eval.used_bytes <= oom_budget(t->q.capacity_bytes, &asked->plan))
		printf("evaluation %s)", oom_used_of((char[80]){0}, asked->eval_used_bytes,
						     t->q.capacity_bytes));
	else
		printf("%s)", oom_used_of((char[80]){0}, asked->eval.used_bytes,
					  t->q.capacity_bytes));
	if (!best->fits_gpu) {
		printf("; nothing that was tried does (%s)", oom_gib(best->eval.used_bytes));
		for (size_t i = 0; i < a->n_elsewhere; i++)
			printf("%s%s", i ? " and " : ", but with another launcher: ",
			       oom_engine_at((size_t)a->elsewhere[i].plan.engine)->launcher);
		putchar('\n');
		return;
	}
	oom_plan_options(&asked->plan, &best->plan, options, sizeof(options));
	printf("; %s with %d change%s", best->fits ? "fits" : "fits the GPU, not the host,", a->changes,
	       a->changes == 1 ? "" : "s");
	/* More goes to the host than the cards hold, and nobody said how much it has. */
	if (!t->q.host_ram_bytes && best->host.pinned + best->host.pageable >
					    t->q.capacity_bytes * (uint64_t)(best->plan.gpus / best->plan.nodes))
		printf(", if each machine has %s of RAM", oom_gib(best->host.ram_peak));
	printf(": %s (%s)\n", oom_shown(options), oom_gib(best->eval.used_bytes));
}

void oom_report_plan(const struct oom_job *job, const struct oom_target *t,
		     const struct oom_answer *a)
{
	if (a->from != OOM_FROM_ASKED) {
		both(t, a);
		if (job->quiet) {
			if (a->best.fits_gpu)
				evaluation(t, &a->best);
			return;
		}
	}
	verdict(job, t, &a->best);
	if (job->quiet)
		return;
	if (a->from != OOM_FROM_ASKED)
		printf("  effective batch %lld kept\n", (long long)a->ladder.effective_batch);
	if (*t->q.note)
		printf("  %s\n", t->q.note);
	oom_report_lengths(t);
	anatomy(&a->best.eval);
	phases(&a->best);
	host(t, &a->best);
	if (a->searched && a->search.found)
		oom_report_search(t, &a->as_asked.plan, &a->search);
	else
		putchar('\n');
	oom_report_elsewhere(t, a);
	oom_report_to_run(job, t, &a->as_asked.plan, &a->best.plan);
	rungs(&a->ladder, job->ladder);
}

void oom_report_estimate(const struct oom_job *job, const struct oom_target *t,
			 const struct oom_judged *j)
{
	verdict(job, t, j);
	if (job->quiet)
		return;
	if (*t->q.note)
		printf("  %s\n", t->q.note);
	oom_report_lengths(t);
	anatomy(&j->eval);
	phases(j);
	host(t, j);
}
