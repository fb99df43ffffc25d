/* MiniMax (Text-01): lightning attention in blocks of tokens, every other layer softmax attention,
 * experts everywhere. Reference: transformers 5.12, models/minimax/modeling_minimax.py; Qin et
 * al. 2024, arXiv:2405.17381. */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

struct minimax {
	uint64_t block;
};
OOM_OWN(minimax, struct minimax);

static const struct oom_key_row minimax_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), LIKE(d_expert, NULL, 1, d_ff),
	OOM_GROUPED_KEYS, OOM_USUAL_KEYS, ACT(act, "hidden_act", "silu"),
	OR(window, "sliding_window", 0), MUST(n_experts, "num_local_experts"),
	MUST(top_k, "num_experts_per_tok"), MUST_OWN(struct minimax, block, "block_size"),
	OOM_KEYS_END};

static void minimax_parse(struct oom_arch *a)
{
	const uint64_t block = minimax_of(a)->block;
	struct oom_reader *r = &a->rd;

	if (block > 1u << 16)
		oom_read_fail(r, "block_size (%llu) is out of range", (unsigned long long)block);
	oom_check_experts(a);
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++)
		a->kind[i] = oom_read_says(a, "layer_types", i, "linear_attention", i % 2);
}

struct lightning {
	const struct oom_arch *a;
	uint16_t n, nn;                 /* tokens of a block, that squared; times the batch */
	struct oom_dim w, heads, state;
	struct oom_val q, k, v;
	enum oom_dtype rate;            /* of the slopes */
	bool filled;                    /* values that a mask has laid out anew */
};

/* A block's part of queries, keys or values: a view whose heads are not together, copied by
 * every product. */
static struct oom_val part(struct oom_frame *f, const struct lightning *l, struct oom_val x, bool together)
{
	x = oom_op_slice(f->t, x, l->n, l->w);
	x.perm = !together;
	return oom_name(f, x);
}

/* One block: what its tokens give each other, what the state gives them, and the next state.  What
 * keeps its name until the next turn are names of held's. */
static struct oom_val turn(struct oom_frame *held, const struct lightning *l,
			   struct oom_val *state, bool last)
{
	const enum oom_dtype dt = l->q.dt;
	struct oom_tape *t = held->t;
	const struct oom_val decay = oom_input(t, "decay", l->n, l->heads.n, dt),
			     diagonal = oom_input(t, "diagonal_decay", l->nn, l->heads.n, dt);
	const uint64_t d = l->a->head_dim, n = oom_mono_now(t, l->n);
	const bool grad = t->grad;
	struct oom_frame f = {.t = t};
	struct oom_val s, q, k, v, w, y;

	oom_leave(held, oom_none());
	s = oom_name(&f, *state);
	q = part(&f, l, l->q, false);
	k = part(&f, l, l->k, false);
	v = part(&f, l, l->v, l->filled);
	w = oom_name(held, oom_op_bmm(t, "attn_weights_intra", q, k, l->nn, l->heads, d));
	w = oom_op_mul(t, w, diagonal);
	w = oom_name(held, oom_op_bmm(t, "attn_output_intra", w, v, l->n, l->w, n));
	y = oom_op_mul(t, oom_take(&f, q), decay);
	y.perm = true;
	y = oom_name(held, oom_op_bmm(t, "attn_output_inter", y, s, l->n, l->w, d));
	y = oom_op_add(t, y, w);
	/* the last state is given up, and its graph with it */
	t->grad = grad && !last;
	k = oom_op_mul(t, oom_take(&f, k), decay);
	k.perm = true;
	w = oom_op_bmm(t, "next_attn_weights_inter", k, oom_take(&f, v), t->m_b, l->state, n);
	w = oom_name(held, w);
	/* block_decay: exp is on autocast's fp32 list, and what it scales becomes fp32 */
	k = oom_op_unary(t, OOM_EXP, oom_input(t, "slope_rate", OOM_MONO_ONE, l->heads.n, l->rate));
	*state = oom_op_add(t, oom_op_mul(t, oom_take(&f, s), k), w);
	t->grad = grad;
	return oom_leave(&f, y);
}

static struct oom_val blocks(struct oom_tape *t, const struct lightning *l)
{
	const uint64_t size = minimax_of(l->a)->block, d = l->a->head_dim;
	const struct oom_loop loop = oom_loop_over(t, (uint32_t)size);
	const enum oom_dtype dt = t->amp ? t->amp_dt : l->q.dt;
	/* values are as they come where a mask has laid them out anew in the type of the products */
	const bool as_is = l->filled && l->v.dt == dt;
	/* queries, keys and values as each product copies them, the weights, the state */
	const struct oom_dim kept = {l->a->n_heads * (size * size + (as_is ? 4 : 6) * size * d + d * d),
				     "kept by a turn"};
	struct oom_frame f = {.t = t}, held = {.t = t};
	struct oom_val state, y = oom_none();

