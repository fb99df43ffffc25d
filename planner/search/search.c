/* Exact search: every combination of the free knobs is priced, and the best of those that fit is
 * found among the prices (pick.c).
 *
 * What is not priced changes no answer:
 *
 *   - the same plan reached with more departures (axes.c);
 *   - expandable segments: they change what is reserved, not what is allocated, nor time or class;
 *     the price of the plan without serves;
 *   - lengths between the asked and the shortest, where the shortest does not fit;
 *   - larger micro-batches where what a smaller one of the same plan allocates has no room: a pass leaves bytes
 *     in proportion to the micro-batch b, and passes in flight x b = min(pipeline stages x b, the step's batch
 *     a rank sees) does not fall with b.  (Megatron's interleaved schedules are not that simple: all are
 *     priced.)  Accumulation keeps gradients, which the largest micro-batch does without: elsewhere than in
 *     Megatron a smaller one must lack more than these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "axes.h"
#include "pick.h"

struct seeker {
	struct search_space space;
	struct picks picks;
	/* values of each axis in this pass */
	size_t width[AXES];
	/* the least micro-batch that a plan has no room for, by what the axes within BATCH say of it */
	int64_t *refused;
};

/* By which of the combinations of the axes within BATCH a plan is, but for the allocator. */
static size_t plan_of_a_batch(const struct seeker *s, const uint16_t value[AXES])
{
	size_t i = 0;

	for (int axis = BATCH + 1; axis < ALLOCATOR; axis++)
		i = i * s->width[axis] + value[axis];
	return i;
}

static size_t plans_of_a_batch(const struct seeker *s)
{
	size_t n = 1;

	for (int axis = BATCH + 1; axis < ALLOCATOR; axis++)
		n *= s->width[axis];
	return n;
}

static void measure_axes(struct seeker *s)
{
	for (int axis = 0; axis < AXES; axis++)
		s->width[axis] = search_values(&s->space, (enum search_axis)axis);
}

/* Whether no larger micro-batch has room either.  Gradients are taken at 8 bytes for each trained parameter, two
 * fp32 copies, as engines keep them in buckets and in other types besides. */
static bool has_none_larger(const struct seeker *s, const struct oom_plan *plan, const struct oom_eval *e, bool may_fit)
{
	const uint64_t kept = 8 * e->trainable_params;

	if (s->space.megatron)
		return !may_fit && s->space.asked->vpp <= 1;
	return !may_fit && e->used_bytes - e->reserved_bytes + e->overall_peak >
				   oom_budget(s->picks.q->capacity_bytes, plan) + kept;
}

/* One combination, and the same with expandable segments. */
static enum oom_status price(struct seeker *s, uint16_t value[AXES])
{
	struct picks *k = &s->picks;
	struct oom_plan plan;
	struct oom_eval e;
	enum oom_status st;
	const size_t at = plan_of_a_batch(s, value);
	bool may_fit = true;

	if (s->space.divisor[value[BATCH]] >= s->refused[at] || !search_build(&s->space, value, &plan))
		return OOM_OK;
	st = oom_evaluate(k->ev, s->space.model, &plan, OOM_EVAL_FAST, &e, k->err);
	/* what is allocated is the same under either allocator */
	k->out->evaluated += s->width[ALLOCATOR];
	if (st)
		return st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;
	for (size_t a = 0; !st && may_fit && a < s->width[ALLOCATOR]; a++) {
		value[ALLOCATOR] = (uint16_t)a;
		st = picks_add(k, value, &plan, &e, &may_fit);
	}
	value[ALLOCATOR] = 0;
	if (!st && has_none_larger(s, &plan, &e, may_fit))
		s->refused[at] = plan.micro_batch;
	return st;
}

/* Micro-batches from the smallest on, which the asked one is the first of. */
static size_t batch_in_turn(const struct search_space *s, size_t k, size_t n)
{
	size_t smaller = 0;

	while (smaller + 1 < n && s->divisor[smaller + 1] < s->divisor[0])
		smaller++;
	return k < smaller ? k + 1 : k == smaller ? 0 : k;
}

