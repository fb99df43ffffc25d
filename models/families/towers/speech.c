/* Speech-language models: the weights of their audio towers and projectors.
 *
 * A step on text alone holds them without running them, which is how AutoModelForSeq2SeqLM trains
 * these types on token ids.  Audio itself is not modelled: neither its features' activations nor
 * the towers' gradients. Reference: transformers 5.12,
 * models/{qwen2_audio,voxtral,voxtral_realtime,audioflamingo3,musicflamingo,glmasr,
 * granite_speech,vibevoice_asr}/modeling_*.py. */
#include <string.h>

#include "vision.h"
#include "weights.h"

/* A size under the first of two names the config has. */
static uint64_t size_of(struct oom_reader *r, const char *name, const char *other)
{
	return oom_read_count(r, oom_read_key(r, name) ? name : other, 1);
}

struct tower {
	uint64_t d, ff, inner, kv, layers;
	bool gated, rms;
};

static void tower_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct tower *w = ctx;

	(void)i;
	oom_weight_linear(t, "k_proj", w->d, w->kv, false);
	oom_weight_linear(t, "v_proj", w->d, w->kv, true);
	oom_weight_linear(t, "q_proj", w->d, w->inner, true);
	oom_weight_linear(t, "out_proj", w->inner, w->d, true);
	oom_weight_norm(t, "self_attn_layer_norm", w->d, !w->rms);
	if (w->gated) {
		oom_weight_linear(t, "gate_proj", w->d, w->ff, false);
		oom_weight_linear(t, "up_proj", w->d, w->ff, false);
		oom_weight_linear(t, "down_proj", w->ff, w->d, true);
	} else {
		oom_weight_linear(t, "fc1", w->d, w->ff, true);
		oom_weight_linear(t, "fc2", w->ff, w->d, true);
	}
	oom_weight_norm(t, "final_layer_norm", w->d, !w->rms);
}

/* Voxtral Realtime's text layers: a norm scaled by the delay, through a bottleneck of 32. */
static void ada_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const uint64_t *d = ctx;

	(void)i;
	oom_weight_linear(t, "linear1", *d, 32, false);
	oom_weight_linear(t, "linear2", 32, *d, false);
}

static void projector(struct oom_emit *e, const struct tower *w)
{
	struct oom_tape *t = e->t;
	const char *type = e->v->type;
	const uint64_t h = e->a->d_model;

	if (!strcmp(type, "qwen2_audio")) {
		oom_weight_linear(t, "linear", w->d, h, true);
	} else if (!strncmp(type, "voxtral", 7)) { /* frames stacked to the feed-forward's width */
		const uint64_t stacked = !strcmp(type, "voxtral") ?
						 w->ff :
						 w->d * oom_read_count_or(&e->outer,
									  "downsample_factor", 4);

		oom_weight_linear(t, "linear_1", stacked, h, false);
		oom_weight_linear(t, "linear_2", h, h, false);
	} else if (!strcmp(type, "glmasr")) {
		oom_weight_linear(t, "linear_1", w->ff, 2 * h, true);
		oom_weight_linear(t, "linear_2", 2 * h, h, true);
	} else {
		oom_weight_linear(t, "linear_1", w->d, h, true);
		oom_weight_linear(t, "linear_2", h, h, true);
	}
}

/* Whisper's encoder or a relative of it. */
struct oom_val oom_emit_whisper_tower(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const bool realtime = !strcmp(e->v->type, "voxtral_realtime"),
		   rope = realtime || !strcmp(e->v->type, "glmasr");
	struct tower w = {.d = size_of(r, "d_model", "hidden_size"),
			  .ff = size_of(r, "encoder_ffn_dim", "intermediate_size"),
			  .layers = size_of(r, "encoder_layers", "num_hidden_layers"),
			  .gated = realtime,
			  .rms = realtime};
	const uint64_t mel = oom_read_count(r, "num_mel_bins", 1);

	w.inner = w.d;
	if (realtime)
		w.inner = oom_read_count_or(r, "head_dim", 64) *
			  size_of(r, "encoder_attention_heads", "num_attention_heads");
	w.kv = w.inner;
	if (!strcmp(e->v->type, "glmasr"))
		w.kv = w.d / oom_read_count(r, "num_attention_heads", 1) *
		       oom_read_count_or(r, "num_key_value_heads",
					 oom_read_count(r, "num_attention_heads", 1));
	oom_weight_conv(t, "conv1", w.d, mel * 3, true);
	oom_weight_conv(t, "conv2", w.d, w.d * 3, true);
	if (!rope) {
		t->scope = "embed_positions";
		oom_param(t, "weight", oom_read_count(r, "max_source_positions", 1),
				      w.d, OOM_P_FROZEN | OOM_P_EMBEDDING | OOM_P_UNUSED);
	}
	oom_weight_layers(t, w.layers, tower_layer, &w);
	oom_weight_norm(t, "layer_norm", w.d, !w.rms);
	projector(e, &w);
	if (realtime) {
		oom_weight_layers(t, e->a->n_layers, ada_layer, &e->a->d_model);
		t->warning = "Voxtral Realtime's norms scaled by the delay are counted, their "
			     "activations are not";
	}
	return oom_none();
}

