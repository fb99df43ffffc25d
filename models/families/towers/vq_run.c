/* A vector-quantised autoencoder's encoder as it runs: a step on images of Chameleon makes tokens of
 * them, with a graph that nothing asks for a gradient (indices have none) and that dies with the
 * encoder's outputs.  Reference: transformers 5.12, models/chameleon/modeling_chameleon.py
 * (ChameleonVQVAE.encode, ChameleonModel.get_image_features). */
#include "vq.h"
#include "weights.h"

/* hidden_states *= torch.sigmoid(hidden_states): in place, but where a gradient is wanted autograd clones what it
 * overwrites, and as much is allocated as by a product of its own. */
static struct oom_map gated(struct oom_frame *f, struct oom_map m)
{
	struct oom_tape *t = f->t;
	struct oom_val s = oom_op_unary(t, OOM_SIGMOID, m.x);

	if (oom_wants_grad(t, m.x))
		m.x = oom_rename(f, m.x, oom_op_mul(t, m.x, s));
	else
		oom_discard(t, s);
	return m;
}

static struct oom_map convolution(struct oom_tape *t, const char *name, struct oom_map m, uint64_t out, uint64_t kernel)
{
	const struct oom_conv c = {.out = out, .kernel = kernel, .stride = 1, .pad = kernel / 2, .bias = true};

	return oom_conv2d(t, name, m, &c);
}

/* The norm, the gate and the convolution of one half of a residual block. */
static struct oom_map half_block(struct oom_frame *f, struct oom_map m, const char *norm, const char *conv, uint64_t out)
{
	struct oom_tape *t = f->t;

	m = gated(f, oom_rename_map(f, m, oom_group_norm(t, norm, oom_map_keep(m), VQ_GROUPS)));
	return oom_rename_map(f, m, convolution(t, conv, oom_map_keep(m), out, 3));
}

static struct oom_map resnet(struct oom_tape *t, struct oom_map m, uint64_t out)
{
	struct oom_frame f = {.t = t};
	struct oom_map rest = oom_arg_map(&f, m), h;

	h = oom_name_map(&f, oom_group_norm(t, "norm1", oom_map_keep(rest), VQ_GROUPS));
	h = gated(&f, h);
	h = oom_rename_map(&f, h, convolution(t, "conv1", oom_map_keep(h), out, 3));
	h = half_block(&f, h, "norm2", "conv2", out);
	if (rest.c != out)
		rest = oom_rename_map(&f, rest, convolution(t, "nin_shortcut", oom_map_keep(rest), out, 1));
	h.x = oom_op_add(t, rest.x, h.x);
	return oom_leave_map(&f, h);
}

static struct oom_map attention(struct oom_tape *t, struct oom_map m)
{
	const uint64_t n = m.h * m.w;
	const struct oom_dim places = {n, "height * width"}, all = {m.c * n, "channels * height * width"};
	const uint16_t rows = oom_tokens_of(t, n);
	struct oom_frame f = {.t = t};
	struct oom_map rest = oom_arg_map(&f, m), h, q, k, v;
	struct oom_val w;

	h = oom_name_map(&f, oom_group_norm(t, "norm", oom_map_keep(rest), VQ_GROUPS));
	q = oom_name_map(&f, convolution(t, "q", oom_map_keep(h), m.c, 1));
	k = oom_name_map(&f, convolution(t, "k", oom_map_keep(h), m.c, 1));
	v = oom_name_map(&f, convolution(t, "v", oom_map_keep(h), m.c, 1));
	w = oom_name(&f, oom_op_bmm(t, "scores", q.x, k.x, rows, places, m.c));
	w = oom_rename(&f, w, oom_op_unary(t, OOM_SCALE, w));
	w = oom_rename(&f, w, oom_op_softmax(t, w, false));
	h.x = oom_rename(&f, h.x, oom_op_bmm(t, "attended", v.x, w, t->m_b, all, n));
	h = oom_rename_map(&f, h, convolution(t, "proj_out", oom_map_keep(h), m.c, 1));
	h.x = oom_op_add(t, rest.x, h.x);
	return oom_leave_map(&f, h);
}

