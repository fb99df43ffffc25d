/* T5's norm, and parts of its relatives: Switch's experts, LongT5's attention within blocks, UDOP's and
 * Pop2Piano's other tables. Reference: transformers 5.12,
 * models/{switch_transformers,longt5,udop,pop2piano}/modeling_*.py. */
#include "blocks/image.h"
#include "t5.h"

/* variance in fp32, x * rsqrt in fp32, back to the weight's type when that is 16-bit, times the
 * weight. */
struct oom_val t5_norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_val w, v, y;

	t->scope = name;
	w = oom_norm_param(t, "weight", x.width);
	v = oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, x, OOM_F32));
	v = oom_op_mean(t, v, x.mono, D(1));
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, x, v);
	if (w.dt != OOM_F32)
		y = oom_op_cast(t, y, (enum oom_dtype)w.dt);
	y = oom_op_mul(t, w, y);
	t->scope = scope;
	return y;
}

bool t5_is_sparse(const struct t5_stack *s, uint32_t layer)
{
	const uint64_t step = t5_of(s->a)->sparse[s->decoder];

	return step && (layer % step == 1 || step == 1);
}

struct oom_val t5_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_top1 m = {.experts = a->n_experts, .ff = {a->d_ff, "d_ff"}, .act = a->act,
				   .dropout = a->dropout, .up = {"wi", "wi.weight"},
				   .down = {"wo", "wo.weight"},
				   .router_bias = t5_of(a)->router_bias, .jitter = true};

	oom_tape_warn(t, "which tokens an expert of Switch Transformers gets is the data's to say: its "
		     "sparse layers are approximated");
	return oom_moe_top1(t, &m, x);
}

/* ---- weights beside the text ---- */

static void idle(struct oom_tape *t, const char *scope, uint64_t rows, uint64_t cols,
		 uint32_t flags)
{
	t->scope = scope;
	oom_param(t, "weight", rows, cols, OOM_P_UNUSED | flags);
}

void t5_idle_parts(struct oom_tape *t, const struct oom_arch *a)
{
	const struct t5_kind *k = t5_kind_of(a);
	const struct t5 *own = t5_of(a);
	const uint64_t d = a->d_model;

	if (k->features)
		idle(t, "mel_conditioner.embedding", own->composers, d, OOM_P_EMBEDDING);
	if (!k->layout)
		return;
	oom_tape_warn(t, "UDOP's image patches and boxes are counted as weights only: their "
		     "activations are not modelled");
	/* the encoder's patches are shared, the decoder has its own */
	for (int i = 0; i < 2; i++) {
		idle(t, "patch_embed", d * a->channels * own->patch, own->patch, 0);
		oom_param(t, "bias", 0, d, OOM_P_UNUSED);
		idle(t, "cell_2d_embedding", own->coords, d, OOM_P_EMBEDDING);
	}
	for (uint64_t i = 0; i < 2 * own->biases && !t->status; i++)
		idle(t, "relative_bias", own->buckets, a->n_heads, OOM_P_EMBEDDING);
}
