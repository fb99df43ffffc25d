/* Hiera: plain blocks over tokens unrolled so that pooling is a maximum over a dimension; attention
 * within mask units first. Reference: transformers 5.12, models/hiera/modeling_hiera.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], heads[MAX_STAGES], c[MAX_STAGES], patch[2], stride[2],
		unit[2], query[2], pools, layers;
	double pad[2], masked[MAX_STAGES], ratio, drop;
};

static void read_pair(struct oom_reader *r, const char *key, uint64_t *out)
{
	if (oom_read_counts(r, key, out, 2) != 2)
		oom_read_fail(r, "%s must list two counts", key);
	for (int i = 0; i < 2; i++)
		if (!out[i] || out[i] > 4096)
			out[i] = 1;
}

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	const double mult = oom_read_real(r, "embed_dim_multiplier", 2);
	const uint64_t embed = oom_read_count_or(r, "embed_dim", 96);

	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	if (oom_read_counts(r, "num_heads", c->heads, MAX_STAGES) < c->n)
		oom_read_fail(r, "num_heads must list a count for each of %llu stages",
			      (unsigned long long)c->n);
	read_pair(r, "patch_size", c->patch);
	read_pair(r, "patch_stride", c->stride);
	read_pair(r, "masked_unit_size", c->unit);
	read_pair(r, "query_stride", c->query);
	oom_read_reals(r, "patch_padding", c->pad, 2, 3);
	oom_read_reals(r, "masked_unit_attention", c->masked, c->n, 0);
	c->pools = oom_read_count_or(r, "num_query_pool", 3);
	c->ratio = oom_read_real(r, "mlp_ratio", 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	for (uint64_t i = 0; i < c->n; i++) {
		const double width = (double)embed * pow(mult, (double)i);

		c->layers += c->depth[i];
		c->c[i] = width >= 1 && width <= 1 << 20 ? (uint64_t)width : 0;
		if (!c->c[i] || !c->heads[i] || c->heads[i] > c->c[i])
			oom_read_fail(r,
				      "embed_dim, embed_dim_multiplier or num_heads out of range");
	}
	if (c->layers > OOM_MAX_LAYERS || !(c->ratio > 0 && c->ratio <= 1024) ||
	    !(c->pad[0] >= 0 && c->pad[0] <= 4096) || !(c->pad[1] >= 0 && c->pad[1] <= 4096))
		oom_read_fail(r, "depths, mlp_ratio or patch_padding out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->act = oom_read_act(&a->rd, "hidden_act", "gelu");
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

struct stage {
	const struct oom_arch *a;
	uint64_t in, c, heads, ff, tokens, query, depth, first, window;
	bool drop, masked, masked_first;
};

/* x.view(b, stride, -1, ...).max(dim).values: the places of the maxima (int64) are kept. */
static struct oom_val max_pool(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width)
{
	struct oom_val at = oom_new(t, "max indices", mono, width, OOM_I64), y;

	y = oom_op_gather(t, "max", x, oom_keep(at), mono, width);
	oom_drop(t, at);
	y.perm = false;
	return y;
}

static struct oom_val attention(struct oom_tape *t, const struct stage *s, uint64_t query,
				bool masked, struct oom_val x)
{
	const struct oom_dim c = {s->c, "channels"}, widths[3] = {c, c, c};
	const uint64_t n = s->tokens, out = n / query, per = query * s->window;
	const uint64_t windows = masked && per && n / per ? n / per : 1;
	const uint16_t m_out = oom_tokens_of(t, out),
		       scores = oom_mono_mul(t, m_out, oom_length_of(t, n / windows));
	struct oom_val part[3], qkv, w, y;

	qkv = oom_op_linear(t, "qkv", oom_keep(x), (struct oom_dim){3 * s->c, "3 * channels"},
			    OOM_BIAS);
	qkv = oom_op_heads(t, qkv);
	oom_op_split(t, oom_keep(qkv), 3, widths, part);
	for (int i = 0; i < 3; i++)
		part[i].perm = true;
	if (query > 1)
		part[0] = max_pool(t, part[0], m_out, c);
	w = oom_op_unary(t, OOM_SCALE, oom_keep(part[0]));
	w = oom_op_bmm(t, "scores", w, oom_keep(part[1]), scores,
		       (struct oom_dim){s->heads, "n_heads"}, s->c / s->heads);
	w = oom_op_softmax(t, w, false);
	y = oom_op_bmm(t, "attention", oom_keep(w), oom_keep(part[2]), m_out, c, n / windows);
	y = oom_op_merge_heads(t, y);
	y = oom_op_linear(t, "proj", y, c, OOM_BIAS);
	oom_drop_all(t, (struct oom_val[]){qkv, part[0], part[1], part[2], w}, 5);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const struct stage *s, uint64_t i, struct oom_val x)
{
	const bool path = s->drop && s->first + i, widen = !i && s->in != s->c;
	const uint64_t query = i ? 1 : s->query;
	const struct oom_dim c = {s->c, "channels"};
	struct oom_val normed = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true,
						  true),
		       out, y;

	if (widen) {
		struct oom_val wide = oom_op_linear(t, "proj", oom_keep(normed), c, OOM_BIAS);

		oom_done(t, x);
		x = max_pool(t, wide, oom_tokens_of(t, s->tokens / query), c);
	}
	y = attention(t, s, query, s->masked || (!i && s->masked_first), normed);
	out = oom_share(t, y);                  /* hidden_states_norm, from now on */
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, x, y);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", s->a->act, (struct oom_dim){s->ff, "intermediate"},
			  true);
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, x, y);
	oom_drop(t, out);
	return x;
}

