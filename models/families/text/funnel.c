/* Funnel Transformer: blocks of layers over a sequence halved between them, and a decoder over the
 * whole of it. Reference: transformers 5.12, models/funnel/modeling_funnel.py. */
#include <stdio.h>

#include "blocks/encoder.h"

/* extra[]: blocks, decoder layers; from SIZES on: layers of each block */
enum { BLOCKS, DECODER, SIZES = 4 };
enum { MAX_BLOCKS = 12 };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "block_sizes");

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->d_ff = oom_read_count(r, "d_inner", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_head", 1);
	a->head_dim = oom_read_count(r, "d_head", 1);
	a->act = oom_read_act(r, "hidden_act", "gelu_new");
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[DECODER] = oom_read_count_or(r, "num_decoder_layers", 2);
	a->extra[BLOCKS] = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	if (!a->extra[BLOCKS] || a->extra[BLOCKS] > MAX_BLOCKS) {
		oom_read_fail(r, "block_sizes must list 1 to %d blocks", MAX_BLOCKS);
		return;
	}
	for (uint32_t i = 0; i < a->extra[BLOCKS]; i++) {
		const double n = oom_read_item_real(r, "block_sizes", i, 0);

		a->extra[SIZES + i] = n >= 1 && n <= OOM_MAX_LAYERS ? (uint64_t)n : 1;
		a->n_layers += a->extra[SIZES + i];
	}
	a->approximate = true;
	snprintf(a->warning, sizeof(a->warning),
		 "funnel: parameters are exact; activations are approximated: every layer of a "
		 "block at the "
		 "pooled length, no repeats.");
}

struct layer {
	const struct oom_arch *a;
	uint16_t m, s;                  /* tokens, length */
};

static struct oom_val biased(struct oom_tape *t, const char *name, struct oom_val q, uint64_t width)
{
	return oom_op_add(t, oom_keep(q), oom_param(t, name, 0, width, 0));
}

/* FunnelRelMultiheadAttention with "relative_shift": content, position and token type terms. */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t width = a->n_heads * a->head_dim;
	const struct oom_dim inner = D(width), heads = D(a->n_heads), heads2 = D(2 * a->n_heads);
	const uint16_t plane = oom_mono_mul(t, l->m, l->s);
	struct oom_val q, k, v, s, pos, r, w, type;

	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_head", oom_keep(x), inner, 0));
	k = oom_op_linear(t, "k_head", oom_keep(x), inner, OOM_BIAS);
	v = oom_op_linear(t, "v_head", oom_keep(x), inner, OOM_BIAS);
	s = oom_op_bmm(t, "content", biased(t, "r_w_bias", q, width), oom_keep(k), plane, heads,
		       a->head_dim);
	t->scope = "r_kernel";
	w = oom_param(t, "weight", width, a->d_model, OOM_P_LINEAR);
	r = oom_new(t, "position_embeds", l->s, D(2 * a->d_model), OOM_F32);
	r = oom_op_matmul_param(t, "r_head", r, w, oom_none(), inner);
	pos = oom_op_bmm(t, "positional", biased(t, "r_r_bias", q, width), r, plane, heads2,
			 a->head_dim);
	pos = oom_op_copy(t, "reshape", oom_op_slice(t, pos, plane, heads));
	type = oom_op_bmm(t, "token_type", biased(t, "r_s_bias", q, width),
			  oom_param(t, "seg_embed", 0, 2 * width, 0), l->m, heads2, a->head_dim);
	type = oom_op_expand_copy(t, type, plane, heads);
	s = oom_op_add(t, oom_op_add(t, s, oom_keep(pos)), oom_keep(type));
	s = oom_op_cast(t, s, OOM_F32);
	s = oom_op_unary(t, OOM_ADD_SCALAR, s);         /* minus the mask */
	w = oom_op_dropout(t,
			   oom_op_cast(t, oom_op_softmax(t, oom_keep(s), true),
				       (enum oom_dtype)v.dt),
			   a->attn_dropout);
	r = oom_op_bmm(t, "attn_vec", oom_keep(w), oom_keep(v), l->m, inner, oom_mono_now(t, l->s));
	r = oom_op_dropout(t,
			   oom_op_linear(t, "post_proj", oom_op_copy(t, "reshape", r),
					 D(a->d_model), OOM_BIAS),
			   a->dropout);
	x = oom_op_layer_norm(t, "layer_norm", oom_op_add(t, x, r), 0, true, true);
	oom_drop(t, w);
	oom_drop(t, s);
	oom_drop(t, pos);
	oom_drop(t, type);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val y;

	(void)i;
	x = attend(t, l, x);
	y = oom_activation(t, a->act,
			   oom_op_linear(t, "linear_1", oom_keep(x), D(a->d_ff), OOM_BIAS));
	y = oom_op_linear(t, "linear_2", oom_op_dropout(t, y, a->act_dropout), D(a->d_model),
			  OOM_BIAS);
	return oom_op_layer_norm(t, "layer_norm",
				 oom_op_add(t, x, oom_op_dropout(t, y, a->dropout)), 0, true, true);
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	struct oom_val x = oom_op_slice(t, oom_keep(h), t->m_b, D(a->d_model)), loss;

	x = oom_op_unary(t, OOM_TANH,
			 oom_op_linear(t, "linear_hidden", x, D(a->d_model),
				       OOM_BIAS));
	x = oom_op_dropout(t, x, a->classifier_dropout);
	x = oom_op_linear(t, "linear_out", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val run(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .no_transform = true};
	const struct oom_dim h = D(a->d_model);
	struct layer l = {.a = a, .m = t->m_bs, .s = t->m_s};
	struct oom_val word, x, first = oom_none();

	t->scope = "word_embeddings";
	word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, h);
	x = oom_op_dropout(t,
			   oom_op_layer_norm(t, "layer_norm", oom_input_grads(t, x), 0, true, true),
			   a->dropout);
	for (uint64_t k = 0; k < a->extra[BLOCKS] && k < MAX_BLOCKS; k++) {
		if (k) {                        /* mean pooling of two */
			l.s = oom_len_ceil(t, OOM_MONO_ONE, 1U << k);
			l.m = oom_mono_mul(t, t->m_b, l.s);
			x = oom_op_mean(t, x, l.m, h);
		}
		x = oom_layers(t, (uint32_t)a->extra[SIZES + k], NULL, block, &l, x);
		if (!k)
			first = oom_share(t, x);
	}
	if (t->task == OOM_TASK_SEQ_CLS) {
		oom_drop(t, first);
		return classify(t, a, x);
	}
	l.m = t->m_bs;
	l.s = t->m_s;
	x = oom_op_add(t, oom_op_expand_copy(t, x, t->m_bs, h), first); /* repeat_interleave */
	x = oom_layers(t, (uint32_t)a->extra[DECODER], NULL, block, &l, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, run);
}

const struct oom_family oom_family_funnel = {
	.name = "funnel",
	.summary = "encoder that halves the sequence between blocks",
	.source = "transformers 5.12 models/funnel/modeling_funnel.py",
	.types = OOM_TYPE("funnel"),
	.lora_targets = "q_head+v_head",
	.parse = parse,
	.step = step,
};
