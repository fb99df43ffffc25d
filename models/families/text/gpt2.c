/* GPT-2: pre-norm decoder with learned positions, fused qkv, plain feed-forward, dropout
 * everywhere; GPT-Neo: separate projections without bias, fp32 eager attention, alternating local
 * layers; GPT BigCode: one key and value head. Reference: transformers 5.12,
 * models/gpt2/modeling_gpt2.py, models/gpt_neo/modeling_gpt_neo.py,
 * models/gpt_bigcode/modeling_gpt_bigcode.py. */
#include <string.h>

#include "blocks/blocks.h"

enum { NEO, BIGCODE };                           /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[NEO] = !strcmp(a->model_type, "gpt_neo");

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->d_ff = oom_read_count_or(r, a->extra[NEO] ? "intermediate_size" : "n_inner",
				    4 * a->d_model);
	a->head_dim = a->d_model / a->n_heads;
	a->extra[BIGCODE] = !strcmp(a->model_type, "gpt_bigcode");
	if (a->extra[BIGCODE] && oom_read_bool(r, "multi_query", true))
		a->n_kv_heads = 1;
	if (a->extra[BIGCODE] && oom_read_bool(r, "add_cross_attention", false))
		oom_read_fail(r, "gpt_bigcode with cross-attention is not modelled");
	a->act = oom_read_act(r, "activation_function", "gelu_new");
	a->dropout = oom_read_real(r, "resid_pdrop", 0.1);
	a->embed_dropout = oom_read_real(r, "embd_pdrop", 0.1);
	a->attn_dropout = oom_read_real(r, "attn_pdrop", 0.1);
	if (a->extra[NEO]) {
		a->dropout = oom_read_real(r, "resid_dropout", 0);
		a->embed_dropout = oom_read_real(r, "embed_dropout", 0);
		a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	}
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model),
			     kv = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {h, kv, kv};
	struct oom_attn at = oom_attn_of(t, a);
	/* the normed states, the caller's until it returns */
	const struct oom_val arg = x;
	const unsigned flags = a->extra[BIGCODE] ? OOM_BIAS : OOM_BIAS | OOM_CONV1D;
	struct oom_val q[3], local[3];

	at.layer_names_weights = true;
	at.mask = l->mask;
	at.softmax_as_is = !a->extra[BIGCODE];
	oom_op_split(t,
		     oom_op_linear(t, "c_attn", oom_keep(arg), D(a->d_model + 2 * kv.n), flags),
		     3, parts, q);
	for (int i = 0; i < 3; i++)
		q[i] = oom_op_heads(t, q[i]);
	for (int i = 0; i < 3; i++)             /* query_states and its like, to the end */
		local[i] = oom_share(t, q[i]);
	x = oom_attention_core(t, &at, q[0], q[1], q[2]);
	x = oom_op_linear(t, "c_proj", x, h, flags);
	x = oom_op_dropout(t, x, a->dropout);
	for (int i = 2; i >= 0; i--)
		oom_drop(t, local[i]);
	oom_done(t, arg);
	return x;
}

/* GPT-Neo writes attention out: q and k in fp32, a causal buffer applied by where(). */
static struct oom_val neo_attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				    struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_val q, k, v, w, p, local[3];
	enum oom_dtype dt;

	oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", oom_keep(x), h, 0));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(x), h, 0));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), h, 0));
	dt = (enum oom_dtype)v.dt;
	local[0] = oom_share(t, q);             /* names of the caller, to the end */
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_op_cast(t, q, OOM_F32);
	k = oom_op_cast(t, k, OOM_F32);
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), t->m_bss, heads, a->head_dim);
	w = oom_op_masked(t, "where", w, oom_input(t, "causal buffer", t->m_s, 1, OOM_U8));
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, oom_keep(l->mask));
	p = oom_op_cast(t, oom_op_softmax(t, w, false), dt);
	p = oom_op_dropout(t, p, a->attn_dropout);
	*weights = oom_share(t, p);
	p = oom_op_bmm(t, "attention", p, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	oom_drop(t, q);
	oom_drop(t, k);
	p = oom_op_merge_heads(t, p);
	p = oom_op_dropout(t, oom_op_linear(t, "out_proj", p, h, OOM_BIAS), a->dropout);
	for (int i = 2; i >= 0; i--)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return p;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const unsigned flags = a->extra[BIGCODE] || a->extra[NEO] ? OOM_BIAS :
								    OOM_BIAS | OOM_CONV1D;
	struct oom_val h, y, z, sum, weights = oom_none(), before = oom_none();

	/* the model's `outputs` are the last layer's until this one returns */
	if (a->extra[NEO])
		before = oom_weights_before(t, i, a->n_heads,
					    oom_linear_dtype(t, (enum oom_dtype)x.dt));
	h = oom_op_layer_norm(t, "ln_1", oom_keep(x), 0, true, true);
	y = a->extra[NEO] ? neo_attention(t, l, oom_keep(h), &weights) : attention(t, l, oom_keep(h));
	sum = oom_op_add(t, oom_keep(y), x);
	oom_drop(t, h);
	h = oom_op_layer_norm(t, "ln_2", oom_keep(sum), 0, true, true);
	z = oom_op_linear(t, "c_fc", oom_keep(h), D(a->d_ff), flags);
	z = oom_activation(t, a->act, z);
	z = oom_op_linear(t, "c_proj", z, D(a->d_model), flags);
	z = oom_op_dropout(t, z, a->dropout);
	x = oom_op_add(t, sum, oom_keep(z));
	oom_drop(t, h);
	oom_drop(t, y);                         /* attn_output and its like, to the end */
	oom_drop(t, z);
	oom_drop(t, weights);
	oom_drop(t, before);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, positions, pos,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "wte";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	if (a->extra[BIGCODE])                  /* the lower triangle, one for the model */
		oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	first = oom_share(t, x);                /* inputs_embeds, a local of the model */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	pos = oom_op_embedding(t, "wpe", oom_keep(positions), a->max_positions, D(a->d_model), 0);
	x = oom_op_add(t, x, oom_keep(pos));    /* position_embeds, a local of the model */
	l.mask = a->extra[NEO] && !t->plan->padding_mask && t->plan->attn == OOM_ATTN_SDPA ?
			 oom_none() :
			 oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, positions);
	x = oom_op_layer_norm(t, "ln_f", x, 0, true, true);
	oom_drop(t, pos);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"gpt2", NULL}, {"gpt_neo", NULL}, {"gpt_bigcode", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_gpt2 = {
	.name = "gpt2",
	.summary = "pre-norm decoder, learned positions, fused qkv, plain feed-forward, dropout",
	.source = "transformers 5.12 models/gpt2/modeling_gpt2.py",
	.types = types,
	.lora_targets = "c_attn",
	.parse = parse,
	.step = step,
};
