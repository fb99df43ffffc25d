/* Swin v2 and Donut's Swin: window attention written out, on shifted windows in every second layer;
 * v2 with scaled cosine scores, a bias out of a small network, and norms after the branches.
 * Stages are checkpointed, not layers. Reference: transformers 5.12,
 * models/swinv2/modeling_swinv2.py, models/donut/modeling_donut_swin.py. */
#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8, BIAS_NET = 512 };

/* What sets the types apart. */
struct swinv2_kind {
	bool v2;        /* cosine scores, norms after the branches, a norm after the encoder */
};
static const struct swinv2_kind swinv2 = {.v2 = true};
static const struct swinv2_kind donut = {.v2 = false};
static const struct oom_family_type swinv2_types[] = {
	{"swinv2", &swinv2}, {"donut-swin", &donut}, {NULL, NULL},
};

struct swinv2 {
	uint64_t n, depth[MAX_STAGES], heads[MAX_STAGES], window;
	double ratio, drop;
	bool qkv_bias, absolute;
};
OOM_OWN(swinv2, struct swinv2);

static const struct oom_key_row swinv2_keys[] = {
	OR(d_embed, "embed_dim", 96), OR(patch, "patch_size", 4), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	OR_OWN(struct swinv2, window, "window_size", 7),
	REAL_OWN(struct swinv2, ratio, "mlp_ratio", 4),
	REAL_OWN(struct swinv2, drop, "drop_path_rate", 0.1),
	FLAG_OWN(struct swinv2, qkv_bias, "qkv_bias", true),
	FLAG_OWN(struct swinv2, absolute, "use_absolute_embeddings", false), OOM_KEYS_END};

static void swinv2_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct swinv2 *c = swinv2_own(a);

	oom_read_image(a, 224);
	if (!a->patch || a->patch > a->image_size || !a->d_embed || a->d_embed > 65536)
		oom_read_fail(r, "patch_size or embed_dim out of range");
	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	oom_read_stages(r, "num_heads", c->heads, MAX_STAGES, c->n);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		if (!c->heads[i] || c->heads[i] > a->d_embed << i)
			oom_read_fail(r, "num_heads.%llu does not fit the stage's width",
				      (unsigned long long)i);
	}
	a->d_model = c->n ? a->d_embed << (c->n - 1) : 1;
	if (a->n_layers > OOM_MAX_LAYERS || !c->window || c->window > 256 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "depths, window_size or mlp_ratio out of range");
	else if (c->n && a->patch <= 65536)
		a->image_step = a->patch * c->window << (c->n - 1);     /* whole windows in every stage */
}

/* One stage: channels, heads, side of the map, of a window, of the map in whole windows. */
struct swinv2_stage {
	const struct oom_arch *a;
	uint64_t c, heads, side, window, padded, depth, first;
	bool v2, last;
};

static uint16_t pairs(struct oom_tape *t, const struct swinv2_stage *s)
{
	const uint16_t m = oom_length_of(t, s->window * s->window);

	return oom_mono_mul(t, m, m);
}

static struct oom_val shift_mask(struct oom_tape *t, const struct swinv2_stage *s,
				 enum oom_dtype dt)
{
	const uint64_t windows = s->padded / s->window * (s->padded / s->window);

	return oom_shifted_mask(t, oom_mono_mul(t, oom_length_of(t, windows), pairs(t, s)), dt);
}

/* Rows of a table looked up for every pair of places, then permuted. */
static struct oom_val looked_up(struct oom_tape *t, const struct swinv2_stage *s,
				struct oom_val table)
{
	return oom_op_copy(t, "contiguous",
			   oom_op_gather(t, "relative_position_bias", table, oom_none(),
					 pairs(t, s), D(s->heads)));
}

/* 16 sigmoid(network(log-spaced coordinates)); table in frame f. */
static struct oom_val continuous_bias(struct oom_frame *f, const struct swinv2_stage *s,
				      enum oom_dtype dt)
{
	const uint64_t rows = (2 * s->window - 1) * (2 * s->window - 1);
	struct oom_tape *t = f->t;
	struct oom_val table = {.sto = -1, .node = -1, .width = 2, .dt = (uint8_t)dt};

