/* Which knobs need or exclude which others.
 *
 * A rule concerns values of knobs alone, whatever the model: "4-bit weights need adapters".  What
 * depends on the model is refused where the model is known.  oom_evaluate asks the rules first. */
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

/* A range of a field's values: those for which value - from, both without sign, is at most span.
 * So it may be everything but one value; doubles that are not negative are ordered as their bits
 * are, and have ranges too.  A set of choices is given by its bits instead. */
struct oom_condition {
	size_t offset;          /* of the knob's field in struct oom_plan */
	uint64_t from, span;
	uint64_t among;         /* bits of choices; 0: the range counts */
};

/* Where `when`, a range, and `also` hold, `other` must hold (needs) or must not (excludes); where it
 * takes arithmetic to tell, `right` tells instead. */
struct oom_rule {
	struct oom_condition when, also;
	bool excludes;
	struct oom_condition other;
	bool (*right)(const struct oom_plan *plan);
	/* Whether the knob of `when` merely has no effect where the rule is broken: setting it back
	 * to its default changes no byte. */
	bool idle;
	/* What is wrong and how to mend it; {gpus} stands for the knob's value. */
	const char *sentence;
};

/* NULL past the end. */
OOM_API const struct oom_rule *oom_rule_at(size_t i);
/* Whether the rule speaks of this knob. */
OOM_API bool oom_rule_concerns(const struct oom_rule *rule, const struct oom_option *knob);
/* The first rule that the plan breaks, or NULL.  Rules that speak of `open`, a knob still to be
 * chosen, do not count; NULL: all do. */
OOM_API const struct oom_rule *oom_plan_broken(const struct oom_plan *plan,
					       const struct oom_option *open);
/* OOM_ERR_INVALID with the sentence of that rule. */
OOM_API enum oom_status oom_plan_check_open(const struct oom_plan *plan,
					    const struct oom_option *open, struct oom_error *err);
/* The same where nothing is open. */
OOM_API enum oom_status oom_plan_check(const struct oom_plan *plan, struct oom_error *err);
/* Sets back to their defaults the knobs that have no effect in this plan.  For plans that were
 * derived, by a search or from a table with a column for every knob. */
OOM_API void oom_plan_relax(struct oom_plan *plan);
/* The plan as its engine trains it: DeepSpeed makes autocast over fp32 weights 16-bit weights with an
 * fp32 master.  Plans that differ before and not after are priced alike. */
OOM_API void oom_engine_recast(struct oom_plan *plan);
/* Its precision alone, by the name of what then runs: for whoever reads the plan. */
OOM_API void oom_engine_respell(struct oom_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
