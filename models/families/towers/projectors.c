/* Projectors of a tower's features, one for each composition that has its own: pooling, a pixel shuffle
 * (merge^2 patches to one), perhaps a norm, one linear layer or two.
 * Reference: transformers 5.12, the MultiModalProjector / Aligner classes of models/NAME/modeling_NAME.py. */
#include "blocks/image.h"
#include "projector.h"

static uint64_t whole_root(uint64_t n)
{
	uint64_t r = 0;

	while ((r + 1) * (r + 1) <= n && r < 65536)
		r++;
	return r;
}

/* Average pooling to mm_tokens_per_image. */
static struct oom_val pooled(struct oom_emit *e, const struct oom_tower *w, struct oom_val x)
{
	const uint64_t n = oom_read_count_or(&e->outer, "mm_tokens_per_image", 256),
		       grid = whole_root(oom_mono_now(e->t, e->m_len)), side = whole_root(n),
		       kernel = side ? grid / side : 0;
	const struct oom_dim d = {w->d, "hidden_size"},
			     map = {w->d * grid * grid, "hidden_size * patches"};
	struct oom_tape *t = e->t;
	struct oom_map m = {.c = w->d, .h = grid, .w = grid};

	x = oom_op_copy(t, "contiguous", x);
	if (!kernel || kernel * side > grid) {
		oom_tower_tokens(e, n ? n : 1);
		return oom_op_mean(t, x, e->m_tokens, d);
	}
	m.x = oom_op_view(t, x, e->m_images, map);
	m = oom_avg_pool(t, m, kernel, kernel, 0);
	oom_tower_tokens(e, m.h * m.w);
	return oom_op_view(t, m.x, e->m_tokens, d);
}

/* Gemma 3: pooling, norm, a product with a bare parameter. */
struct oom_val oom_emit_gemma3(struct oom_emit *e)
{
	const uint64_t d = e->a->d_model;
	struct oom_tape *t = e->t;
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w), p;

	t->scope = "multi_modal_projector";
	x = oom_project_norm(e, OOM_NORM_RMS_PLUS1, "mm_soft_emb_norm", pooled(e, &w, x));
	t->selection.part = OOM_PART_PROJECTOR;
	t->scope = "multi_modal_projector";
	p = oom_param(t, "mm_input_projection_weight", w.d, d, 0);
	t->selection.part = OOM_PART_TOWER;
	return oom_op_matmul_param(t, "projected", x, p, oom_none(),
				   (struct oom_dim){d, "d_model"});
}

struct oom_val oom_emit_paligemma(struct oom_emit *e)
{
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	e->t->scope = "multi_modal_projector";
	return oom_project(e, "linear", x, oom_read_count_or(&e->outer, "projection_dim",
							     e->a->d_model),
			   true);
}

struct oom_val oom_emit_deepseek_vl(struct oom_emit *e)
{
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	e->t->scope = "multi_modal_projector";
	return oom_project_twice(e, "linear1", "linear2", OOM_ACT_GELU, x, e->a->d_model, true);
}

/* Aya, Cohere 2: pixel shuffle, SwiGLU of alignment_intermediate_size, ff unless the config says. */
static struct oom_val swiglu(struct oom_emit *e, struct oom_val x, bool norm, uint64_t ff)
{
	const uint64_t n = oom_read_count_or(&e->outer, "alignment_intermediate_size", ff) / 2;
	const struct oom_dim half[2] = {{n, "alignment / 2"}, {n, "alignment / 2"}};
	struct oom_tape *t = e->t;
	struct oom_val p[2];

	t->scope = "multi_modal_projector";
	x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "downsample_factor", 2));
	if (norm)
		x = oom_project_norm(e, OOM_NORM_LAYER, "layernorm", x);
	oom_op_split(t, oom_project(e, "linear_1", x, 2 * n, true), 2, half, p);
	x = oom_op_mul(t, oom_op_unary(t, OOM_SILU, p[1]), p[0]);
	return oom_project(e, "linear_2", x, e->a->d_model, true);
}

struct oom_val oom_emit_aya(struct oom_emit *e)
{
	struct oom_tower w;

	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	oom_used_layers(e, &w, "vision_feature_layer", -1);
	return swiglu(e, oom_tower_run(e, &w), true, e->a->d_model);
}

