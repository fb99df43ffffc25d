/* Swin v2 and Donut's Swin: window attention written out, on shifted windows in every second layer;
 * v2 with scaled cosine scores, a bias out of a small network, and norms after the branches.
 * Stages are checkpointed, not layers. Reference: transformers 5.12,
 * models/swinv2/modeling_swinv2.py, models/donut/modeling_donut_swin.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8, BIAS_NET = 512 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], heads[MAX_STAGES], window, layers;
	double ratio, drop;
	bool v2, qkv_bias, absolute;
};

static void read_cfg(struct oom_reader *r, const char *type, uint64_t embed, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->v2 = !strcmp(type, "swinv2");
	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	if (oom_read_counts(r, "num_heads", c->heads, MAX_STAGES) < c->n)
		oom_read_fail(r, "num_heads must list one count for each of %llu stages",
			      (unsigned long long)c->n);
	c->window = oom_read_count_or(r, "window_size", 7);
	c->ratio = oom_read_real(r, "mlp_ratio", 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0.1);
	c->qkv_bias = oom_read_bool(r, "qkv_bias", true);
	c->absolute = oom_read_bool(r, "use_absolute_embeddings", false);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (!c->heads[i] || c->heads[i] > embed << i)
			oom_read_fail(r, "num_heads.%llu does not fit the stage's width",
				      (unsigned long long)i);
	}
	if (c->layers > OOM_MAX_LAYERS || !c->window || c->window > 256 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "depths, window_size or mlp_ratio out of range");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct cfg c;

	oom_read_image(a, 224);
	a->d_embed = oom_read_count_or(r, "embed_dim", 96);
	a->patch = oom_read_count_or(r, "patch_size", 4);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	if (!a->patch || a->patch > a->image_size || !a->d_embed || a->d_embed > 65536)
		oom_read_fail(r, "patch_size or embed_dim out of range");
	read_cfg(r, a->model_type, a->d_embed, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? a->d_embed << (c.n - 1) : 1;
}

/* One stage: channels, heads, feed-forward width, side of the map, of a window, of the map in
 * whole windows. */
struct stage {
	const struct oom_arch *a;
	uint64_t c, heads, ff, side, window, padded, depth, first, table;
	bool v2, bias, drop, last;
};

static uint16_t pairs(struct oom_tape *t, const struct stage *s)
{
	const uint16_t m = oom_length_of(t, s->window * s->window);

	return oom_mono_mul(t, m, m);
}

/* attn_mask of [windows, area, area] out of a map of region numbers: subtraction, two
 * comparisons, two fills. */
static struct oom_val shift_mask(struct oom_tape *t, const struct stage *s, enum oom_dtype dt)
{
	const uint64_t windows = s->padded / s->window * (s->padded / s->window);
	const uint16_t m = oom_mono_mul(t, oom_length_of(t, windows), pairs(t, s));
	struct oom_val d = oom_new(t, "sub", m, D(1), dt), c, f;

	c = oom_new(t, "ne", m, D(1), OOM_U8);
	f = oom_new(t, "masked_fill", m, D(1), dt);
	oom_drop(t, c);
	c = oom_new(t, "eq", m, D(1), OOM_U8);
	oom_drop(t, d);
	d = oom_new(t, "masked_fill", m, D(1), dt);
	oom_drop(t, c);
	oom_drop(t, f);
	return d;
}

/* Rows of a table looked up for every pair of places, then permuted. */
static struct oom_val looked_up(struct oom_tape *t, const struct stage *s, struct oom_val table)
{
	return oom_op_copy(t, "contiguous",
			   oom_op_gather(t, "relative_position_bias", table, oom_none(),
					 pairs(t, s), D(s->heads)));
}

/* v2: cosine of q and k times a learned scale, plus 16 sigmoid(network(log-spaced coordinates)). */
static struct oom_val cosine_attention(struct oom_tape *t, const struct stage *s,
				       const struct oom_attn *at, struct oom_val q,
				       struct oom_val k, struct oom_val v, struct oom_val mask)
{
	const uint16_t scores = oom_mono_mul(t, at->mq, at->sk);
	const uint64_t rows = (2 * s->window - 1) * (2 * s->window - 1);
	struct oom_val w, p, y, scale, bias, table, coords;

