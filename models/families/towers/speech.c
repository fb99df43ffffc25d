/* Speech-language models: their audio towers and projectors, most of them as weights (weights.h).
 *
 * A step on text alone holds them without running them, which is how AutoModelForSeq2SeqLM trains
 * these types on token ids. Reference: transformers 5.12,
 * models/{qwen2_audio,voxtral,voxtral_realtime,audioflamingo3,musicflamingo,glmasr,
 * vibevoice_asr}/modeling_*.py. */
#include "hearing.h"
#include "projector.h"
#include "vision.h"
#include "weights.h"

/* ---- Whisper's encoder or a relative of it ---- */

/* KEYS: whether keys have a bias; FC: a plain feed-forward, else a gated one; LAYER: norms with bias */
enum { H = YES + 1, FF, INNER, KV, KEYS, FC, GATED, LAYER };
static const struct oom_weight_row whisper_layer[] = {
	LINEAR("k_proj", H, KV, KEYS), LINEAR("v_proj", H, KV, YES),
	LINEAR("q_proj", H, INNER, YES),
	LINEAR("out_proj", INNER, H, YES), NORM("self_attn_layer_norm", H, LAYER), ONLY(GATED, 3),
	LINEAR("gate_proj", H, FF, NO), LINEAR("up_proj", H, FF, NO),
	LINEAR("down_proj", FF, H, YES),
	ONLY(FC, 2), LINEAR("fc1", H, FF, YES), LINEAR("fc2", FF, H, YES),
	NORM("final_layer_norm", H, LAYER), OOM_WEIGHTS_END};
/* Voxtral Realtime's text layers: a norm scaled by the delay, through a bottleneck of 32. */
static const struct oom_weight_row ada_layer[] = {
	LINEAR("linear1", H, FF, NO), LINEAR("linear2", FF, H, NO), OOM_WEIGHTS_END};

/* A size under the first of two names the config has. */
static uint64_t size_of(struct oom_reader *r, const char *name, const char *other)
{
	return oom_read_count(r, oom_read_key(r, name) ? name : other, 1);
}

struct whisper {
	double rope;                    /* share of a head that turns, where no key says so; 0: a table of positions */
	bool realtime;                  /* gated, RMS norms, heads of a width of their own */
};
struct sizes {
	uint64_t d, ff;
};

static struct sizes whisper(struct oom_emit *e, struct whisper kind)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const struct sizes s = {size_of(r, "d_model", "hidden_size"),
				size_of(r, "encoder_ffn_dim", "intermediate_size")};
	const uint64_t layers = size_of(r, "encoder_layers", "num_hidden_layers"),
		       mel = oom_read_count(r, "num_mel_bins", 1);
	uint64_t n[] = {[YES] = 1, [H] = s.d, [FF] = s.ff, [INNER] = s.d, [KV] = s.d, [KEYS] = 0,
			[FC] = !kind.realtime, [GATED] = kind.realtime, [LAYER] = !kind.realtime};

	if (kind.realtime)
		n[KV] = n[INNER] = oom_read_count_or(r, "head_dim", 64) *
				   size_of(r, "encoder_attention_heads", "num_attention_heads");
	oom_weight_conv(t, "conv1", s.d, mel * 3, true);
	oom_weight_conv(t, "conv2", s.d, s.d * 3, true);
	if (kind.rope > 0) {                    /* inv_freq and original_inv_freq */
		const uint64_t head = kind.realtime ? oom_read_count_or(r, "head_dim", 64) :
						      s.d / oom_read_count(r, "num_attention_heads", 1);
		const double share = oom_read_real(r, "rope_parameters.partial_rotary_factor", kind.rope);

		for (int i = 0; i < 2; i++)
			oom_buffer(t, (uint64_t)((double)head * share) / 2, OOM_F32);
	} else {
		t->scope = "embed_positions";
		oom_param(t, "weight", oom_read_count(r, "max_source_positions", 1), s.d,
			  OOM_P_FROZEN | OOM_P_EMBEDDING | OOM_P_UNUSED);
	}
	oom_weight_stack(t, layers, whisper_layer, n);
	oom_weight_norm(t, "layer_norm", s.d, !kind.realtime);
	return s;
}

