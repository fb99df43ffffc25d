/* Swin: stages of window attention with a learned relative position bias, every second layer on
 * shifted windows, patches merged two by two between the stages.  All lengths are fixed by the
 * image (oom_len_const). Reference: transformers 5.12, models/swin/modeling_swin.py. */
#include <math.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

struct swin {
	uint64_t window, n_stages, depths[MAX_STAGES], heads[MAX_STAGES];
	double mlp_ratio, drop_path;
	bool absolute, qkv_bias;
};
OOM_OWN(swin, struct swin);

static const struct oom_key_row swin_keys[] = {
	OR(d_embed, "embed_dim", 96), OR(image_size, "image_size", 224), OR(patch, "patch_size", 4),
	OR(channels, "num_channels", 3), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	OR_OWN(struct swin, window, "window_size", 7),
	FLAG_OWN(struct swin, absolute, "use_absolute_embeddings", false),
	FLAG_OWN(struct swin, qkv_bias, "qkv_bias", true),
	REAL_OWN(struct swin, mlp_ratio, "mlp_ratio", 4),
	REAL_OWN(struct swin, drop_path, "drop_path_rate", 0.1), OOM_KEYS_END};

static uint64_t item(struct oom_arch *a, const char *key, uint32_t i)
{
	const double x = oom_read_item_real(&a->rd, key, i, 0);

	return x >= 1 && x <= 65536 && x == floor(x) ? (uint64_t)x : 0;
}

static void read_stages(struct oom_arch *a)
{
	struct swin *s = swin_own(a);

	while (s->n_stages < MAX_STAGES && item(a, "depths", (uint32_t)s->n_stages))
		s->n_stages++;
	if (!s->n_stages || item(a, "depths", (uint32_t)s->n_stages)) {
		oom_read_fail(&a->rd, "depths must list 1 to %d positive counts", MAX_STAGES);
		return;
	}
	for (uint64_t i = 0; i < s->n_stages; i++) {
		s->depths[i] = item(a, "depths", (uint32_t)i);
		s->heads[i] = item(a, "num_heads", (uint32_t)i);
		a->n_layers += s->depths[i];
		if (!s->heads[i])
			oom_read_fail(&a->rd,
				      "num_heads must list one count for each of %llu stages",
				      (unsigned long long)s->n_stages);
		else if (s->heads[i] > a->d_embed << i)
			oom_read_fail(&a->rd,
				      "num_heads lists %llu heads for stage %llu, whose width is "
				      "%llu (embed_dim %llu, doubled in every stage)",
				      (unsigned long long)s->heads[i], (unsigned long long)i,
				      (unsigned long long)a->d_embed << i,
				      (unsigned long long)a->d_embed);
	}
	if (a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(&a->rd, "depths add up to more than %d layers", OOM_MAX_LAYERS);
	a->d_model = a->d_embed << (s->n_stages - 1);
}

static void swin_parse(struct oom_arch *a)
{
	const struct swin *s = swin_of(a);
	struct oom_reader *r = &a->rd;

	if (!a->patch || a->image_size > 65536 || a->patch > a->image_size)
		oom_read_fail(r, "patch_size %llu does not fit image_size %llu",
			      (unsigned long long)a->patch, (unsigned long long)a->image_size);
	else if (!(s->mlp_ratio >= 1e-6 && s->mlp_ratio <= 1024))
		oom_read_fail(r, "mlp_ratio is %g; expected 1e-6 to 1024", s->mlp_ratio);
	else if (!s->window || s->window > 256)
		oom_read_fail(r, "window_size must lie in 1..256");
	else if (!a->d_embed || a->d_embed > 65536 || !a->channels || a->channels > 65536)
		oom_read_fail(r, "embed_dim and num_channels must lie in 1..65536");
	else
		read_stages(a);
	/* the last stage's map, halved between the stages, is whole windows: none is padded */
	if (s->n_stages && s->window <= 256 && a->patch <= 65536)
		a->image_step = a->patch * s->window << (s->n_stages - 1);
}

/* One stage's layers: channels, heads, side of its map of patches, the side rounded up to whole
 * windows. */
struct stage {
	const struct oom_arch *a;
	uint64_t c, heads, ff, side, padded;
	uint32_t first;                 /* layers before this stage */
	uint32_t depth;
	bool drop, last;                /* drop_path_rate > 0; no merge after it */
};

/* hidden.div(keep) * floor(rand + keep) of one number per sample */
static struct oom_val drop_path(struct oom_tape *t, struct oom_val x, uint16_t m_rows)
{
	if (!t->train)
		return x;
	x = oom_op_unary(t, OOM_SCALE, x);
	return oom_op_mul(t, x, oom_new(t, "drop path", m_rows, D(1), (enum oom_dtype)x.dt));
}

/* The learned bias of every pair of places in a window, gathered anew in every layer. */
static struct oom_val position_bias(struct oom_tape *t, const struct stage *s, uint16_t m_window)
{
	const uint64_t w = swin_of(s->a)->window, rows = (2 * w - 1) * (2 * w - 1);
	const uint16_t m_pairs = oom_mono_mul(t, m_window, m_window);
	struct oom_val table = oom_param(t, "relative_position_bias_table", rows, s->heads, 0);
	struct oom_val bias;

	bias = oom_op_gather(t, "relative_position_bias", table, oom_none(), m_pairs, D(s->heads));
	return oom_op_copy(t, "contiguous", bias);      /* permute(2, 0, 1).contiguous() */
}

/* The map of region numbers, and the mask of it. */
static struct oom_val shift_mask(struct oom_tape *t, uint64_t map, uint64_t window, enum oom_dtype dt)
{
	const uint16_t m_map = oom_len_const(t, OOM_MONO_ONE, map),
		       m = oom_mono_mul(t, m_map, oom_len_const(t, OOM_MONO_ONE, window * window));
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new(t, "img_mask", m_map, D(1), dt));
	oom_name(&f, oom_new(t, "mask_windows", m_map, D(1), dt));
	return oom_leave(&f, oom_shifted_mask(t, m, dt));
}