	w = oom_op_bmm(t, "scores", oom_normalize(t, oom_keep(q), s->heads),
		       oom_normalize(t, oom_keep(k), s->heads), scores,
		       (struct oom_dim){s->heads, "n_heads"}, at->d);
	scale = oom_op_unary(t, OOM_EXP,
			     oom_op_unary(t, OOM_CLAMP_SIDE,
					  oom_param(t, "logit_scale", 0, s->heads, 0)));
	w = oom_op_mul(t, w, oom_keep(scale));
	coords = (struct oom_val){
		.sto = -1, .node = -1, .mono = oom_length_of(t, rows), .width = 2, .dt = w.dt};
	table = oom_op_linear(t, "continuous_position_bias_mlp.0", coords, D(BIAS_NET), OOM_BIAS);
	table = oom_activation(t, OOM_ACT_RELU, table);
	table = oom_op_linear(t, "continuous_position_bias_mlp.2", table, D(s->heads), 0);
	bias = oom_op_unary(t, OOM_SCALE,
			    oom_op_unary(t, OOM_SIGMOID, looked_up(t, s, oom_keep(table))));
	w = oom_op_add(t, w, oom_keep(bias));
	for (int i = 0; i < 2 && !oom_is_none(mask); i++)       /* added twice, as the code does */
		w = oom_op_add(t, w, oom_keep(mask));
	p = oom_op_dropout(t, oom_op_softmax(t, oom_keep(w), false), at->dropout);
	y = oom_op_bmm(t, "attention", oom_keep(p), oom_keep(v), at->mq,
		       (struct oom_dim){s->c, "channels"}, oom_mono_now(t, at->sk));
	y = oom_op_merge_heads(t, y);
	oom_drop_all(t, (struct oom_val[]){q, k, v, w, p, scale, bias, table}, 8);
	return y;
}

/* x and mask stay the caller's. */
static struct oom_val attention(struct oom_tape *t, const struct stage *s, struct oom_val x,
				struct oom_val mask)
{
	const struct oom_arch *a = s->a;
	const uint64_t area = s->window * s->window;
	struct oom_attn at = oom_attn_over(t, a, s->heads, s->c, area, area);
	struct oom_val q, k, v;

	at.mq = at.mk = oom_mono_mul(t, oom_tokens_of(t, s->padded * s->padded / area),
				     oom_length_of(t, area));
	q = oom_project_heads(t, "query", oom_keep(x), s->c, s->bias, s->v2 ? 0 : s->heads);
	k = oom_project_heads(t, "key", oom_keep(x), s->c, s->bias && !s->v2, s->v2 ? 0 : s->heads);
	v = oom_project_heads(t, "value", oom_keep(x), s->c, s->bias, s->v2 ? 0 : s->heads);
	if (s->v2) {
		q = cosine_attention(t, s, &at, q, k, v, mask);
	} else {
		struct oom_val bias[2],
			table = oom_param(t, "relative_position_bias_table", s->table, s->heads, 0);

		bias[0] = looked_up(t, s, table);
		bias[1] = mask;
		q = oom_written_attention(t, &at, q, k, v, bias, NULL);
		oom_drop(t, bias[0]);
	}
	q = oom_op_linear(t, "dense", q, (struct oom_dim){s->c, "channels"}, OOM_BIAS);
	return oom_op_dropout(t, q, a->attn_dropout);
}

/* A permuted copy; no copy when there is a single window. */
static struct oom_val permuted(struct oom_tape *t, const struct stage *s, struct oom_val x,
			       uint16_t m)
{
	if (s->padded == s->window)
		return x.kept ? oom_share(t, x) : x;
	return oom_op_expand_copy(t, x, m, (struct oom_dim){s->c, "channels"});
}

