/* LeViT: a convolution stem, attention with batch norms and a learned bias a distance, subsampled
 * between stages. Reference: transformers 5.12, models/levit/modeling_levit.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8, MAX_CACHED = 64 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], heads[MAX_STAGES], key[MAX_STAGES],
		attn_ratio[MAX_STAGES], layers;
	double mlp_ratio[MAX_STAGES], drop;
	uint64_t kernel, stride, pad;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	oom_read_stages(r, "depths", c->depth, MAX_STAGES, c->n);
	oom_read_stages(r, "num_attention_heads", c->heads, MAX_STAGES, c->n);
	oom_read_stages(r, "key_dim", c->key, MAX_STAGES, c->n);
	oom_read_stages(r, "attention_ratio", c->attn_ratio, MAX_STAGES, c->n);
	oom_read_reals(r, "mlp_ratio", c->mlp_ratio, c->n, 2);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	c->kernel = oom_read_count_or(r, "kernel_size", 3);
	c->stride = oom_read_count_or(r, "stride", 2);
	c->pad = oom_read_count_or(r, "padding", 1);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->c[i] > 65536 || c->c[i] < 8 || c->heads[i] > 65536 || c->key[i] > 65536 ||
		    c->attn_ratio[i] > 1024 || !(c->mlp_ratio[i] >= 0 && c->mlp_ratio[i] <= 1024))
			oom_read_fail(r, "hidden_sizes, num_attention_heads, key_dim, "
					 "attention_ratio or mlp_ratio out of range");
	}
	if (c->n > 3 || c->layers > OOM_MAX_LAYERS || !c->kernel || c->kernel > 1024 ||
	    !c->stride || c->pad > 1024)
		oom_read_fail(r, "up to three stages (transformers subsamples twice), or "
				 "kernel_size, stride, padding out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->patch = oom_read_count_or(&a->rd, "patch_size", 16);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
	if (!a->patch || a->patch > a->image_size)
		oom_read_fail(&a->rd, "patch_size does not fit image_size");
}

/* nn.Linear without a bias, batch norm over its channels. */
static struct oom_val linear_bn(struct oom_tape *t, struct oom_val x, uint64_t out)
{
	struct oom_val arg = oom_share(t, x);
	struct oom_map m = {.c = out, .h = 1, .w = 1};

	oom_done(t, x);
	m.x = oom_op_linear(t, "linear", oom_keep(arg), (struct oom_dim){out, "channels"}, 0);
	m = oom_batch_norm(t, "batch_norm", m);
	oom_drop(t, arg);
	return m.x;
}

struct attn {
	uint64_t heads, key, ratio, in_side, out_side, out;
	bool subsample;
};

/* An evaluation keeps the gathered biases of every layer until the model trains again. */
struct cache {
	struct oom_val x[MAX_CACHED];
	int n;
};

static struct oom_val biases(struct oom_tape *t, const struct attn *a, struct cache *cache)
{
	const uint64_t n = a->in_side * a->in_side, q = a->out_side * a->out_side;
	struct oom_val b = oom_param(t, "attention_biases", a->heads, n, 0);

	oom_buffer(t, n * q, OOM_I64);          /* attention_bias_idxs */
	b = oom_op_gather(t, "attention_biases", b, oom_none(),
			  oom_mono_mul(t, oom_length_of(t, q), oom_length_of(t, n)), D(a->heads));
	if (!t->train && cache->n == MAX_CACHED)
		oom_tape_fail(t, OOM_ERR_LIMIT, "depths: more than %d layers", MAX_CACHED);
	else if (!t->train)
		cache->x[cache->n++] = oom_share(t, b);
	return b;
}

static struct oom_val attention(struct oom_tape *t, const struct attn *a, struct oom_val x,
				struct cache *cache)
{
	const uint64_t n = a->in_side * a->in_side, nq = a->out_side * a->out_side,
		       kd = a->heads * a->key, vd = a->ratio * kd;
	const uint16_t mq = oom_tokens_of(t, nq), scores = oom_mono_mul(t, mq, oom_length_of(t, n));
	const struct oom_dim key = {kd, "heads * key_dim"},
			     value = {vd, "heads * attention_ratio * key_dim"};
	struct oom_val q, k, v, w, y, all, part[3];

