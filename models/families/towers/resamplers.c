/* What makes a few tokens of an image's many, as weights alone (weights.h): Q-Formers and learned queries.
 * Reference: transformers 5.12, the classes named at each table. */
#include "blocks/image.h"
#include "projector.h"
#include "vision.h"
#include "weights.h"

/* ---- Q-Former: Blip2QFormerModel, InstructBlipQFormerModel ---- */

/* FROM: the width of what cross-attention reads; TEXT: a feed-forward for text beside the queries' */
enum { Q_H = YES + 1, Q_FF, Q_FROM, Q_CROSS, Q_TEXT };
#define Q_ATTENTION(from) \
	LINEAR("query", Q_H, Q_H, YES), LINEAR("key", from, Q_H, YES), \
		LINEAR("value", from, Q_H, YES), LINEAR("dense", Q_H, Q_H, YES), \
	NORM("LayerNorm", Q_H, YES)
#define Q_FEED \
	LINEAR("dense", Q_H, Q_FF, YES), LINEAR("dense", Q_FF, Q_H, YES), \
	NORM("LayerNorm", Q_H, YES)
static const struct oom_weight_row qformer_layer[] = {
	Q_ATTENTION(Q_H), ONLY(Q_CROSS, 5), Q_ATTENTION(Q_FROM), Q_FEED, ONLY(Q_TEXT, 3), Q_FEED,
		OOM_WEIGHTS_END};

/* Layers d wide: every so-many-th of them, as the config r says, with cross-attention; text: a second feed-forward. */
static void qformer_layers(struct oom_tape *t, struct oom_reader *r, uint64_t d, uint64_t from, bool text)
{
	const uint64_t layers = oom_read_count(r, "num_hidden_layers", 0),
		       every = oom_read_count_or(r, "cross_attention_frequency", 2),
		       crossed = every ? (layers + every - 1) / every : 0;
	uint64_t n[] = {[YES] = 1, [Q_H] = d, [Q_FF] = oom_read_count(r, "intermediate_size", 1),
			[Q_FROM] = from, [Q_CROSS] = 1,
				[Q_TEXT] = text};

	oom_weight_stack(t, crossed, qformer_layer, n);
	n[Q_CROSS] = 0;
	oom_weight_stack(t, layers - crossed, qformer_layer, n);
}

static struct oom_val qformer(struct oom_emit *e, bool instruct)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[2];
	const uint64_t d = oom_read_count(r, "hidden_size", 1);
	struct oom_tower w;

	if (r->status || !oom_read_count_or(r, "cross_attention_frequency", 2))
		return oom_none();
	oom_weight(t, "query_tokens", oom_read_count_or(&e->outer, "num_query_tokens", 32), d);
	oom_tower_weights(e, 1, &w);
	if (instruct) {
		oom_weight(t, "word_embeddings", oom_read_count(r, "vocab_size", 1), d);
		oom_weight(t, "position_embeddings", oom_read_count(r, "max_position_embeddings",
								    1), d);
	}
	oom_weight_norm(t, "layernorm", d, true);
	/* the composition overwrites encoder_hidden_size with the tower's (Blip2Config.__post_init__) */
	qformer_layers(t, r, d, w.d,
		       instruct || oom_read_bool(r, "use_qformer_text_input", false));
	oom_weight_linear(t, "language_projection", d, e->a->d_model, true);
	return oom_none();
}

struct oom_val oom_emit_qformer_weights(struct oom_emit *e)
{
	return qformer(e, true);
}

struct oom_val oom_emit_blip2_weights(struct oom_emit *e)
{
	return qformer(e, false);
}

/* ---- learned queries ---- */

enum { H = YES + 1, OUT, MOST, FROM };

/* AriaProjector: a cross-attention around nn.MultiheadAttention (in_proj of 3 H x H and its bias), a
 * plain feed-forward. */
struct oom_val oom_emit_aria(struct oom_emit *e)
{
	static const struct oom_weight_row queries[] = {
	ALONE("query", MOST, H), LINEAR("q_proj", H, H, NO), LINEAR("k_proj", H, H, NO),
	LINEAR("v_proj", H, H, NO), OOM_WEIGHTS_END};
	static const struct oom_weight_row rest[] = {
	LINEAR("linear", H, H, YES), NORM("layer_norm", H, YES),
			NORM("layer_norm_kv", H, YES),
	NORM("layer_norm", H, YES), LINEAR("linear_in", H, OUT, NO),
			LINEAR("linear_out", OUT, OUT, NO),
		OOM_WEIGHTS_END};
	uint64_t n[] = {[YES] = 1, [OUT] = e->a->d_model,
			[MOST] = oom_read_count_or(&e->outer,
						   "max_value_projector_patch_to_query_dict", 256)};
	struct oom_tower w;