/* The weights (eager) go to *weights. */
static struct oom_val window_attention(struct oom_tape *t, const struct stage *s,
				       struct oom_val mask, struct oom_val x,
				       struct oom_val *weights)
{
	const struct oom_arch *a = s->a;
	const uint64_t area = swin_of(a)->window * swin_of(a)->window,
		       windows = s->padded * s->padded / area;
	const uint16_t m_window = oom_len_const(t, OOM_MONO_ONE, area);
	const uint16_t m_windows = oom_len_const(t, OOM_MONO_ONE, windows);
	const uint16_t m_pairs = oom_mono_mul(t, m_window, m_window);
	const uint16_t m_masks = oom_mono_mul(t, t->m_b, oom_mono_mul(t, m_windows, m_pairs));
	const unsigned flags = swin_of(a)->qkv_bias ? OOM_BIAS : 0;
	const struct oom_dim c = {s->c, "channels"};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.causal = false;
	at.heads = at.kv_heads = s->heads;
	at.d = at.dv = s->c / s->heads;
	at.mq = at.mk = oom_mono_mul(t, oom_mono_mul(t, t->m_b, m_windows), m_window);
	at.sk = m_window;
	at.weights = weights;
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "q_proj", x, c, flags)));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "k_proj", x, c, flags)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v_proj", x, c, flags)));
	at.mask = oom_name(&f, position_bias(t, s, m_window));
	if (!oom_is_none(mask)) {
		/* expanded over the batch: a copy for more than one image */
		if (oom_cond_above(t, t->m_b, 1))
			mask = oom_name(&f, oom_new(t, "expanded mask", m_masks, D(1),
						    (enum oom_dtype)mask.dt));
		at.mask = oom_name(&f, oom_op_add_into(t, at.mask, mask, m_masks, D(s->heads)));
	}
	q = oom_attention_core(t, &at, q, k, v);
	return oom_leave(&f, oom_op_linear(t, "o_proj", q, c, OOM_BIAS));
}

