/* Ovis 2: the tower ends in a distribution over a visual vocabulary, whose table is multiplied with it.
 * Reference: transformers 5.12, models/ovis2/modeling_ovis2.py Ovis2VisionModel, Ovis2Model.get_image_features. */
#include <string.h>

#include "projector.h"

/* softmax, or its hard form, whose gradient is the soft one's: zeros with a one in them, less the soft and the soft. */
static struct oom_val distribution(struct oom_emit *e, struct oom_val x)
{
	const bool soft = !strcmp(oom_read_string(&e->part[1], "tokenize_function", "softmax"), "softmax");
	const struct oom_dim w = {x.width, x.text};
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val y, hard;

	if (soft)
		return oom_op_softmax(t, x, false);
	y = oom_name(&f, oom_op_softmax(t, x, false));
	hard = oom_name(&f, oom_new(t, "scatter", y.mono, w, (enum oom_dtype)y.dt));
	hard = oom_new(t, "sub", hard.mono, w, (enum oom_dtype)y.dt);
	return oom_leave(&f, oom_op_add(t, hard, y));
}

struct oom_val oom_emit_ovis(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t vocab = oom_read_count(r, "vocab_size", 1), marks = oom_read_count_or(r, "num_visual_indicator_tokens", 5),
		       stride = oom_read_count_or(r, "hidden_stride", 1);
	const struct oom_dim words = {vocab, "vocab_size"},
			     h = {oom_read_count_or(&e->outer, "hidden_size", e->a->d_model), "hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_tower w;
	struct oom_val x, table;

	if (!oom_read_bool(&e->outer, "tie_word_embeddings", true))
		oom_tape_warn(t, "ovis2: tie_word_embeddings is false: whether the text config's own "
			     "tie holds is not followed, parameters are a guess");
	oom_tower_read(&w, r, "ovis2_vision");
	x = oom_tower_run(e, &w);
	if (r->status || stride > 64 || vocab <= marks) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return x;
	}
	if (stride > 1)                         /* F.pad, and a permuted copy */
		x = oom_op_copy(t, "clone", oom_op_copy(t, "pad", x));
	x = oom_name(&f, oom_merge_tokens(e, x, stride));
	x = oom_op_linear(t, "head_linear", x, (struct oom_dim){vocab - marks, "vocab_size - indicators"}, 0);
	x = oom_name(&f, oom_norm(t, OOM_NORM_LAYER, "head_norm", x, 0));
	x = oom_name(&f, distribution(e, x));
	x = oom_name(&f, oom_op_expand_copy(t, x, x.mono, words));      /* and zeros for the indicators */
	t->scope = "visual_embeddings_table";
	t->selection.part = OOM_PART_PROJECTOR;
	table = oom_param(t, "weight", vocab, h.n, 0);
	t->selection.part = OOM_PART_TOWER;
	return oom_leave(&f, oom_op_matmul_param(t, "matmul", x, table, oom_none(), h));
}