	oom_tower_weights(e, 1, &w);
	n[H] = w.d;
	oom_weight_rows(e->t, queries, n);
	oom_weight_mha(e->t, w.d);
	oom_weight_rows(e->t, rest, n);
	return oom_none();
}

/* Kosmos2ImageToTextProjection: learned queries attend to the image and to themselves, written as the text's attention.
 * The weights are returned, and held as long as the features. */
static struct oom_val kosmos(struct oom_emit *e, struct oom_val x)
{
	struct oom_tape *t = e->t;
	const uint64_t n = oom_read_count(&e->outer, "latent_query_num", 1), keys = oom_mono_now(t, e->m_len) + n;
	const struct oom_dim d = {e->a->d_model, "d_model"};
	struct oom_attn at = oom_attn_of(t, e->a);
	struct oom_frame f = {.t = t};
	struct oom_val latents;

	t->token_mask += e->merged;             /* image_embeds_position_mask */
	t->scope = "image_to_text_projection";
	x = oom_name(&f, oom_project(e, "dense", oom_normalize(t, x, 1), d.n, true));
	oom_tower_tokens(e, n);
	t->selection.part = OOM_PART_PROJECTOR;
	t->scope = "image_to_text_projection";
	latents = oom_op_view(t, oom_param(t, "latent_query", n, d.n, 0), oom_len_const(t, OOM_MONO_ONE, n), d);
	latents = oom_op_expand(t, latents, e->m_tokens, d);
	latents.perm = oom_cond_above(t, e->m_images, 1);
	if (latents.node <= -2)                 /* no leaf any more, whose cast autocast would keep */
		latents.node = -1;
	latents = oom_name(&f, latents);
	at.kv_from = oom_name(&f, oom_op_cat_into(t, x, latents, oom_len_const(t, e->m_images, keys), d));
	at.caller = e->output ? e->output : &f;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.scale_after = true;
	at.q = "q_proj";
	at.k = "k_proj";
	at.v = "v_proj";
	at.o = "out_proj";
	at.mq = e->m_tokens;
	at.mk = oom_len_const(t, e->m_images, keys);
	at.sk = oom_len_const(t, OOM_MONO_ONE, keys);
	x = oom_attention(t, &at, latents);
	t->selection.part = OOM_PART_TOWER;
	return oom_leave(&f, x);
}

struct oom_val oom_emit_kosmos(struct oom_emit *e)
{
	struct oom_tower w;

	return kosmos(e, oom_tower_part(e, 1, &w));
}

/* ---- Pix2StructVisionModel, Kosmos2_5VisionModel: RMS norms, gated feed-forwards, rows and columns
 * embedded ---- */

enum { X_H = YES + 1, X_Q, X_FF };
static const struct oom_weight_row pix_layer[] = {
	LINEAR("query", X_H, X_Q, NO), LINEAR("key", X_H, X_Q, NO), LINEAR("value", X_H, X_Q, NO),
	LINEAR("output", X_Q, X_H, NO), LINEAR("wi_0", X_H, X_FF, NO),
	LINEAR("wi_1", X_H, X_FF, NO),
	LINEAR("wo", X_FF, X_H, NO), NORM("pre_mlp_layer_norm", X_H, NO),
	NORM("pre_attention_layer_norm", X_H, NO), OOM_WEIGHTS_END};

/* keys: of the patches' number, a head's width, the feed-forward's; its width. */
static uint64_t pix_tower(struct oom_emit *e, const char *const keys[3])
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t d = oom_read_count(r, "hidden_size", 1), places =
		oom_read_count_or(r, keys[0], 4096);
	const uint64_t n[] = {[YES] = 1, [X_H] = d, [X_FF] = oom_read_count(r, keys[2], 1),
			      [X_Q] = oom_read_count(r, keys[1], 1) *
				      oom_read_count(r, "num_attention_heads", 1)};

	oom_weight_linear(t, "patch_projection", oom_read_count(r, "patch_embed_hidden_size", 1), d,
			  true);
	oom_weight(t, "row_embedder", places, d);
	oom_weight(t, "column_embedder", places, d);
	oom_weight_stack(t, oom_read_count(r, "num_hidden_layers", 0), pix_layer, n);
	oom_weight_norm(t, "layernorm", d, false);
	return d;
}