static void projection(struct oom_emit *e, const char *name, uint64_t in, uint64_t out, bool bias)
{
	e->t->selection.part = OOM_PART_PROJECTOR;
	oom_weight_linear(e->t, name, in, out, bias);
	e->t->selection.part = OOM_PART_TOWER;
}

static struct oom_val two_layers(struct oom_emit *e, uint64_t in, uint64_t mid, bool bias)
{
	projection(e, "linear_1", in, mid, bias);
	projection(e, "linear_2", mid, e->a->d_model, bias);
	return oom_none();
}

/* ---- those that run ---- */

/* Whisper's encoder over windows of the recordings, whose length the plan says. */
static struct oom_hearing hearing(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t frames = 100 * (uint64_t)e->t->plan->audio_seconds;
	struct oom_hearing h = {.d = size_of(r, "d_model", "hidden_size"), .ff = size_of(r, "encoder_ffn_dim", "intermediate_size"),
				.layers = size_of(r, "encoder_layers", "num_hidden_layers"),
				.heads = size_of(r, "encoder_attention_heads", "num_attention_heads"),
				.mels = oom_read_count(r, "num_mel_bins", 1),
				.positions = size_of(r, "max_source_positions", "max_position_embeddings"),
				.dropout = oom_read_real(r, "dropout", 0), .act_dropout = oom_read_real(r, "activation_dropout", 0),
				.attn_dropout = oom_read_real(r, "attention_dropout", 0),
				.act = oom_read_act(r, oom_read_key(r, "hidden_act") ? "hidden_act" : "activation_function", "gelu")};

	if (r->status || h.positions > 1 << 24 || h.layers > OOM_MAX_LAYERS || h.heads > h.d || h.d > 1 << 24 || h.mels > 1 << 16) {
		oom_read_fail(r, "the audio tower's sizes (%s) make no model", r->prefix);
		h = (struct oom_hearing){.d = 1, .ff = 1, .heads = 1, .mels = 1, .positions = 1};
	}
	h.windows = frames ? (frames + 2 * h.positions - 1) / (2 * h.positions) : 1;
	h.rest = frames ? frames - (h.windows - 1) * 2 * h.positions : 2 * h.positions;
	h.partial = h.rest < 2 * h.positions;
	return h;
}

/* x[mask]: so many states of every sample. */
static struct oom_val kept_of(struct oom_emit *e, struct oom_val x, uint64_t n)
{
	const struct oom_dim w = {x.width, x.text};
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val index;

	x = oom_arg(&f, x);
	e->m_tokens = oom_len_const(t, t->m_b, n ? n : 1);
	index = oom_name(&f, oom_new(t, "nonzero", e->m_tokens, D(2), OOM_I64));
	return oom_leave(&f, oom_op_gather(t, "index", x, index, e->m_tokens, w));
}

/* Of a window's states those that stand for its frames: what the processor made placeholders for
 * (_get_feat_extract_output_lengths). */
static struct oom_val heard(struct oom_emit *e, const struct oom_hearing *h, struct oom_val x)
{
	const uint64_t half = (h->rest - 1) / 2 + 1, rest = half < 2 ? 1 : (half - 2) / 2 + 1;

	return kept_of(e, x, (h->windows - 1) * ((h->positions - 2) / 2 + 1) + rest);
}

static struct oom_val projected(struct oom_emit *e, const char *name, struct oom_val x, bool bias)
{
	return oom_project(e, name, x, e->a->d_model, bias);
}

static struct oom_val projected_twice(struct oom_emit *e, struct oom_val x, bool bias)
{
	e->t->scope = "multi_modal_projector";
	return projected(e, "linear_2", oom_activation(e->t, oom_projector_act(e), projected(e, "linear_1", x, bias)), bias);
}

