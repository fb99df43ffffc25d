/* The run that a text gives, priced and held against the crash. */
#include "oomplan/priced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/compat.h"
#include "oomplan/config.h"
#include "oomplan/option.h"
#include "oomplan/units.h"
#include "shown.h"
#include "tables.h"

/* Is a training what died, or what was about to begin?  Who loads, saves or serves has no step to price. */
static bool died_training(const struct oom_crash *c, const struct oom_shown *s)
{
	const struct oom_setting *const batch = s->reading ? oom_reading_key_of(s->reading, "micro-batch") : NULL;

	switch (oom_crash_work(c)) {
	case OOM_WORK_TRAINING:
	case OOM_WORK_EVAL:
	case OOM_WORK_COLLECTIVE:
	case OOM_WORK_COMPILING:
		return s->reading != NULL;
	case OOM_WORK_UNKNOWN:
	case OOM_WORK_SETUP:
	case OOM_WORK_LOADING:
		return batch != NULL;
	default:
		return false;
	}
}

/* A reader's place in the piece, "run.yaml:3: ", as the line of the text, where the piece has the text's own lines. */
static const char *placed(const struct oom_pricing *p, const char *text, char *place, size_t size)
{
	char *after;
	unsigned long line;

	*place = 0;
	if (strncmp(text, "run.", 4))
		return text;
	after = strchr(text, ':');
	line = after ? strtoul(after + 1, &after, 10) : 0;
	if (!line || strncmp(after, ": ", 2))
		return text;
	if (!strncmp(text, "run.yaml", 8) || !strncmp(text, "run.json", 8))
		snprintf(place, size, "line %lu: ", (unsigned long)p->shown->first + line - 1);
	return after + 2;
}

/* What the price leaves out is said, as far as there is room; keys that nobody knows are somebody's own words. */
static void note(void *data, const char *text)
{
	struct oom_pricing *const p = data;
	struct oom_priced *const out = p->out;
	char place[40];
	const char *const rest = placed(p, text, place, sizeof(place));

	/* the sentence of what is assumed has the first two */
	if (out->n_notes < OOM_PRICED_NOTES && strncmp(text, "seq-len: the files", 18) && strncmp(text, "gpus: the files", 15) &&
	    !strstr(text, "no such key is known"))
		snprintf(out->note[out->n_notes++], sizeof(out->note[0]), "%s%s", place, rest);
}

/* As --from does: kernels that do not exist for the model, a base that is stored otherwise than the keys ask. */
static void as_loaded(struct oom_question *q, const struct oom_reading *r)
{
	const enum oom_task task = q->plan.task ? (enum oom_task)q->plan.task : oom_model_task(q->model);
	struct oom_class_flags flags;

	if (q->plan.liger_kernels != OOM_LIGER_NONE && oom_class_flags(q->model, task, &flags) && !flags.liger)
		q->plan.liger_kernels = OOM_LIGER_NONE;
	if (oom_reading_value(r, "base-bits"))
		oom_model_keep_base(q->model, &q->plan);
}

static enum oom_status ask(struct oom_pricing *p, const struct oom_model *model, struct oom_gpu *gpu, struct oom_error *err)
{
	const struct oom_reading *const r = p->shown->reading;
	const struct oom_crash *const c = p->crash;
	struct oom_gpus gpus = {0};
	enum oom_status st = OOM_OK;

	p->q = oom_question_default();
	p->q.model = model;
	p->q.keep_launcher = true;
	p->q.objective = OOM_OBJECTIVE_FEWEST_CHANGES;
	oom_reading_apply(r, &p->q.plan, note, p);
	p->q.plan.framework = oom_framework_number(oom_reading_framework(r));
	p->gpus_said = oom_reading_key_of(r, "gpus") != NULL;
	if (!p->gpus_said && c->cards > 1) {
		p->q.plan.gpus = c->cards;
		p->gpus_said = true;
	}
	if (c->before_bf16 || c->old_card)
		p->q.plan.compute_capability = 7.5;
	as_loaded(&p->q, r);
	if (c->known[OOM_CRASH_TOTAL] && oom_crash_of_card(c)) {
		p->q.capacity_bytes = c->bytes[OOM_CRASH_TOTAL];
	} else if (*p->shown->card) {
		st = oom_gpus_load(&gpus, err);
		if (!st && !oom_gpu_find(&gpus, p->shown->card, gpu, NULL, err))
			p->q.gpu = gpu;
		oom_gpus_release(&gpus);
	}
	return st;
}

