/* Holdings of a schedule. */
#include "step/schedule.h"

#include <assert.h>
#include <string.h>

struct oom_holding *oom_add_holding(struct oom_schedule *s, const char *name, enum oom_bucket bucket,
			     uint64_t bytes, enum oom_moment_of_step from,
			     enum oom_moment_of_step until)
{
	struct oom_holding *h = &s->hold[s->n_hold];

	/* no plan's passes add that many (test_schedule.c walks them) */
	assert(s->n_hold < OOM_MAX_HOLDINGS);
	s->n_hold++;
	*h = (struct oom_holding){.name = name,
				  .bytes = bytes,
				  .bucket = (uint8_t)bucket,
				  .from = (uint8_t)from,
				  .until = (uint8_t)until};
	return h;
}

void oom_schedule_init(struct oom_schedule *s, const struct oom_model_sums *in, uint64_t buffers,
		       uint64_t inputs)
{
	s->in = *in;
	s->n_hold = 0;
	s->ranks = (struct oom_ranks){.n = 1, .pad = 1};
	s->temps[0] = in->state->temps[0];
	s->temps[1] = in->state->temps[1];
	s->accumulates = s->master = s->divided = s->grads_leave = s->grads_linger = s->grads_stay = s->later_ahead =
		s->whole_first = false;
	s->waits[0] = s->waits[1] = 0;
	s->mean = (struct oom_mean){0};
	s->ahead = (struct oom_ahead){0};
	s->flat = (struct oom_flat){0};
	s->copied_back = 0;
	s->chain = (struct oom_chain){.whole = true};
	s->chain_grads = 0;
	oom_add_holding(s, "weights", OOM_BUCKET_PARAMS, in->params, OOM_AT_LOAD, OOM_AT_NEVER)->pieces =
		OOM_PER_PARAM;
	oom_add_holding(s, "buffers", OOM_BUCKET_BUFFERS, buffers, OOM_AT_LOAD, OOM_AT_NEVER);
	oom_add_holding(s, "inputs", OOM_BUCKET_INPUTS, inputs, OOM_AT_START, OOM_AT_NEVER)->pieces =
		OOM_PER_INPUT;
	oom_add_holding(s, "gradient partition", OOM_BUCKET_GRADS, 0, OOM_AT_BACKWARD, OOM_AT_STEP_END);
	oom_add_holding(s, "fp32 master weights", OOM_BUCKET_OPT, 0, OOM_AT_START, OOM_AT_NEVER);
	oom_add_holding(s, "optimizer state", OOM_BUCKET_OPT, in->state->rounded, OOM_AT_STEP,
		 OOM_AT_NEVER)->pieces = OOM_PER_STATE;
}

uint64_t oom_held_in(const struct oom_schedule *s, enum oom_place place)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_hold; i++)
		sum += s->hold[i].place == place ? s->hold[i].bytes : 0;
	return sum;
}

uint64_t oom_buffers_of(const struct oom_schedule *s)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_hold; i++)
		sum += s->hold[i].bucket == OOM_BUCKET_COMM && s->hold[i].place == OOM_ON_GPU ?
			       s->hold[i].bytes :
			       0;
	return sum;
}
