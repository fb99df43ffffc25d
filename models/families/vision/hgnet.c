/* HGNet v2 and PP-LCNet: PaddlePaddle's convolution networks.
 * Reference: transformers 5.12, models/{hgnet_v2,pp_lcnet}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 16, MAX_PARTS = 32, MAX_BLOCKS = 64 };

struct hg {
	uint64_t n, in[MAX_STAGES], mid[MAX_STAGES], out[MAX_STAGES], blocks[MAX_STAGES],
		layers[MAX_STAGES], kernel[MAX_STAGES], stride[MAX_STAGES], stem[3], stem_stride[5];
	double down[MAX_STAGES], light[MAX_STAGES];
	enum oom_act act;
	bool affine;
};

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

static void read_hg(struct oom_reader *r, struct hg *c)
{
	memset(c, 0, sizeof(*c));
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
	c->act = oom_read_act(r, "hidden_act", "relu");
	c->affine = oom_read_bool(r, "use_learnable_affine_block", false);
}

/* Convolution, batch norm, activation and, where asked for, one scale and one bias for all of
 * it. */
static struct oom_map conv(struct oom_tape *t, const struct hg *c, struct oom_map m, uint64_t out,
			   uint64_t kernel, uint64_t stride, uint64_t groups, enum oom_act act)
{
	m = oom_conv_bn_act(t, m,
			    &(struct oom_conv){.out = out,
					       .kernel = kernel,
					       .stride = stride,
					       .pad = (kernel - 1) / 2,
					       .groups = groups},
			    act);
	if (c->affine && act != OOM_ACT_NONE && !t->status) {
		struct oom_val scale = oom_param(t, "lab.scale", 0, 1, 0),
			       bias = oom_param(t, "lab.bias", 0, 1, 0);

		m.x = oom_op_add(t, oom_op_mul(t, scale, m.x), bias);
	}
	return m;
}

static struct oom_map hg_stem(struct oom_tape *t, const struct hg *c, struct oom_map m)
{
	const uint64_t wide = c->stem[1];
	struct oom_map part[2], y;
	struct oom_val held[2];

	m = conv(t, c, m, wide, 3, c->stem_stride[0], 1, c->act);
	m = oom_pad_map(t, m, m.h + 1, m.w + 1);
	y = conv(t, c, oom_map_keep(m), wide / 2, 2, c->stem_stride[1], 1, c->act);
	y = oom_pad_map(t, y, y.h + 1, y.w + 1);
	part[1] = conv(t, c, y, wide, 2, c->stem_stride[2], 1, c->act);
	part[0] = oom_max_pool(t, oom_map_keep(m), 2, 1, 0);
	if (t->status)
		return m;
	if (part[0].h != part[1].h || part[0].w != part[1].w) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "stem_strides: the two branches of the stem do not meet");
		return m;
	}
	held[0] = oom_share(t, part[0].x);      /* pooled_emb, emb_stem_2a */
	held[1] = oom_share(t, part[1].x);
	y = oom_cat_maps(t, part, 2);
	oom_drop(t, m.x);
	m = conv(t, c, y, wide, 3, c->stem_stride[3], 1, c->act);
	m = conv(t, c, m, c->stem[2], 1, c->stem_stride[4], 1, c->act);
	oom_drop_all(t, held, 2);
	return m;
}

/* A chain of convolutions, all of whose results are joined and squeezed. */
static struct oom_map hg_block(struct oom_tape *t, const struct hg *c, uint64_t s, struct oom_map m,
			       bool residual)
{
	struct oom_map part[MAX_PARTS], y;
	struct oom_val all;
	const int n = (int)c->layers[s] + 1;

	part[0] = oom_map_share(t, m);
	for (int i = 1; i < n && !t->status; i++) {
		const struct oom_map from = oom_map_keep(part[i - 1]);

		if (c->light[s] != 0) {
			y = conv(t, c, from, c->mid[s], 1, 1, 1, OOM_ACT_NONE);
			part[i] = conv(t, c, y, c->mid[s], c->kernel[s], 1, c->mid[s],
				       OOM_ACT_RELU);
		} else {
			part[i] = conv(t, c, from, c->mid[s], c->kernel[s], 1, 1, OOM_ACT_RELU);
		}
	}
	if (t->status)
		return m;
	for (int i = 0; i < n; i++)
		part[i] = oom_map_keep(part[i]);        /* `output`, a list */
	y = oom_cat_maps(t, part, n);
	all = oom_share(t, y.x);                /* hidden_state, until both convolutions are done */
	y = conv(t, c, y, c->out[s] / 2, 1, 1, 1, OOM_ACT_RELU);
	y = conv(t, c, y, c->out[s], 1, 1, 1, OOM_ACT_RELU);
	oom_drop(t, all);
	if (residual && !t->status)
		y.x = oom_op_add(t, y.x, oom_keep(m.x));
	for (int i = 0; i < n; i++)
		oom_drop(t, part[i].x);
	oom_drop(t, m.x);
	return y;
}