static struct oom_val mlp(struct oom_tape *t, const struct stage *s, struct oom_val x)
{
	/* the norm's result has its name until intermediate() has returned */
	struct oom_val y = oom_op_linear(t, "dense", oom_keep(x),
					 (struct oom_dim){s->ff, "intermediate"}, OOM_BIAS);

	y = oom_activation(t, s->a->act, y);
	oom_done(t, x);
	y = oom_op_linear(t, "dense", y,
			  (struct oom_dim){x.width, x.text}, OOM_BIAS);
	return oom_op_dropout(t, y, s->a->dropout);
}

static struct oom_val block(struct oom_tape *t, const struct stage *s, uint64_t i, struct oom_val x)
{
	const uint16_t m = oom_tokens_of(t, s->side * s->side),
		       m_pad = oom_tokens_of(t, s->padded * s->padded);
	const struct oom_dim c = {s->c, "channels"};
	const bool shifted = i % 2 && s->side > s->window, path = s->first + i && s->drop;
	struct oom_val whole, rolled, windows, mask = oom_none(), out, reverse, back, y;

	whole = s->v2 ? oom_keep(x) :
			oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	/* F.pad copies even where there is nothing to pad */
	whole = oom_op_expand_copy(t, whole, m_pad, c);
	rolled = shifted ? oom_op_expand_copy(t, oom_keep(whole), m_pad, c) : oom_share(t, whole);
	windows = permuted(t, s, oom_keep(rolled), m_pad);
	if (shifted)
		mask = shift_mask(t, s, (enum oom_dtype)whole.dt);
	out = attention(t, s, windows, mask);
	reverse = permuted(t, s, oom_keep(out), m_pad);
	back = shifted ? oom_op_expand_copy(t, oom_keep(reverse), m_pad, c) : oom_share(t, reverse);
	if (s->padded > s->side)
		back = oom_op_expand_copy(t, back, m, c);
	y = s->v2 ? oom_op_layer_norm(t, "layernorm_before", oom_keep(back), 0, true, true) :
		    oom_share(t, back);
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, x, y);
	oom_drop(t, whole);                     /* hidden_states until now */
	y = s->v2 ? mlp(t, s, oom_keep(x)) :
		    mlp(t, s, oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true));
	if (s->v2) {
		struct oom_val output = y;      /* layer_output */

		y = oom_op_layer_norm(t, "layernorm_after", oom_keep(output), 0, true, true);
		if (path)
			y = oom_drop_path(t, y);
		x = oom_op_add(t, x, y);
		oom_drop(t, output);
	} else {
		x = oom_op_add(t, x, y);
	}
	oom_drop_all(t, (struct oom_val[]){rolled, windows, mask, out, reverse, back}, 6);
	return x;
}

/* Four neighbours joined and reduced to twice the channels; the norm before or (v2) after. */
static struct oom_val merge(struct oom_tape *t, const struct stage *s, struct oom_val x)
{
	const uint64_t half = (s->side + 1) / 2;

	if (s->side % 2)
		x = oom_op_expand_copy(t, x, oom_tokens_of(t, 4 * half * half),
				       (struct oom_dim){s->c, "channels"});
	x = oom_op_expand_copy(t, x, oom_tokens_of(t, half * half),
			       (struct oom_dim){4 * s->c, "4 * channels"});
	if (!s->v2)
		x = oom_op_layer_norm(t, "norm", x, 0, true, true);
	x = oom_op_linear(t, "reduction", x, (struct oom_dim){2 * s->c, "2 * channels"}, 0);
	return s->v2 ? oom_op_layer_norm(t, "norm", x, 0, true, true) : x;
}

/* Layers and merge; what came before the merge is returned too (t->side). */
static struct oom_val run_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	struct oom_val input = oom_share(t, x), before;

	(void)j;
	for (uint64_t i = 0; i < s->depth && !t->status; i++) {
		const struct oom_val arg = oom_share(t, x);

		x = block(t, s, i, x);
		oom_drop(t, arg);
	}
	before = oom_share(t, x);
	if (!s->last)
		x = merge(t, s, x);
	oom_drop(t, input);
	before.node = -1;
	t->side = before;
	return x;
}

