/* BEiT and Data2Vec-Vision: pre-norm encoder with scaled residual branches, stochastic depth and,
 * where asked for, a learned bias for every pair of patches.
 * Reference: transformers 5.12, models/beit/modeling_beit.py,
 * models/data2vec/modeling_data2vec_vision.py. */
#include <string.h>

#include "blocks/image.h"

/* extra[] */
enum { DATA2VEC, MASK_TOKEN, ABSOLUTE, RELATIVE, SHARED, SCALE, DROP_PATH, MEAN_POOLING };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	oom_read_image(a, 224);
	a->extra[DATA2VEC] = strcmp(a->model_type, "beit") != 0;
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->patch = oom_read_count(r, "patch_size", 1);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	a->extra[MASK_TOKEN] = oom_read_bool(r, "use_mask_token", false);
	a->extra[ABSOLUTE] = oom_read_bool(r, "use_absolute_position_embeddings", false);
	a->extra[RELATIVE] = oom_read_bool(r, "use_relative_position_bias", false);
	a->extra[SHARED] = oom_read_bool(r, "use_shared_relative_position_bias", false);
	a->extra[SCALE] = oom_read_real(r, "layer_scale_init_value", 0.1) > 0;
	a->extra[DROP_PATH] = oom_read_real(r, "drop_path_rate", 0.1) > 0;
	a->extra[MEAN_POOLING] = oom_read_bool(r, "use_mean_pooling", true);
	if (a->patch > a->image_size || a->d_model > 1 << 20)
		oom_read_fail(r,
			      "patch_size %llu does not fit image_size %llu, or hidden_size is too "
			      "large",
			      (unsigned long long)a->patch, (unsigned long long)a->image_size);
}

struct layer {
	const struct oom_arch *a;
	uint64_t side, tokens;
	struct oom_val shared;          /* the bias of all layers */
};

/* One bias a head for every pair of places and three for the class token: the table is interpolated
 * to the size it has already, then looked up (BeitRelativePositionBias.forward; the numbers of
 * the pairs stay on the host, cached). */
static struct oom_val position_bias(struct oom_tape *t, const struct layer *l)
{
	const uint64_t heads = l->a->n_heads, places = (2 * l->side - 1) * (2 * l->side - 1);
	const uint16_t m = oom_length_of(t, l->tokens);
	const struct oom_dim width = {heads, "n_heads"};
	const char *scope = t->scope;
	struct oom_val table, sub, rest;

	t->scope = "relative_position_bias";
	table = oom_param(t, "relative_position_bias_table", places + 3, heads, 0);
	sub = oom_op_slice(t, oom_keep(table), OOM_MONO_ONE,
			   (struct oom_dim){places * heads, NULL});
	sub = oom_op_expand_copy(t, sub, OOM_MONO_ONE, (struct oom_dim){places * heads, NULL});
	rest = oom_op_slice(t, table, OOM_MONO_ONE, (struct oom_dim){3 * heads, NULL});
	table = oom_op_cat(t, sub, rest, (struct oom_dim){(places + 3) * heads, NULL});
	table = oom_op_gather(t, "index", table, oom_none(), oom_mono_mul(t, m, m), width);
	t->scope = scope;
	return oom_op_copy(t, "contiguous", table);     /* permute(2, 0, 1).contiguous() */
}

/* x stays the caller's; weights (BEiT, eager) become the layer's local. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val mask, struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_over(t, a, a->n_heads, a->d_model, l->tokens, l->tokens);
	const struct oom_dim d = D(a->d_model);
	struct oom_val q, k, v, held[3];

	q = oom_project_heads(t, a->extra[DATA2VEC] ? "query" : "q_proj", oom_keep(x), a->d_model,
			      true, 0);
	k = oom_project_heads(t, a->extra[DATA2VEC] ? "key" : "k_proj", oom_keep(x), a->d_model,
			      false, 0);
	v = oom_project_heads(t, a->extra[DATA2VEC] ? "value" : "v_proj", oom_keep(x), a->d_model,
			      true, 0);
	at.mask = mask;
	if (a->extra[DATA2VEC] && t->plan->attn == OOM_ATTN_EAGER) {
		const struct oom_val bias[2] = {mask, oom_none()};

		return oom_op_linear(t, "dense", oom_written_attention(t, &at, q, k, v, bias, NULL),
				     d, OOM_BIAS);
	}
	if (a->extra[DATA2VEC])                 /* the output projection is a module of its own */
		return oom_op_linear(t, "dense", oom_attention_core(t, &at, q, k, v), d, OOM_BIAS);
	at.weights = weights;
	held[0] = oom_share(t, q);
	held[1] = oom_share(t, k);
	held[2] = oom_share(t, v);
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), d, OOM_BIAS);
	oom_drop_all(t, held, 3);
	return q;
}

