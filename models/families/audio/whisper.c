/* Whisper and Speech2Text: convolutions over mel frames, then encoder and decoder layers of the
 * BART line.
 *
 * Whisper pads every clip to 2 x max_source_positions frames, so its encoder's memory does not
 * depend on seq_len, which counts labels; Speech2Text takes seq_len frames and tgt_len labels.
 * Reference: transformers 5.12, models/{whisper,speech_to_text}/modeling_*.py. */
#include "blocks/audio.h"
#include "blocks/encdec.h"
#include "config/keys.h"

struct whisper_kind {
	struct oom_encdec_kind layer;
	bool subsampled;        /* convolutions halve the frames of any clip (Speech2Text) */
	bool causal;            /* the decoder has a class of its own */
	const char *head;
};
static const struct whisper_kind whisper = {
	.layer = {.kernel = OOM_ED_CONTIGUOUS, .pre_norm = true, .clamp = true},
	.causal = true,
	.head = "proj_out"};
static const struct whisper_kind speech_to_text = {
	.layer = {.kernel = OOM_ED_MATMUL, .pre_norm = true, .clamp = true},
	.subsampled = true,
	.head = "lm_head"};
static const struct oom_family_type whisper_types[] = {
	{"whisper", &whisper}, {"speech_to_text", &speech_to_text}, {NULL, NULL},
};
static const struct whisper_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

enum { MAX_CONVS = 8 };
struct whisper {
	uint64_t source_positions;
	uint64_t mid, convs, kernels[MAX_CONVS];        /* of subsampling */
};
OOM_OWN(whisper, struct whisper);

static const struct oom_key_row whisper_keys[] = {
	OOM_ENCDEC_KEYS, MUST_OWN(struct whisper, source_positions, "max_source_positions"),
	MUST(max_positions, "max_target_positions"), ACT(act, "activation_function", "gelu"),
	OOM_ENCDEC_DROPOUT_KEYS(0), FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void parse_convolutions(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct whisper *own = whisper_own(a);

	own->mid = oom_read_count(r, "conv_channels", 2);
	own->convs = oom_read_count(r, "num_conv_layers", 1);
	a->frame = oom_read_count(r, "input_feat_per_channel", 1) *
		   oom_read_count(r, "input_channels", 1);
	if (own->convs > MAX_CONVS)
		oom_read_fail(r, "num_conv_layers is more than %d", MAX_CONVS);
	for (uint32_t i = 0; i < MAX_CONVS && i < own->convs; i++) {
		const double k = oom_read_item_real(r, "conv_kernel_sizes", i, 0);

		if (!(k >= 1 && k <= 1024))
			oom_read_fail(r, "conv_kernel_sizes must list %d numbers from 1 to 1024",
				      (int)own->convs);
		else
			own->kernels[i] = (uint64_t)k;
	}
}

static void whisper_parse(struct oom_arch *a)
{
	const uint64_t positions = whisper_of(a)->source_positions;

	if (positions > 1 << 24)
		oom_read_fail(&a->rd, "max_source_positions is more than 2^24");
	if (kind_of(a)->subsampled) {
		parse_convolutions(a);
	} else {
		a->frame = oom_read_count(&a->rd, "num_mel_bins", 1);
		a->frames = 2 * positions;
	}
}

/* The sinusoidal table of Speech2Text: a buffer, indexed without a gradient. */
static struct oom_val table_positions(struct oom_tape *t, const struct oom_arch *a,
				      uint16_t m_tokens, uint64_t rows)
{
	const enum oom_dtype dt = oom_loaded_dtype(t->plan);
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new(t, "position ids", m_tokens, D(1), OOM_I64));
	oom_buffer(t, (rows + 2) * a->d_model, dt);
	return oom_leave(&f, oom_new(t, "embed_positions", m_tokens, D(a->d_model), dt));
}

/* gelu(conv1), gelu(conv2) over the whole clip, fixed positions. */
static struct oom_val whisper_stem(struct oom_frame *f, const struct oom_encdec *s)
{
	const struct oom_arch *a = s->a;
	const struct oom_conv1d conv1 = {
		.in = a->frame, .out = a->d_model, .kernel = 3, .bias = true};
	const struct oom_conv1d conv2 = {
		.in = a->d_model, .out = a->d_model, .kernel = 3, .bias = true};
	struct oom_tape *t = f->t;
	const uint16_t m_mel = oom_len_const(t, t->m_b, a->frames);
	struct oom_val x, ids, pos;

	x = oom_op_conv1d(t, "conv1", oom_features(t, a, m_mel), &conv1, m_mel);
	x = oom_op_unary(t, OOM_GELU, oom_input_grads(t, x));
	x = oom_op_unary(t, OOM_GELU, oom_op_conv1d(t, "conv2", x, &conv2, s->m_tokens));
	x = oom_name(f, x);                     /* inputs_embeds, all_positions */
	ids = oom_name(f, oom_new(t, "all positions", s->m_len, D(1), OOM_I64));
	pos = oom_op_embedding(t, "embed_positions", ids, whisper_of(a)->source_positions,
			       D(a->d_model), OOM_P_FROZEN);
	return oom_op_add(t, x, pos);
}

/* conv, glu, conv, glu, each halving the frames; scale; sinusoidal positions. */
static struct oom_val subsample(struct oom_frame *f, const struct oom_encdec *s)
{
	const struct oom_arch *a = s->a;
	const struct whisper *own = whisper_of(a);
	struct oom_tape *t = f->t;
	struct oom_val x = oom_op_copy(t, "contiguous", oom_features(t, a, t->m_bs)), pos;

