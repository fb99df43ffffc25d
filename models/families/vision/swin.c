/* Swin: stages of window attention with a learned relative position bias, every second layer on
 * shifted windows, patches merged two by two between the stages.  All lengths are fixed by the
 * image (size variables with op 6). Reference: transformers 5.12, models/swin/modeling_swin.py. */
#include <math.h>
#include <string.h>

#include "blocks/blocks.h"

enum { WINDOW, N_STAGES, ABSOLUTE, QKV_BIAS, DEPTHS, HEADS = DEPTHS + 8 };       /* extra[] */
enum { MAX_STAGES = 8 };

static uint64_t item(struct oom_arch *a, const char *key, uint32_t i)
{
	const double x = oom_read_item_real(&a->rd, key, i, 0);

	return x >= 1 && x <= 65536 && x == floor(x) ? (uint64_t)x : 0;
}

static void read_stages(struct oom_arch *a)
{
	uint64_t n = 0;

	while (n < MAX_STAGES && item(a, "depths", (uint32_t)n))
		n++;
	if (!n || item(a, "depths", (uint32_t)n)) {
		oom_read_fail(&a->rd, "depths must list 1 to %d positive counts", MAX_STAGES);
		return;
	}
	a->extra[N_STAGES] = n;
	for (uint64_t i = 0; i < n; i++) {
		a->extra[DEPTHS + i] = item(a, "depths", (uint32_t)i);
		a->extra[HEADS + i] = item(a, "num_heads", (uint32_t)i);
		a->n_layers += a->extra[DEPTHS + i];
		if (!a->extra[HEADS + i] || a->extra[HEADS + i] > a->d_embed << i)
			oom_read_fail(&a->rd,
				      "num_heads must list one count for each of %llu stages",
				      (unsigned long long)n);
	}
	if (a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(&a->rd, "depths add up to more than %d layers", OOM_MAX_LAYERS);
	a->d_model = a->d_embed << (n - 1);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_IMAGE_CLS;
	a->d_embed = oom_read_count_or(r, "embed_dim", 96);
	a->image_size = oom_read_count_or(r, "image_size", 224);
	a->patch = oom_read_count_or(r, "patch_size", 4);
	a->channels = oom_read_count_or(r, "num_channels", 3);
	a->extra[WINDOW] = oom_read_count_or(r, "window_size", 7);
	a->extra[ABSOLUTE] = oom_read_bool(r, "use_absolute_embeddings", false);
	a->extra[QKV_BIAS] = oom_read_bool(r, "qkv_bias", true);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	(void)oom_read_real(r, "mlp_ratio", 4);
	(void)oom_read_real(r, "drop_path_rate", 0.1);
	if (!a->patch || a->image_size > 65536 || a->patch > a->image_size)
		oom_read_fail(r, "patch_size %llu does not fit image_size %llu",
			      (unsigned long long)a->patch, (unsigned long long)a->image_size);
	else if (!a->extra[WINDOW] || a->extra[WINDOW] > 256)
		oom_read_fail(r, "window_size must lie in 1..256");
	else if (!a->d_embed || a->d_embed > 65536 || !a->channels || a->channels > 65536)
		oom_read_fail(r, "embed_dim and num_channels must lie in 1..65536");
	else
		read_stages(a);
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

/* hidden.div(keep) * floor(rand + keep) of one number a sample */
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
	const uint64_t w = s->a->extra[WINDOW], rows = (2 * w - 1) * (2 * w - 1);
	const uint16_t m_pairs = oom_mono_mul(t, m_window, m_window);
	struct oom_val table = oom_param(t, "relative_position_bias_table", rows, s->heads, 0);
	struct oom_val bias;

	bias = oom_op_gather(t, "relative_position_bias", table, oom_none(), m_pairs, D(s->heads));
	return oom_op_copy(t, "contiguous", bias);      /* permute(2, 0, 1).contiguous() */
}

/* attn_mask of [windows, w * w, w * w] out of a map of region numbers: subtraction, two
 * comparisons, two fills. */
static struct oom_val shift_mask(struct oom_tape *t, uint16_t m, uint16_t m_map, enum oom_dtype dt)
{
	struct oom_val map = oom_new(t, "img_mask", m_map, D(1), dt);
	struct oom_val part = oom_new(t, "mask_windows", m_map, D(1), dt);
	struct oom_val d = oom_new(t, "sub", m, D(1), dt), f, c;

	c = oom_new(t, "ne", m, D(1), OOM_U8);
	f = oom_new(t, "masked_fill", m, D(1), dt);
	oom_drop(t, c);
	c = oom_new(t, "eq", m, D(1), OOM_U8);
	oom_drop(t, d);
	d = oom_new(t, "masked_fill", m, D(1), dt);
	oom_drop(t, c);
	oom_drop(t, f);
	oom_drop(t, part);
	oom_drop(t, map);
	return d;
}

/* x and mask stay the caller's.  The weights (eager) go into t->side. */
static struct oom_val window_attention(struct oom_tape *t, const struct stage *s,
				       struct oom_val mask, struct oom_val x)
{
	const struct oom_arch *a = s->a;
	const uint64_t area = a->extra[WINDOW] * a->extra[WINDOW],
		       windows = s->padded * s->padded / area;
	const uint16_t m_window = oom_len_const(t, OOM_MONO_ONE, area);
	const uint16_t m_windows = oom_len_const(t, OOM_MONO_ONE, windows);
	const uint16_t m_pairs = oom_mono_mul(t, m_window, m_window);
	const uint16_t m_masks = oom_mono_mul(t, t->m_b, oom_mono_mul(t, m_windows, m_pairs));
	const unsigned flags = a->extra[QKV_BIAS] ? OOM_BIAS : 0;
	const bool shifted = !oom_is_none(mask);
	const struct oom_dim c = {s->c, "channels"};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val held[5], bias, q, k, v;

	at.causal = false;
	at.heads = at.kv_heads = s->heads;
	at.d = at.dv = s->c / s->heads;
	at.mq = at.mk = oom_mono_mul(t, oom_mono_mul(t, t->m_b, m_windows), m_window);
	at.sk = m_window;
	at.weights = &t->side;
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", oom_keep(x), c, flags));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(x), c, flags));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), c, flags));
	held[0] = oom_share(t, q);              /* locals of the function until it returns */
	held[1] = oom_share(t, k);
	held[2] = oom_share(t, v);
	bias = position_bias(t, s, m_window);
	held[3] = at.mask = bias;
	held[4] = oom_none();
	/* expanded over the batch: a copy for more than one image */
	if (shifted) {
		if (oom_cond_above(t, t->m_b, 1))
			held[4] = oom_new(t, "expanded mask", m_masks, D(1),
					  (enum oom_dtype)mask.dt);
		else
			held[4] = oom_share(t, mask);
		at.mask = oom_op_add_into(t, oom_keep(bias), oom_keep(held[4]), m_masks,
					  D(s->heads));
	}
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_op_linear(t, "o_proj", q, c, OOM_BIAS);
	if (shifted)
		oom_drop(t, at.mask);
	for (int i = 0; i < 5; i++)
		oom_drop(t, held[i]);
	return q;
}

/* One layer with what its Python locals hold: the windows, the attention's output before and after
 * its way back into the map, the mask. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stage *s = ctx;
	const struct oom_arch *a = s->a;
	const uint16_t m = oom_len_const(t, t->m_b, s->side * s->side),
		       m_pad = oom_len_const(t, t->m_b, s->padded * s->padded);
	const struct oom_dim c = {s->c, "channels"};
	const bool shifted = i % 2 && s->side > a->extra[WINDOW];
	const bool path = s->first + i && s->drop;
	const uint64_t area = a->extra[WINDOW] * a->extra[WINDOW], map = s->padded * s->padded;
	struct oom_val windows, mask = oom_none(), whole, out, back, weights, y;

	y = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	/* F.pad copies even where there is nothing to pad */
	whole = oom_op_expand_copy(t, y, m_pad, c);
	/* torch.roll */
	y = shifted ? oom_op_expand_copy(t, oom_keep(whole), m_pad, c) : oom_share(t, whole);
	windows = oom_op_expand_copy(t, y, m_pad, c);   /* window_partition */
	if (shifted)
		mask = shift_mask(t,
				  oom_mono_mul(t, oom_len_const(t, OOM_MONO_ONE, map),
					       oom_len_const(t, OOM_MONO_ONE, area)),
				  oom_len_const(t, OOM_MONO_ONE, map), (enum oom_dtype)whole.dt);
	out = oom_op_dropout(t, window_attention(t, s, mask, windows), a->dropout);
	weights = t->side;
	back = oom_op_expand_copy(t, oom_keep(out), m_pad, c);  /* window_reverse */
	if (shifted)
		back = oom_op_expand_copy(t, back, m_pad, c);
	if (s->padded > s->side)
		back = oom_op_expand_copy(t, back, m, c);
	y = path ? drop_path(t, oom_keep(back), t->m_b) : oom_share(t, back);
	x = oom_op_add(t, x, y);
	oom_drop(t, whole);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(s->ff), true);
	x = oom_op_add(t, oom_op_dropout(t, y, a->dropout), x);
	oom_drop(t, windows);
	oom_drop(t, mask);
	oom_drop(t, out);
	oom_drop(t, back);
	t->side = weights;
	return x;
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

