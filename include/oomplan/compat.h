/* What frameworks refuse, or turn into another run than the one that was priced.
 *
 * oomplan/rules.h speaks of knobs that mean nothing together.  This table (data/compat.csv) speaks
 * of plans that can be priced and cannot be launched: it depends on the card and on the model's
 * class (data/class_flags.csv) too.  Searches and rungs never leave it; estimates say what it says.
 *
 * The table is carried inside the library and compiled for each question; nothing is kept, and
 * nothing allocated.
 */
#ifndef OOMPLAN_COMPAT_H
#define OOMPLAN_COMPAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/gpu.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a plan that a rule is about.
 *
 *   X(ENUM, "word", "sentence for help") */
#define OOM_VERDICTS(X) \
	X(OOM_REFUSED, "refused", "an exception before or in the first step") \
	X(OOM_BECOMES_OTHER, "other", "it starts, and trains something else than was priced") \
	X(OOM_INADVISABLE, "inadvisable", "it runs, and who knows it would not do it") \
	X(OOM_CONDITIONAL, "conditional", "it runs with a setting that has no knob")
#define OOM_VERDICT_ID(id, word, summary) id,
enum oom_compat_verdict { OOM_VERDICTS(OOM_VERDICT_ID) };
OOM_API const char *oom_compat_verdict_str(enum oom_compat_verdict verdict);

/* One rule as the table has it. */
struct oom_compat_rule {
	char name[48];
	char when[300];                 /* the condition, in the words of data/compat.csv */
	enum oom_compat_verdict verdict;
	char happens[300];              /* what becomes of it, a sentence without a full stop */
	char setting[160];              /* CONDITIONAL: what to set; "" else */
	char instead[60];               /* knobs that make it run: "attn=sdpa"; "": none do */
	char source[300];
	char checked[80];               /* what was opened to see that it is so; "": nothing was yet */
};
/* By its number, the row's; false past the end. */
OOM_API bool oom_compat_rule_at(size_t i, struct oom_compat_rule *out);

#define OOM_COMPAT_RULES 128
/* Rules by their number. */
struct oom_compat_set {
	uint64_t bits[OOM_COMPAT_RULES / 64];
};
OOM_API bool oom_compat_has(const struct oom_compat_set *set, size_t rule);
/* The first rule of the set from *i on; false past the last. */
OOM_API bool oom_compat_next(const struct oom_compat_set *set, size_t *i);

/* A value of a plan's field: one of a set of choices, or within a range. */
struct oom_compat_condition {
	uint16_t offset;                /* of the field in struct oom_plan */
	bool choices, asked, negated;   /* asked: it is the question's */
	int64_t low, high;              /* choices: low is a set of bits */
};
#define OOM_COMPAT_CONDITIONS 224
/* The rules that may concern a model on a card, whatever the plan: what is left of their
 * conditions.  A plain value. */
struct oom_compat {
	struct oom_compat_condition condition[OOM_COMPAT_CONDITIONS];
	uint16_t end[OOM_COMPAT_RULES]; /* of the rules here, one after the other */
	uint8_t rule[OOM_COMPAT_RULES]; /* their numbers */
	uint16_t n_conditions, n;
	/* of them, those that a search never breaks unless its question does already; and those that
	 * make another run of a plan, or none; and those that know of another precision instead */
	struct oom_compat_set binding, fatal, of_precision;
};
/* gpu may be NULL: an NVIDIA card of the plan's compute capability.  Of the plan the task and the
 * compute capability count.  OOM_ERR_PARSE: the table is broken, a bug. */
OOM_API enum oom_status oom_compat_init(struct oom_compat *c, const struct oom_model *model,
					const struct oom_plan *plan, const struct oom_gpu *gpu,
					struct oom_error *err);

/* The rules that the plan breaks, CONDITIONAL ones among them; asked: the plan it was derived from
 * (some things must not be changed), or NULL. */
OOM_API struct oom_compat_set oom_compat_broken(const struct oom_compat *c,
						const struct oom_plan *plan,
						const struct oom_plan *asked);
/* Whether a plan derived from `asked` can be launched as priced: it breaks no binding rule beyond
 * `excused` (NULL: none is), those that the question breaks itself. */
OOM_API bool oom_compat_allows(const struct oom_compat *c, const struct oom_plan *plan,
			       const struct oom_plan *asked, const struct oom_compat_set *excused);
/* Whether it starts at all, and trains what was priced. */
OOM_API bool oom_compat_launches(const struct oom_compat *c, const struct oom_plan *plan);

/* Turns a plan that is refused, or becomes another, into what runs, as far as the rules know how; a
 * precision that nobody asked for is given up where it is inadvisable too.  True when that changed it. */
OOM_API bool oom_compat_mend(const struct oom_compat *c, struct oom_plan *plan);

/* What the class of a model and task can do. */
struct oom_class_flags {
	char name[80];                  /* "LlamaForCausalLM" */
	bool checkpointing, sdpa, flash, wraps, liger, batchnorm, fp16_overflow, cut;
};
/* False for a class that data/class_flags.csv does not have. */
OOM_API bool oom_class_flags(const struct oom_model *model, enum oom_task task,
			     struct oom_class_flags *out);

#ifdef __cplusplus
}
#endif

#endif
