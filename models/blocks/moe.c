/* Mixture-of-experts feed-forward as transformers runs it: softmax router, top-k, rows sorted by
 * expert, two grouped products over stacked weights, weighted sum.
 * Reference: transformers 5.12, integrations/moe.py grouped_mm_experts_forward,
 * models/mixtral/modeling_mixtral.py. */
#include <string.h>

#include "ops/scan.h"
#include "blocks.h"

static bool is_separate(const struct oom_tape *t, const struct oom_moe *m)
{
	return t->plan->moe_experts == OOM_EXPERTS_SEPARATE && !m->never_separate && !m->latent &&
	       !m->zero_experts;
}

/* Scores [tokens, k], the indices that chose them, and the logits, a local of the block (held). */
static struct oom_val route(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			    struct oom_val *index, struct oom_val *held)
{
	const struct oom_dim e = {m->experts, "n_experts"}, k = {m->top_k, "top_k"};
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	struct oom_val w, logits, p, v;
	const enum oom_dtype hidden = (enum oom_dtype)x.dt;
	struct oom_lora_param lora;
	enum oom_dtype dt;

	t->scope = m->three_results ? "router" : "gate";
	if (m->router_linear || is_separate(t, m)) {
		lora = (struct oom_lora_param){.delta = oom_none(), .sum = oom_none()};
		logits = oom_op_linear(t, m->router_linear ? "router" : "gate", x, e, 0);
	} else if (m->gate_fp32) { /* nn.Linear, wg: adapters find it by its own name */
		t->scope = "wg";
		x = oom_op_cast(t, x, OOM_F32);
		lora = (struct oom_lora_param){.delta = oom_none(), .sum = oom_none()};
		if (oom_lora_takes_all(t)) {
			logits = oom_op_linear(t, "wg", x, e, OOM_NO_QUANT);
		} else {
			w = oom_param(t, "weight", m->experts, x.width, OOM_P_FP32);
			logits = oom_op_matmul_param(t, "router logits", x, w, oom_none(), e);
		}
	} else {
		t->approximate |= m->three_results && oom_lora_takes_all(t);
		w = oom_param(t, "weight", m->experts, x.width, 0);
		lora = oom_lora_delta(t, OOM_LORA_ROUTER, w, 1, m->experts, x.width);
		w = oom_lora_sum(t, &lora);
		logits = oom_op_matmul_param(t, "router logits", x, w, oom_none(), e);
	}
	*held = oom_share(t, logits);
	dt = m->topk_first ? hidden : (enum oom_dtype)logits.dt;
	*index = oom_none();
	if (m->topk_first) {
		*index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
		v = oom_op_gather(t, "top-k value", logits, oom_keep(*index), x.mono, k);
		v = oom_op_softmax(t, v, true);
	} else {
		p = oom_op_softmax(t, logits, true);
		*index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
		v = oom_op_gather(t, "top-k value", p, oom_keep(*index), x.mono, k);
	}
	/* value /= value.sum(): in place, so the dividend is cloned */
	if (m->norm_topk) {
		struct oom_val sum = oom_op_sum_wide(t, oom_keep(v), v.mono, D(1));

		v = oom_op_div_inplace(t, v, sum);
	}
	if (m->scores_in_model_type || m->scores_in_input_type)
		v = oom_op_cast(t, v, m->scores_in_input_type ? in : dt);
	oom_lora_drop(t, &lora);
	return v;
}

/* Router in fp32 whatever the model's type: input and weight are cast, the scores stay in fp32
 * (models/deepseek_v3/modeling_deepseek_v3.py DeepseekV3TopkRouter, route_tokens_to_experts). */
static struct oom_val route_fp32(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
				 struct oom_val *index, struct oom_val *held)
{
	const uint64_t all = m->experts + m->zero_experts;
	const struct oom_dim e = {all, "n_experts"}, k = {m->top_k, "top_k"};
	struct oom_lora_param lora;
	struct oom_val w, p, v;

