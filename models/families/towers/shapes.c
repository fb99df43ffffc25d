/* Towers and resamplers of shapes of their own, as their weights alone (weights.h): SAM's encoder,
 * Q-Formers, perceivers, vector-quantised autoencoders, audio encoders.
 * Reference: transformers 5.12, the classes named at each function. */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

static const char *const qkvo[] = {"q_proj", "k_proj", "v_proj", "o_proj"};

/* The tower of part i as vision.c describes it. */
static void run_tower(struct oom_emit *e, size_t i, const char *type, struct oom_tower *w)
{
	oom_tower_read(w, &e->part[i], type ? type : e->v->part[i].type);
	oom_discard(e->t, oom_tower_run(e, w));
}

static struct oom_val nothing(void)
{
	return oom_none();
}

/* ---- SAM's vision encoder: GotOcr2VisionEncoder, SamVisionEncoder ---- */

struct sam {
	/* place: 2 * side - 1 of a window, of the whole image */
	uint64_t d, ff, head, out, place[2];
	bool bias, relative;
	int whole;
};

static void sam_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct sam *s = ctx;

	(void)i;
	oom_weight_norm(t, "layer_norm1", s->d, true);
	if (s->relative) {
		oom_weight(t, "rel_pos_h", s->place[s->whole], s->head);
		oom_weight(t, "rel_pos_w", s->place[s->whole], s->head);
	}
	oom_weight_linear(t, "qkv", s->d, 3 * s->d, s->bias);
	oom_weight_linear(t, "proj", s->d, s->d, true);
	oom_weight_norm(t, "layer_norm2", s->d, true);
	oom_weight_linear(t, "lin1", s->d, s->ff, true);
	oom_weight_linear(t, "lin2", s->ff, s->d, true);
}

static void sam_neck(struct oom_tape *t, const struct sam *s)
{
	oom_weight_conv(t, "conv1", s->out, s->d, false);
	oom_weight_norm(t, "layer_norm1", s->out, true);
	oom_weight_conv(t, "conv2", s->out, s->out * 9, false);
	oom_weight_norm(t, "layer_norm2", s->out, true);
}

/* Reads the keys of both configs that describe it (mlp_dim absent or null: mlp_ratio *
 * hidden_size) and emits it. */
static struct sam sam_encoder(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	struct sam s = {.d = oom_read_count(r, "hidden_size", 1),
			.out = oom_read_count_or(r, "output_channels", 256)};
	const uint64_t layers = oom_read_count(r, "num_hidden_layers", 0),
		       heads = oom_read_count(r, "num_attention_heads", 1);
	const uint64_t patch = oom_read_side(r, "patch_size", 16),
		       grid = oom_read_side(r, "image_size", 1024) / (patch ? patch : 1);
	const uint64_t window = oom_read_count_or(r, "window_size", 14),
		       channels = oom_read_count_or(r, "num_channels", 3);
	const struct oom_key *global = oom_read_key(r, "global_attn_indexes");
	uint64_t n[2] = {layers, 0};

	s.ff = oom_read_count_or(r, "mlp_dim",
				 (uint64_t)((double)s.d * oom_read_real(r, "mlp_ratio", 4)));
	if (r->status || !heads || s.d < heads || !patch || !grid || !window ||
	    layers > OOM_MAX_LAYERS || channels > 65536 || window > 65536 || !s.ff) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return (struct sam){.out = 1};
	}
	s.head = s.d / heads;
	s.place[0] = 2 * window - 1;
	s.place[1] = 2 * grid - 1;
	s.bias = oom_read_bool(r, "qkv_bias", true);
	s.relative = oom_read_bool(r, "use_rel_pos", true);
	for (uint32_t i = 0;
	     global && global->type == OOM_KEY_LIST && i < global->n_items && i < OOM_MAX_LAYERS;
	     i++) {
		const double at = oom_read_item_real(r, "global_attn_indexes", i, -1);

		n[1] += at >= 0 && at < (double)layers;
	}
	n[1] = n[1] > layers ? layers : n[1];
	n[0] = layers - n[1];
	if (oom_read_bool(r, "use_abs_pos", true))
		oom_weight(t, "pos_embed", grid * grid, s.d);
	oom_weight_conv(t, "projection", s.d, channels * patch * patch, true);
	for (s.whole = 0; s.whole < 2; s.whole++)
		oom_weight_layers(t, n[s.whole], sam_layer, &s);
	sam_neck(t, &s);
	return s;
}

/* GotOcr2MultiModalProjector */
struct oom_val oom_emit_sam(struct oom_emit *e)
{
	const struct sam s = sam_encoder(e, &e->part[1]);
	const uint64_t d = e->a->d_model;

