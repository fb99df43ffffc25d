/* Which knobs need or exclude which others.
 *
 * A rule is about values of knobs only, whatever the model: "4-bit weights need adapters".  What depends on
 * the model is refused where the model is known.  oom_evaluate checks the rules first. */
#ifndef OOMPLAN_RULES_H
#define OOMPLAN_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/option.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A range of a field's values: those for which value - from, computed without sign, is at most span.  A
 * range can therefore be everything except one value, and it works for doubles that are not negative, which
 * are ordered as their bits are.  A set of choices is given by its bits instead. */
struct oom_condition {
	size_t offset;          /* of the knob's field in struct oom_plan */
	uint64_t from, span;
	uint64_t among;         /* bits of choices; 0: the range applies */
};

/* If `when` and `also` hold, `other` must hold too (needs) or must not hold (excludes).  If that takes
 * arithmetic, `right` decides instead. */
struct oom_rule {
	struct oom_condition when, also;
	bool excludes;
	struct oom_condition other;
	bool (*right)(const struct oom_plan *plan);
	/* The knob of `when` merely has no effect if the rule is broken: resetting it to its default changes
	 * no byte. */
	bool idle;
	/* What is wrong and how to mend it.  A knob's name in braces, {gpus}, stands for its value. */
	const char *sentence;
};

/* The i-th rule; NULL past the end. */
OOM_API const struct oom_rule *oom_rule_at(size_t i);
/* True if the rule is about this knob. */
OOM_API bool oom_rule_concerns(const struct oom_rule *rule, const struct oom_option *knob);
/* The first rule that the plan breaks, or NULL.  Rules about `open`, a knob that is still to be chosen, are
 * ignored; with NULL none is. */
OOM_API const struct oom_rule *oom_plan_broken(const struct oom_plan *plan,
					       const struct oom_option *open);
/* Returns OOM_ERR_INVALID with that rule's sentence if there is one. */
OOM_API enum oom_status oom_plan_check_open(const struct oom_plan *plan,
					    const struct oom_option *open, struct oom_error *err);
/* The same with no open knob. */
OOM_API enum oom_status oom_plan_check(const struct oom_plan *plan, struct oom_error *err);
/* Resets the knobs that have no effect in this plan to their defaults.  This is for derived plans: a
 * search's, or the rows of a table that has a column for every knob. */
OOM_API void oom_plan_relax(struct oom_plan *plan);
/* Rewrites the plan as its engine trains it: DeepSpeed turns autocast over fp32 weights into 16-bit weights
 * with an fp32 master copy.  Plans that become equal are priced alike. */
OOM_API void oom_engine_recast(struct oom_plan *plan);
/* Rewrites only the precision, as the name of what then runs, for people who read the plan. */
OOM_API void oom_engine_respell(struct oom_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
