/* wav2vec 2.0 and the speech encoders built like it, with the head for connectionist temporal classification: convolutions over
 * raw samples, a projection, convolutional positions, encoder layers, a letter for every frame.
 *
 *   b samples, L frames, S labels (seq_len), V letters
 *
 * --audio-seconds says how long the audio of a sample is (16,000 samples a second, Wav2Vec2FeatureExtractor's default), seq_len how
 * many labels it has.  Layers that layerdrop leaves out are counted: the step that needs most leaves out none.
 * Reference: transformers 5.12, models/{wav2vec2,hubert,unispeech,unispeech_sat,data2vec,wavlm,sew,wav2vec2_conformer,
 * wav2vec2_bert}/modeling_*.py; the loss: aten/src/ATen/native/cuda/LossCTC.cu. */
#include <string.h>

#include "blocks/encdec.h"
#include "blocks/image.h"
#include "config/keys.h"
#include "ctc.h"

enum { RATE = 16000, USUAL_SECONDS = 10, MOST_POSITIONS = 64, MOST_SQUEEZED = 64, MOST_PLACES = 1 << 20, BANKS = 50 };

static const struct ctc_kind wav2vec2 = {.base = "wav2vec2", .returns_features = true}, hubert = {.base = "hubert"},
			     unispeech = {.base = "unispeech", .returns_features = true},
			     unispeech_sat = {.base = "unispeech_sat", .returns_features = true},
			     data2vec = {.base = "data2vec_audio", .returns_features = true, .stacked = true},
			     wavlm = {.base = "wavlm", .returns_features = true, .gated = true},
			     sew = {.base = "sew", .squeezed = true},
			     conformer = {.base = "wav2vec2_conformer", .returns_features = true, .conformer = true},
			     w2v_bert = {.base = "wav2vec2_bert", .returns_features = true, .conformer = true, .features = true};
static const struct oom_family_type ctc_types[] = {
	{"wav2vec2", &wav2vec2}, {"hubert", &hubert}, {"unispeech", &unispeech}, {"unispeech-sat", &unispeech_sat},
	{"data2vec-audio", &data2vec}, {"wavlm", &wavlm}, {"sew", &sew},
	{"wav2vec2-conformer", &conformer}, {"wav2vec2-bert", &w2v_bert}, {NULL, NULL},
};

static const struct oom_key_row ctc_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), ACT(act, "hidden_act", "gelu"), REAL(dropout, "hidden_dropout", 0.1),
	REAL(attn_dropout, "attention_dropout", 0.1), REAL(act_dropout, "activation_dropout", 0.1),
	ACT_OWN(struct ctc, conv_act, "feat_extract_activation", "gelu"), OR_OWN(struct ctc, pos_kernel, "num_conv_pos_embeddings", 128),
	OR_OWN(struct ctc, pos_groups, "num_conv_pos_embedding_groups", 16), OR_OWN(struct ctc, attn_adapter, "adapter_attn_dim", 0),
	OR_OWN(struct ctc, buckets, "num_buckets", 320), OR_OWN(struct ctc, depth_kernel, "conv_depthwise_kernel_size", 31),
	OR_OWN(struct ctc, left, "left_max_position_embeddings", 64), OR_OWN(struct ctc, right, "right_max_position_embeddings", 8),
	OR_OWN(struct ctc, max_places, "max_source_positions", 5000), OR_OWN(struct ctc, features, "feature_projection_input_dim", 160),
	REAL_OWN(struct ctc, conv_dropout, "conformer_conv_dropout", 0.1), OR_OWN(struct ctc, adapter_layers, "num_adapter_layers", 3),
	OR_OWN(struct ctc, adapter_kernel, "adapter_kernel_size", 3), OR_OWN(struct ctc, adapter_stride, "adapter_stride", 2),
	ACT_OWN(struct ctc, adapter_act, "adapter_act", "relu"),
	FLAG_OWN(struct ctc, adapter_ffn, "use_intermediate_ffn_before_adapter", false),
	REAL_OWN(struct ctc, proj_dropout, "feat_proj_dropout", 0), REAL_OWN(struct ctc, final_dropout, "final_dropout", 0.1),
	REAL_OWN(struct ctc, mask_time, "mask_time_prob", 0.05), REAL_OWN(struct ctc, mask_features, "mask_feature_prob", 0),
	FLAG_OWN(struct ctc, conv_bias, "conv_bias", false), FLAG_OWN(struct ctc, stable, "do_stable_layer_norm", false),
	FLAG_OWN(struct ctc, proj_norm, "feat_proj_layer_norm", true), FLAG_OWN(struct ctc, augments, "apply_spec_augment", true),
	FLAG_OWN(struct ctc, adapter, "add_adapter", false), FLAG_OWN(struct ctc, batch_norm, "conv_pos_batch_norm", false),
	OOM_KEYS_END};

