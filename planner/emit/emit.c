/* A plan into a format: filled by the framework's rows, read back, and what did not come back named. */
#include "oomplan/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "emit/parts.h"
#include "frameworks/parts.h"
#include "oomplan/engine.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"

/* ---- read back ---- */

/* Knobs that are about the card, the host or the verdict, and what is installed: no framework's.  The base
 * is compared as it is written (compare_sums); the micro-batch, its accumulation and the GPUs are the global batch. */
bool emit_is_aside(const char *knob)
{
	const struct oom_option *k = oom_knob_find(knob);
	static const char *const names[] = {"margin", "compute-capability", "global-batch", "gpus-per-node", "moe-imbalance",
					    "rank0-contexts", "prefetch-factor", "low-cpu-mem", "scan", "qlora", "base-weights"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], knob))
			return true;
	return k && k->kind == OOM_OPTION_VERSION;
}

/* Of the data, the script or the model: where a plan leaves them at their defaults it asks nothing of a file. */
static bool is_unasked(const struct oom_option *k, const char *value)
{
	static const char *const names[] = {"num-layers", "task", "padding-mask", "convert-outputs-fp32", "loop",
					    "eval-accumulation", "eval-batch"};
	const struct oom_plan def = oom_plan_default();
	char text[160];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], k->name))
			return !strcmp(oom_plan_get(&def, k, text, sizeof(text)), value);
	return false;
}

static bool listed(const char *list, const char *knob)
{
	const size_t n = strlen(knob);

	for (const char *p = list; p && (p = strstr(p, knob)) != NULL; p += n)
		if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' '))
			return true;
	return false;
}

/* "auto" asks for whatever the framework does. */
static bool same_value(const struct oom_option *k, const char *a, const char *b)
{
	return !strcmp(a, b) || (k->kind == OOM_OPTION_CHOICE && !strcmp(a, "auto"));
}

/* A loop of its own holds less than the Trainer's; what frameworks of language models train is one. */
static const struct emit_cost everywhere[] = {
	{"loop", "trainer", "auto", "", true},
	{"task", "causal-lm", "auto", "", true},
	{NULL, NULL, NULL, NULL, false},
};

static const struct emit_cost *cost_of(const struct emit_target *target, const char *knob, const char *want,
				       const char *got)
{
	const struct emit_cost *const lists[] = {target->costs, everywhere};

	for (size_t i = 0; i < 2; i++)
		for (const struct emit_cost *c = lists[i]; c && c->knob; c++)
			if (!strcmp(c->knob, knob) && !strcmp(c->want, want) && !strcmp(c->got, got))
				return c;
	return NULL;
}

bool emit_spares(const struct emit_target *target, const char *knob, const char *want, const char *got)
{
	const struct emit_cost *c = cost_of(target, knob, want, got);

	return c && c->spares;
}

/* What it costs that the knob is not said, where the format knows. */
static const char *consequence(const struct emit_target *target, const char *knob, const char *want, const char *got)
{
	const struct emit_cost *c = cost_of(target, knob, want, got);

	return c ? c->text : "";
}

static void say(struct oom_emitted *out, const char *knob, const char *value, const char *cost)
{
	if (out->n_unsaid < OOM_EMIT_UNSAID_MAX)
		snprintf(out->unsaid[out->n_unsaid++], sizeof(out->unsaid[0]), "--%s %.60s%s", knob, value, cost);
}

static void spare(struct oom_emitted *out, const char *knob, const char *want, const char *got)
{
	if (out->n_spared < OOM_EMIT_UNSAID_MAX)
		snprintf(out->spared[out->n_spared++], sizeof(out->spared[0]), "--%s %.60s: %.60s is what runs, and needs no more", knob,
			 want, got);
}

static int64_t step_of(const struct oom_plan *p)
{
	return p->micro_batch * p->grad_accum * oom_plan_data_parallel(p);
}

/* What several knobs say together. */
static void compare_sums(const struct emit_target *target, const struct oom_plan *want, const struct oom_plan *got,
			 struct oom_emitted *out)
{
	const struct emission wanted = {.plan = want, .model = ""}, given = {.plan = got, .model = ""};
	const struct oom_option *base = oom_knob_find("base-weights");
	char text[160];

