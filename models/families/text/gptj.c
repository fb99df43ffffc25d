/* GPT-J and CodeGen: one norm, attention and feed-forward side by side, rotation of every two,
 * scores in fp32. Reference: transformers 5.12, models/{gptj,codegen}/modeling_*.py. */
#include <string.h>

#include "blocks/blocks.h"

enum { CODEGEN, ROTARY };               /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "n_embd", 1);
	a->n_layers = oom_read_count(r, "n_layer", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_head", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->d_ff = oom_read_count_or(r, "n_inner", 4 * a->d_model);
	a->max_positions = oom_read_count(r, "n_positions", 1);
	a->act = oom_read_act(r, "activation_function", "gelu_new");
	a->dropout = oom_read_real(r, "resid_pdrop", 0);
	a->attn_dropout = oom_read_real(r, "attn_pdrop", 0);
	a->embed_dropout = oom_read_real(r, "embd_pdrop", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->head_bias = true;
	a->extra[CODEGEN] = !strcmp(a->model_type, "codegen");
	a->extra[ROTARY] = oom_read_count_or(r, "rotary_dim", 64);
	if (a->extra[ROTARY] > a->head_dim || a->extra[ROTARY] < 2)
		oom_read_fail(r, "rotary_dim (%llu) must be from 2 to the head's %llu",
			      (unsigned long long)a->extra[ROTARY],
			      (unsigned long long)a->head_dim);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* tensor * cos + rotate_every_two(tensor) * sin; repeat_interleave makes the full tables anew
 * each time. */
static struct oom_val rotate(struct oom_tape *t, struct oom_val x, struct oom_val sincos,
			     uint64_t rot)
{
	struct oom_val sin = oom_new(t, "sin", t->m_s, D(rot), (enum oom_dtype)sincos.dt);
	struct oom_val cos = oom_new(t, "cos", t->m_s, D(rot), (enum oom_dtype)sincos.dt);
	const struct oom_rope rope = {.cos = cos, .sin = sin};

	x = oom_rope_apply(t, x, &rope, 1, x.width, x.width);
	oom_drop(t, sin);
	oom_drop(t, cos);
	return x;
}

/* x[..., :rot] rotated, x[..., rot:] not; *rest stays a local of the module. */
static struct oom_val part(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val *rest)
{
	const uint64_t rot = a->extra[ROTARY];
	const struct oom_dim whole = {a->n_heads * rot, "n_heads * rotary_dim"};

	*rest = oom_op_slice(t, oom_keep(x), x.mono, (struct oom_dim){a->n_heads * (a->head_dim - rot), NULL});
	return oom_op_slice(t, x, x.mono, whole);
}

/* The rows of the sinusoidal table at the positions: a buffer in every layer. */
static struct oom_val table(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt,
			    struct oom_val held[2])
{
	const uint64_t rot = a->extra[ROTARY];
	struct oom_val sincos;

	oom_buffer(t, a->max_positions * rot, OOM_F32);
	held[0] = held[1] = oom_none();
	if (a->extra[CODEGEN])
		return oom_new(t, "embed_positions[position_ids]", t->m_s, D(rot), OOM_F32);
	held[0] = oom_new(t, "embed_positions", OOM_MONO_ONE, D(a->max_positions * rot), OOM_F32);
	held[1] = oom_new(t, "repeated_position_ids", t->m_s, D(rot), OOM_I64);
	sincos = oom_new(t, "gather", t->m_s, D(rot), OOM_F32);
	return oom_op_cast(t, sincos, dt);
}

/* softmax(q k^T / sqrt(d) + mask) v, with q and k in fp32.  The weights are returned too. */
static struct oom_val scores(struct oom_tape *t, const struct layer *l, struct oom_val q,
			     struct oom_val k, enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	struct oom_val w, qf = oom_op_cast(t, q, OOM_F32), kf = oom_op_cast(t, k, OOM_F32);

	w = oom_op_bmm(t, "scores", oom_keep(qf), oom_keep(kf), t->m_bss, D(a->n_heads),
		       a->head_dim);
	if (!a->extra[CODEGEN])
		w = oom_op_unary(t, OOM_SCALE, w);
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, oom_keep(l->mask));
	if (a->extra[CODEGEN])
		w = oom_op_unary(t, OOM_SCALE, w);
	w = oom_op_cast(t, oom_op_softmax(t, w, false), dt);
	w = oom_op_dropout(t, w, a->attn_dropout);
	oom_drop(t, qf);
	oom_drop(t, kf);
	return w;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	struct oom_val q, k, v, sincos, held[2], k_pass, q_pass, y, local[4], qkv = oom_none();
	struct oom_attn at = oom_attn_of(t, a);

	if (a->extra[CODEGEN]) {
		struct oom_val p[3];

		qkv = oom_op_linear(t, "qkv_proj", oom_keep(x), D(3 * a->d_model), 0);
		oom_op_split(t, oom_keep(qkv), 3, parts, p);
		/* four slices of the projection folded into one: a copy */
		for (int i = 0; i < 3; i++)
			p[i] = oom_op_copy(t, "reshape", p[i]);
		q = p[0], v = p[1], k = p[2];
	} else {
		q = oom_op_linear(t, "q_proj", oom_keep(x), h, 0);
		k = oom_op_linear(t, "k_proj", oom_keep(x), h, 0);
		v = oom_op_linear(t, "v_proj", oom_keep(x), h, 0);
	}
	v = oom_op_heads(t, v);
	sincos = table(t, a, (enum oom_dtype)k.dt, held);
	k = part(t, a, k, &k_pass);
	q = part(t, a, q, &q_pass);
	k = rotate(t, k, sincos, a->extra[ROTARY]);
	q = rotate(t, q, sincos, a->extra[ROTARY]);
	/* k_rot, q_rot; key and query, whatever becomes of them in _attn */
	local[0] = k;
	local[1] = q;
	k = oom_op_cat(t, oom_keep(k), oom_keep(k_pass), h);
	q = oom_op_cat(t, oom_keep(q), oom_keep(q_pass), h);
	/* permute(0, 2, 1, 3): the gradient meets cat before any view */
	k.perm = q.perm = true;
	local[2] = oom_share(t, k);
	local[3] = oom_share(t, q);
	if (t->plan->attn == OOM_ATTN_FLASH && !a->extra[CODEGEN]) {
		y = oom_attention_core(t, &at, q, k, oom_keep(v));
		*weights = oom_none();
	} else {
		*weights = scores(t, l, q, k, (enum oom_dtype)v.dt);
		y = oom_op_bmm(t, "attention", oom_keep(*weights), oom_keep(v), t->m_bs, h,
			       oom_mono_now(t, t->m_s));
		y = oom_op_merge_heads(t, y);
	}
	y = oom_op_dropout(t, oom_op_linear(t, "out_proj", y, h, 0), a->dropout);
	oom_drop(t, v);
	oom_drop(t, qkv);
	oom_drop(t, k_pass);
	oom_drop(t, q_pass);
	oom_drop(t, sincos);
	oom_drop(t, held[0]);
	oom_drop(t, held[1]);
	for (int i = 0; i < 4; i++)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return y;
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h, y, weights, before = oom_none();

	if (t->plan->attn != OOM_ATTN_FLASH)
		before = oom_weights_before(t, i, a->n_heads,
					    oom_linear_dtype(t, (enum oom_dtype)x.dt));
	h = oom_op_layer_norm(t, "ln_1", oom_keep(x), 0, true, true);
	y = attention(t, l, oom_keep(h), &weights);
	h = oom_plain_mlp(t, h, "fc_in", "fc_out", a->act, D(a->d_ff), true);
	h = oom_op_dropout(t, h, a->dropout);
	x = oom_op_add(t, oom_op_add(t, y, h), x);
	oom_drop(t, weights);
	oom_drop(t, before);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, positions,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "wte";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	/* position_ids: every layer's argument, and a local of the model until it returns */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = t->plan->attn == OOM_ATTN_FLASH && !a->extra[CODEGEN] ? oom_none() :
		 oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	x = oom_op_layer_norm(t, "ln_f", x, 0, true, true);
	oom_drop_shared(t, positions);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"gptj", NULL}, {"codegen", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_gptj = {
	.name = "gptj",
	.summary = "parallel decoder, rotation of every two, scores in fp32, eager attention",
	.source = "transformers 5.12 models/gptj/modeling_gptj.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
