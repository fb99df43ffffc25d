/* CLIP, MetaCLIP 2, SigLIP, SigLIP 2 as image classifiers: the vision tower of the pair, mean of
 * its patches, classifier. Reference: transformers 5.12,
 * models/{clip,metaclip_2,siglip,siglip2}/modeling_*.py. */
#include <string.h>

#include "blocks/image.h"

/* extra[]: CLIP's token; SigLIP's pooling head; SigLIP 2's patches as rows */
enum { CLASS_TOKEN, HEAD, NAVIT };

/* Towers have configuration classes of their own (configuration_*.py); their defaults agree but
 * for these. */
static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd, top = a->rd;
	const bool sig = !strncmp(a->model_type, "siglip", 6);

	a->default_task = OOM_TASK_IMAGE_CLS;
	r->prefix = !strcmp(r->prefix, "config.") ? "config.vision_config." : "vision_config.";
	r->defaults = NULL;
	a->extra[CLASS_TOKEN] = !sig;
	a->extra[NAVIT] = !strcmp(a->model_type, "siglip2");
	a->extra[HEAD] = sig && oom_read_bool(r, "vision_use_head", true);
	a->d_model = oom_read_count_or(r, "hidden_size", 768);
	a->d_ff = oom_read_count_or(r, "intermediate_size", 3072);
	a->n_layers = oom_read_count_or(r, "num_hidden_layers", 12);
	a->n_heads = a->n_kv_heads = oom_read_count_or(r, "num_attention_heads", 12);
	a->channels = oom_read_count_or(r, "num_channels", 3);
	a->patch = oom_read_count_or(r, "patch_size", sig ? 16 : 32);
	a->act = oom_read_act(r, "hidden_act", sig ? "gelu_pytorch_tanh" : "quick_gelu");
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	if (a->extra[NAVIT]) {                  /* a square of patches */
		const uint64_t n = oom_read_count_or(r, "num_patches", 256);

		for (a->image_size = 1;
		     (a->image_size + 1) * (a->image_size + 1) <= n && a->image_size < 4096;
		     a->image_size++)
			;
		a->max_positions = n;
		a->image_size *= a->patch;
	} else {
		a->image_size = oom_read_count_or(r, "image_size", 224);
		a->max_positions = 0;
	}
	if (!a->d_model || a->d_model > 1 << 20 || !a->n_heads || a->n_heads > a->d_model ||
	    !a->patch || a->patch > 65536 || a->image_size < a->patch || a->image_size > 65536 ||
	    !a->channels || a->channels > 65536 || !a->n_layers || !a->d_ff ||
	    a->max_positions > 1 << 24)
		oom_read_fail(r, "vision_config: a size out of range (model type %s)", r->family);
	else
		a->head_dim = a->d_model / a->n_heads;
	top.status = r->status;
	top.err = r->err;
	a->rd = top;
}

struct layer {
	const struct oom_arch *a;
	uint64_t tokens;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_over(t, a, a->n_heads, a->d_model, l->tokens, l->tokens);
	struct oom_val weights = oom_none(), y;

	(void)i;
	at.weights = &weights;
	at.qkv_bias = at.o_bias = true;
	at.o = "out_proj";
	y = oom_attention(t, &at, oom_op_layer_norm(t, "layer_norm1", oom_keep(x), 0, true, true));
	x = oom_op_add(t, x, y);
	y = oom_op_layer_norm(t, "layer_norm2", oom_keep(x), 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	x = oom_op_add(t, x, y);
	oom_drop(t, weights);
	return x;
}

/* A parameter that is used, without a gradient reaching it; autocast keeps the copy of a whole
 * weight (not of a view). */
static void used(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols, uint32_t flags,
		 bool whole)
{
	struct oom_val p = oom_param(t, name, rows, cols, OOM_P_UNUSED | flags);

	if (whole)
		p = oom_amp_cast(t, p);
	oom_drop(t, p);
}

/* A linear layer of the head; its adapter, when it gets one, has no gradient either. */
static void used_linear(struct oom_tape *t, const char *name, uint64_t out, uint64_t in)
{
	used(t, name, out, in, OOM_P_LINEAR, true);
	used(t, "bias", 0, out, 0, true);
	if (oom_lora_adapts(t, name, 0)) {
		used(t, "lora_A.weight", (uint64_t)t->plan->lora_r, in, OOM_P_LORA | OOM_P_LINEAR,
		     true);
		used(t, "lora_B.weight", out, (uint64_t)t->plan->lora_r, OOM_P_LORA | OOM_P_LINEAR,
		     true);
	}
}

/* SigLIP's pooling head (nn.MultiheadAttention of a probe over the patches, layer norm, MLP): its
 * result is returned, but the classifier does not look at it.  No gradient; what its graph keeps
 * lives until the model's output is given up. */
static void pooling_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t n,
			 struct oom_val held[3])
{
	const uint64_t d = a->d_model;
	const bool grad = t->grad;
	const enum oom_dtype dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)x.dt;
	struct oom_val kv;

	t->grad = false;
	t->scope = "head";
	used(t, "probe", 1, d, 0, false);
	used(t, "in_proj_weight", 3 * d, d, 0, false);
	used(t, "in_proj_bias", 0, 3 * d, 0, false);
	held[2] = t->amp ? oom_new(t, "weight copy", OOM_MONO_ONE,
				   (struct oom_dim){3 * d * d, "3 * d_model^2"}, dt) :
			   oom_none();
	/* transposed: folded into a copy */
	held[0] = oom_new(t, "clone", oom_tokens_of(t, n), (struct oom_dim){d, "d_model"}, dt);
	kv = oom_new(t, "key and value", oom_tokens_of(t, n),
		     (struct oom_dim){2 * d, "2 * d_model"}, dt);
	held[1] = oom_op_copy(t, "contiguous", kv);
	used_linear(t, "out_proj", d, d);
	used(t, "layernorm.weight", 0, d, OOM_P_NORM, false);
	used(t, "layernorm.bias", 0, d, OOM_P_NORM, false);
	used_linear(t, "fc1", a->d_ff, d);
	used_linear(t, "fc2", d, a->d_ff);
	for (int i = 0; i < 3 && !grad; i++) {
		oom_drop(t, held[i]);
		held[i] = oom_none();
	}
	t->grad = grad;
}

