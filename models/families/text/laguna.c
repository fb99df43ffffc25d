/* Laguna: Llama-like, with heads counted by layer, a gate for every head, sliding layers,
 * sigmoid-routed experts. Reference: transformers 5.12, models/laguna/modeling_laguna.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

/* extra[]: COUNTS and on are numbers of heads in use */
enum { ROT_FULL, ROT_SLIDING, SOFTCAP, N_COUNTS, COUNTS };
/* kinds: and four times the index of the number of heads */
enum { SLIDES = 1, DENSE = 2, MOST_COUNTS = 16 };

/* The index of a number of heads among those in use. */
static uint64_t count_of(struct oom_arch *a, uint64_t heads)
{
	for (uint64_t i = 0; i < a->extra[N_COUNTS]; i++)
		if (a->extra[COUNTS + i] == heads)
			return i;
	if (a->extra[N_COUNTS] == MOST_COUNTS) {
		oom_read_fail(&a->rd,
			      "num_attention_heads_per_layer: more than %d different numbers",
			      MOST_COUNTS);
		return 0;
	}
	a->extra[COUNTS + a->extra[N_COUNTS]] = heads;
	return a->extra[N_COUNTS]++;
}

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i),
			   *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);
		const bool slides = type && !strcmp(type, "sliding_attention"),
			   dense = mlp ? !strcmp(mlp, "dense") : i == 0;
		const double heads = oom_read_item_real(r, "num_attention_heads_per_layer",
							(uint32_t)i, (double)a->n_heads);

		if (!(heads >= 1 && heads <= 65536) || (uint64_t)heads % a->n_kv_heads) {
			oom_read_fail(r,
				      "num_attention_heads_per_layer: %g is no multiple of "
				      "num_key_value_heads (%llu)",
				      heads, (unsigned long long)a->n_kv_heads);
			return;
		}
		any |= slides;
		a->kind[i] = (uint8_t)((slides ? SLIDES : 0) | (dense ? DENSE : 0) |
				       count_of(a, (uint64_t)heads) << 2);
	}
	if (!any)
		a->window = 0;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->n_experts = oom_read_count(r, "num_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
	a->d_shared = oom_read_count(r, "shared_expert_intermediate_size", 1);
	a->extra[SOFTCAP] = oom_read_real(r, "moe_router_logit_softcapping", 0) > 0;
	a->extra[ROT_FULL] = (uint64_t)((double)a->head_dim *
					oom_read_real(r,
						      "rope_parameters.full_attention.partial_"
						      "rotary_factor",
						      0.5));
	a->extra[ROT_SLIDING] = (uint64_t)((double)a->head_dim *
					   oom_read_real(r,
							 "rope_parameters.sliding_attention."
							 "partial_rotary_factor",
							 1));
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	for (int i = ROT_FULL; i <= ROT_SLIDING; i++)
		if (!a->extra[i] || a->extra[i] > a->head_dim)
			oom_read_fail(r, "partial_rotary_factor must be above 0 and at most 1");
	if (!r->status)
		parse_kinds(a);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];        /* full, sliding */
	struct oom_val mask[2];
};

/* Sigmoid scores of a 16-bit product in fp32; a frozen bias of the choice alone; normalised, in
 * the model's type. */
static struct oom_val mixture(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act};
	const struct oom_dim e = {m.experts, "n_experts"}, k = {m.top_k, "top_k"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val shared = oom_gated_mlp(t, oom_keep(x), a->act,
					      (struct oom_dim){a->d_shared, "d_shared"}, false),
		       p, v, index;

	t->scope = "gate";
	p = oom_param(t, "weight", m.experts, x.width, 0);
	oom_drop(t, oom_param(t, "e_score_correction_bias", 0, m.experts, OOM_P_FROZEN));
	p = oom_op_cast(t, oom_op_matmul_param(t, "router logits", oom_keep(x), p, oom_none(), e),
			OOM_F32);
	if (a->extra[SOFTCAP])
		p = oom_op_unary(t, OOM_SCALE,
				 oom_op_unary(t, OOM_TANH, oom_op_unary(t, OOM_SCALE, p)));
	p = oom_op_unary(t, OOM_SIGMOID, p);
	oom_scratch(t, "scores for choice", x.mono, m.experts, OOM_F32);
	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	v = oom_op_gather(t, "top-k value", p, oom_keep(index), x.mono, k);
	v = oom_op_cast(t, oom_op_div(t, v, oom_op_sum(t, oom_keep(v), v.mono, D(1))), dt);
	v = oom_moe_experts(t, &m, x, v, index);
	return oom_op_add(t, oom_op_unary(t, OOM_SCALE, v), shared);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_rope rope = l->rope[kind & SLIDES];
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	at.heads = a->extra[COUNTS + (kind >> 2)];
	at.rope = &rope;
	at.rot_dim = a->extra[kind & SLIDES ? ROT_SLIDING : ROT_FULL];
	at.mask = l->mask[kind & SLIDES];
	at.qk_norm = true;
	at.head_gate = true;
	x = oom_op_add(t, x, oom_attention(t, &at, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = kind & DENSE ? oom_gated_mlp(t, h, a->act, D(a->d_ff), false) : mixture(t, a, h);
	return oom_op_add(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a,
			  .rope = {{oom_none(), oom_none()}, {oom_none(), oom_none()}},
			  .mask = {oom_none(), oom_none()}};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	dt = (enum oom_dtype)x.dt;
	if (oom_any_layer(t, a, SLIDES, 0)) {
		l.mask[0] = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
		l.rope[0] = oom_rope_tables(t, a->extra[ROT_FULL], dt, 2);
	}
	if (a->window && oom_any_layer(t, a, SLIDES, SLIDES)) {
		l.mask[1] = oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s);
		l.rope[1] = oom_rope_tables(t, a->extra[ROT_SLIDING], dt, 2);
	}
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	for (int i = 0; i < 2; i++) {
		oom_drop_shared(t, l.rope[i].cos);
		oom_drop_shared(t, l.rope[i].sin);
		oom_drop_shared(t, l.mask[i]);
	}
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_laguna = {
	.name = "laguna",
	.summary = "heads by layer, a gate for every head, sigmoid-routed experts",
	.source = "transformers 5.12 models/laguna/modeling_laguna.py",
	.types = OOM_TYPE("laguna"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
