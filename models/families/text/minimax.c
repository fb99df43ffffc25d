/* MiniMax (Text-01): lightning attention in blocks of tokens, every other layer softmax attention,
 * experts everywhere. Reference: transformers 5.12, models/minimax/modeling_minimax.py; Qin et
 * al. 2024, arXiv:2405.17381. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { BLOCK };                         /* extra[] */

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
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->n_experts = oom_read_count(r, "num_local_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = a->d_ff;
	a->extra[BLOCK] = oom_read_count(r, "block_size", 1);
	if (a->extra[BLOCK] > 1u << 16)
		oom_read_fail(r, "block_size (%llu) is out of range",
			      (unsigned long long)a->extra[BLOCK]);
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);

		a->kind[i] = type ? !strcmp(type, "linear_attention") : i % 2;
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
	enum oom_dtype dt;              /* of the weights */
};

struct lightning {
	const struct oom_arch *a;
	uint16_t n, nn;                 /* tokens of a block, that squared; times the batch */
	struct oom_dim w, heads, state;
	struct oom_val q, k, v;
};

/* A block's part of queries, keys or values: a view whose heads are not together, copied by
 * every product. */
static struct oom_val part(struct oom_tape *t, const struct lightning *l, struct oom_val x)
{
	const bool together = x.sto != l->q.sto;        /* values that a mask has laid out anew */

	x = oom_op_slice(t, oom_keep(x), l->n, l->w);
	x.perm = !together;
	return x;
}

/* One block: what its tokens give each other, what the state gives them, and the next state. */
static struct oom_val turn(struct oom_tape *t, const struct lightning *l, struct oom_val *state,
			   bool last, struct oom_hold *held)
{
	const struct oom_val decay = oom_input(t, "decay", l->n, l->heads.n,
					       (enum oom_dtype)l->q.dt);
	const struct oom_val diagonal = oom_input(t, "diagonal_decay", l->nn, l->heads.n,
						  (enum oom_dtype)l->q.dt);
	const uint64_t d = l->a->head_dim, n = oom_mono_now(t, l->n);
	const bool grad = t->grad;
	struct oom_val q, k, v, w, y;

	oom_release(t, held);
	q = part(t, l, l->q);
	k = part(t, l, l->k);
	v = part(t, l, l->v);
	w = oom_hold(t, held,
		     oom_op_bmm(t, "attn_weights_intra", oom_keep(q), oom_keep(k), l->nn, l->heads,
				d));
	w = oom_op_mul(t, w, diagonal);
	w = oom_hold(t, held, oom_op_bmm(t, "attn_output_intra", w, oom_keep(v), l->n, l->w, n));
	y = oom_op_mul(t, q, decay);
	y.perm = true;
	y = oom_hold(t, held,
		     oom_op_bmm(t, "attn_output_inter", y, oom_keep(*state), l->n, l->w, d));
	y = oom_op_add(t, y, w);
	/* the last state is given up, and its graph with it */
	t->grad = grad && !last;
	k = oom_op_mul(t, k, decay);
	k.perm = true;
	w = oom_hold(t, held, oom_op_bmm(t, "next_attn_weights_inter", k, v, t->m_b, l->state, n));
	*state = oom_op_add(t, oom_op_unary(t, OOM_SCALE, *state), w);
	t->grad = grad;
	return y;
}

static struct oom_val blocks(struct oom_tape *t, struct lightning *l)
{
	const uint32_t size = (uint32_t)l->a->extra[BLOCK];
	const struct oom_loop loop = oom_loop_over(t, size);
	/* queries, keys and values as each product copies them, the weights, the state */
	const uint64_t kept = l->a->n_heads *
			      ((uint64_t)size * size +
			       (l->v.sto == l->q.sto ? 6 : 4) * size * l->a->head_dim +
			       l->a->head_dim * l->a->head_dim);
	const enum oom_dtype dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)l->q.dt;
	struct oom_val state = oom_new(t, "attn_weights_inter", t->m_b, l->state,
				       (enum oom_dtype)l->q.dt),
		       y = oom_none(), all;
	struct oom_hold held = {.n = 0};

	/* the list's elements until they are joined */
	all = oom_new(t, "attn_output", t->m_bs, l->w, dt);
	for (int i = 0; i < loop.turns; i++) {
		if (i)
			state = oom_loop_carry(t, &loop, i - 1, state,
					       (struct oom_dim){kept, "kept by a turn"}, dt);
		if (i)
			oom_drop(t, y);
		y = turn(t, l, &state, i + 1 == loop.turns, &held);
	}
	y = oom_op_expand_copy(t, y, t->m_bs, l->w);
	oom_drop(t, all);
	oom_drop(t, state);
	oom_release(t, &held);
	return y;
}