/* ---- Granite Speech: a conformer and a Q-Former ---- */

struct conformer {
	uint64_t d, ff, inner, head, positions, wide, kernel;
};

static void conformer_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct conformer *c = ctx;

	(void)i;
	for (int k = 0; k < 2; k++) {
		oom_weight_norm(t, "pre_norm", c->d, true);
		oom_weight_linear(t, "up_proj", c->d, c->ff, true);
		oom_weight_linear(t, "down_proj", c->ff, c->d, true);
	}
	oom_weight_norm(t, "pre_norm", c->d, true);
	oom_weight_linear(t, "to_q", c->d, c->inner, false);
	oom_weight_linear(t, "to_kv", c->d, 2 * c->inner, false);
	oom_weight_linear(t, "to_out", c->inner, c->d, true);
	oom_weight(t, "rel_pos_emb", 2 * c->positions + 1, c->head);
	oom_weight_norm(t, "norm", c->d, true);
	oom_weight_conv(t, "up_conv", 2 * c->wide, c->d, true);
	oom_weight_conv(t, "depth_conv", c->wide, c->kernel, false);
	oom_weight_norm(t, "batch_norm", c->wide, true);
	oom_buffer(t, c->wide, OOM_DT_BF16);
	oom_buffer(t, c->wide, OOM_DT_BF16);
	oom_buffer(t, 1, OOM_I64);
	oom_weight_conv(t, "down_conv", c->d, c->wide, true);
	oom_weight_norm(t, "post_norm", c->d, true);
}

struct qformer {
	uint64_t d, ff, source;
	bool cross;
};

static void qformer_attention(struct oom_tape *t, const struct qformer *q, uint64_t source)
{
	oom_weight_linear(t, "query", q->d, q->d, true);
	oom_weight_linear(t, "key", source, q->d, true);
	oom_weight_linear(t, "value", source, q->d, true);
	oom_weight_linear(t, "dense", q->d, q->d, true);
	oom_weight_norm(t, "LayerNorm", q->d, true);
}

static void qformer_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct qformer *q = ctx;

	(void)i;
	qformer_attention(t, q, q->d);
	if (q->cross)
		qformer_attention(t, q, q->source);
	oom_weight_linear(t, "intermediate_query", q->d, q->ff, true);
	oom_weight_linear(t, "output_query", q->ff, q->d, true);
	oom_weight_norm(t, "LayerNorm", q->d, true);
}

