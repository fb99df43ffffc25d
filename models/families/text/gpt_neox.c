/* GPT-NeoX (Pythia): parallel attention and feed-forward, fused qkv, partial rotary positions;
 * Persimmon: the same one after the other, with norms of queries and keys.
 * Reference: transformers 5.12, models/{gpt_neox,persimmon}/modeling_*.py. */
#include <string.h>

#include "blocks/blocks.h"

enum { PARALLEL, BIAS, PERSIMMON, QK_NORM };      /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 2048);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout", 0);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->rotary_share = oom_read_real(r, "rotary_pct", 0.25);
	a->rotary_share = oom_read_real(r, "partial_rotary_factor", a->rotary_share);
	if (oom_read_explicit(r, "rope_parameters.partial_rotary_factor"))
		a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
						a->rotary_share);
	a->extra[PARALLEL] = oom_read_bool(r, "use_parallel_residual", true);
	a->extra[BIAS] = oom_read_bool(r, "attention_bias", true);
	a->extra[PERSIMMON] = !strcmp(a->model_type, "persimmon");
	if (a->extra[PERSIMMON]) {
		a->extra[PARALLEL] = false;
		a->extra[QK_NORM] = oom_read_bool(r, "qk_layernorm", true);
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* Persimmon's parts: views of the projection; the norm's kernel makes them contiguous for
 * itself. */
static void persimmon_parts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct oom_val p[3])
{
	static const char *const norms[] = {"q_layernorm", "k_layernorm"};

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_slice(t, oom_keep(x), x.mono, D(a->d_model));
	for (int i = 0; i < 2 && a->extra[QK_NORM]; i++)
		p[i] = oom_op_layer_norm(t, norms[i], p[i], a->head_dim, true, true);
	oom_done(t, x);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const uint64_t rot = oom_rot_dim(a);
	const unsigned bias = a->extra[BIAS] ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	const struct oom_val arg = x;           /* the normed states, the call's until it returns */
	struct oom_val p[3], qkv;

	at.layer_names_weights = true;
	at.mask = l->mask;
	x = oom_op_linear(t, "query_key_value", oom_keep(arg), D(3 * a->d_model), bias);
	qkv = oom_share(t, x);
	if (a->extra[PERSIMMON])
		persimmon_parts(t, a, x, p);
	else
		oom_op_split(t, oom_op_heads(t, x), 3, parts, p);
	oom_rope_pair(t, &p[0], &p[1], &l->rope, a->n_heads, a->n_heads, a->head_dim, rot);
	x = oom_attention_core(t, &at, p[0], p[1], p[2]);
	x = oom_op_linear(t, "dense", x, h, bias);
	oom_drop(t, qkv);
	oom_done(t, arg);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val at, ff;

	(void)i;
	at = attention(t, l, oom_op_layer_norm(t, "input_layernorm", oom_keep(x), 0, true, true));
	at = oom_op_dropout(t, at, a->extra[PERSIMMON] ? 0 : a->dropout);
	if (!a->extra[PARALLEL]) {
		x = oom_op_add(t, at, x);
		at = oom_none();
	}
	ff = oom_op_layer_norm(t, "post_attention_layernorm", oom_keep(x), 0, true, true);
	ff = oom_plain_mlp(t, ff, "dense_h_to_4h", "dense_4h_to_h", a->act, D(a->d_ff), true);
	ff = oom_op_dropout(t, ff, a->dropout);
	if (a->extra[PARALLEL])
		ff = oom_op_add(t, ff, at);
	return oom_op_add(t, ff, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t rot = oom_rot_dim(a);
	struct oom_val embed, x, first, positions,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_in";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	/* position_ids: every layer's argument, and a local of the model until it returns */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	x = oom_op_dropout(t, x, a->extra[PERSIMMON] ? 0 : a->dropout);
	l.rope = oom_rope_tables(t, rot, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
	oom_drop_shared(t, positions);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"gpt_neox", NULL}, {"persimmon", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_gpt_neox = {
	.name = "gpt_neox",
	.summary = "parallel decoder, fused qkv, partial rotary positions",
	.source = "transformers 5.12 models/gpt_neox/modeling_gpt_neox.py",
	.types = types,
	.lora_targets = "query_key_value",
	.parse = parse,
	.step = step,
};
