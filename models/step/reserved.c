/* Reserved bytes of a plan, and what lies outside of them: by a replay where one is asked for and can be, on a card
 * too small for its cache replayed again within what is there.  The last replays are kept: a ladder and a search
 * ask for one plan several times. */
#include <string.h>

#include "families/model.h"
#include "step/objectives.h"
#include "step/program.h"
#include "step/reserved.h"

/* The plan with what a replay does not depend on left out. */
static struct oom_plan replay_key(const struct oom_plan *p)
{
	struct oom_plan k = *p;

	k.margin = k.vllm_share = 0;
	k.vllm_sleep = k.rollouts = 0;
	k.evaluates = k.eval_batch = k.eval_generates = k.eval_new_tokens = k.eval_beams = 0;
	k.fp8 = !oom_rank_engine_of(p) && p->fp8 != OOM_FP8_NONE;
	k.precision_unasked = k.precision_by_card = k.zero_said = k.framework = 0;
	k.global_batch = k.eval_accumulation = k.rank0_contexts = k.network_gbps = 0;
	/* of the card, how large cuBLAS's workspaces are and which kernels it has */
	k.cublas_workspaces = (int64_t)oom_workspace_bytes(p);
	if (!oom_rank_engine_of(p))
		k.compute_capability = oom_kernels_of(p);
	k.dataloader_workers = k.prefetch_factor = k.low_cpu_mem = k.save_sharded =
		k.save_total_limit = 0;
	/* later micro-batches repeat the third, but scores of rollouts are of all of them (rank.c) */
	if (!oom_rank_engine_of(p) && !oom_objective_of(p)->rollouts)
		k.grad_accum = p->grad_accum < 3 ? p->grad_accum : 3;
	return k;
}

/* One of the last; what never filled an endless card does the same on one that is as large. */
static struct oom_replayed *replayed_before(struct oom_evaluator *ev, const struct oom_model *m,
					    const struct oom_plan *key, uint64_t limit)
{
	const size_t n = ev->n_replayed < OOM_REPLAYS_KEPT ? ev->n_replayed : OOM_REPLAYS_KEPT;

	for (size_t i = 0; i < n; i++) {
		struct oom_replayed *r = &ev->replayed[i];
		const bool serves = r->limit == limit || (!r->limit && r->replayed && r->result.reserved <= limit);

		if (oom_model_is(r->model, r->print, m) && serves && !memcmp(&r->plan, key, sizeof(*key)))
			return r;
	}
	return NULL;
}

static void set_sizes(struct oom_tape *t, const struct oom_batch *at)
{
	t->val_b = at->b;
	t->val_s = at->s;
	t->val_t = at->t;
}

/* Two steps of an engine that has schedules of its own. */
static enum oom_status play_ranks(struct oom_evaluator *ev, const struct oom_rank_engine *ranks,
				  const struct oom_model *model, const struct oom_plan *p,
				  uint64_t limit, struct oom_replay_result *out, bool *played,
				  struct oom_error *err)
{
	enum oom_status st;

	oom_player_begin(&ev->player, p, limit);
	st = ranks->play(model, p, &ev->player, err);
	if (!st)
		st = oom_player_end(&ev->player, out);
	*played = !st;
	return st == OOM_ERR_LIMIT ? OOM_OK :
	       st == OOM_ERR_MEMORY ? oom_error_set(err, st, "out of host memory") :
				      st;
}

/* The allocator's two steps, every layer recorded by itself.  *played is false for what is too deep. */
static enum oom_status play(struct oom_evaluator *ev, const struct oom_model *model,
			    const struct oom_plan *p, const struct oom_schedule *s,
			    const struct oom_batch *at, const struct oom_eval *e, uint64_t limit,
			    struct oom_replay_result *out, bool *played, struct oom_error *err)
{
	const struct oom_rank_engine *ranks = oom_rank_engine_of(p);
	struct oom_variant *v;
	struct program *g;
	enum oom_status st;

	if (ranks)
		return play_ranks(ev, ranks, model, p, limit, out, played, err);
	st = oom_program_full(ev, model, p, &g, err);
	if (!st)
		st = oom_variant_for(ev, g, p, &v, err);
	if (st)
		return st;
	set_sizes(&g->tape, at);
	if (v->own)
		set_sizes(v->own, at);
	st = oom_replay(&ev->player, s, v, p, e->input_bytes, limit, false, out);
	if (!st && !out->retries && !out->died && s->later_ahead) {    /* as on an endless card */
		struct oom_replay_result later;

		st = oom_replay(&ev->player, s, v, p, e->input_bytes, 0, true, &later);
		out->later = later.reserved;
	}
	*played = !st;
	return st && st != OOM_ERR_LIMIT ? oom_error_set(err, st, "out of host memory") : OOM_OK;
}

/* The same, unless it is one of the last.  *r is NULL for what is not played. */
static enum oom_status replay(struct oom_evaluator *ev, const struct oom_model *model,
			      const struct oom_plan *p, const struct oom_schedule *s,
			      const struct oom_batch *at, const struct oom_eval *e, uint64_t limit,
			      const struct oom_replay_result **r, struct oom_error *err)
{
	const struct oom_plan key = replay_key(p);
	struct oom_replayed *kept = replayed_before(ev, model, &key, limit);
	struct oom_replay_result result = {0};
	bool played;
	enum oom_status st;

	*r = NULL;
	if (!kept) {
		st = play(ev, model, p, s, at, e, limit, &result, &played, err);
		if (st)
			return st;
		kept = &ev->replayed[ev->n_replayed++ % OOM_REPLAYS_KEPT];
		kept->model = model;
		kept->print = model->print;
		kept->plan = key;
		/* where the card was never full, its size was not asked for */
		kept->limit = played && !result.retries && !result.died ? 0 : limit;
		kept->result = result;
		kept->replayed = played;
	}
	*r = kept->replayed ? &kept->result : NULL;
	return OOM_OK;
}

