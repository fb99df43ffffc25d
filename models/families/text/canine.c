/* CANINE: characters hashed into buckets, one local layer over them, a deep stack over every
 * fourth, and back. Reference: transformers 5.12, models/canine/modeling_canine.py. */
#include <stdio.h>

#include "blocks/encoder.h"

enum { BUCKETS, HASHES, RATE, STRIDE, UP };     /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ_CLS;
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 16);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->extra[BUCKETS] = oom_read_count_or(r, "num_hash_buckets", 16384);
	a->extra[HASHES] = oom_read_count_or(r, "num_hash_functions", 8);
	a->extra[RATE] = oom_read_count_or(r, "downsampling_rate", 4);
	a->extra[STRIDE] = oom_read_count_or(r, "local_transformer_stride", 128);
	a->extra[UP] = oom_read_count_or(r, "upsampling_kernel_size", 4);
	a->approximate = true;
	snprintf(a->warning, sizeof(a->warning),
		 "canine: parameters are exact; activations are approximated: local attention "
		 "without its "
		 "chunks' copies, molecules as a quarter of the characters.");
	if (!a->extra[HASHES] || a->extra[HASHES] > 64 || a->d_model % a->extra[HASHES] ||
	    !a->extra[RATE] || !a->extra[STRIDE] || a->extra[RATE] > 1 << 20 ||
	    a->extra[STRIDE] > 1 << 20 || a->d_model % a->n_heads)
		oom_read_fail(r,
			      "canine: hidden_size (%llu) does not divide by num_hash_functions "
			      "and num_attention_heads",
			      (unsigned long long)a->d_model);
}

struct layer {
	const struct oom_arch *a;
	uint16_t m, sk;                 /* tokens, keys a query meets */
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val p[3], y;

	(void)i;
	at.mq = at.mk = l->m;
	at.sk = l->sk;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	for (int k = 0; k < 3; k++)
		p[k] = oom_op_heads(t, oom_op_linear(t, names[k], oom_keep(x), D(a->d_model),
						     OOM_BIAS));
	x = oom_output(t, a->dropout, "LayerNorm", oom_attention_core(t, &at, p[0], p[1], p[2]), x);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
	return oom_output(t, a->dropout, "LayerNorm", y, x);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t n = a->extra[HASHES], d = a->d_model / n;
	struct oom_val x = oom_none(), e, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	for (uint64_t i = 0; i < n; i++) {
		e = oom_op_embedding(t, "HashBucketCodepointEmbedder",
				     oom_new(t, "hashes", t->m_bs, D(1), OOM_I64),
				     a->extra[BUCKETS], D(d), 0);
		x = oom_is_none(x) ? e : oom_op_cat(t, x, e, D((i + 1) * d));
	}
	x = oom_op_add(t, x,
		       oom_op_embedding(t, "token_type_embeddings", oom_keep(ids), a->type_vocab,
					D(a->d_model), 0));
	x = oom_op_add_inplace(t, x,
			       oom_op_embedding(t, "char_position_embeddings",
						oom_input(t, "position ids", t->m_s, 1, OOM_I64),
						a->extra[BUCKETS], D(a->d_model), 0));
	return oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	const uint16_t s4 = oom_len_ceil(t, OOM_MONO_ONE, a->extra[RATE]),
		       m4 = oom_mono_mul(t, t->m_b, s4);
	const uint16_t local = oom_len_min(t, OOM_MONO_ONE, a->extra[STRIDE]);
	const struct layer chars = {.a = a, .m = t->m_bs, .sk = local},
			   deep = {.a = a, .m = m4, .sk = s4};
	struct oom_val x = embeddings(t, a), first, mol;

	first = oom_layers(t, 1, NULL, block, &chars, x);
	mol = oom_op_copy(t, "contiguous", oom_keep(first));
	mol = oom_op_conv(t, "conv", mol, a->d_model, a->d_model * a->extra[RATE], true, m4, h);
	mol = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, mol), 0, true, true);
	mol = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &deep, mol);
	x = oom_op_expand_copy(t, oom_keep(mol), t->m_bs, h);  /* repeat_interleave */
	x = oom_op_copy(t, "contiguous", oom_op_cat(t, first, x, D(2 * a->d_model)));
	x = oom_op_conv(t, "conv", x, a->d_model, 2 * a->d_model * a->extra[UP], true, t->m_bs, h);
	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	x = oom_layers(t, 1, NULL, block, &chars, oom_op_dropout(t, x, a->dropout));
	oom_drop(t, x);                         /* the classifier looks at the molecules alone */
	return oom_pooler_head(t, a, mol);
}

const struct oom_family oom_family_canine = {
	.name = "canine",
	.summary = "characters in hash buckets, a deep stack over every fourth",
	.source = "transformers 5.12 models/canine/modeling_canine.py",
	.types = OOM_TYPE("canine"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