static enum oom_status visit(struct seeker *s, int axis, uint16_t value[AXES])
{
	const size_t n = axis < ALLOCATOR ? s->width[axis] : 0;
	enum oom_status st = OOM_OK;

	if (axis == ALLOCATOR)
		return price(s, value);
	if (axis == BATCH)
		for (size_t k = plans_of_a_batch(s); k-- > 0;)
			s->refused[k] = INT64_MAX;
	for (size_t k = 0; !st && k < n; k++) {
		value[axis] = (uint16_t)(axis == BATCH ? batch_in_turn(&s->space, k, n) : k);
		st = visit(s, axis + 1, value);
	}
	value[axis] = 0;
	return st;
}

static enum oom_status one_length(struct seeker *s, uint16_t value[AXES])
{
	struct oom_search *o = s->picks.out;
	enum oom_status st;

	o->found = false;
	o->n_alternatives = o->n_undominated = 0;
	picks_init(&s->picks);
	measure_axes(s);
	st = visit(s, SEQ + 1, value);
	return st ? st : picks_choose(&s->picks);
}

/* What the passes of the asked plan's smallest batch hold with some attention: with and without checkpoints between
 * layers, under autocast and, as DeepSpeed runs it, without; UINT64_MAX: it does not run so. */
enum { PASSES = 8 };             /* forward and backward of each of them: elsewhere another one may bind */
static enum oom_status passes_hold(struct seeker *s, int64_t attn, uint64_t least[PASSES])
{
	struct picks *k = &s->picks;
	struct oom_plan p = *s->space.asked;
	enum oom_status st = OOM_OK;

	p.micro_batch = p.grad_accum = 1;
	p.attn = attn;
	/* whole logits hide what attention holds */
	if (search_values(&s->space, LOSS) > 1)
		search_set_loss(&s->space, 1, &p);
	/* flash_attn has 16 bit alone, as what fits in the end mostly is */
	move_to_16_bit(&p, s->space.model);
	for (int i = 0; i < PASSES; i++)
		least[i] = UINT64_MAX;
	for (int i = 0; i < PASSES / 2 && !st; i++) {
		struct oom_eval e = {0};
		struct oom_plan q;

		p.grad_ckpt = i % 2 ? OOM_CKPT_FULL : OOM_CKPT_NONE;
		if (!oom_compat_launches(&s->space.compat, &p))
			continue;
		q = p;
		if (i / 2)
			q.precision = p.precision == OOM_AMP_FP16 || p.precision == OOM_FP16_AMP ? OOM_FP16 : OOM_BF16;
		st = oom_evaluate(k->ev, s->space.model, &q, OOM_EVAL_FAST, &e, k->err);
		if (!st) {
			least[2 * i] = e.peak[OOM_PHASE_FWD1];
			least[2 * i + 1] = e.peak[OOM_PHASE_BWD1];
		}
		st = st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;
	}
	return st;
}

/* Attention written out holds less than SDPA where that has only its path of plain operations (bf16 before
 * Ampere), and the scores of few tokens; flash_attn where it takes a mask that SDPA writes out. */
static enum oom_status compare_attention(struct seeker *s)
{
	static const int64_t others[] = {OOM_ATTN_EAGER, OOM_ATTN_FLASH};
	uint64_t sdpa[PASSES], other[PASSES];
	enum oom_status st;

	if (s->space.megatron)
		return OOM_OK;
	st = passes_hold(s, OOM_ATTN_SDPA, sdpa);
	for (size_t i = 0; !st && i < sizeof(others) / sizeof(others[0]); i++) {
		bool leaner = false;

		st = passes_hold(s, others[i], other);
		for (int k = 0; !st && k < PASSES; k++)
			leaner |= other[k] < sdpa[k];
		if (leaner)
			s->space.leaner[s->space.n_leaner++] = others[i];
	}
	return st;
}

/* What is only worth it where nothing else fits is tried only there, and before the science changes. */
static enum oom_status at_length(struct seeker *s, size_t k)
{
	uint16_t value[AXES] = {0};
	enum oom_status st;