	state = oom_new(t, "attn_weights_inter", t->m_b, l->state, l->q.dt);
	/* the list's elements until they are joined */
	oom_name(&f, oom_new(t, "attn_output", t->m_bs, l->w, dt));
	for (int i = 0; i < loop.turns; i++) {
		if (i)
			state = oom_loop_carry(t, &loop, i - 1, state, kept, dt);
		oom_forget(&f, y);
		y = oom_name(&f, turn(&held, l, &state, i + 1 == loop.turns));
	}
	oom_name(&f, state);
	y = oom_op_expand_copy(t, oom_take(&f, y), t->m_bs, l->w);
	oom_leave(&held, oom_none());
	return oom_leave(&f, y);
}

static struct oom_val lightning(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {a->n_heads * a->head_dim, "n_heads * head_dim"},
			     h = {x.width, x.text}, parts[3] = {w, w, w},
			     wide = {3 * w.n, "3 * n_heads * head_dim"};
	const uint32_t size = (uint32_t)minimax_of(a)->block;
	struct lightning l = {.a = a, .w = w, .heads = {a->n_heads, "n_heads"},
			      .state = {w.n * a->head_dim, "n_heads * head_dim^2"},
			      .rate = oom_loaded_dtype(t->plan), .filled = t->plan->padding_mask};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], g, y;

	l.n = oom_len_min(t, t->m_b, size);
	l.nn = oom_len_min(t, l.n, size);
	y = oom_activation(t, a->act, oom_op_linear(t, "qkv_proj", x, wide, 0));
	oom_op_split(t, y, 3, parts, p);
	if (l.filled)
		p[2] = oom_op_masked(t, "masked_fill", p[2],
				     oom_new(t, "~mask", t->m_bs, D(1), OOM_U8));
	oom_name_each(&f, p, 3);
	l.q = p[0];
	l.k = p[1];
	l.v = p[2];
	t->scope = "lightning";
	y = oom_op_copy(t, "reshape", blocks(t, &l));
	y = oom_norm(t, a->norm, "norm", y, 0);
	g = oom_op_unary(t, OOM_SIGMOID, oom_op_linear(t, "output_gate", x, w, 0));
	return oom_leave(&f, oom_op_linear(t, "out_proj", oom_op_mul(t, g, y), h, 0));
}

/* residual * alpha + h * beta; the residual is the norm's result. */
static struct oom_val join(struct oom_tape *t, struct oom_val residual, struct oom_val h)
{
	residual = oom_op_unary(t, OOM_SCALE, residual);
	return oom_op_add(t, residual, oom_op_unary(t, OOM_SCALE, h));
}

static struct oom_val minimax_block(struct oom_tape *t, const void *ctx, uint32_t i,
				    struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_moe m = OOM_MOE(a, .norm_topk = true);
	const uint64_t heads = a->n_heads, size = minimax_of(a)->block;
	const enum oom_dtype loaded = oom_loaded_dtype(t->plan);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_name(&f, oom_norm(t, a->norm, "input_layernorm", x, 0));
	if (oom_layer_kind(a, i)) {
		/* slope_rate and the decays, made in every layer */
		oom_buffer(t, heads, loaded);
		oom_buffer(t, heads * size, loaded);
		oom_buffer(t, heads * size, loaded);
		oom_buffer(t, heads * size * size, loaded);
		h = lightning(t, a, x);
	} else {
		struct oom_attn at = oom_layer_attn(t, l, false);

		at.caller = &f;
		h = oom_attention(t, &at, x);
	}
	x = oom_norm(t, a->norm, "post_attention_layernorm", join(t, oom_take(&f, x), h), 0);
	x = oom_name(&f, x);
	h = oom_moe_mlp(t, &m, x);
	return oom_leave(&f, join(t, oom_take(&f, x), h));
}

const struct oom_family oom_family_minimax = {
	.name = "minimax",
	.summary = "lightning and softmax attention in turn, experts in every layer",
	.source = "transformers 5.12 models/minimax/modeling_minimax.py",
	.types = OOM_TYPE("minimax"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = minimax_keys,
	.parse = minimax_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .kinds = true, .rope = true, .window = true, .block = minimax_block),
};
