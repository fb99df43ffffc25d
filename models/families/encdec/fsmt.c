/* FSMT: fairseq's translation models.  Encoder and decoder with vocabularies of their own,
 * everything laid out as (tokens, batch, width), norms after, the decoder fed with the shifted
 * source (labels only meet the loss). Reference: transformers 5.12,
 * models/fsmt/modeling_fsmt.py. */
#include "blocks/encdec.h"
#include "config/keys.h"

struct fsmt {
	uint64_t source_vocab;
};
OOM_OWN(fsmt, struct fsmt);

static const struct oom_key_row fsmt_keys[] = {
	MUST_OWN(struct fsmt, source_vocab, "src_vocab_size"), MUST(vocab, "tgt_vocab_size"),
	MUST(d_model, "d_model"), MUST(enc_layers, "encoder_layers"), OOM_ENCDEC_STACK_KEYS,
	MUST(max_positions, "max_position_embeddings"), ACT(act, "activation_function", "relu"),
	OOM_ENCDEC_DROPOUT_KEYS(0.1), FLAG(tie, "tie_word_embeddings", false), OOM_KEYS_END};

static void fsmt_parse(struct oom_arch *a)
{
	a->input_vocab = fsmt_of(a)->source_vocab;      /* get_input_embeddings is the encoder's */
	/* SinusoidalPositionalEmbedding(max_position_embeddings + padding_idx + 1): a parameter
	 * like any other */
	a->max_positions += oom_read_count_or(&a->rd, "pad_token_id", 1) + 1;
}

/* q, k and v are views of what the projections gave: bmm takes their strides. */
static struct oom_val fsmt_attention(struct oom_tape *t, const struct oom_encdec *s,
				     struct oom_val x, bool cross)
{
	const struct oom_dim h = {x.width, x.text}, heads = {s->heads, "n_heads"};
	const struct oom_val src = cross ? s->encoded : x,
			     padding = s->decoder && !cross ? oom_none() : s->cross_mask;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, w, p, y;

	k = oom_name(&f, oom_op_linear(t, "k_proj", src, h, OOM_BIAS));
	v = oom_name(&f, oom_op_linear(t, "v_proj", src, h, OOM_BIAS));
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", x, h, OOM_BIAS));
	q = oom_name(&f, q);
	w = oom_op_bmm(t, "scores", q, k, oom_mono_mul(t, t->m_bs, t->m_s), heads, h.n / s->heads);
	if (s->decoder && !cross)
		w = oom_op_add(t, w, s->mask);
	if (!oom_is_none(padding))
		w = oom_op_masked(t, "masked_fill", w, padding);
	w = oom_name(&f, oom_op_softmax(t, w, false));
	p = oom_name(&f, oom_op_dropout(t, w, s->a->attn_dropout));
	y = oom_op_bmm(t, "attention", p, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	y = oom_op_linear(t, "out_proj", oom_op_copy(t, "contiguous", y), h, OOM_BIAS);
	return oom_leave(&f, y);
}

static struct oom_val fsmt_attend(struct oom_tape *t, const struct oom_encdec *s, struct oom_val x,
				  const char *norm, bool cross)
{
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_arg(&f, x);
	h = oom_op_dropout(t, fsmt_attention(t, s, x, cross), s->a->dropout);
	x.perm = false;
	return oom_op_layer_norm(t, norm, oom_op_add(t, oom_take(&f, x), h), 0, true, true);
}

static struct oom_val fsmt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_encdec *s = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = fsmt_attend(t, s, x, "self_attn_layer_norm", false);
	if (s->decoder)
		x = fsmt_attend(t, s, x, "encoder_attn_layer_norm", true);
	x = oom_name(&f, x);
	y = oom_op_dropout(t, oom_encdec_feed_forward(t, s, x), s->a->dropout);
	x = oom_op_add(t, oom_take(&f, x), y);
	return oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
}

static struct oom_val fsmt_positions(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val ids = oom_new(t, "position ids", t->m_bs, D(1), OOM_I64);

	return oom_op_embedding(t, "embed_positions", ids, a->max_positions, D(a->d_model), 0);
}

