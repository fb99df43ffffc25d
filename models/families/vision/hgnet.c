/* HGNet v2 and PP-LCNet: PaddlePaddle's convolution networks.
 * Reference: transformers 5.12, models/{hgnet_v2,pp_lcnet}/modeling_*.py. */
#include <stdio.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 16, MAX_PARTS = 32, MAX_LC_STAGES = 16, MAX_LC_BLOCKS = 64 };

/* The types are two networks that share but the frame. */
struct hgnet_kind {
	void (*parse)(struct oom_arch *a);
	struct oom_val (*step)(struct oom_tape *t, const struct oom_arch *a);
};

/* ---- HGNet v2 ---- */

struct hg {
	uint64_t n, in[MAX_STAGES], mid[MAX_STAGES], out[MAX_STAGES], blocks[MAX_STAGES],
		layers[MAX_STAGES], kernel[MAX_STAGES], stride[MAX_STAGES], stem[3], stem_stride[5];
	double down[MAX_STAGES], light[MAX_STAGES];
	bool affine;
};
OOM_OWN(hg, struct hg);

static void read_list(struct oom_reader *r, const char *key, uint64_t *out, uint64_t n,
		      uint64_t limit)
{
	uint64_t got = oom_read_counts(r, key, out, MAX_STAGES);

	if (got < n)
		oom_read_fail(r, "%s must list a count for each of %llu stages", key,
			      (unsigned long long)n);
	for (uint64_t i = 0; i < got; i++)
		if (out[i] > limit)
			oom_read_fail(r, "%s: counts beyond %llu", key, (unsigned long long)limit);
}

static void hg_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct hg *c = hg_own(a);
	uint64_t hidden[MAX_STAGES], n;

	oom_read_image(a, 224);
	c->n = oom_read_counts(r, "stage_in_channels", c->in, MAX_STAGES);
	read_list(r, "stage_mid_channels", c->mid, c->n, 1 << 16);
	read_list(r, "stage_out_channels", c->out, c->n, 1 << 16);
	read_list(r, "stage_num_blocks", c->blocks, c->n, 256);
	read_list(r, "stage_numb_of_layers", c->layers, c->n, MAX_PARTS - 1);
	read_list(r, "stage_kernel_size", c->kernel, c->n, 1024);
	read_list(r, "stage_downsample_strides", c->stride, c->n, 1024);
	oom_read_reals(r, "stage_downsample", c->down, c->n, 0);
	oom_read_reals(r, "stage_light_block", c->light, c->n, 0);
	if (oom_read_counts(r, "stem_channels", c->stem, 3) != 3 ||
	    oom_read_counts(r, "stem_strides", c->stem_stride, 5) != 5)
		oom_read_fail(r, "stem_channels must list 3 counts and stem_strides 5");
	a->act = oom_read_act(r, "hidden_act", "relu");
	c->affine = oom_read_bool(r, "use_learnable_affine_block", false);
	a->channels = c->stem[0];
	for (uint64_t s = 0; s < c->n; s++)
		a->n_layers += c->blocks[s];
	n = oom_read_counts(r, "hidden_sizes", hidden, MAX_STAGES);
	a->d_model = n ? hidden[n - 1] : c->n ? c->out[c->n - 1] : 1;   /* the head's width */
}

/* Convolution, batch norm, activation and, where asked for, one scale and one bias for all of
 * it. */
static struct oom_map hg_conv(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
			      struct oom_conv v, enum oom_act act)
{
	struct oom_val scale, bias;

	v.pad = (v.kernel - 1) / 2;
	m = oom_conv_bn_act(t, m, &v, act);
	if (hg_of(a)->affine && act != OOM_ACT_NONE) {
		scale = oom_param(t, "lab.scale", 0, 1, 0);
		bias = oom_param(t, "lab.bias", 0, 1, 0);
		m.x = oom_op_add(t, oom_op_mul(t, scale, m.x), bias);
	}
	return m;
}

static struct oom_map stem_conv(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				uint64_t out, uint64_t kernel, int i)
{
	const uint64_t stride = hg_of(a)->stem_stride[i];

	return hg_conv(t, a, m, (struct oom_conv){.out = out, .kernel = kernel, .stride = stride},
		       a->act);
}

static struct oom_map hg_stem(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint64_t wide = hg_of(a)->stem[1];
	struct oom_frame f = {.t = t};
	struct oom_map part[2], y;

	m = stem_conv(t, a, m, wide, 3, 0);
	m = oom_name_map(&f, oom_pad_map(t, m, m.h + 1, m.w + 1));
	y = stem_conv(t, a, m, wide / 2, 2, 1);
	y = stem_conv(t, a, oom_pad_map(t, y, y.h + 1, y.w + 1), wide, 2, 2);
	part[1] = oom_name_map(&f, y);          /* emb_stem_2a, pooled_emb */
	part[0] = oom_name_map(&f, oom_max_pool(t, m, 2, 1, 0));
	if (!t->status && (part[0].h != part[1].h || part[0].w != part[1].w))
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "stem_strides: the two branches of the stem do not meet");
	y = oom_cat_maps(t, part, 2);
	oom_forget(&f, m.x);
	y = stem_conv(t, a, y, wide, 3, 3);
	return oom_leave_map(&f, stem_conv(t, a, y, hg_of(a)->stem[2], 1, 4));
}

