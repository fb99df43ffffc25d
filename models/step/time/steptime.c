/* The step time, part by part.
 *
 *   computing   products and attention at the share of the peak that the card's generation reaches,
 *               all other kernels at its memory's; the processor launches them meanwhile, and a step
 *               of small kernels waits for it
 *   talking     collectives by what they carry (collectives.c); gathers and reductions of data
 *               parallelism run beside the computation, and what neither hides is between the longer of
 *               both and their sum (DeepSpeed: their sum, see engines.c)
 *   waiting     a pipeline of p stages, m micro-batches, v chunks: (p - 1) / (m v) of a stage's time
 *               (Narayanan et al. 2021, arXiv:2104.04473, section 2.2)
 *   updating    states once through memory, or several times where PyTorch works tensor list by tensor
 *               list (torch/optim/_multi_tensor); offloaded ones over PCIe, on the CPU
 */
#include "oomplan/steptime.h"

#include <math.h>
#include <string.h>

#include "collectives.h"
#include "steptime_as.h"
#include "update.h"
#include "step/engines.h"

/* bitsandbytes' kDequantizeBlockwise finds each of 16 values through a tree of branches, on other units than the tensor
 * cores' (1.4 to 2.1 times as fast without the branches on an A100 and an H100, hardly on an A10 or an RTX 4090, whose memory it
 * waits for: bitsandbytes pull request 1747); two elements per byte read, 2 bytes written.  Fitted to LoRA over
 * 13 billion NF4 weights and 112 tokens on an A100 (litgpt, tutorials/resource-tables.md). */
#define UNPACK_BYTES 2.5
#define UNPACK_WORK 130.0               /* fp32 operations an element, at 0.85 of the units */

/* torch.compile merges point-wise kernels, so that a third of their bytes and of all launches remain; what a product writes is
 * written and read all the same.  With 0.4 of all bytes instead, GPT-2's narrow products under torch.compile came out 1.2
 * times too fast on six Ada cards, and effects of it were off by more (of 0.2 to 0.4, 0.35 was best on sources left
 * out: data/throughput.csv).  Casts to 8 bits are merged with what is before them. */
#define COMPILED_BYTES 0.35
#define COMPILED_CASTS 0.4
#define COMPILED_LAUNCHES 0.33

/* Two things at once: as long as the longer, if one is much longer, and somewhat more when they are
 * alike, as neither hides the other in full. */
static double beside(double a, double b)
{
	const double longer = a > b ? a : b, r = a > b ? b / a : a / b;

	return longer > 0 ? longer * cbrt((1 + r * sqrt(r)) * (1 + r * sqrt(r))) : 0;
}

/* Trays of an NVL72 are machines of four GPUs in one NVLink domain. */
static double domain(const struct oom_plan *p, const struct oom_gpu *gpu, double board)
{
	const double joined = gpu && gpu->nvlink_domain < (double)p->gpus ? gpu->nvlink_domain : (double)p->gpus;

	return gpu && gpu->nvlink_domain > 0 && joined > board ? joined : board;
}

/* GPUs of a group that counts `n`, laid out within nodes after `inner` others. */
static struct oom_peers peers(const struct oom_time_step *s, double n, double inner)
{
	const double room = s->in_node / inner;

	return (struct oom_peers){n, room >= n ? n : room > 1 ? room : 1};
}

/* Multiplications and additions of products in 16 bit, and what their shapes take as if it were some: a product of
 * m x k with k x n, in tiles of 128 x 128, keeps the card as busy as
 *     2 m n (k + lead) + units 128 128 k
 * of them would: each tile's first loads and last stores, and a half of the last wave (cards.h).  At 220 Tflop/s an A100
 * reaches 0.60 of this with 1,024 x 1,024 x 1,024, 0.83 with twice, 0.94 with four times the sides. */
static double shaped(const struct oom_work *w, const struct oom_speed *speed)
{
	return w->product_flops + 2 * w->written * speed->of->lead + w->depth * speed->of->units * 128 * 128;
}

/* A fused attention kernel of few keys per query spends more of its time before and after the loop over them, and on
 * tiles that the diagonal cuts: as long as so many more keys would take. */
#define KEYS_LEAD 384

