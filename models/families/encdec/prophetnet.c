/* ProphetNet: an encoder-decoder whose decoder predicts n tokens ahead in n more streams of hidden
 * states.
 *
 * The decoder's streams are carried side by side, (1 + n) x tokens; their attention over the main
 * stream and themselves is approximated as one over twice the tokens.
 * Reference: transformers 5.12, models/prophetnet/modeling_prophetnet.py. */
#include "blocks/encdec.h"
#include "config/keys.h"

struct prophetnet {
	uint64_t ngram, buckets;
};
OOM_OWN(prophetnet, struct prophetnet);

static const struct oom_key_row prophetnet_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	MUST(enc_layers, "num_encoder_layers"), MUST(dec_layers, "num_decoder_layers"),
	LIKE(n_layers, NULL, 1, dec_layers), MUST(n_heads, "num_encoder_attention_heads"),
	MUST(dec_heads, "num_decoder_attention_heads"), MUST(d_ff, "encoder_ffn_dim"),
	MUST(dec_ff, "decoder_ffn_dim"), MUST_OWN(struct prophetnet, ngram, "ngram"),
	MUST_OWN(struct prophetnet, buckets, "num_buckets"),
	MUST(max_positions, "max_position_embeddings"), ACT(act, "activation_function", "gelu"),
	REAL(dropout, "dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0.1),
	REAL(act_dropout, "activation_dropout", 0.1), FLAG(tie, "tie_word_embeddings", true),
	OOM_KEYS_END};

static void prophetnet_parse(struct oom_arch *a)
{
	if (prophetnet_of(a)->ngram > 64)
		oom_read_fail(&a->rd, "ngram is more than 64");
}

static struct oom_val stream_attention(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x, struct oom_val *weights)
{
	const struct oom_dim wide = {prophetnet_of(s->a)->buckets * s->heads,
				     "num_buckets * n_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val p;

	(void)layer;
	x = oom_arg(&f, x);
	p = oom_name(&f, oom_op_linear(t, "relative_pos_embeddings", x, wide, OOM_BIAS));
	oom_forget(&f, p);
	return oom_encdec_attention(t, s, oom_take(&f, x), false, weights);
}

static struct oom_val prophetnet_stack(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val embed, struct oom_val ids, uint16_t m_len)
{
	const struct oom_arch *a = s->a;
	const struct oom_dim d = D(a->d_model);
	struct oom_val x, pos;

	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, d));
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_new(t, "position ids", m_len, D(1), OOM_I64), a->max_positions,
			       d, 0);
	x = oom_op_add(t, x, pos);
	/* the other streams start from the n-gram embeddings */
	if (s->decoder)
		x = oom_op_cat_into(t, x,
				    oom_param(t, "ngram_embeddings", prophetnet_of(a)->ngram,
					      a->d_model, OOM_P_EMBEDDING),
				    s->m_tokens, d);
	x = oom_op_layer_norm(t, "embeddings_layer_norm", x, 0, true, true);
	return oom_encdec_layers(t, s, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val prophetnet_encoder(struct oom_tape *t, const struct oom_arch *a,
					 const struct oom_encdec_kind *kind, struct oom_val embed)
{
	struct oom_encdec enc = oom_encoder_stack(t, a, kind);
	struct oom_frame f = {.t = t};

	enc.mask = oom_name_shared(&f, oom_encdec_mask(t, &enc, false, (enum oom_dtype)embed.dt,
						       t->m_s, t->m_s));
	return oom_leave(&f, prophetnet_stack(t, &enc, embed,
					      oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
					      t->m_s));
}

static struct oom_val prophetnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	static const char *const names[3] = {"word_embeddings", "encoder.word_embeddings",
					     "decoder.word_embeddings"};
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_BMM};
	const bool alone = t->task == OOM_TASK_CAUSAL_LM;
	const uint16_t m_t = alone ? t->m_s : oom_len_targets(t);
	struct oom_encdec dec = oom_decoder_stack(t, a, &kind, m_t);
	const uint16_t m_bt = dec.m_tokens,
		       m_predict = oom_len_const(t, m_bt, prophetnet_of(a)->ngram);
	struct oom_encdec_tables e;
	struct oom_frame f = {.t = t};
	struct oom_val x, ids;

	if (!alone && t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and causal-lm", a->model_type);
		return oom_none();
	}
	oom_tape_warn(t, "ProphetNet's attention over its streams is approximated");
	dec.m_tokens = oom_len_const(t, m_bt, 1 + prophetnet_of(a)->ngram);
	dec.m_len = oom_len_const(t, m_t, 2);
	dec.alone = alone;
	dec.self_attention = stream_attention;
	e = oom_encdec_tables(t, a, names, !alone);
	ids = oom_name(&f, oom_decoder_ids(t, m_bt));
	if (!alone)
		dec.encoded = oom_name_shared(&f, prophetnet_encoder(t, a, &kind, e.encoder));
	dec.mask = oom_encdec_mask(t, &dec, true, (enum oom_dtype)e.shared.dt, m_t, m_t);
	dec.mask = oom_name_shared(&f, dec.mask);
	x = prophetnet_stack(t, &dec, e.decoder, ids, m_t);
	oom_forget(&f, dec.mask);
	x = oom_op_slice(t, x, m_predict, D(a->d_model));
	x = oom_op_copy(t, "contiguous", oom_lm_head(t, a, x, e.shared, "lm_head", false));
	x = oom_plain_lm_loss(t, x, true, m_predict);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_prophetnet = {
	.name = "prophetnet",
	.summary = "encoder-decoder that predicts several tokens ahead",
	.source = "transformers 5.12 models/prophetnet/modeling_prophetnet.py",
	.types = OOM_TYPE("prophetnet"),
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = prophetnet_keys,
	.parse = prophetnet_parse,
	.step = prophetnet_step,
};