/* max_memory_allocated counts whole blocks: a large one is not cut where less than a MiB would be left over
 * (c10/cuda/CUDACachingAllocator.cpp should_split, alloc_found_block). */
static void count_blocks(struct oom_eval *e, const struct oom_replay_result *r)
{
	e->allocated_bytes = (r->held > e->overall_peak ? r->held : e->overall_peak) + e->workspace_bytes;
}

/* On a card that has no room for the cache: what is reserved there, with cached segments given back
 * when it is full. */
static enum oom_status squeeze(struct oom_evaluator *ev, const struct oom_model *model,
			       const struct oom_plan *p, const struct oom_schedule *s,
			       const struct oom_batch *at, struct oom_eval *out,
			       struct oom_error *err)
{
	const uint64_t outside = out->used_bytes - out->reserved_bytes;
	const struct oom_replay_result *r;
	enum oom_status st;

	if (!out->reserved_replayed || out->used_bytes <= ev->budget ||
	    outside + out->overall_peak > ev->budget)
		return OOM_OK;
	st = replay(ev, model, p, s, at, out, ev->budget - outside, &r, err);
	out->died = !st && r && r->died;
	if (st || !r || r->died)
		return st;
	out->retries = r->retries;
	/* ranks in closed form may allocate a little more than they do where they are played */
	out->reserved_bytes = r->reserved > out->overall_peak ? r->reserved : out->overall_peak;
	out->used_bytes = outside + out->reserved_bytes;
	count_blocks(out, r);
	return OOM_OK;
}

/* Where only the verdict is wanted the card's own size comes first: what never fills it does the same on an endless
 * one (*r), and of what dies there no more is asked (*died).  Where cached segments were given back both are played. */
static enum oom_status replay_here(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				   const struct oom_schedule *s, const struct oom_batch *at, const struct oom_eval *e,
				   const struct oom_replay_result **r, bool *died, struct oom_error *err)
{
	const uint64_t outside = e->used_bytes - e->reserved_bytes;
	enum oom_status st;

	*r = NULL;
	if (ev->budget <= outside + e->overall_peak)
		return OOM_OK;
	st = replay(ev, model, p, s, at, e, ev->budget - outside, r, err);
	*died = !st && *r && (*r)->died;
	if (!st && *r && ((*r)->retries || *died))
		*r = NULL;
	return st;
}

/* What the ranks after a node's first have in their caches beyond it, on average over the node: kept for NCCL's stream
 * while the model was sent to them, and given back where the card is full.  Of no card nobody knows how much stays, and
 * nothing is counted: what a run needs has none of it. */
static uint64_t kept_for_nccl(const struct oom_plan *plan, const struct oom_replay_result *r)
{
	const uint64_t ranks = (uint64_t)(plan->gpus / plan->nodes);

	return r && r->later > r->reserved ? (r->later - r->reserved) / ranks * (ranks - 1) : 0;
}

/* Reserved bytes, by replay where it is asked for and can be, and what lies outside of them.  s: of the
 * recorded step; NULL where the ranks have schedules of their own. */
enum oom_status oom_reserve(struct oom_evaluator *ev, const struct oom_model *model,
			       const struct oom_plan *plan, bool replays, const struct oom_schedule *s,
			       const struct oom_batch *at, struct oom_eval *out,
			       struct oom_error *err)
{
	const struct oom_replay_result *r = NULL;
	enum oom_status st = OOM_OK;
	bool died = false;
	uint64_t more;

	oom_reserve_estimated(out, plan);
	oom_overheads(out, plan);
	out->used_bytes_estimated = out->used_bytes;
	if (replays && ev->verdict_only)
		st = replay_here(ev, model, plan, s, at, out, &r, &died, err);
	out->died = died;
	if (died) {                             /* more than there is */
		out->used_bytes = out->wanted_bytes =
			out->used_bytes > ev->budget ? out->used_bytes : ev->budget + 1;
		out->reserved_bytes = out->used_bytes - (out->context_bytes + out->workspace_bytes + out->nccl_bytes);
		return st;
	}
	if (!st && replays && !r)
		st = replay(ev, model, plan, s, at, out, 0, &r, err);
	if (r) {
		out->reserved_bytes = r->reserved;
		out->reserved_replayed = true;
		count_blocks(out, r);
	}
	/* the pile of an evaluation, which is not replayed */
	if (out->reserved_bytes < out->overall_peak) {
		out->reserved_bytes = out->overall_peak;
		out->reserved_replayed = false;
	}
	out->used_bytes = out->reserved_bytes + out->context_bytes + out->workspace_bytes + out->nccl_bytes;
	out->later_bytes = kept_for_nccl(plan, r);
	more = ev->budget > out->used_bytes ? ev->budget - out->used_bytes : 0;
	more = out->later_bytes < more ? out->later_bytes : more;
	out->nccl_bytes += more;
	out->used_bytes += more;
	out->wanted_bytes = out->used_bytes;
	return st || !ev->budget ? st : squeeze(ev, model, plan, s, at, out, err);
}