	table.mono = oom_length_of(t, rows);
	table = oom_op_linear(t, "continuous_position_bias_mlp.0", table, D(BIAS_NET), OOM_BIAS);
	table = oom_activation(t, OOM_ACT_RELU, table);
	table = oom_op_linear(t, "continuous_position_bias_mlp.2", table, D(s->heads), 0);
	table = looked_up(t, s, oom_name(f, table));
	return oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_SIGMOID, table));
}

/* v2: cosine of q and k times a learned scale, plus a bias. */
static struct oom_val cosine_attention(struct oom_tape *t, const struct swinv2_stage *s,
				       const struct oom_attn *at, const struct oom_val part[3],
				       struct oom_val mask)
{
	const uint16_t scores = oom_mono_mul(t, at->mq, at->sk);
	const struct oom_dim heads = {s->heads, "n_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val w, p, scale, q[3] = {part[0], part[1], part[2]};

	oom_name_each(&f, q, 3);
	p = oom_normalize(t, q[1], s->heads);
	w = oom_op_bmm(t, "scores", oom_normalize(t, q[0], s->heads), p, scores, heads, at->d);
	scale = oom_op_unary(t, OOM_CLAMP_SIDE, oom_param(t, "logit_scale", 0, s->heads, 0));
	scale = oom_name(&f, oom_op_unary(t, OOM_EXP, scale));
	w = oom_op_mul(t, w, scale);
	w = oom_op_add(t, w, oom_name(&f, continuous_bias(&f, s, (enum oom_dtype)w.dt)));
	for (int i = 0; i < 2 && !oom_is_none(mask); i++)       /* added twice, as the code does */
		w = oom_op_add(t, w, mask);
	w = oom_name(&f, w);
	p = oom_name(&f, oom_op_dropout(t, oom_op_softmax(t, w, false), at->dropout));
	p = oom_op_bmm(t, "attention", p, q[2], at->mq, (struct oom_dim){s->c, "channels"},
		       oom_mono_now(t, at->sk));
	return oom_leave(&f, oom_op_merge_heads(t, p));
}

/* The table's bias and the mask, on scores as they are. */
static struct oom_val biased_attention(struct oom_tape *t, const struct swinv2_stage *s,
				       const struct oom_attn *at, const struct oom_val part[3],
				       struct oom_val mask)
{
	const uint64_t w = swinv2_of(s->a)->window, rows = (2 * w - 1) * (2 * w - 1);
	struct oom_val bias[2] = {oom_none(), mask};
	struct oom_frame f = {.t = t};

	bias[0] = oom_param(t, "relative_position_bias_table", rows, s->heads, 0);
	bias[0] = oom_name(&f, looked_up(t, s, bias[0]));
	return oom_leave(&f, oom_attention_in(&f, at, part[0], part[1], part[2], bias));
}

/* x and mask are the caller's. */
static struct oom_val swinv2_attention(struct oom_tape *t, const struct swinv2_stage *s,
				       struct oom_val x, struct oom_val mask)
{
	const struct oom_arch *a = s->a;
	const uint64_t area = s->window * s->window, heads = s->v2 ? 0 : s->heads;
	const bool bias = swinv2_of(a)->qkv_bias;
	struct oom_attn at = oom_attn_over(t, a, s->heads, s->c, area, area);
	struct oom_val part[3], y;

