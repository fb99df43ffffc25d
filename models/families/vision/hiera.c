/* Hiera: plain blocks over tokens unrolled so that pooling is a maximum over a dimension; attention
 * within mask units first. Reference: transformers 5.12, models/hiera/modeling_hiera.py. */
#include <math.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

struct hiera {
	uint64_t n, depth[MAX_STAGES], heads[MAX_STAGES], c[MAX_STAGES], patch[2], stride[2],
		unit[2], query[2], pools;
	double pad[2], masked[MAX_STAGES], ratio, drop;
};
OOM_OWN(hiera, struct hiera);

static const struct oom_key_row hiera_keys[] = {
	OR(d_embed, "embed_dim", 96), ACT(act, "hidden_act", "gelu"),
	OR_OWN(struct hiera, pools, "num_query_pool", 3),
	REAL_OWN(struct hiera, ratio, "mlp_ratio", 4),
	REAL_OWN(struct hiera, drop, "drop_path_rate", 0), OOM_KEYS_END};

static void read_pair(struct oom_reader *r, const char *key, uint64_t *out)
{
	if (oom_read_counts(r, key, out, 2) != 2)
		oom_read_fail(r, "%s must list two counts", key);
	for (int i = 0; i < 2; i++)
		if (!out[i] || out[i] > 4096)
			out[i] = 1;
}

static void read_stages(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const double mult = oom_read_real(r, "embed_dim_multiplier", 2);
	struct hiera *c = hiera_own(a);

	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	oom_read_stages(r, "num_heads", c->heads, MAX_STAGES, c->n);
	oom_read_reals(r, "masked_unit_attention", c->masked, c->n, 0);
	for (uint64_t i = 0; i < c->n; i++) {
		const double width = (double)a->d_embed * pow(mult, (double)i);

		a->n_layers += c->depth[i];
		c->c[i] = width >= 1 && width <= 1 << 20 ? (uint64_t)width : 0;
		if (!c->c[i] || !c->heads[i] || c->heads[i] > c->c[i])
			oom_read_fail(r,
				      "embed_dim, embed_dim_multiplier or num_heads out of range");
	}
	a->d_model = c->n ? c->c[c->n - 1] : 1;
}

static void hiera_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct hiera *c = hiera_own(a);

	oom_read_image(a, 224);
	read_stages(a);
	read_pair(r, "patch_size", c->patch);
	read_pair(r, "patch_stride", c->stride);
	read_pair(r, "masked_unit_size", c->unit);
	read_pair(r, "query_stride", c->query);
	oom_read_reals(r, "patch_padding", c->pad, 2, 3);
	if (a->n_layers > OOM_MAX_LAYERS || !(c->ratio > 0 && c->ratio <= 1024) ||
	    !(c->pad[0] >= 0 && c->pad[0] <= 4096) || !(c->pad[1] >= 0 && c->pad[1] <= 4096))
		oom_read_fail(r, "depths, mlp_ratio or patch_padding out of range");
}

struct hiera_stage {
	const struct oom_arch *a;
	uint64_t in, c, heads, ff, tokens, query, depth, first, window;
	bool drop, masked, masked_first;
};

/* x.view(b, stride, -1, ...).max(dim).values: the places of the maxima (int64) are kept. */
static struct oom_val max_pool(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width)
{
	struct oom_frame f = {.t = t};
	struct oom_val at = oom_name(&f, oom_new(t, "max indices", mono, width, OOM_I64));
	struct oom_val y = oom_op_gather(t, "max", x, at, mono, width);

	y.perm = false;
	return oom_leave(&f, y);
}

static struct oom_val hiera_attention(struct oom_tape *t, const struct hiera_stage *s,
				      uint64_t query, bool masked, struct oom_val x)
{
	const struct oom_dim c = {s->c, "channels"}, widths[3] = {c, c, c},
			     heads = {s->heads, "n_heads"};
	const uint64_t n = s->tokens, per = query * s->window;
	const uint64_t windows = masked && per && n / per ? n / per : 1;
	const uint16_t m_out = oom_tokens_of(t, n / query),
		       scores = oom_mono_mul(t, m_out, oom_length_of(t, n / windows));
	struct oom_frame f = {.t = t};
	struct oom_val part[3], qkv, w, y;

	x = oom_arg(&f, x);
	qkv = oom_op_linear(t, "qkv", x, (struct oom_dim){3 * s->c, "3 * channels"}, OOM_BIAS);
	oom_op_split(t, oom_name(&f, oom_op_heads(t, qkv)), 3, widths, part);
	for (int i = 0; i < 3; i++)
		part[i].perm = true;
	if (query > 1)
		part[0] = max_pool(t, part[0], m_out, c);
	oom_name_each(&f, part, 3);
	w = oom_op_bmm(t, "scores", oom_op_unary(t, OOM_SCALE, part[0]), part[1], scores, heads,
		       s->c / s->heads);
	w = oom_name(&f, oom_op_softmax(t, w, false));
	y = oom_op_merge_heads(t, oom_op_bmm(t, "attention", w, part[2], m_out, c, n / windows));
	return oom_leave(&f, oom_op_linear(t, "proj", y, c, OOM_BIAS));
}