static struct oom_val lightning(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {a->n_heads * a->head_dim, "n_heads * head_dim"},
			     h = {x.width, x.text}, parts[3] = {w, w, w};
	const uint32_t size = (uint32_t)a->extra[BLOCK];
	struct lightning l = {.a = a,
			      .w = w,
			      .heads = {a->n_heads, "n_heads"},
			      .state = {a->n_heads * a->head_dim * a->head_dim,
					"n_heads * head_dim^2"}};
	struct oom_val p[3], y;

	l.n = oom_len_min(t, t->m_b, size);
	l.nn = oom_len_min(t, l.n, size);
	y = oom_activation(t, a->act,
			   oom_op_linear(t, "qkv_proj", oom_keep(x),
					 (struct oom_dim){3 * w.n, "3 * n_heads * head_dim"}, 0));
	oom_op_split(t, y, 3, parts, p);
	if (t->plan->padding_mask)
		p[2] = oom_op_masked(t, "masked_fill", p[2],
				     oom_new(t, "~mask", t->m_bs, D(1), OOM_U8));
	l.q = p[0];
	l.k = p[1];
	l.v = p[2];
	t->scope = "lightning";
	y = blocks(t, &l);
	y = oom_op_copy(t, "reshape", y);
	y = oom_norm(t, a->norm, "norm", y, 0);
	y = oom_op_mul(t,
		       oom_op_unary(t, OOM_SIGMOID,
				    oom_op_linear(t, "output_gate", oom_keep(x), w, 0)),
		       y);
	y = oom_op_linear(t, "out_proj", y, h, 0);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	oom_drop(t, x);
	return y;
}

/* residual * alpha + h * beta; the residual is the norm's result. */
static struct oom_val join(struct oom_tape *t, struct oom_val residual, struct oom_val h)
{
	residual = oom_op_unary(t, OOM_SCALE, residual);
	return oom_op_add(t, residual, oom_op_unary(t, OOM_SCALE, h));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act,
				  .norm_topk = true};
	const uint64_t heads = a->n_heads;
	struct oom_val h;

	x = oom_norm(t, a->norm, "input_layernorm", x, 0);
	if (i < OOM_MAX_LAYERS && a->kind[i]) {
		const uint64_t size = a->extra[BLOCK];
		const enum oom_dtype dt = l->dt;

		/* slope_rate and the decays, made in every layer */
		oom_buffer(t, heads, dt);
		oom_buffer(t, heads * size, dt);
		oom_buffer(t, heads * size, dt);
		oom_buffer(t, heads * size * size, dt);
		h = lightning(t, a, oom_share(t, x));
	} else {
		struct oom_attn at = oom_attn_of(t, a);
		struct oom_rope rope = l->rope;

		at.layer_names_weights = true;
		at.rope = &rope;
		at.mask = l->mask;
		h = oom_attention(t, &at, oom_share(t, x));
	}
	x = oom_norm(t, a->norm, "post_attention_layernorm", join(t, x, h), 0);
	h = oom_moe_mlp(t, &m, oom_share(t, x));
	return join(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed.dt;
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, a->window, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_minimax = {
	.name = "minimax",
	.summary = "lightning and softmax attention in turn, experts in every layer",
	.source = "transformers 5.12 models/minimax/modeling_minimax.py",
	.types = OOM_TYPE("minimax"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
