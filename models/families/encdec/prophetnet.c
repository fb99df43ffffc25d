/* ProphetNet: an encoder-decoder whose decoder predicts n tokens ahead in n more streams of hidden
 * states.
 *
 * The decoder's streams are carried side by side, (1 + n) x tokens; their attention over the main
 * stream and themselves is approximated as one over twice the tokens.
 * Reference: transformers 5.12, models/prophetnet/modeling_prophetnet.py. */
#include "blocks/encdec.h"

enum { NGRAM = ENCDEC_EXTRA, BUCKETS };     /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->extra[ENC_LAYERS] = oom_read_count(r, "num_encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "num_decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(
		r, "num_encoder_attention_heads", 1);
	a->extra[DEC_HEADS] = oom_read_count(r, "num_decoder_attention_heads", 1);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	a->extra[DEC_FF] = oom_read_count(r, "decoder_ffn_dim", 1);
	a->extra[NGRAM] = oom_read_count(r, "ngram", 1);
	a->extra[BUCKETS] = oom_read_count(r, "num_buckets", 1);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->extra[NGRAM] > 64)
		oom_read_fail(r, "ngram is more than 64");
}

static struct oom_val stream_attention(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x, struct oom_val *weights)
{
	const struct oom_dim wide = {s->a->extra[BUCKETS] * s->heads, "num_buckets * n_heads"};

	(void)layer;
	oom_drop(t, oom_op_linear(t, "relative_pos_embeddings", oom_keep(x), wide, OOM_BIAS));
	return oom_encdec_attention(t, s, x, false, weights);
}

static struct oom_val run_stack(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				struct oom_val ids, uint16_t m_len, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const struct oom_dim d = D(a->d_model);
	struct oom_val x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, d)),
		       pos;

	pos = oom_op_embedding(t, "position_embeddings",
			       oom_new(t, "position ids", m_len, D(1), OOM_I64), a->max_positions,
			       d, 0);
	x = oom_op_add(t, x, pos);
	/* the other streams start from the n-gram embeddings */
	if (s->decoder) {
		struct oom_val n = oom_param(t, "ngram_embeddings", a->extra[NGRAM], a->d_model,
					     OOM_P_EMBEDDING);

		x = oom_op_cat_into(t, x, n, s->m_tokens, d);
	}
	x = oom_op_layer_norm(t, "embeddings_layer_norm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	return oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, oom_encdec_layer, s, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool alone = t->task == OOM_TASK_CAUSAL_LM;
	const uint16_t m_t = alone ? t->m_s : oom_len_targets(t),
		       m_bt = oom_mono_mul(t, t->m_b, m_t);
	const uint16_t m_streams = oom_len_const(t, m_bt, 1 + a->extra[NGRAM]);
	const uint16_t m_predict = oom_len_const(t, m_bt, a->extra[NGRAM]);
	struct oom_encdec enc = {.a = a,
				 .heads = a->extra[ENC_HEADS],
				 .ff = a->extra[ENC_FF],
				 .m_tokens = t->m_bs,
				 .m_len = t->m_s,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .flags = OOM_ED_BMM};
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = m_streams,
				 .m_len = oom_len_const(t, m_t, 2),
				 .m_src = t->m_bs,
				 .m_src_len = t->m_s,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .decoder = true,
				 .alone = alone,
				 .self_attention = stream_attention,
				 .flags = OOM_ED_BMM};
	struct oom_val embed, enc_embed, dec_embed, x, ids, loss;

	if (!alone && t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and causal-lm", a->model_type);
		return oom_none();
	}
	t->warning = "ProphetNet's attention over its streams is approximated";
	t->scope = "word_embeddings";
	embed = enc_embed = dec_embed = oom_param(t, "weight", a->vocab, a->d_model,
						  OOM_P_EMBEDDING | (a->tie ? 0 : OOM_P_UNUSED));
	if (!a->tie) {
		if (!alone)
			enc_embed = oom_param(t, "encoder.word_embeddings", a->vocab, a->d_model,
					      OOM_P_EMBEDDING);
		dec_embed = oom_param(t, "decoder.word_embeddings", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
	}
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	if (!alone) {
		enc.mask = oom_make_written_mask(t, false, (enum oom_dtype)embed.dt, t->m_b, t->m_s,
						 t->m_s);
		dec.encoded = run_stack(t, &enc, enc_embed,
					oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), t->m_s,
					a->extra[ENC_LAYERS]);
		oom_drop_shared(t, enc.mask);
	}
	dec.mask = oom_make_written_mask(t, true, (enum oom_dtype)embed.dt, t->m_b, m_t, m_t);
	x = run_stack(t, &dec, dec_embed, oom_keep(ids), m_t, a->dec_layers);
	oom_drop_shared(t, dec.mask);
	x = oom_op_slice(t, x, m_predict, D(a->d_model));
	x = oom_op_copy(t, "contiguous", oom_lm_head(t, a, x, embed, "lm_head", false));
	loss = oom_plain_lm_loss(t, x, true, m_predict);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return loss;
}

const struct oom_family oom_family_prophetnet = {
	.name = "prophetnet",
	.summary = "encoder-decoder that predicts several tokens ahead",
	.source = "transformers 5.12 models/prophetnet/modeling_prophetnet.py",
	.types = OOM_TYPE("prophetnet"),
	.lora_targets = "query_proj+value_proj",
	.parse = parse,
	.step = step,
};