/* apply_rotary_time_emb: so many elements of a state are turned, in fp64. */
static struct oom_val in_time(struct oom_frame *caller, struct oom_val x, uint64_t turned)
{
	const struct oom_dim part = {turned, "rotary_dim"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	struct oom_rope r;

	for (int i = 0; i < 2; i++)             /* cosines and sines, the caller's */
		oom_name(caller, oom_new(t, "cos and sin", x.mono, part, OOM_F32));
	x = oom_name(&f, oom_op_cast(t, x, OOM_F64));
	r.cos = oom_name(&f, oom_new(t, "cos", x.mono, part, OOM_F64));
	r.sin = oom_name(&f, oom_new(t, "sin", x.mono, part, OOM_F64));
	x = oom_rope_apply(t, x, &r, 1, x.width, turned);
	return oom_op_cast(t, oom_leave(&f, x), dt);
}

/* turned: elements of a state that are turned by the time of its frame. */
static struct oom_val flamingo(struct oom_emit *e, uint64_t turned)
{
	struct oom_hearing h = hearing(e);
	struct oom_frame f = {.t = e->t};
	struct oom_val x;

	h.masked = h.pooled = true;
	x = oom_name(&f, oom_hear(e, &h));
	if (turned)
		x = oom_rename(&f, x, in_time(&f, x, turned));
	x = projected_twice(e, x, oom_read_bool(&e->outer, "projector_bias", true));
	return oom_leave(&f, heard(e, &h, x));
}

struct oom_val oom_emit_flamingo(struct oom_emit *e)
{
	return flamingo(e, 0);
}

/* Music Flamingo turns what its encoder made by the time of each frame: a share of the encoder's width, and a table of
 * as many positions as the base of the angles (MusicFlamingoRotaryEmbedding, MusicFlamingoConfig). */
struct oom_val oom_emit_music_flamingo(struct oom_emit *e)
{
	struct oom_reader *r = &e->outer;
	const double share = oom_read_real(r, "rope_parameters.partial_rotary_factor", 0.2),
		     positions = oom_read_real(r, "rope_parameters.rope_theta", 1200);
	const uint64_t d = size_of(&e->part[1], "d_model", "hidden_size"),
		       angles = ((uint64_t)((double)d * share) + 1) / 2;

	for (int i = 0; i < 2; i++)             /* inv_freq and original_inv_freq */
		oom_buffer(e->t, angles, OOM_F32);
	if (positions < 1 || positions > 1u << 20)
		oom_read_fail(r, "rope_parameters.rope_theta (%g) is out of range", positions);
	else
		oom_buffer(e->t, (uint64_t)positions * 2 * angles, OOM_F32);
	return flamingo(e, 4 * angles < d ? 4 * angles : 0);
}

struct oom_val oom_emit_qwen2_audio(struct oom_emit *e)
{
	struct oom_hearing h = hearing(e);
	struct oom_frame f = {.t = e->t};
	struct oom_val x;

	h.masked = h.pooled = true;
	x = oom_name(&f, oom_hear(e, &h));
	e->t->scope = "multi_modal_projector";
	x = oom_name(&f, projected(e, "linear", x, true));
	return oom_leave(&f, heard(e, &h, x));
}

/* Neighbouring states side by side, as wide as the feed-forward. */
struct oom_val oom_emit_voxtral(struct oom_emit *e)
{
	struct oom_hearing h = hearing(e);
	struct oom_frame f = {.t = e->t};
	struct oom_val x;

	h.cast = true;
	x = oom_name(&f, oom_hear(e, &h));
	e->m_tokens = oom_len_const(e->t, e->m_images, h.positions * h.d / h.ff ? h.positions * h.d / h.ff : 1);
	x = oom_op_view(e->t, x, e->m_tokens, (struct oom_dim){h.ff, "intermediate_size"});
	return oom_leave(&f, projected_twice(e, x, false));
}

struct oom_val oom_emit_voxtral_realtime(struct oom_emit *e)
{
	const struct sizes s = whisper(e, (struct whisper){.rope = 1, .realtime = true});