	oom_weight_conv(e->t, "conv_upsampler1", 2 * s.out, s.out * 9, false);
	oom_weight_conv(e->t, "conv_upsampler2", d, 2 * s.out * 9, false);
	oom_weight_linear(e->t, "multimodal_projector", d, d, true);
	return nothing();
}

/* DeepseekVLHybridModel: a SAM encoder beside SigLIP, each projected to half the width. */
struct oom_val oom_emit_hybrid(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model;
	struct oom_tower w;
	struct sam s;

	oom_weight(t, "high_res_vision_alpha", 0, 1);
	s = sam_encoder(e, &e->part[2]);
	sam_neck(t, &s);
	oom_weight_conv(t, "conv1", 2 * s.out, s.out * 9, false);
	oom_weight_conv(t, "conv2", 4 * s.out, 2 * s.out * 9, false);
	run_tower(e, 1, NULL, &w);
	oom_weight_linear(t, "vision_proj", w.d, d / 2, true);
	oom_weight_linear(t, "high_res_vision_proj", 4 * s.out, d / 2, true);
	oom_weight_linear(t, "proj", d, d, true);
	return nothing();
}

/* ---- Q-Former: Blip2QFormerModel, InstructBlipQFormerModel ---- */

struct qformer {
	uint64_t d, ff, from;
	bool text, cross;
};

static void attention_output(struct oom_tape *t, uint64_t d, uint64_t from)
{
	oom_weight_linear(t, "query", d, d, true);
	oom_weight_linear(t, "key", from, d, true);
	oom_weight_linear(t, "value", from, d, true);
	oom_weight_linear(t, "dense", d, d, true);
	oom_weight_norm(t, "LayerNorm", d, true);
}

static void qformer_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct qformer *q = ctx;

	(void)i;
	attention_output(t, q->d, q->d);
	if (q->cross)
		attention_output(t, q->d, q->from);
	for (int k = 0; k < (q->text ? 2 : 1); k++) {
		oom_weight_linear(t, "dense", q->d, q->ff, true);
		oom_weight_linear(t, "dense", q->ff, q->d, true);
		oom_weight_norm(t, "LayerNorm", q->d, true);
	}
}

struct oom_val oom_emit_qformer(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[2];
	const bool blip2 = !strcmp(e->v->type, "blip-2");
	const uint64_t layers = oom_read_count(r, "num_hidden_layers", 0),
		       every = oom_read_count_or(r, "cross_attention_frequency", 2);
	struct qformer q = {.d = oom_read_count(r, "hidden_size", 1),
			    .ff = oom_read_count(r, "intermediate_size", 1),
			    .from = oom_read_count(r, "encoder_hidden_size", 1)};
	uint64_t crossed;
	struct oom_tower w;

	if (r->status || !every)
		return nothing();
	q.text = !blip2 || oom_read_bool(r, "use_qformer_text_input", false);
	oom_weight(t, "query_tokens", oom_read_count_or(&e->outer, "num_query_tokens", 32), q.d);
	run_tower(e, 1, NULL, &w);
	if (!blip2) {
		oom_weight(t, "word_embeddings", oom_read_count(r, "vocab_size", 1), q.d);
		oom_weight(t, "position_embeddings",
			   oom_read_count(r, "max_position_embeddings", 1), q.d);
	}
	oom_weight_norm(t, "layernorm", q.d, true);
	crossed = (layers + every - 1) / every;
	q.cross = true;
	oom_weight_layers(t, crossed, qformer_layer, &q);
	q.cross = false;
	oom_weight_layers(t, layers - crossed, qformer_layer, &q);
	oom_weight_linear(t, "language_projection", q.d, e->a->d_model, true);
	return nothing();
}

/* ---- perceivers ---- */

struct perceiver {
	uint64_t d, q, kv;
};

/* Idefics2PerceiverLayer */
static void perceiver_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct perceiver *p = ctx;

	(void)i;
	oom_weight_norm(t, "input_latents_norm", p->d, false);
	oom_weight_norm(t, "input_context_norm", p->d, false);
	oom_weight_linear(t, "q_proj", p->d, p->q, false);
	oom_weight_linear(t, "k_proj", p->d, p->kv, false);
	oom_weight_linear(t, "v_proj", p->d, p->kv, false);
	oom_weight_linear(t, "o_proj", p->q, p->d, false);
	oom_weight_norm(t, "post_attention_layernorm", p->d, false);
	oom_weight_linear(t, "gate_proj", p->d, 4 * p->d, false);
	oom_weight_linear(t, "up_proj", p->d, 4 * p->d, false);
	oom_weight_linear(t, "down_proj", 4 * p->d, p->d, false);
}

