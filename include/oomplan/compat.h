/* What frameworks refuse, or turn into another run than the one that was priced.
 *
 * oomplan/rules.h is about knobs that have no meaning together.  This table (data/compat.csv) is about
 * plans that can be priced but not launched, which also depends on the card and on the model's class
 * (data/class_flags.csv).  Searches and rungs never leave it, and estimates report what it says.
 *
 * The table is part of the library and is compiled for each question.  Nothing is kept between calls and
 * nothing is allocated. */
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

/* What happens to a plan that breaks a rule.
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

/* One row of the table. */
struct oom_compat_rule {
	char name[48];
	char when[300];                 /* the condition, in the words of data/compat.csv */
	enum oom_compat_verdict verdict;
	char happens[300];              /* what happens to the plan; a sentence without its full stop */
	char setting[160];              /* CONDITIONAL: what to set; otherwise "" */
	char instead[80];               /* knobs with which it runs, such as "attn=sdpa"; "": there are none */
	char source[300];
	char checked[80];               /* the version in which the source was read; "": not yet */
};
/* Copies the rule of row i into out; false past the end. */
OOM_API bool oom_compat_rule_at(size_t i, struct oom_compat_rule *out);

#define OOM_COMPAT_RULES 128
/* A set of rules, by row number. */
struct oom_compat_set {
	uint64_t bits[OOM_COMPAT_RULES / 64];
};
OOM_API bool oom_compat_has(const struct oom_compat_set *set, size_t rule);
/* The first rule of the set from *i on; false past the last. */
OOM_API bool oom_compat_next(const struct oom_compat_set *set, size_t *i);

/* A condition on a field of a plan: its value is one of a set of choices, or lies in a range. */
struct oom_compat_condition {
	uint16_t offset;                /* of the field in struct oom_plan */
	bool choices, asked, negated;   /* asked: the field of the plan as asked is meant */
	int64_t low, high;              /* with choices, low is a set of bits */
};
#define OOM_COMPAT_CONDITIONS 256
#define OOM_COMPAT_ENGINES 32
/* The rules that can concern a model on a card, whatever the plan, with what is left of their conditions.
 * A plain value. */
struct oom_compat {
	struct oom_compat_condition condition[OOM_COMPAT_CONDITIONS];
	uint16_t end[OOM_COMPAT_RULES]; /* the end of each rule's conditions, in order */
	uint8_t rule[OOM_COMPAT_RULES]; /* their numbers */
	uint16_t n_conditions, n;
	/* The rules that a search never breaks unless its question already does; those that refuse a plan or
	 * make another run of it; and those that name another precision to use instead. */
	struct oom_compat_set binding, fatal, of_precision;
	/* by engine, the places in rule[] of those that its plans can break */
	struct oom_compat_set of_engine[OOM_COMPAT_ENGINES];
	uint64_t print;                 /* of what it was compiled for; 0: of nothing yet */
};
/* Compiles the table for a model, a card and the plan's task and compute capability.  gpu may be NULL,
 * which stands for an NVIDIA card of the plan's compute capability.  OOM_ERR_PARSE means that the table is
 * broken, which is a bug of this library. */
OOM_API enum oom_status oom_compat_init(struct oom_compat *c, const struct oom_model *model,
					const struct oom_plan *plan, const struct oom_gpu *gpu,
					struct oom_error *err);

/* The same where c is zeroed or was compiled before: what that was for the same class, task, framework and generation
 * of cards stays as it is. */
OOM_API enum oom_status oom_compat_renew(struct oom_compat *c, const struct oom_model *model,
					 const struct oom_plan *plan, const struct oom_gpu *gpu,
					 struct oom_error *err);

/* The rules that the plan breaks, CONDITIONAL ones included.  asked is the plan that it was derived from,
 * because some knobs must not be changed, or NULL. */
OOM_API struct oom_compat_set oom_compat_broken(const struct oom_compat *c,
						const struct oom_plan *plan,
						const struct oom_plan *asked);
/* True if a plan derived from `asked` can be launched as priced, that is, if it breaks no binding rule
 * except those in `excused`, which the question breaks itself (NULL: none). */
OOM_API bool oom_compat_allows(const struct oom_compat *c, const struct oom_plan *plan,
			       const struct oom_plan *asked, const struct oom_compat_set *excused);
/* True if the plan starts and trains what was priced. */
OOM_API bool oom_compat_launches(const struct oom_compat *c, const struct oom_plan *plan);

/* Turns a plan that is refused or becomes another run into one that runs, as far as the rules say how.  A
 * precision that nobody asked for is also replaced if it is inadvisable.  True if the plan changed. */
OOM_API bool oom_compat_mend(const struct oom_compat *c, struct oom_plan *plan);

/* What the transformers class of a model and task supports. */
struct oom_class_flags {
	char name[80];                  /* "LlamaForCausalLM" */
	bool checkpointing, sdpa, flash, wraps, liger, batchnorm, fp16_overflow, cut;
};
/* False if data/class_flags.csv does not have the class. */
OOM_API bool oom_class_flags(const struct oom_model *model, enum oom_task task,
			     struct oom_class_flags *out);

#ifdef __cplusplus
}
#endif

#endif
