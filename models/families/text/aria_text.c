/* Aria's text model: Llama's attention, experts behind a linear router, two shared ones beside
 * them. Reference: transformers 5.12, models/aria/modeling_aria.py. */
#include <stdio.h>

#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = a->d_expert = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->n_experts = oom_read_count(r, "moe_num_experts", 1);
	a->top_k = oom_read_count(r, "moe_topk", 1);
	a->d_shared = a->d_expert * oom_read_count_or(r, "moe_num_shared_experts", 0);
	if (!a->n_kv_heads || !a->head_dim || a->top_k > a->n_experts)
		oom_read_fail(r,
			      "num_key_value_heads, head_dim and moe_topk do not describe a model");
	snprintf(a->warning, sizeof(a->warning),
		 "%s: the loop over experts is approximated by one product of all of them.",
		 a->model_type);
	a->approximate = true;
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

static struct oom_val experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val logits)
{
	const struct oom_dim k = {a->top_k, "top_k"}, h = {x.width, x.text},
			     rows = {a->top_k * x.width, "top_k * d_model"};
	const struct oom_dim half[2] = {{a->top_k * a->d_expert, "top_k * d_expert"},
					{a->top_k * a->d_expert, "top_k * d_expert"}};
	struct oom_val index, w, y, fc1, fc2, p[2];

	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	w = oom_op_softmax(t, oom_op_gather(t, "top-k value", logits, oom_keep(index), x.mono, k),
			   false);
	y = oom_op_gather(t, "index_select", oom_keep(x),
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
	y = oom_op_sum(t, oom_op_mul(t, y, w), x.mono, h);
	oom_drop(t, index);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_val h, y;

	(void)i;
	at.layer_names_weights = true;
	at.rope = &rope;
	at.mask = l->mask;
	x = oom_op_add(t, x,
		       oom_attention(t, &at,
				     oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0)));
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	y = oom_op_linear(t, "router", oom_keep(h), (struct oom_dim){a->n_experts, "n_experts"}, 0);
	y = experts(t, a, oom_keep(h), y);
	if (a->d_shared)
		y = oom_op_add(t, y,
			       oom_gated_mlp(t, oom_keep(h), a->act, D(a->d_shared), a->mlp_bias));
	oom_drop(t, h);
	return oom_op_add(t, x, y);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	first = oom_share(t, x);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_aria_text = {
	.name = "aria_text",
	.summary = "Llama's attention, experts behind a linear router, shared experts beside them",
	.source = "transformers 5.12 models/aria/modeling_aria.py",
	.types = OOM_TYPE("aria_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
