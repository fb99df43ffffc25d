/* Vector-quantised autoencoders, which make tokens of images and images of tokens, as weights alone
 * (weights.h).  Reference: transformers 5.12, models/{chameleon,janus,emu3}/modeling_*.py (ChameleonVQVAE,
 * JanusVQVAE, Emu3VQVAE). */
#include <string.h>

#include "blocks/image.h"
#include "projector.h"
#include "vision.h"
#include "vq.h"
#include "weights.h"

static struct vq vq_read(struct oom_reader *r)
{
	struct vq q = {.base = oom_read_count(r, "base_channels", 1),
		       .blocks = oom_read_count(r, "num_res_blocks", 0),
		       .in = oom_read_count_or(r, "in_channels", 3),
		       .out = oom_read_count_or(r, "out_channels", 3),
		       .latent = oom_read_count(r, "latent_channels", 1),
		       .embed = oom_read_count(r, "embed_dim", 1),
		       .twice = oom_read_bool(r, "double_latent", false), .middle = true};

	q.n = oom_read_counts(r, "channel_multiplier", q.multiplier, VQ_MAX_LEVELS);
	if (r->status || q.base > 65536 || q.blocks > 64)
		oom_read_fail(r, "the image tokenizer's sizes (%s) make no model", r->prefix);
	return q;
}

/* Whether attn_resolutions has the number. */
static bool listed(struct oom_reader *r, uint64_t number)
{
	const uint64_t n = oom_read_items(r, "attn_resolutions", 0);

	for (uint32_t i = 0; i < n && i < 64; i++)
		if (oom_read_item_real(r, "attn_resolutions", i, -1) == (double)number)
			return true;
	return false;
}

/* A group norm, or one steered by the quantised features (Emu3VQVAESpatialNorm). */
static void vq_norm(struct oom_tape *t, const char *name, uint64_t d, uint64_t steered)
{
	oom_weight_norm(t, name, d, true);
	if (steered) {
		oom_weight_conv(t, "conv_y", d, steered, true);
		oom_weight_conv(t, "conv_b", d, steered, true);
	}
}

static void vq_resnet(struct oom_tape *t, const struct vq *q, uint64_t in, uint64_t out)
{
	vq_norm(t, "norm1", in, q->steered);
	oom_weight_conv(t, "conv1", out, in * 9, true);
	vq_norm(t, "norm2", out, q->steered);
	oom_weight_conv(t, "conv2", out, out * 9, true);
	if (in != out)
		oom_weight_conv(t, "nin_shortcut", out, in, true);
}

static void vq_attention(struct oom_tape *t, const struct vq *q, uint64_t d)
{
	static const char *const names[2][4] = {{"q", "k", "v", "proj_out"},
						{"q_proj", "k_proj", "v_proj", "out_proj"}};

	vq_norm(t, "norm", d, q->steered);
	for (int i = 0; i < 4; i++) {
		if (q->linear)
			oom_weight_linear(t, names[1][i], q->linear, q->linear, true);
		else
			oom_weight_conv(t, names[0][i], d, d, true);
	}
}

static void vq_middle(struct oom_tape *t, const struct vq *q, uint64_t d)
{
	vq_resnet(t, q, d, d);
	if (q->middle)
		vq_attention(t, q, d);
	vq_resnet(t, q, d, d);
}

/* So many blocks of level l, from `in` channels; the channels they leave. */
static uint64_t vq_level(struct oom_tape *t, const struct vq *q, uint64_t l, uint64_t blocks,
			 uint64_t in)
{
	const uint64_t d = q->base * q->multiplier[l];

	for (uint64_t i = 0; i < blocks; i++) {
		vq_resnet(t, q, i ? d : in, d);
		if (q->attends[l])
			vq_attention(t, q, d);
	}
	return blocks ? d : in;
}

static void vq_encoder(struct oom_tape *t, const struct vq *q)
{
	uint64_t in = q->base;

	oom_weight_conv(t, "conv_in", in, q->in * 9, true);
	for (uint64_t l = 0; l < q->n; l++) {
		in = vq_level(t, q, l, q->blocks, in);
		if (l + 1 < q->n)
			oom_weight_conv(t, "downsample", in, in * 9, true);
	}
	vq_middle(t, q, in);
	oom_weight_norm(t, "norm_out", in, true);
	oom_weight_conv(t, "conv_out", q->latent * (q->twice ? 2 : 1), in * 9, true);
}

static void vq_decoder(struct oom_tape *t, const struct vq *q)
{
	uint64_t in = q->base * q->multiplier[q->n - 1];

	oom_weight_conv(t, "conv_in", in, q->latent * 9, true);
	vq_middle(t, q, in);
	for (uint64_t l = q->n; l-- > 0;) {
		in = vq_level(t, q, l, q->blocks + 1, in);
		if (l)
			oom_weight_conv(t, "upsample", in, in * 9, true);
	}
	vq_norm(t, "norm_out", in, q->steered);
	oom_weight_conv(t, "conv_out", q->out, in * 9, true);
}

/* The table of codes, and the convolutions around it with `kernel` elements. */
static void vq_codes(struct oom_tape *t, const struct vq *q, uint64_t codes, uint64_t kernel)
{
	oom_weight(t, "quantize.embedding", codes, q->embed);
	oom_weight_conv(t, "quant_conv", q->embed, q->latent * kernel, true);
	oom_weight_conv(t, "post_quant_conv", q->latent, q->embed * kernel, true);
}

