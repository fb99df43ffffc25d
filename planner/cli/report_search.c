/* The search in words: the plan, why each change is in it, what else there is, and a line to
 * run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "oomplan/engine.h"
#include "commands.h"
#include "json.h"
#include "out.h"
#include "term.h"

/* The knobs in which `to` differs from `from`, as options: " --a=b --no-c". */
static void options_between(FILE *out, const struct oom_plan *from, const struct oom_plan *to)
{
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE];

		if (oom_plan_alike(to, from, k))
			continue;
		oom_plan_get(to, k, a, sizeof(a));
		if (k->kind == OOM_OPTION_FLAG)
			fprintf(out, " --%s%s", strcmp(a, "true") ? "no-" : "", k->name);
		else
			fprintf(out, " --%s=%s", k->name, a);
	}
}

/* A word for a POSIX shell. */
static void shell_word(FILE *out, const char *word)
{
	if (*word && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
				  "./=+:,@%") == strlen(word)) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", out);
		else
			fputc(*word, out);
	fputc('\'', out);
}

static void option(FILE *out, const char *name, const char *value)
{
	if (!value)
		return;
	fprintf(out, " --%s ", name);
	shell_word(out, oom_shown(value));
}

struct oom_plan oom_plan_before(const struct oom_target *t)
{
	struct oom_plan p = oom_plan_default();

	if (t->q.gpu)
		p.compute_capability = t->gpu.compute_capability;
	return p;
}

void oom_report_command(FILE *out, const struct oom_job *job, const struct oom_target *t,
			const struct oom_plan *p)
{
	struct oom_plan def = oom_plan_before(t), unsaid = *p;

	/* what it would be without a word need not be said */
	unsaid.precision = OOM_AUTO_PRECISION;
	oom_model_settle_precision(t->model, &unsaid, NULL);
	if (*t->q.precision_note && unsaid.precision == p->precision)
		def.precision = p->precision;
	if (job->described)
		fprintf(out, "printf '%%s' '%s' | ", job->described);
	fputs("oomplan estimate", out);
	option(out, "model", job->model);
	option(out, "teacher", job->teacher);
	option(out, "gpu", job->gpu);
	option(out, "gpu-memory", job->gpu_memory.text);
	option(out, "gpus-file", job->gpus_file);
	option(out, "calibration", job->calibration);
	if (t->q.confidence > 0)
		fprintf(out, " --confidence=%g", t->q.confidence);
	options_between(out, &def, p);
}

void oom_report_to_run(const struct oom_job *job, const struct oom_target *t,
		       const struct oom_plan *asked, const struct oom_plan *p)
{
	oom_from_changes(job, asked, p);
	fputs("to run\n  ", stdout);
	oom_report_command(stdout, job, t, p);
	putchar('\n');
}

/* ---- words ---- */

static const char *times(double mine, double other, char *buf, size_t size)
{
	const double r = mine / other, speed = other / mine;

	if (fabs(r - 1) < 0.005)
		snprintf(buf, size, "as fast");
	else if (r >= 2 || speed >= 2)
		snprintf(buf, size, r > 1 ? "takes %.1f times as long" : "%.1f times as fast",
			 r > 1 ? r : speed);
	else
		snprintf(buf, size, "%.0f %% %s", (r > 1 ? r - 1 : speed - 1) * 100,
			 r > 1 ? "slower" : "faster");
	return buf;
}