static struct oom_val run_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	struct stage s = *(const struct stage *)ctx;
	struct oom_val input = oom_share(t, x);

	(void)j;
	for (uint64_t i = 0; i < s.depth && !t->status; i++) {
		const struct oom_val arg = oom_share(t, x);

		x = block(t, &s, i, x);
		oom_drop(t, arg);
		if (!i)
			s.tokens /= s.query;
	}
	oom_drop(t, input);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad;
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, first, unrolled, pos;
	struct stage s;
	struct cfg c;
	uint64_t area, query;

	read_cfg(&rd, &c);
	if (t->plan->num_layers)
		t->warning = "Hiera's depth is a list: the number of layers asked for is not "
			     "applied";
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = c.c[0],
					  .kernel = c.patch[0],
					  .kernel_w = c.patch[1],
					  .stride = c.stride[0],
					  .stride_w = c.stride[1],
					  .pad = (uint64_t)c.pad[0],
					  .pad_w = (uint64_t)c.pad[1],
					  .bias = true});
	if (t->status)
		return m.x;
	pos = oom_param_tokens(t, "position_embeddings", m.h * m.w, c.c[0]);
	x = oom_op_add(t, oom_map_tokens(t, m), pos);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	/* unroll: strides moved into the batch, one copy each */
	for (uint64_t i = 0; i + 1 < c.n; i++)
		x = oom_op_expand_copy(t, x, oom_tokens_of(t, m.h * m.w),
				       (struct oom_dim){c.c[0], "embed_dim"});
	unrolled = oom_share(t, x);             /* hidden_states, another */
	area = c.unit[0] * c.unit[1];
	query = c.query[0] * c.query[1];
	s = (struct stage){.a = a, .in = c.c[0], .tokens = m.h * m.w, .drop = c.drop > 0};
	for (uint64_t j = 0; j < c.n && !t->status; j++) {
		const void *ctx;

		s.c = c.c[j];
		s.heads = c.heads[j];
		s.ff = (uint64_t)(c.ratio * (double)s.c);
		s.depth = c.depth[j];
		s.query = j && j <= c.pools ? query : 1;
		s.window = area;
		for (uint64_t i = 0; i < j; i++)
			s.window /= query;
		s.masked = c.masked[j] != 0;
		s.masked_first = c.masked[j ? j - 1 : 0] != 0;
		ctx = oom_layer_ctx(t, &s, sizeof(s));
		if (!ctx || s.tokens / s.query == 0) {
			if (ctx)
				oom_tape_fail(t, OOM_ERR_INVALID,
					      "the image leaves stage %llu no token",
					      (unsigned long long)j);
			break;
		}
		x = ckpt ? oom_layer_alone(t, (uint32_t)j, run_stage, ctx, x) :
			   run_stage(t, ctx, (uint32_t)j, x);
		s.tokens /= s.query;
		s.in = s.c;
		s.first += s.depth;
	}
	oom_drop(t, first);
	oom_drop(t, unrolled);
	if (t->status)
		return x;
	m.x = oom_op_layer_norm(t, "pooler.layernorm",
				oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model)), 0, true, true);
	return oom_image_head(t, a, m.x, x);
}

const struct oom_family oom_family_hiera = {
	.name = "hiera",
	.summary = "vision encoder over unrolled tokens, pooled in stages",
	.source = "transformers 5.12 models/hiera/modeling_hiera.py",
	.types = OOM_TYPE("hiera"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
