/* Whisper and Speech2Text: convolutions over mel frames, then encoder and decoder layers of the
 * BART line.
 *
 * Whisper pads every clip to 2 x max_source_positions frames, so its encoder's memory does not
 * depend on seq_len, which counts labels; Speech2Text takes seq_len frames and tgt_len labels.
 * Reference: transformers 5.12, models/{whisper,speech_to_text}/modeling_*.py. */
#include <string.h>

#include "blocks/audio.h"
#include "blocks/encdec.h"

/* extra[] */
enum { SOURCE = ENCDEC_EXTRA, SUBSAMPLED, MID, CONVS, KERNELS };
enum { MAX_CONVS = 8 };

static void parse_convolutions(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[SUBSAMPLED] = true;
	a->extra[MID] = oom_read_count(r, "conv_channels", 2);
	a->extra[CONVS] = oom_read_count(r, "num_conv_layers", 1);
	a->frame = oom_read_count(r, "input_feat_per_channel", 1) *
		   oom_read_count(r, "input_channels", 1);
	if (a->extra[CONVS] > MAX_CONVS)
		oom_read_fail(r, "num_conv_layers is more than %d", MAX_CONVS);
	for (uint32_t i = 0; i < MAX_CONVS && i < a->extra[CONVS]; i++) {
		const double k = oom_read_item_real(r, "conv_kernel_sizes", i, 0);

		if (!(k >= 1 && k <= 1024))
			oom_read_fail(r, "conv_kernel_sizes must list %d numbers from 1 to 1024",
				      (int)a->extra[CONVS]);
		else
			a->extra[KERNELS + i] = (uint64_t)k;
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	oom_encdec_sizes(a);
	a->extra[SOURCE] = oom_read_count(r, "max_source_positions", 1);
	a->max_positions = oom_read_count(r, "max_target_positions", 1);
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->extra[SOURCE] > 1 << 24)
		oom_read_fail(r, "max_source_positions is more than 2^24");
	if (!strcmp(a->model_type, "whisper")) {
		a->frame = oom_read_count(r, "num_mel_bins", 1);
		a->frames = 2 * a->extra[SOURCE];
	} else {
		parse_convolutions(a);
	}
}

/* The sinusoidal table of Speech2Text: a buffer, indexed without a gradient. */
static struct oom_val table_positions(struct oom_tape *t, const struct oom_arch *a,
				      uint16_t m_tokens, uint64_t rows)
{
	const enum oom_dtype dt = oom_plan_four_bit(t->plan) ||
						  oom_plan_stores(t->plan) == OOM_BF16 ?
					  OOM_DT_BF16 :
				  oom_plan_stores(t->plan) == OOM_FP16 ? OOM_DT_F16 :
								   OOM_F32;
	struct oom_val ids = oom_new(t, "position ids", m_tokens, D(1), OOM_I64), pos;

	oom_buffer(t, (rows + 2) * a->d_model, dt);
	pos = oom_new(t, "embed_positions", m_tokens, D(a->d_model), dt);
	oom_drop(t, ids);
	return pos;
}

/* gelu(conv1), gelu(conv2) over the whole clip, fixed positions. */
static struct oom_val whisper_stem(struct oom_tape *t, const struct oom_arch *a,
				   const struct oom_encdec *s, struct oom_val held[2])
{
	const struct oom_conv1d conv1 = {.in = a->frame,
					 .out = a->d_model,
					 .kernel = 3,
					 .bias = true};
	const struct oom_conv1d conv2 = {.in = a->d_model,
					 .out = a->d_model,
					 .kernel = 3,
					 .bias = true};
	const uint16_t m_mel = oom_len_const(t, t->m_b, a->frames);
	struct oom_val x = oom_op_conv1d(t, "conv1", oom_features(t, a, m_mel), &conv1, m_mel), ids,
		       pos;

	x = oom_op_unary(t, OOM_GELU, oom_input_grads(t, x));
	x = oom_op_unary(t, OOM_GELU, oom_op_conv1d(t, "conv2", x, &conv2, s->m_tokens));
	ids = oom_new(t, "all positions", s->m_len, D(1), OOM_I64);
	pos = oom_op_embedding(t, "embed_positions", oom_keep(ids), a->extra[SOURCE], D(a->d_model),
			       OOM_P_FROZEN);
	held[0] = oom_share(t, x);              /* inputs_embeds, all_positions */
	held[1] = ids;
	return oom_op_add(t, x, pos);
}

/* conv, glu, conv, glu, each halving the frames; scale; sinusoidal positions. */
static struct oom_val subsample(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_encdec *s, struct oom_val held[2])
{
	struct oom_val x = oom_op_copy(t, "contiguous", oom_features(t, a, t->m_bs));

	for (uint64_t i = 0; i < a->extra[CONVS]; i++) {
		const bool last = i + 1 == a->extra[CONVS];
		const struct oom_conv1d c = {.in = i ? a->extra[MID] / 2 : a->frame,
					     .out = last ? 2 * a->d_model : a->extra[MID],
					     .kernel = a->extra[KERNELS + i],
					     .bias = true};

		x = oom_op_glu(t, oom_op_conv1d(t, "conv_layers", x, &c,
						oom_len_ceil(t, t->m_b, (uint64_t)2 << i)));
	}
	x = oom_op_unary(t, OOM_SCALE, oom_op_copy(t, "contiguous", x));
	held[0] = oom_share(t, x);              /* inputs_embeds, embed_pos */
	held[1] = table_positions(t, a, s->m_tokens, a->extra[SOURCE]);
	return oom_op_add(t, x, oom_keep(held[1]));
}