/* Why one departure is in the plan. */
static void because(const struct oom_candidate *best, const struct oom_reason *r)
{
	char buf[40];

	printf("   ");
	if (r->built)
		options_between(stdout, &r->without, &best->plan);
	else
		printf(" %s", r->knob);
	printf("\n        ");
	if (!r->runs) {
		printf("without it: %s\n", oom_shown(r->note));
		return;
	}
	if (r->used_bytes > best->used_bytes)
		printf("saves %s: without it %s, %s", oom_gib(r->used_bytes - best->used_bytes),
		       oom_gib(r->used_bytes), r->fits ? "would fit too" : "does not fit");
	else if (r->used_bytes < best->used_bytes)
		printf("costs %s", oom_gib(best->used_bytes - r->used_bytes));
	else
		printf("changes no byte");
	if (r->fits || r->used_bytes <= best->used_bytes)
		printf("; the plan without it: %s",
		       times(r->seconds_per_sample, best->seconds_per_sample, buf, sizeof(buf)));
	putchar('\n');
}

static void kinds(const struct oom_candidate *c, const struct oom_candidate *best)
{
	static const struct {
		enum oom_class cls;
		const char *gone, *added;
	} words[] = {{OOM_NUMERICS, "no change of numerics", "changes numerics"},
		     {OOM_PLACEMENT, "nothing moved between GPUs and host", "moves state between GPUs or to the host"},
		     {OOM_SCIENCE, "the science untouched", "CHANGES THE SCIENCE"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const unsigned bit = 1u << words[i].cls;

		if ((c->classes ^ best->classes) & bit)
			printf(", %s", c->classes & bit ? words[i].added : words[i].gone);
	}
}

static void candidate(const struct oom_plan *asked, const struct oom_candidate *c)
{
	printf("    ");
	if (memcmp(asked, &c->plan, sizeof(*asked)))
		options_between(stdout, asked, &c->plan);
	else
		printf(" as asked");
	putchar('\n');
}

static void alternative(const struct oom_plan *asked, const struct oom_search *s,
			const struct oom_candidate *c)
{
	const struct oom_candidate *best = &s->best;
	const int fewer = best->departures - c->departures;
	char buf[40];

	printf("  %s, %s used",
	       times(c->seconds_per_sample, best->seconds_per_sample, buf, sizeof(buf)),
	       oom_gib(c->used_bytes));
	if (c->plan.gpus != best->plan.gpus)
		printf(", %lld GPUs", (long long)c->plan.gpus);
	kinds(c, best);
	if (fewer)
		printf(", %d change%s %s", fewer > 0 ? fewer : -fewer,
		       fewer == 1 || fewer == -1 ? "" : "s", fewer > 0 ? "fewer" : "more");
	printf("\n");
	candidate(asked, c);
}

void oom_report_search(const struct oom_target *t, const struct oom_plan *asked,
		       const struct oom_search *s)
{
	printf("\nthe cheapest plan: %zu combinations priced, %zu may fit, %zu replayed (objective "
	       "%s; times are estimates)\n",
	       s->evaluated, s->possible, s->replayed,
	       oom_objective_choice(t->q.objective)->name);
	if (!s->found) {
		printf("  none fits\n");
		return;
	}
	printf("  %s, %s used, ", oom_class_str(s->best.cls), oom_gib(s->best.used_bytes));
	printf("%d change%s\n", s->best.departures, s->best.departures == 1 ? "" : "s");
	candidate(asked, &s->best);
	if (s->n_reasons)
		printf("  why each is in it\n");
	for (size_t i = 0; i < s->n_reasons; i++)
		because(&s->best, &s->reason[i]);
	if (s->n_alternatives)
		printf("alternatives that nothing beats in everything\n");
	for (size_t i = 0; i < s->n_alternatives; i++)
		alternative(asked, s, &s->alternative[i]);
}

/* "torchtitan", "Megatron-LM" */
static const char *launcher(const struct oom_candidate *c)
{
	return oom_engine_at((size_t)c->plan.engine)->launcher;
}

void oom_report_elsewhere(const struct oom_target *t, const struct oom_answer *a)
{
	const double mine = 1 / oom_step_time(&a->best.plan, &a->best.eval, t->q.gpu).samples_per_s;
	char buf[40];

	if (a->n_elsewhere)
		puts("with another launcher, to which the run would have to move (an offer, not taken)");
	for (size_t i = 0; i < a->n_elsewhere; i++) {
		const struct oom_candidate *c = &a->elsewhere[i];

		printf("  %s: %s%s%s used\n", launcher(c),
		       a->best.fits_gpu ? times(c->seconds_per_sample, mine, buf, sizeof(buf)) : "fits",
		       ", ", oom_gib(c->used_bytes));
		candidate(&a->as_asked.plan, c);
	}
}

/* ---- JSON ---- */

static void changes(struct oom_json *j, const struct oom_plan *from, const struct oom_plan *to)
{
	oom_json_object(j, "changes");
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE];

		if (!oom_plan_alike(to, from, k))
			oom_json_text(j, k->column, oom_plan_get(to, k, a, sizeof(a)));
	}
	oom_json_end(j);
}