/* position_embeddings_type, and the sizes of conformers. */
static void conformer_parse(struct oom_arch *a)
{
	struct ctc *own = ctc_own(a);
	const char *places = oom_read_string(&a->rd, "position_embeddings_type", "");

	own->places = !strcmp(places, "relative")     ? OOM_CTC_RELATIVE :
		      !strcmp(places, "rotary")       ? OOM_CTC_ROTATED :
		      !strcmp(places, "relative_key") ? OOM_CTC_KEYED :
							OOM_CTC_PLACELESS;
	if (!own->depth_kernel || own->depth_kernel > MOST_PLACES || own->left > MOST_PLACES || own->right > MOST_PLACES ||
	    !own->max_places || own->max_places > MOST_PLACES || !own->features || own->features > MOST_PLACES)
		oom_read_fail(&a->rd, "the sizes of its convolutions, positions and features make no conformer");
}

/* The convolutions before the layers, and those that make positions. */
static void convolutions_parse(struct oom_arch *a)
{
	struct ctc *own = ctc_own(a);
	struct oom_reader *r = &a->rd;
	const uint64_t n = oom_read_counts(r, "conv_dim", own->dims, OOM_CTC_CONVS);

	own->convs = n;
	own->layer_norms = ctc_kind_of(a)->stacked || !strcmp(oom_read_string(r, "feat_extract_norm", "group"), "layer");
	if (ctc_kind_of(a)->stacked) {
		own->pos_layers = own->pos_kernel;
		own->pos_kernel = oom_read_count_or(r, "conv_pos_kernel_size", 19);
		if (!own->pos_layers || own->pos_layers > MOST_POSITIONS)
			oom_read_fail(r, "num_conv_pos_embeddings: convolutions one behind the other, 1 to %d of them", MOST_POSITIONS);
	}
	own->squeeze = ctc_kind_of(a)->squeezed ? oom_read_count_or(r, "squeeze_factor", 2) : 1;
	if (!own->squeeze || own->squeeze > MOST_SQUEEZED)
		oom_read_fail(r, "squeeze_factor: frames that become one, 1 to %d of them", MOST_SQUEEZED);
	if (!n || oom_read_counts(r, "conv_kernel", own->kernels, OOM_CTC_CONVS) != n ||
	    oom_read_counts(r, "conv_stride", own->strides, OOM_CTC_CONVS) != n)
		oom_read_fail(r, "conv_dim, conv_kernel and conv_stride must list as many numbers");
	if (!own->pos_kernel || !own->pos_groups || a->d_model % own->pos_groups)
		oom_read_fail(r, "num_conv_pos_embedding_groups does not divide hidden_size");
}

