/* Lines of a report on the card's memory: what the allocator makes of the step, and which GPU of several it is. */
#include "cli.h"
#include "oomplan/engine.h"

void oom_report_allocation(const struct oom_eval *e)
{
	printf("  allocated %s, reserved %s (%s), context %s (%s)", oom_gib(e->overall_peak),
	       oom_gib(e->reserved_bytes), e->reserved_replayed ? "allocator replayed" : "estimated",
	       oom_gib(e->context_bytes), e->context_measured ? "measured" : "a guess");
	if (e->workspace_bytes)
		printf(", workspaces %s, which PyTorch counts as allocated too", oom_gib(e->workspace_bytes));
	putchar('\n');
	if (e->retries)
		printf("  the card is full: two steps empty the allocator's cache %u time%s, which costs "
		       "time; with room for it %s would be used\n",
		       e->retries, e->retries == 1 ? "" : "s", oom_gib(e->wanted_bytes));
	if (e->died)
		printf("  the card is too small even with the allocator's cache emptied, though no more than %s are "
		       "allocated at once; with room for the cache %s would be used\n",
		       oom_gib(e->overall_peak), oom_gib(e->wanted_bytes));
}

uint64_t oom_foreign_contexts(const struct oom_plan *p, const struct oom_eval *e)
{
	if (p->gpus <= p->nodes || p->rank0_contexts || oom_plan_one_process(p))
		return 0;
	return e->context_bytes * (uint64_t)(p->gpus / p->nodes - 1);
}

bool oom_is_tight(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e)
{
	const uint64_t budget = oom_budget(t->q.capacity_bytes, p);

	return t->q.capacity_bytes && e->used_bytes <= budget && e->used_bytes + oom_foreign_contexts(p, e) > budget;
}

/* Which GPU of several is priced, and what the others differ by. */
void oom_report_several(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e)
{
	const struct oom_engine_info *engine = oom_engine_at((size_t)p->engine);

	if (e->n_stages)
		printf("  the fullest is %s %u of %u; the emptiest peaks at %s\n",
		       engine->in_turn ? "GPU" : "pipeline rank", e->stage, e->n_stages,
		       oom_gib(e->least_peak));
	if (oom_foreign_contexts(p, e))
		printf("  %sGPU 0 fills up first if the node's other %lld processes open a context on "
		       "it: %s more (--rank0-contexts)%s\n", oom_is_tight(t, p, e) ? "TIGHT: " : "",
		       (long long)(p->gpus / p->nodes - 1), oom_gib(oom_foreign_contexts(p, e)),
		       oom_is_tight(t, p, e) ? ", and does not fit then" : "");
	if (e->floor_bytes)
		printf("  %s of it are gathered parameters and buckets, which more GPUs do not make "
		       "smaller\n",
		       oom_gib(e->floor_bytes));
}
