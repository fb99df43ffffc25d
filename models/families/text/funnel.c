/* Funnel Transformer: blocks of layers over a sequence halved between them, and a decoder over the
 * whole of it. Reference: transformers 5.12, models/funnel/modeling_funnel.py. */
#include <stdio.h>

#include "blocks/encoder.h"

enum { FUNNEL_BLOCKS = 12 };
struct funnel {
	uint64_t blocks, decoder_layers;
	uint64_t layers[FUNNEL_BLOCKS]; /* of each block */
};
OOM_OWN(funnel, struct funnel);

static const struct oom_key_row funnel_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), MUST(d_ff, "d_inner"),
	MUST(n_heads, "n_head"), MUST(head_dim, "d_head"), ACT(act, "hidden_act", "gelu_new"),
	REAL(dropout, "hidden_dropout", 0.1), REAL(classifier_dropout, "hidden_dropout", 0.1),
	REAL(attn_dropout, "attention_dropout", 0.1), REAL(act_dropout, "activation_dropout", 0),
	FLAG(tie, "tie_word_embeddings", true),
	OR_OWN(struct funnel, decoder_layers, "num_decoder_layers", 2), OOM_KEYS_END};

static void funnel_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "block_sizes");
	struct funnel *own = funnel_own(a);

	own->blocks = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	if (!own->blocks || own->blocks > FUNNEL_BLOCKS) {
		oom_read_fail(r, "block_sizes must list 1 to %d blocks", FUNNEL_BLOCKS);
		return;
	}
	for (uint32_t i = 0; i < own->blocks; i++) {
		const double n = oom_read_item_real(r, "block_sizes", i, 0);

		own->layers[i] = n >= 1 && n <= OOM_MAX_LAYERS ? (uint64_t)n : 1;
		a->n_layers += own->layers[i];
	}
	a->approximate = true;
	oom_warn(a, "funnel: parameters are exact; activations are approximated: every layer of a "
		 "block at the pooled length, no repeats.");
}

struct funnel_layer {
	const struct oom_arch *a;
	uint16_t m, s;                  /* tokens, length */
};

static struct oom_val funnel_biased(struct oom_tape *t, const char *name, struct oom_val q,
				    uint64_t width)
{
	return oom_op_add(t, q, oom_param(t, name, 0, width, 0));
}

/* FunnelRelMultiheadAttention with "relative_shift": content, position and token type terms. */
static struct oom_val funnel_scores(struct oom_frame *f, const struct funnel_layer *l,
				    struct oom_val q, struct oom_val k)
{
	const struct oom_arch *a = l->a;
	const uint64_t width = a->n_heads * a->head_dim;
	const struct oom_dim heads = D(a->n_heads), heads2 = D(2 * a->n_heads);
	struct oom_tape *t = f->t;
	const uint16_t plane = oom_mono_mul(t, l->m, l->s);
	struct oom_val s, pos, r, w, type;

	s = oom_op_bmm(t, "content", funnel_biased(t, "r_w_bias", q, width), k, plane, heads,
		       a->head_dim);
	t->scope = "r_kernel";
	w = oom_param(t, "weight", width, a->d_model, OOM_P_LINEAR);
	r = oom_new(t, "position_embeds", l->s, D(2 * a->d_model), OOM_F32);
	r = oom_op_matmul_param(t, "r_head", r, w, oom_none(), D(width));
	pos = oom_op_bmm(t, "positional", funnel_biased(t, "r_r_bias", q, width), r, plane, heads2,
			 a->head_dim);
	pos = oom_name(f, oom_op_copy(t, "reshape", oom_op_slice(t, pos, plane, heads)));
	type = oom_op_bmm(t, "token_type", funnel_biased(t, "r_s_bias", q, width),
			  oom_param(t, "seg_embed", 0, 2 * width, 0), l->m, heads2, a->head_dim);
	type = oom_name(f, oom_op_expand_copy(t, type, plane, heads));
	s = oom_op_cast(t, oom_op_add(t, oom_op_add(t, s, pos), type), OOM_F32);
	return oom_op_unary(t, OOM_ADD_SCALAR, s);      /* minus the mask */
}

