/* From a vector of values to a plan: one function per axis. */
#include "axes.h"

#include "ladder/moves.h"
#include "oomplan/rules.h"

static bool set_optimizer(const struct search_space *s, size_t k, struct oom_plan *p)
{
	const struct oom_smaller_states *o = &s->optimizers;
	int64_t other[2] = {-1, -1};

	search_other_states(s, other);
	p->optimizer = k >= search_smaller_states(s) ? other[k - search_smaller_states(s)] :
		       k == 1		      ? o->quantised :
						o->paged;
	if (k == 1 && k < search_smaller_states(s) && o->sharded >= 0 && !oom_compat_launches(&s->compat, p))
		p->optimizer = o->sharded;
	return p->optimizer >= 0 && p->optimizer != s->asked->optimizer;
}

static bool set_layout(const struct search_space *s, size_t k, struct oom_plan *p)
{
	const struct layout *l = &s->layout[k];

	p->engine = l->engine;
	p->zero_stage = l->zero;
	p->bucket_view = l->bucket_view;
	p->hybrid_shard = l->hybrid;
	p->tp = l->tp;
	p->pp = l->pp;
	p->cp = l->cp;
	p->ep = l->ep;
	p->data_parallel = l->data_parallel;
	return !l->narrow || oom_engine_narrow(p);
}

/* torchao's CPUOffloadOptimizer, where one GPU keeps everything else. */
static bool set_torchao(const struct search_space *s, struct oom_plan *p)
{
	if (!oom_engine_at((size_t)p->engine)->plain || p->gpus > 1 || p->zero_stage ||
	    s->asked->offload_optimizer != OOM_OFFLOAD_NONE)
		return false;
	p->offload_optimizer = OOM_OFFLOAD_CPU;
	return true;
}

/* To disk instead is never better: the same bytes stay on the GPU, and the way there is longer. */
static bool set_offload(const struct search_space *s, size_t k, bool layout_asked,
			struct oom_plan *p)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)p->engine);
	const size_t place = k % PLACES;
	const int64_t opt = place > NOTHING && !e->offloads_whole ? OOM_OFFLOAD_CPU : OOM_OFFLOAD_NONE,
		      params = place > STATES ? OOM_OFFLOAD_CPU : OOM_OFFLOAD_NONE;
	const int64_t stage = place == STATES ? 2 : 3;

	p->offload_activations |= k >= PLACES;
	if (place == AS_ASKED)
		return k >= PLACES && e->offloads;
	if (place == STATES_BY_TORCHAO)
		return set_torchao(s, p);
	if ((place > NOTHING && !e->offloads) || (place == STATES && e->offloads_whole) ||
	    (s->asked->offload_optimizer == opt && s->asked->offload_params == params))
		return false;           /* as asked is another value */
	p->offload_optimizer = opt;
	p->offload_params = params;
	if (place == NOTHING)
		return true;
	/* a layout chosen only to be changed here is reached with one departure less from the
	 * asked one */
	if (!layout_asked && (p->engine != e->offloads_as || p->zero_stage < stage))
		return false;
	p->engine = e->offloads_as;
	p->zero_stage = p->zero_stage < stage ? stage : p->zero_stage;
	return true;
}

/* QLoRA brings its own precision: one departure less does. */
static bool set_adapters(const struct search_space *s, size_t k, bool precision_asked,
			 struct oom_plan *p)
{
	for (size_t i = 0; i < k; i++)
		if (!move_to_adapters(p, s->model))
			return false;
	return k == 1 || precision_asked;
}

/* Ranks that see different data share the batch of a step. */
static bool set_batch(const struct search_space *s, size_t k, struct oom_plan *p)
{
	const int64_t ranks = oom_plan_data_parallel(p), mine = s->step_batch / ranks;
	/* fewer ranks: the asked micro-batch stays where it can, else it is the divisor below */
	const int64_t b = s->divisor[k];

	if (s->step_batch % ranks || mine % b)
		return false;
	p->micro_batch = b;
	p->grad_accum = mine / b;
	return true;
}

static bool set_gpus(int64_t n, struct oom_plan *p)
{
	const int64_t per_node = p->gpus / p->nodes, nodes = (n + per_node - 1) / per_node;

	p->gpus = n;
	p->nodes = nodes;
	return n % nodes == 0;
}

