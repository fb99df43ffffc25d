/* FSMT: fairseq's translation models.  Encoder and decoder with vocabularies of their own,
 * everything laid out as (tokens, batch, width), norms after, the decoder fed with the shifted
 * source (labels only meet the loss). Reference: transformers 5.12,
 * models/fsmt/modeling_fsmt.py. */
#include "blocks/encdec.h"

enum { SOURCE_VOCAB = ENCDEC_EXTRA };        /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->extra[SOURCE_VOCAB] = oom_read_count(r, "src_vocab_size", 1);
	a->vocab = oom_read_count(r, "tgt_vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r,
									  "encoder_attention_heads",
									  1);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_attention_heads", 1);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	a->extra[DEC_FF] = oom_read_count(r, "decoder_ffn_dim", 1);
	/* SinusoidalPositionalEmbedding(max_position_embeddings + padding_idx + 1): a parameter
	 * like any other */
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1) +
			   oom_read_count_or(r, "pad_token_id", 1) + 1;
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "activation_function", "relu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
}

struct stack {
	const struct oom_arch *a;
	struct oom_val causal, padding, encoded;        /* [t, t]; [b, s] */
	uint64_t heads, ff;
	bool decoder;
};

/* q, k and v are views of what the projections gave: bmm takes their strides. */
static struct oom_val attention(struct oom_tape *t, const struct stack *s, struct oom_val x,
				bool cross)
{
	const struct oom_dim h = {x.width, x.text}, heads = {s->heads, "n_heads"};
	struct oom_val src = cross ? oom_keep(s->encoded) : oom_keep(x), q, k, v, w, p, y;

	k = oom_op_linear(t, "k_proj", src, h, OOM_BIAS);
	v = oom_op_linear(t, "v_proj", src, h, OOM_BIAS);
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", oom_keep(x), h, OOM_BIAS));
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), oom_mono_mul(t, t->m_bs, t->m_s),
		       heads, h.n / s->heads);
	if (s->decoder && !cross)
		w = oom_op_add(t, w, oom_keep(s->causal));
	if (!oom_is_none(s->padding) && (!s->decoder || cross))
		w = oom_op_masked(t, "masked_fill", w, oom_keep(s->padding));
	w = oom_op_softmax(t, w, false);
	p = oom_op_dropout(t, oom_keep(w), s->a->attn_dropout);
	y = oom_op_bmm(t, "attention", oom_keep(p), oom_keep(v), t->m_bs, h,
		       oom_mono_now(t, t->m_s));
	y = oom_op_linear(t, "out_proj", oom_op_copy(t, "contiguous", y), h, OOM_BIAS);
	oom_drop(t, w);                         /* locals until the module returns */
	oom_drop(t, p);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	oom_done(t, x);
	return y;
}

static struct oom_val attend(struct oom_tape *t, const struct stack *s, struct oom_val x,
			     const char *norm, bool cross)
{
	struct oom_val h = oom_op_dropout(t, attention(t, s, oom_share(t, x), cross),
					  s->a->dropout);

	x.perm = false;
	return oom_op_layer_norm(t, norm, oom_op_add(t, x, h), 0, true, true);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_dim h = {x.width, x.text};
	struct oom_val y;

	(void)i;
	x = attend(t, s, x, "self_attn_layer_norm", false);
	if (s->decoder)
		x = attend(t, s, x, "encoder_attn_layer_norm", true);
	y = oom_activation(t, s->a->act,
			   oom_op_linear(t, "fc1", oom_keep(x), (struct oom_dim){s->ff, "ffn_dim"},
					 OOM_BIAS));
	y = oom_op_linear(t, "fc2", oom_op_dropout(t, y, s->a->act_dropout), h, OOM_BIAS);
	x = oom_op_add(t, x, oom_op_dropout(t, y, s->a->dropout));
	return oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
}