	all = linear_bn(t, oom_keep(x), a->subsample ? kd + vd : 2 * kd + vd);
	if (a->subsample) {
		oom_op_split(t, oom_keep(all), 2, (struct oom_dim[]){key, value}, part + 1);
		q = oom_op_expand_copy(t, oom_keep(x), mq, (struct oom_dim){x.width, x.text});
		part[0] = linear_bn(t, q, kd);
	} else {
		oom_op_split(t, oom_keep(all), 3, (struct oom_dim[]){key, key, value}, part);
	}
	q = part[0];
	k = part[1];
	v = part[2];
	q.perm = k.perm = v.perm = true;
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), scores,
		       (struct oom_dim){a->heads, "n_heads"}, a->key);
	w = oom_op_add(t, oom_op_unary(t, OOM_SCALE, w), biases(t, a, cache));
	w = oom_op_softmax(t, w, false);
	y = oom_op_bmm(t, "attention", oom_keep(w), oom_keep(v), mq, value, n);
	y = oom_op_merge_heads(t, y);
	y = linear_bn(t, oom_op_unary(t, OOM_HARDSWISH, y), a->out);
	oom_drop_all(t, (struct oom_val[]){all, q, k, v, w}, 5);
	oom_done(t, x);
	return y;
}

static struct oom_val mlp(struct oom_tape *t, struct oom_val x, uint64_t hidden)
{
	struct oom_val y = linear_bn(t, oom_keep(x), hidden);

	y = linear_bn(t, oom_op_unary(t, OOM_HARDSWISH, y), x.width);
	oom_done(t, x);
	return y;
}

/* x + f(x) [* kept or not, one number a sample] */
static struct oom_val residual(struct oom_tape *t, const struct cfg *c, struct oom_val x,
			       struct oom_val y)
{
	if (t->train && c->drop > 0)
		y = oom_op_mul(t, y, oom_new(t, "drop path", t->m_b, D(1), OOM_F32));
	return oom_op_add(t, x, y);
}

static struct oom_val stage(struct oom_tape *t, const struct cfg *c, uint64_t i, uint64_t *side,
			    struct oom_val x, struct cache *cache)
{
	const struct attn at = {.heads = c->heads[i],
				.key = c->key[i],
				.ratio = c->attn_ratio[i],
				.in_side = *side,
				.out_side = *side,
				.out = c->c[i]};

	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++) {
		x = residual(t, c, x, attention(t, &at, oom_keep(x), cache));
		if (c->mlp_ratio[i] > 0)
			x = residual(t, c, x,
				     mlp(t, oom_keep(x),
					 (uint64_t)(c->mlp_ratio[i] * (double)c->c[i])));
	}
	if (i < 2 && i + 1 < c->n && !t->status) {      /* LevitConfig.down_ops */
		const uint64_t out = (*side - 1) / 2 + 1;
		const struct attn down = {.heads = c->c[i] / c->key[0],
					  .key = c->key[0],
					  .ratio = 4,
					  .in_side = *side,
					  .out_side = out,
					  .out = c->c[i + 1],
					  .subsample = true};

		if (!down.heads) {
			oom_tape_fail(t, OOM_ERR_INVALID, "key_dim is larger than hidden_sizes");
			return x;
		}
		x = attention(t, &down, x, cache);
		*side = out;
		x = residual(t, c, x, mlp(t, oom_keep(x), 2 * c->c[i + 1]));
	}
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, held;
	struct cache cache = {.n = 0};
	struct cfg c;
	uint64_t side;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	for (uint64_t i = 0; i < 4; i++) {
		m = oom_batch_norm(t, "batch_norm",
				   oom_conv2d(t, "convolution", m,
					      &(struct oom_conv){.out = c.c[0] >> (3 - i),
								 .kernel = c.kernel,
								 .stride = c.stride,
								 .pad = c.pad}));
		if (i < 3)
			m = oom_map_act(t, OOM_ACT_HARDSWISH, m);
	}
	if (t->status)
		return m.x;
	side = m.h;
	x = oom_map_tokens(t, m);
	held = oom_share(t, x);                 /* embeddings, a local of the model */
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		struct oom_val input = oom_share(t, x);

		x = stage(t, &c, i, &side, x, &cache);
		oom_drop(t, input);
	}
	oom_drop(t, held);
	if (t->status)
		return x;
	/* the model's pooled output is not looked at; the classifier pools again */
	held = oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model));
	m = (struct oom_map){oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model)), a->d_model, 1, 1};
	m = oom_batch_norm(t, "batch_norm", m);
	m.x = oom_image_head(t, a, m.x, x);
	oom_drop(t, held);
	oom_drop_all(t, cache.x, cache.n);
	return m.x;
}

const struct oom_family oom_family_levit = {
	.name = "levit",
	.summary = "attention with batch norms after a convolution stem",
	.source = "transformers 5.12 models/levit/modeling_levit.py",
	.types = OOM_TYPE("levit"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
