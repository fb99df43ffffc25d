/* LED: BART with a Longformer encoder, whose tokens see a window around them.
 *
 * Global attention, which a batch asks for with a mask of its own, is not modelled.
 * Reference: transformers 5.12, models/led/modeling_led.py. */
#include "blocks/encdec.h"
#include "blocks/sparse.h"
#include "config/keys.h"

struct led {
	uint64_t source_positions, window;
};
OOM_OWN(led, struct led);

static const struct oom_key_row led_keys[] = {
	OOM_ENCDEC_KEYS, MUST_OWN(struct led, source_positions, "max_encoder_position_embeddings"),
	MUST(max_positions, "max_decoder_position_embeddings"),
	ACT(act, "activation_function", "gelu"), OOM_ENCDEC_DROPOUT_KEYS(0.1),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void led_parse(struct oom_arch *a)
{
	led_own(a)->window = oom_read_window(&a->rd, "attention_window", 512);
}

static struct oom_val led_attention(struct oom_tape *t, const struct oom_encdec *s, uint32_t layer,
				    struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = s->a;
	const struct oom_window w = {.width = led_of(a)->window, .heads = s->heads,
				     .d = a->d_model / s->heads, .masked = s->mask,
				     .dropout = a->attn_dropout};
	struct oom_frame f = {.t = t};

	(void)layer;
	(void)weights;
	x = oom_window_attention(t, &w, oom_arg(&f, x));
	return oom_leave(&f, oom_op_linear(t, "output", x, D(a->d_model), OOM_BIAS));
}

static struct oom_val led_stack(struct oom_tape *t, const struct oom_encdec *s,
				struct oom_val embed, struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	const uint64_t rows = s->decoder ? a->max_positions : led_of(a)->source_positions;
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_name(&f, oom_input_grads(t, x));
	pos = oom_op_embedding(t, "embed_positions",
			       oom_new(t, "position ids", s->m_len, D(1), OOM_I64), rows,
			       D(a->d_model), 0);
	pos = oom_name(&f, pos);
	x = oom_op_layer_norm(t, "layernorm_embedding", oom_op_add(t, x, pos), 0, true, true);
	return oom_leave(&f, oom_encdec_layers(t, s, oom_op_dropout(t, x, a->dropout)));
}

/* LEDEncoder.forward on sequences padded to whole windows. */
static struct oom_val led_encoder(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val embed)
{
	const struct oom_encdec_kind kind = {.clamp = true};
	struct oom_encdec enc = oom_encoder_stack(t, a, &kind);
	struct oom_frame f = {.t = t};
	struct oom_val x;

	enc.m_tokens = oom_len_round_up(t, t->m_b, led_of(a)->window);
	enc.m_len = oom_len_round_up(t, OOM_MONO_ONE, led_of(a)->window);
	enc.self_attention = led_attention;
	/* a row of the whole mask, of which the layers are given a view, and what is masked and what is global in it */
	oom_name_shared(&f, oom_new(t, "attention mask", oom_mono_mul(t, enc.m_tokens, enc.m_len), D(1),
				    (enum oom_dtype)embed.dt));
	oom_name_shared(&f, oom_new(t, "is_index_global_attn", enc.m_tokens, D(1), OOM_U8));
	enc.mask = oom_new(t, "is_index_masked", enc.m_tokens, D(1), OOM_U8);
	enc.mask = oom_name_shared(&f, enc.mask);
	x = led_stack(t, &enc, embed, oom_input(t, "input_ids", enc.m_tokens, 1, OOM_I64));
	x = oom_leave(&f, x);
	if (oom_cond_more(t, enc.m_tokens, 1, t->m_bs, 1))
		x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	return x;
}

static struct oom_val led_decoder(struct oom_tape *t, struct oom_encdec *dec, struct oom_val embed,
				  struct oom_val ids)
{
	struct oom_frame f = {.t = t};

	oom_encdec_masks(&f, dec, (enum oom_dtype)embed.dt);
	return oom_leave(&f, led_stack(t, dec, embed, ids));
}

static struct oom_val led_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_BMM};
	struct oom_encdec dec = oom_decoder_stack(t, a, &kind, oom_len_targets(t));
	struct oom_encdec_tables e;
	struct oom_frame f = {.t = t};
	struct oom_val x, ids, bias;

	if (!oom_seq2seq_only(t, a))
		return oom_none();
	oom_tape_warn(t, "LED is counted without global attention, which a batch asks for with "
		     "global_attention_mask");
	e = oom_encdec_tables(t, a, NULL, true);
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	dec.encoded = oom_name_shared(&f, led_encoder(t, a, e.encoder));
	x = oom_name(&f, led_decoder(t, &dec, e.decoder, ids));
	bias = oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab,
			 oom_plan_four_bit(t->plan) ? OOM_DT_BF16 : (enum oom_dtype)e.shared.dt);
	oom_buffer(t, a->vocab, (enum oom_dtype)bias.dt);
	x = oom_op_add(t, oom_lm_head(t, a, x, e.shared, "lm_head", false), bias);
	x = oom_plain_lm_loss(t, x, false, dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_led = {
	.name = "led",
	.summary = "BART with a Longformer encoder",
	.source = "transformers 5.12 models/led/modeling_led.py",
	.types = OOM_TYPE("led"),
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = led_keys,
	.parse = led_parse,
	.step = led_step,
};
