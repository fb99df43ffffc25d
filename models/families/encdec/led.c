/* LED: BART with a Longformer encoder, whose tokens see a window around them.
 *
 * Global attention, which a batch asks for with a mask of its own, is not modelled.
 * Reference: transformers 5.12, models/led/modeling_led.py. */
#include "blocks/encdec.h"
#include "blocks/sparse.h"

enum { SOURCE = ENCDEC_EXTRA, WINDOW };     /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	oom_encdec_sizes(a);
	a->extra[SOURCE] = oom_read_count(r, "max_encoder_position_embeddings", 1);
	a->max_positions = oom_read_count(r, "max_decoder_position_embeddings", 1);
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[WINDOW] = oom_read_window(r, "attention_window", 512);
}

static uint16_t padded(struct oom_tape *t, const struct oom_arch *a, uint16_t m)
{
	return oom_len_round_up(t, m, a->extra[WINDOW]);
}

static struct oom_val window_attention(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = s->a;
	const struct oom_window w = {.width = a->extra[WINDOW],
				     .heads = s->heads,
				     .d = a->d_model / s->heads,
				     .masked = s->mask,
				     .dropout = a->attn_dropout};
	struct oom_val y = oom_window_attention(t, &w, x);

	(void)layer;
	(void)weights;
	y = oom_op_linear(t, "output", y, D(a->d_model), OOM_BIAS);
	oom_done(t, x);
	return y;
}

static struct oom_val run_stack(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	struct oom_val x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)), first,
		       pos;

	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	pos = oom_op_embedding(t, "embed_positions",
			       oom_new(t, "position ids", s->m_len, D(1), OOM_I64),
			       s->decoder ? a->max_positions : a->extra[SOURCE], D(a->d_model), 0);
	x = oom_op_layer_norm(t, "layernorm_embedding", oom_op_add(t, x, oom_keep(pos)), 0, true,
			      true);
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, oom_encdec_layer, s, x);
	oom_drop(t, pos);
	oom_drop(t, first);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_encdec enc = {.a = a,
				 .heads = a->extra[ENC_HEADS],
				 .ff = a->extra[ENC_FF],
				 .m_tokens = padded(t, a, t->m_b),
				 .m_len = padded(t, a, OOM_MONO_ONE),
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .self_attention = window_attention,
				 .flags = OOM_ED_CLAMP};
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = m_bt,
				 .m_len = m_t,
				 .m_src = t->m_bs,
				 .m_src_len = t->m_s,
				 .decoder = true,
				 .flags = OOM_ED_BMM};
	struct oom_val embed, enc_embed, dec_embed, x, ids, hidden, ones, bias;

	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	t->scope = "shared";
	embed = enc_embed = dec_embed = oom_param(t, "weight", a->vocab, a->d_model,
						  OOM_P_EMBEDDING | (a->tie ? 0 : OOM_P_UNUSED));
	if (!a->tie) {
		enc_embed = oom_param(t, "encoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
		dec_embed = oom_param(t, "decoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
	}
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	ones = oom_new(t, "attention mask", enc.m_tokens, D(1), OOM_I64);
	enc.mask = oom_new(t, "is_index_masked", enc.m_tokens, D(1), OOM_U8);
	x = run_stack(t, &enc, enc_embed, oom_input(t, "input_ids", enc.m_tokens, 1, OOM_I64),
		      a->extra[ENC_LAYERS]);
	oom_drop_shared(t, enc.mask);
	oom_drop(t, ones);
	if (oom_cond_more(t, enc.m_tokens, 1, t->m_bs, 1))
		x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	dec.encoded = x;
	dec.mask = oom_encdec_mask(t, dec.flags, true, (enum oom_dtype)embed.dt, m_t, m_t);
	dec.cross_mask = oom_encdec_mask(t, dec.flags, false, (enum oom_dtype)embed.dt, m_t,
					 t->m_s);
	x = run_stack(t, &dec, dec_embed, oom_keep(ids), a->dec_layers);
	oom_drop_shared(t, dec.mask);
	oom_drop_shared(t, dec.cross_mask);
	t->warning = "LED is counted without global attention, which a batch asks for with "
		     "global_attention_mask";
	hidden = oom_share(t, x);
	bias = oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab,
			 oom_plan_four_bit(t->plan) ? OOM_DT_BF16 : (enum oom_dtype)embed.dt);
	oom_buffer(t, a->vocab, (enum oom_dtype)bias.dt);
	x = oom_op_add(t, oom_lm_head(t, a, x, embed, "lm_head", false), bias);
	x = oom_plain_lm_loss(t, x, false, m_bt);
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return x;
}

const struct oom_family oom_family_led = {
	.name = "led",
	.summary = "BART with a Longformer encoder",
	.source = "transformers 5.12 models/led/modeling_led.py",
	.types = OOM_TYPE("led"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