static struct oom_map hgnet(struct oom_tape *t, struct oom_reader *r, struct oom_map m)
{
	struct oom_val embedding;
	struct hg c;

	read_hg(r, &c);
	m = hg_stem(t, &c, m);
	embedding = oom_share(t, m.x);          /* a local of the model */
	for (uint64_t s = 0; s < c.n && !t->status; s++) {
		struct oom_val input = oom_share(t, m.x);

		m = oom_declared(t, m, c.in[s]);
		if (c.down[s] != 0)
			m = conv(t, &c, m, c.in[s], 3, c.stride[s], c.in[s], OOM_ACT_NONE);
		for (uint64_t i = 0; i < c.blocks[s] && !t->status; i++)
			m = hg_block(t, &c, s, m, i != 0);
		oom_drop(t, input);
	}
	oom_drop(t, embedding);
	return m;
}

/* ---- PP-LCNet ---- */

struct lc {
	uint64_t n, divisor, stem, stride, reduction, expand;
	double scale;
	enum oom_act act;
};

static void read_lc(struct oom_reader *r, struct lc *c)
{
	const struct oom_key *k = oom_read_key(r, "block_configs");

	memset(c, 0, sizeof(*c));
	c->n = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	c->scale = oom_read_real(r, "scale", 1);
	c->divisor = oom_read_count_or(r, "divisor", 8);
	c->stem = oom_read_count_or(r, "stem_channels", 16);
	c->stride = oom_read_count_or(r, "stem_stride", 2);
	c->reduction = oom_read_count_or(r, "reduction", 4);
	c->expand = oom_read_count_or(r, "class_expand", 1280);
	c->act = oom_read_act(r, "hidden_act", "hardswish");
	if (!c->n || c->n > MAX_STAGES)
		oom_read_fail(r, "block_configs must list 1 to %d stages", MAX_STAGES);
	if (!(c->scale > 0 && c->scale <= 64) || !c->divisor || c->divisor > 65536 ||
	    !c->reduction || !c->expand || !c->stride || c->stem > 1 << 16)
		oom_read_fail(r, "scale, divisor, stem_channels, stem_stride, reduction or "
				 "class_expand out of range");
}

static uint64_t make_divisible(double value, uint64_t divisor)
{
	uint64_t n = (uint64_t)(value + (double)divisor / 2) / divisor * divisor;

	if (n < divisor)
		n = divisor;
	return (double)n < 0.9 * value ? n + divisor : n;
}

/* kernel, in, out, stride, squeeze of one block */
static uint64_t read_block(struct oom_reader *r, uint64_t stage, uint64_t i, uint64_t out[5])
{
	char path[64];
	const struct oom_key *k;

	snprintf(path, sizeof(path), "block_configs.%llu", (unsigned long long)stage);
	k = oom_read_key(r, path);
	if (!k || k->type != OOM_KEY_LIST || k->n_items > MAX_BLOCKS) {
		oom_read_fail(r, "block_configs must list 1 to %d blocks a stage", MAX_BLOCKS);
		return 0;
	}
	snprintf(path, sizeof(path), "block_configs.%llu.%llu", (unsigned long long)stage,
		 (unsigned long long)i);
	for (uint32_t j = 0; i < k->n_items && j < 5; j++) {
		const double x = oom_read_item_real(r, path, j, -1);

		if (!(x >= (j < 4 ? 1 : 0) && x <= 65536))
			oom_read_fail(r, "block_configs: a block is [kernel, in, out, stride, "
					 "squeeze]");
		out[j] = x >= 0 && x <= 65536 ? (uint64_t)x : 1;
	}
	return k->n_items;
}