static void ctc_parse(struct oom_arch *a)
{
	const struct ctc_kind *kind = ctc_kind_of(a);
	struct ctc *own = ctc_own(a);

	a->frame = 1;
	a->enc_layers = a->n_layers;
	own->squeeze = 1;
	if (kind->conformer)
		conformer_parse(a);
	if (!kind->features)
		convolutions_parse(a);
	own->adapter_width = oom_read_count_or(&a->rd, "output_hidden_size", a->d_model);
	if (own->adapter && (!own->adapter_width || !own->adapter_kernel || own->adapter_kernel > MOST_PLACES || !own->adapter_stride ||
			     own->adapter_stride > MOST_PLACES || own->adapter_layers > MOST_POSITIONS ||
			     (kind->features && a->n_heads && own->adapter_width % a->n_heads)))
		oom_read_fail(&a->rd, "the sizes of its adapter (add_adapter) make no model");
	if (!a->n_heads || a->d_model % a->n_heads)
		oom_read_fail(&a->rd, "num_attention_heads does not divide hidden_size");
}

static const char *ctc_unasked(const struct oom_arch *a, enum oom_task task)
{
	(void)a;
	(void)task;
	return "priced for 10 seconds of audio in each sample: --audio-seconds says how long it is";
}

/* ---- the encoder ---- */

struct oom_val oom_ctc_feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, enum oom_act act)
{
	const struct oom_dim d = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_arg(&f, x);                     /* the module's call holds it */
	h = oom_name(&f, oom_op_linear(t, "intermediate_dense", x, D(a->d_ff), OOM_BIAS));
	h = oom_rename(&f, h, oom_activation(t, act, h));
	h = oom_rename(&f, h, oom_op_dropout(t, h, a->act_dropout));
	h = oom_rename(&f, h, oom_op_linear(t, "output_dense", h, d, OOM_BIAS));
	return oom_leave(&f, oom_op_dropout(t, h, a->dropout));
}

/* Wav2Vec2AttnAdapterLayer, of the models for many languages. */
static struct oom_val language(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	x = oom_name(&f, oom_op_layer_norm(t, "norm", x, 0, true, true));
	x = oom_rename(&f, x, oom_op_linear(t, "linear_1", x, D(ctc_of(a)->attn_adapter), OOM_BIAS));
	x = oom_rename(&f, x, oom_op_unary(t, OOM_RELU, x));
	return oom_leave(&f, oom_op_linear(t, "linear_2", x, D(a->d_model), OOM_BIAS));
}

static struct oom_val ctc_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct ctc_stack *l = ctx;
	const struct oom_arch *a = l->s.a;
	const bool stable = ctc_of(a)->stable;
	struct oom_frame f = {.t = t};
	struct oom_val h = x, weights = oom_none();

	if (stable)
		h = oom_name(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
	h = oom_rename(&f, h, ctc_kind_of(a)->gated ? oom_ctc_gated_attention(t, l, i, h) : oom_encdec_attention(t, &l->s, h, false, &weights));
	oom_name(&f, weights);
	h = oom_rename(&f, h, oom_op_dropout(t, h, a->dropout));
	h = oom_rename(&f, h, oom_op_add(t, x, h));
	if (!stable) {
		h = oom_rename(&f, h, oom_op_layer_norm(t, "layer_norm", h, 0, true, true));
		h = oom_rename(&f, h, oom_op_add(t, h, oom_ctc_feed_forward(t, a, h, a->act)));
		return oom_leave(&f, oom_op_layer_norm(t, "final_layer_norm", h, 0, true, true));
	}
	h = oom_rename(&f, h, oom_op_add(t, h, oom_ctc_feed_forward(t, a, oom_op_layer_norm(t, "final_layer_norm", h, 0, true, true), a->act)));
	if (ctc_of(a)->attn_adapter)
		h = oom_rename(&f, h, oom_op_add(t, h, language(t, a, h)));
	return oom_leave(&f, h);
}

