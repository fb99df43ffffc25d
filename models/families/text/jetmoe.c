/* JetMoE: mixtures of attention heads' query and output projections, and of feed-forwards.
 * Reference: transformers 5.12, models/jetmoe/modeling_jetmoe.py.  Derived from the code alone: the
 * emulated device cannot run it, because the rows an expert gets are read back by the host. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_kv_heads = oom_read_count(r, "num_key_value_heads", 1);
	a->head_dim = oom_read_count(r, "kv_channels", 1);
	a->n_experts = oom_read_count(r, "num_local_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->n_heads = a->n_kv_heads * a->top_k;
	a->d_expert = a->d_ff;
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "activation_function", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* Rows by expert, top_k a token: gathered, one product an expert, added up where they came from. */
static struct oom_val scattered(struct oom_tape *t, struct oom_val y, struct oom_val rows,
				uint16_t mono, struct oom_dim width)
{
	struct oom_val zeros = oom_new(t, "zeros", mono, width, (enum oom_dtype)y.dt);

	y = oom_op_gather(t, "index_add", y, rows, mono, width);
	oom_drop(t, zeros);
	return y;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     kv = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim q_all = {a->top_k * kv.n, "top_k * n_kv_heads * head_dim"},
			     x_all = {a->top_k * h.n, "top_k * d_model"};
	const struct oom_dim parts[2] = {kv, kv};
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_routes r;
	struct oom_val bias, q, p[2], y;

	t->scope = "experts";
	bias = oom_param(t, "bias", 0, h.n, 0);
	r = oom_parallel_route(t, a->n_experts, a->top_k, x);
	q = oom_op_gather(t, "dispatched", oom_keep(x), oom_keep(r.rows), x.mono, x_all);
	q = oom_parallel_experts(t, "input_linear", q, a->n_experts, kv.n, h.n);
	q = scattered(t, q, oom_keep(r.order), x.mono, q_all);
	oom_op_split(t,
		     oom_op_linear(t, "kv_proj", oom_keep(x),
				   (struct oom_dim){2 * kv.n, "2 * n_kv_heads * head_dim"}, 0),
		     2, parts, p);
	q = oom_op_heads(t, q);
	p[0] = oom_op_heads(t, p[0]);
	p[1] = oom_op_heads(t, p[1]);
	oom_rope_pair(t, &q, &p[0], &rope, a->n_heads, a->n_kv_heads, a->head_dim, a->head_dim);
	for (int i = 0; i < 2; i++)             /* repeat(1, top_k, 1, 1) */
		p[i] = oom_op_expand_copy(t, p[i], x.mono, q_all);
	at.mask = l->mask;
	at.kv_heads = a->n_heads;
	y = oom_attention_core(t, &at, q, p[0], p[1]);
	y = oom_op_gather(t, "by expert", y, r.order, x.mono, q_all);
	y = oom_parallel_experts(t, "output_linear", y, a->n_experts, h.n, kv.n);
	y = oom_op_mul(t, y, r.gates);
	y = scattered(t, y, r.rows, x.mono, h);
	oom_drop(t, r.logits);
	oom_drop(t, x);
	return oom_op_add(t, y, bias);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act};
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0), bias;

	(void)i;
	x = oom_op_add(t, x, attention(t, l, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	t->scope = "mlp";
	bias = oom_param(t, "bias", 0, a->d_model, 0);
	h = oom_op_add(t, oom_moe_parallel_experts(t, &m, h), bias);
	return oom_op_add(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_jetmoe = {
	.name = "jetmoe",
	.summary = "mixtures of attention projections and of feed-forwards",
	.source = "transformers 5.12 models/jetmoe/modeling_jetmoe.py",
	.types = OOM_TYPE("jetmoe"),
	.lora_targets = "kv_proj",
	.parse = parse,
	.step = step,
};