	two_layers(e, s.d * oom_read_count_or(&e->outer, "downsample_factor", 4), e->a->d_model,
		   false);
	oom_weight_stack(e->t, e->a->n_layers, ada_layer,
			 (const uint64_t[]){[YES] = 1, [H] = e->a->d_model, [FF] = 32});
	oom_tape_warn(e->t, "Voxtral Realtime's norms scaled by the delay are counted, their activations are "
			"not");
	return oom_none();
}

/* Neighbouring states side by side, as wide as the feed-forward, of which those that are padding are left out. */
struct oom_val oom_emit_glmasr(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	struct oom_hearing h = hearing(e);
	struct oom_frame f = {.t = e->t};
	const double share = oom_read_real(r, "rope_parameters.partial_rotary_factor", 0.5);
	const uint64_t each = h.ff / h.d ? h.ff / h.d : 1;
	struct oom_val x;

	h.turned = (uint64_t)((double)(h.d / h.heads) * (share > 0 && share <= 1 ? share : 0.5));
	h.turned += h.turned == 0;
	h.kv_heads = oom_read_count_or(r, "num_key_value_heads", h.heads);
	h.masked = true;
	x = oom_name(&f, oom_hear(e, &h));
	e->m_tokens = oom_len_const(e->t, e->m_images, h.positions / each ? h.positions / each : 1);
	x = oom_op_view(e->t, x, e->m_tokens, (struct oom_dim){h.ff, "intermediate_size"});
	e->t->scope = "multi_modal_projector";
	x = oom_project(e, "linear_1", x, 2 * e->a->d_model, true);
	x = oom_name(&f, projected(e, "linear_2", oom_activation(e->t, oom_projector_act(e), x), true));
	return oom_leave(&f, kept_of(e, x, (h.windows - 1) * (h.positions / 4) + ((h.rest - 1) / 2 + 1) / 4));
}

/* ---- VibeVoice: two convolutional tokenizers ---- */

enum { V_H = YES + 1, V_FF, V_KERNEL };
static const struct oom_weight_row stage_layer[] = {
	ALONE("gamma", NO, V_H), ALONE("ffn_gamma", NO, V_H), NORM("norm", V_H, NO),
	NORM("ffn_norm", V_H, NO),
	LINEAR("linear1", V_H, V_FF, YES), LINEAR("linear2", V_FF, V_H, YES),
	CONV("mixer", V_H, V_KERNEL, YES),
	OOM_WEIGHTS_END};

/* Returns the width of its codes. */
static uint64_t tokenizer(struct oom_tape *t, struct oom_reader *r)
{
	static const double ratios[] = {2, 2, 4, 5, 5, 8}, depths[] = {3, 3, 3, 3, 3, 3, 8};
	const uint64_t code = oom_read_count(r, "hidden_size", 1), expand =
		oom_read_count_or(r, "ffn_expansion", 4),
		       stages = oom_read_items(r, "downsampling_ratios", 6),
		       kernel = oom_read_count_or(r, "kernel_size", 7);
	uint64_t d = oom_read_count_or(r, "num_filters", 32);

	if (stages > 16 || !d || d > 1 << 20) {
		oom_read_fail(r, "\"%s\": a tokenizer has at most 16 stages and 2^20 filters",
			      r->prefix);
		return 1;
	}
	oom_weight_conv(t, "stem", d, oom_read_count_or(r, "channels", 1) * kernel, true);
	for (uint32_t i = 0; i <= stages; i++) {
		const double depth = oom_read_item_real(r, "depths", i, i < 7 ? depths[i] : 0);
		double ratio;

		oom_weight_stack(t, depth >= 0 && depth < OOM_MAX_LAYERS ? (uint64_t)depth : 0,
				 stage_layer,
				 (const uint64_t[]){[YES] = 1, [V_H] = d, [V_FF] = d * expand,
						    [V_KERNEL] = kernel});
		if (i == stages)
			break;
		ratio = oom_read_item_real(r, "downsampling_ratios", i, i < 6 ? ratios[i] : 1);
		oom_weight_conv(t, "conv", 2 * d, d * 2 * (ratio >= 1 && ratio < 65536 ?
							   (uint64_t)ratio : 1), true);
		d *= 2;
	}
	oom_weight_conv(t, "head", code, d * kernel, true);
	return code;
}

struct oom_val oom_emit_vibevoice(struct oom_emit *e)
{
	const uint64_t h = e->a->d_model;

	for (int i = 1; i < 3; i++) {
		oom_weight_linear(e->t, "linear_1", tokenizer(e->t, &e->part[i]), h, true);
		oom_weight_norm(e->t, "norm", h, false);
		oom_weight_linear(e->t, "linear_2", h, h, true);
	}
	return oom_none();
}