static struct oom_val fsmt_stack(struct oom_tape *t, const struct oom_encdec *s,
				 struct oom_val embed, uint64_t vocab, struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	if (s->decoder) {
		pos = oom_name(&f, fsmt_positions(t, a));
		x = oom_op_embedding_param(t, embed, ids, vocab, D(a->d_model));
		x = oom_op_unary(t, OOM_SCALE, oom_input_grads(t, x));
		x = oom_op_add_inplace(t, x, pos);
	} else {
		x = oom_op_embedding_param(t, embed, ids, vocab, D(a->d_model));
		x = oom_op_unary(t, OOM_SCALE, oom_input_grads(t, x));
		x = oom_name(&f, x);            /* inputs_embeds */
		pos = oom_name(&f, fsmt_positions(t, a));
		x = oom_op_add(t, x, pos);
	}
	x = oom_op_dropout(t, x, a->dropout);
	/* transposed to (tokens, batch): the first projections copy it */
	x.perm = true;
	x = oom_layers(t, (uint32_t)oom_depth(t, s->layers), NULL, fsmt_block, s, x);
	return oom_leave(&f, x);
}

static struct oom_val padding_mask(struct oom_tape *t)
{
	return t->plan->padding_mask ? oom_new(t, "padding mask", t->m_bs, D(1), OOM_U8) :
				       oom_none();
}

/* FSMTModel.forward, whose decoder makes the logits; the encoder's result is returned too. */
static struct oom_val fsmt_model(struct oom_tape *t, const struct oom_arch *a,
				 struct oom_val *encoded)
{
	const struct oom_encdec_kind after = {.pre_norm = false};
	struct oom_encdec enc = oom_encoder_stack(t, a, &after),
			  dec = oom_decoder_stack(t, a, &after, t->m_s);
	const uint64_t source = fsmt_of(a)->source_vocab;
	struct oom_frame f = {.t = t};
	struct oom_val embed, dec_embed, ids, x;

	t->scope = "encoder.embed_tokens";
	embed = dec_embed = oom_param(t, "weight", source, a->d_model, OOM_P_EMBEDDING);
	if (!a->tie) {
		t->scope = "decoder.embed_tokens";
		dec_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	ids = oom_name(&f, oom_decoder_ids(t, t->m_bs));
	dec.mask = oom_name(&f, oom_new(t, "causal mask", oom_mono_mul(t, t->m_s, t->m_s), D(1),
					(enum oom_dtype)embed.dt));
	enc.cross_mask = oom_name(&f, padding_mask(t));
	x = fsmt_stack(t, &enc, embed, source, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64));
	dec.encoded = oom_name(&f, x);
	oom_forget(&f, enc.cross_mask);
	dec.cross_mask = oom_name(&f, padding_mask(t));
	x = fsmt_stack(t, &dec, dec_embed, a->vocab, ids);
	oom_forget(&f, dec.cross_mask);
	/* back to (batch, tokens): the projection copies it */
	x.perm = true;
	x = oom_lm_head(t, a, x, dec_embed, "output_projection", false);
	*encoded = oom_give(&f, dec.encoded);
	return oom_leave(&f, x);
}

static struct oom_val fsmt_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_plan plain = *t->plan;
	const struct oom_plan *real = t->plan;
	struct oom_frame f = {.t = t};
	struct oom_val x, encoded;

	if (!oom_seq2seq_only(t, a))
		return oom_none();
	if (plain.grad_ckpt != OOM_CKPT_NONE)
		oom_tape_warn(t, "transformers has no gradient checkpointing for this architecture: it "
			     "is modelled without");
	plain.grad_ckpt = OOM_CKPT_NONE;
	t->plan = &plain;
	x = fsmt_model(t, a, &encoded);
	oom_name(&f, encoded);
	x = oom_plain_lm_loss(t, x, false, t->m_bs);
	t->plan = real;
	return oom_leave(&f, x);
}

const struct oom_family oom_family_fsmt = {
	.name = "fsmt",
	.summary = "fairseq translation: encoder-decoder with two vocabularies",
	.source = "transformers 5.12 models/fsmt/modeling_fsmt.py",
	.types = OOM_TYPE("fsmt"),
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = fsmt_keys,
	.parse = fsmt_parse,
	.step = fsmt_step,
};