	t->scope = "gate";
	w = oom_param(t, "weight", all, x.width, 0);
	lora = oom_lora_delta(t, OOM_LORA_ROUTER, w, 1, all, x.width);
	/* PEFT 0.20 stops here: its wrapper does not pass the router's correction bias on */
	t->approximate |= !oom_is_none(lora.delta) && m->sigmoid && !m->route_late;
	w = oom_lora_sum(t, &lora);
	if (m->bias_param)
		t->scope = "mlp";
	if (m->bias_param)
		oom_drop(t, oom_param(t, "expert_bias", 0, m->experts, OOM_P_FROZEN));
	else if (m->sigmoid)
		/* kept in fp32 by name (_keep_in_fp32_modules_strict), but not by MiniMax M2 */
		oom_buffer(t, m->experts, m->route_late ? oom_loaded_dtype(t->plan) : OOM_F32);
	if (!m->route_late && !m->route_plain) {
		x = oom_op_cast(t, x, OOM_F32);
		w = oom_op_cast(t, w, OOM_F32);
	}
	p = oom_op_matmul_param(t, "router logits", x, w, oom_none(), e);
	*held = oom_share(t, p);
	if (m->route_late)
		p = oom_op_cast(t, p, OOM_F32);
	p = m->sigmoid ? oom_op_unary(t, OOM_SIGMOID, p) : oom_op_softmax(t, p, !m->route_plain);
	/* scores with the bias, and with the groups not chosen masked out: gone when the
	 * function returns */
	if (m->sigmoid)
		oom_scratch(t, "scores for choice", x.mono, 2 * all, OOM_F32);
	*index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	v = oom_op_gather(t, "top-k value", p, oom_keep(*index), x.mono, k);
	if (m->norm_topk) {
		struct oom_val sum = oom_op_sum_wide(t, oom_keep(v), v.mono, D(1));

		if (!m->route_late || m->bias_param)
			sum = oom_op_unary(t, OOM_ADD_SCALAR, sum);
		v = m->divided_apart ? oom_op_div(t, v, sum) : oom_op_div_inplace(t, v, sum);
	}
	oom_lora_drop(t, &lora);
	return m->scale_weights ? oom_op_unary(t, OOM_SCALE, v) : v;
}

/* Weight and correction bias kept in fp32, autocast off, the sum clamped before the division
 * (models/ernie4_5_moe/modeling_ernie4_5_moe.py Ernie4_5_MoeTopKRouter). */
static struct oom_val route_ernie(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
				  struct oom_val *index, struct oom_val *held)
{
	const struct oom_dim e = {m->experts, "n_experts"}, k = {m->top_k, "top_k"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const bool amp = t->amp;
	struct oom_lora_param lora;
	struct oom_val w, p, v, sum;

	t->scope = "gate";
	w = oom_param(t, "weight", m->experts, x.width, OOM_P_FP32);
	t->scope = "moe_statics";
	oom_drop(t,
		 oom_param(t, "e_score_correction_bias", 0, m->experts, OOM_P_FP32 | OOM_P_FROZEN));
	lora = oom_lora_delta(t, OOM_LORA_ROUTER, w, 1, m->experts, x.width);
	w = oom_lora_sum(t, &lora);
	t->amp = false;
	p = oom_op_matmul_param(t, "router logits", oom_op_cast(t, x, OOM_F32), w, oom_none(), e);
	*held = oom_share(t, p);
	p = oom_op_softmax(t, p, true);
	oom_scratch(t, "scores for choice", x.mono, m->experts, OOM_F32);
	*index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	v = oom_op_gather(t, "top-k value", p, oom_keep(*index), x.mono, k);
	sum = oom_op_unary(t, OOM_CLAMP_SIDE, oom_op_sum(t, oom_keep(v), v.mono, D(1)));
	v = oom_op_div(t, v, sum);
	t->amp = amp;
	oom_lora_drop(t, &lora);
	return oom_op_cast(t, v, dt);
}

/* Of the clamped gate and up, which are the caller's locals, as glu is one:
 * GptOssExperts._apply_gate, MiniMaxM3VLDenseMLP.forward and DeepseekV4MLP.forward name all three. */
static struct oom_val clamped_glu(struct oom_frame *f, const struct oom_moe *m, struct oom_val gate,
				  struct oom_val up)
{
	struct oom_tape *t = f->t;
	struct oom_val g;

	if (m->glu != OOM_GLU_OAI)
		return oom_op_mul(t, oom_activation(t, m->act, gate), up);
	g = oom_op_unary(t, OOM_SIGMOID, oom_op_unary(t, OOM_SCALE, gate));
	g = oom_name(f, oom_op_mul(t, gate, g));
	return oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, up), g);
}

/* f: the frame of the function whose locals the clamped halves are */
static struct oom_val glu(struct oom_frame *f, const struct oom_moe *m, struct oom_val gate,
			  struct oom_val up)
{
	struct oom_tape *t = f->t;

	if (m->glu == OOM_GLU)
		return oom_op_mul(t, oom_activation(t, m->act, gate), up);
	gate = oom_name(f, oom_op_unary(t, OOM_CLAMP_SIDE, gate));
	up = oom_name(f, oom_op_unary(t, OOM_CLAMP, up));
	return clamped_glu(f, m, gate, up);
}

struct oom_val oom_glu(struct oom_tape *t, const struct oom_moe *m, struct oom_val gate,
		       struct oom_val up)
{
	struct oom_frame f = {.t = t};

	return oom_leave(&f, glu(&f, m, gate, up));
}

