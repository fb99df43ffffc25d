/* What one composition alone has beside its text model, as weights (weights.h): cross-attention (IDEFICS)
 * and single layers.
 * Reference: transformers 5.12, the classes named at each table. */
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

enum { H = YES + 1, FF, GATED };

/* ---- IDEFICS: a frozen CLIP tower, gated cross-attention layers, perhaps a perceiver ---- */

enum { FROM = GATED, HEAD, HEADS, GATE, NORMS, FF4 };
static const struct oom_weight_row idefics_cross[] = {
	ALONE("alpha_cross_attn", NO, GATE), ALONE("alpha_dense", NO, GATE),
	LINEAR("q_proj", H, H, NO),
	LINEAR("k_proj", FROM, H, NO), LINEAR("v_proj", FROM, H, NO), LINEAR("o_proj", H, H, NO),
	ONLY(NORMS, 2), NORM("q_layer_norm", HEAD, NO), NORM("k_layer_norm", HEAD, NO),
	LINEAR("gate_proj", H, FF, NO), LINEAR("down_proj", FF, H, NO),
	LINEAR("up_proj", H, FF, NO),
	NORM("input_layernorm", H, NO), NORM("post_attention_layernorm", H, NO), OOM_WEIGHTS_END};
/* IdeficsPerceiverResampler's blocks */
static const struct oom_weight_row idefics_resampler[] = {
	NORM("context_layer_norm", H, YES), NORM("latents_layer_norm", H, YES), ONLY(NORMS, 2),
	NORM("q_layer_norm", HEAD, YES), NORM("k_layer_norm", HEAD, YES),
	LINEAR("q_proj", H, HEADS, NO),
	LINEAR("k_proj", H, HEADS, NO), LINEAR("v_proj", H, HEADS, NO),
	LINEAR("output_proj", HEADS, H, NO),
	NORM("ln", H, YES), LINEAR("fc", H, FF4, NO), LINEAR("c_proj", FF4, H, NO),
		OOM_WEIGHTS_END};

static void idefics_perceiver(struct oom_tape *t, struct oom_reader *r, uint64_t d)
{
	const uint64_t head = oom_read_count(r, "resampler_head_dim", 1);
	const uint64_t n[] = {[YES] = 1, [H] = d, [HEAD] = head, [FF4] = 4 * d,
			      [HEADS] = head * oom_read_count(r, "resampler_n_heads", 1),
			      [NORMS] = oom_read_bool(r, "qk_layer_norms_perceiver", false)};

	oom_weight(t, "latents", oom_read_count(r, "resampler_n_latents", 1), d);
	oom_weight_stack(t, oom_read_count(r, "resampler_depth", 0), idefics_resampler, n);
	oom_weight_norm(t, "layer_norm", d, true);
}

struct oom_val oom_emit_idefics(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *o = &e->outer;
	const struct oom_arch *a = e->a;
	const uint64_t more = oom_read_count_or(o, "additional_vocab_size", 0),
		       every = oom_read_count_or(o, "cross_layer_interval", 1);
	const bool frozen = t->frozen, vector = !strcmp(oom_read_string(o, "alpha_type", "float"),
							"vector");
	uint64_t n[] = {[YES] = 1, [H] = a->d_model, [FF] = a->d_ff, [HEAD] = a->head_dim,
			[GATE] = vector ? a->d_model : 1, [NORMS] =
				oom_read_bool(o, "qk_layer_norms", false)};
	struct oom_tower w;

	t->frozen |= oom_read_bool(o, "freeze_vision_layers", true);
	oom_tower_weights(e, 1, &w);
	t->frozen = frozen;
	n[FROM] = w.d;
	oom_weight_stack(t, every ? a->n_layers / every : 0, idefics_cross, n);
	if (more)
		oom_weight(t, "additional_embedding", more, a->d_model);
	if (more && !a->tie)
		oom_weight_linear(t, "additional_fc", a->d_model, more, false);
	if (oom_read_bool(o, "use_resampler", false))
		idefics_perceiver(t, &e->part[2], w.d);
	return oom_none();
}

/* ---- a tower, and a layer or two ---- */

/* BlipForConditionalGeneration: the tower alone. */
/* BlipForConditionalGeneration has returned. */
static void blip_over(struct oom_tape *t, void *ctx)
{
	struct oom_emit *e = ctx;

	t->crossed.there = false;
	oom_forget_shared(e->output);
}