/* One of a block's convolutions. */
static struct oom_map hg_layer(struct oom_tape *t, const struct oom_arch *a, uint64_t s,
			       struct oom_map m)
{
	const struct hg *c = hg_of(a);
	const struct oom_conv point = {.out = c->mid[s], .kernel = 1};
	struct oom_conv conv = {.out = c->mid[s], .kernel = c->kernel[s]};

	if (c->light[s] != 0) {
		m = hg_conv(t, a, m, point, OOM_ACT_NONE);
		conv.groups = c->mid[s];
	}
	return hg_conv(t, a, m, conv, OOM_ACT_RELU);
}

/* A chain of convolutions, all of whose results (`output`, a list) are joined and squeezed.  m is
 * the caller's. */
static struct oom_map hg_block(struct oom_tape *t, const struct oom_arch *a, uint64_t s,
			       struct oom_map m, bool residual)
{
	const struct hg *c = hg_of(a);
	const int n = (int)c->layers[s] + 1;
	struct oom_frame f = {.t = t};
	struct oom_map part[MAX_PARTS], y;

	part[0] = m;
	for (int i = 1; i < n; i++)
		part[i] = oom_name_map(&f, hg_layer(t, a, s, part[i - 1]));
	y = oom_name_map(&f, oom_cat_maps(t, part, n));
	m = hg_conv(t, a, y, (struct oom_conv){.out = c->out[s] / 2, .kernel = 1}, OOM_ACT_RELU);
	m = hg_conv(t, a, m, (struct oom_conv){.out = c->out[s], .kernel = 1}, OOM_ACT_RELU);
	oom_forget(&f, y.x);                    /* hidden_state, the squeezed one now */
	if (residual)
		m.x = oom_op_add(t, m.x, part[0].x);
	return oom_leave_map(&f, m);
}

/* Stage s of a map that is the loop's. */
static struct oom_map hg_stage(struct oom_tape *t, const struct oom_arch *a, uint64_t s,
			       struct oom_map m)
{
	const struct hg *c = hg_of(a);
	const struct oom_conv down = {
		.out = c->in[s], .kernel = 3, .stride = c->stride[s], .groups = c->in[s]};
	struct oom_frame f = {.t = t};

	m = oom_declared(t, m, c->in[s]);
	if (c->down[s] != 0)
		m = oom_name_map(&f, hg_conv(t, a, m, down, OOM_ACT_NONE));
	for (uint64_t i = 0; i < c->blocks[s] && !t->status; i++)
		m = oom_rename_map(&f, m, hg_block(t, a, s, m, i != 0));
	return oom_leave_map(&f, m);
}

static struct oom_map hg_encoder(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	struct oom_frame f = {.t = t};

	/* embedding_output, and the loop's variable */
	m = oom_name_map(&f, oom_arg_map(&f, m));
	for (uint64_t s = 0; s < hg_of(a)->n && !t->status; s++)
		m = oom_rename_map(&f, m, hg_stage(t, a, s, m));
	return oom_leave_map(&f, m);
}

static struct oom_val hg_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_map m = hg_encoder(t, a, hg_stem(t, a, oom_pixels(t, a)));

	m = oom_declared(t, oom_name_map(&f, m), a->d_model);
	return oom_leave(&f, oom_image_loss(t, a, oom_global_pool(t, m)));
}

/* ---- PP-LCNet ---- */

struct lc_block {
	uint32_t kernel, in, out, stride;
	bool squeeze;
};
struct lc {
	uint64_t n, divisor, stem, stride, reduction;
	double scale;
	struct lc_block block[MAX_LC_BLOCKS];
};
OOM_OWN(lc, struct lc);

static const struct oom_key_row lc_keys[] = {
	ACT(act, "hidden_act", "hardswish"), OR(d_model, "class_expand", 1280),
	REAL_OWN(struct lc, scale, "scale", 1), OR_OWN(struct lc, divisor, "divisor", 8),
	OR_OWN(struct lc, stem, "stem_channels", 16), OR_OWN(struct lc, stride, "stem_stride", 2),
	OR_OWN(struct lc, reduction, "reduction", 4), OOM_KEYS_END};

/* [kernel, in, out, stride, squeeze] */
static struct lc_block read_block(struct oom_reader *r, uint64_t stage, uint64_t i)
{
	uint32_t out[5];
	char path[64];

	snprintf(path, sizeof(path), "block_configs.%llu.%llu", (unsigned long long)stage,
		 (unsigned long long)i);
	for (uint32_t j = 0; j < 5; j++) {
		const double x = oom_read_item_real(r, path, j, -1);

		if (!(x >= (j < 4 ? 1 : 0) && x <= 65536))
			oom_read_fail(r, "block_configs: a block is [kernel, in, out, stride, "
					 "squeeze]");
		out[j] = x >= 0 && x <= 65536 ? (uint32_t)x : 1;
	}
	return (struct lc_block){out[0], out[1], out[2], out[3], out[4]};
}