/* SigLIP 2 gets rows of pixels and resizes its table for every image. */
static struct oom_val rows_of_patches(struct oom_tape *t, const struct oom_arch *a, uint64_t n)
{
	const uint64_t row = a->channels * a->patch * a->patch;
	const struct oom_dim d = D(a->d_model);
	struct oom_val x = oom_input(t, "pixel_values", oom_tokens_of(t, n), row, OOM_F32), pos;

	x.dt = t->plan->precision == OOM_FP16					    ? OOM_DT_F16 :
	       t->plan->precision == OOM_BF16 || t->plan->precision == OOM_BF16_AMP ? OOM_DT_BF16 :
										      OOM_F32;
	x = oom_input_grads(t, oom_op_linear(t, "patch_embedding", x, d, OOM_BIAS));
	t->scope = "position_embedding";
	pos = oom_param(t, "weight", a->max_positions, a->d_model, OOM_P_EMBEDDING);
	pos.mono = oom_length_of(t, a->max_positions);
	pos.width = a->d_model;
	pos = oom_op_expand_copy(t, pos, oom_tokens_of(t, n), d);
	return oom_op_add(t, x, pos);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, uint64_t *tokens)
{
	const struct oom_dim d = D(a->d_model);
	struct oom_map m;
	struct oom_val x, token = oom_none(), pos;
	uint64_t n;

	t->scope = "embeddings";
	if (a->extra[NAVIT]) {
		const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size :
							    a->image_size;

		t->warning = "activations are approximated as those of images whose patches need "
			     "no padding mask";
		*tokens = n = side / a->patch * (side / a->patch);
		if (!n)
			oom_tape_fail(t, OOM_ERR_INVALID,
				      "an image of %llu pixels holds no patch of %llu",
				      (unsigned long long)side, (unsigned long long)a->patch);
		return n ? rows_of_patches(t, a, n) : oom_none();
	}
	m = oom_pixels(t, a);
	if (a->extra[CLASS_TOKEN])
		token = oom_param(t, "class_embedding", 0, a->d_model, 0);
	m = oom_conv2d(t, "patch_embedding", m,
		       &(struct oom_conv){.out = a->d_model,
					  .kernel = a->patch,
					  .stride = a->patch,
					  .bias = !a->extra[CLASS_TOKEN]});
	if (t->status)
		return m.x;
	x = oom_input_grads(t, oom_map_tokens(t, m));
	n = m.h * m.w + a->extra[CLASS_TOKEN];
	*tokens = n;
	oom_buffer(t, n, OOM_I64);              /* position_ids */
	if (a->extra[CLASS_TOKEN]) {
		token = oom_op_expand(t, token, t->m_b, d);
		token.perm = false;
		x = oom_op_cat_into(t, token, x, oom_tokens_of(t, n), d);
	}
	pos = oom_op_embedding(t, "position_embedding",
			       (struct oom_val){.sto = -1,
						.node = -1,
						.mono = oom_length_of(t, n),
						.width = 1,
						.dt = OOM_I64},
			       n, d, 0);
	return oom_op_add(t, x, pos);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct layer l = {.a = a};
	struct oom_val x, first, held[3] = {oom_none(), oom_none(), oom_none()}, loss;
	const struct oom_dim d = D(a->d_model);

	x = embeddings(t, a, &l.tokens);
	if (t->status)
		return x;
	if (a->extra[CLASS_TOKEN])
		x = oom_op_layer_norm(t, "pre_layrnorm", x, 0, true, true);
	first = oom_share(t, x);                /* a local of the tower */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	/* CLIP norms the class token alone, for a result nobody reads */
	if (a->extra[CLASS_TOKEN]) {
		oom_drop(t, oom_param(t, "post_layernorm.weight", 0, a->d_model,
				      OOM_P_UNUSED | OOM_P_NORM));
		oom_drop(t, oom_param(t, "post_layernorm.bias", 0, a->d_model,
				      OOM_P_UNUSED | OOM_P_NORM));
	} else {
		x = oom_op_layer_norm(t, "post_layernorm", x, 0, true, true);
	}
	if (a->extra[HEAD])
		pooling_head(t, a, x, l.tokens, held);
	oom_drop(t, first);
	if (a->extra[CLASS_TOKEN]) {
		struct oom_val rest = oom_op_slice(t, oom_keep(x), oom_tokens_of(t, l.tokens - 1),
						   d);

		loss = oom_image_head(t, a, oom_op_mean(t, rest, t->m_b, d), x);
	} else {
		loss = oom_image_head(t, a, oom_op_mean(t, oom_keep(x), t->m_b, d), x);
	}
	oom_drop_all(t, held, 3);
	return loss;
}

static const struct oom_family_type types[] = {
	{"clip", NULL}, {"metaclip_2", NULL}, {"siglip", NULL}, {"siglip2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_clip = {
	.name = "clip",
	.summary = "vision tower of an image-text pair, as a classifier",
	.source = "transformers 5.12 models/clip/modeling_clip.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
