/* LoRA on bare parameters: stacked expert weights and the routers beside them.
 *
 * transformers 5 stores the experts of a layer as one tensor and its router as a module of its own,
 * so PEFT no longer finds nn.Linear there.  For the types below it translates the names of the old
 * modules into parameters (peft 0.20, utils/transformers_weight_conversion.py,
 * _MOE_TARGET_MODULE_MAPPING, with the families of transformers 5.12, conversion_mapping.py,
 * _MODEL_TO_CONVERSION_PATTERN) and wraps them (tuners/lora/layer.py, ParamWrapper): the whole of B
 * A is formed in fp32, scaled, cast and added to the weight in every call, and that sum is what
 * autograd saves.  Gate and up are one tensor and get twice the rank.  All other types, among them most
 * compositions around such a text model (Qwen3-VL-MoE, InternVL): PEFT adapts their nn.Linear modules only,
 * and the experts not at all.
 *
 *   E experts, o output and i input width of one, r rank (of the adapter, or twice that) */
#include <string.h>

#include "blocks.h"

struct oom_lora_param oom_lora_delta(struct oom_tape *t, enum oom_lora_part part, struct oom_val w,
				     uint64_t experts, uint64_t out, uint64_t in)
{
	static const char *const words[2][3] = {{"gate", "w1", "w2"},
						{"gate", "gate_proj", "down_proj"}};
	const enum oom_lora_words names = oom_lora_words(t);
	const char *word = words[names != OOM_LORA_MIXTRAL][part];
	struct oom_lora_param l = {.w = w, .delta = oom_none(), .sum = oom_none()};
	uint64_t r = oom_lora_stacked_rank(t);
	struct oom_val a, b, z;

	if (!r || !oom_lora_translated(t, word))
		return l;
	if (!oom_lora_takes_all(t) && !oom_lora_names(t, word))
		return l;
	if (part == OOM_LORA_GATE_UP)
		r *= 2;
	t->approximate |= t->plan->lora_dropout > 0;    /* ParamWrapper refuses it */
	if (part == OOM_LORA_ROUTER && !strcmp(t->arch->model_type, "deepseek_v2")) {
		/* the model reads gate.weight itself, past the wrapper: adapters that never get
		 * a gradient */
		oom_drop(t, oom_adapter_weight(t, "lora_A.weight", r, in, OOM_P_LORA | OOM_P_UNUSED));
		oom_drop(t, oom_adapter_weight(t, "lora_B.weight", out, r, OOM_P_LORA | OOM_P_UNUSED));
		return l;
	}
	a = oom_adapter_weight(t, "lora_A.weight", r * experts, in, OOM_P_LORA | OOM_P_LINEAR);
	b = oom_adapter_weight(t, "lora_B.weight", out, r * experts, OOM_P_LORA | OOM_P_LINEAR);
	oom_tape_flops(t, OOM_MONO_ONE,
		       2.0 * (double)experts * (double)out * (double)in * (double)r,
		       (enum oom_dtype)w.dt, true);
	if (experts > 1 && t->amp) {            /* views of the weights: not in autocast's cache */
		b = oom_op_cast(t, b, (enum oom_dtype)t->amp_dt);
		a = oom_op_cast(t, a, (enum oom_dtype)t->amp_dt);
	}
	l.delta = oom_op_bmm(t, "B A", b, a, OOM_MONO_ONE,
			     (struct oom_dim){experts * out * in, "n_experts * d_out * d_in"}, 0);
	l.delta = oom_op_unary(t, OOM_SCALE, l.delta);
	l.delta = oom_op_cast(t, l.delta, (enum oom_dtype)w.dt);
	/* register_parametrization computes the sum once to check its shape */
	z = oom_scratch_hold(t, "check of the parametrization", OOM_MONO_ONE, experts * out * in,
			     (enum oom_dtype)w.dt);
	oom_drop(t, z);
	return l;
}

struct oom_val oom_lora_sum(struct oom_tape *t, struct oom_lora_param *l)
{
	if (oom_is_none(l->delta))
		return l->w;
	l->sum = oom_op_add(t, oom_keep(l->w), oom_keep(l->delta));
	return oom_share(t, l->sum);
}

void oom_lora_drop(struct oom_tape *t, struct oom_lora_param *l)
{
	if (oom_is_none(l->delta))
		return;
	oom_drop(t, l->sum);
	oom_drop(t, l->delta);
}