static double keys_lead(const struct oom_plan *p)
{
	return p->seq_len > 0 ? 1 + KEYS_LEAD / (double)p->seq_len : 1;
}

double oom_moved_bytes(const struct oom_plan *p, const struct oom_work *w, double cast_bytes)
{
	const double casts = (w->written - w->uncast) * cast_bytes;
	/* there and back, in the format that is computed in */
	double products = w->written * 2 * (p->precision == OOM_FP32 ? 4 : 2);

	if (!p->compile)
		return w->bytes + casts;
	if (products > w->bytes)
		products = w->bytes;
	return products + COMPILED_BYTES * (w->bytes - products) + COMPILED_CASTS * casts;
}

/* One micro-step's computation, and what launching adds to it. */
static double compute(struct oom_time_step *s)
{
	const struct oom_work *w = s->work;
	const double products = oom_time_hidden(shaped(w, &s->speed) / s->speed.products +
					       w->fp32_flops / s->speed.fp32_products,
				       w->streamed / s->speed.memory),
		     attention = (w->attention_flops - w->wide_flops) / s->speed.attention * keys_lead(s->plan) +
				 w->wide_flops / s->speed.wide +
				 (w->batched_flops - w->wide_batched_flops) / s->speed.batched +
				 w->wide_batched_flops / s->speed.wide_batched,
		     traffic = oom_moved_bytes(s->plan, w, s->speed.cast_bytes) / s->speed.memory,
		     unpacking = oom_time_hidden(w->unpacked * UNPACK_BYTES / s->speed.memory,
					w->unpacked * UNPACK_WORK / s->speed.fp32),
		     card = products + attention + traffic + unpacking,
		     launching = (w->launches * s->speed.python_s +
				  w->launches_back * s->speed.engine_s) *
				 (s->plan->compile ? COMPILED_LAUNCHES : 1) * oom_engine_launched(s->plan, w) +
				 oom_engine_hooks_s(s->plan, w) + oom_update_python_s(w) / s->times,
		     both = oom_time_hidden(card, launching);

	s->part[OOM_TIME_PRODUCTS] = products * s->times;
	s->part[OOM_TIME_ATTENTION] = attention * s->times;
	s->part[OOM_TIME_TRAFFIC] = traffic * s->times;
	s->part[OOM_TIME_UNPACKING] = unpacking * s->times;
	s->part[OOM_TIME_LAUNCHES] = (both - card) * s->times;
	return both;
}

/* Tokens to their experts and back.  Between machines a Megatron-core layer sends a token once to each of them,
 * where NVLink passes it on (DeepEP, which its guide asks for there: megatron/core/transformer/moe/README.md). */
static double exchange(const struct oom_time_step *s, struct oom_peers p)
{
	const struct oom_work *w = s->work;

	return oom_engine_core_layers(s->plan) ?
		       oom_exchange_once_seconds(&s->speed, p, w->expert_bytes, w->expert_calls,
						 w->expert_copies) :
		       oom_exchange_seconds(&s->speed, p, w->expert_bytes, w->expert_calls);
}