	/* two knobs say it, the older one for NF4 */
	if (!listed(target->elsewhere, "base-weights") && strcmp(emit_base_bits(&wanted), emit_base_bits(&given)))
		say(out, "base-weights", want->qlora ? "nf4" : oom_plan_get(want, base, text, sizeof(text)), "");
	/* a global batch says the accumulation where the GPUs are known */
	if (listed(target->elsewhere, "grad-accum") && got->global_batch != step_of(want) && got->grad_accum != want->grad_accum) {
		snprintf(text, sizeof(text), "%lld", (long long)want->grad_accum);
		say(out, "grad-accum", text, "");
	}
}

/* asked: what the user said, where the engine makes `want` of it */
static void compare(const struct emit_target *target, const struct oom_plan *asked,
		    const struct oom_plan *want, const struct oom_plan *got, struct oom_emitted *out)
{
	compare_sums(target, want, got, out);
	for (size_t i = 0; oom_knob_at(i) && out->n_unsaid < OOM_EMIT_UNSAID_MAX; i++) {
		const struct oom_option *k = oom_knob_at(i);
		const char *cost;
		char a[160], b[160];

		oom_plan_get(want, k, a, sizeof(a));
		oom_plan_get(got, k, b, sizeof(b));
		/* a run that never evaluates needs no more */
		if (!strncmp(k->name, "eval-", 5) && (got->evaluates == OOM_EVALUATES_NO || want->evaluates == OOM_EVALUATES_NO))
			continue;
		/* what the plan leaves unsaid it does not ask for */
		if (!strcmp(a, "unsaid") || same_value(k, a, b) || emit_is_aside(k->name) || is_unasked(k, a) || listed(target->elsewhere, k->name))
			continue;
		if (emit_spares(target, k->name, a, b)) {
			spare(out, k->name, a, b);
			continue;
		}
		cost = consequence(target, k->name, a, b);
		oom_plan_get(asked, k, a, sizeof(a));
		say(out, k->name, a, cost);
	}
}

/* What the text gives back as a plan. */
static enum oom_status read_back(const struct emit_target *target, const struct emit_text *text,
				 const struct oom_plan *want, struct oom_emitted *out,
				 struct oom_error *err)
{
	struct oom_plan got = oom_plan_default(), run = *want;
	struct oom_reading *r = NULL;
	enum oom_status st;

	if (target->framework && !framework_find(target->framework))
		return OOM_OK;          /* nobody reads it */
	st = oom_reading_of_text(&r, target->reads_as, text->text, text->n, target->framework, err);

	if (st)
		return st;
	/* what files leave to the model is no loss; tokens that none of their keys says are */
	got.seq_len = oom_reading_value(r, "seq-len") ? got.seq_len : 0;
	if (!*want->lora_targets)
		got.lora_targets[0] = 0;
	oom_reading_apply(r, &got, NULL, NULL);
	/* where none was asked for, none is lost */
	if (oom_plan_precision_open(&run))
		got.precision = run.precision;
	else if (oom_plan_precision_open(&got))
		got.precision = OOM_FP32;
	oom_plan_relax(&got);
	/* what the engine makes the same thing of is no loss either */
	oom_engine_recast(&run);
	oom_engine_recast(&got);
	compare(target, want, &run, &got, out);
	oom_reading_free(r);
	return OOM_OK;
}

/* ---- formats ---- */

static void put_comments(const struct emit_target *t, const struct emission *e, struct emit_text *text,
			 const struct oom_emitted *out)
{
	char gpus[160], nodes[160];

	if (!t->comment)
		return;
	emit_put(text, "%soomplan; keys of %s\n", t->comment, t->format.version);
	if (listed(t->elsewhere, "gpus") && e->plan->gpus > 1 && !(e->described && t->yours_described))
		emit_put(text, "%sfor %s GPUs on %s machine%s: the launcher's to say\n", t->comment,
			 emit_fact(e, "gpus", gpus), emit_fact(e, "nodes", nodes),
			 e->plan->nodes == 1 ? "" : "s");
	if (listed(t->elsewhere, "allocator") && emit_is(e, "allocator", "expandable_segments"))
		emit_put(text, "%swith " OOM_ALLOCATOR_EXPANDABLE "\n", t->comment);
	if (e->described ? t->yours_described != NULL : t->yours != NULL)
		emit_put(text, "%sto be added: %s\n", t->comment, e->described ? t->yours_described : t->yours);
	for (size_t i = 0; i < out->n_unsaid; i++)
		emit_put(text, "%scannot be said here: %s\n", t->comment, out->unsaid[i]);
	for (size_t i = 0; i < out->n_spared; i++)
		emit_put(text, "%s%s\n", t->comment, out->spared[i]);
}

