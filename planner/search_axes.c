/* What the search may change: one function an axis, and the values it has. */
#include "search_axes.h"

#include <stdlib.h>
#include <string.h>

#include "moves.h"
#include "oomplan/rules.h"

static const struct oom_search_axis axes[AXES] = {
	[SEQ] = {"seq-len", "halves, when allowed and nothing longer fits (images: halves of the side)"},
	[GPUS] = {"gpus", "divisors of the asked number, for the objective price"},
	[PRECISION] = {"precision", "16-bit autocast when fp32 was asked; 16-bit weights, which lose small updates, where nothing else fits"},
	[ATTN] = {"attn", "sdpa when eager was asked; eager where it holds less and nothing else fits"},
	[LOSS] = {"loss", "fused where Liger has the model, cut cross-entropy where axolotl has it, torchtune's in chunks; TRL's in chunks where nothing else fits"},
	[CKPT] = {"grad-ckpt", "none, full; selective with Megatron"},
	[LORA] = {"lora-r", "16, and QLoRA (only when allowed)"},
	[BATCH] = {"micro-batch", "every divisor of the batch a rank sees"},
	[LAYOUT] = {"zero", "on two GPUs or more: DDP with bucket views, every stage of DeepSpeed and FSDP; tp x pp x cp x ep of Megatron; where nothing else fits, tp x pp x cp beside FSDP2"},
	[OFFLOAD] = {"offload-optimizer", "none, the optimizer, the optimizer and the parameters to the CPU; where nothing else fits, activations, and torchao's optimizer on one GPU"},
	[OPTIMIZER] = {"optimizer", "adamw-8bit, paged-adamw-8bit for an AdamW; torchao's where FSDP2 shards"},
	[STEP] = {"optimizer-in-backward", "on one GPU without accumulation, as each gradient comes"},
	[SEQPAR] = {"sp", "sequence parallelism beside Megatron's tensor parallelism"},
	[ALLOCATOR] = {"allocator", "expandable_segments"},
};

const struct oom_search_axis *oom_search_axis_at(size_t i)
{
	return i < AXES ? &axes[i] : NULL;
}

/* ---- lists of values ---- */

/* Tensor, pipeline or context parallelism that was not asked for. */
static bool is_mixture(const struct search_space *s, size_t k)
{
	return !s->megatron && k >= s->n_own && s->asked->gpus > 1;
}

static bool put(int64_t d, int64_t most, int64_t first, int64_t list[MAX_DIVISORS], size_t *k)
{
	if (d > most || d == first)
		return true;
	if (*k == MAX_DIVISORS)
		return false;
	list[(*k)++] = d;
	return true;
}

static int ascending(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Divisors of n up to `most`, ascending, `first` before the others. */
static bool divisors(int64_t n, int64_t most, int64_t first, int64_t list[MAX_DIVISORS],
		     size_t *count)
{
	bool room = true;

	*count = 0;
	list[(*count)++] = first;
	for (int64_t d = 1; room && d <= most && d <= n / d; d++)
		if (n % d == 0)
			room = put(d, most, first, list, count) &&
			       (d == n / d || put(n / d, most, first, list, count));
	qsort(list + 1, *count - 1, sizeof(*list), ascending);
	return room;
}

/* Liger's fused one; cut cross-entropy, TRL's and torchtune's where that is not to be had. */
static int64_t narrow_loss(const struct search_space *s)
{
	static const int64_t losses[] = {OOM_LOSS_FUSED, OOM_LOSS_CUT, OOM_LOSS_CHUNKED_NLL,
					 OOM_LOSS_CHUNKED};

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		struct oom_plan p = s->start;

		p.fused_ce = losses[i];
		if (!oom_plan_broken(&p, NULL) &&
		    (s->start.fused_ce == losses[i] || oom_compat_launches(&s->compat, &p)))
			return losses[i];
	}
	return OOM_LOSS_FUSED;
}