/* Model parallelism; returns by how much a micro-step takes longer. */
static double talk(struct oom_time_step *s, double micro)
{
	const struct oom_plan *p = s->plan;
	const struct oom_work *w = s->work;
	const double tp = (double)p->tp, cp = (double)p->cp, ep = (double)p->ep,
		     pp = (double)p->pp,
		     sums = oom_ring_seconds(&s->speed, peers(s, tp, 1), w->tensor_bytes,
					     w->tensor_calls),
		     /* a product hides what travels beside it, and no more than its own time: the
		      * weights' gradients are a third of all products.  User buffers send as many chunks as there
		      * are ranks, each beside the product of another, so that one of them is waited for
		      * (TransformerEngine, common/comm_gemm_overlap) */
		     beside = s->part[OOM_TIME_PRODUCTS] / s->times / 3,
		     hides = p->tp_overlap ? sums * (1 - 1 / tp) : oom_engine_core_layers(p) ? sums * w->tensor_behind : 0,
		     most = p->tp_overlap ? 3 * beside : beside, behind = hides < most ? hides : most,
		     tensor = sums - behind,
		     /* tensor ranks send their own tokens to the experts */
		     expert = exchange(s, peers(s, ep, ep > tp ? 1 : tp)),
		     attention = s->part[OOM_TIME_ATTENTION] / s->times, least = oom_engine_layers_s(p, w);
	double context = p->cp_comm == OOM_CP_A2A ?
				 oom_exchange_seconds(&s->speed, peers(s, cp, tp), w->context_bytes,
						      w->context_calls) :
				 oom_ring_seconds(&s->speed, peers(s, cp, tp), w->context_bytes,
						  w->context_calls);
	/* stages are outermost */
	const double stage = peers(s, pp, (double)p->gpus / pp).in_node < pp ? s->speed.network : s->speed.link,
		     send = pp > 1 ? w->pipeline_bytes / stage + w->pipeline_calls * 20e-6 : 0;

	/* a ring travels while the scores of the chunk before are computed */
	if (p->cp_comm != OOM_CP_A2A)
		context = oom_time_hidden(attention, context) - attention;
	s->part[OOM_TIME_TENSOR] = tensor * s->times;
	s->part[OOM_TIME_EXPERT] = expert * s->times;
	s->part[OOM_TIME_CONTEXT] = context * s->times;
	s->part[OOM_TIME_PIPELINE] = send * s->times;
	micro += tensor + expert + context + send;
	if (micro < least) {
		s->part[OOM_TIME_LAUNCHES] += (least - micro) * s->times;
		micro = least;
	}
	if (pp > 1)
		s->part[OOM_TIME_BUBBLE] = (pp - 1) / (double)(p->vpp > 1 ? p->vpp : 1) * micro;
	return micro;
}

/* DeepSpeed's stage 3 gathers parameter by parameter, as modules ask for them
 * (runtime/zero/partitioned_param_coordinator.py), and between machines reaches no more than half of
 * what one gather of a whole block does: bigscience's 52B on 64 V100s (data/throughput.csv, bsv-030 to
 * 034; only that cluster's complete rows are known, so this is estimated). */
#define MODULE_BY_MODULE 2.0

/* torchao's tensor-wise weights are cast before they are gathered (enable_fsdp_float8_all_gather, which torchtitan's
 * published runs and torchao's recipe set); row-wise ones are not. */
static bool gathers_8_bits(const struct oom_plan *p)
{
	return p->fp8 == OOM_FP8_TENSORWISE && oom_engine_of(p)->gathers_apart && p->zero_stage >= 3;
}

/* Stage 1 scatters gradients to their owners.  DeepSpeed's pipeline engine all-reduces fp32 ones instead where weights are
 * bf16 (deepspeed/runtime/pipe/engine.py _bf16_reduce_grads, bf16_optimizer.py get_grads_for_reduction). */
static double stage_1_reduced(const struct oom_plan *p, const struct oom_eval *e, const struct oom_engine *engine)
{
	return engine->pipe_engine && p->precision == OOM_BF16 ? 2.0 * 2 * (double)e->param_bytes : (double)e->grad_bytes;
}