struct oom_val oom_emit_granite_speech(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1], *p = &e->part[2];
	const uint64_t out = oom_read_count_or(r, "output_dim", 42),
		       rate = oom_read_count_or(&e->outer, "downsample_rate", 5);
	struct conformer c = {.d = oom_read_count(r, "hidden_dim", 1),
			      .head = oom_read_count(r, "dim_head", 1),
			      .positions = oom_read_count(r, "max_pos_emb", 1),
			      .kernel = oom_read_count(r, "conv_kernel_size", 1)};
	struct qformer q = {.d = oom_read_count(p, "hidden_size", 1),
			    .ff = oom_read_count(p, "intermediate_size", 1),
			    .source = oom_read_count(p, "encoder_hidden_size", 1),
			    .cross = true};
	const uint64_t layers = oom_read_count(p, "num_hidden_layers", 0),
		       every = oom_read_count_or(p, "cross_attention_frequency", 2);
	const uint64_t context = oom_read_count_or(r, "context_size", 200);
	const uint64_t crossed = every ? (layers + every - 1) / every : 0;

	oom_buffer(t, context * context, OOM_I64);      /* attention_dists */
	c.ff = c.d * oom_read_count_or(r, "feedforward_mult", 4);
	c.inner = c.head * oom_read_count(r, "num_heads", 1);
	c.wide = c.d * oom_read_count_or(r, "conv_expansion_factor", 2);
	oom_weight_linear(t, "input_linear", oom_read_count(r, "input_dim", 1), c.d, true);
	oom_weight_layers(t, oom_read_count(r, "num_layers", 0), conformer_layer, &c);
	oom_weight_linear(t, "out", c.d, out, true);
	oom_weight_linear(t, "out_mid", out, c.d, true);
	oom_weight(t, "query", oom_read_count_or(&e->outer, "window_size", 15) / (rate ? rate : 1),
		   q.d);
	oom_weight_norm(t, "layernorm", q.d, true);
	oom_weight_layers(t, crossed, qformer_layer, &q);
	q.cross = false;
	oom_weight_layers(t, layers - crossed, qformer_layer, &q);
	oom_weight_linear(t, "linear", q.d, e->a->d_model, true);
	return oom_none();
}

/* ---- VibeVoice: two convolutional tokenizers ---- */

struct stage {
	uint64_t d, ff, kernel;
};

static void stage_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct stage *s = ctx;

	(void)i;
	oom_weight(t, "gamma", 0, s->d);
	oom_weight(t, "ffn_gamma", 0, s->d);
	oom_weight_norm(t, "norm", s->d, false);
	oom_weight_norm(t, "ffn_norm", s->d, false);
	oom_weight_linear(t, "linear1", s->d, s->ff, true);
	oom_weight_linear(t, "linear2", s->ff, s->d, true);
	oom_weight_conv(t, "mixer", s->d, s->kernel, true);
}

/* Returns the width of its codes. */
static uint64_t tokenizer(struct oom_tape *t, struct oom_reader *r)
{
	static const double ratios[] = {2, 2, 4, 5, 5, 8}, depths[] = {3, 3, 3, 3, 3, 3, 8};
	const uint64_t code = oom_read_count(r, "hidden_size", 1),
		       expand = oom_read_count_or(r, "ffn_expansion", 4);
	const uint64_t n = oom_read_items(r, "downsampling_ratios", 6);
	struct stage s = {.d = oom_read_count_or(r, "num_filters", 32),
			  .kernel = oom_read_count_or(r, "kernel_size", 7)};

	if (n > 16 || !s.d || s.d > 1 << 20) {
		oom_read_fail(r, "\"%s\": a tokenizer has at most 16 stages and 2^20 filters",
			      r->prefix);
		return 1;
	}
	oom_weight_conv(t, "stem", s.d, oom_read_count_or(r, "channels", 1) * s.kernel, true);
	for (uint32_t i = 0; i <= n; i++) {
		const double depth = oom_read_item_real(r, "depths", i, i < 7 ? depths[i] : 0);

		s.ff = s.d * expand;
		oom_weight_layers(t, depth >= 0 && depth < OOM_MAX_LAYERS ? (uint64_t)depth : 0,
				  stage_layer, &s);
		if (i < n) {
			const double ratio = oom_read_item_real(r, "downsampling_ratios", i,
								i < 6 ? ratios[i] : 1);

			oom_weight_conv(t, "conv", 2 * s.d,
					s.d * 2 *
						(ratio >= 1 && ratio < 65536 ? (uint64_t)ratio : 1),
					true);
			s.d *= 2;
		}
	}
	oom_weight_conv(t, "head", code, s.d * s.kernel, true);
	return code;
}

struct oom_val oom_emit_vibevoice(struct oom_emit *e)
{
	const uint64_t h = e->a->d_model;

	for (int i = 1; i < 3; i++) {
		const uint64_t code = tokenizer(e->t, &e->part[i]);

		oom_weight_linear(e->t, "linear_1", code, h, true);
		oom_weight_norm(e->t, "norm", h, false);
		oom_weight_linear(e->t, "linear_2", h, h, true);
	}
	return oom_none();
}