	at.mq = at.mk = oom_mono_mul(t, oom_tokens_of(t, s->padded * s->padded / area),
				     oom_length_of(t, area));
	part[0] = oom_project_heads(t, "query", x, s->c, bias, heads);
	part[1] = oom_project_heads(t, "key", x, s->c, bias && !s->v2, heads);
	part[2] = oom_project_heads(t, "value", x, s->c, bias, heads);
	y = s->v2 ? cosine_attention(t, s, &at, part, mask) :
		    biased_attention(t, s, &at, part, mask);
	y = oom_op_linear(t, "dense", y, (struct oom_dim){s->c, "channels"}, OOM_BIAS);
	return oom_op_dropout(t, y, a->attn_dropout);
}

/* A permuted copy; no copy when there is a single window. */
static struct oom_val permuted(struct oom_tape *t, const struct swinv2_stage *s, struct oom_val x,
			       uint16_t m)
{
	if (s->padded == s->window)
		return x;
	return oom_op_expand_copy(t, x, m, (struct oom_dim){s->c, "channels"});
}

static struct oom_val swinv2_mlp(struct oom_tape *t, const struct swinv2_stage *s, struct oom_val x)
{
	const uint64_t ff = (uint64_t)(swinv2_of(s->a)->ratio * (double)s->c);
	const struct oom_dim c = {x.width, x.text};
	struct oom_frame f = {.t = t};          /* of intermediate() */
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_op_linear(t, "dense", x, (struct oom_dim){ff, "intermediate"}, OOM_BIAS);
	y = oom_leave(&f, oom_activation(t, s->a->act, y));
	y = oom_op_linear(t, "dense", y, c, OOM_BIAS);
	return oom_op_dropout(t, y, s->a->dropout);
}

/* The attention branch's way through the windows, all of whose steps have names in frame f, the
 * block's; *whole is one that is given up early. */
static struct oom_val through_windows(struct oom_frame *f, const struct swinv2_stage *s,
				      struct oom_val x, bool shifted, struct oom_val *whole)
{
	struct oom_tape *t = f->t;
	const uint16_t m = oom_tokens_of(t, s->side * s->side),
		       m_pad = oom_tokens_of(t, s->padded * s->padded);
	const struct oom_dim c = {s->c, "channels"};
	struct oom_val mask = oom_none();

	/* F.pad copies even where there is nothing to pad */
	x = *whole = oom_name(f, oom_op_expand_copy(t, x, m_pad, c));
	x = oom_name(f, shifted ? oom_op_expand_copy(t, x, m_pad, c) : x);
	x = oom_name(f, permuted(t, s, x, m_pad));
	if (shifted)
		mask = oom_name(f, shift_mask(t, s, (enum oom_dtype)whole->dt));
	x = oom_name(f, swinv2_attention(t, s, x, mask));
	x = oom_name(f, permuted(t, s, x, m_pad));
	x = shifted ? oom_op_expand_copy(t, x, m_pad, c) : x;
	if (s->padded > s->side)
		x = oom_op_expand_copy(t, x, m, c);
	return oom_name(f, x);
}

/* x is the caller's. */
static struct oom_val swinv2_block(struct oom_tape *t, const struct swinv2_stage *s, uint64_t i,
				   struct oom_val x)
{
	const bool shifted = i % 2 && s->side > s->window,
		   path = s->first + i && swinv2_of(s->a)->drop > 0;
	struct oom_frame f = {.t = t};
	struct oom_val whole, y = x;

	if (!s->v2)
		y = oom_op_layer_norm(t, "layernorm_before", x, 0, true, true);
	y = through_windows(&f, s, y, shifted, &whole);
	if (s->v2)
		y = oom_op_layer_norm(t, "layernorm_before", y, 0, true, true);
	x = oom_name(&f, oom_op_add(t, x, path ? oom_drop_path(t, y) : y));
	oom_forget(&f, whole);                  /* hidden_states until now */
	if (!s->v2) {
		y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
		return oom_leave(&f, oom_op_add(t, x, swinv2_mlp(t, s, y)));
	}
	y = oom_name(&f, swinv2_mlp(t, s, x));  /* layer_output */
	y = oom_op_layer_norm(t, "layernorm_after", y, 0, true, true);
	return oom_leave(&f, oom_op_add(t, x, path ? oom_drop_path(t, y) : y));
}

/* Four neighbours joined and reduced to twice the channels; the norm before or (v2) after. */
static struct oom_val merge(struct oom_tape *t, const struct swinv2_stage *s, struct oom_val x)
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

/* Layers and merge; what came before the merge is returned too. */
static struct oom_val swinv2_stage(struct oom_tape *t, const void *ctx, uint32_t j,
				   struct oom_val x)
{
	const struct swinv2_stage *s = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val before;

