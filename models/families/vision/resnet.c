/* ResNet and RegNet: stages of residual blocks out of convolution, batch norm and activation.
 * Reference: transformers 5.12, models/{resnet,regnet}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

/* What sets the types apart. */
struct resnet_kind {
	const char *layer_type;         /* by default */
	bool grouped;                   /* convolutions in groups of groups_width channels */
	bool small_stem;                /* 3 x 3 without a pool */
	bool downsample_first;          /* by default */
};
static const struct resnet_kind resnet = {.layer_type = "bottleneck"};
static const struct resnet_kind regnet = {
	.layer_type = "y", .grouped = true, .small_stem = true, .downsample_first = true};
static const struct oom_family_type resnet_types[] = {
	{"resnet", &resnet}, {"regnet", &regnet}, {NULL, NULL},
};

struct resnet {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], embed, groups_width;
	bool basic, first, down_in_bottleneck, squeeze;
};
OOM_OWN(resnet, struct resnet);

static const struct oom_key_row resnet_keys[] = {
	MUST_OWN(struct resnet, embed, "embedding_size"), ACT(act, "hidden_act", "relu"),
	FLAG_OWN(struct resnet, down_in_bottleneck, "downsample_in_bottleneck", false),
	OOM_KEYS_END};

static void resnet_parse(struct oom_arch *a)
{
	const struct resnet_kind *kind = a->type->kind;
	struct oom_reader *r = &a->rd;
	const char *layer = oom_read_string(r, "layer_type", kind->layer_type);
	struct resnet *c = resnet_own(a);

	oom_read_image(a, 224);
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	c->first = oom_read_bool(r, "downsample_in_first_stage", kind->downsample_first);
	c->basic = !strcmp(layer, "basic");
	c->squeeze = !strcmp(layer, "y");
	c->groups_width = kind->grouped ? oom_read_count_or(r, "groups_width", 64) : 1;
	for (uint64_t i = 0; i < c->n; i++)
		a->n_layers += c->depth[i];
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (a->n_layers > OOM_MAX_LAYERS || !c->groups_width || c->embed > 65536)
		oom_read_fail(r, "depths, groups_width or embedding_size out of range");
}

/* WITHIN: where it stands in its layer. */
static struct oom_map resnet_conv(struct oom_tape *t, const char *within, struct oom_map m, uint64_t out,
				  uint64_t kernel, uint64_t stride, uint64_t groups,
				  enum oom_act act)
{
	t->selection.within = within;
	m = oom_conv_bn_act(t, m,
			    &(struct oom_conv){.out = out, .kernel = kernel, .stride = stride,
					       .pad = kernel / 2, .groups = groups},
			    act);
	t->selection.within = NULL;
	return m;
}

/* x * sigmoid(expand(relu(reduce(mean(x))))) */
static struct oom_map squeeze_excite(struct oom_tape *t, struct oom_map m, uint64_t reduced)
{
	const struct oom_conv reduce = {.out = reduced, .kernel = 1, .bias = true},
			      expand = {.out = m.c, .kernel = 1, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_map p = {oom_none(), m.c, 1, 1};

	m = oom_arg_map(&f, m);
	p.x = oom_name(&f, oom_global_pool(t, m));
	t->selection.within = "layer.2.attention";
	p = oom_map_act(t, OOM_ACT_RELU, oom_conv2d(t, "attention.0", p, &reduce));
	p = oom_map_act(t, OOM_ACT_SIGMOID, oom_conv2d(t, "attention.2", p, &expand));
	t->selection.within = NULL;
	m.x = oom_op_mul(t, m.x, p.x);
	return oom_leave_map(&f, m);
}

/* The residual branch of a layer with so many channels out. */
static struct oom_map resnet_branch(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				    uint64_t out, uint64_t stride)
{
	const struct resnet *c = resnet_of(a);
	const uint64_t in = m.c, mid = out / 4,
		       groups = out > c->groups_width ? out / c->groups_width : 1;
	const bool early = c->down_in_bottleneck;