static struct oom_val run_stack(struct oom_tape *t, struct stack *s, struct oom_val embed,
				uint64_t vocab, struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	struct oom_val x, pos, first = oom_none();

	if (s->decoder) {
		pos = oom_op_embedding(t, "embed_positions",
				       oom_new(t, "position ids", t->m_bs, D(1), OOM_I64),
				       a->max_positions, D(a->d_model), 0);
		x = oom_op_embedding_param(t, embed, ids, vocab, D(a->d_model));
		x = oom_op_add_inplace(t, oom_op_unary(t, OOM_SCALE, oom_input_grads(t, x)),
				       oom_keep(pos));
	} else {
		x = oom_op_unary(t, OOM_SCALE,
				 oom_input_grads(t, oom_op_embedding_param(t, embed, ids, vocab,
									   D(a->d_model))));
		first = oom_share(t, x);        /* inputs_embeds */
		pos = oom_op_embedding(t, "embed_positions",
				       oom_new(t, "position ids", t->m_bs, D(1), OOM_I64),
				       a->max_positions, D(a->d_model), 0);
		x = oom_op_add(t, x, oom_keep(pos));
	}
	x = oom_op_dropout(t, x, a->dropout);
	/* transposed to (tokens, batch): the first projections copy it */
	x.perm = true;
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, block, s, x);
	oom_drop(t, pos);
	oom_drop(t, first);
	return x;
}

static struct oom_val translate(struct oom_tape *t, const struct oom_arch *a)
{
	struct stack enc = {.a = a,
			    .heads = a->extra[ENC_HEADS],
			    .ff = a->extra[ENC_FF],
			    .causal = oom_none(),
			    .padding = oom_none()};
	struct stack dec = {.a = a,
			    .heads = a->extra[DEC_HEADS],
			    .ff = a->extra[DEC_FF],
			    .padding = oom_none(),
			    .decoder = true};
	struct oom_val embed, dec_embed, ids, x, loss;

	t->scope = "encoder.embed_tokens";
	embed = dec_embed = oom_param(t, "weight", a->extra[SOURCE_VOCAB], a->d_model,
				      OOM_P_EMBEDDING);
	if (!a->tie) {
		t->scope = "decoder.embed_tokens";
		dec_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	ids = oom_new(t, "decoder input ids", t->m_bs, D(1), OOM_I64);
	dec.causal = oom_new(t, "causal mask", oom_mono_mul(t, t->m_s, t->m_s), D(1),
			     (enum oom_dtype)embed.dt);
	if (t->plan->padding_mask)
		enc.padding = oom_new(t, "padding mask", t->m_bs, D(1), OOM_U8);
	dec.encoded = run_stack(t, &enc, embed, a->extra[SOURCE_VOCAB],
				oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				a->extra[ENC_LAYERS]);
	oom_drop(t, enc.padding);
	if (t->plan->padding_mask)
		dec.padding = oom_new(t, "padding mask", t->m_bs, D(1), OOM_U8);
	x = run_stack(t, &dec, dec_embed, a->vocab, oom_keep(ids), a->dec_layers);
	oom_drop(t, dec.padding);
	/* back to (batch, tokens): the projection copies it */
	x.perm = true;
	x = oom_lm_head(t, a, x, dec_embed, "output_projection", false);
	oom_drop(t, dec.causal);                /* locals of the base model */
	oom_drop(t, ids);
	loss = oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, dec.encoded);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_plan plain = *t->plan;
	const struct oom_plan *real = t->plan;
	struct oom_val loss;

	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	if (plain.grad_ckpt != OOM_CKPT_NONE)
		t->warning = "transformers has no gradient checkpointing for this architecture: it "
			     "is modelled without";
	plain.grad_ckpt = OOM_CKPT_NONE;
	t->plan = &plain;
	loss = translate(t, a);
	t->plan = real;
	return loss;
}

const struct oom_family oom_family_fsmt = {
	.name = "fsmt",
	.summary = "fairseq translation: encoder-decoder with two vocabularies",
	.source = "transformers 5.12 models/fsmt/modeling_fsmt.py",
	.types = OOM_TYPE("fsmt"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