/* A guess that the reader leaves open. */
static bool is_open(const struct oom_reading *r, const char *name)
{
	const struct oom_reading_knob *k;

	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++)
		if (!strcmp(k->name, name))
			return k->open;
	return false;
}

static void add_scores(void *ctx, const struct oom_ledger_row *r)
{
	uint64_t *const sum = ctx;

	if (strstr(r->formula, OOM_SCORES_FORMULA))
		*sum += r->bytes * (r->held ? r->held : 1);
}

/* A command that nothing dates may be of releases that wrote attention out, and the larger is taken.  Where the scores alone
 * are more than the card, a run that makes them dies asking for one of them: who asked for something else made none. */
static bool reconcile_attention(struct oom_pricing *p, struct oom_evaluator *ev)
{
	const struct oom_crash *const c = p->crash;
	struct oom_priced *const out = p->out;
	uint64_t scores = 0;
	size_t at = 0;

	if (p->m.asked.plan.attn != OOM_ATTN_EAGER || !is_open(p->shown->reading, "attn") || !c->known[OOM_CRASH_TRIED] || c->part == OOM_PART_SCORES ||
	    (p->m.matched && strstr(p->m.formula, OOM_SCORES_FORMULA)) || oom_ledger_each(ev, p->q.model, &p->m.asked.plan, add_scores, &scores, NULL) ||
	    !p->q.capacity_bytes || scores <= p->q.capacity_bytes)
		return false;
	p->q.plan.attn = OOM_ATTN_FLASH;
	/* in place of what the reader said of its guess */
	while (at < out->n_notes && strncmp(out->note[at], "attn: ", 6))
		at++;
	if (at < OOM_PRICED_NOTES)
		snprintf(out->note[at], sizeof(out->note[0]), "attn: nothing dates the command; written out, its scores would be %.0f GiB, more than the card, and the request has not their size: a kernel's is priced",
			 (double)scores / 1073741824.0);
	out->n_notes += at == out->n_notes && at < OOM_PRICED_NOTES;
	return true;
}

/* What the crash shows otherwise than a default has it: logits that were made, weights that were not as large. */
static bool reconcile(struct oom_pricing *p, struct oom_evaluator *ev)
{
	const struct oom_crash *const c = p->crash;
	const struct oom_eval *const e = &p->m.asked.eval;
	const uint64_t held = c->bytes[OOM_CRASH_ALLOCATED], weights = e->bucket[OOM_BUCKET_PARAMS];
	struct oom_plan *const plan = &p->q.plan;
	bool changed = reconcile_attention(p, ev);

	if (p->m.whole_logits && !oom_reading_key_of(p->shown->reading, "loss")) {
		plan->fused_ce = OOM_LOSS_PLAIN;
		note(p, "loss: what was asked for has the size of the whole logits, which the default makes none of: the run's made them, and that is priced");
		changed = true;
	}
	if (c->known[OOM_CRASH_ALLOCATED] && held > weights / 2 && (double)held < 0.95 * (double)weights && oom_crash_work(c) == OOM_WORK_TRAINING && !oom_reading_key_of(p->shown->reading, "base-weights") &&
	    (plan->precision == OOM_AMP_BF16 || plan->precision == OOM_AMP_FP16 || plan->precision == OOM_FP32)) {
		plan->precision = plan->precision == OOM_AMP_FP16 ? OOM_FP16_AMP : OOM_BF16_AMP;
		note(p, "precision: less was held than weights in fp32 take, so they were in 16 bits, and that is priced");
		changed = true;
	}
	return changed;
}

static enum oom_status price(struct oom_pricing *p, struct oom_error *err)
{
	struct oom_evaluator *const ev = oom_evaluator_new();
	struct oom_crash asked = *p->crash;
	enum oom_status st;

