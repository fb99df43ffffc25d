/* Text reports: the answer first, then the anatomy, the phases, the ladder. */
#include <math.h>
#include <string.h>

#include "cli.h"
#include "oomplan/host.h"
#include "term.h"

static const char *gib(uint64_t b)
{
	static char buf[8][32];
	static int i;

	i = (i + 1) % 8;
	return oom_format_bytes(b, buf[i], sizeof(buf[i]));
}

static void bar(uint64_t part, uint64_t whole, int width)
{
	const int room = oom_term_width() - 58;         /* what the numbers and " <- peak" leave */
	char buf[200];

	if (oom_term_is_tty())
		fputs(oom_bar(part, whole, width < room ? width : room, oom_term_unicode(), buf,
			      sizeof(buf)),
		      stdout);
}

static const char *choice(const struct oom_plan *p, const char *knob)
{
	static char buf[8][64];
	static int i;

	i = (i + 1) % 8;
	return oom_plan_get(p, oom_knob_find(knob), buf[i], sizeof(buf[i]));
}

static const char *card(const struct oom_target *t)
{
	return t->has_gpu ? oom_shown(t->gpu.name) : "the card";
}

static void predicted(const struct oom_target *t, const struct oom_plan *p,
		      const struct oom_eval *e, bool fits)
{
	const bool whole = fits && oom_host_fits(t, p, e);

	printf("%s%s%s: peak %s used of %s on %s", oom_paint(whole ? OOM_GOOD : OOM_BAD),
	       whole ? "FITS" :
	       fits  ? "FITS THE GPU, NOT THE HOST" :
		       "DOES NOT FIT",
	       oom_paint(OOM_PLAIN), gib(e->used_bytes), gib(t->capacity), card(t));
	if (fits)
		printf(", %s free\n", gib(t->capacity - e->used_bytes));
	else
		printf(", %s too much (margin %.0f %%)\n",
		       gib(e->used_bytes - oom_budget(t->capacity, p)), p->margin * 100);
}

/* By one's own runs, or the shipped ones: what is expected, and how sure that is. */
static void expected(const struct oom_job *job, const struct oom_target *t,
		     const struct oom_plan *p, const struct oom_eval *e, bool fits)
{
	const bool whole = fits && oom_host_fits(t, p, e);
	const struct oom_parts parts = oom_parts_of(e);
	const double mean = oom_calibrated(&job->calibrated, &parts, OOM_MEASURE_USED),
		     short_of = oom_calibrated_need(job, e) - (double)t->capacity;
	char odds[32];

	oom_calibrated_percent(job, t, e, odds);
	printf("%s%s%s%s%s: peak %s expected of %s on %s", oom_paint(whole ? OOM_GOOD : OOM_BAD),
	       whole ? "FITS with " :
	       fits  ? "FITS THE GPU, NOT THE HOST, with " :
		       "DOES NOT FIT (fits with ",
	       odds, fits ? "" : ")", oom_paint(OOM_PLAIN), gib((uint64_t)mean), gib(t->capacity),
	       card(t));
	if (fits)
		printf(", %s free\n", gib((uint64_t)fmax((double)t->capacity - mean, 0)));
	else if (job->confidence > 0)
		printf(", %s too little for %g %%\n", gib((uint64_t)fmax(short_of, 0)),
		       100 * job->confidence);
	else
		printf(", %s too little (margin %.0f %%)\n", gib((uint64_t)fmax(short_of, 0)),
		       100 * job->margin);
}