static const struct emit_target *find(const char *name, struct oom_error *err)
{
	const char *names[32] = {NULL}, *near;
	char list[400] = "";
	size_t used = 0;

	for (size_t i = 0; emit_targets[i].format.name; i++) {
		if (oom_same_word(emit_targets[i].format.name, name))
			return &emit_targets[i];
		names[i] = emit_targets[i].format.name;
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", names[i]);
	}
	near = oom_nearest(name, names);
	oom_error_set(err, OOM_ERR_UNKNOWN, "no format \"%.40s\" (there are: %s, patch)%s%s%s", name, list,
		      near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	return NULL;
}

const struct oom_emit_format *oom_emit_format_at(size_t i)
{
	size_t n = 0;

	while (emit_targets[n].format.name)
		n++;
	return i < n ? &emit_targets[i].format : NULL;
}

const char *oom_emit_framework(const char *format)
{
	for (size_t i = 0; emit_targets[i].format.name; i++)
		if (oom_same_word(emit_targets[i].format.name, format))
			return emit_targets[i].framework;
	return NULL;
}

/* Files of a run whose objective no plan has are priced as a run of another, and that one is written; unless the user asked
 * for it. */
static void say_objective(const struct oom_plan *plan, const struct oom_reading *r, struct oom_emitted *out)
{
	const struct emission priced = {.plan = plan, .model = ""};
	struct oom_plan files = oom_plan_default();
	char word[160];

	if (!r || !reading_is_replaced(r, "objective") || out->n_unsaid >= OOM_EMIT_UNSAID_MAX)
		return;
	oom_reading_apply(r, &files, NULL, NULL);
	if (files.objective == plan->objective)
		snprintf(out->unsaid[out->n_unsaid++], sizeof(out->unsaid[0]), "--objective %.40s of the files, which was priced as %.40s",
			 oom_reading_value(r, "objective"), emit_fact(&priced, "objective", word));
}

enum oom_status oom_emit(const char *format, const struct oom_plan *plan,
			 const struct oom_emit_run *run, struct oom_emitted *out, struct oom_error *err)
{
	const struct emit_target *t = find(format, err);
	static const struct oom_emit_run nobodys = {.model = NULL};
	const struct oom_emit_run *of = run ? run : &nobodys;
	const bool named = of->model && *of->model;
	struct emission e = {.plan = plan, .model = named ? of->model : "ORG/MODEL", .gpu = of->gpu, .config = of->config};
	struct emit_text body = {.text = NULL}, line = {.text = NULL}, whole = {.text = NULL};
	enum oom_status st;

	if (!t)
		return OOM_ERR_UNKNOWN;
	*out = (struct oom_emitted){.text = NULL};
	st = doc_begin(&e.doc, "emit", "", err);
	if (!st && !doc_add(&e.doc, NULL, NULL, DOC_MAP, 0, 0))
		st = doc_full(&e.doc, 0, err);
	if (!st) {
		t->fill(&e);
		t->write(&e, &body);
		if (t->line)
			t->line(&e, &line);
		if (e.failed || body.failed || line.failed || !body.text)
			st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	if (!st && !named && strstr(body.text, e.model))
		snprintf(out->unsaid[out->n_unsaid++], sizeof(out->unsaid[0]),
			 "the model's hub id or folder: %s stands for it", e.model);
	if (!st && !e.gpu && strstr(body.text, "accelerators: GPU:"))
		snprintf(out->unsaid[out->n_unsaid++], sizeof(out->unsaid[0]),
			 "the card: --gpu-memory names none");
	if (!st)
		st = read_back(t, t->line ? &line : &body, plan, out, err);
	if (!st)
		say_objective(plan, of->reading, out);
	if (!st) {
		const bool hashbang = !strncmp(body.text, "#!", 2);
		const size_t head = hashbang ? strcspn(body.text, "\n") + 1 : 0;

		emit_put(&whole, "%.*s", (int)head, body.text);
		put_comments(t, &e, &whole, out);
		emit_put(&whole, "%s", body.text + head);
		if (whole.failed)
			st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	free(body.text);
	free(line.text);
	doc_release(&e.doc);
	if (st) {
		free(whole.text);
		return st;
	}
	out->text = whole.text;
	out->size = whole.n;
	return OOM_OK;
}

void oom_emitted_release(struct oom_emitted *out)
{
	if (out)
		free(out->text);
	if (out)
		*out = (struct oom_emitted){.text = NULL};
}