struct oom_val oom_emit_cohere2(struct oom_emit *e)
{
	struct oom_tower w;

	return swiglu(e, oom_tower_part(e, 1, &w), false, 36864);
}

struct oom_val oom_emit_idefics3(struct oom_emit *e)
{
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	e->t->scope = "multi_modal_projector";
	x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "scale_factor", 2));
	return oom_project(e, "proj", x, e->a->d_model, false);
}

struct oom_val oom_emit_lfm2(struct oom_emit *e)
{
	const bool bias = oom_read_bool(&e->outer, "projector_bias", true);
	struct oom_tape *t = e->t;
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	t->scope = "multi_modal_projector";
	x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "downsample_factor", 2));
	if (oom_read_bool(&e->outer, "projector_use_layernorm", true))
		x = oom_project_norm(e, OOM_NORM_LAYER, "layer_norm", x);
	x = oom_project(e, "linear_1", x, oom_read_count_or(&e->outer, "projector_hidden_size",
							    2560),
			bias);
	return oom_project(e, "linear_2", oom_activation(t, oom_projector_act(e), x), e->a->d_model,
			   bias);
}

struct oom_val oom_emit_video_llama(struct oom_emit *e)
{
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	e->t->scope = "multi_modal_projector";
	return oom_project_twice(e, "0", "2", OOM_ACT_GELU, x, e->a->d_model, true);
}

struct oom_val oom_emit_paddle(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	t->scope = "multi_modal_projector";
	x = oom_merge_tokens(e, oom_project_norm(e, OOM_NORM_LAYER, "pre_norm", x), w.merge);
	x = oom_project(e, "linear_1", x, x.width, true);
	return oom_project(e, "linear_2", oom_activation(t, OOM_ACT_GELU, x), e->a->d_model, true);
}

/* InternVL, Qianfan */
struct oom_val oom_emit_internvl(struct oom_emit *e)
{
	const double ratio = oom_read_real(&e->outer, "downsample_ratio", 0.5);
	struct oom_tape *t = e->t;
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	t->scope = "multi_modal_projector";
	x = oom_merge_tokens(e, x, ratio > 0.02 && ratio <= 1 ? (uint64_t)(1 / ratio) : 2);
	x = oom_project_norm(e, OOM_NORM_LAYER, "layer_norm", x);
	return oom_project_twice(e, "linear_1", "linear_2", oom_projector_act(e), x, e->a->d_model,
				 true);
}

/* What a layer of so many inputs takes; in a config that makes a model they are as many as there are. */
static struct oom_val taken_as(struct oom_emit *e, struct oom_val x, uint64_t width, const char *key)
{
	return oom_op_view(e->t, x, e->m_tokens, (struct oom_dim){width, key});
}

/* Llama 4's adapter, which is the tower's, and projector (Llama4VisionPixelShuffleMLP). */
struct oom_val oom_emit_llama4(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const struct oom_dim in = {oom_read_count_or(r, "projector_input_dim", 4096), "projector_input_dim"},
			     out = {oom_read_count_or(r, "projector_output_dim", 4096), "projector_output_dim"};
	const uint64_t given = oom_read_count_or(r, "vision_output_dim", 7680);
	const double ratio = oom_read_real(r, "pixel_shuffle_ratio", 0.5);
	struct oom_tape *t = e->t;
	struct oom_tower w;
	struct oom_val x = oom_without_class(e, oom_tower_part(e, 1, &w));

	t->scope = "vision_adapter";
	x = oom_op_copy(t, "contiguous", oom_op_copy(t, "contiguous", x));
	x = oom_merge_tokens(e, x, ratio > 0.02 && ratio <= 1 ? (uint64_t)(1 / ratio) : 2);
	x = oom_op_linear(t, "fc1", taken_as(e, x, w.ff, "intermediate_size"), in, 0);
	x = taken_as(e, oom_activation(t, OOM_ACT_GELU, x), out.n, out.text);
	x = oom_activation(t, OOM_ACT_GELU, oom_op_linear(t, "fc2", x, out, 0));
	t->scope = "multi_modal_projector";
	return oom_project(e, "linear_1", taken_as(e, x, given, "vision_output_dim"), e->a->d_model, false);
}
