/* MobileViT v2's blocks: linear attention over a map's patches.
 * Reference: transformers 5.12, models/mobilevitv2/modeling_mobilevitv2.py. */
#include "mobilevit.h"

static struct oom_map v2_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint16_t ma = oom_tokens_of(t, m.h),
		       mt = oom_mono_mul(t, ma, oom_length_of(t, m.w));
	const struct oom_dim d = {m.c, "embed_dim"}, widths[3] = {D(1), d, d},
			     qkv = {1 + 2 * m.c, "1 + 2 * embed_dim"};
	struct oom_map y = mobilevit_plain_conv(t, m, qkv.n, true);
	struct oom_frame f = {.t = t};
	struct oom_val part[3], scores, context, x;

	oom_op_split(t, oom_name(&f, oom_op_view(t, y.x, mt, qkv)), 3, widths, part);
	oom_name_each(&f, part, 3);
	scores = oom_op_dropout(t, oom_op_softmax(t, part[0], false), a->attn_dropout);
	scores = oom_name(&f, scores);
	context = oom_op_sum(t, oom_op_mul(t, part[1], scores), ma, d);
	context = oom_name(&f, context);
	x = oom_op_mul(t, oom_op_unary(t, OOM_RELU, part[2]), oom_op_expand(t, context, mt, d));
	m.x = oom_name(&f, oom_op_view(t, x, t->m_b, (struct oom_dim){m.c * m.h * m.w, NULL}));
	return oom_leave_map(&f, mobilevit_plain_conv(t, m, d.n, true));
}

static struct oom_map v2_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint64_t d = m.c, ff = (uint64_t)(mobilevit_of(a)->ratio * (double)d) / 16 * 16;
	struct oom_frame f = {.t = t};

	m = oom_arg_map(&f, m);
	m = oom_map_act(t, a->act, mobilevit_plain_conv(t, m, ff, true));
	m.x = oom_op_dropout(t, m.x, a->dropout);
	return oom_leave_map(&f, mobilevit_plain_conv(t, m, d, true));
}

/* m is the caller's. */
static struct oom_map v2_layer(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	struct oom_frame f = {.t = t};
	struct oom_map y;

	y = oom_name_map(&f, oom_group_norm(t, "layernorm_before", m, 1));
	y = oom_name_map(&f, v2_attention(t, a, y));            /* attention_output */
	m.x = oom_name(&f, oom_op_add(t, y.x, m.x));
	y = v2_mlp(t, a, oom_group_norm(t, "layernorm_after", m, 1));
	y.x = oom_op_add(t, oom_op_dropout(t, y.x, a->dropout), m.x);
	return oom_leave_map(&f, y);
}

/* The transformer's layers; m is the caller's. */
static struct oom_map v2_transformer(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				     struct oom_map m)
{
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < mobilevit_of(a)->layers[i] && !t->status; j++)
		m = oom_rename_map(&f, m, v2_layer(t, a, m));
	return oom_leave_map(&f, m);
}

struct oom_map mobilevit_v2_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				 struct oom_map m)
{
	const struct mobilevit *c = mobilevit_of(a);
	const uint64_t area = c->patch * c->patch, patches = m.h / c->patch * (m.w / c->patch),
		       in = m.c, h = m.h, w = m.w;
	const struct oom_conv depthwise = {.out = in, .kernel = c->kernel, .groups = in};
	struct oom_frame f = {.t = t};
	struct oom_val features, unfolded;

	m = mobilevit_plain_conv(t, mobilevit_conv_bn(t, m, depthwise, a->act), c->hidden[i],
				 false);
	features = oom_name(&f, m.x);
	/* unfold */
	m.x = oom_op_expand_copy(t, features, t->m_b, (struct oom_dim){m.c * area * patches, NULL});
	m.h = area;
	m.w = patches;
	m.x = unfolded = oom_name(&f, m.x);
	m = v2_transformer(t, a, i, m);
	oom_forget(&f, unfolded);
	m = oom_name_map(&f, oom_group_norm(t, "layernorm", m, 1));     /* patches */
	/* fold */
	m.x = oom_op_expand_copy(t, m.x, t->m_b, (struct oom_dim){m.c * h * w, NULL});
	m.h = h;
	m.w = w;
	oom_forget(&f, features);
	return oom_leave_map(&f, mobilevit_pointwise(t, m, in, OOM_ACT_NONE));
}

/* ---- the network ---- */
