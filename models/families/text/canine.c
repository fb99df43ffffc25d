/* CANINE: characters hashed into buckets, one local layer over them, a deep stack over every
 * fourth, and back. Reference: transformers 5.12, models/canine/modeling_canine.py. */
#include <stdio.h>

#include "blocks/encoder.h"

struct canine {
	uint64_t buckets, hashes;
	uint64_t rate, stride, up;      /* downsampling, local attention, upsampling kernel */
};
OOM_OWN(canine, struct canine);

static const struct oom_key_row canine_keys[] = {
	MUST(d_model, "hidden_size"), MUST(d_ff, "intermediate_size"),
	MUST(n_layers, "num_hidden_layers"), MUST(n_heads, "num_attention_heads"),
	MUST(max_positions, "max_position_embeddings"), OR(type_vocab, "type_vocab_size", 16),
	ACT(act, "hidden_act", "gelu"), REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(classifier_dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1),
	OR_OWN(struct canine, buckets, "num_hash_buckets", 16384),
	OR_OWN(struct canine, hashes, "num_hash_functions", 8),
	OR_OWN(struct canine, rate, "downsampling_rate", 4),
	OR_OWN(struct canine, stride, "local_transformer_stride", 128),
	OR_OWN(struct canine, up, "upsampling_kernel_size", 4), OOM_KEYS_END};

static void canine_parse(struct oom_arch *a)
{
	const struct canine *c = canine_of(a);

	a->approximate = true;
	oom_warn(a, "canine: parameters are exact; activations are approximated: local attention "
		 "without its chunks' copies, molecules as a quarter of the characters.");
	if (!c->hashes || c->hashes > 64 || a->d_model % c->hashes || !c->rate || !c->stride ||
	    c->rate > 1 << 20 || c->stride > 1 << 20 || a->d_model % a->n_heads)
		oom_read_fail(&a->rd,
			      "canine: hidden_size (%llu) does not divide by num_hash_functions "
			      "and num_attention_heads",
			      (unsigned long long)a->d_model);
}

struct canine_layer {
	const struct oom_arch *a;
	uint16_t m, sk;                 /* tokens, keys a query meets */
};

static struct oom_val canine_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct canine_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	(void)i;
	at.mq = at.mk = l->m;
	at.sk = l->sk;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	for (int k = 0; k < 3; k++)
		p[k] = oom_op_heads(t, oom_op_linear(t, names[k], x, D(a->d_model), OOM_BIAS));
	y = oom_attention_core(t, &at, p[0], p[1], p[2]);
	x = oom_name(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
}

static struct oom_val canine_embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const struct canine *c = canine_of(a);
	const uint64_t d = a->d_model / c->hashes;
	struct oom_val x = oom_none(), e, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	for (uint64_t i = 0; i < c->hashes; i++) {
		e = oom_op_embedding(t, "HashBucketCodepointEmbedder",
				     oom_new(t, "hashes", t->m_bs, D(1), OOM_I64), c->buckets, D(d),
				     0);
		x = oom_is_none(x) ? e : oom_op_cat(t, x, e, D((i + 1) * d));
	}
	x = oom_op_add(t, x, oom_type_embeddings(t, a, D(a->d_model), ids));
	e = oom_op_embedding(t, "char_position_embeddings",
			     oom_input(t, "position ids", t->m_s, 1, OOM_I64), c->buckets,
			     D(a->d_model), 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add_inplace(t, x, e), 0, true, true);
	return oom_op_dropout(t, x, a->dropout);
}

/* CanineModel.forward: the molecules; the classifier looks at them alone, but the characters are
 * made again from both. */
static struct oom_val canine_model(struct oom_tape *t, const struct oom_arch *a)
{
	const struct canine *c = canine_of(a);
	const struct oom_dim h = D(a->d_model);
	const uint16_t s4 = oom_len_ceil(t, OOM_MONO_ONE, c->rate),
		       m4 = oom_mono_mul(t, t->m_b, s4);
	const uint16_t local = oom_len_min(t, OOM_MONO_ONE, c->stride);
	const struct canine_layer chars = {.a = a, .m = t->m_bs, .sk = local},
				  deep = {.a = a, .m = m4, .sk = s4};
	struct oom_frame f = {.t = t};
	struct oom_val x, first, mol;

	first = oom_name(&f, oom_layers(t, 1, NULL, canine_block, &chars, canine_embeddings(t, a)));
	mol = oom_op_conv(t, "conv", oom_op_copy(t, "contiguous", first), a->d_model,
			  a->d_model * c->rate, true, m4, h);
	mol = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, mol), 0, true, true);
	mol = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, canine_block, &deep, mol);
	mol = oom_name(&f, mol);
	x = oom_op_expand_copy(t, mol, t->m_bs, h);     /* repeat_interleave */
	x = oom_op_cat(t, oom_take(&f, first), x, D(2 * a->d_model));
	x = oom_op_copy(t, "contiguous", x);
	x = oom_op_conv(t, "conv", x, a->d_model, 2 * a->d_model * c->up, true, t->m_bs, h);
	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	oom_name(&f, oom_layers(t, 1, NULL, canine_block, &chars, x));
	return oom_leave(&f, mol);
}

static struct oom_val canine_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_pooler_head(t, a, canine_model(t, a));
}

const struct oom_family oom_family_canine = {
	.name = "canine",
	.summary = "characters in hash buckets, a deep stack over every fourth",
	.source = "transformers 5.12 models/canine/modeling_canine.py",
	.types = OOM_TYPE("canine"),
	.task = OOM_TASK_SEQ_CLS,
	.lora_targets = "query+value",
	.keys = canine_keys,
	.parse = canine_parse,
	.step = canine_step,
};
