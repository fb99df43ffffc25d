/* The smallest change with which the run that a text gives would have fitted, in the words of its framework. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "shown.h"
#include "tables.h"

/* What a knob is among the levers: the words for it where no single key says its value. */
static const struct {
	const char *knob;
	enum oom_lever lever;
	const char *none;       /* its value where the lever is not pulled; NULL: no value says that */
} levers[] = {
	{"micro-batch", OOM_LEVER_BATCH, NULL}, {"grad-ckpt", OOM_LEVER_RECOMPUTE, "none"}, {"loss", OOM_LEVER_LOGITS, "plain"},
	{"precision", OOM_LEVER_PRECISION, "fp32"}, {"optimizer", OOM_LEVER_OPTIMIZER, NULL}, {"engine", OOM_LEVER_SHARD, NULL},
	{"zero", OOM_LEVER_SHARD, NULL}, {"lora-r", OOM_LEVER_ADAPTER, "0"}, {"base-weights", OOM_LEVER_QUANT, "plain"},
	{"seq-len", OOM_LEVER_LENGTH, NULL}, {"attn", OOM_LEVER_SCORES, "eager"}, {"allocator", OOM_LEVER_FRAGMENT, NULL},
};

/* Follows from another knob, or is no choice of its own. */
static bool follows(const char *knob)
{
	static const char *const names[] = {"grad-accum", "global-batch", "lora-targets", "loss-chunk", "double-quant", "base-group-size", "lora-alpha", "eval-batch"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(knob, names[i]))
			return true;
	return false;
}

static enum oom_lever lever_of(const char *knob)
{
	for (size_t i = 0; i < sizeof(levers) / sizeof(levers[0]); i++)
		if (!strcmp(knob, levers[i].knob))
			return levers[i].lever;
	return OOM_LEVER_NONE;
}

/* Of one knob: its key, else what the program calls the lever; false: nobody has a word for it. */
static bool say(struct oom_pricing *p, const char *knob, const char *was, const char *is, uint64_t *said)
{
	const enum oom_lever lever = lever_of(knob);
	struct oom_priced *const out = p->out;
	const size_t size = sizeof(out->change[0]);
	struct oom_key_change change;
	const char *words;
	char *text;

	if (out->n_changes == OOM_PRICED_CHANGES || (lever != OOM_LEVER_NONE && (*said & OOM_SET(lever))))
		return true;
	text = out->change[out->n_changes];
	*out->key[out->n_changes] = 0;
	/* on one card nothing is divided, whatever it is called */
	words = lever != OOM_LEVER_NONE && !(lever == OOM_LEVER_SHARD && p->q.plan.gpus <= 1) ? oom_lever_of(p->crash, lever) : NULL;
	if (oom_reading_change(p->shown->reading, knob, is, &change)) {
		snprintf(text, size, *change.was ? "%s: %s -> %s" : "%s: %.0s%s", change.key, change.was, change.word);
		snprintf(out->key[out->n_changes], sizeof(out->key[0]), "%.63s", change.key);
	} else if (words) {
		snprintf(text, size, "%.150s (%s %.60s -> %.60s)", words, knob, was, is);
	} else {
		return false;
	}
	out->n_changes++;
	*said |= OOM_SET(lever);
	return true;
}

static unsigned of_axis(const char *knob)
{
	const struct oom_search_axis *axis;

	for (size_t i = 0; (axis = oom_search_axis_at(i)) != NULL; i++)
		if (!strcmp(axis->knob, knob))
			return 1u << i;
	return 0;
}

