/* TextNet: convolutions with parallel vertical, horizontal and identity branches while training.
 * Reference: transformers 5.12, models/textnet/modeling_textnet.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8, MAX_BLOCKS = 32 };

struct block {
	uint64_t kernel[2], stride;
};
struct cfg {
	uint64_t n, hidden[MAX_STAGES + 1], stem, stem_kernel, stem_stride;
	enum oom_act act;
	bool no_act;
};

static uint64_t blocks_of(struct oom_reader *r, uint64_t stage)
{
	const struct oom_key *k;
	char path[64];

	snprintf(path, sizeof(path), "conv_layer_kernel_sizes.%llu", (unsigned long long)stage);
	k = oom_read_key(r, path);
	return k && k->type == OOM_KEY_LIST && k->n_items <= MAX_BLOCKS ? k->n_items : 0;
}

static void read_block(struct oom_reader *r, uint64_t stage, uint64_t i, struct block *b)
{
	char path[96];

	snprintf(path, sizeof(path), "conv_layer_kernel_sizes.%llu.%llu", (unsigned long long)stage,
		 (unsigned long long)i);
	if (oom_read_counts(r, path, b->kernel, 2) != 2 || b->kernel[0] > 1024 ||
	    b->kernel[1] > 1024)
		oom_read_fail(r,
			      "conv_layer_kernel_sizes must list [height, width] for every block");
	snprintf(path, sizeof(path), "conv_layer_strides.%llu", (unsigned long long)stage);
	b->stride = (uint64_t)oom_read_item_real(r, path, (uint32_t)i, 1);
	if (!b->stride || b->stride > 1024)
		oom_read_fail(r, "conv_layer_strides must list a stride for every block");
}

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	const struct oom_key *k = oom_read_key(r, "conv_layer_kernel_sizes");

	memset(c, 0, sizeof(*c));
	c->n = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	c->stem = oom_read_count_or(r, "stem_out_channels", 64);
	c->stem_kernel = oom_read_count_or(r, "stem_kernel_size", 3);
	c->stem_stride = oom_read_count_or(r, "stem_stride", 2);
	c->no_act = !oom_read_string(r, "stem_act_func", "relu");
	c->act = c->no_act ? OOM_ACT_NONE : oom_read_act(r, "stem_act_func", "relu");
	if (!c->n || c->n > MAX_STAGES ||
	    oom_read_counts(r, "hidden_sizes", c->hidden, MAX_STAGES + 1) < c->n + 1) {
		oom_read_fail(r,
			      "hidden_sizes must list one width more than conv_layer_kernel_sizes "
			      "has stages (1 to %d)",
			      MAX_STAGES);
		c->n = 0;
	}
	if (!c->stem_kernel || c->stem_kernel > 1024 || !c->stem_stride)
		oom_read_fail(r, "stem_kernel_size or stem_stride out of range");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct cfg c;

	oom_read_image(a, 640);
	a->channels = oom_read_count_or(r, "stem_num_channels", 3);
	read_cfg(r, &c);
	for (uint64_t i = 0; i < c.n; i++) {
		struct block b;

		a->n_layers += blocks_of(r, i);
		if (!blocks_of(r, i))
			oom_read_fail(r, "conv_layer_kernel_sizes must list 1 to %d blocks a stage",
				      MAX_BLOCKS);
		for (uint64_t j = 0; j < blocks_of(r, i); j++)
			read_block(r, i, j, &b);
	}
	a->d_model = c.hidden[c.n];
}

static struct oom_map branch(struct oom_tape *t, struct oom_map m, uint64_t out, uint64_t h,
			     uint64_t w, uint64_t stride)
{
	return oom_batch_norm(t, "batch_norm",
			      oom_conv2d(t, "conv", m,
					 &(struct oom_conv){.out = out,
							    .kernel = h,
							    .kernel_w = w,
							    .stride = stride,
							    .pad = (h - 1) / 2,
							    .pad_w = (w - 1) / 2}));
}

static struct oom_map layer(struct oom_tape *t, struct oom_map m, uint64_t out,
			    const struct block *b)
{
	struct oom_map y = branch(t, oom_map_keep(m), out, b->kernel[0], b->kernel[1], b->stride),
		       v;
	struct oom_val held[3] = {oom_none(), oom_none(), oom_none()};
	int n = 0;

	for (int i = 0; i < 3 && !t->status; i++) {
		if (i == 0 && b->kernel[1] != 1)
			v = branch(t, oom_map_keep(m), out, b->kernel[0], 1, b->stride);
		else if (i == 1 && b->kernel[0] != 1)
			v = branch(t, oom_map_keep(m), out, 1, b->kernel[1], b->stride);
		else if (i == 2 && m.c == out && b->stride == 1)
			v = oom_batch_norm(t, "rbr_identity", oom_map_keep(m));
		else
			continue;
		if (t->status)
			break;
		held[n++] = v.x;                /* locals of the module */
		y.x = oom_op_add(t, y.x, oom_keep(v.x));
	}
	if (!t->status)
		y = oom_map_act(t, OOM_ACT_RELU, y);
	oom_drop_all(t, held, n);
	oom_drop(t, m.x);
	return y;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val held[MAX_STAGES + 2], pooled;
	struct cfg c;
	int n = 0;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	m = oom_conv_bn_act(t, m,
			    &(struct oom_conv){.out = c.stem,
					       .kernel = c.stem_kernel,
					       .stride = c.stem_stride,
					       .pad = c.stem_kernel / 2},
			    c.act);
	m = oom_declared(t, m, c.hidden[0]);
	/* the encoder lists every stage's result, asked for or not */
	held[n++] = oom_share(t, m.x);
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		for (uint64_t j = 0, k = blocks_of(&rd, i); j < k && !t->status; j++) {
			struct block b = {{1, 1}, 1};

			read_block(&rd, i, j, &b);
			m = layer(t, m, c.hidden[i + 1], &b);
		}
		held[n++] = oom_share(t, m.x);
	}
	oom_drop_all(t, held, n);               /* the encoder's output object */
	if (t->status)
		return m.x;
	/* AdaptiveAvgPool2d(2) of the model is not looked at, but it is made */
	oom_drop(t, oom_new(t, "pooler_output", t->m_b, (struct oom_dim){4 * m.c, "4 * channels"},
			    (enum oom_dtype)m.x.dt));
	pooled = oom_global_pool(t, oom_map_keep(m));
	return oom_image_head(t, a, pooled, m.x);
}

const struct oom_family oom_family_textnet = {
	.name = "textnet",
	.summary = "convolutions with parallel branches",
	.source = "transformers 5.12 models/textnet/modeling_textnet.py",
	.types = OOM_TYPE("textnet"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