/* What the tokenizer makes of the images: numbers of words, which the text's own table has. */
static struct oom_val chameleon_words(struct oom_emit *e, const struct vq *q, uint64_t codes, uint64_t side)
{
	const uint64_t elements = q->in * side * side;
	struct oom_tape *t = e->t;
	const uint16_t b = t->m_b;
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_pixel_values(t, e->m_images, elements), ids;
	uint64_t n;

	t->pixels += e->pictures * elements;
	t->m_b = e->m_images;                   /* whose samples are images */
	ids = oom_name(&f, oom_vq_tokens(t, q, codes, side, x, &n));
	t->m_b = b;
	oom_tower_tokens(e, n ? n : 1);
	x = oom_op_embedding_param(t, t->table, ids, e->a->vocab, D(e->a->d_model));
	return oom_leave(&f, oom_lora_embedded(t, oom_hooked(t, x)));
}

/* ChameleonModel: the tokenizer's encoder alone. */
struct oom_val oom_emit_chameleon(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t codes = oom_read_count(r, "num_embeddings", 1),
		       side = oom_read_count_or(r, "resolution", 512);
	struct vq q = vq_read(r);

	if (r->status)
		return oom_none();
	q.middle = !strcmp(oom_read_string(r, "attn_type", "vanilla"), "vanilla");
	for (uint64_t l = 0; l < q.n; l++)
		q.attends[l] = q.middle && listed(r, side >> l);
	if (e->merged)
		return chameleon_words(e, &q, codes, e->t->plan->image_size ? (uint64_t)e->t->plan->image_size : side);
	vq_encoder(e->t, &q);
	vq_codes(e->t, &q, codes, 1);
	return oom_none();
}

/* n linear layers: in -> out, out -> out ... */
static void aligner(struct oom_tape *t, uint64_t in, uint64_t out, uint64_t n)
{
	oom_weight_linear(t, "fc1", in, out, true);
	for (uint64_t i = 1; i < n && i < 64; i++)
		oom_weight_linear(t, "hidden_layers", out, out, true);
}

/* JanusVisionAlignerMLP, as it runs. */
static struct oom_val aligned(struct oom_emit *e, struct oom_val x, uint64_t out, uint64_t n)
{
	const enum oom_act act = oom_read_act(&e->part[1], "hidden_act", "gelu");

	e->t->scope = "aligner";
	x = oom_project(e, "fc1", x, out, true);
	for (uint64_t i = 1; i < n && i < 64; i++)
		x = oom_project(e, "hidden_layers", oom_activation(e->t, act, x), out, true);
	return x;
}

/* JanusModel: a SigLIP-like tower to see, a VQ-VAE to draw, of which a step has the weights alone. */
struct oom_val oom_emit_janus(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *see = &e->part[1], *draw = &e->part[2];
	const uint64_t out = oom_read_count(draw, "projection_dim", 1),
		       codes = oom_read_count(draw, "num_embeddings", 1);
	struct vq q = vq_read(draw);
	struct oom_weights idle;
	struct oom_tower w;
	struct oom_val x;

	if (draw->status)
		return oom_none();
	q.attends[q.n - 1] = true;              /* at the deepest level */
	x = aligned(e, oom_tower_part(e, 1, &w), oom_read_count(see, "projection_dim", 1), oom_read_count_or(see, "depth", 2));
	oom_weights_begin(t, &idle);
	vq_encoder(t, &q);
	vq_codes(t, &q, codes, 1);
	vq_decoder(t, &q);
	oom_weight(t, "generation_embeddings", codes, q.embed);
	aligner(t, q.embed, out, oom_read_count_or(draw, "num_hidden_layers", 2));
	oom_weight_linear(t, "proj_out", oom_read_count(draw, "image_token_embed_dim", 1), out,
			  true);
	oom_weight_linear(t, "vision_head", out, codes, true);
	oom_weights_end(t, &idle);
	return x;
}

/* Emu3VQVAETemporalResnetBlock: batch norms and 3 x 3 x 3 convolutions; the temporal resampler's
 * kernel. */
static void emu_times(struct oom_tape *t, const struct vq *s, uint64_t d, uint64_t kernel)
{
	for (uint64_t i = 0; i < s->times; i++)
		oom_weight_conv(t, "time_conv", d, d * kernel, true);
	for (uint64_t i = 0; i < s->blocks; i++) {
		oom_weight_norm(t, "norm1", d, true);
		oom_weight_conv(t, "conv1", d, d * 27, true);
		oom_weight_norm(t, "norm2", d, true);
		oom_weight_conv(t, "conv2", d, d * 27, true);
	}
}

/* Emu3VQVAE, with time as a third dimension. */
struct oom_val oom_emit_emu3(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t codes = oom_read_count(r, "codebook_size", 1);
	struct vq q = vq_read(r);

	q.linear = oom_read_count(r, "hidden_size", 1);
	for (uint64_t f = oom_read_count_or(r, "temporal_downsample_factor", 4); f > 1; f /= 2)
		q.times++;
	if (r->status)
		return oom_none();
	for (uint64_t l = 0; l < q.n; l++)
		q.attends[l] = listed(r, l);
	vq_encoder(t, &q);
	emu_times(t, &q, q.latent * (q.twice ? 2 : 1), 36);     /* 4 x 3 x 3 */
	emu_times(t, &q, q.latent, 27);
	q.steered = q.embed;
	vq_decoder(t, &q);
	vq_codes(t, &q, codes, 3);
	return oom_none();
}
