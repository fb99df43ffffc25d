/* gpt-oss: attention with a learned sink per head, written out in full; every other layer slides;
 * experts with biases and a clamped gate, behind a router that takes its softmax over the chosen
 * logits alone. Reference: transformers 5.12, models/gpt_oss/modeling_gpt_oss.py,
 * integrations/moe.py grouped_mm_experts_forward. There is no sdpa form of it: transformers runs
 * the eager one, and so does this file unless flash is asked for. */
#include <string.h>

#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *window;

	a->norm = OOM_NORM_RMS_FP32;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = a->d_expert = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->n_heads ? a->d_model / a->n_heads : 0);
	a->n_experts = oom_read_count(r, "num_local_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = OOM_ACT_SIGMOID;
	a->gated = true;
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", true);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->rotary_share = 1;
	window = oom_read_key(r, "sliding_window");
	if (window && window->type == OOM_KEY_NUMBER && window->number >= 1 && window->number < 1e9)
		a->window = (uint64_t)window->number;
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);

		a->kind[i] = a->window && (type ? !strcmp(type, "sliding_attention") : (i + 1) % 2);
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;           /* tables of half the head */
	struct oom_val mask[2];         /* full, sliding */
};

/* [x1 cos - x2 sin, x2 cos + x1 sin] on the two halves. */
static struct oom_val rotate(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	const struct oom_dim half[2] = {{x.width / 2, NULL}, {x.width / 2, NULL}},
			     whole = {x.width, x.text};
	struct oom_val p[2], c, s;

	oom_op_split(t, x, 2, half, p);
	c = oom_op_mul(t, oom_keep(p[0]), oom_keep(r->cos));
	c = oom_op_add(t, c, oom_op_mul(t, oom_keep(p[1]), oom_keep(r->sin)));
	s = oom_op_mul(t, p[1], oom_keep(r->cos));
	s = oom_op_add(t, s, oom_op_mul(t, p[0], oom_keep(r->sin)));
	return oom_op_cat(t, c, s, whole);
}

static struct oom_val repeat_kv(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	if (a->n_heads == a->n_kv_heads)
		return x;
	return oom_op_expand_copy(t, x, x.mono,
				  (struct oom_dim){a->n_heads * a->head_dim, "n_heads * head_dim"});
}

/* The scores of s keys and the sink, less their maximum, through a softmax in their own type. */
static struct oom_val with_sinks(struct oom_tape *t, const struct oom_arch *a, struct oom_val mask,
				 struct oom_val q, struct oom_val k, struct oom_val v)
{
	const uint16_t wide = oom_len_plus(t, t->m_bs, 1);
	const struct oom_dim heads = {a->n_heads, "n_heads"};
	struct oom_val w, c, max, index, p, sinks, held, spread[2];

	sinks = oom_param(t, "sinks", 0, a->n_heads, 0);
	k = repeat_kv(t, a, k);
	v = repeat_kv(t, a, v);
	/* key_states and value_states, locals until it returns */
	spread[0] = oom_share(t, k);
	spread[1] = oom_share(t, v);
	w = oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, t->m_bss, heads, a->head_dim));
	if (!oom_is_none(mask))
		w = oom_op_add(t, w, oom_keep(mask));
	sinks = oom_op_expand(t, sinks, t->m_bs, heads);
	c = oom_op_cat_into(t, oom_keep(w), sinks, wide, heads);
	index = oom_new(t, "max index", t->m_bs, heads, OOM_I64);
	max = oom_op_gather(t, "max", oom_keep(c), index, t->m_bs, heads);
	c = oom_op_add(t, c, max);
	p = oom_op_softmax(t, oom_keep(c), false);
	p = oom_op_slice(t, p, t->m_bss, heads);
	held = oom_share(t, p);                 /* probs and scores, to the end */
	p = oom_op_cast(t, oom_op_dropout(t, p, a->attn_dropout), (enum oom_dtype)v.dt);
	oom_drop(t, w);                         /* attn_weights is reassigned only now */
	oom_layer_names(t, oom_share(t, p));
	p = oom_op_bmm(t, "attention", p, v, t->m_bs,
		       (struct oom_dim){a->n_heads * a->head_dim, "n_heads * head_dim"},
		       oom_mono_now(t, t->m_s));
	p = oom_op_merge_heads(t, p);
	oom_drop(t, c);
	oom_drop(t, held);
	oom_drop(t, spread[0]);
	oom_drop(t, spread[1]);
	return p;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint8_t kind,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     qd = {a->n_heads * a->head_dim, "n_heads * head_dim"};
	const struct oom_dim kd = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_val q, k, v, local[3];

	q = oom_op_heads(t, oom_op_linear(t, "q_proj", oom_keep(x), qd, bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(x), kd, bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), kd, bias));
	q = rotate(t, q, &l->rope);
	k = rotate(t, k, &l->rope);
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	if (t->plan->attn == OOM_ATTN_FLASH) {
		struct oom_attn at = oom_attn_of(t, a);

		oom_drop(t, oom_param(t, "sinks", 0, a->n_heads, OOM_P_UNUSED));
		q = oom_attention_core(t, &at, q, k, v);
	} else {
		q = with_sinks(t, a, l->mask[kind], q, k, v);
	}
	q = oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0);
	for (int i = 2; i >= 0; i--)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return q;
}

/* (up + 1) * gate * sigmoid(alpha * gate), both clamped; gate and up are interleaved. */
static struct oom_val clamped_gate(struct oom_tape *t, const struct oom_arch *a, struct oom_val y)
{
	const struct oom_dim f = {a->top_k * a->d_expert, "top_k * d_expert"};
	struct oom_val gate = oom_op_slice(t, oom_keep(y), y.mono, f),
		       up = oom_op_slice(t, oom_keep(y), y.mono, f), glu;