struct oom_val oom_emit_pix2struct(struct oom_emit *e)
{
	pix_tower(e, (const char *const[]){"seq_len", "d_kv", "d_ff"});
	return oom_none();
}

struct oom_val oom_emit_kosmos25(struct oom_emit *e)
{
	static const struct oom_weight_row projection[] = {
	ALONE("latent_query", MOST, H), LINEAR("dense", FROM, H, YES), LINEAR("k_proj", H, H, YES), LINEAR("v_proj", H, H, YES),
	LINEAR("q_proj", H, H, YES), LINEAR("out_proj", H, H, YES), OOM_WEIGHTS_END};
	const uint64_t from = pix_tower(e, (const char *const[]){"max_num_patches", "head_dim", "intermediate_size"});

	oom_weight_rows(e->t, projection, (const uint64_t[]){[YES] = 1, [H] = e->a->d_model, [FROM] = from,
							     [MOST] = oom_read_count(&e->outer, "latent_query_num", 1)});
	return oom_none();
}

/* ---- merging of neighbours ---- */

/* MiniCPMV4_6ViTWindowAttentionMerger, MiniCPMV4_6Merger */
struct oom_val oom_emit_minicpm(struct oom_emit *e)
{
	enum { WINDOW = YES + 2, WIDE };
	static const struct oom_weight_row window_merger[] = {
	LINEAR("k_proj", H, H, YES), LINEAR("v_proj", H, H, YES),
			LINEAR("q_proj", H, H, YES),
	LINEAR("out_proj", H, H, YES), NORM("layer_norm1", H, YES),
			NORM("pre_norm", WINDOW, YES),
	LINEAR("linear_1", WINDOW, WIDE, YES), LINEAR("linear_2", WIDE, H, YES),
			OOM_WEIGHTS_END};
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const double side = oom_read_item_real(r, "window_kernel_size", 0, 2) *
			    oom_read_item_real(r, "window_kernel_size", 1, 2);
	const uint64_t window = side >= 1 && side <= 4096 ? (uint64_t)side : 4,
		       times = oom_read_count_or(&e->outer, "merger_times", 1);
	struct oom_tower w;

	oom_tower_weights(e, 1, &w);
	oom_weight_rows(t, window_merger,
			(const uint64_t[]){[YES] = 1, [H] = w.d, [WINDOW] = window * w.d, [WIDE] =
					   window * w.ff});
	for (uint64_t i = 0; i < times && i < 64; i++) {
		oom_weight_norm(t, "pre_norm", 4 * w.d, true);
		oom_weight_linear(t, "linear_1", 4 * w.d, 4 * w.d, true);
		oom_weight_linear(t, "linear_2", 4 * w.d, i + 1 == times ? e->a->d_model : w.d,
				  true);
	}
	return oom_none();
}

/* Ernie4_5_VLMoeVariableResolutionResamplerModel */
struct oom_val oom_emit_ernie(struct oom_emit *e)
{
	enum { TIMES = YES + 2, TEXT };
	static const struct oom_weight_row resampler[] = {
	LINEAR("fc1", H, H, YES), LINEAR("fc2", H, H, YES), NORM("ln", H, YES),
	LINEAR("fc1", TIMES, H, YES), LINEAR("fc2", H, H, YES), NORM("ln", H, YES),
	LINEAR("mlp", H, TEXT, YES), NORM("after_norm", TEXT, NO), OOM_WEIGHTS_END};
	const uint64_t frames = oom_read_count_or(&e->part[1], "temporal_merge_size", 2);
	struct oom_tower w;
	uint64_t d;

	oom_tower_weights(e, 1, &w);
	d = w.d * w.merge * w.merge;
	oom_weight_rows(e->t, resampler,
			(const uint64_t[]){[YES] = 1, [H] = d, [TIMES] = d * frames, [TEXT] =
					   e->a->d_model});
	return oom_none();
}