static void verdict(const struct oom_job *job, const struct oom_target *t, const struct oom_plan *p,
		    const struct oom_eval *e, bool fits)
{
	char count[32];

	if (t->capacity && job->has_calibration)
		expected(job, t, p, e, fits);
	else if (t->capacity)
		predicted(t, p, e, fits);
	else
		printf("peak %s used\n", gib(e->used_bytes));
	if (job->quiet)
		return;
	printf("  binding phase: %s (%s%s%s)\n", oom_phase_str(e->peak_phase),
	       e->peak_module ? e->peak_module : "", e->peak_module && *e->peak_module ? ": " : "",
	       e->peak_op ? e->peak_op : "");
	if (e->peak_phase == OOM_PHASE_EVAL)
		puts("  no rung cures this: eval_accumulation_steps=1, or "
		     "preprocess_logits_for_metrics (oomplan explain M15)");
	printf("  allocated %s, reserved %s (%s), context %s (%s), workspaces %s\n",
	       gib(e->overall_peak), gib(e->reserved_bytes),
	       e->reserved_replayed ? "allocator replayed" : "estimated", gib(e->context_bytes),
	       e->context_measured ? "measured" : "a guess", gib(e->workspace_bytes));
	printf("  model: %s, %s parameters", oom_shown(oom_model_type(t->model)),
	       oom_format_count(e->total_params, count, sizeof(count)));
	if (e->trainable_params != e->total_params)
		printf(" (%s trainable)",
		       oom_format_count(e->trainable_params, count, sizeof(count)));
	printf("; %s, batch %lld x accumulation %lld, %lld tokens, %s, %s, checkpointing %s\n",
	       choice(p, "precision"), (long long)p->micro_batch, (long long)p->grad_accum,
	       (long long)p->seq_len, choice(p, "attn"), choice(p, "optimizer"),
	       choice(p, "grad-ckpt"));
	if (t->has_gpu && t->gpu.capacity_kind == OOM_CAPACITY_MARKETING)
		printf("  note: only the marketed size of %s is known; the driver reports less\n",
		       oom_shown(t->gpu.name));
	oom_report_calibrated(job, e);
	if (e->n_stages)
		printf("  the fullest is GPU %u of %u%s; the emptiest peaks at %s\n", e->stage,
		       e->n_stages, p->engine == OOM_ENGINE_MEGATRON ? " pipeline ranks" : "",
		       gib(e->least_peak));
	if (p->gpus > p->nodes && !p->rank0_contexts && p->engine != OOM_ENGINE_DEVICE_MAP)
		printf("  GPU 0 fills first where the node's other %lld processes open a context on "
		       "it: %s more (--rank0-contexts)\n",
		       (long long)(p->gpus / p->nodes - 1),
		       gib(e->context_bytes * (uint64_t)(p->gpus / p->nodes - 1)));
	if (e->floor_bytes)
		printf("  of it %s are gathered parameters and buckets: more GPUs do not lower "
		       "them\n",
		       gib(e->floor_bytes));
	if (e->host_pinned_bytes || e->host_pageable_bytes || e->nvme_bytes)
		printf("  off the GPU, per rank: %s pinned and %s pageable host memory, %s on "
		       "disk\n",
		       gib(e->host_pinned_bytes), gib(e->host_pageable_bytes), gib(e->nvme_bytes));
	if (*e->warning)
		printf("  WARNING: %s\n", oom_shown(e->warning));
	if (*t->note)
		printf("  note: %s\n", oom_shown(t->note));
}

static void anatomy(const struct oom_eval *e)
{
	printf("\nwho is alive at the peak (%s)\n", oom_phase_str(e->peak_phase));
	for (int b = 0; b < OOM_BUCKETS; b++) {
		if (!e->bucket[b])
			continue;
		printf("  %-26s %12s", oom_bucket_str((enum oom_bucket)b), gib(e->bucket[b]));
		if (b == OOM_BUCKET_PARAMS || b == OOM_BUCKET_GRADS || b == OOM_BUCKET_OPT)
			printf("  %5.2f B/param ", (double)e->bucket[b] / (double)e->total_params);
		else
			printf("%17s", "");
		bar(e->bucket[b], e->overall_peak, 30);
		putchar('\n');
	}
}

