/* JetMoE: mixtures of attention heads' query and output projections, and of feed-forwards.
 * Reference: transformers 5.12, models/jetmoe/modeling_jetmoe.py.  Derived from the code alone: the
 * emulated device cannot run it, because the rows an expert gets are read back by the host. */
#include "blocks/decoder.h"
#include "config/keys.h"

static const struct oom_key_row jetmoe_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(d_ff, "intermediate_size"),
	LIKE(d_expert, NULL, 1, d_ff), MUST(n_layers, "num_hidden_layers"),
	MUST(n_kv_heads, "num_key_value_heads"), MUST(head_dim, "kv_channels"),
	MUST(n_experts, "num_local_experts"), MUST(top_k, "num_experts_per_tok"),
	OR(max_positions, "max_position_embeddings", 0), ACT(act, "activation_function", "silu"),
	FLAG(tie, "tie_word_embeddings", true), REAL(attn_dropout, "attention_dropout", 0),
	OOM_KEYS_END};

static void jetmoe_parse(struct oom_arch *a)
{
	a->n_heads = a->n_kv_heads * a->top_k;
	oom_check_experts(a);
}

/* Rows by expert, top_k of them per token: gathered, one product per expert, added up where they
 * came from. */
static struct oom_val scattered(struct oom_tape *t, struct oom_val y, struct oom_val rows,
				uint16_t mono, struct oom_dim width)
{
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new(t, "zeros", mono, width, y.dt));
	return oom_leave(&f, oom_op_gather(t, "index_add", y, rows, mono, width));
}

static struct oom_val attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     kv = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim q_all = {a->top_k * kv.n, "top_k * n_kv_heads * head_dim"},
			     x_all = {a->top_k * h.n, "top_k * d_model"};
	const struct oom_dim parts[2] = {kv, kv};
	struct oom_frame f = {.t = t};
	struct oom_attn at = oom_layer_attn(t, l, false);
	struct oom_routes r;
	struct oom_val bias, q, p[2], y;

	x = oom_arg(&f, x);
	t->scope = "experts";
	bias = oom_param(t, "bias", 0, h.n, 0);
	r = oom_parallel_route(t, a->n_experts, a->top_k, x);
	oom_name(&f, r.logits);
	r.rows = oom_name(&f, r.rows);
	r.order = oom_name(&f, r.order);
	q = oom_op_gather(t, "dispatched", x, r.rows, x.mono, x_all);
	q = oom_parallel_experts(t, "input_linear", q, a->n_experts, kv.n, h.n);
	q = scattered(t, q, r.order, x.mono, q_all);
	y = oom_op_linear(t, "kv_proj", x,
			  (struct oom_dim){2 * kv.n, "2 * n_kv_heads * head_dim"}, 0);
	oom_op_split(t, y, 2, parts, p);
	q = oom_op_heads(t, q);
	p[0] = oom_op_heads(t, p[0]);
	p[1] = oom_op_heads(t, p[1]);
	oom_rope_pair(t, &q, &p[0], &l->rope, a->n_heads, a->n_kv_heads, a->head_dim, a->head_dim);
	for (int i = 0; i < 2; i++)             /* repeat(1, top_k, 1, 1) */
		p[i] = oom_op_expand_copy(t, p[i], x.mono, q_all);
	at.kv_heads = a->n_heads;
	y = oom_attention_core(t, &at, q, p[0], p[1]);
	y = oom_op_gather(t, "by expert", y, oom_take(&f, r.order), x.mono, q_all);
	y = oom_parallel_experts(t, "output_linear", y, a->n_experts, h.n, kv.n);
	y = oom_op_mul(t, y, r.gates);
	y = scattered(t, y, oom_take(&f, r.rows), x.mono, h);
	return oom_op_add(t, oom_leave(&f, y), bias);
}

static struct oom_val jetmoe_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				       uint8_t kind, struct oom_val x)
{
	(void)kind;
	layer->t->selection.within = "self_attention";
	x = attention(layer->t, l, x);
	layer->t->selection.within = NULL;
	return x;
}

static struct oom_val jetmoe_feed_forward(struct oom_frame *layer, const struct oom_decoder_layer *l,
					  uint8_t kind, struct oom_val x)
{
	const struct oom_moe m = {.experts = l->a->n_experts, .top_k = l->a->top_k,
				  .d_expert = l->a->d_expert, .act = l->a->act};
	struct oom_tape *t = layer->t;
	struct oom_val bias;

	(void)kind;
	t->scope = "mlp";
	bias = oom_param(t, "bias", 0, l->a->d_model, 0);
	t->selection.within = "mlp";
	x = oom_op_add(t, oom_moe_parallel_experts(t, &m, x), bias);
	t->selection.within = NULL;
	return x;
}

const struct oom_family oom_family_jetmoe = {
	.name = "jetmoe",
	.summary = "mixtures of attention projections and of feed-forwards",
	.source = "transformers 5.12 models/jetmoe/modeling_jetmoe.py",
	.types = OOM_TYPE("jetmoe"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "kv_proj",
	.keys = jetmoe_keys,
	.parse = jetmoe_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .rope = true, .mixer = jetmoe_attention,
			       .feed_forward = jetmoe_feed_forward),
};
