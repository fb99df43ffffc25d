/* Aria's text model: Llama's attention, experts behind a linear router, two shared ones beside
 * them. Reference: transformers 5.12, models/aria/modeling_aria.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

static const struct oom_key_row aria_text_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), LIKE(d_expert, NULL, 1, d_ff),
	OOM_GROUPED_KEYS, OOM_USUAL_KEYS, ACT(act, "hidden_act", "silu"), OOM_BIAS_KEYS(false),
	FLAG(mlp_bias, "mlp_bias", false), MUST(n_experts, "moe_num_experts"),
	MUST(top_k, "moe_topk"), OOM_KEYS_END};

static void aria_text_parse(struct oom_arch *a)
{
	a->d_shared = a->d_expert * oom_read_count_or(&a->rd, "moe_num_shared_experts", 0);
	if (!a->n_kv_heads || !a->head_dim || a->top_k > a->n_experts)
		oom_read_fail(&a->rd,
			      "num_key_value_heads, head_dim and moe_topk do not describe a model");
	oom_warn(a, "%s: the loop over experts is approximated by one product of all of them.",
		 a->model_type);
	a->approximate = true;
}

/* x is the caller's. */
static struct oom_val aria_text_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
					struct oom_val logits)
{
	const struct oom_dim k = {a->top_k, "top_k"}, h = {x.width, x.text},
			     rows = {a->top_k * x.width, "top_k * d_model"};
	const struct oom_dim half[2] = {{a->top_k * a->d_expert, "top_k * d_expert"},
					{a->top_k * a->d_expert, "top_k * d_expert"}};
	struct oom_frame f = {.t = t};
	struct oom_val index, w, y, fc1, fc2, p[2];

	index = oom_name(&f, oom_new(t, "top-k index", x.mono, k, OOM_I64));
	w = oom_op_gather(t, "top-k value", logits, index, x.mono, k);
	w = oom_op_softmax(t, w, false);
	y = oom_op_gather(t, "index_select", x,
			  oom_new(t, "sorted indices", x.mono, k, OOM_I64), x.mono, rows);
	t->scope = "experts";
	fc1 = oom_param(t, "fc1.weight", a->n_experts * a->d_model, 2 * a->d_expert, OOM_P_EXPERT);
	oom_param_stacked(t, fc1, a->d_model);
	fc2 = oom_param(t, "fc2.weight", a->n_experts * a->d_expert, a->d_model, OOM_P_EXPERT);
	oom_param_stacked(t, fc2, a->d_expert);
	y = oom_op_grouped_mm(t, "fc1", y, fc1, oom_none(), x.width,
			      (struct oom_dim){2 * a->d_expert, "2 * d_expert"});
	oom_op_split(t, y, 2, half, p);
	y = oom_op_mul(t, oom_op_unary(t, OOM_SILU, p[0]), p[1]);
	y = oom_op_grouped_mm(t, "fc2", y, fc2, oom_none(), a->d_expert, h);
	y = oom_op_copy(t, "index_copy_", y);
	return oom_leave(&f, oom_op_sum(t, oom_op_mul(t, y, w), x.mono, h));
}

static struct oom_val aria_text_feed_forward(struct oom_frame *layer,
					     const struct oom_decoder_layer *l, uint8_t kind,
					     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)kind;
	x = oom_arg(&f, x);
	y = oom_op_linear(t, "router", x, (struct oom_dim){a->n_experts, "n_experts"}, 0);
	y = aria_text_experts(t, a, x, y);
	if (a->d_shared)
		y = oom_op_add(t, y, oom_shared_expert(t, a, x));
	return oom_leave(&f, y);
}

const struct oom_family oom_family_aria_text = {
	.name = "aria_text",
	.summary = "Llama's attention, experts behind a linear router, shared experts beside them",
	.source = "transformers 5.12 models/aria/modeling_aria.py",
	.types = OOM_TYPE("aria_text"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = aria_text_keys,
	.parse = aria_text_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .rope = true,
			       .feed_forward = aria_text_feed_forward),
};