/* Data parallelism beside `computing` seconds of a step. */
static void reduce(struct oom_time_step *s, double computing)
{
	const struct oom_plan *p = s->plan;
	const struct oom_eval *e = s->eval;
	const struct oom_engine *engine = oom_engine_of(p);
	/* weights are the same on all ranks of a sequence, which reduce and gather with those of other data
	 * (megatron/core/parallel_state.py, the data-parallel group with context parallelism; torchtitan's
	 * dp_shard_cp); tensor-parallel ranks are between them, stages are not (rank order tp-cp-ep-dp-pp) */
	const double D = (double)(oom_plan_data_parallel(p) * p->cp), part = (D - 1) / D,
		     units = s->work->units > 1 ? s->work->units : 1, inner = (double)p->tp,
		     /* FSDP and ZeRO gather in the format that is computed in */
		     weights = (double)(e->param_bytes - e->whole_bytes) *
			       (engine->wraps_units && oom_time_autocasts(p) ? 0.5 : 1) * (gathers_8_bits(p) ? 0.5 : 1),
		     gradients = (double)e->grad_bytes,
		     /* what is updated is gathered after it: frozen weights are not */
		     updated = weights * (e->total_params ? (double)e->trainable_params / (double)e->total_params : 1);
	const struct oom_peers all = peers(s, D, inner < s->in_node ? inner : s->in_node);
	struct oom_peers shard = all;
	double bytes, calls, reductions = 1, seconds;

	if (D <= 1 || engine->info.in_turn)
		return;
	/* from stage 2 on every micro-step's gradients are reduced, each to its owner */
	if (p->zero_stage >= 2)
		reductions = s->times;
	if (p->hybrid_shard)
		shard = (struct oom_peers){s->in_node, s->in_node};
	bytes = gradients * part * (p->zero_stage >= 2 ? 1 : 2) * reductions;
	/* stage 1: a scatter and the updated weights' gather, as an all-reduce carries */
	calls = units * reductions;
	seconds = 0;
	if (p->zero_stage >= 3) {
		seconds += oom_ring_seconds(&s->speed, shard, 2 * weights * part * s->times,
					    2 * units * s->times) *
			   (engine->waits && shard.n > shard.in_node ? MODULE_BY_MODULE : 1);
	} else if (p->zero_stage == 2) {
		bytes += updated * part;
	} else if (p->zero_stage == 1) {
		bytes = (stage_1_reduced(p, e, engine) + updated) * part;
	}
	if (p->hybrid_shard) {
		seconds += oom_ring_seconds(&s->speed, shard, bytes, calls);
		/* and the parts between nodes, all-reduced */
		seconds += oom_ring_seconds(&s->speed, (struct oom_peers){D / s->in_node, 1},
					    2 * bytes / s->in_node, calls);
	} else {
		seconds += oom_ring_seconds(&s->speed, all, bytes, calls);
	}
	s->part[OOM_TIME_GRADIENTS] = engine->waits ? seconds :
						      beside(computing, seconds) - computing;
}

struct oom_step_time oom_step_time(const struct oom_plan *p, const struct oom_eval *e,
				   const struct oom_gpu *gpu)
{
	return oom_step_time_as(oom_card_class(gpu), p, e, gpu);
}

struct oom_step_time oom_step_time_as(const struct oom_card_class *c, const struct oom_plan *p,
				      const struct oom_eval *e, const struct oom_gpu *gpu)
{
	static const enum oom_bound of[] = {
#define BOUND(id, name, bound, summary) bound,
		OOM_TIME_PARTS(BOUND)
#undef BOUND
	};
	struct oom_step_time t = {0};
	const double board = (double)p->gpus / (double)(p->nodes > 0 ? p->nodes : 1);
	struct oom_time_step s = {p, e, &e->work, {0}, (double)p->grad_accum, domain(p, gpu, board), board,
			 gpu ? (double)gpu->capacity_bytes - (double)e->overall_peak : 0, t.part_s};
	double bound[OOM_BOUND_COUNT] = {0}, computing;

	oom_speed_as(c, gpu, p, &s.speed);
	computing = compute(&s);
	computing = talk(&s, computing) * s.times;
	reduce(&s, computing);
	oom_time_update(&s);
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++) {
		t.total_s += t.part_s[i];
		bound[of[i]] += t.part_s[i];
	}
	for (int i = 1; i < OOM_BOUND_COUNT; i++)
		if (bound[i] > bound[t.binds])
			t.binds = (enum oom_bound)i;
	if (t.total_s > 0) {
		t.samples_per_s = (double)p->micro_batch * s.times *
				  (double)oom_plan_data_parallel(p) / t.total_s;
		t.mfu = e->work.model_flops * s.times / t.total_s / s.speed.peak;
	}
	oom_time_interval(c, p, e, gpu, &t);
	return t;
}

const char *oom_bound_str(enum oom_bound bound)
{
#define WORD(id, word) word,
	static const char *const words[] = {OOM_BOUNDS(WORD)};
#undef WORD

	return words[bound];
}

static const struct {
	const char *name, *summary;
	enum oom_bound bound;
} parts[] = {
#define PART(id, name, bound, summary) {name, summary, bound},
	OOM_TIME_PARTS(PART)
#undef PART
};

const char *oom_time_part_str(enum oom_time_part part)
{
	return parts[part].name;
}

const char *oom_time_part_summary(enum oom_time_part part)
{
	return parts[part].summary;
}

enum oom_bound oom_time_part_bound(enum oom_time_part part)
{
	return parts[part].bound;
}
