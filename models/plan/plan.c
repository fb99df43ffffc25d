/* A plan as a whole: its defaults, and what follows from several of its knobs. */
#include "oomplan/plan.h"

#include <string.h>

#include "oomplan/engine.h"
#include "oomplan/option.h"

struct oom_plan oom_plan_default(void)
{
	const struct oom_option *k;
	struct oom_plan p;

	memset(&p, 0, sizeof(p));
	for (size_t i = 0; (k = oom_knob_at(i)) != NULL; i++) {
		if (k->kind == OOM_OPTION_REAL)
			*(double *)(void *)((char *)&p + k->offset) = k->def;
		else if (k->kind != OOM_OPTION_NAMES)
			*oom_plan_field(&p, k) = (int64_t)k->def;
	}
	return p;
}

enum oom_base oom_plan_base(const struct oom_plan *p)
{
	return p->base_weights == OOM_BASE_PLAIN && p->qlora ? OOM_BASE_NF4 :
							       (enum oom_base)p->base_weights;
}

bool oom_plan_quantised(const struct oom_plan *p)
{
	return oom_plan_base(p) != OOM_BASE_PLAIN;
}

bool oom_plan_four_bit(const struct oom_plan *p)
{
	const enum oom_base b = oom_plan_base(p);

	return b == OOM_BASE_NF4 || b == OOM_BASE_FP4 || b == OOM_BASE_LIGHTNING || b == OOM_BASE_LITGPT;
}

/* peft/utils/other.py: not over GPTQ's and HQQ's */
bool oom_plan_kbit_fp32(const struct oom_plan *p)
{
	const enum oom_base b = oom_plan_base(p);

	return p->kbit_prepare && b != OOM_BASE_PLAIN && b != OOM_BASE_GPTQ && b != OOM_BASE_GPTQ8 && b != OOM_BASE_HQQ;
}

enum oom_adapter_kind oom_plan_adapter(const struct oom_plan *p)
{
	return p->peft_type == OOM_ADAPTER_LORA && p->use_dora ? OOM_ADAPTER_DORA :
								 (enum oom_adapter_kind)p->peft_type;
}

/* Kinds that have no rank, block or number of frequencies to be given. */
#define SIZELESS \
	(1u << OOM_ADAPTER_IA3 | 1u << OOM_ADAPTER_PROMPT | 1u << OOM_ADAPTER_P_TUNING | \
	 1u << OOM_ADAPTER_PREFIX | 1u << OOM_ADAPTER_ADAPTION | \
	 1u << OOM_ADAPTER_LN_TUNING)

bool oom_plan_prompted(const struct oom_plan *p)
{
	return p->peft_type == OOM_ADAPTER_PROMPT || p->peft_type == OOM_ADAPTER_P_TUNING;
}

bool oom_plan_attended(const struct oom_plan *p)
{
	return p->peft_type == OOM_ADAPTER_PREFIX || p->peft_type == OOM_ADAPTER_ADAPTION;
}

bool oom_plan_norms(const struct oom_plan *p)
{
	return p->peft_type == OOM_ADAPTER_LN_TUNING;
}

bool oom_plan_adapted(const struct oom_plan *p)
{
	return p->lora_r > 0 || (SIZELESS >> p->peft_type & 1);
}

/* 16 is what transformers' and PEFT's examples begin with. */
void oom_plan_adapt(struct oom_plan *p)
{
	if (!oom_plan_adapted(p))
		p->lora_r = 16;
}

void oom_plan_unadapt(struct oom_plan *p)
{
	p->lora_r = 0;
	p->peft_type = OOM_ADAPTER_LORA;
	p->use_dora = 0;
	p->virtual_tokens = 0;
}

void oom_plan_unquantise(struct oom_plan *p)
{
	p->qlora = 0;
	p->base_weights = OOM_BASE_PLAIN;
	p->kbit_prepare = 0;
}

double oom_capability(const struct oom_plan *p)
{
	return p->compute_capability > 0 ? p->compute_capability : 8;
}

/* Where nobody says which of the two ways is taken, an engine that only older libraries start without being told
 * to is taken to run with their default, which over a frozen base needs more (passes/fsdp_held.c). */
bool oom_ckpt_reenters(const struct oom_plan *p)
{
	if (p->grad_ckpt != OOM_CKPT_FULL)
		return false;
	if (p->use_reentrant == OOM_REENTRANT_AUTO)
		return oom_engine_at((size_t)p->engine)->of_old_libraries && oom_plan_adapted(p);
	return p->use_reentrant != OOM_REENTRANT_FALSE;
}

bool oom_ckpt_around_units(const struct oom_plan *p)
{
	return oom_ckpt_reenters(p) && p->use_reentrant != OOM_REENTRANT_WRAPPED;
}

/* accelerate's stays around FSDP1's (accelerator.py prepare_model); flash-attn's loss is llm-foundry's, whose
 * low_precision_layernorm switches it off where it would matter (composer/algorithms/low_precision_layernorm); that of
 * GRPO's log-probabilities is verl's, which has it on (verl/workers/actor/dp_actor.py). */
bool oom_plan_autocasts(const struct oom_plan *p)
{
	if (p->torch_autocast != OOM_AUTOCAST_AUTO)
		return p->torch_autocast == OOM_AUTOCAST_TRUE;
	return oom_engine_at((size_t)p->engine)->keeps_autocast &&
	       !(p->fused_ce == OOM_LOSS_FLASH && p->objective == OOM_METHOD_SFT);
}

int64_t oom_plan_data_parallel(const struct oom_plan *p)
{
	const int64_t model = oom_engine_at((size_t)p->engine)->in_turn ? p->gpus : p->tp * p->pp * p->cp;

	return p->gpus > model ? p->gpus / model : 1;
}

bool oom_plan_one_process(const struct oom_plan *p)
{
	return p->data_parallel || oom_engine_at((size_t)p->engine)->in_turn;
}

int64_t oom_plan_gathered_replicas(const struct oom_plan *p)
{
	return p->data_parallel ? p->gpus : 1;
}

void oom_plan_settle(struct oom_plan *p)
{
	if (p->gpus_per_node && p->gpus == 1)
		p->gpus = p->nodes * p->gpus_per_node;
	else if (p->gpus_per_node && p->nodes == 1 && p->gpus % p->gpus_per_node == 0)
		p->nodes = p->gpus / p->gpus_per_node;
	if (!p->zero_said && !p->zero_stage && p->gpus > 1)
		p->zero_stage = oom_engine_at((size_t)p->engine)->shards_unasked;
}

bool oom_plan_fp16(const struct oom_plan *p)
{
	return p->precision == OOM_FP16 || p->precision == OOM_AMP_FP16 || p->precision == OOM_FP16_AMP;
}

enum oom_precision oom_plan_stores(const struct oom_plan *p)
{
	switch (p->precision) {
	case OOM_BF16: case OOM_BF16_AMP: return OOM_BF16;
	case OOM_FP16: case OOM_FP16_AMP: return OOM_FP16;
	default: return OOM_FP32;
	}
}