	if (((const struct resnet_kind *)a->type->kind)->grouped) {
		m = resnet_conv(t, "layer.0", m, out, 1, 1, 1, a->act);
		m = resnet_conv(t, "layer.1", m, out, 3, stride, groups, a->act);
		if (c->squeeze)
			m = squeeze_excite(t, m, (uint64_t)nearbyint((double)in / 4));
		return resnet_conv(t, c->squeeze ? "layer.3" : "layer.2", m, out, 1, 1, 1, OOM_ACT_NONE);
	}
	if (c->basic)
		return resnet_conv(t, "layer.1", resnet_conv(t, "layer.0", m, out, 3, stride, 1, a->act), out,
				   3, 1, 1, OOM_ACT_NONE);
	m = resnet_conv(t, "layer.0", m, mid, 1, early ? stride : 1, 1, a->act);
	m = resnet_conv(t, "layer.1", m, mid, 3, early ? 1 : stride, 1, a->act);
	return resnet_conv(t, "layer.2", m, out, 1, 1, 1, OOM_ACT_NONE);
}

/* m is the caller's. */
static struct oom_map resnet_layer(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				   uint64_t out, uint64_t stride)
{
	const struct oom_conv project = {.out = out, .kernel = 1, .stride = stride};
	struct oom_frame f = {.t = t};
	struct oom_map shortcut = m, y = resnet_branch(t, a, m, out, stride);

	if (m.c != out || stride != 1) {
		t->selection.within = "shortcut";
		shortcut = oom_conv2d(t, "shortcut.convolution", m, &project);
		shortcut = oom_batch_norm(t, "shortcut.normalization", shortcut);
		t->selection.within = NULL;
		shortcut = oom_name_map(&f, shortcut);
	}
	y.x = oom_op_add_inplace(t, y.x, shortcut.x);
	return oom_leave_map(&f, oom_map_act(t, a->act, y));
}

/* Stage i of a map that is the loop's. */
static struct oom_map resnet_stage(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				   struct oom_map m)
{
	const struct resnet *c = resnet_of(a);
	uint64_t stride = i || c->first ? 2 : 1;
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++, stride = 1)
		m = oom_rename_map(&f, m, resnet_layer(t, a, m, c->c[i], stride));
	return oom_leave_map(&f, m);
}

static struct oom_map resnet_encoder(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	struct oom_frame f = {.t = t};

	/* embedding_output, and the loop's variable */
	m = oom_name_map(&f, oom_arg_map(&f, m));
	for (uint64_t i = 0; i < resnet_of(a)->n && !t->status; i++) {
		t->selection.layer = (int64_t)i;
		m = oom_rename_map(&f, m, resnet_stage(t, a, i, m));
	}
	t->selection.layer = -1;
	return oom_leave_map(&f, m);
}

static struct oom_val resnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool small = ((const struct resnet_kind *)a->type->kind)->small_stem;
	struct oom_frame f = {.t = t};
	struct oom_map m = oom_pixels(t, a);

	oom_no_checkpointing(t);
	m = resnet_conv(t, NULL, m, resnet_of(a)->embed, small ? 3 : 7, 2, 1, a->act);
	if (!small)
		m = oom_max_pool(t, m, 3, 2, 1);
	m = oom_name_map(&f, resnet_encoder(t, a, m));
	return oom_leave(&f, oom_image_loss(t, a, oom_global_pool(t, m)));
}

const struct oom_family oom_family_resnet = {
	.name = "resnet",
	.summary = "residual convolution blocks in stages",
	.source = "transformers 5.12 models/resnet/modeling_resnet.py",
	.types = resnet_types,
	.lora_targets = "all-linear",
	.keys = resnet_keys,
	.parse = resnet_parse,
	.step = resnet_step,
};
