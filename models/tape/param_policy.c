/* Which element type a parameter is stored as, and whether it is trained. */
#include <string.h>

#include "tape.h"

enum oom_dtype oom_four_bit_dtype(const struct oom_plan *p)
{
	return oom_plan_fp16(p) ? OOM_DT_F16 : OOM_DT_BF16;
}

enum oom_dtype oom_loaded_dtype(const struct oom_plan *p)
{
	if (oom_plan_four_bit(p))
		return oom_four_bit_dtype(p);
	switch (oom_plan_stores(p)) {
	case OOM_BF16: return OOM_DT_BF16;
	case OOM_FP16: return OOM_DT_F16;
	default: return OOM_F32;
	}
}

void oom_param_policy(const struct oom_tape *t, struct oom_param *p)
{
	const struct oom_plan *plan = t->plan;
	const bool adapters = oom_plan_adapted(plan),
		   prepared = oom_plan_kbit_fp32(plan);
	const enum oom_base base = oom_plan_base(plan);

	p->trainable = adapters ? (p->flags & (OOM_P_LORA | OOM_P_SAVED)) != 0 :
				  !(p->flags & (OOM_P_FROZEN | OOM_P_QUANTISED));
	if (p->flags & OOM_P_IDLE)
		p->trainable = false;
	if (p->flags & OOM_P_LORA) {
		/* peft.get_peft_model, autocast_adapter_dtype=True: 16-bit adapters are kept in
		 * fp32; without it they have their base's type, unless that holds integers, as 4-bit
		 * weights do that are not stored in their own type
		 * (tuners_utils.py, _move_adapter_to_device_of_base_layer).  Lightning's plugin makes all
		 * parameters in its own type (bitsandbytes.py, module_init_context) */
		p->dt = base != OOM_BASE_LIGHTNING && base != OOM_BASE_LITGPT &&
					(plan->adapter_fp32 ||
					 (oom_plan_quantised(plan) && plan->quant_storage != OOM_QUANT_STORAGE_OWN)) ?
				OOM_F32 :
				(uint8_t)oom_loaded_dtype(plan);
		return;
	}
	p->dt = (uint8_t)oom_loaded_dtype(plan);
	if (p->flags & OOM_P_FP32)
		p->dt = OOM_F32;
	if (p->flags & OOM_P_QUANTISED)
		p->dt = OOM_U8;
	else if (prepared)
		/* peft.prepare_model_for_kbit_training casts what is not 4-bit; TRL some of it back, by name */
		p->dt = plan->kbit_recast && p->flags & (OOM_P_EMBEDDING | OOM_P_HEAD) ? OOM_DT_BF16 : OOM_F32;
	if (adapters && plan->lora_bias == OOM_LORA_BIAS_ALL && strstr(p->name, "bias"))
		p->trainable = true;    /* any name with the word in it (tuners_utils.py) */
	else if (prepared)
		p->trainable = (p->flags & (OOM_P_LORA | OOM_P_SAVED)) != 0;
}
