/* Plans held against the table.
 *
 * What a model's class and a card decide is decided once for a question (oom_compat_init); what is
 * left of a rule then are a few comparisons of the plan's fields, cheap beside pricing it. */
#include "oomplan/compat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/reading.h"
#include "oomplan/rules.h"
#include "table.h"

/* Of a rule that there is; a search asks some million times. */
static inline bool has(const struct oom_compat_set *set, size_t rule)
{
	return set->bits[rule / 64] >> rule % 64 & 1;
}

bool oom_compat_has(const struct oom_compat_set *set, size_t rule)
{
	return rule < OOM_COMPAT_RULES && has(set, rule);
}

bool oom_compat_next(const struct oom_compat_set *set, size_t *i)
{
	for (; *i < OOM_COMPAT_RULES; *i = (*i / 64 + 1) * 64) {
		const uint64_t rest = set->bits[*i / 64] >> *i % 64;

		if (rest) {
			*i += (size_t)__builtin_ctzll(rest);
			return true;
		}
	}
	return false;
}

static void add(struct oom_compat_set *set, size_t rule)
{
	set->bits[rule / 64] |= (uint64_t)1 << rule % 64;
}

/* ---- a question ---- */

static struct facts facts_of(const struct oom_model *model, const struct oom_plan *plan,
			     const struct oom_gpu *gpu)
{
	const enum oom_task task = plan->task ? (enum oom_task)plan->task : oom_model_task(model);
	const struct oom_model_shape shape = oom_model_shape(model);
	const bool nvidia = !gpu || !*gpu->vendor || !strcmp(gpu->vendor, "nvidia");
	struct oom_class_flags c = {{0}, 0, 0, 0, 0, 0, 0, 0, 0};
	const bool known = oom_class_flags(model, task, &c);
	struct facts f = {.number = {c.checkpointing, c.sdpa, c.flash, c.wraps, c.liger, c.batchnorm,
				     c.fp16_overflow, c.cut}};

	for (int i = 0; i < FACT_CC && !known; i++)
		f.number[i] = -1;
	f.number[FACT_CC] = nvidia ? (int64_t)lround(oom_capability(plan) * 10) : -1;
	f.number[FACT_HEAD_DIM] = (int64_t)shape.head_dim;
	f.number[FACT_EXPERTS] = (int64_t)shape.n_experts;
	f.number[FACT_HEADS] = (int64_t)shape.n_heads;
	f.word[FACT_VENDOR] = nvidia ? "nvidia" : gpu->vendor;
	f.word[FACT_TYPE] = oom_model_type(model);
	f.word[FACT_FRAMEWORK] = oom_framework_name((size_t)plan->framework - 1, NULL);
	f.word[FACT_FRAMEWORK] = plan->framework && f.word[FACT_FRAMEWORK] ? f.word[FACT_FRAMEWORK] : "";
	f.word[FACT_TASK] = oom_knob_find("task")->choice((size_t)task)->name;
	return f;
}

/* Most rules are about a few engines: a plan of another one need not be asked. */
static void sort_by_engine(struct oom_compat *c, size_t k, uint16_t first)
{
	uint64_t engines = ~(uint64_t)0;

	for (size_t i = first; i < c->n_conditions; i++) {
		const struct oom_compat_condition *q = &c->condition[i];

		if (q->offset == offsetof(struct oom_plan, engine) && q->choices && !q->asked)
			engines &= q->negated ? ~(uint64_t)q->low : (uint64_t)q->low;
	}
	for (size_t e = 0; e < OOM_COMPAT_ENGINES; e++)
		if (engines >> e & 1)
			add(&c->of_engine[e], k);
}

/* A verdict's word decides by its first letter. */
static enum oom_status add_rule(struct oom_compat *c, size_t number, const char *when,
				const char *verdict, const char *instead, const struct facts *f,
				struct oom_error *err)
{
	const uint16_t before = c->n_conditions;
	bool here;
	const enum oom_status st = compat_compile(c, when, f, &here, err);

	if (st || !here) {
		c->n_conditions = before;
		return st;
	}
	sort_by_engine(c, c->n, before);
	c->rule[c->n] = (uint8_t)number;
	c->end[c->n++] = c->n_conditions;
	if (strcmp(verdict, oom_compat_verdict_str(OOM_CONDITIONAL)))
		add(&c->binding, number);
	if (!strcmp(verdict, oom_compat_verdict_str(OOM_REFUSED)) ||
	    !strcmp(verdict, oom_compat_verdict_str(OOM_BECOMES_OTHER)))
		add(&c->fatal, number);
	if (!strncmp(instead, "precision=", 10))
		add(&c->of_precision, number);
	return OOM_OK;
}

/* A number for all that the rules are compiled for (FNV-1a), which is not 0. */
static uint64_t print_of(const struct facts *f)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (int i = 0; i < FACT_VENDOR; i++)
		h = (h ^ (uint64_t)f->number[i]) * 0x100000001b3u;
	for (int i = FACT_VENDOR; i < FACTS; i++)
		for (const char *s = f->word[i];; s++) {
			h = (h ^ (unsigned char)*s) * 0x100000001b3u;
			if (!*s)
				break;
		}
	return h ? h : 1;
}

static enum oom_status compile(struct oom_compat *c, const struct facts *f, struct oom_error *err)
{
	enum { RULE, WHEN, VERDICT, INSTEAD = 5, COLUMNS = 8 };
	struct rows rows = compat_rows("compat.csv");
	enum oom_status st = OOM_OK;
	const char *cells[COLUMNS];
	char buf[1600];