/* x is the caller's. */
static struct oom_val hiera_block(struct oom_tape *t, const struct hiera_stage *s, uint64_t i,
				  struct oom_val x)
{
	const bool path = s->drop && s->first + i, widen = !i && s->in != s->c;
	const uint64_t query = i ? 1 : s->query;
	const struct oom_dim c = {s->c, "channels"}, ff = {s->ff, "intermediate"};
	struct oom_frame f = {.t = t};
	struct oom_val h, y;

	h = oom_name(&f, oom_op_layer_norm(t, "layernorm_before", x, 0, true, true));
	if (widen) {
		x = oom_op_linear(t, "proj", h, c, OOM_BIAS);
		x = oom_name(&f, max_pool(t, x, oom_tokens_of(t, s->tokens / query), c));
	}
	y = hiera_attention(t, s, query, s->masked || (!i && s->masked_first), h);
	h = oom_rename(&f, h, y);               /* hidden_states_norm is the result now */
	x = oom_rename(&f, x, oom_op_add(t, x, path ? oom_drop_path(t, h) : h));
	y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", s->a->act, ff, true);
	return oom_leave(&f, oom_op_add(t, x, path ? oom_drop_path(t, y) : y));
}

static struct oom_val hiera_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	struct hiera_stage s = *(const struct hiera_stage *)ctx;
	struct oom_frame f = {.t = t};

	(void)j;
	for (uint64_t i = 0; i < s.depth && !t->status; i++) {
		x = oom_rename(&f, x, hiera_block(t, &s, i, x));
		if (!i)
			s.tokens /= s.query;
	}
	return oom_leave(&f, x);
}

/* The stages, each a unit of checkpointing; x is the caller's. */
static struct oom_val hiera_encoder(struct oom_tape *t, const struct oom_arch *a, uint64_t tokens,
				    struct oom_val x)
{
	const struct hiera *c = hiera_of(a);
	const uint64_t query = c->query[0] * c->query[1];
	uint64_t window = c->unit[0] * c->unit[1];
	struct hiera_stage s = {.a = a, .in = c->c[0], .tokens = tokens, .drop = c->drop > 0};
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < c->n && !t->status; j++, window /= query) {
		s.c = c->c[j];
		s.heads = c->heads[j];
		s.ff = (uint64_t)(c->ratio * (double)s.c);
		s.depth = c->depth[j];
		s.query = j && j <= c->pools ? query : 1;
		s.window = window;
		s.masked = c->masked[j] != 0;
		s.masked_first = c->masked[j ? j - 1 : 0] != 0;
		if (s.tokens / s.query == 0)
			oom_tape_impossible(t, OOM_ERR_INVALID, "the image leaves stage %llu no token",
				      (unsigned long long)j);
		x = oom_rename(&f, x, oom_run_stage(t, j, hiera_stage, &s, sizeof(s), x));
		s.tokens /= s.query;
		s.in = s.c;
		s.first += s.depth;
	}
	return oom_leave(&f, x);
}

static struct oom_val hiera_model(struct oom_tape *t, const struct oom_arch *a)
{
	const struct hiera *c = hiera_of(a);
	const struct oom_conv conv = {.out = c->c[0], .kernel = c->patch[0],
				      .kernel_w = c->patch[1], .stride = c->stride[0],
				      .stride_w = c->stride[1], .pad = (uint64_t)c->pad[0],
				      .pad_w = (uint64_t)c->pad[1], .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_map m = oom_conv2d(t, "projection", oom_pixels(t, a), &conv);
	const uint64_t n = m.h * m.w;
	struct oom_val x, pos;

	if (t->status)
		return m.x;
	pos = oom_param_tokens(t, "position_embeddings", n, c->c[0]);
	x = oom_name(&f, oom_op_add(t, oom_map_tokens(t, m), pos));     /* embedding_output */
	/* unroll: strides moved into the batch, one copy each */
	for (uint64_t i = 0; i + 1 < c->n; i++)
		x = oom_op_expand_copy(t, x, oom_tokens_of(t, n),
				       (struct oom_dim){c->c[0], "embed_dim"});
	return oom_leave(&f, hiera_encoder(t, a, n, oom_name(&f, x)));
}

static struct oom_val hiera_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val x, y;

	if (t->plan->num_layers)
		oom_tape_warn(t, "Hiera's depth is a list: the number of layers asked for is not "
			     "applied");
	x = oom_name(&f, hiera_model(t, a));
	y = oom_op_layer_norm(t, "pooler.layernorm", oom_op_mean(t, x, t->m_b, D(a->d_model)), 0,
			      true, true);
	return oom_leave(&f, oom_image_loss(t, a, y));
}

const struct oom_family oom_family_hiera = {
	.name = "hiera",
	.summary = "vision encoder over unrolled tokens, pooled in stages",
	.source = "transformers 5.12 models/hiera/modeling_hiera.py",
	.types = OOM_TYPE("hiera"),
	.lora_targets = "all-linear",
	.keys = hiera_keys,
	.parse = hiera_parse,
	.step = hiera_step,
};