static struct oom_val funnel_attention(struct oom_tape *t, const struct funnel_layer *l,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim inner = D(a->n_heads * a->head_dim);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, s, y;

	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_head", x, inner, 0));
	q = oom_name(&f, q);
	k = oom_name(&f, oom_op_linear(t, "k_head", x, inner, OOM_BIAS));
	v = oom_name(&f, oom_op_linear(t, "v_head", x, inner, OOM_BIAS));
	s = oom_name(&f, funnel_scores(&f, l, q, k));
	y = oom_op_cast(t, oom_op_softmax(t, s, true), (enum oom_dtype)v.dt);
	y = oom_name(&f, oom_op_dropout(t, y, a->attn_dropout));
	y = oom_op_bmm(t, "attn_vec", y, v, l->m, inner, oom_mono_now(t, l->s));
	y = oom_op_linear(t, "post_proj", oom_op_copy(t, "reshape", y), D(a->d_model), OOM_BIAS);
	y = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", y, 0, true, true));
}

static struct oom_val funnel_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct funnel_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = oom_name(&f, funnel_attention(t, l, x));
	y = oom_activation(t, a->act, oom_op_linear(t, "linear_1", x, D(a->d_ff), OOM_BIAS));
	y = oom_op_dropout(t, y, a->act_dropout);
	y = oom_op_linear(t, "linear_2", y, D(a->d_model), OOM_BIAS);
	y = oom_op_add(t, oom_take(&f, x), oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", y, 0, true, true));
}

/* *first gets the first block's result, unless NULL. */
static struct oom_val funnel_encoder(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word, struct oom_val *first)
{
	const struct funnel *own = funnel_of(a);
	const struct oom_dim h = D(a->d_model);
	struct funnel_layer l = {.a = a, .m = t->m_bs, .s = t->m_s};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_word_embeddings(t, a, "word_embeddings", h, word);

	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	for (uint64_t k = 0; k < own->blocks && k < FUNNEL_BLOCKS; k++) {
		if (k) {                        /* mean pooling of two */
			l.s = oom_len_ceil(t, OOM_MONO_ONE, 1U << k);
			l.m = oom_mono_mul(t, t->m_b, l.s);
			x = oom_op_mean(t, x, l.m, h);
		}
		x = oom_layers(t, (uint32_t)own->layers[k], NULL, funnel_block, &l, x);
		if (!k) {
			x = oom_name(&f, x);
			if (first)
				*first = oom_give(&f, x);
		}
	}
	return oom_leave(&f, x);
}

static struct oom_val funnel_run(struct oom_tape *t, const struct oom_arch *a)
{
	static const struct oom_token_head head = {.dense = "linear_hidden", .out = "linear_out",
						   .act = OOM_ACT_TANH};
	const struct oom_mlm m = {.d = a->d_model, .no_transform = true};
	const struct funnel_layer l = {.a = a, .m = t->m_bs, .s = t->m_s};
	struct oom_val word, x, first;

	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_token_head(t, a, &head, funnel_encoder(t, a, &word, NULL));
	x = funnel_encoder(t, a, &word, &first);
	x = oom_op_expand_copy(t, x, t->m_bs, D(a->d_model));   /* repeat_interleave */
	x = oom_op_add(t, x, first);
	x = oom_layers(t, (uint32_t)funnel_of(a)->decoder_layers, NULL, funnel_block, &l, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val funnel_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, funnel_run);
}

const struct oom_family oom_family_funnel = {
	.name = "funnel",
	.summary = "encoder that halves the sequence between blocks",
	.source = "transformers 5.12 models/funnel/modeling_funnel.py",
	.types = OOM_TYPE("funnel"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "q_head+v_head",
	.keys = funnel_keys,
	.parse = funnel_parse,
	.step = funnel_step,
};