static struct oom_val scaled(struct oom_tape *t, const struct oom_arch *a, const char *name,
			     struct oom_val x)
{
	return a->extra[SCALE] ? oom_op_mul(t, oom_param(t, name, 0, a->d_model, 0), x) : x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool path = i && a->extra[DROP_PATH], data2vec = a->extra[DATA2VEC];
	struct oom_val normed, y, mask = oom_none(), held[3] = {oom_none(), oom_none(), oom_none()};

	if (a->extra[RELATIVE])
		mask = position_bias(t, l);
	if (!oom_is_none(l->shared))
		mask = oom_is_none(mask) ? oom_share(t, l->shared) :
					   oom_op_add(t, oom_keep(l->shared), mask);
	normed = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	y = oom_op_dropout(t, attention(t, l, normed, mask, &held[0]), a->dropout);
	oom_drop(t, normed);
	if (data2vec) {                         /* a local of the attention there */
		oom_drop(t, mask);
		mask = oom_none();
	}
	/* a tuple, the layer's local; the scaled one another */
	if (data2vec)
		held[1] = oom_share(t, y);
	y = scaled(t, a, "lambda_1", y);
	if (data2vec)
		held[2] = oom_share(t, y);
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_plain_mlp(t, y, data2vec ? "dense" : "fc1", data2vec ? "dense" : "fc2", a->act,
			  D(a->d_ff), true);
	y = scaled(t, a, "lambda_2", oom_op_dropout(t, y, a->dropout));
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	oom_drop_all(t, held, 3);
	oom_drop(t, mask);
	return x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct layer *l)
{
	const struct oom_dim d = D(a->d_model);
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, cls, pos = oom_none();

	t->scope = "embeddings";
	cls = oom_param(t, "cls_token", 1, a->d_model, 0);
	if (a->extra[MASK_TOKEN])
		oom_drop(t, oom_param(t, "mask_token", 1, a->d_model, OOM_P_UNUSED));
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = a->d_model,
					  .kernel = a->patch,
					  .stride = a->patch,
					  .bias = true});
	if (t->status)
		return m.x;
	l->side = m.h;
	l->tokens = m.h * m.w + 1;
	x = oom_input_grads(t, oom_map_tokens(t, m));
	cls = oom_op_expand(t, cls, t->m_b, d);
	cls.perm = false;
	x = oom_op_cat_into(t, cls, x, oom_tokens_of(t, l->tokens), d);
	if (a->extra[ABSOLUTE])
		pos = oom_param_tokens(t, "position_embeddings", l->tokens, a->d_model);
	if (a->extra[ABSOLUTE])
		x = oom_op_add(t, x, pos);
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim d = D(a->d_model);
	struct layer l = {.a = a, .shared = oom_none()};
	uint8_t kind[OOM_MAX_LAYERS] = {1};
	struct oom_val x, first, pooled;

	x = embeddings(t, a, &l);
	if (t->status)
		return x;
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	if (a->extra[SHARED])
		l.shared = position_bias(t, &l);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->extra[DROP_PATH] ? kind : NULL,
		       block, &l, x);
	oom_drop_shared(t, l.shared);
	if (!a->extra[MEAN_POOLING])
		x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	oom_drop(t, first);
	if (a->extra[MEAN_POOLING]) {
		pooled = oom_op_slice(t, oom_keep(x), oom_tokens_of(t, l.tokens - 1), d);
		pooled = oom_op_layer_norm(t, "pooler.layernorm", oom_op_mean(t, pooled, t->m_b, d),
					   0, true, true);
	} else {
		pooled = oom_op_slice(t, oom_keep(x), t->m_b, d);
	}
	return oom_image_head(t, a, pooled, x);
}

static const struct oom_family_type types[] = {
	{"beit", NULL}, {"data2vec-vision", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_beit = {
	.name = "beit",
	.summary = "vision encoder with scaled branches and relative positions",
	.source = "transformers 5.12 models/beit/modeling_beit.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