static struct oom_map lc_block(struct oom_tape *t, const struct lc *c, const uint64_t b[5],
			       struct oom_map m)
{
	const uint64_t out = make_divisible((double)b[2] * c->scale, c->divisor);
	struct oom_val held;

	m = oom_declared(t, m, make_divisible((double)b[1] * c->scale, c->divisor));
	m = oom_conv_bn_act(t, m,
			    &(struct oom_conv){.out = m.c,
					       .kernel = b[0],
					       .stride = b[3],
					       .pad = b[0] / 2,
					       .groups = m.c},
			    c->act);
	if (b[4] && !t->status) {
		struct oom_map p = {oom_global_pool(t, oom_map_keep(m)), m.c, 1, 1};

		held = oom_share(t, m.x);
		p = oom_conv2d(t, "convolutions.0", p,
			       &(struct oom_conv){.out = m.c / c->reduction,
						  .kernel = 1,
						  .bias = true});
		p = oom_map_act(t, OOM_ACT_RELU, p);
		p = oom_conv2d(t, "convolutions.2", p,
			       &(struct oom_conv){.out = m.c, .kernel = 1, .bias = true});
		if (t->status)
			return m;
		p.x = oom_op_unary(t, OOM_HARDSIGMOID, p.x);
		m.x = oom_op_mul(t, m.x, p.x);
		oom_drop(t, held);
	}
	return oom_conv_bn_act(t, m, &(struct oom_conv){.out = out, .kernel = 1}, c->act);
}

static struct oom_map lcnet(struct oom_tape *t, struct oom_reader *r, struct oom_map m)
{
	struct lc c;

	read_lc(r, &c);
	m = oom_conv_bn_act(t, m,
			    &(struct oom_conv){.out = make_divisible((double)c.stem * c.scale,
								     c.divisor),
					       .kernel = 3,
					       .stride = c.stride,
					       .pad = 1},
			    c.act);
	for (uint64_t s = 0; s < c.n && !t->status; s++) {
		uint64_t b[5], n = read_block(r, s, 0, b);

		for (uint64_t i = 0; i < n && !t->status; i++) {
			read_block(r, s, i, b);
			m = lc_block(t, &c, b, m);
		}
	}
	if (t->status)
		return m;
	m = (struct oom_map){oom_global_pool(t, m), m.c, 1, 1};
	m = oom_conv2d(t, "last_convolution", m, &(struct oom_conv){.out = c.expand, .kernel = 1});
	m = oom_map_act(t, c.act, m);
	if (!t->status)
		m.x = oom_op_unary(t, OOM_SCALE, m.x);
	return m;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	uint64_t b[5];

	oom_read_image(a, 224);
	if (!strcmp(a->model_type, "pp_lcnet")) {
		struct lc c;

		read_lc(r, &c);
		a->channels = 3;
		for (uint64_t s = 0; s < c.n && !r->status; s++) {
			const uint64_t n = read_block(r, s, 0, b);

			for (uint64_t i = 0; i < n && !r->status; i++)
				read_block(r, s, i, b);
			a->n_layers += n;
		}
		a->d_model = c.expand;
	} else {
		struct hg c;

		read_hg(r, &c);
		a->channels = c.stem[0];
		for (uint64_t s = 0; s < c.n; s++)
			a->n_layers += c.blocks[s];
		a->d_model = c.n ? c.out[c.n - 1] : 1;
		/* the head's width */
		if (oom_read_counts(r, "hidden_sizes", c.out, MAX_STAGES))
			a->d_model =
				c.out[oom_read_counts(r, "hidden_sizes", c.out, MAX_STAGES) - 1];
	}
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);

	oom_no_checkpointing(t);
	if (!strcmp(a->model_type, "pp_lcnet")) {
		m = lcnet(t, &rd, m);
		t->warning = "transformers' class computes no loss: counted with the cross-entropy "
			     "of its logits, not checkpointed";
		return oom_image_head(t, a, m.x, oom_none());
	}
	m = hgnet(t, &rd, m);
	if (t->status)
		return m.x;
	m = oom_declared(t, m, a->d_model);
	return oom_image_head(t, a, oom_global_pool(t, oom_map_keep(m)), m.x);
}

static const struct oom_family_type types[] = {
	{"hgnet_v2", NULL}, {"pp_lcnet", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_hgnet = {
	.name = "hgnet",
	.summary = "PaddlePaddle's convolution networks",
	.source = "transformers 5.12 models/hgnet_v2/modeling_hgnet_v2.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