/* The axis that a knob follows from. */
static unsigned behind(const char *knob)
{
	static const char *const rows[][2] = {{"engine", "zero"}, {"offload-params", "offload-optimizer"}, {"base-weights", "lora-r"}, {"liger-kernels", "loss"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(knob, rows[i][0]))
			return of_axis(rows[i][1]);
	return of_axis(knob);
}

/* What the plan changes, in words; the axes of what there is no word for. */
static unsigned list(struct oom_pricing *p, const struct oom_plan *to)
{
	const struct oom_option *k;
	uint64_t said = 0;
	unsigned unsaid = 0;

	p->out->n_changes = 0;
	for (size_t i = 0; (k = oom_knob_at(i)) != NULL; i++) {
		char was[OOM_VALUE_SIZE], is[OOM_VALUE_SIZE];

		oom_plan_get(&p->m.asked.plan, k, was, sizeof(was));
		oom_plan_get(to, k, is, sizeof(is));
		if (strcmp(was, is) && !follows(k->name) && !say(p, k->name, was, is, &said))
			unsaid |= behind(k->name);
	}
	return unsaid;
}

/* The bits of axes that move a run to another engine or to the host: no key of the same run says that. */
static unsigned of_engine(void)
{
	static const char *const knobs[] = {"zero", "gpus", "offload-optimizer", "optimizer-in-backward", "sp"};
	unsigned bits = 0;

	for (size_t k = 0; k < sizeof(knobs) / sizeof(knobs[0]); k++)
		bits |= of_axis(knobs[k]);
	return bits;
}

/* Without a card nothing fits or does not: what makes the largest part smaller comes first. */
static void largest_first(struct oom_pricing *p)
{
	static const struct {
		enum oom_bucket part;
		const char *knob, *value;
	} rows[] = {{OOM_BUCKET_LOGITS, "loss", "fused"}, {OOM_BUCKET_SAVED, "grad-ckpt", "full"}, {OOM_BUCKET_OPT, "optimizer", "adamw-8bit-embfp32"}};
	const struct oom_eval *const e = &p->m.asked.eval;
	struct oom_priced *const out = p->out;
	char was[OOM_VALUE_SIZE];
	uint64_t said = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && !out->n_changes; i++) {
		if (e->bucket[rows[i].part] * 2 < e->overall_peak)
			continue;
		oom_plan_get(&p->m.asked.plan, oom_knob_find(rows[i].knob), was, sizeof(was));
		if (strcmp(was, rows[i].value))
			say(p, rows[i].knob, was, rows[i].value, &said);
		snprintf(out->changed, sizeof(out->changed), "%s: %.0f %% of what it needs, and how large the card is nobody says", oom_bucket_str(rows[i].part),
			 100.0 * (double)e->bucket[rows[i].part] / (double)e->used_bytes);
	}
}

/* A larger micro-batch saves what is accumulated: nothing that anybody would try first. */
static unsigned backwards(const struct oom_pricing *p)
{
	return p->m.search.best.plan.micro_batch > p->m.asked.plan.micro_batch ? of_axis("micro-batch") : 0;
}

/* The fewest changes that there are words for. */
static bool find(struct oom_pricing *p, struct oom_evaluator *ev, unsigned allow, unsigned hold)
{
	struct oom_search *const s = &p->m.search;
	struct oom_error err = {{0}};

	p->q.allow = allow;
	for (int tries = 0; tries < 5; tries++) {
		unsigned more;

		p->q.hold = hold;
		if (oom_answer_search(ev, &p->q, s, &err) || !s->found)
			return false;
		more = list(p, &s->best.plan) | backwards(p);
		if (!(more & ~hold))
			return !more;
		hold |= more;
	}
	return false;
}

/* Of the same run as far as one change is enough, of any engine where that takes fewer, then with what is learnt changed. */
static bool smallest(struct oom_pricing *p, struct oom_evaluator *ev)
{
	char stage[OOM_VALUE_SIZE];
	/* who divides already divides further by a word */
	const bool divides = strcmp(oom_plan_get(&p->m.asked.plan, oom_knob_find("zero"), stage, sizeof(stage)), "0") != 0;
	const unsigned quiet = of_axis("allocator"), engine = divides ? 0 : of_engine();
	const struct {
		unsigned allow, hold;
	} tries[] = {{0, quiet | engine}, {0, quiet}, {0, 0}, {OOM_ALLOW_LORA, 0}, {OOM_ALLOW_SCIENCE, 0}};
	enum { TRIES = sizeof(tries) / sizeof(tries[0]), MOST = 3 };
	size_t best = TRIES, fewest = MOST + 1;

	for (size_t i = 0; i < TRIES && fewest > 1 && (best == TRIES || !tries[i].allow); i++)
		if (find(p, ev, tries[i].allow, tries[i].hold) && p->out->n_changes && p->out->n_changes < fewest) {
			fewest = p->out->n_changes;
			best = i;
		}
	/* more than three at once are nobody's smallest change */
	return best < TRIES && find(p, ev, tries[best].allow, tries[best].hold);
}