/* Every layer of the text's attends to the image's states (caption.c); no mask hides any. */
struct oom_val oom_emit_blip(struct oom_emit *e)
{
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	if (!e->images)
		return x;
	e->t->crossed = (struct oom_crossed){
		.there = true, .x = oom_name_shared(e->output, x), .mask = oom_none(), .rows = oom_none(), .tokens = e->m_tokens,
		.len = oom_len_const(e->t, OOM_MONO_ONE, e->pictures * oom_mono_now(e->t, e->m_len)), .over = blip_over, .ctx = e};
	return oom_none();
}

/* MiniMaxM3VLMultiModalProjector: one pair of layers for patches, one for merged tokens. */
struct oom_val oom_emit_minimax(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model, mid = oom_read_count_or(&e->outer,
								  "projector_hidden_size", 6144);
	struct oom_tower w;

	oom_tower_weights(e, 1, &w);
	t->selection.part = OOM_PART_PROJECTOR;
	oom_weight_linear(t, "linear_1", w.d, mid, true);
	oom_weight_linear(t, "linear_2", mid, d, true);
	oom_weight_linear(t, "merge_linear_1",
			  oom_read_count_or(&e->outer, "merged_hidden_size", d * w.merge * w.merge),
			  mid, true);
	oom_weight_linear(t, "merge_linear_2", mid, d, true);
	t->selection.part = OOM_PART_TOWER;
	return oom_none();
}

/* Elements of a patch of the file's own patch_size and num_channels. */
static uint64_t patch_of(struct oom_reader *r, uint64_t side)
{
	const uint64_t patch = oom_read_side(r, "patch_size", side),
		       channels = oom_read_count_or(r, "num_channels", 3);

	if (!patch || patch > 65536 || !channels || channels > 65536)
		oom_read_fail(r, "patch_size and num_channels make no layer");
	return r->status ? 1 : patch * patch * channels;
}

/* FuyuModel: patches, which the processor cut, go through one linear layer; there is no tower.  The layer is as wide as
 * the file says beside text_config: no image of another width joins the words. */
struct oom_val oom_emit_fuyu(struct oom_emit *e)
{
	struct oom_reader *o = &e->outer;
	const uint64_t cut = patch_of(o, 30), patch = oom_read_side(o, "patch_size", 30),
		       d = oom_read_count_or(o, "hidden_size", e->a->d_model),
		       side = e->t->plan->image_size ? (uint64_t)e->t->plan->image_size : oom_read_side(o, "image_size", 300),
		       n = patch && side >= patch ? side / patch * (side / patch) : 1;
	struct oom_val x;

	if (d != e->a->d_model) {
		oom_weight_linear(e->t, "vision_embed_tokens", cut, d, true);
		return oom_none();
	}
	x = oom_pixel_values(e->t, e->m_images, n * cut);
	if (e->merged)
		e->t->pixels += (uint64_t)e->t->plan->images * n * cut;
	oom_tower_tokens(e, n);
	x = oom_op_view(e->t, x, e->m_tokens, (struct oom_dim){cut, "patch"});
	return oom_op_linear_in(e->t, "vision_embed_tokens", x, cut, (struct oom_dim){d, "hidden_size"}, OOM_BIAS);
}

/* UdopForConditionalGeneration beside T5: patches for both stacks, places of words on the page,
 * horizontal and vertical relative positions. */
struct oom_val oom_emit_udop(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *o = &e->outer;
	const uint64_t d = e->a->d_model, patch = patch_of(o, 16),
		       buckets = oom_read_count_or(o, "relative_attention_num_buckets", 32),
		       places = oom_read_count_or(o, "max_2d_position_embeddings", 1024);

	for (int i = 0; i < 2; i++) {
		oom_weight_conv(t, "proj", d, patch, true);
		for (int k = 0; k < 2; k++)
			oom_weight(t, "relative_attention_bias", buckets, e->a->n_heads);
	}
	oom_weight(t, "x_position_embeddings", places, d);
	oom_weight(t, "y_position_embeddings", places, d);
	oom_tape_warn(t, "words without places and without an image: the layout's part of a step is "
		     "not counted");
	return oom_none();
}
