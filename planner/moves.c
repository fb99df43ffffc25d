/* What can take an engine's or an optimizer's place, and one step of each change. */
#include "moves.h"

#include <stdio.h>
#include <string.h>

/* ---- engines ---- */

static const struct engine_moves engines[] = {
	[OOM_ENGINE_HF] = {.shards_as = OOM_ENGINE_DEEPSPEED,
			   .shards_from = 1,
			   .shards_to = 3,
			   .offloads = true,
			   .offloads_as = OOM_ENGINE_DEEPSPEED,
			   .tries = {OOM_ENGINE_DEEPSPEED, OOM_ENGINE_FSDP2},
			   .n_tries = 2,
			   .bucket_view = true},
	[OOM_ENGINE_DEEPSPEED] = {.shards_as = OOM_ENGINE_DEEPSPEED,
				  .shards_from = 1,
				  .shards_to = 3,
				  .offloads = true,
				  .offloads_as = OOM_ENGINE_DEEPSPEED,
				  .tries = {OOM_ENGINE_DEEPSPEED},
				  .n_tries = 1,
				  .replicates = true},
	/* FSDP begins at SHARD_GRAD_OP and offloads everything or nothing */
	[OOM_ENGINE_FSDP2] = {.shards_as = OOM_ENGINE_FSDP2,
			      .shards_from = 2,
			      .shards_to = 3,
			      .offloads = true,
			      .offloads_whole = true,
			      .offloads_as = OOM_ENGINE_FSDP2,
			      .tries = {OOM_ENGINE_FSDP2},
			      .n_tries = 1,
			      .hybrid = true},
	[OOM_ENGINE_FSDP1] = {.shards_as = OOM_ENGINE_FSDP1,
			      .shards_from = 2,
			      .shards_to = 3,
			      .offloads = true,
			      .offloads_whole = true,
			      .offloads_as = OOM_ENGINE_FSDP1,
			      .tries = {OOM_ENGINE_FSDP1},
			      .n_tries = 1,
			      .hybrid = true},
	[OOM_ENGINE_TORCHTUNE] = {.shards_as = OOM_ENGINE_TORCHTUNE,
				  .shards_from = 2,
				  .shards_to = 3,
				  .offloads = true,
				  .offloads_whole = true,
				  .offloads_as = OOM_ENGINE_TORCHTUNE,
				  .tries = {OOM_ENGINE_TORCHTUNE},
				  .n_tries = 1,
				  .hybrid = true},
	/* its distributed optimizer */
	[OOM_ENGINE_MEGATRON] = {.shards_as = OOM_ENGINE_MEGATRON,
				 .shards_from = 1,
				 .shards_to = 1,
				 .degrees = true},
	[OOM_ENGINE_DEVICE_MAP] = {.shards_as = OOM_ENGINE_DEEPSPEED,
				   .shards_from = 3,
				   .shards_to = 3,
				   .tries = {OOM_ENGINE_DEEPSPEED, OOM_ENGINE_FSDP2},
				   .n_tries = 2,
				   .in_turn = true},
};

const struct engine_moves *engine_moves(int64_t engine)
{
	return &engines[engine];
}

/* From GPUs that work in turn to GPUs that share the batch: as many samples a step as before. */
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
	const struct engine_moves *e = engine_moves(p->engine);

	(void)m;
	if (p->gpus < 2 || p->zero_stage >= e->shards_to || (e->in_turn && !share_batch(p)))
		return false;
	p->zero_stage = p->zero_stage < e->shards_from ? e->shards_from : p->zero_stage + 1;
	p->engine = e->shards_as;
	return true;
}

bool shard_for_many(struct oom_plan *p)
{
	if (p->gpus < 2 || p->zero_stage || p->engine != PLAIN_ENGINE)
		return false;
	p->engine = OOM_ENGINE_FSDP2;
	p->zero_stage = engine_moves(p->engine)->shards_to;
	return true;
}

bool move_to_host(struct oom_plan *p, const struct oom_model *m)
{
	const struct engine_moves *e = engine_moves(p->engine);

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

static int64_t optimizer_named(const char *name)
{
	const struct oom_option *k = oom_knob_find("optimizer");

	for (size_t i = 0; k->choice(i); i++)
		if (!strcmp(k->choice(i)->name, name))
			return (int64_t)i;
	return -1;
}

struct optimizer_moves optimizer_moves(int64_t optimizer)
{
	const char *now = oom_knob_find("optimizer")->choice((size_t)optimizer)->name;

	if (strncmp(now, "adamw", 5))
		return (struct optimizer_moves){-1, -1};
	return (struct optimizer_moves){strstr(now, "8bit") ? -1 : optimizer_named("adamw-8bit"),
					optimizer_named("paged-adamw-8bit")};
}

bool move_to_small_states(struct oom_plan *p, const struct oom_model *m)
{
	const struct optimizer_moves o = optimizer_moves(p->optimizer);
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
	if (!p->lora_r) {
		p->lora_r = 16;
		if (!*p->lora_targets)
			snprintf(p->lora_targets, sizeof(p->lora_targets), "%s",
				 oom_model_lora_targets(m));
		return true;
	}
	if (p->qlora)
		return false;
	p->qlora = p->kbit_prepare = 1;
	if (p->precision == OOM_FP32 || p->precision == OOM_AMP_BF16)
		p->precision = oom_capability(p) < 8 ? OOM_AMP_FP16 : OOM_BF16_AMP;
	return true;
}
