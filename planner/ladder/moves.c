/* What can take an engine's or an optimizer's place, and one step of each change. */
#include "moves.h"

#include <stdio.h>

/* ---- engines ---- */

static const struct oom_engine_info *engine_of(const struct oom_plan *p)
{
	return oom_engine_at((size_t)p->engine);
}

int64_t plain_engine(void)
{
	int64_t i = 0;

	while (!oom_engine_at((size_t)i)->plain)
		i++;
	return i;
}

/* From GPUs that work in turn to GPUs that share the batch: as many samples per step as before. */
static bool share_batch(struct oom_plan *p)
{
	const int64_t batch = p->micro_batch * p->grad_accum, per_gpu = batch / p->gpus;

	if (batch % p->gpus)
		return false;
	while (p->micro_batch > per_gpu || per_gpu % p->micro_batch)
		p->micro_batch--;
	p->grad_accum = per_gpu / p->micro_batch;
	return true;
}

bool move_to_shards(struct oom_plan *p, const struct oom_model *m)
{
	const struct oom_engine_info *e = engine_of(p);

	(void)m;
	if (p->gpus < 2 || p->zero_stage >= e->shards_to || (e->in_turn && !share_batch(p)))
		return false;
	p->zero_stage = p->zero_stage < e->shards_from ? e->shards_from : p->zero_stage + 1;
	p->engine = e->shards_as;
	return true;
}

bool shard_for_many(struct oom_plan *p)
{
	int64_t i = 0;

	if (p->gpus < 2 || p->zero_stage || !engine_of(p)->plain)
		return false;
	while (!oom_engine_at((size_t)i)->for_many)
		i++;
	p->engine = i;
	p->zero_stage = engine_of(p)->shards_to;
	return true;
}

bool move_to_host(struct oom_plan *p, const struct oom_model *m)
{
	const struct oom_engine_info *e = engine_of(p);

	(void)m;
	if (!e->offloads || p->offload_params != OOM_OFFLOAD_NONE)
		return false;
	p->engine = e->offloads_as;
	if (!e->offloads_whole && p->offload_optimizer == OOM_OFFLOAD_NONE) {
		p->zero_stage = p->zero_stage < 2 ? 2 : p->zero_stage;
		p->offload_optimizer = OOM_OFFLOAD_CPU;
	} else {
		p->zero_stage = 3;
		p->offload_params = OOM_OFFLOAD_CPU;
	}
	return true;
}

/* ---- optimizers ---- */

bool move_to_small_states(struct oom_plan *p, const struct oom_model *m)
{
	const struct oom_smaller_states o = oom_smaller_states(p->optimizer);
	const int64_t next = o.quantised >= 0 ? o.quantised : o.paged;

	(void)m;
	if (next < 0)
		return false;
	p->optimizer = next;
	return true;
}

/* ---- batch ---- */

bool move_to_smaller_batch(struct oom_plan *p, const struct oom_model *m)
{
	const int64_t per_gpu = p->micro_batch * p->grad_accum;

	(void)m;
	/* the next divisor below keeps the effective batch */
	for (int64_t b = p->micro_batch - 1; b >= 1; b--)
		if (per_gpu % b == 0) {
			p->micro_batch = b;
			p->grad_accum = per_gpu / b;
			return true;
		}
	return false;
}

/* ---- numerics, kernels, science ---- */

bool move_to_16_bit(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->precision != OOM_FP32)
		return false;
	/* bf16 begins with Ampere */
	p->precision = oom_capability(p) < 8 ? OOM_AMP_FP16 : OOM_AMP_BF16;
	return true;
}

/* What transformers 5 does with a config that says bfloat16, and torchtune always: small updates are
 * lost in 8 bits of mantissa.  fp16 has too short a range for it, but under frozen weights.  Of a quantised
 * base the rest is in 16 bit where nobody prepares it (PEFT's prepare_model_for_kbit_training makes fp32 of
 * all that is not quantised, experts in tensors of three dimensions among it). */
bool move_to_16_bit_weights(struct oom_plan *p, const struct oom_model *m)
{
	const bool adapted = oom_plan_adapted(p);

	(void)m;
	if (oom_plan_quantised(p) && p->kbit_prepare) {
		p->kbit_prepare = p->kbit_recast = 0;
		return true;
	}
	if (p->precision != OOM_FP32 && p->precision != OOM_AMP_BF16 &&
	    (p->precision != OOM_AMP_FP16 || !adapted))
		return false;
	if (p->precision == OOM_AMP_FP16 || oom_capability(p) < 8) {
		if (!adapted)
			return false;
		p->precision = OOM_FP16_AMP;
	} else {
		p->precision = adapted ? OOM_BF16_AMP : OOM_BF16;
	}
	return true;
}

bool move_to_checkpoints(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->grad_ckpt == OOM_CKPT_FULL)
		return false;
	p->grad_ckpt = OOM_CKPT_FULL;
	return true;
}

bool move_to_expandable(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->allocator == OOM_ALLOC_EXPANDABLE)
		return false;
	p->allocator = OOM_ALLOC_EXPANDABLE;
	return true;
}

bool move_to_sdpa(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->attn != OOM_ATTN_EAGER)
		return false;
	p->attn = OOM_ATTN_SDPA;
	return true;
}

bool move_to_shorter(struct oom_plan *p, const struct oom_model *m)
{
	const struct oom_model_shape s = oom_model_shape(m);

	if (s.image_size && !p->seq_len) {
		const int64_t side = p->image_size ? p->image_size : (int64_t)s.image_size;

		if (side < 32)
			return false;
		p->image_size = side / 2;
		return true;
	}
	if (p->seq_len < 256)
		return false;
	p->seq_len /= 2;
	p->tgt_len /= 2;
	return true;
}

/* LoRA first; then 4-bit weights below it, which compute in 16 bit. */
bool move_to_adapters(struct oom_plan *p, const struct oom_model *m)
{
	if (!oom_plan_adapted(p)) {
		oom_plan_adapt(p);
		if (!*p->lora_targets)
			snprintf(p->lora_targets, sizeof(p->lora_targets), "%s",
				 oom_plan_lora_targets(p, m));
		return true;
	}
	if (oom_plan_quantised(p))
		return false;
	p->qlora = p->kbit_prepare = 1;
	if (p->precision == OOM_FP32 || p->precision == OOM_AMP_BF16)
		p->precision = oom_capability(p) < 8 ? OOM_FP16_AMP : OOM_BF16_AMP;
	return true;
}