	gate = oom_op_unary(t, OOM_CLAMP_SIDE, gate);
	up = oom_op_unary(t, OOM_CLAMP, up);
	glu = oom_op_unary(t, OOM_SIGMOID, oom_op_unary(t, OOM_SCALE, oom_keep(gate)));
	glu = oom_op_mul(t, oom_keep(gate), glu);
	y.kept = false;
	glu = oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(up)), glu);
	oom_drop(t, gate);
	oom_drop(t, up);
	oom_drop(t, y);
	return glu;
}

static struct oom_val biased(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val w, struct oom_val b, struct oom_val ids,
			     struct oom_val offs, uint64_t in, struct oom_dim out, uint64_t k,
			     struct oom_val *held)
{
	struct oom_val rows = oom_op_gather(t, "bias of each row", b, oom_keep(ids), x.mono,
					    (struct oom_dim){k * out.n, out.text});
	struct oom_val y = oom_op_grouped_mm(t, name, x, w, oom_keep(offs), in, out);

	*held = oom_share(t, rows);
	return oom_op_add_inplace(t, y, rows);
}

static struct oom_val experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t E = a->n_experts, f = a->d_expert, h = x.width;
	const struct oom_dim e = {E, "n_experts"}, k = {a->top_k, "top_k"},
			     kh = {a->top_k * h, "top_k * d_model"};
	struct oom_val w, b, index, scores, logits, ids, perm, rows, sel, mask, y, inv, held, offs;

	t->scope = "router";
	w = oom_param(t, "weight", E, h, 0);
	b = oom_param(t, "bias", 0, E, 0);
	logits = oom_op_matmul_param(t, "router logits", oom_keep(x), w, b, e);
	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	scores = oom_op_gather(t, "top-k value", logits, oom_keep(index), x.mono, k);
	scores = oom_op_softmax(t, scores, false);
	t->scope = "experts";
	ids = oom_new(t, "sorted experts", x.mono, k, OOM_I64);
	perm = oom_new(t, "permutation", x.mono, k, OOM_I64);
	rows = oom_new(t, "row of each choice", x.mono, k, OOM_I64);
	sel = oom_op_gather(t, "dispatched", oom_keep(x), rows, x.mono, kh);
	scores = oom_op_gather(t, "sorted scores", scores, oom_keep(perm), x.mono, k);
	offs = oom_new(t, "offsets", OOM_MONO_ONE, e, OOM_I32);
	mask = oom_new(t, "sentinel mask", x.mono, k, OOM_U8);
	sel = oom_op_masked_inplace(t, sel, oom_keep(mask));
	w = oom_param(t, "gate_up_proj", E * h, 2 * f, OOM_P_EXPERT);
	oom_param_stacked(t, w, h);
	b = oom_param(t, "gate_up_proj_bias", E, 2 * f, OOM_P_EXPERT);
	y = biased(t, "gate and up", oom_keep(sel), w, b, ids, offs, h,
		   (struct oom_dim){2 * f, "2 * d_expert"}, a->top_k, &held);
	y = clamped_gate(t, a, y);
	w = oom_param(t, "down_proj", E * f, h, OOM_P_EXPERT);
	oom_param_stacked(t, w, f);
	b = oom_param(t, "down_proj_bias", E, h, OOM_P_EXPERT);
	oom_drop(t, held);
	y = biased(t, "down", y, w, b, ids, offs, f, (struct oom_dim){h, "d_model"}, a->top_k,
		   &held);
	y = oom_op_mul(t, y, scores);
	y = oom_op_masked_inplace(t, y, mask);
	oom_drop(t, offs);
	inv = oom_new(t, "inverse permutation", x.mono, k, OOM_I64);
	y = oom_op_gather(t, "combined", y, inv, x.mono, kh);
	y = oom_op_sum(t, y, x.mono, (struct oom_dim){h, "d_model"});
	oom_drop(t, held);
	oom_drop(t, sel);                       /* selected_hidden_states, to the end */
	oom_drop(t, ids);
	oom_drop(t, perm);
	oom_drop(t, index);
	y = oom_op_cast(t, y, (enum oom_dtype)x.dt);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const uint8_t kind = i < OOM_MAX_LAYERS ? l->a->kind[i] : 0;
	struct oom_val h = oom_norm(t, l->a->norm, "input_layernorm", oom_keep(x), 0);

	x = oom_op_add(t, x, attention(t, l, kind, h));
	h = oom_norm(t, l->a->norm, "post_attention_layernorm", oom_keep(x), 0);
	return oom_op_add(t, x, experts(t, l->a, h));
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan plan = *real;
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	dt = (enum oom_dtype)x.dt;
	if (plan.attn == OOM_ATTN_SDPA)
		plan.attn = OOM_ATTN_EAGER;
	t->plan = &plan;
	l.mask[0] = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	l.mask[1] = a->window ? oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s) :
				oom_none();
	t->plan = real;
	oom_buffer(t, a->head_dim / 2, OOM_F32);
	oom_buffer(t, a->head_dim / 2, OOM_F32);
	l.rope = oom_rope_tables(t, a->head_dim / 2 ? a->head_dim / 2 : 1, dt, 0);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask[0]);
	oom_drop_shared(t, l.mask[1]);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_gpt_oss = {
	.name = "gpt_oss",
	.summary = "attention sinks, alternating sliding windows, experts with biases and clamped "
		   "gates",
	.source = "transformers 5.12 models/gpt_oss/modeling_gpt_oss.py",
	.types = OOM_TYPE("gpt_oss"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