	for (uint64_t i = 0; i < own->convs; i++) {
		const struct oom_conv1d c = {
			.in = i ? own->mid / 2 : a->frame,
			.out = i + 1 == own->convs ? 2 * a->d_model : own->mid,
			.kernel = own->kernels[i],
			.bias = true};

		x = oom_op_glu(t, oom_op_conv1d(t, "conv_layers", x, &c,
						oom_len_ceil(t, t->m_b, (uint64_t)2 << i)));
	}
	x = oom_op_unary(t, OOM_SCALE, oom_op_copy(t, "contiguous", x));
	x = oom_name(f, x);                     /* inputs_embeds, embed_pos */
	pos = oom_name(f, table_positions(t, a, s->m_tokens, own->source_positions));
	x = oom_op_add(t, x, pos);
	oom_name(f, oom_new(t, "padding mask", s->m_tokens, D(1), OOM_I64));
	return x;
}

static struct oom_val run_encoder(struct oom_tape *t, struct oom_encdec *s)
{
	const bool sub = kind_of(s->a)->subsampled;
	struct oom_frame f = {.t = t};
	struct oom_val x;

	t->scope = "encoder";
	x = sub ? subsample(&f, s) : whisper_stem(&f, s);
	if (sub)
		s->mask = oom_name_shared(&f, oom_encdec_mask(t, s, false, (enum oom_dtype)x.dt,
							      s->m_len, s->m_len));
	x = oom_encdec_layers(t, s, oom_op_dropout(t, x, s->a->dropout));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
}

/* Whisper's: weight[position_ids]. */
static struct oom_val indexed_positions(struct oom_frame *f, const struct oom_encdec *s)
{
	const struct oom_arch *a = s->a;
	struct oom_tape *t = f->t;
	struct oom_val ids, w;

	ids = oom_name(f, oom_new(t, "position ids", s->m_tokens, D(1), OOM_I64));
	t->scope = "embed_positions";
	w = oom_param(t, "weight", a->max_positions, a->d_model, OOM_P_EMBEDDING);
	return oom_op_gather(t, "index", w, ids, s->m_tokens, D(a->d_model));
}

/* The decoder's masks; Whisper's attention_mask is not the decoder's. */
static void decoder_masks(struct oom_frame *f, struct oom_encdec *s, enum oom_dtype dt)
{
	struct oom_tape *t = f->t;
	const struct oom_plan *real = t->plan;
	struct oom_plan no_mask = *real;

	if (kind_of(s->a)->subsampled) {
		oom_encdec_masks(f, s, dt);
		return;
	}
	no_mask.padding_mask = real->padding_mask && s->alone;
	t->plan = &no_mask;
	s->mask = oom_name_shared(f, oom_encdec_mask(t, s, true, dt, s->m_len, s->m_len));
	t->plan = real;
}

static struct oom_val run_decoder(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				  struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	const bool sub = kind_of(a)->subsampled;
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	decoder_masks(&f, s, (enum oom_dtype)embed.dt);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	x = oom_name(&f, sub ? oom_op_unary(t, OOM_SCALE, x) : x);
	pos = oom_name(&f, sub ? table_positions(t, a, s->m_tokens, a->max_positions) :
				 indexed_positions(&f, s));
	x = oom_encdec_layers(t, s, oom_op_dropout(t, oom_op_add(t, x, pos), a->dropout));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
}

static struct oom_val whisper_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct whisper_kind *k = kind_of(a);
	const struct whisper *own = whisper_of(a);
	const bool alone = t->task == OOM_TASK_CAUSAL_LM;
	struct oom_encdec enc = oom_encoder_stack(t, a, &k->layer), dec;
	struct oom_frame f = {.t = t};
	struct oom_val embed, x, ids;

	enc.m_len = k->subsampled ? oom_len_ceil(t, OOM_MONO_ONE, (uint64_t)1 << own->convs) :
				    oom_len_const(t, OOM_MONO_ONE, own->source_positions);
	enc.m_tokens = oom_mono_mul(t, t->m_b, enc.m_len);
	dec = oom_decoder_stack(t, a, &k->layer,
				alone ? t->m_s : oom_len_targets_min(t, a->max_positions));
	dec.m_src = enc.m_tokens;
	dec.m_src_len = enc.m_len;
	dec.alone = alone;
	if (t->task != OOM_TASK_SEQ2SEQ && !(alone && k->causal)) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq%s",
			      a->model_type, k->causal ? " and, its decoder, causal-lm" : "");
		return oom_none();
	}
	if (alone) {
		ids = oom_input(t, "input_ids", dec.m_tokens, 1, OOM_I64);
	} else {
		ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
		dec.encoded = oom_name_shared(&f, run_encoder(t, &enc));
		if (oom_cond_above(t, oom_len_targets(t), a->max_positions))
			oom_tape_warn(t, "more labels than max_target_positions: they are cut there");
	}
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = run_decoder(t, &dec, embed, ids);
	if (alone && oom_fuses_head(t))
		return oom_leave(&f, oom_fused_ce(t, a, x, embed, k->head));
	x = oom_name(&f, x);                    /* the base model's output */
	x = oom_seq2seq_tail(t, a, x, embed, k->head, dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_whisper = {
	.name = "whisper",
	.summary = "speech encoder over mel frames, text decoder",
	.source = "transformers 5.12 models/whisper/modeling_whisper.py",
	.types = whisper_types,
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = whisper_keys,
	.parse = whisper_parse,
	.step = whisper_step,
};
