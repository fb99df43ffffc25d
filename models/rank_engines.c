/* The table above the rooms: engines whose ranks have schedules of their own, by the room they live in.
 *
 * What is below asks this table and knows none of them by name; a further engine is a row here. */
#include "families/model.h"
#include "megatron/ranks.h"
#include "step/engines.h"

static const struct oom_rank_engine *const ranks[] = {
	[OOM_ENGINE_MEGATRON] = &oom_megatron_ranks,
	[OOM_ENGINE_MEGATRON_DEEPSPEED] = &oom_megatron_ranks,
	[OOM_ENGINE_FSDP2] = &oom_titan_ranks,
};

const struct oom_rank_engine *oom_rank_engine_of(const struct oom_plan *p)
{
	return oom_engine_own_ranks(p) && (size_t)p->engine < sizeof(ranks) / sizeof(ranks[0]) ?
		       ranks[p->engine] :
		       NULL;
}

enum oom_status oom_model_prepare(struct oom_model *m)
{
	return oom_megatron_prepare(m);
}
