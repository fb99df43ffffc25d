/* LoRA on bare parameters: stacked expert weights and the routers beside them.
 *
 * transformers 5 stores the experts of a layer as one tensor and its router as a module of its own,
 * so PEFT no longer finds nn.Linear there.  For the types below it translates the names of the old
 * modules into parameters (peft 0.20, utils/transformers_weight_conversion.py,
 * _MOE_TARGET_MODULE_MAPPING, with the families of transformers 5.12, conversion_mapping.py,
 * _MODEL_TO_CONVERSION_PATTERN) and wraps them (tuners/lora/layer.py, ParamWrapper): the whole of B
 * A is formed in fp32, scaled, cast and added to the weight in every call, and that sum is what
 * autograd saves.  Gate and up are one tensor and get twice the rank.  All other types: PEFT adapts
 * their nn.Linear modules only, and the experts not at all.
 *
 *   E experts, o output and i input width of one, r rank (of the adapter, or twice that) */
#include <string.h>

#include "blocks.h"

static const char *const mixtral_like[] = {"mixtral", "minimax", "minimax_m2", NULL};
static const char *const qwen2_moe_like[] = {
	"afmoe",	"deepseek_v2", "deepseek_v3",	"deepseek_v32", "dots1",
	"ernie4_5_moe", "glm4_moe",    "glm4_moe_lite", "glm_moe_dsa",	"longcat_flash",
	"solar_open",	"mellum",      "qwen3_moe",	"qwen3_next",	"hunyuan_v1_moe",
	"flex_olmo",	"olmoe",       "exaone_moe",	"cohere2_moe",	NULL};

static bool one_of(const char *const *list, const char *word)
{
	for (; *list; list++)
		if (!strcmp(*list, word))
			return true;
	return false;
}

static bool targeted(const struct oom_tape *t, const char *word)
{
	const size_t n = strlen(word);

	for (const char *p = t->plan->lora_targets; p;
	     p = strchr(p, '+') ? strchr(p, '+') + 1 : NULL)
		if (!strncmp(p, word, n) && (p[n] == '+' || !p[n]))
			return true;
	return false;
}

/* Whether `word`, a module's old name, is translated for this type: nn.Linear layers of that name
 * are then left alone (shared experts and dense layers too). */
bool oom_lora_translated(const struct oom_tape *t, const char *word)
{
	const char *const *words;
	static const char *const mixtral[] = {"gate", "w1", "w2", "w3", NULL};
	static const char *const qwen2_moe[] = {"gate", "gate_proj", "up_proj", "down_proj", NULL};

	if (one_of(mixtral_like, t->arch->model_type))
		words = mixtral;
	else if (one_of(qwen2_moe_like, t->arch->model_type))
		words = qwen2_moe;
	else
		return false;
	return one_of(words, word);
}

struct oom_lora_param oom_lora_delta(struct oom_tape *t, enum oom_lora_part part, struct oom_val w,
				     uint64_t experts, uint64_t out, uint64_t in)
{
	static const char *const words[2][3] = {{"gate", "w1", "w2"},
						{"gate", "gate_proj", "down_proj"}};
	const bool old = one_of(mixtral_like, t->arch->model_type);
	const char *word = words[!old][part];
	struct oom_lora_param l = {.w = w, .delta = oom_none(), .sum = oom_none()};
	uint64_t r = t->plan->lora_r > 0 ? (uint64_t)t->plan->lora_r : 0;
	struct oom_val a, b, z;

	if (!r || !oom_lora_translated(t, word))
		return l;
	if (strcmp(t->plan->lora_targets, "all-linear") && !targeted(t, word))
		return l;
	if (part == OOM_LORA_GATE_UP)
		r *= 2;
	t->approximate |= t->plan->lora_dropout > 0;    /* ParamWrapper refuses it */
	if (part == OOM_LORA_ROUTER && !strcmp(t->arch->model_type, "deepseek_v2")) {
		/* the model reads gate.weight itself, past the wrapper: adapters that never get
		 * a gradient */
		oom_drop(t, oom_param(t, "lora_A.weight", r, in, OOM_P_LORA | OOM_P_UNUSED));
		oom_drop(t, oom_param(t, "lora_B.weight", out, r, OOM_P_LORA | OOM_P_UNUSED));
		return l;
	}
	a = oom_param(t, "lora_A.weight", r * experts, in, OOM_P_LORA | OOM_P_LINEAR);
	b = oom_param(t, "lora_B.weight", out, r * experts, OOM_P_LORA | OOM_P_LINEAR);
	t->flops[OOM_MONO_ONE] += 2.0 * (double)experts * (double)out * (double)in * (double)r *
				  t->mult;
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