	(void)j;
	for (uint64_t i = 0; i < s->depth && !t->status; i++)
		x = oom_rename(&f, x, swinv2_block(t, s, i, x));
	before = x;
	before.node = -1;
	if (!s->last)
		x = oom_name(&f, merge(t, s, x));
	oom_give_beside(&f, before);
	return oom_leave(&f, x);
}

/* relative_coords_table (v2) and relative_position_index of every layer. */
static void position_buffers(struct oom_tape *t, const struct swinv2_stage *s, enum oom_dtype dt)
{
	const uint64_t w = s->v2 ? s->window : swinv2_of(s->a)->window;

	for (uint64_t i = 0; i < s->depth; i++) {
		if (s->v2)
			oom_buffer(t, 2 * (2 * w - 1) * (2 * w - 1), dt);
		oom_buffer(t, w * w * w * w, OOM_I64);
	}
}

/* What a stage had before its merge lives until the next stage has returned. */
static struct oom_val swinv2_encoder(struct oom_tape *t, const struct oom_arch *a, uint64_t side,
				     struct oom_val x)
{
	const struct swinv2 *c = swinv2_of(a);
	struct swinv2_stage s = {
		.a = a, .side = side, .v2 = ((const struct swinv2_kind *)a->type->kind)->v2};
	struct oom_frame f = {.t = t};
	struct oom_val before = oom_none();

	for (uint64_t j = 0; j < c->n && !t->status; j++) {
		s.c = a->d_embed << j;
		s.heads = c->heads[j];
		s.window = s.side < c->window ? s.side : c->window;
		s.padded = (s.side + s.window - 1) / s.window * s.window;
		s.depth = c->depth[j];
		s.last = j + 1 == c->n;
		position_buffers(t, &s, (enum oom_dtype)x.dt);
		x = oom_rename(&f, x, oom_run_stage(t, j, swinv2_stage, &s, sizeof(s), x));
		before = oom_rename(&f, before, oom_take_beside(t));
		s.first += s.depth;
		s.side = (s.side + 1) / 2;
	}
	return oom_leave(&f, x);
}

static struct oom_val swinv2_embeddings(struct oom_tape *t, const struct oom_arch *a,
					uint64_t *side)
{
	const struct oom_conv conv = {
		.out = a->d_embed, .kernel = a->patch, .stride = a->patch, .bias = true};
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, p;

	if (m.h % a->patch)
		m = oom_pad_map(t, m, m.h + a->patch - m.h % a->patch,
				m.w + a->patch - m.w % a->patch);
	m = oom_conv2d(t, "projection", m, &conv);
	*side = m.h;
	if (t->status)
		return m.x;
	x = oom_op_layer_norm(t, "norm", oom_map_tokens(t, m), 0, true, true);
	/* one position more than there are patches: transformers cannot add them */
	if (swinv2_of(a)->absolute) {
		p = oom_param(t, "position_embeddings", m.h * m.w + 1, a->d_embed, 0);
		p.mono = oom_length_of(t, m.h * m.w);
		p.width = a->d_embed;
		oom_tape_warn(t, "use_absolute_embeddings: transformers builds one position too many "
			     "and cannot run such a model");
		x = oom_op_add(t, x, p);
	}
	return oom_op_dropout(t, x, a->dropout);
}

/* The base model; in *pooled what it makes of its result, where it does so before it returns. */
static struct oom_val swinv2_model(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *pooled)
{
	struct oom_frame f = {.t = t};
	uint64_t side;
	struct oom_val x = oom_name(&f, swinv2_embeddings(t, a, &side));

	if (!t->status)
		x = swinv2_encoder(t, a, side, x);
	if (!((const struct swinv2_kind *)a->type->kind)->v2)
		return oom_leave(&f, x);
	x = oom_op_layer_norm(t, "layernorm", oom_name(&f, x), 0, true, true);
	x = oom_name(&f, x);
	*pooled = oom_op_mean(t, x, t->m_b, D(a->d_model));
	return oom_leave(&f, x);
}

static struct oom_val swinv2_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val x, pooled = oom_none();

	if (t->plan->num_layers)
		oom_tape_warn(t, "Swin's depth is a list: the number of layers asked for is not "
			     "applied");
	x = oom_name(&f, swinv2_model(t, a, &pooled));
	if (oom_is_none(pooled))                /* Donut's is an encoder alone */
		pooled = oom_op_mean(t, x, t->m_b, D(a->d_model));
	return oom_leave(&f, oom_image_loss(t, a, pooled));
}

const struct oom_family oom_family_swinv2 = {
	.name = "swinv2",
	.summary = "shifted-window vision encoder, attention written out",
	.source = "transformers 5.12 models/swinv2/modeling_swinv2.py",
	.types = swinv2_types,
	.lora_targets = "query+value",
	.keys = swinv2_keys,
	.parse = swinv2_parse,
	.step = swinv2_step,
};