/* One layer with what its Python locals hold: the windows, the attention's output before and after
 * its way back into the map, the mask. */
static struct oom_val swin_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stage *s = ctx;
	const struct oom_arch *a = s->a;
	const uint64_t window = swin_of(a)->window, map = s->padded * s->padded;
	const uint16_t m = oom_len_const(t, t->m_b, s->side * s->side),
		       m_pad = oom_len_const(t, t->m_b, map);
	const struct oom_dim c = {s->c, "channels"};
	const bool shifted = i % 2 && s->side > window, path = s->first + i && s->drop;
	struct oom_frame f = {.t = t};
	struct oom_val windows, mask = oom_none(), whole, out, back, weights = oom_none(), y;

	y = oom_op_layer_norm(t, "layernorm_before", x, 0, true, true);
	/* F.pad copies even where there is nothing to pad */
	whole = oom_name(&f, oom_op_expand_copy(t, y, m_pad, c));
	y = shifted ? oom_op_expand_copy(t, whole, m_pad, c) : whole;   /* torch.roll */
	/* window_partition */
	windows = oom_name(&f, oom_op_expand_copy(t, y, m_pad, c));
	if (shifted)
		mask = oom_name(&f, shift_mask(t, map, window, (enum oom_dtype)whole.dt));
	out = window_attention(t, s, mask, windows, &weights);
	out = oom_name(&f, oom_op_dropout(t, out, a->dropout));
	back = oom_op_expand_copy(t, out, m_pad, c);            /* window_reverse */
	if (shifted)
		back = oom_op_expand_copy(t, back, m_pad, c);
	if (s->padded > s->side)
		back = oom_op_expand_copy(t, back, m, c);
	back = oom_name(&f, back);
	x = oom_name(&f, oom_op_add(t, x, path ? drop_path(t, back, t->m_b) : back));
	oom_forget(&f, whole);
	y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(s->ff), true);
	oom_give_beside(&f, weights);
	return oom_leave(&f, oom_op_add(t, oom_op_dropout(t, y, a->dropout), x));
}

/* Four neighbours joined, normed and reduced to twice the channels. */
static struct oom_val merge(struct oom_tape *t, const struct stage *s, struct oom_val x)
{
	const uint64_t half = (s->side + 1) / 2;
	const uint16_t m = oom_len_const(t, t->m_b, half * half);

	if (s->side % 2)
		x = oom_op_expand_copy(t, x, oom_len_const(t, t->m_b, 4 * half * half), D(s->c));
	x = oom_op_expand_copy(t, x, m, D(4 * s->c));
	x = oom_op_layer_norm(t, "norm", x, 0, true, true);
	return oom_op_linear(t, "reduction", x, D(2 * s->c), 0);
}

/* One stage: its layers, the merge, and a copy of the result as an image, which nobody reads: the
 * stage's second result.  Python holds the stage's input until it returns, the last attention weights
 * until the next layer's. */
static struct oom_val swin_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	const uint64_t half = s->last ? s->side : (s->side + 1) / 2;
	struct oom_frame f = {.t = t};
	struct oom_val weights = oom_none(), copy;

	(void)j;
	x = oom_arg(&f, x);
	for (uint32_t i = 0; i < s->depth; i++) {
		x = oom_layer_alone(t, i, swin_block, ctx, x);
		weights = oom_rename(&f, weights, oom_take_beside(t));
	}
	x = oom_name(&f, x);
	if (!s->last)
		x = oom_name(&f, merge(t, s, x));
	copy = oom_op_expand_copy(t, x, oom_len_const(t, t->m_b, half * half),
				  D(s->c * (s->last ? 1 : 2)));
	copy.node = -1;
	oom_give_beside(&f, copy);
	return oom_leave(&f, x);
}