/* A stage's blocks, whose results stand in a list until the encoder returns. */
static struct oom_map stage(struct oom_frame *f, const struct vq *q, uint64_t l, struct oom_map m)
{
	struct oom_tape *t = f->t;

	for (uint64_t i = 0; i < q->blocks; i++) {
		m = resnet(t, oom_map_keep(m), q->base * q->multiplier[l]);
		if (q->attends[l])
			m = attention(t, m);
		m = oom_name_map(f, m);
	}
	if (l + 1 < q->n) {
		/* padded by hand on two sides */
		const struct oom_conv down = {.out = m.c, .kernel = 3, .stride = 2, .bias = true};
		struct oom_map p = oom_pad_map(t, oom_map_keep(m), m.h + 1, m.w + 1);

		m = oom_name_map(f, oom_conv2d(t, "downsample", p, &down));
	}
	return m;
}

static struct oom_map encoded(struct oom_tape *t, const struct vq *q, struct oom_map m)
{
	struct oom_frame f = {.t = t};

	m = oom_name_map(&f, convolution(t, "conv_in", m, q->base, 3));
	for (uint64_t l = 0; l < q->n; l++)
		m = stage(&f, q, l, m);
	m = resnet(t, oom_map_keep(m), m.c);
	if (q->middle)
		m = attention(t, m);
	m = oom_name_map(&f, resnet(t, m, m.c));
	m = half_block(&f, m, "norm_out", "conv_out", q->latent * (q->twice ? 2 : 1));
	return oom_leave_map(&f, m);
}

/* The nearest code of every place: squared distances to all of them, their smallest, and the terms of a loss that nobody
 * reads. */
static struct oom_val quantised(struct oom_tape *t, const struct vq *q, uint64_t codes, struct oom_map m)
{
	const uint16_t rows = oom_tokens_of(t, m.h * m.w);
	const struct oom_dim width = {q->embed, "embed_dim"}, all = {codes, "num_embeddings"};
	struct oom_frame f = {.t = t};
	struct oom_val table, x, sums, far, near, ids, diff;

	x = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_view(t, oom_arg(&f, m.x), rows, width)));
	t->scope = "quantize";
	table = oom_param(t, "embedding.weight", codes, q->embed, OOM_P_EMBEDDING);
	sums = oom_op_sum(t, oom_op_unary(t, OOM_SQUARE, x), rows, D(1));
	far = oom_op_sum(t, oom_op_unary(t, OOM_SQUARE, table), oom_len_const(t, OOM_MONO_ONE, codes), D(1));
	sums = oom_op_expand(t, oom_op_add(t, sums, oom_op_expand(t, far, rows, D(1))), rows, all);
	sums = oom_op_copy(t, "sums", sums);
	near = oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "einsum", x, table, rows, all, q->embed));
	oom_name(&f, oom_op_add(t, sums, near));                /* distances */
	ids = oom_name(&f, oom_new(t, "argmin", rows, D(1), OOM_I64));
	near = oom_name(&f, oom_op_embedding_param(t, table, ids, codes, width));
	diff = oom_op_add(t, near, x);
	oom_name(&f, oom_op_unary(t, OOM_SQUARE, diff));
	return oom_leave(&f, oom_give(&f, ids));
}

struct oom_val oom_vq_tokens(struct oom_tape *t, const struct vq *q, uint64_t codes, uint64_t side, struct oom_val pixels,
			     uint64_t *n)
{
	const size_t graph = t->n_nodes;
	struct oom_map m = {.x = pixels, .c = q->in, .h = side, .w = side};
	struct oom_frame f = {.t = t};
	struct oom_weights idle;
	struct oom_val ids;

	m = oom_name_map(&f, encoded(t, q, m));
	m = oom_name_map(&f, convolution(t, "quant_conv", oom_map_keep(m), q->embed, 1));
	*n = m.h * m.w;
	ids = quantised(t, q, codes, m);
	t->scope = "vqmodel";
	oom_weights_begin(t, &idle);
	oom_weight_conv(t, "post_quant_conv", q->latent, q->embed, true);
	oom_weights_end(t, &idle);
	ids = oom_leave(&f, ids);
	oom_graph_dies(t, graph);
	return ids;
}