static void phases(const struct oom_eval *e)
{
	printf("\npeak of each phase (allocated)\n");
	for (int p = 0; p < OOM_PHASES; p++) {
		printf("  %-18s %12s  ", oom_phase_str((enum oom_phase)p), gib(e->peak[p]));
		bar(e->peak[p], e->overall_peak, 40);
		printf("%s\n", (enum oom_phase)p == e->peak_phase ? " <- peak" : "");
	}
}

/* What the machine needs besides the card, and which limit shows itself how. */
static void host(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e,
		 bool fits)
{
	const struct oom_host_need n = oom_host_need(p, e);

	printf("\na node besides: %s host RAM (processes %s, loading %s, offload %s, loader %s, "
	       "saving %s), %s disk\n",
	       gib(n.ram_peak), gib(n.processes), gib(n.loading), gib(n.pinned + n.pageable),
	       gib(n.loader), gib(n.saving), gib(n.disk_peak));
	printf("  page cache up to %s besides: given back when memory is short, but it makes a "
	       "container look full and dirty pages count against its limit\n",
	       gib(n.page_cache));
	if (t->host_ram)
		printf("  of %s there: %s\n", gib(t->host_ram),
		       oom_limit_str(oom_first_limit(&n, t->host_ram, fits)));
	else
		printf("  short of GPU memory it ends in a traceback, short of host memory in "
		       "\"Killed\" (exit 137)\n");
}

bool oom_host_fits(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e)
{
	const struct oom_host_need n = oom_host_need(p, e);

	return oom_first_limit(&n, t->host_ram, true) == OOM_LIMIT_NONE;
}

static void rungs(const struct oom_ladder *l)
{
	static const char *const words[] = {"not needed", "TAKEN", "does not help",
					    "nothing to change", "OFFER"};

	printf("\nthe ladder, cheapest first\n");
	for (int i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at((size_t)i);
		const struct oom_rung_result *s = &l->rung[i];
		const bool quiet = s->outcome == OOM_RUNG_NOT_NEEDED ||
				   s->outcome == OOM_RUNG_NOT_APPLICABLE;

		printf("  %2d %-47s %-17s", r->number, r->name, words[s->outcome]);
		if (!quiet)
			printf(" %s -> %s%s", gib(s->before_bytes), gib(s->after_bytes),
			       s->fits ? ", fits" : "");
		putchar('\n');
		if (quiet && !*s->note)
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

static void command_line(const struct oom_job *job, const struct oom_ladder *l)
{
	struct oom_plan def = oom_plan_default();

	def.compute_capability = job->card_capability;  /* follows from --gpu */
	if (job->has_calibration)
		def.margin = l->plan.margin;
	printf("\nthe plan:");
	oom_report_calibration_options(stdout, job);
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[140], b[140];

		oom_plan_get(&l->plan, k, a, sizeof(a));
		oom_plan_get(&def, k, b, sizeof(b));
		if (strcmp(a, b))
			printf(" --%s=%s", k->name, oom_shown(a));
	}
	putchar('\n');
}

void oom_report_plan(const struct oom_job *job, const struct oom_target *t,
		     const struct oom_ladder *l)
{
	verdict(job, t, &l->plan, &l->eval, l->fits);
	if (job->quiet)
		return;
	if (!l->start_fits)
		printf("  as asked: %s used, %s; effective batch %lld kept\n",
		       gib(l->start_eval.used_bytes), l->fits ? "did not fit" : "does not fit",
		       (long long)l->effective_batch);
	if (*l->note)
		printf("  %s\n", oom_shown(l->note));
	oom_report_lengths(t, &l->start);
	anatomy(&l->eval);
	phases(&l->eval);
	host(t, &l->plan, &l->eval, l->fits);
	rungs(l);
	command_line(job, l);
}

void oom_report_estimate(const struct oom_job *job, const struct oom_target *t,
			 const struct oom_plan *plan, const struct oom_eval *e, bool fits)
{
	verdict(job, t, plan, e, fits);
	if (job->quiet)
		return;
	oom_report_lengths(t, plan);
	anatomy(e);
	phases(e);
	host(t, plan, e, fits);
}