/* It fits with room to spare: what fills the card is not this run. */
static void others_first(struct oom_pricing *p)
{
	struct oom_priced *const out = p->out;
	const char *const words = (double)out->used_bytes < 0.7 * (double)out->capacity_bytes ? oom_lever_of(p->crash, OOM_LEVER_OTHERS) : NULL;

	if (!words)
		return;
	snprintf(out->change[out->n_changes++], sizeof(out->change[0]), "%.280s", words);
	snprintf(out->changed, sizeof(out->changed), "the priced run leaves %.1f GiB of the card free", (double)(out->capacity_bytes - out->used_bytes) / 1073741824.0);
}

void oom_priced_changes(struct oom_pricing *p, struct oom_evaluator *ev)
{
	const struct oom_search *const s = &p->m.search;
	struct oom_priced *const out = p->out;
	const double card = (double)out->capacity_bytes / 1073741824.0;

	if (!out->capacity_bytes)
		largest_first(p);
	/* an evaluation gathers what no step makes */
	if (out->fits && !out->missing_bytes && oom_crash_work(p->crash) != OOM_WORK_EVAL)
		others_first(p);
	/* what was read from a checkpoint beside the run's own states no key of the run makes smaller */
	if (!out->capacity_bytes || (out->fits && (!out->missing_bytes || p->crash->part == OOM_PART_RESTORED || oom_crash_work(p->crash) == OOM_WORK_EVAL)))
		return;
	/* what died was larger than what is priced: as much larger when it is changed, and who knows how near to its end it died */
	if (out->missing_bytes)
		p->q.capacity_bytes = (uint64_t)(0.85 * (double)out->capacity_bytes * (double)p->m.asked.eval.overall_peak /
						 (double)(p->m.asked.eval.overall_peak + out->missing_bytes));
	if (!smallest(p, ev)) {
		out->n_changes = 0;
		if (!out->fits)
			snprintf(out->changed, sizeof(out->changed), "up to three keys at once do not make it fit %s of %.2f GiB: more cards, larger ones or a smaller model", p->q.plan.gpus > 1 ? "cards" : "one card", card);
		return;
	}
	out->changed_bytes = s->best.used_bytes;
	snprintf(out->changed, sizeof(out->changed), "%s: %.1f GiB of the card's %.2f are used then%s%s", out->n_changes == 1 ? "the smallest change that fits" : "together the smallest change that fits",
		 (double)s->best.used_bytes / 1073741824.0, card, out->missing_bytes ? ", by the price" : "", p->q.allow ? "; without changing what is learnt nothing fits" : "");
}

/* Levers that the plan has pulled, and those that it has not; silent: where it has that plan's values, nobody has said
 * anything (NULL: every value counts). */
static void levers_of(const struct oom_plan *plan, const struct oom_plan *silent, uint64_t *set, uint64_t *unset)
{
	char value[OOM_VALUE_SIZE], other[OOM_VALUE_SIZE];

	for (size_t i = 0; i < sizeof(levers) / sizeof(levers[0]); i++) {
		if (!levers[i].none)
			continue;
		oom_plan_get(plan, oom_knob_find(levers[i].knob), value, sizeof(value));
		if (silent && !strcmp(value, oom_plan_get(silent, oom_knob_find(levers[i].knob), other, sizeof(other))))
			continue;
		*(strcmp(value, levers[i].none) ? set : unset) |= OOM_SET(levers[i].lever);
	}
	if (plan->micro_batch == 1 && !(silent && silent->micro_batch == 1))
		*set |= OOM_SET(OOM_LEVER_BATCH);
}

/* What the plan has is what the run has, by default or by a key. */
void oom_priced_set(struct oom_pricing *p)
{
	levers_of(&p->m.asked.plan, NULL, &p->out->set, &p->out->unset);
}

void oom_crash_of_plan(struct oom_crash *c, const struct oom_plan *plan)
{
	const struct oom_plan silent = oom_plan_default();
	uint64_t unset = 0;

	levers_of(plan, &silent, &c->set, &unset);
	c->set &= ~unset;
}

void oom_priced_settle(const struct oom_priced *priced, struct oom_crash *c)
{
	if (*priced->program)
		snprintf(c->program, sizeof(c->program), "%s", priced->program);
	c->set = (c->set | priced->set) & ~priced->unset;
	c->priced = *priced->needs != 0;
	c->idle = c->priced ? priced->idle : 0;
	c->states_over = c->priced && priced->states_over;
	c->answered = c->priced && priced->n_changes > 0 && priced->changed_bytes > 0 && !priced->missing_bytes;
}