/* Here the locals last through the second projection. */
struct oom_val oom_glu_mlp(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			   struct oom_dim ff, bool fused)
{
	const struct oom_dim h = {x.width, x.text}, half[2] = {ff, ff};
	struct oom_frame f = {.t = t};
	struct oom_val y, part[2];

	x = oom_arg(&f, x);
	if (fused) {
		y = oom_op_linear(t, "gate_up_proj", x, (struct oom_dim){2 * ff.n, "2 * d_ff"}, 0);
		oom_op_split(t, oom_name(&f, y), 2, half, part);
		y = glu(&f, m, part[0], part[1]);
	} else {                                /* each clamped as it is made */
		part[0] = oom_op_linear(t, "gate_proj", x, ff, 0);
		part[0] = oom_name(&f, oom_op_unary(t, OOM_CLAMP_SIDE, part[0]));
		part[1] = oom_op_linear(t, "up_proj", x, ff, 0);
		part[1] = oom_name(&f, oom_op_unary(t, OOM_CLAMP, part[1]));
		y = clamped_glu(&f, m, part[0], part[1]);
	}
	return oom_leave(&f, oom_op_linear(t, "down_proj", y, h, 0));
}

/* act(gate) * up of all rows, or act(up). */
static struct oom_val expert_act(struct oom_tape *t, const struct oom_moe *m, struct oom_val y)
{
	const struct oom_dim half[2] = {{m->top_k * m->d_expert, "top_k * d_expert"},
					{m->top_k * m->d_expert, "top_k * d_expert"}};
	struct oom_frame f = {.t = t};
	struct oom_val part[2];

	if (m->ungated)
		return oom_activation(t, m->act, y);
	oom_op_split(t, oom_name(&f, y), 2, half, part);        /* proj_out of the caller */
	return oom_leave(&f, glu(&f, m, part[0], part[1]));
}

/* The weights of all experts, a matrix of rows x in each.  Quantised ones (axolotl's quantize_moe_experts) are made whole when they
 * are asked for, and stay so until the module has run: bitsandbytes nn/parametrize.py Bnb4bitParametrization and the hooks of
 * replace_parameter_4bit, which switch PyTorch's cache of parametrisations on and off. */
static struct oom_val weights_of(struct oom_frame *f, const char *name, uint64_t experts, uint64_t rows, uint64_t in)
{
	struct oom_tape *t = f->t;
	const bool quantised = t->plan->moe_experts == OOM_EXPERTS_QUANTISED && oom_plan_four_bit(t->plan);
	const struct oom_val w = oom_param(t, name, experts * rows, in, OOM_P_EXPERT | (quantised ? OOM_P_QUANTISED : 0));

	oom_param_stacked(t, w, rows);
	return quantised ? oom_name(f, oom_made_whole(t, "experts made whole", experts * rows * in, "n_experts * d_out * d_in")) : w;
}

/* grouped_mm_experts_forward; all its tensors but the last have names. */
struct oom_val oom_moe_experts(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			       struct oom_val scores, struct oom_val index)
{
	const struct oom_dim k = {m->top_k, "top_k"}, d = {m->d_expert, "d_expert"},
			     h = {x.width, x.text}, e = {m->experts, "n_experts"},
			     rows = {m->top_k * x.width, "top_k * d_model"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const uint64_t wide = m->ungated ? m->d_expert : 2 * m->d_expert;
	struct oom_val gate_up, down, perm, row, sel, w, mask, y, inv, offs;
	struct oom_lora_param ld, lg;
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	oom_arg(&f, index);
	t->scope = "experts";
	gate_up = weights_of(&f, m->ungated ? "up_proj" : "gate_up_proj", m->experts + m->zero_experts, wide, x.width);
	down = weights_of(&f, "down_proj", m->experts, x.width, m->d_expert);
	/* the outer wrapper */
	ld = oom_lora_delta(t, OOM_LORA_DOWN, down, m->experts, x.width, m->d_expert);
	lg = oom_lora_delta(t, OOM_LORA_GATE_UP, gate_up, m->experts, wide, x.width);
	oom_name(&f, oom_new(t, "sorted experts", x.mono, k, OOM_I64));
	perm = oom_name(&f, oom_new(t, "permutation", x.mono, k, OOM_I64));
	row = oom_new(t, "row of each choice", x.mono, k, OOM_I64);
	sel = oom_name(&f, oom_op_gather(t, "dispatched", x, row, x.mono, rows));
	w = oom_name(&f, oom_op_gather(t, "sorted scores", scores, perm, x.mono, k));
	oom_name(&f, oom_new(t, "sorted experts as int32", x.mono, k, OOM_I32));
	oom_name(&f, oom_new(t, "tokens per expert", OOM_MONO_ONE, e, OOM_I32));
	offs = oom_name(&f, oom_new(t, "offsets", OOM_MONO_ONE, e, OOM_I32));
	mask = oom_name(&f, oom_new(t, "sentinel mask", x.mono, k, OOM_U8));
	gate_up = oom_lora_sum(t, &lg);
	sel = oom_op_masked_inplace(t, sel, mask);
	y = oom_op_grouped_mm(t, "gate and up", sel, gate_up, offs, x.width,
			      m->ungated ? d : (struct oom_dim){2 * d.n, "2 * d_expert"});
	y = expert_act(t, m, y);
	down = oom_lora_sum(t, &ld);
	y = oom_name(&f, oom_op_grouped_mm(t, "down", y, down, offs, m->d_expert, h));
	y = oom_op_masked_inplace(t, oom_op_mul(t, y, w), mask);
	/* inv_perm[perm] = torch.arange(perm.size(0)) */
	inv = oom_new(t, "inverse permutation", x.mono, k, OOM_I64);
	oom_scratch(t, "arange", x.mono, m->top_k, OOM_I64);
	y = oom_op_gather(t, "combined", y, inv, x.mono, rows);
	/* .view(tokens, k, h) before the sum: its backward copies the expanded gradient */
	y = oom_op_sum(t, oom_op_heads(t, y), x.mono, h);
	y = oom_leave(&f, oom_op_cast(t, y, dt));
	oom_lora_drop(t, &lg);
	oom_lora_drop(t, &ld);
	return y;
}

static struct oom_val shared_mlp(struct oom_tape *t, const struct oom_moe *m, struct oom_val x)
{
	const struct oom_dim f = {m->d_shared, "d_shared"};