static struct oom_val run_encoder(struct oom_tape *t, struct oom_encdec *s)
{
	const struct oom_arch *a = s->a;
	struct oom_val x, held[2], zeros = oom_none();

	t->scope = "encoder";
	x = a->extra[SUBSAMPLED] ? subsample(t, a, s, held) : whisper_stem(t, a, s, held);
	if (a->extra[SUBSAMPLED]) {
		zeros = oom_new(t, "padding mask", s->m_tokens, D(1), OOM_I64);
		s->mask = oom_encdec_mask(t, s->flags, false, (enum oom_dtype)held[0].dt, s->m_len,
					  s->m_len);
	}
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->extra[ENC_LAYERS]), NULL, oom_encdec_layer, s,
		       x);
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop_shared(t, s->mask);
	oom_drop(t, zeros);
	oom_drop(t, held[0]);
	oom_drop(t, held[1]);
	return x;
}

static struct oom_val run_decoder(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				  struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	struct oom_val x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab,
								     D(a->d_model))),
		       first, pos, at = oom_none();

	if (a->extra[SUBSAMPLED]) {
		x = oom_op_unary(t, OOM_SCALE, x);
		first = oom_share(t, x);
		pos = table_positions(t, a, s->m_tokens, a->max_positions);
	} else {                                /* weight[position_ids] */
		struct oom_val w;

		first = oom_share(t, x);
		at = oom_new(t, "position ids", s->m_tokens, D(1), OOM_I64);
		t->scope = "embed_positions";
		w = oom_param(t, "weight", a->max_positions, a->d_model, OOM_P_EMBEDDING);
		pos = oom_op_gather(t, "index", w, oom_keep(at), s->m_tokens, D(a->d_model));
	}
	x = oom_op_dropout(t, oom_op_add(t, x, oom_keep(pos)), a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->dec_layers), NULL, oom_encdec_layer, s, x);
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop_shared(t, s->mask);
	oom_drop_shared(t, s->cross_mask);
	oom_drop(t, pos);
	oom_drop(t, at);
	oom_drop(t, first);
	return x;
}

/* proj_out and the loss; the base model's output lives as long. */
static struct oom_val lm_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val embed, uint16_t m_tokens)
{
	const char *name = a->extra[SUBSAMPLED] ? "lm_head" : "proj_out";
	struct oom_val hidden;

	if (oom_fuses_head(t) && t->task == OOM_TASK_CAUSAL_LM)
		return oom_fused_ce(t, a, x, embed, name);
	hidden = oom_share(t, x);
	x = oom_lm_head(t, a, x, embed, name, false);
	x = oom_plain_lm_loss(t, x, false, m_tokens);
	oom_drop(t, hidden);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool alone = t->task == OOM_TASK_CAUSAL_LM, sub = a->extra[SUBSAMPLED];
	const unsigned flags = OOM_ED_PRE_NORM | OOM_ED_CLAMP |
			       (sub ? OOM_ED_EAGER : OOM_ED_CONTIGUOUS);
	const uint16_t m_t = alone ? t->m_s : oom_len_targets_min(t, a->max_positions);
	const uint16_t m_bt = oom_mono_mul(t, t->m_b, m_t);
	const uint16_t m_len = sub ? oom_len_ceil(t, OOM_MONO_ONE, (uint64_t)1 << a->extra[CONVS]) :
				     oom_len_const(t, OOM_MONO_ONE, a->extra[SOURCE]);
	struct oom_encdec enc = {.a = a,
				 .heads = a->extra[ENC_HEADS],
				 .ff = a->extra[ENC_FF],
				 .m_tokens = oom_mono_mul(t, t->m_b, m_len),
				 .m_len = m_len,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .flags = flags};
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = m_bt,
				 .m_len = m_t,
				 .m_src = enc.m_tokens,
				 .m_src_len = m_len,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .decoder = true,
				 .alone = alone,
				 .flags = flags};
	struct oom_plan no_mask = *t->plan;
	const struct oom_plan *real = t->plan;
	struct oom_val embed, x, ids = oom_input(t, "input_ids", m_bt, 1, OOM_I64), loss;

	if (t->task != OOM_TASK_SEQ2SEQ && (sub || !alone)) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq%s",
			      a->model_type, sub ? "" : " and, its decoder, causal-lm");
		return oom_none();
	}
	if (!alone) {
		ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
		dec.encoded = run_encoder(t, &enc);
		if (oom_cond_above(t, oom_len_targets(t), a->max_positions))
			t->warning = "more labels than max_target_positions: they are cut there";
	}
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	no_mask.padding_mask = false;           /* Whisper's attention_mask is not the decoder's */
	if (!alone && !sub)
		t->plan = &no_mask;
	dec.mask = oom_encdec_mask(t, flags, true, (enum oom_dtype)embed.dt, m_t, m_t);
	t->plan = real;
	if (sub)
		dec.cross_mask = oom_encdec_mask(t, flags, false, (enum oom_dtype)embed.dt, m_t,
						 m_len);
	x = run_decoder(t, &dec, embed, alone ? ids : oom_keep(ids));
	loss = lm_tail(t, a, x, embed, m_bt);
	oom_returns_shared(t, dec.encoded);
	if (!alone)
		oom_drop(t, ids);
	return loss;
}

static const struct oom_family_type types[] = {
	{"whisper", NULL}, {"speech_to_text", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_whisper = {
	.name = "whisper",
	.summary = "speech encoder over mel frames, text decoder",
	.source = "transformers 5.12 models/whisper/modeling_whisper.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