	c->print = 0;
	c->n = c->n_conditions = 0;
	c->binding = c->fatal = c->of_precision = (struct oom_compat_set){{0}};
	memset(c->of_engine, 0, sizeof(c->of_engine));
	for (size_t i = 0; !st && compat_next_row(&rows, COLUMNS, cells, buf, sizeof(buf)); i++)
		st = i == OOM_COMPAT_RULES ?
			     oom_error_set(err, OOM_ERR_LIMIT, "compat.csv: too many rules") :
			     add_rule(c, i, cells[WHEN], cells[VERDICT], cells[INSTEAD], f, err);
	c->print = st ? 0 : print_of(f);
	return st;
}

enum oom_status oom_compat_init(struct oom_compat *c, const struct oom_model *model,
				const struct oom_plan *plan, const struct oom_gpu *gpu,
				struct oom_error *err)
{
	const struct facts f = facts_of(model, plan, gpu);

	return compile(c, &f, err);
}

enum oom_status oom_compat_renew(struct oom_compat *c, const struct oom_model *model,
				 const struct oom_plan *plan, const struct oom_gpu *gpu,
				 struct oom_error *err)
{
	const struct facts f = facts_of(model, plan, gpu);

	return c->print == print_of(&f) ? OOM_OK : compile(c, &f, err);
}

/* ---- plans ---- */

static int64_t field(const struct oom_plan *p, size_t offset)
{
	int64_t n;

	memcpy(&n, (const char *)p + offset, sizeof(n));
	return n;
}

static inline bool holds(const struct oom_compat_condition *c, const struct oom_plan *p,
		  const struct oom_plan *asked)
{
	const int64_t n = field(p, c->offset);
	const bool yes = c->asked   ? !asked || n == field(asked, c->offset) :
			 c->choices ? n >= 0 && n < 64 && (uint64_t)c->low >> n & 1 :
				      n >= c->low && n <= c->high;

	return yes != c->negated;
}

/* The k-th of the rules here. */
static inline bool breaks(const struct oom_compat *c, size_t k, const struct oom_plan *p,
		   const struct oom_plan *asked)
{
	for (size_t i = k ? c->end[k - 1] : 0; i < c->end[k]; i++)
		if (!holds(&c->condition[i], p, asked))
			return false;
	return true;
}

struct oom_compat_set oom_compat_broken(const struct oom_compat *c, const struct oom_plan *plan,
					const struct oom_plan *asked)
{
	struct oom_compat_set out = {{0}};

	for (size_t k = 0; k < c->n; k++)
		if (breaks(c, k, plan, asked))
			add(&out, c->rule[k]);
	return out;
}

/* No engine has a number that is not there: a plan that was not checked may. */
static const struct oom_compat_set *of_engine(const struct oom_compat *c, const struct oom_plan *plan)
{
#define ONE(...) +1
	_Static_assert(0 OOM_ENGINES(ONE) <= OOM_COMPAT_ENGINES, "a set of rules for every engine");
#undef ONE
	return &c->of_engine[plan->engine >= 0 && plan->engine < OOM_COMPAT_ENGINES ? plan->engine : 0];
}

bool oom_compat_allows(const struct oom_compat *c, const struct oom_plan *plan,
		       const struct oom_plan *asked, const struct oom_compat_set *excused)
{
	const struct oom_compat_set *here = of_engine(c, plan);

	for (size_t k = 0; oom_compat_next(here, &k); k++)
		if (has(&c->binding, c->rule[k]) && breaks(c, k, plan, asked) &&
		    !(excused && has(excused, c->rule[k])))
			return false;
	return true;
}

bool oom_compat_launches(const struct oom_compat *c, const struct oom_plan *plan)
{
	const struct oom_compat_set *here = of_engine(c, plan);

	for (size_t k = 0; oom_compat_next(here, &k); k++)
		if (has(&c->fatal, c->rule[k]) && breaks(c, k, plan, NULL))
			return false;
	return true;
}

/* The settings of a rule's `instead`, divided by blanks. */
static bool apply(size_t rule, struct oom_plan *plan)
{
	const struct oom_plan before = *plan;
	struct oom_compat_rule r;

	if (!oom_compat_rule_at(rule, &r))
		return false;
	for (char *at = r.instead; *at;) {
		char *value = strchr(at, '=');
		const struct oom_option *k;
		size_t n;

		if (!value)
			break;
		*value++ = 0;
		n = strcspn(value, " ");
		k = oom_knob_find(at);
		at = value + n + (value[n] != 0);
		value[n] = 0;
		if (k)
			(void)oom_plan_set(plan, k, value, NULL);
	}
	/* another precision is no advice where the engine has none of it: the plan would be refused */
	if (plan->precision != before.precision && oom_plan_broken(plan, NULL) && !oom_plan_broken(&before, NULL))
		*plan = before;
	return memcmp(&before, plan, sizeof(before)) != 0;
}

/* Whether the k-th of the rules here is broken, and not what was asked for. */
static bool to_mend(const struct oom_compat *c, size_t k, const struct oom_plan *p)
{
	const bool ours = p->precision_unasked && oom_compat_has(&c->of_precision, c->rule[k]);

	return (ours || oom_compat_has(&c->fatal, c->rule[k])) && breaks(c, k, p, NULL);
}

/* What mends one rule may break another: a few rounds, one for each rule at most. */
bool oom_compat_mend(const struct oom_compat *c, struct oom_plan *plan)
{
	bool again = true, changed = false;

	for (size_t round = 0; again && round < c->n; round++) {
		again = false;
		for (size_t k = 0; k < c->n; k++)
			if (to_mend(c, k, plan) && apply(c->rule[k], plan))
				again = changed = true;
	}
	return changed;
}