struct oom_val oom_emit_perceiver(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[2];
	const uint64_t ff = e->a->d_ff, d = e->a->d_model,
		       head = oom_read_count(r, "resampler_head_dim", 1);
	const struct perceiver p = {oom_read_count_or(r, "hidden_size", d),
				    head * oom_read_count(r, "resampler_n_heads", 1),
				    head * oom_read_count(r, "num_key_value_heads", 1)};
	struct oom_tower w;

	run_tower(e, 1, NULL, &w);
	oom_weight_linear(t, "gate_proj", w.d, ff, false);
	oom_weight_linear(t, "up_proj", w.d, ff, false);
	oom_weight_linear(t, "down_proj", ff, d, false);
	oom_weight(t, "latents", oom_read_count(r, "resampler_n_latents", 1), p.d);
	oom_weight_layers(t, oom_read_count(r, "resampler_depth", 0), perceiver_layer, &p);
	oom_weight_norm(t, "norm", p.d, false);
	return nothing();
}

/* AriaProjector: learned queries, a cross-attention around nn.MultiheadAttention, a plain
 * feed-forward. */
struct oom_val oom_emit_aria(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model;
	uint64_t most = oom_read_count_or(&e->outer, "max_value_projector_patch_to_query_dict",
					  256);
	struct oom_tower w;

	run_tower(e, 1, NULL, &w);
	oom_weight(t, "query", most, w.d);
	for (int i = 0; i < 3; i++)
		oom_weight_linear(t, qkvo[i], w.d, w.d, false);
	oom_weight_mha(t, w.d);
	oom_weight_linear(t, "linear", w.d, w.d, true);
	oom_weight_norm(t, "layer_norm", w.d, true);
	oom_weight_norm(t, "layer_norm_kv", w.d, true);
	oom_weight_norm(t, "layer_norm", w.d, true);
	oom_weight_linear(t, "linear_in", w.d, d, false);
	oom_weight_linear(t, "linear_out", d, d, false);
	return nothing();
}

/* ---- vector-quantised autoencoders: ChameleonVQVAE, JanusVQVAE ---- */

#define MAX_LEVELS 16
struct vq {
	uint64_t base, multiplier[MAX_LEVELS], n, blocks, in, out, latent, embed, codes, resolution;
	/* double_latent; attention at the deepest level, else by resolution */
	bool twice, deepest;
};

static struct vq vq_read(struct oom_reader *r)
{
	struct vq q = {.base = oom_read_count(r, "base_channels", 1),
		       .blocks = oom_read_count(r, "num_res_blocks", 0),
		       .in = oom_read_count_or(r, "in_channels", 3),
		       .out = oom_read_count_or(r, "out_channels", 3),
		       .latent = oom_read_count(r, "latent_channels", 1),
		       .embed = oom_read_count(r, "embed_dim", 1),
		       .codes = oom_read_count(r, "num_embeddings", 1),
		       .resolution = oom_read_count_or(r, "resolution", 512),
		       .twice = oom_read_bool(r, "double_latent", false)};

	q.n = oom_read_counts(r, "channel_multiplier", q.multiplier, MAX_LEVELS);
	if (q.base > 65536 || q.blocks > 64)
		oom_read_fail(r, "the image tokenizer's sizes (%s) make no model", r->prefix);
	return q;
}

static void vq_resnet(struct oom_tape *t, uint64_t in, uint64_t out)
{
	oom_weight_norm(t, "norm1", in, true);
	oom_weight_conv(t, "conv1", out, in * 9, true);
	oom_weight_norm(t, "norm2", out, true);
	oom_weight_conv(t, "conv2", out, out * 9, true);
	if (in != out)
		oom_weight_conv(t, "nin_shortcut", out, in, true);
}

static void vq_attention(struct oom_tape *t, uint64_t d)
{
	static const char *const names[] = {"q", "k", "v", "proj_out"};

	oom_weight_norm(t, "norm", d, true);
	for (int i = 0; i < 4; i++)
		oom_weight_conv(t, names[i], d, d, true);
}

static void vq_middle(struct oom_tape *t, uint64_t d, bool attention)
{
	vq_resnet(t, d, d);
	if (attention)
		vq_attention(t, d);
	vq_resnet(t, d, d);
}

static bool attends(struct oom_reader *r, const struct vq *q, uint64_t level, uint64_t resolution)
{
	const struct oom_key *k = oom_read_key(r, "attn_resolutions");

	if (q->deepest)
		return level == q->n - 1;
	for (uint32_t i = 0; k && k->type == OOM_KEY_LIST && i < k->n_items && i < 64; i++)
		if (oom_read_item_real(r, "attn_resolutions", i, -1) == (double)resolution)
			return !strcmp(oom_read_string(r, "attn_type", "vanilla"), "vanilla");
	return false;
}