enum oom_status search_space_init(struct search_space *s, const struct oom_model *model,
				  const struct oom_search_query *q, struct oom_error *err)
{
	const struct oom_plan *asked = &s->start;
	const int64_t most = (int64_t)oom_knob_find("micro-batch")->max;
	const int64_t rank = q->asked->micro_batch * q->asked->grad_accum;
	int64_t widest = rank;
	const enum oom_status st = oom_compat_init(&s->compat, model, q->asked, q->gpu, err);

	if (st)
		return st;
	s->start = *q->asked;
	oom_compat_mend(&s->compat, &s->start);
	s->excused = oom_compat_broken(&s->compat, &s->start, q->asked);
	s->asked = asked;
	s->allow = q->allow;
	s->hold = q->hold;
	s->exact_only = q->exact_only;
	s->keep_batch = q->keep_batch;
	s->model = model;
	s->megatron = oom_engine_at((size_t)asked->engine)->degrees;
	s->resorts = s->eager_is_leaner = false;
	s->loss = narrow_loss(s);
	s->fewer_gpus = q->objective == OOM_OBJECTIVE_PRICE && !s->megatron;
	s->n_divisors = s->n_layouts = s->n_gpus = 0;
	s->optimizers = oom_smaller_states(asked->optimizer);
	if (__builtin_mul_overflow(rank, oom_plan_data_parallel(asked), &s->step_batch))
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "search: the effective batch is too large");
	if (s->megatron || s->fewer_gpus || asked->gpus > 1)    /* with fewer ranks each sees more of it */
		widest = s->step_batch;
	if (!divisors(widest, most, asked->micro_batch, s->divisor, &s->n_divisors) ||
	    !search_layouts(s) ||
	    !divisors(asked->gpus, s->fewer_gpus ? asked->gpus : 0, asked->gpus, s->gpus,
		      &s->n_gpus))
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "search: more than %d micro-batches or %d layouts",
				     MAX_DIVISORS, MAX_LAYOUTS);
	return OOM_OK;
}

/* ---- values of an axis ---- */

static size_t lengths(const struct search_space *s)
{
	struct oom_plan p = *s->asked;
	size_t n = 1;

	while (s->allow & OOM_ALLOW_SEQ_LEN && n < 32 && move_to_shorter(&p, s->model))
		n++;
	return n;
}

/* The fused loss is one of language models' next tokens. */
static bool has_fused_loss(const struct search_space *s)
{
	const int64_t task = s->asked->task ? s->asked->task : (int64_t)oom_model_task(s->model);

	return task == OOM_TASK_CAUSAL_LM || task == OOM_TASK_IMAGE_TEXT;
}

/* Sharding over GPUs that were asked for, like micro-batches and checkpointing, leaves the run as it
 * is. */
enum inexact {
	TO_16_BIT,
	TO_16_BIT_WEIGHTS,
	TO_OTHER_STATES,
	TO_HOOKS,
	TO_HOST,
	TO_ANOTHER_FRAMEWORK,
	TO_SHORTER,
	TO_ADAPTERS
};
static const struct {
	enum search_axis axis;
	enum oom_class cls;
	bool resort;
} inexact[SEARCH_INEXACT] = {
	[TO_16_BIT] = {PRECISION, OOM_NUMERICS, false},
	[TO_16_BIT_WEIGHTS] = {PRECISION, OOM_NUMERICS, true},
	[TO_OTHER_STATES] = {OPTIMIZER, OOM_NUMERICS, false},
	[TO_HOOKS] = {STEP, OOM_NUMERICS, false},
	[TO_HOST] = {OFFLOAD, OOM_PLACEMENT, false},
	[TO_ANOTHER_FRAMEWORK] = {LAYOUT, OOM_PLACEMENT, true},
	[TO_SHORTER] = {SEQ, OOM_SCIENCE, false},
	[TO_ADAPTERS] = {LORA, OOM_SCIENCE, false},
};