/* ---- Seamless M4T's speech encoder: a conformer and an adapter that shortens it ---- */

struct seamless {
	uint64_t d, ff, heads, kernel, distances, adapter_kernel;
	bool relative;
};

static void seamless_ffn(struct oom_tape *t, const struct seamless *s)
{
	oom_weight_norm(t, "layer_norm", s->d, true);
	oom_weight_linear(t, "intermediate_dense", s->d, s->ff, true);
	oom_weight_linear(t, "output_dense", s->ff, s->d, true);
}

static void seamless_attention(struct oom_tape *t, const struct seamless *s)
{
	oom_weight_norm(t, "self_attn_layer_norm", s->d, true);
	oom_weight_linear(t, "linear_q", s->d, s->d, true);
	oom_weight_linear(t, "linear_k", s->d, s->d, true);
	oom_weight_linear(t, "linear_v", s->d, s->d, true);
	oom_weight_linear(t, "linear_out", s->d, s->d, true);
}

static void seamless_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct seamless *s = ctx;

	(void)i;
	seamless_ffn(t, s);
	seamless_attention(t, s);
	if (s->relative) {
		oom_weight(t, "pos_bias_u", s->heads, s->d / s->heads);
		oom_weight(t, "pos_bias_v", s->heads, s->d / s->heads);
		oom_weight_linear(t, "linear_pos", s->d, s->d, false);
	} else {
		oom_weight(t, "distance_embedding", s->distances, s->d / s->heads);
	}
	oom_weight_norm(t, "conv_module.layer_norm", s->d, true);
	oom_weight_conv(t, "pointwise_conv1", 2 * s->d, s->d, false);
	oom_weight_conv(t, "depthwise_conv", s->d, s->kernel, false);
	oom_weight_norm(t, "batch_norm", s->d, true);
	oom_weight_conv(t, "pointwise_conv2", s->d, s->d, false);
	seamless_ffn(t, s);
	oom_weight_norm(t, "final_layer_norm", s->d, true);
}

static void seamless_adapter(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct seamless *s = ctx;

	(void)i;
	oom_weight_norm(t, "residual_layer_norm", s->d, true);
	oom_weight_conv(t, "residual_conv", 2 * s->d, s->d * s->adapter_kernel, true);
	oom_weight_conv(t, "self_attn_conv", 2 * s->d, s->d * s->adapter_kernel, true);
	seamless_attention(t, s);
	seamless_ffn(t, s);
}

void oom_seamless_speech(struct oom_tape *t, const struct oom_arch *a, bool relative)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const uint64_t in = oom_read_count_or(r, "feature_projection_input_dim", 160);
	struct seamless s = {.d = a->d_model,
			     .ff = oom_read_count(r, "speech_encoder_intermediate_size", 1),
			     .heads = oom_read_count(r, "speech_encoder_attention_heads", 1),
			     .kernel = oom_read_count_or(r, "conv_depthwise_kernel_size", 31),
			     .adapter_kernel = oom_read_count_or(r, "adaptor_kernel_size", 8),
			     .distances = oom_read_count_or(r, "left_max_position_embeddings", 64) +
					  oom_read_count_or(r, "right_max_position_embeddings", 8) +
					  1,
			     .relative = relative};
	const uint64_t layers = oom_read_count(r, "speech_encoder_layers", 0),
		       adapters = oom_read_count_or(r, "num_adapter_layers", 1);

	if (r->status || layers > OOM_MAX_LAYERS || adapters > OOM_MAX_LAYERS || s.heads > s.d) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s",
			      r->status ? r->err.text : "the speech encoder's sizes make no model");
		return;
	}
	oom_weight_norm(t, "feature_projection.layer_norm", in, true);
	oom_weight_linear(t, "projection", in, s.d, true);
	oom_weight_layers(t, layers, seamless_layer, &s);
	oom_weight_norm(t, "layer_norm", s.d, true);
	oom_weight_linear(t, "intermediate_dense", s.d, s.ff, true);
	oom_weight_linear(t, "output_dense", s.ff, s.d, true);
	if (oom_read_bool(r, "add_adapter", true))
		oom_weight_layers(t, adapters, seamless_adapter, &s);
	oom_weight_norm(t, "inner_layer_norm", s.d, true);
}