/* Plain PyTorch's hooks, one micro-batch a step, nothing off the card; adapters have no gradients to
 * speak of. */
static bool steps_in_backward(const struct oom_plan *p)
{
	return oom_engine_at((size_t)p->engine)->plain && p->grad_accum == 1 && !p->zero_stage &&
	       !oom_plan_adapted(p);
}

/* One GPU that keeps its states trains plainly, whatever engine was asked for.  False: it cannot. */
static bool set_plain(const struct search_space *s, const uint16_t v[OOM_SEARCH_AXES], struct oom_plan *p)
{
	const bool narrow = s->layout[v[LAYOUT]].narrow;

	if (p->gpus != 1 || p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE ||
	    s->megatron || !(v[GPUS] || v[OFFLOAD] % PLACES || narrow))
		return true;
	if (narrow)
		return false;
	p->engine = plain_engine();
	p->zero_stage = p->hybrid_shard = 0;
	return true;
}

bool search_build(const struct search_space *s, const uint16_t v[OOM_SEARCH_AXES],
		  struct oom_plan *p)
{
	static const int64_t checkpointing[][2] = {
		[OOM_CKPT_NONE] = {OOM_CKPT_FULL, OOM_CKPT_SELECTIVE},
		[OOM_CKPT_FULL] = {OOM_CKPT_NONE, OOM_CKPT_SELECTIVE},
		[OOM_CKPT_SELECTIVE] = {OOM_CKPT_NONE, OOM_CKPT_FULL},
		[OOM_CKPT_SELECTIVE_ATTENTION] = {OOM_CKPT_NONE, OOM_CKPT_FULL},
		[OOM_CKPT_SELECTIVE_OP] = {OOM_CKPT_NONE, OOM_CKPT_FULL}};
	const struct oom_plan *a = s->asked;

	/* nothing of it leaves the GPUs (megatron/launch.c), which are all that were asked for */
	if (search_is_mixture(s, v[LAYOUT]) && (v[OFFLOAD] || v[GPUS]))
		return false;
	*p = *a;
	for (size_t i = 0; i < v[SEQ]; i++)
		move_to_shorter(p, s->model);
	if (v[GPUS] && !set_gpus(s->gpus[v[GPUS]], p))
		return false;
	if (v[PRECISION] && !search_narrow_weights(s, v[PRECISION]))
		move_to_16_bit(p, s->model);
	if (v[ATTN])
		p->attn = search_attention(s, v[ATTN]);
	if (v[LOSS])
		search_set_loss(s, v[LOSS], p);
	if (v[CKPT])
		p->grad_ckpt = checkpointing[a->grad_ckpt][v[CKPT] - 1];
	if (v[LAYOUT] && !set_layout(s, v[LAYOUT], p))
		return false;
	if (v[LORA] && !set_adapters(s, v[LORA], !v[PRECISION], p))
		return false;
	if (search_narrow_weights(s, v[PRECISION]) && !move_to_16_bit_weights(p, s->model))
		return false;
	if (v[OFFLOAD] && !set_offload(s, v[OFFLOAD], !v[LAYOUT], p))
		return false;
	if (!set_plain(s, v, p))
		return false;
	if (v[OPTIMIZER] && !set_optimizer(s, v[OPTIMIZER], p))
		return false;
	p->step_in_backward |= v[STEP];
	if (v[SEQPAR]) {
		p->sp = 1;
		if (p->tp < 2)
			return false;           /* beside one rank it is nothing */
	}
	if (v[ALLOCATOR])
		move_to_expandable(p, s->model);
	if (p->engine != a->engine)
		oom_plan_relax(p);              /* of what only the asked engine has */
	oom_engine_respell(p);
	/* last: the layout decides how many ranks share the batch */
	if (!set_batch(s, v[BATCH], p))
		return false;
	/* gradients leave the card as they come, where none is added to */
	p->offload_gradients |= v[OFFLOAD] % PLACES == STATES_BY_TORCHAO && p->grad_accum == 1;
	return (!v[STEP] || steps_in_backward(p)) &&
	       oom_compat_allows(&s->compat, p, a, &s->excused);
}