static struct oom_val encoder(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_ASKED};
	const uint64_t inside = oom_ctc_inside(a, frames);
	struct ctc_stack l = {.s = oom_encoder_stack(t, a, &kind), .bias = oom_none(), .frames = frames};
	struct oom_encdec *s = &l.s;
	struct oom_frame f = {.t = t};
	struct oom_val h, pad;

	s->m_len = oom_length_of(t, inside);
	s->m_tokens = oom_tokens_of(t, inside);
	if (t->plan->padding_mask) {            /* hidden_states[~expand_attention_mask] = 0 */
		oom_name(&f, oom_new(t, "expanded mask", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8));
		pad = oom_new(t, "bitwise_not", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
		x = oom_op_masked_inplace(t, x, pad);
	}
	if (!ctc_kind_of(a)->gated)
		s->mask = oom_name_shared(&f, oom_encdec_mask(t, s, false, (enum oom_dtype)x.dt, s->m_len, s->m_len));
	if (ctc_kind_of(a)->squeezed) {
		h = oom_name(&f, oom_ctc_squeezed(&f, a, x, frames));
	} else {
		h = oom_name(&f, oom_ctc_positions(t, a, x, frames));
		h = oom_name(&f, oom_op_add(t, x, h));  /* position_embeddings stays */
	}
	if (!ctc_of(a)->stable)
		h = oom_rename(&f, h, oom_op_layer_norm(t, "layer_norm", h, 0, true, true));
	h = oom_rename(&f, h, oom_op_dropout(t, h, a->dropout));
	if (ctc_kind_of(a)->gated)
		l.bias = oom_name_shared(&f, oom_ctc_relative_bias(t, a, frames));
	/* the first layer's result takes the place of what it was given */
	h = oom_name(&f, oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, ctc_block, &l, oom_take(&f, h)));
	if (ctc_of(a)->stable)
		h = oom_rename(&f, h, oom_op_layer_norm(t, "layer_norm", h, 0, true, true));
	if (ctc_kind_of(a)->squeezed)
		h = oom_rename(&f, h, oom_ctc_upsampled(t, a, h, frames));
	oom_forget_shared(&f);
	return oom_leave(&f, h);
}

/* wav2vec 2.0's feature_projection; the normed features go to *normed where the base model returns them. */
static struct oom_val projected(struct oom_frame *f, const struct oom_arch *a, struct oom_val x, struct oom_val *normed)
{
	const struct ctc *own = ctc_of(a);
	struct oom_tape *t = f->t;
	struct oom_val h = x;

	t->scope = "feature_projection";
	if (own->proj_norm)
		h = oom_op_layer_norm(t, "layer_norm", h, 0, true, true);
	if (ctc_kind_of(a)->returns_features) {         /* extract_features is this from here on */
		h = oom_rename(f, x, h);
		*normed = oom_give(f, h);
	}
	return oom_op_dropout(t, oom_op_linear(t, "projection", h, D(a->d_model), OOM_BIAS), own->proj_dropout);
}

/* Two steps of 10 ms of audio side by side make one frame (SeamlessM4TFeatureExtractor, stride 2). */
static struct oom_val filter_banks(struct oom_tape *t, const struct oom_arch *a, uint64_t frames)
{
	const uint64_t n = frames * ctc_of(a)->features;

	t->pixels = n;
	t->pixel_mask = t->plan->padding_mask ? frames : 0;
	return oom_pixel_values(t, t->m_b, n);
}

/* The base model. */
static struct oom_val ctc_model(struct oom_tape *t, const struct oom_arch *a, struct oom_val *normed, uint64_t *frames)
{
	const struct ctc *own = ctc_of(a);
	const uint64_t seconds = t->plan->audio_seconds > 0 ? (uint64_t)t->plan->audio_seconds : USUAL_SECONDS;
	struct oom_frame f = {.t = t};
	struct oom_val x, h;

