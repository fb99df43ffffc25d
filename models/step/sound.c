/* What must be true of every evaluation, whatever the plan: checked each time, some thirty comparisons.
 * A number that contradicts itself is no answer, and is never printed as one. */
#include <inttypes.h>

#include "families/model.h"
#include "oomplan/option.h"
#include "step/sound.h"

/* An exbibyte; sums of a few such still fit in 64 bits. */
#define MOST_BYTES ((uint64_t)1 << 60)

static const char *contradiction_on_card(const struct oom_eval *e, uint64_t *a, uint64_t *b)
{
	*a = e->overall_peak;
	*b = e->reserved_bytes;
	if (*b < *a)
		return "less is reserved than allocated";
	*a = e->used_bytes;
	return *a < *b ? "less is used than reserved" : NULL;
}

/* The first thing that is wrong, NULL if nothing is; *a and *b are the two numbers. */
static const char *contradiction(const struct oom_eval *e, bool buckets, uint64_t *a, uint64_t *b)
{
	uint64_t sum = 0, highest = 0;
	const char *wrong;

	for (int i = 0; i < OOM_PHASES; i++) {
		*a = e->peak[i];
		*b = e->end[i];
		if (*a < *b)
			return "a phase peaks below its end";
		if (i != OOM_PHASE_EVAL && *a > highest)
			highest = *a;
	}
	*a = e->overall_peak;
	*b = highest;
	if (*a < *b)
		return "the overall peak lies below a phase's";
	wrong = contradiction_on_card(e, a, b);
	if (wrong)
		return wrong;
	*a = e->total_params;
	*b = e->trainable_params;
	if (!*a || *a < *b)
		return "more parameters are trained than there are";
	for (int i = 0; buckets && i < OOM_BUCKETS; i++) {
		*a = sum += e->bucket[i];
		*b = e->bucket[i];
		if (*b > MOST_BYTES)
			return "one kind of memory is negative";
	}
	return NULL;
}

static enum oom_status report(const struct oom_model *model, const struct oom_plan *plan,
			      const char *wrong, uint64_t a, uint64_t b, struct oom_error *err)
{
	struct oom_plan usual = oom_plan_default();
	char options[300];

	return oom_error_set(err, OOM_ERR_INTERNAL,
			     "internal error: %s (%" PRIu64 " and %" PRIu64 ") for %s with %s; please report it",
			     wrong, a, b, model->arch.model_type,
			     oom_plan_options(&usual, plan, options, sizeof(options)));
}

enum oom_status oom_sound_on_card(const struct oom_model *model, const struct oom_plan *plan,
				  const struct oom_eval *e, struct oom_error *err)
{
	uint64_t a, b;
	const char *wrong;

	if (e->used_bytes >= MOST_BYTES && e->overall_peak < MOST_BYTES)
		return oom_error_set(err, OOM_ERR_INVALID, "the GPU would need more than 1 EiB");
	wrong = contradiction_on_card(e, &a, &b);
	return wrong ? report(model, plan, wrong, a, b, err) : OOM_OK;
}

enum oom_status oom_sound(const struct oom_model *model, const struct oom_plan *plan,
			  const struct oom_eval *e, bool buckets, struct oom_error *err)
{
	uint64_t a, b;
	const char *wrong;

	for (int i = 0; i < OOM_PHASES; i++)
		if (e->peak[i] >= MOST_BYTES && e->peak[i] < UINT64_MAX - MOST_BYTES) {
			oom_error_set(err, OOM_ERR_INVALID,
				      "%s would need more than 1 EiB: the config or a knob gives a "
				      "size that no model has", oom_phase_str((enum oom_phase)i));
			if (err)
				oom_read_explain(&model->arch.rd, OOM_SUSPECT_LARGE, err);
			return OOM_ERR_INVALID;
		}
	if (e->used_bytes >= MOST_BYTES && e->overall_peak < MOST_BYTES)
		return oom_error_set(err, OOM_ERR_INVALID, "the GPU would need more than 1 EiB");
	if (e->host_pinned_bytes >= MOST_BYTES || e->host_pageable_bytes >= MOST_BYTES ||
	    e->nvme_bytes >= MOST_BYTES)
		return oom_error_set(err, OOM_ERR_INVALID, "the host would need more than 1 EiB");
	wrong = contradiction(e, buckets, &a, &b);
	return wrong ? report(model, plan, wrong, a, b, err) : OOM_OK;
}