static void read_stage(struct oom_reader *r, uint64_t stage, struct lc *c)
{
	const struct oom_key *k;
	char path[64];
	uint64_t n;

	snprintf(path, sizeof(path), "block_configs.%llu", (unsigned long long)stage);
	k = oom_read_key(r, path);
	n = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	if (!n || n > MAX_LC_BLOCKS - c->n) {
		oom_read_fail(r, "block_configs must list blocks in every stage, up to %d in all",
			      MAX_LC_BLOCKS);
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		c->block[c->n++] = read_block(r, stage, i);
}

static void lc_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "block_configs");
	const uint64_t stages = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	struct lc *c = lc_own(a);

	oom_read_image(a, 224);
	oom_read_rows(a, lc_keys);
	a->channels = 3;
	if (!stages || stages > MAX_LC_STAGES)
		oom_read_fail(r, "block_configs must list 1 to %d stages", MAX_LC_STAGES);
	if (!(c->scale > 0 && c->scale <= 64) || !c->divisor || c->divisor > 65536 ||
	    !c->reduction || !a->d_model || !c->stride || c->stem > 1 << 16)
		oom_read_fail(r, "scale, divisor, stem_channels, stem_stride, reduction or "
				 "class_expand out of range");
	for (uint64_t s = 0; s < stages && !r->status; s++)
		read_stage(r, s, c);
	a->n_layers = c->n;
}

/* m times hardsigmoid(expand(relu(reduce(mean(m))))) */
static struct oom_map squeeze_excite(struct oom_tape *t, const struct lc *c, struct oom_map m)
{
	const struct oom_conv reduce = {.out = m.c / c->reduction, .kernel = 1, .bias = true},
			      expand = {.out = m.c, .kernel = 1, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_map p;

	m = oom_arg_map(&f, m);
	p = (struct oom_map){oom_global_pool(t, m), m.c, 1, 1};
	p = oom_map_act(t, OOM_ACT_RELU, oom_conv2d(t, "convolutions.0", p, &reduce));
	p = oom_conv2d(t, "convolutions.2", p, &expand);
	m.x = oom_op_mul(t, m.x, oom_op_unary(t, OOM_HARDSIGMOID, p.x));
	return oom_leave_map(&f, m);
}

static uint64_t scaled(const struct lc *c, uint64_t channels)
{
	return oom_make_divisible((double)channels * c->scale, c->divisor, c->divisor);
}

static struct oom_map lc_layer(struct oom_tape *t, const struct oom_arch *a,
			       const struct lc_block *b, struct oom_map m)
{
	const struct lc *c = lc_of(a);
	const uint64_t in = scaled(c, b->in);
	const struct oom_conv depthwise = {.out = in, .kernel = b->kernel, .stride = b->stride,
					   .pad = b->kernel / 2, .groups = in},
			      point = {.out = scaled(c, b->out), .kernel = 1};

	m = oom_conv_bn_act(t, oom_declared(t, m, in), &depthwise, a->act);
	if (b->squeeze)
		m = squeeze_excite(t, c, m);
	return oom_conv_bn_act(t, m, &point, a->act);
}

static struct oom_val lc_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct lc *c = lc_of(a);
	const struct oom_conv stem = {
		.out = scaled(c, c->stem), .kernel = 3, .stride = c->stride, .pad = 1};
	const struct oom_conv last = {.out = a->d_model, .kernel = 1};
	struct oom_map m = oom_conv_bn_act(t, oom_pixels(t, a), &stem, a->act);

	for (uint64_t i = 0; i < c->n && !t->status; i++)
		m = lc_layer(t, a, &c->block[i], m);
	m = (struct oom_map){oom_global_pool(t, m), m.c, 1, 1};
	m = oom_map_act(t, a->act, oom_conv2d(t, "last_convolution", m, &last));
	oom_tape_warn(t, "transformers' class computes no loss: counted with the cross-entropy "
		     "of its logits, not checkpointed");
	return oom_image_loss(t, a, oom_op_unary(t, OOM_SCALE, m.x));
}

/* ---- both ---- */

static void hgnet_parse(struct oom_arch *a)
{
	((const struct hgnet_kind *)a->type->kind)->parse(a);
}

static struct oom_val hgnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	oom_no_checkpointing(t);
	return ((const struct hgnet_kind *)a->type->kind)->step(t, a);
}

static const struct hgnet_kind hg = {.parse = hg_parse, .step = hg_step};
static const struct hgnet_kind lc = {.parse = lc_parse, .step = lc_step};
static const struct oom_family_type hgnet_types[] = {
	{"hgnet_v2", &hg}, {"pp_lcnet", &lc}, {NULL, NULL},
};

const struct oom_family oom_family_hgnet = {
	.name = "hgnet",
	.summary = "PaddlePaddle's convolution networks",
	.source = "transformers 5.12 models/hgnet_v2/modeling_hgnet_v2.py",
	.types = hgnet_types,
	.lora_targets = "all-linear",
	.parse = hgnet_parse,
	.step = hgnet_step,
};