static bool fixed(const struct search_space *s, enum search_axis axis)
{
	bool no = (axis == BATCH && s->keep_batch) || (s->hold >> axis & 1);

	for (int i = 0; i < SEARCH_INEXACT; i++)
		no |= s->exact_only && inexact[i].axis == axis && axis != LAYOUT;
	return no;
}

/* Weights in 16 bit come after autocast, where that is a change. */
static bool narrow_weights(const struct search_space *s, uint16_t precision)
{
	return precision > (s->asked->precision == OOM_FP32);
}

static bool can_narrow_weights(const struct search_space *s)
{
	struct oom_plan p = *s->asked;

	return !s->megatron && (s->allow & OOM_ALLOW_LORA || move_to_16_bit_weights(&p, s->model));
}

/* Values of OFFLOAD: PLACES, and the same with the activations beside. */
enum { AS_ASKED, NOTHING, STATES, STATES_AND_PARAMS, STATES_BY_TORCHAO, PLACES };

bool search_has_resorts(const struct search_space *s)
{
	return !s->exact_only && !s->megatron;
}

int search_departures(const uint16_t v[OOM_SEARCH_AXES])
{
	int n = v[OFFLOAD] > PLACES;

	for (int i = 0; i < AXES; i++)
		n += v[i] != 0;
	return n;
}

const char *search_knob(enum search_axis axis, uint16_t value)
{
	return axis == OFFLOAD && value == PLACES ? "offload-activations" : axes[axis].knob;
}

/* The asked optimizer and its smaller forms. */
static size_t smaller_states(const struct search_space *s)
{
	return s->optimizers.paged < 0 ? 1 : 3;
}

/* Where nothing else fits: states of 4 bits, and what the asked one is a smaller form of, whose states
 * DeepSpeed keeps on the host. */
static size_t other_states(const struct search_space *s, int64_t other[2])
{
	const struct oom_smaller_states *o = &s->optimizers;
	size_t n = 0;

	for (int i = 0; i < 2; i++) {
		const int64_t id = i ? o->whole : o->least;

		if (id >= 0 && other)
			other[n] = id;
		n += id >= 0;
	}
	return n;
}

static bool set_optimizer(const struct search_space *s, size_t k, struct oom_plan *p)
{
	const struct oom_smaller_states *o = &s->optimizers;
	int64_t other[2] = {-1, -1};

	other_states(s, other);
	p->optimizer = k >= smaller_states(s) ? other[k - smaller_states(s)] :
		       k == 1		      ? o->quantised :
						o->paged;
	if (k == 1 && k < smaller_states(s) && o->sharded >= 0 && !oom_compat_launches(&s->compat, p))
		p->optimizer = o->sharded;
	return p->optimizer >= 0 && p->optimizer != s->asked->optimizer;
}

size_t search_values(const struct search_space *s, enum search_axis axis)
{
	const struct oom_plan *a = s->asked;

	if (fixed(s, axis))
		return 1;
	switch (axis) {
	case SEQ: return lengths(s);
	case GPUS: return s->n_gpus;
	case PRECISION:
		return 1 + (a->precision == OOM_FP32) + (s->resorts && can_narrow_weights(s));
	case ATTN:
		return a->attn == OOM_ATTN_EAGER || (s->resorts && s->eager_is_leaner) ? 2 : 1;
	case LOSS:              /* TRL's takes another trainer */
		return a->fused_ce == s->loss || !has_fused_loss(s) ||
				       (s->loss == OOM_LOSS_CHUNKED_NLL && !s->resorts) ?
			       1 :
			       2;
	case CKPT: return s->megatron || a->grad_ckpt > OOM_CKPT_FULL ? 3 : 2;
	case LORA: return s->allow & OOM_ALLOW_LORA && !oom_plan_adapted(a) && !s->megatron ? 3 : 1;
	case BATCH: return s->n_divisors;
	case LAYOUT: return s->resorts ? s->n_layouts : s->n_own;
	case OFFLOAD:
		return s->megatron		? 1 :
		       !s->resorts		? STATES_BY_TORCHAO :
		       a->offload_activations	? PLACES :
						  2 * PLACES;
	case OPTIMIZER:
		return s->megatron ? 1 : smaller_states(s) + (s->resorts ? other_states(s, NULL) : 0);
	case STEP: return a->gpus == 1 && !a->step_in_backward && !s->megatron ? 2 : 1;
	case SEQPAR: return s->megatron && !a->sp && a->gpus > 1 ? 2 : 1;
	case ALLOCATOR: return a->allocator == OOM_ALLOC_EXPANDABLE ? 1 : 2;
	case AXES: break;
	}
	return 1;
}