static void candidate_json(struct oom_json *j, const char *key, const struct oom_plan *asked,
			   const struct oom_candidate *c)
{
	oom_json_object(j, key);
	oom_json_text(j, "class", oom_class_str(c->cls));
	oom_json_uint(j, "used_bytes", c->used_bytes);
	oom_json_real(j, "seconds_per_sample", c->seconds_per_sample);
	oom_json_int(j, "departures", c->departures);
	changes(j, asked, &c->plan);
}

static void reason_json(struct oom_json *j, const struct oom_candidate *best,
			const struct oom_reason *r)
{
	oom_json_object(j, NULL);
	oom_json_text(j, "knob", r->knob);
	oom_json_bool(j, "runs_without", r->runs);
	oom_json_bool(j, "fits_without", r->fits);
	if (r->runs) {
		oom_json_uint(j, "used_bytes_without", r->used_bytes);
		oom_json_int(j, "saves_bytes", (int64_t)(r->used_bytes - best->used_bytes));
		oom_json_real(j, "seconds_per_sample_without", r->seconds_per_sample);
	}
	oom_json_text(j, "note", r->note);
	oom_json_end(j);
}

void oom_json_search(struct oom_json *j, const struct oom_job *job, const struct oom_target *t,
		     const struct oom_plan *asked, const struct oom_search *s)
{
	char *command = NULL;
	size_t size = 0;
	FILE *f = s->found ? open_memstream(&command, &size) : NULL;

	oom_json_object(j, "search");
	oom_json_text(j, "objective", oom_objective_choice(t->q.objective)->name);
	oom_json_uint(j, "evaluated", s->evaluated);
	oom_json_uint(j, "possible", s->possible);
	oom_json_uint(j, "replayed", s->replayed);
	oom_json_bool(j, "found", s->found);
	if (s->found) {
		candidate_json(j, "best", asked, &s->best);
		oom_json_array(j, "reasons");
		for (size_t i = 0; i < s->n_reasons; i++)
			reason_json(j, &s->best, &s->reason[i]);
		oom_json_end(j);
		if (f)
			oom_report_command(f, job, t, &s->best.plan);
		if (f && !fclose(f) && command) /* without memory the C library gives none, and no error */
			oom_json_text(j, "command", command);
		else
			oom_out_incomplete();
		oom_json_end(j);
		oom_json_array(j, "alternatives");
		for (size_t i = 0; i < s->n_alternatives; i++) {
			candidate_json(j, NULL, asked, &s->alternative[i]);
			oom_json_end(j);
		}
		oom_json_end(j);
	}
	oom_json_end(j);
	free(command);
}

void oom_json_elsewhere(struct oom_json *j, const struct oom_answer *a)
{
	oom_json_array(j, "elsewhere");
	for (size_t i = 0; i < a->n_elsewhere; i++) {
		candidate_json(j, NULL, &a->as_asked.plan, &a->elsewhere[i]);
		oom_json_text(j, "launcher", launcher(&a->elsewhere[i]));
		oom_json_end(j);
	}
	oom_json_end(j);
}