/* The copy of a stage's result lives until the next stage's is there. */
static struct oom_val swin_stages(struct oom_tape *t, const struct oom_arch *a, uint64_t side,
				  struct oom_val x)
{
	const struct swin *w = swin_of(a);
	struct stage s = {.a = a, .side = side, .drop = w->drop_path > 0};
	struct oom_frame f = {.t = t};
	struct oom_val copy = oom_none();

	for (uint64_t j = 0; j < w->n_stages; j++) {
		s.c = a->d_embed << j;
		s.heads = w->heads[j];
		s.ff = (uint64_t)(w->mlp_ratio * (double)s.c);
		s.padded = (s.side + w->window - 1) / w->window * w->window;
		s.depth = (uint32_t)w->depths[j];
		s.last = j + 1 == w->n_stages;
		for (uint32_t i = 0; i < s.depth; i++)  /* relative_position_index */
			oom_buffer(t, w->window * w->window * w->window * w->window, OOM_I64);
		x = oom_run_stage(t, j, swin_stage, &s, sizeof(s), x);
		copy = oom_rename(&f, copy, oom_take_beside(t));
		s.first += s.depth;
		s.side = (s.side + !s.last) / (s.last ? 1 : 2);
	}
	return oom_leave(&f, x);
}

static struct oom_val swin_embeddings(struct oom_tape *t, const struct oom_arch *a, uint64_t pixels,
				      uint64_t side)
{
	const struct oom_dim c = {a->d_embed, "embed_dim"};
	const uint16_t m = oom_len_const(t, t->m_b, side * side);
	struct oom_val x, pos;

	x = oom_pixel_values(t, t->m_b, a->channels * pixels * pixels);
	t->scope = "embeddings";
	x = oom_op_conv(t, "projection", x, a->d_embed, a->channels * a->patch * a->patch, true, m,
			c);
	x = oom_op_layer_norm(t, "norm", x, 0, true, true);
	if (swin_of(a)->absolute) {
		pos = oom_param(t, "position_embeddings", 0, side * side * a->d_embed, 0);
		pos.mono = oom_len_const(t, OOM_MONO_ONE, side * side);
		pos.width = a->d_embed;
		x = oom_op_add(t, x, pos);
	}
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val swin_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct swin *w = swin_of(a);
	const uint64_t pixels = t->plan->image_size ? (uint64_t)t->plan->image_size : a->image_size;
	const uint64_t side = (pixels + a->patch - 1) / a->patch;
	/* of the classifier, which holds the base model's output, and of the model */
	struct oom_frame f = {.t = t}, model = {.t = t};
	struct oom_val x;

	if ((side >> (w->n_stages - 1)) < w->window || side > 65535 / a->patch) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
			      "an image of %llu pixels leaves the last stage less than a window of "
			      "%llu patches",
			      (unsigned long long)pixels, (unsigned long long)w->window);
		return oom_none();
	}
	if (t->plan->num_layers)
		oom_tape_warn(t, "Swin's depth is a list: the number of layers asked for is not "
			     "applied");
	x = oom_name(&model, swin_embeddings(t, a, pixels, side));
	x = oom_name(&model, swin_stages(t, a, side, x));
	x = oom_name(&f, oom_op_layer_norm(t, "layernorm", x, 0, true, true));
	x = oom_leave(&model, oom_op_mean(t, x, t->m_b, D(a->d_model)));
	if (t->n_labels)
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

const struct oom_family oom_family_swin = {
	.name = "swin",
	.summary = "shifted-window vision encoder in stages",
	.source = "transformers 5.12 models/swin/modeling_swin.py",
	.types = OOM_TYPE("swin"),
	.task = OOM_TASK_IMAGE_CLS,
	.lora_targets = "q_proj+v_proj",
	.keys = swin_keys,
	.parse = swin_parse,
	.step = swin_step,
};