/* One stage: its layers, the merge, and a copy of the result as an image, which nobody reads.
 * Python holds the stage's input until it returns, the last attention weights until the next
 * layer's, the copy until the next stage's. */
static struct oom_val one_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	struct oom_val held = oom_share(t, x), weights = oom_none(), copy, before;
	uint64_t half = (s->side + 1) / 2;

	(void)j;
	for (uint32_t i = 0; i < s->depth; i++) {
		x = oom_layer_alone(t, i, block, ctx, x);
		oom_drop(t, weights);
		weights = t->side;
		t->side = oom_none();
	}
	before = oom_share(t, x);
	if (!s->last)
		x = merge(t, s, x);
	else
		half = s->side;
	copy = oom_op_expand_copy(t, oom_keep(x), oom_len_const(t, t->m_b, half * half),
				  D(s->c * (s->last ? 1 : 2)));
	copy.node = -1;
	oom_drop(t, before);
	oom_drop(t, held);
	oom_drop(t, weights);
	t->side = copy;
	return x;
}

static struct oom_val stages(struct oom_tape *t, const struct oom_arch *a, uint64_t side,
			     struct oom_val x)
{
	struct oom_reader rd = a->rd;
	const double ratio = oom_read_real(&rd, "mlp_ratio", 4);
	const uint64_t w = a->extra[WINDOW], n = a->extra[N_STAGES];
	struct stage s = {.a = a,
			  .side = side,
			  .drop = oom_read_real(&rd, "drop_path_rate", 0.1) > 0};
	struct oom_val copy = oom_none();