static void vq_encoder(struct oom_tape *t, struct oom_reader *r, const struct vq *q)
{
	const bool vanilla = q->deepest ||
			     !strcmp(oom_read_string(r, "attn_type", "vanilla"), "vanilla");
	uint64_t in = q->base, resolution = q->resolution;

	oom_weight_conv(t, "conv_in", q->base, q->in * 9, true);
	for (uint64_t l = 0; l < q->n; l++) {
		for (uint64_t i = 0; i < q->blocks; i++) {
			vq_resnet(t, in, q->base * q->multiplier[l]);
			in = q->base * q->multiplier[l];
			if (attends(r, q, l, resolution))
				vq_attention(t, in);
		}
		if (l + 1 < q->n) {
			oom_weight_conv(t, "downsample", in, in * 9, true);
			resolution /= 2;
		}
	}
	vq_middle(t, in, vanilla);
	oom_weight_norm(t, "norm_out", in, true);
	oom_weight_conv(t, "conv_out", q->latent * (q->twice ? 2 : 1), in * 9, true);
}

static void vq_decoder(struct oom_tape *t, const struct vq *q)
{
	uint64_t in = q->base * q->multiplier[q->n - 1];

	oom_weight_conv(t, "conv_in", in, q->latent * 9, true);
	vq_middle(t, in, true);
	for (uint64_t l = q->n; l-- > 0;) {
		for (uint64_t i = 0; i <= q->blocks; i++) {
			vq_resnet(t, in, q->base * q->multiplier[l]);
			in = q->base * q->multiplier[l];
			if (l == q->n - 1)
				vq_attention(t, in);
		}
		if (l)
			oom_weight_conv(t, "upsample", in, in * 9, true);
	}
	oom_weight_norm(t, "norm_out", in, true);
	oom_weight_conv(t, "conv_out", q->out, in * 9, true);
}

static void vq_codes(struct oom_tape *t, const struct vq *q)
{
	oom_weight(t, "quantize.embedding", q->codes, q->embed);
	oom_weight_conv(t, "quant_conv", q->embed, q->latent, true);
	oom_weight_conv(t, "post_quant_conv", q->latent, q->embed, true);
}

/* ChameleonModel: the tokenizer's encoder alone. */
struct oom_val oom_emit_chameleon(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const struct vq q = vq_read(r);

	if (r->status)
		return nothing();
	vq_encoder(e->t, r, &q);
	vq_codes(e->t, &q);
	return nothing();
}

/* n linear layers: in -> out, out -> out ... */
static void aligner(struct oom_tape *t, uint64_t in, uint64_t out, uint64_t n)
{
	oom_weight_linear(t, "fc1", in, out, true);
	for (uint64_t i = 1; i < n && i < 64; i++)
		oom_weight_linear(t, "hidden_layers", out, out, true);
}

/* JanusModel: a SigLIP-like tower to see, a VQ-VAE to draw. */
struct oom_val oom_emit_janus(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *see = &e->part[1], *draw = &e->part[2];
	struct vq q = vq_read(draw);
	const uint64_t out = oom_read_count(draw, "projection_dim", 1);
	struct oom_tower w;

	q.deepest = true;
	if (draw->status)
		return nothing();
	run_tower(e, 1, NULL, &w);
	aligner(t, w.d, oom_read_count(see, "projection_dim", 1),
		oom_read_count_or(see, "depth", 2));
	vq_encoder(t, draw, &q);
	vq_codes(t, &q);
	vq_decoder(t, &q);
	oom_weight(t, "generation_embeddings", q.codes, q.embed);
	aligner(t, q.embed, out, oom_read_count_or(draw, "num_hidden_layers", 2));
	oom_weight_linear(t, "proj_out", oom_read_count(draw, "image_token_embed_dim", 1), out,
			  true);
	oom_weight_linear(t, "vision_head", out, q.codes, true);
	return nothing();
}

/* PPFormulaNetVisionModel: SAM's encoder, two convolutions, two linear layers. */
struct oom_val oom_emit_formula(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const struct sam s = sam_encoder(e, r);
	const uint64_t mid = oom_read_count_or(r, "post_conv_mid_channels", 512),
		       out = oom_read_count_or(r, "post_conv_out_channels", 1024);

	oom_weight_conv(e->t, "conv1", mid, s.out * 9, false);
	oom_weight_conv(e->t, "conv2", out, mid * 9, false);
	oom_weight_linear(e->t, "linear_1", out, out, true);
	oom_weight_linear(e->t, "linear_2", out,
			  oom_read_count_or(r, "decoder_hidden_size", e->a->d_model), true);
	return oom_none();
}