	if (!ev)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	/* what would fit is looked for afterwards, with what may be changed */
	asked.known[OOM_CRASH_TOTAL] = false;
	st = oom_compare_request(ev, &p->q, &asked, &p->m, err);
	if (!st && reconcile(p, ev)) {
		memset(&p->m, 0, sizeof(p->m));
		st = oom_compare_request(ev, &p->q, &asked, &p->m, err);
	}
	if (!st) {
		oom_priced_given(p);
		oom_priced_needs(p);
		oom_priced_set(p);
		oom_priced_changes(p, ev);
		p->out->idle = oom_priced_idle(p);
	}
	oom_evaluator_free(ev);
	return st;
}

/* Of what trains nothing: the model alone. */
static enum oom_status weigh(struct oom_pricing *p, const struct oom_model *model, struct oom_error *err)
{
	struct oom_evaluator *const ev = oom_evaluator_new();
	struct oom_plan plan = oom_plan_default();
	struct oom_eval e, packed;
	enum oom_status st;

	plan.micro_batch = 1;
	plan.seq_len = oom_model_task(model) == OOM_TASK_IMAGE_CLS ? 0 : 8;
	st = ev ? oom_evaluate(ev, model, &plan, OOM_EVAL_FAST, &e, err) : oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	/* a frozen base, and next to nothing beside it */
	plan.lora_r = 1;
	plan.base_weights = OOM_BASE_NF4;
	oom_plan_settle_for(&plan, model, p->q.note);
	if (!st && oom_evaluate(ev, model, &plan, OOM_EVAL_FAST, &packed, err))
		packed.param_bytes = e.total_params * 6 / 10;
	if (!st)
		oom_priced_weights(p, &e, packed.param_bytes);
	oom_evaluator_free(ev);
	return st || *p->out->needs ? st : oom_error_set(err, OOM_ERR_UNKNOWN, "its weights are a small part of the card");
}

static enum oom_status with_model(struct oom_pricing *p, struct oom_error *err)
{
	struct oom_keys keys = {0};
	struct oom_model *model = NULL;
	struct oom_gpu gpu;
	enum oom_status st = oom_keys_read_model(&keys, p->shown->model, err);

	if (!st)
		st = oom_model_new(&model, &keys, err);
	if (!st && p->trains)
		st = ask(p, model, &gpu, err);
	if (!st)
		st = p->trains ? price(p, err) : weigh(p, model, err);
	oom_model_free(model);
	oom_keys_release(&keys);
	return st;
}

/* Who loads or infers has weights on the card before anything else. */
static bool weighs(const struct oom_crash *c)
{
	const enum oom_crash_work work = oom_crash_work(c);

	return (work == OOM_WORK_LOADING || work == OOM_WORK_INFERENCE || work == OOM_WORK_SERVER_SETUP) && oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL];
}

enum oom_status oom_crash_price(const struct oom_crash_text *text, const struct oom_crash *crash, struct oom_priced *out,
				struct oom_error *err)
{
	struct oom_pricing *const p = calloc(1, sizeof(*p));
	struct oom_shown shown;
	enum oom_status st = OOM_OK;

	memset(out, 0, sizeof(*out));
	if (!p)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	oom_shown_read(text, crash, &shown);
	p->crash = crash;
	p->shown = &shown;
	p->out = out;
	p->trains = out->trains = died_training(crash, &shown);
	if (p->trains)
		snprintf(out->program, sizeof(out->program), "%s", oom_program_reading(crash, oom_reading_framework(shown.reading)));
	if (!shown.reading && !weighs(crash))
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "the text has no keys of a training framework");
	else if (!p->trains && !weighs(crash))
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "no training is what died");
	else if (p->trains && is_open(shown.reading, "method"))
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "whether adapters are trained stands in a file that the text does not have");
	else if (!*shown.model)
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "the model%s%.100s is none whose configuration is bundled", *shown.named ? " " : "", shown.named);
	else
		st = with_model(p, err);
	if (st)
		*out->needs = 0;
	oom_shown_release(&shown);
	free(p);
	return st;
}
