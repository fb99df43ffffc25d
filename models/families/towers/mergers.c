/* Qwen's and GLM's patch mergers: merge x merge patches become one token.
 * Reference: transformers 5.12, the PatchMerger classes of models/{qwen2_vl,qwen3_vl,glm4v,glm_ocr}/
 * modeling_*.py. */
#include "projector.h"

/* Norm, merge x merge patches to one, two layers. */
static struct oom_val merger(struct oom_emit *e, const struct oom_tower *w, struct oom_val x,
			     uint64_t out, bool norm_late)
{
	struct oom_tape *t = e->t;
	const bool own = w->merger[0] != NULL;

	t->scope = "merger";
	if (!norm_late)
		x = oom_project_norm(e, w->norm, own ? w->merger[0] : "ln_q", x);
	x = oom_merge_tokens(e, x, w->merge);
	if (norm_late)
		x = oom_project_norm(e, OOM_NORM_LAYER, "norm", x);
	x = oom_project(e, own ? w->merger[1] : "0", x, x.width, true);
	return oom_project(e, own ? w->merger[2] : "2", oom_activation(t, OOM_ACT_GELU, x), out, true);
}

struct oom_val oom_emit_qwen(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	struct oom_tower w;
	struct oom_frame f = {.t = e->t};
	struct oom_val x = oom_name(&f, oom_tower_part(e, 1, &w));
	const uint16_t tokens = e->m_tokens, len = e->m_len;
	const uint64_t out = oom_read_count(r, w.out ? w.out : "out_hidden_size", 1),
		       deep = w.no_deepstack ? 0 : oom_read_items(r, "deepstack_visual_indexes", 0);

	if (deep > OOM_DEEPEST)
		oom_read_fail(r, "\"%sdeepstack_visual_indexes\": %llu layers, at most %d are modelled", r->prefix,
			      (unsigned long long)deep, OOM_DEEPEST);
	for (uint64_t i = 0; i < deep && i < OOM_DEEPEST; i++) {
		e->t->selection.layer = (int64_t)i;     /* in deepstack_merger_list */
		e->deep[i] = merger(e, &w, x, out, true);
		if (e->merged)                          /* the text model takes them */
			e->n_deep = (uint32_t)i + 1;
		else
			oom_discard(e->t, e->deep[i]);
		e->t->selection.layer = -1;
		e->m_tokens = tokens;
		e->m_len = len;
	}
	x = merger(e, &w, oom_take(&f, x), out, false);
	return w.windowed ? oom_reordered(e, "reverse_indices", x, 1) : x;
}

/* A strided convolution merges, then a gated feed-forward with a norm of its own; wide: as wide as the
 * channels times the output. */
static struct oom_val glm(struct oom_emit *e, bool wide)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t out = oom_read_count(r, "out_hidden_size", 1);
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);
	const uint64_t ff = wide ? out * w.channels : oom_read_count(r, "intermediate_size", 1),
		       n = oom_mono_now(t, e->m_len) / (w.merge * w.merge);

	oom_tower_tokens(e, n ? n : 1);
	x = oom_op_conv_square(t, "downsample", x, w.d, w.merge, true, e->m_tokens, (struct oom_dim){out, "out_hidden_size"});
	t->scope = "merger";
	x = oom_project_norm(e, OOM_NORM_LAYER, "post_projection_norm", oom_project(e, "proj", x, out, false));
	x = oom_activation(t, OOM_ACT_GELU, x);
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_gated_mlp(t, x, w.act, (struct oom_dim){ff, NULL}, false);
	t->selection.part = OOM_PART_TOWER;
	return x;
}

struct oom_val oom_emit_glm(struct oom_emit *e)
{
	return glm(e, false);
}

struct oom_val oom_emit_glm_ocr(struct oom_emit *e)
{
	return glm(e, true);
}
