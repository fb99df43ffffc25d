/* ConvNeXt and ConvNeXt v2: depthwise 7x7 convolution, layer norm and a two-layer MLP over the
 * channels, in stages. Reference: transformers 5.12, models/{convnext,convnextv2}/modeling_*.py. */
#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

/* What sets the types apart: layer scale, or a global response norm in the MLP. */
struct convnext_kind {
	bool response_norm;
};
static const struct convnext_kind v1 = {.response_norm = false};
static const struct convnext_kind v2 = {.response_norm = true};
static const struct oom_family_type convnext_types[] = {
	{"convnext", &v1}, {"convnextv2", &v2}, {NULL, NULL},
};

struct convnext {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES];
	bool response_norm, scale;
	double drop;
};
OOM_OWN(convnext, struct convnext);

static const struct oom_key_row convnext_keys[] = {
	OR(patch, "patch_size", 4), ACT(act, "hidden_act", "gelu"),
	REAL_OWN(struct convnext, drop, "drop_path_rate", 0), OOM_KEYS_END};

static void convnext_parse(struct oom_arch *a)
{
	const struct convnext_kind *kind = a->type->kind;
	struct oom_reader *r = &a->rd;
	struct convnext *c = convnext_own(a);

	oom_read_image(a, 224);
	c->response_norm = kind->response_norm;
	c->scale = !c->response_norm && oom_read_real(r, "layer_scale_init_value", 1e-6) > 0;
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	if (oom_read_count_or(r, "num_stages", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_stages", c->n);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		if (c->c[i] > 1 << 16)
			oom_read_fail(r, "hidden_sizes beyond 65536");
	}
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (!c->n || !a->patch || a->patch > 65536 || a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_stages, patch_size or depths out of range");
}

/* weight * (x * (|x| / (mean |x| + eps))) + bias + x */
static struct oom_val convnext_grn(struct oom_tape *t, struct oom_val x, uint64_t c)
{
	struct oom_val w = oom_param(t, "grn.weight", 0, c, 0),
		       b = oom_param(t, "grn.bias", 0, c, 0), g, m, y;
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	g = oom_name(&f, oom_vector_norm(t, x, t->m_b, (struct oom_dim){c, NULL}));
	m = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_mean(t, g, t->m_b, D(1)));
	m = oom_name(&f, oom_op_div(t, g, m));
	y = oom_op_add(t, oom_op_mul(t, w, oom_op_mul(t, x, m)), b);
	return oom_leave(&f, oom_op_add(t, y, x));
}

/* m is the caller's. */
static struct oom_map convnext_layer(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				     bool path)
{
	const struct oom_conv depthwise = {
		.out = m.c, .kernel = 7, .pad = 3, .groups = m.c, .bias = true};
	const struct convnext *c = convnext_of(a);
	const uint64_t d = m.c;
	struct oom_map y = oom_channel_norm(t, "layernorm", oom_conv2d(t, "dwconv", m, &depthwise));

	y.x = oom_op_linear_in(t, "pwconv1", y.x, d, (struct oom_dim){4 * d, "4 * channels"},
			       OOM_BIAS);
	y.x = oom_activation(t, a->act, y.x);
	if (c->response_norm)
		y.x = convnext_grn(t, y.x, 4 * d);
	y.x = oom_op_linear_in(t, "pwconv2", y.x, 4 * d, (struct oom_dim){d, "channels"}, OOM_BIAS);
	if (c->scale)
		y.x = oom_op_mul(t, oom_param(t, "layer_scale_parameter", 0, d, 0), y.x);
	if (path)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, m.x, y.x);
	return y;
}

/* Stage i of a map that is the loop's; k: layers before it. */
static struct oom_map convnext_stage(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				     uint64_t k, struct oom_map m)
{
	const struct convnext *c = convnext_of(a);
	const struct oom_conv down = {
		.out = c->c[i], .kernel = 2, .stride = 2, .bias = true, .channels_last = true};
	struct oom_frame f = {.t = t};
	struct oom_map normed;

	if (i) {
		normed = oom_name_map(&f, oom_channel_norm(t, "downsampling_layer.0", m));
		m = oom_name_map(&f, oom_conv2d(t, "downsampling_layer.1", normed, &down));
		oom_forget(&f, normed.x);
	}
	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++)
		m = oom_rename_map(&f, m, convnext_layer(t, a, m, c->drop > 0 && k + j));
	return oom_leave_map(&f, m);
}

static struct oom_map convnext_encoder(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_map m)
{
	const struct convnext *c = convnext_of(a);
	struct oom_frame f = {.t = t};
	uint64_t k = 0;

	/* embedding_output, and the loop's variable */
	m = oom_name_map(&f, oom_arg_map(&f, m));
	for (uint64_t i = 0; i < c->n && !t->status; i++) {
		m = oom_rename_map(&f, m, convnext_stage(t, a, i, k, m));
		k += c->depth[i];
	}
	return oom_leave_map(&f, m);
}

static struct oom_val convnext_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_conv stem = {.out = convnext_of(a)->c[0], .kernel = a->patch,
				      .stride = a->patch, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_map m;
	struct oom_val x;

	oom_no_checkpointing(t);
	m = oom_conv2d(t, "patch_embeddings", oom_pixels(t, a), &stem);
	m = convnext_encoder(t, a, oom_channel_norm(t, "layernorm", m));
	m = oom_name_map(&f, m);
	x = oom_op_layer_norm(t, "layernorm", oom_global_pool(t, m), 0, true, true);
	return oom_leave(&f, oom_image_loss(t, a, x));
}

const struct oom_family oom_family_convnext = {
	.name = "convnext",
	.summary = "depthwise convolutions with channel MLPs in stages",
	.source = "transformers 5.12 models/convnext/modeling_convnext.py",
	.types = convnext_types,
	.lora_targets = "all-linear",
	.keys = convnext_keys,
	.parse = convnext_parse,
	.step = convnext_step,
};