	t->selection.shared = true;
	if (m->glu != OOM_GLU)
		x = oom_glu_mlp(t, m, x, f, m->glu == OOM_GLU_OAI);
	else
		x = m->ungated ? oom_plain_mlp(t, x, "up_proj", "down_proj", m->act, f, m->latent_bias) :
				 oom_gated_mlp(t, x, m->act, f, m->latent_bias);
	t->selection.shared = false;
	return x;
}

struct oom_val oom_shared_expert(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = {.d_shared = a->d_shared, .act = a->act, .latent_bias = a->mlp_bias};

	return shared_mlp(t, &m, oom_keep(x));
}

/* The experts, in a space of their own when there is one. */
static struct oom_val routed(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			     struct oom_val scores, struct oom_val index)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned bias = m->latent_bias ? OOM_BIAS : 0;

	if (is_separate(t, m))
		return oom_moe_separate_experts(t, m, x, scores, index);
	if (!m->latent)
		return oom_moe_experts(t, m, x, scores, index);
	x = oom_op_linear(t, "fc1_latent_proj", x, (struct oom_dim){m->latent, "moe_latent_size"},
			  bias);
	return oom_op_linear(t, "fc2_latent_proj", oom_moe_experts(t, m, x, scores, index), h,
			     bias);
}

/* The shared experts' output, perhaps times a gate. */
static struct oom_val gated_shared(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
				   struct oom_val shared)
{
	struct oom_val g;

	if (!m->shared_gate)
		return shared;
	g = oom_op_linear(t, "shared_expert_gate", x, D(1), 0);
	return oom_op_mul(t, oom_op_unary(t, OOM_SIGMOID, g), shared);
}

struct oom_val oom_moe_mlp(struct oom_tape *t, const struct oom_moe *m, struct oom_val x)
{
	const bool first = !m->router_fp32 || m->shared_first;
	struct oom_val index, scores, y, shared = oom_none(), logits = oom_none();
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	if (m->d_shared && first)
		shared = shared_mlp(t, m, x);
	scores = m->router_frozen_bias ? route_ernie(t, m, x, &index, &logits) :
		 m->router_fp32	       ? route_fp32(t, m, x, &index, &logits) :
					 route(t, m, x, &index, &logits);
	oom_router_keeps(t, m->experts, m->top_k, logits);
	oom_name(&f, logits);                   /* the block's locals, with the scores */
	y = routed(t, m, x, oom_name(&f, scores), index);
	if (m->scale_output)
		y = oom_op_unary(t, OOM_SCALE, y);
	if (m->combine_fp32)                    /* routed_output.float() + shared(x).float() */
		y = oom_op_cast(t, oom_name(&f, y), OOM_F32);
	if (m->d_shared && !first)
		shared = shared_mlp(t, m, x);
	if (m->d_shared) {
		shared = gated_shared(t, m, x, shared);
		if (m->combine_fp32)
			shared = oom_op_cast(t, shared, OOM_F32);
		y = oom_op_add(t, y, shared);
	}
	return oom_leave(&f, m->combine_fp32 ? oom_op_cast(t, y, (enum oom_dtype)x.dt) : y);
}