	if (ctc_kind_of(a)->features) {
		x = filter_banks(t, a, *frames = BANKS * seconds);
		h = oom_op_view(t, x, oom_tokens_of(t, *frames), (struct oom_dim){own->features, "feature_projection_input_dim"});
	} else {
		x = oom_name(&f, oom_ctc_features(t, a, RATE * seconds, frames));
		h = oom_op_view(t, x, oom_tokens_of(t, *frames), (struct oom_dim){own->dims[own->convs - 1], "conv_dim"});
	}
	h = ctc_kind_of(a)->squeezed ? oom_ctc_squeezed_input(&f, a, h) : projected(&f, a, h, normed);
	h = oom_name(&f, oom_ctc_augmented(t, a, h));
	h = oom_rename(&f, h, ctc_kind_of(a)->conformer ? oom_ctc_conformer(t, a, h, *frames) : encoder(t, a, h, *frames));
	if (own->adapter)
		h = oom_name(&f, oom_ctc_adapted(t, a, h, frames));     /* encoder_outputs stays */
	return oom_leave(&f, h);
}

/* ---- the loss ---- */

/* ctc_loss over log-probabilities [L, b, V]: a table of L x (2 S + 1) for each sample, kept; one more in the backward pass, beside
 * the gradient of all log-probabilities.  There are no more labels than frames.  The table's odd column is counted with the results. */
static struct oom_val ctc_loss(struct oom_tape *t, struct oom_val x, uint64_t frames)
{
	const struct oom_dim row = {2 * frames, "2 * frames"}, odd = {frames + 1, "frames + 1"};
	struct oom_val table, nll;
	int32_t node = -1;

	if (oom_wants_grad(t, x)) {
		node = oom_node(t, OOM_NODE_CUSTOM, "_ctc_loss");
		oom_node_edge(t, node, x);
		oom_node_save(t, node, x);
	}
	nll = oom_new(t, "neg_log_likelihood", t->m_b, odd, OOM_F32);
	table = oom_new(t, "log_alpha", oom_len_min(t, t->m_b, frames), row, OOM_F32);
	if (node >= 0) {
		table = oom_node_out(t, node, 0, table);
		nll = oom_node_out(t, node, 1, nll);
		t->nodes[node].temps.full = 1;
		oom_node_save(t, node, nll);
		oom_node_save(t, node, table);
	}
	oom_discard(t, table);
	oom_discard(t, x);
	return oom_op_sum(t, nll, OOM_MONO_ONE, D(1));
}

static struct oom_val ctc_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val x, normed = oom_none(), logits, p;
	uint64_t frames = 0;

	if (t->task != OOM_TASK_CTC) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task ctc", a->model_type);
		return oom_none();
	}
	x = oom_name(&f, ctc_model(t, a, &normed, &frames));    /* outputs */
	oom_name(&f, normed);
	x = oom_name(&f, oom_op_dropout(t, x, ctc_of(a)->final_dropout));
	t->vocab = a->vocab;
	logits = oom_op_linear(t, "lm_head", x, (struct oom_dim){a->vocab, "vocab_size"}, OOM_BIAS);
	if (t->no_labels) {
		oom_discard(t, oom_leave(&f, oom_none()));
		return oom_logits_alone(t, logits);
	}
	logits = oom_name(&f, logits);
	if (!t->plan->padding_mask)             /* attention_mask of ones */
		oom_name(&f, oom_new(t, "ones_like", t->m_b, (struct oom_dim){ctc_kind_of(a)->features ? frames : t->pixels, "samples"}, OOM_I64));
	oom_name(&f, oom_new(t, "labels mask", t->m_bs, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "flattened targets", t->m_bs, D(1), OOM_I64));
	p = oom_name(&f, oom_op_log_softmax(t, oom_op_cast(t, logits, OOM_F32)));
	p = ctc_loss(t, p, frames);
	oom_returns_logits(t, logits);
	return oom_leave(&f, p);
}

const struct oom_family oom_family_ctc = {
	.name = "ctc",
	.summary = "speech encoders over raw samples with a letter for every frame",
	.source = "transformers 5.12 models/wav2vec2/modeling_wav2vec2.py",
	.types = ctc_types,
	.task = OOM_TASK_CTC,
	.lora_targets = "q_proj+v_proj",
	.keys = ctc_keys,
	.parse = ctc_parse,
	.unasked = ctc_unasked,
	.step = ctc_step,
};
