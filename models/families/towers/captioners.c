/* What BLIP, KOSMOS, Pix2Struct, PP-FormulaNet, UDOP, MiniCPM-V, MiniMax M3 and pi0 have beside a
 * text decoder, as weights: see shapes.c.
 * Reference: transformers 5.12, the classes named at each function. */
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

static void run_tower(struct oom_emit *e, size_t i, struct oom_tower *w)
{
	oom_tower_read(w, &e->part[i], e->v->part[i].type);
	oom_discard(e->t, oom_tower_run(e, w));
}

/* BlipForConditionalGeneration: the tower alone. */
struct oom_val oom_emit_blip(struct oom_emit *e)
{
	struct oom_tower w;

	run_tower(e, 1, &w);
	return oom_none();
}

/* ---- Pix2StructVisionModel, Kosmos2_5VisionModel: RMS norms, gated feed-forwards, rows and
 * columns embedded ---- */

struct pix {
	uint64_t d, q, ff;
};

static void pix_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct pix *s = ctx;

	(void)i;
	oom_weight_linear(t, "query", s->d, s->q, false);
	oom_weight_linear(t, "key", s->d, s->q, false);
	oom_weight_linear(t, "value", s->d, s->q, false);
	oom_weight_linear(t, "output", s->q, s->d, false);
	oom_weight_linear(t, "wi_0", s->d, s->ff, false);
	oom_weight_linear(t, "wi_1", s->d, s->ff, false);
	oom_weight_linear(t, "wo", s->ff, s->d, false);
	oom_weight_norm(t, "pre_mlp_layer_norm", s->d, false);
	oom_weight_norm(t, "pre_attention_layer_norm", s->d, false);
}

static uint64_t pix_tower(struct oom_emit *e, bool kosmos)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t places = oom_read_count_or(r, kosmos ? "max_num_patches" : "seq_len", 4096);
	const struct pix s = {oom_read_count(r, "hidden_size", 1),
			      oom_read_count(r, kosmos ? "head_dim" : "d_kv", 1) *
				      oom_read_count(r, "num_attention_heads", 1),
			      oom_read_count(r, kosmos ? "intermediate_size" : "d_ff", 1)};

	oom_weight_linear(t, "patch_projection", oom_read_count(r, "patch_embed_hidden_size", 1),
			  s.d, true);
	oom_weight(t, "row_embedder", places, s.d);
	oom_weight(t, "column_embedder", places, s.d);
	oom_weight_layers(t, oom_read_count(r, "num_hidden_layers", 0), pix_layer, &s);
	oom_weight_norm(t, "layernorm", s.d, false);
	return s.d;
}

struct oom_val oom_emit_pix2struct(struct oom_emit *e)
{
	pix_tower(e, false);
	return oom_none();
}

/* Kosmos2ImageToTextProjection: learned queries attend to the image. */
struct oom_val oom_emit_kosmos(struct oom_emit *e)
{
	static const char *const names[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model;
	uint64_t from;

	if (!strcmp(e->v->type, "kosmos-2.5")) {
		from = pix_tower(e, true);
	} else {
		struct oom_tower w;

		run_tower(e, 1, &w);
		from = w.d;
	}
	oom_weight(t, "latent_query", oom_read_count(&e->outer, "latent_query_num", 1), d);
	oom_weight_linear(t, "dense", from, d, true);
	for (int i = 0; i < 4; i++)
		oom_weight_linear(t, names[i], d, d, true);
	return oom_none();
}

/* UdopForConditionalGeneration beside T5: patches for both stacks, places of words on the page,
 * horizontal and vertical relative positions. */
struct oom_val oom_emit_udop(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *o = &e->outer;
	const uint64_t d = e->a->d_model, patch = oom_read_side(o, "patch_size", 16),
		       channels = oom_read_count_or(o, "num_channels", 3);
	const uint64_t buckets = oom_read_count_or(o, "relative_attention_num_buckets", 32);
	const uint64_t places = oom_read_count_or(o, "max_2d_position_embeddings", 1024);

	if (patch > 65536 || channels > 65536) {
		oom_read_fail(o, "patch_size and num_channels make no layer");
		return oom_none();
	}
	for (int i = 0; i < 2; i++) {
		oom_weight_conv(t, "proj", d, channels * patch * patch, true);
		for (int k = 0; k < 2; k++)
			oom_weight(t, "relative_attention_bias", buckets, e->a->n_heads);
	}
	oom_weight(t, "x_position_embeddings", places, d);
	oom_weight(t, "y_position_embeddings", places, d);
	t->warning = "words without places and without an image: the layout's part of a step is "
		     "not counted";
	return oom_none();
}

/* MiniCPMV4_6ViTWindowAttentionMerger, MiniCPMV4_6Merger */
struct oom_val oom_emit_minicpm(struct oom_emit *e)
{
	static const char *const names[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const double side = oom_read_item_real(r, "window_kernel_size", 0, 2) *
			    oom_read_item_real(r, "window_kernel_size", 1, 2);
	const uint64_t window = side >= 1 && side <= 4096 ? (uint64_t)side : 4,
		       times = oom_read_count_or(&e->outer, "merger_times", 1);
	struct oom_tower w;

	run_tower(e, 1, &w);
	for (int i = 0; i < 4; i++)
		oom_weight_linear(t, names[i], w.d, w.d, true);
	oom_weight_norm(t, "layer_norm1", w.d, true);
	oom_weight_norm(t, "pre_norm", window * w.d, true);
	oom_weight_linear(t, "linear_1", window * w.d, window * w.ff, true);
	oom_weight_linear(t, "linear_2", window * w.ff, w.d, true);
	for (uint64_t i = 0; i < times && i < 64; i++) {
		oom_weight_norm(t, "pre_norm", 4 * w.d, true);
		oom_weight_linear(t, "linear_1", 4 * w.d, 4 * w.d, true);
		oom_weight_linear(t, "linear_2", 4 * w.d, i + 1 == times ? e->a->d_model : w.d,
				  true);
	}
	return oom_none();
}

/* MiniMaxM3VLMultiModalProjector: one pair of layers for patches, one for merged tokens. */
struct oom_val oom_emit_minimax(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model,
		       mid = oom_read_count_or(&e->outer, "projector_hidden_size", 6144);
	struct oom_tower w;

	run_tower(e, 1, &w);
	oom_weight_linear(t, "linear_1", w.d, mid, true);
	oom_weight_linear(t, "linear_2", mid, d, true);
	oom_weight_linear(t, "merge_linear_1", d * w.merge * w.merge, mid, true);
	oom_weight_linear(t, "merge_linear_2", mid, d, true);
	return oom_none();
}
