/* LED: BART with a Longformer encoder, whose tokens see a window around them.
 *
 * The window's scores are computed in overlapping chunks of twice its half (2s - window rows in
 * all); global attention, which a batch asks for with a mask of its own, is not modelled.
 * Reference: transformers 5.12, models/led/modeling_led.py. */
#include "../encdec.h"

enum { ENC_FF, DEC_FF, ENC_HEADS, DEC_HEADS, ENC_LAYERS, SOURCE, WINDOW };     /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "attention_window");

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r,
									  "encoder_attention_heads",
									  1);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_attention_heads", 1);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	a->extra[DEC_FF] = oom_read_count(r, "decoder_ffn_dim", 1);
	a->extra[SOURCE] = oom_read_count(r, "max_encoder_position_embeddings", 1);
	a->max_positions = oom_read_count(r, "max_decoder_position_embeddings", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[WINDOW] = 512;
	if (k && k->type == OOM_KEY_LIST) {     /* a size a layer: the first one stands for all */
		const double w = oom_read_item_real(r, "attention_window", 0, 512);

		a->extra[WINDOW] = w >= 2 && w <= 1 << 20 ? (uint64_t)w : 0;
	} else if (k) {
		a->extra[WINDOW] = oom_read_count(r, "attention_window", 2);
	}
	if (a->extra[WINDOW] < 2 || a->extra[WINDOW] % 2 || a->extra[WINDOW] > 1 << 20)
		oom_read_fail(r, "attention_window must be even numbers from 2 to 2^20");
}

/* Sequences are padded to whole windows. */
static uint16_t padded(struct oom_tape *t, const struct oom_arch *a, uint16_t m)
{
	return oom_mono_of(t, m, OOM_VAR_S, 1, (uint32_t)a->extra[WINDOW]);
}

/* The overlapping chunks hold 2 x (s - window / 2) rows. */
static uint16_t chunked(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_mono_of(t, t->m_b, OOM_VAR_S, 5, (uint32_t)(a->extra[WINDOW] / 2));
}

/* One product of queries and keys in chunks of a window, its band laid out as (tokens, heads,
 * window + 1). */
static struct oom_val band(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
			   struct oom_val k, uint64_t heads, uint64_t d)
{
	const uint64_t w = a->extra[WINDOW];
	const uint16_t m_rows = chunked(t, a);
	struct oom_val y;

	q = oom_op_expand_copy(t, q, m_rows,
			       (struct oom_dim){2 * heads * d, "2 * n_heads * head_dim"});
	k = oom_op_expand_copy(t, k, m_rows,
			       (struct oom_dim){2 * heads * d, "2 * n_heads * head_dim"});
	y = oom_op_bmm(t, "chunked scores", q, k, m_rows,
		       (struct oom_dim){2 * heads * w, "2 * n_heads * window"}, d);
	y = oom_op_expand_copy(t, y, m_rows,
			       (struct oom_dim){2 * heads * (w + 1), "2 * n_heads * (window + 1)"});
	y = oom_op_expand_copy(t, y, padded(t, a, t->m_b),
			       (struct oom_dim){heads * (w + 1), "n_heads * (window + 1)"});
	/* what lies before the first token and after the last */
	for (int i = 0; i < 2; i++)
		y = oom_op_masked_inplace(
			t, y,
			oom_new(t, "outside", t->m_b,
				(struct oom_dim){w / 2 * heads * (w / 2 + 1), NULL}, OOM_U8));
	return y;
}

static struct oom_val window_attention(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = s->a;
	const uint64_t w = a->extra[WINDOW], heads = s->heads, d = a->d_model / heads;
	const struct oom_dim h = {a->d_model, "d_model"};
	const uint16_t m_tokens = padded(t, a, t->m_b);
	struct oom_val turned = x, q, k, v, y, mask, out;

	(void)layer;
	(void)weights;
	turned.perm = true;                     /* (tokens, batch): every projection copies it */
	q = oom_op_linear(t, "query", oom_keep(turned), h, OOM_BIAS);
	k = oom_op_linear(t, "key", oom_keep(turned), h, OOM_BIAS);
	v = oom_op_linear(t, "value", oom_keep(turned), h, OOM_BIAS);
	oom_linear_unused(t, "query_global", h.n, h.n, OOM_BIAS);
	oom_linear_unused(t, "key_global", h.n, h.n, OOM_BIAS);
	oom_linear_unused(t, "value_global", h.n, h.n, OOM_BIAS);
	q = oom_op_unary(t, OOM_SCALE, q);
	y = band(t, a, oom_keep(q), oom_keep(k), heads, d);
	mask = oom_new(t, "float mask", m_tokens, D(1), (enum oom_dtype)y.dt);
	out = band(t, a, oom_op_copy(t, "ones", oom_keep(mask)), oom_keep(mask), 1, 1);
	y = oom_op_add_inplace(t, y, oom_keep(out));
	y = oom_op_softmax(t, y, true);
	y = oom_op_masked(t, "masked_fill", y, oom_keep(s->mask));
	y = oom_op_dropout(t, oom_op_cast(t, y, (enum oom_dtype)q.dt), a->attn_dropout);
	{
		struct oom_val p = oom_op_expand_copy(t, oom_keep(y), m_tokens,
						      (struct oom_dim){heads * (3 * w / 2 + 2),
								       NULL}),
			       e;

		e = oom_op_expand_copy(t, oom_keep(v),
				       oom_mono_of(t, t->m_b, OOM_VAR_S, 3, (uint32_t)w), h);
		e = oom_op_expand_copy(t, e, m_tokens, (struct oom_dim){3 * h.n, "3 * d_model"});
		p = oom_op_bmm(t, "context", p, e, m_tokens, h, 3 * w / 2);
		p = oom_op_copy(t, "contiguous", p);
		p.perm = true;
		oom_drop(t, y);
		y = p;
	}
	y = oom_op_linear(t, "output", y, h, OOM_BIAS);
	oom_drop(t, out);
	oom_drop(t, mask);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
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
	const uint16_t m_t = oom_mono_of(t, OOM_MONO_ONE, OOM_VAR_T, 0, 0),
		       m_bt = oom_mono_mul(t, t->m_b, m_t);
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

	if (a->task != OOM_TASK_SEQ2SEQ) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
					  "%s is modelled for the task seq2seq", a->model_type);
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
	hidden = oom_share(t, x);
	bias = oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab,
			 t->plan->qlora ? OOM_DT_BF16 : (enum oom_dtype)embed.dt);
	oom_buffer(t, a->vocab, (enum oom_dtype)bias.dt);
	x = oom_op_add(t, oom_lm_head(t, a, x, embed, "lm_head", false), bias);
	x = oom_plain_lm_loss(t, x, false, m_bt);
	oom_drop(t, hidden);
	oom_drop_shared(t, dec.encoded);
	oom_drop(t, ids);
	return x;
}

static const char *const types[] = {"led", NULL};

const struct oom_family oom_family_led = {
	.name = "led",
	.summary = "BART with a Longformer encoder",
	.source = "transformers 5.12 models/led/modeling_led.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