	for (uint64_t j = 0; j < n; j++) {
		s.c = a->d_embed << j;
		s.heads = a->extra[HEADS + j];
		s.ff = (uint64_t)(ratio * (double)s.c);
		s.padded = (s.side + w - 1) / w * w;
		s.depth = (uint32_t)a->extra[DEPTHS + j];
		s.last = j + 1 == n;
		for (uint32_t i = 0; i < s.depth; i++)
			oom_buffer(t, w * w * w * w, OOM_I64);  /* relative_position_index */
		if (t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad)
			x = oom_layer_alone(t, (uint32_t)j, one_stage,
					    oom_layer_ctx(t, &s, sizeof(s)), x);
		else
			x = one_stage(t, oom_layer_ctx(t, &s, sizeof(s)), (uint32_t)j, x);
		oom_drop(t, copy);
		copy = t->side;
		t->side = oom_none();
		s.first += s.depth;
		s.side = (s.side + !s.last) / (s.last ? 1 : 2);
	}
	oom_drop(t, copy);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t pixels_side = t->plan->image_size ? (uint64_t)t->plan->image_size :
							   a->image_size;
	const uint64_t side = (pixels_side + a->patch - 1) / a->patch;
	const struct oom_dim c = {a->d_embed, "embed_dim"};
	struct oom_val pixels, first, encoded, last, x;
	uint16_t m;

	/* first: attention rounds this length */
	(void)oom_len_const(t, OOM_MONO_ONE, a->extra[WINDOW] * a->extra[WINDOW]);
	m = oom_len_const(t, t->m_b, side * side);
	pixels = oom_input(t, "pixel_values", t->m_b, a->channels * pixels_side * pixels_side,
			   OOM_F32);
	if ((side >> (a->extra[N_STAGES] - 1)) < a->extra[WINDOW] || side > 65535 / a->patch) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "an image of %llu pixels leaves the last stage less than a window of "
			      "%llu patches", (unsigned long long)pixels_side,
			      (unsigned long long)a->extra[WINDOW]);
		return pixels;
	}
	if (t->plan->num_layers)
		t->warning = "Swin's depth is a list: the number of layers asked for is not "
			     "applied";
	pixels.dt = t->plan->precision == OOM_FP16 ? OOM_DT_F16 :
		    t->plan->precision == OOM_BF16 || t->plan->precision == OOM_BF16_AMP ?
						     OOM_DT_BF16 :
						     OOM_F32;
	t->scope = "embeddings";
	x = oom_op_conv(t, "projection", pixels, a->d_embed, a->channels * a->patch * a->patch,
			true, m, c);
	x = oom_op_layer_norm(t, "norm", x, 0, true, true);
	if (a->extra[ABSOLUTE]) {
		struct oom_val pos = oom_param(t, "position_embeddings", 0,
					       side * side * a->d_embed, 0);

		pos.mono = oom_len_const(t, OOM_MONO_ONE, side * side);
		pos.width = a->d_embed;
		x = oom_op_add(t, x, pos);
	}
	x = oom_op_dropout(t, x, a->dropout);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	encoded = stages(t, a, side, x);
	last = oom_op_layer_norm(t, "layernorm", oom_keep(encoded), 0, true, true);
	x = oom_op_mean(t, oom_keep(last), t->m_b, D(a->d_model));
	oom_drop(t, first);
	oom_drop(t, encoded);
	if (t->n_labels)
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	x = oom_cls_loss(t, a, x);
	oom_drop(t, last);                      /* the base model's output object */
	return x;
}

const struct oom_family oom_family_swin = {
	.name = "swin",
	.summary = "shifted-window vision encoder in stages",
	.source = "transformers 5.12 models/swin/modeling_swin.py",
	.types = OOM_TYPE("swin"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