	value[SEQ] = (uint16_t)k;
	s->space.resorts = false;
	st = one_length(s, value);
	s->space.resorts = search_has_resorts(&s->space) &&
			   (!s->picks.out->found || (!k && s->picks.out->best.cls == OOM_SCIENCE));
	if (!st && s->space.resorts && !k)
		st = compare_attention(s);
	if (!st && s->space.resorts)
		st = one_length(s, value);
	return st;
}

/* From the longest on.  What does not fit over the fewest tokens fits over none between them and the asked ones, which is
 * most of what a card that is too small would be searched for. */
static enum oom_status each_length(struct seeker *s)
{
	const size_t lengths = search_values(&s->space, SEQ);
	enum oom_status st = at_length(s, 0);

	if (!st && !s->picks.out->found && lengths > 2) {
		st = at_length(s, lengths - 1);
		if (st || !s->picks.out->found)
			return st;
		s->picks.out->found = false;
	}
	for (size_t k = 1; !st && k < lengths && !s->picks.out->found; k++)
		st = at_length(s, k);
	return st;
}

/* For all that is tried in the end. */
static enum oom_status make_room(struct seeker *s, struct oom_error *err)
{
	s->space.resorts = search_has_resorts(&s->space);
	measure_axes(s);
	s->refused = malloc(plans_of_a_batch(s) * sizeof(*s->refused));
	s->space.resorts = false;
	return s->refused ? OOM_OK : oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
}

enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model,
			   const struct oom_search_query *q, struct oom_search *out,
			   struct oom_error *err)
{
	struct seeker *s = malloc(sizeof(*s));
	enum oom_status st;

	memset(out, 0, sizeof(*out));
	if (!s)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	s->picks = (struct picks){.space = &s->space, .ev = ev, .q = q, .out = out, .err = err};
	s->refused = NULL;
	st = search_space_init(&s->space, model, q, err);
	if (!st)
		st = make_room(s, err);
	if (!st)
		st = each_length(s);
	picks_release(&s->picks);
	free(s->refused);
	free(s);
	if (oom_evaluator_starved(ev) && !st)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	return st;
}

/* ---- why ---- */

static const char *const cannot = "the rest of the plan needs it";

static enum oom_status reason(struct oom_evaluator *ev, const struct search_space *space,
			      const struct oom_search_query *q, const uint16_t value[AXES],
			      struct oom_reason *r, size_t *replayed, struct oom_error *err)
{
	struct oom_eval e;
	enum oom_status st;

	r->built = search_build(space, value, &r->without);
	if (!r->built) {
		snprintf(r->note, sizeof(r->note), "%s", cannot);
		return OOM_OK;
	}
	st = oom_judge(ev, space->model, &r->without, q->capacity_bytes, OOM_EVAL_REPLAY, &e,
		       &r->fits, err);
	if (st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT) {
		snprintf(r->note, sizeof(r->note), "%.150s", err ? err->text : cannot);
		return OOM_OK;
	}
	*replayed += !st && e.reserved_replayed;
	r->runs = !st;
	r->used_bytes = st ? 0 : e.used_bytes;
	r->seconds_per_sample = st ? 0 : 1 / oom_step_time(&r->without, &e, q->gpu).samples_per_s;
	return st;
}

enum oom_status oom_search_reasons(struct oom_evaluator *ev, const struct oom_model *model,
				   const struct oom_search_query *q, struct oom_search *s,
				   struct oom_error *err)
{
	struct search_space *space = malloc(sizeof(*space));
	enum oom_status st = space ? search_space_init(space, model, q, err) :
				     oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");

	s->n_reasons = 0;
	for (int axis = 0; !st && s->found && axis < AXES; axis++) {
		struct oom_reason *r = &s->reason[s->n_reasons];
		uint16_t value[AXES];

		if (!s->best.value[axis])
			continue;
		memset(r, 0, sizeof(*r));
		r->axis = axis;
		s->n_reasons++;
		memcpy(value, s->best.value, sizeof(value));
		value[axis] = 0;
		st = reason(ev, space, q, value, r, &s->replayed, err);
		r->knob = search_knob((enum search_axis)axis, &s->best.plan, r->built ? &r->without : NULL);
	}
	free(space);
	return st;
}