/* ---- from values to a plan ---- */

static void set_layout(const struct search_space *s, size_t k, struct oom_plan *p)
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

unsigned search_inexact(const struct search_space *s, const uint16_t v[OOM_SEARCH_AXES])
{
	unsigned set = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		if (!inexact[i].resort)
			set |= (unsigned)(v[inexact[i].axis] != 0) << i;
	/* 16-bit weights are graver than autocast */
	set |= (unsigned)narrow_weights(s, v[PRECISION]) << TO_16_BIT_WEIGHTS;
	set |= (unsigned)is_mixture(s, v[LAYOUT]) << TO_ANOTHER_FRAMEWORK;
	return set;
}

unsigned search_inexact_all(const struct search_space *s)
{
	unsigned set = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		set |= (unsigned)(s->resorts || !inexact[i].resort) << i;
	return set;
}

unsigned search_classes(unsigned set)
{
	unsigned classes = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		if (set >> i & 1)
			classes |= 1u << inexact[i].cls;
	return classes;
}

bool search_build(const struct search_space *s, const uint16_t v[OOM_SEARCH_AXES],
		  struct oom_plan *p)
{
	static const int64_t checkpointing[][2] = {
		[OOM_CKPT_NONE] = {OOM_CKPT_FULL, OOM_CKPT_SELECTIVE},
		[OOM_CKPT_FULL] = {OOM_CKPT_NONE, OOM_CKPT_SELECTIVE},
		[OOM_CKPT_SELECTIVE] = {OOM_CKPT_NONE, OOM_CKPT_FULL},
		[OOM_CKPT_SELECTIVE_ATTENTION] = {OOM_CKPT_NONE, OOM_CKPT_FULL}};
	const struct oom_plan *a = s->asked;

	/* nothing of it leaves the GPUs (megatron/launch.c), which are all that were asked for */
	if (is_mixture(s, v[LAYOUT]) && (v[OFFLOAD] || v[GPUS]))
		return false;
	*p = *a;
	for (size_t i = 0; i < v[SEQ]; i++)
		move_to_shorter(p, s->model);
	if (v[GPUS] && !set_gpus(s->gpus[v[GPUS]], p))
		return false;
	if (v[PRECISION] && !narrow_weights(s, v[PRECISION]))
		move_to_16_bit(p, s->model);
	if (v[ATTN] && !move_to_sdpa(p, s->model))
		p->attn = OOM_ATTN_EAGER;
	if (v[LOSS])
		p->fused_ce = s->loss;
	if (v[CKPT])
		p->grad_ckpt = checkpointing[a->grad_ckpt][v[CKPT] - 1];
	if (v[LAYOUT])
		set_layout(s, v[LAYOUT], p);
	if (v[LORA] && !set_adapters(s, v[LORA], !v[PRECISION], p))
		return false;
	if (narrow_weights(s, v[PRECISION]) && !move_to_16_bit_weights(p, s->model))
		return false;
	if (v[OFFLOAD] && !set_offload(s, v[OFFLOAD], !v[LAYOUT], p))
		return false;
	/* one GPU that keeps its states trains plainly, whatever engine was asked for */
	if (p->gpus == 1 && p->offload_optimizer == OOM_OFFLOAD_NONE &&
	    p->offload_params == OOM_OFFLOAD_NONE && (v[GPUS] || v[OFFLOAD] % PLACES) && !s->megatron) {
		p->engine = plain_engine();
		p->zero_stage = p->hybrid_shard = 0;
	}
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