static struct oom_val stages(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			     uint64_t side, struct oom_val x)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad;
	struct stage s = {.a = a,
			  .side = side,
			  .v2 = c->v2,
			  .bias = c->qkv_bias,
			  .drop = c->drop > 0,
			  .table = (2 * c->window - 1) * (2 * c->window - 1)};
	struct oom_val held = oom_none();

	for (uint64_t j = 0; j < c->n && !t->status; j++) {
		const void *ctx;
		uint64_t w;

		s.c = a->d_embed << j;
		s.heads = c->heads[j];
		s.ff = (uint64_t)(c->ratio * (double)s.c);
		s.window = w = s.side < c->window ? s.side : c->window;
		s.padded = (s.side + w - 1) / w * w;
		s.depth = c->depth[j];
		s.last = j + 1 == c->n;
		for (uint64_t i = 0; i < s.depth; i++) {
			if (c->v2)              /* relative_coords_table */
				oom_buffer(t, 2 * (2 * w - 1) * (2 * w - 1), (enum oom_dtype)x.dt);
			oom_buffer(t,
				   c->v2 ? w * w * w * w :
					   c->window * c->window * c->window * c->window,
				   OOM_I64);
		}
		ctx = oom_layer_ctx(t, &s, sizeof(s));
		if (!ctx)
			break;
		x = ckpt ? oom_layer_alone(t, (uint32_t)j, run_stage, ctx, x) :
			   run_stage(t, ctx, (uint32_t)j, x);
		oom_drop(t, held);
		held = t->side;
		t->side = oom_none();
		s.first += s.depth;
		s.side = s.last ? s.side : (s.side + 1) / 2;
	}
	oom_drop(t, held);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, first, encoded;
	struct cfg c;

	read_cfg(&rd, a->model_type, a->d_embed, &c);
	if (t->plan->num_layers)
		t->warning = "Swin's depth is a list: the number of layers asked for is not "
			     "applied";
	if (m.h % a->patch)
		m = oom_pad_map(t, m, m.h + a->patch - m.h % a->patch,
				m.w + a->patch - m.w % a->patch);
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = a->d_embed,
					  .kernel = a->patch,
					  .stride = a->patch,
					  .bias = true});
	if (t->status)
		return m.x;
	x = oom_op_layer_norm(t, "norm", oom_map_tokens(t, m), 0, true, true);
	/* one position more than there are patches: transformers cannot add them */
	if (c.absolute) {
		struct oom_val p = oom_param(t, "position_embeddings", m.h * m.w + 1, a->d_embed,
					     0);

		p.mono = oom_length_of(t, m.h * m.w);
		p.width = a->d_embed;
		t->warning = "use_absolute_embeddings: transformers builds one position too many "
			     "and cannot run such a model";
		x = oom_op_add(t, x, p);
	}
	x = oom_op_dropout(t, x, a->dropout);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	encoded = stages(t, a, &c, m.h, x);
	if (t->status)
		return encoded;
	if (!c.v2) {                            /* Donut's is an encoder without a last norm */
		oom_drop(t, first);
		return oom_image_head(t, a,
				      oom_op_mean(t, oom_keep(encoded), t->m_b, D(a->d_model)),
				      encoded);
	}
	x = oom_op_layer_norm(t, "layernorm", oom_keep(encoded), 0, true, true);
	{
		struct oom_val pooled = oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model));

		oom_drop(t, first);
		oom_drop(t, encoded);
		return oom_image_head(t, a, pooled, x);
	}
}

static const struct oom_family_type types[] = {
	{"swinv2", NULL}, {"donut-swin", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_swinv2 = {
	.name = "swinv2",
	.summary = "shifted-window vision encoder, attention written out",
	.source = "transformers 5.12 models/swinv2/modeling_swinv2.py",
	.types = types,
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
