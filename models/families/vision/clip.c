/* CLIP, MetaCLIP 2, SigLIP, SigLIP 2 as image classifiers: the vision tower of the pair, mean of
 * its patches, classifier. Reference: transformers 5.12,
 * models/{clip,metaclip_2,siglip,siglip2}/modeling_*.py. */
#include <string.h>

#include "blocks/image.h"
#include "config/keys.h"

/* What sets the types apart.  Towers have configuration classes of their own (configuration_*.py);
 * their defaults agree but for these. */
struct clip_kind {
	uint64_t patch;
	const char *act;
	bool class_token;       /* else a norm after the encoder */
	bool head;              /* a pooling head, unless vision_use_head says otherwise */
	bool rows;              /* patches come as rows */
};
static const struct clip_kind clip = {.patch = 32, .act = "quick_gelu", .class_token = true};
static const struct clip_kind siglip = {.patch = 16, .act = "gelu_pytorch_tanh", .head = true};
static const struct clip_kind siglip2 = {
	.patch = 16, .act = "gelu_pytorch_tanh", .head = true, .rows = true};
static const struct oom_family_type clip_types[] = {
	{"clip", &clip}, {"metaclip_2", &clip}, {"siglip", &siglip}, {"siglip2", &siglip2},
	{NULL, NULL},
};

struct clip {
	bool head;
};
OOM_OWN(clip, struct clip);

/* of vision_config */
static const struct oom_key_row clip_keys[] = {
	OR(d_model, "hidden_size", 768), OR(d_ff, "intermediate_size", 3072),
	OR(n_layers, "num_hidden_layers", 12), OR(n_heads, "num_attention_heads", 12),
	OR(channels, "num_channels", 3), REAL(attn_dropout, "attention_dropout", 0), OOM_KEYS_END};

/* The side of a square of patches. */
static uint64_t side_of(uint64_t patches)
{
	uint64_t n = 1;

	while ((n + 1) * (n + 1) <= patches && n < 4096)
		n++;
	return n;
}

static void read_tower(struct oom_arch *a, const struct clip_kind *kind)
{
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, clip_keys);
	clip_own(a)->head = kind->head && oom_read_bool(r, "vision_use_head", true);
	a->patch = oom_read_count_or(r, "patch_size", kind->patch);
	a->act = oom_read_act(r, "hidden_act", kind->act);
	if (kind->rows) {
		a->max_positions = oom_read_count_or(r, "num_patches", 256);
		a->image_size = side_of(a->max_positions) * a->patch;
	} else {
		a->image_size = oom_read_count_or(r, "image_size", 224);
	}
	if (!a->d_model || a->d_model > 1 << 20 || !a->n_heads || a->n_heads > a->d_model ||
	    !a->patch || a->patch > 65536 || a->image_size < a->patch || a->image_size > 65536 ||
	    !a->channels || a->channels > 65536 || !a->n_layers || !a->d_ff ||
	    a->max_positions > 1 << 24)
		oom_read_fail(r, "vision_config: a size out of range (model type %s)", r->family);
}

static void clip_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd, top = a->rd;

	r->prefix = !strcmp(r->prefix, "config.") ? "config.vision_config." : "vision_config.";
	r->defaults = NULL;
	read_tower(a, a->type->kind);
	top.status = r->status;
	top.err = r->err;
	a->rd = top;
}

struct clip_layer {
	const struct oom_arch *a;
	uint64_t tokens;
};

static struct oom_val clip_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct clip_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_over(t, a, a->n_heads, a->d_model, l->tokens, l->tokens);
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	at.caller = &f;
	at.qkv_bias = at.o_bias = true;
	at.o = "out_proj";
	y = oom_attention(t, &at, oom_op_layer_norm(t, "layer_norm1", x, 0, true, true));
	x = oom_name(&f, oom_op_add(t, x, y));
	y = oom_op_layer_norm(t, "layer_norm2", x, 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* A parameter that is used, without a gradient reaching it; autocast keeps the copy of a whole
 * weight (not of a view). */
static void used(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols, uint32_t flags,
		 bool whole)
{
	struct oom_val p = oom_param(t, name, rows, cols, OOM_P_UNUSED | flags);
	struct oom_frame f = {.t = t};

	oom_name(&f, whole ? oom_amp_cast(t, p) : p);
	oom_leave(&f, oom_none());
}

/* A linear layer of the head; its adapter, when it gets one, has no gradient either. */
static void used_linear(struct oom_tape *t, const char *name, uint64_t out, uint64_t in)
{
	struct oom_adapter_param q[OOM_ADAPTER_PARAMS];
	size_t n;

	t->scope = name;
	used(t, "weight", out, in, OOM_P_LINEAR, true);
	used(t, "bias", 0, out, 0, true);
	n = oom_adapter_params(t, name, in, out, 0, q);
	for (size_t i = 0; i < n; i++)
		used(t, q[i].name, q[i].rows, q[i].cols, OOM_P_LORA | q[i].flags, true);
}

/* SigLIP's pooling head (nn.MultiheadAttention of a probe over the patches, layer norm, MLP) over n
 * patches of type dt: its result is returned, but the classifier does not look at it.  No gradient;
 * what its graph keeps lives until the model's output is given up, in the frame f. */
static void pooling_head(struct oom_frame *f, const struct oom_arch *a, uint64_t n,
			 enum oom_dtype dt)
{
	struct oom_tape *t = f->t;
	const uint64_t d = a->d_model;
	const bool grad = t->grad;
	struct oom_frame module = {.t = t}, *graph = grad ? f : &module;
	const struct oom_dim all = {3 * d * d, "3 * d_model^2"}, both = {2 * d, "2 * d_model"};

	t->grad = false;
	t->scope = "head";
	used(t, "probe", 1, d, 0, false);
	t->scope = "attention";
	used(t, "in_proj_weight", 3 * d, d, 0, false);
	used(t, "in_proj_bias", 0, 3 * d, 0, false);
	if (t->amp)
		oom_name(graph, oom_new(t, "weight copy", OOM_MONO_ONE, all, dt));
	/* transposed: folded into a copy */
	oom_name(graph, oom_new(t, "clone", oom_tokens_of(t, n), D(d), dt));
	oom_name(graph, oom_op_copy(t, "contiguous", oom_new(t, "key and value",
							     oom_tokens_of(t, n), both, dt)));
	used_linear(t, "out_proj", d, d);
	t->scope = "layernorm";
	used(t, "weight", 0, d, OOM_P_NORM, false);
	used(t, "bias", 0, d, OOM_P_NORM, false);
	used_linear(t, "fc1", a->d_ff, d);
	used_linear(t, "fc2", d, a->d_ff);
	oom_leave(&module, oom_none());
	t->grad = grad;
}

/* SigLIP 2 gets rows of pixels and resizes its table for every image. */
static struct oom_val rows_of_patches(struct oom_tape *t, const struct oom_arch *a, uint64_t n)
{
	const struct oom_dim d = D(a->d_model);
	struct oom_val x = oom_pixel_values(t, oom_tokens_of(t, n),
					    a->channels * a->patch * a->patch), pos;

	x = oom_input_grads(t, oom_op_linear(t, "patch_embedding", x, d, OOM_BIAS));
	t->scope = "position_embedding";
	pos = oom_param(t, "weight", a->max_positions, a->d_model, OOM_P_EMBEDDING);
	pos.mono = oom_length_of(t, a->max_positions);
	pos.width = a->d_model;
	pos = oom_op_expand_copy(t, pos, oom_tokens_of(t, n), d);
	return oom_op_add(t, x, pos);
}

static struct oom_val clip_embeddings(struct oom_tape *t, const struct oom_arch *a,
				      uint64_t *tokens)
{
	const struct clip_kind *kind = a->type->kind;
	const struct oom_dim d = D(a->d_model);
	struct oom_map m;
	struct oom_val x, token = oom_none(), pos;
	uint64_t n;

	t->scope = "embeddings";
	if (kind->rows) {
		const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size :
							    a->image_size;

		oom_tape_warn(t, "activations are approximated as those of images whose patches need "
			     "no padding mask");
		*tokens = n = side / a->patch * (side / a->patch);
		if (!n)
			oom_tape_impossible(t, OOM_ERR_INVALID,
				      "an image of %llu pixels holds no patch of %llu",
				      (unsigned long long)side, (unsigned long long)a->patch);
		return n ? rows_of_patches(t, a, n) : oom_none();
	}
	m = oom_pixels(t, a);
	if (kind->class_token)
		token = oom_param(t, "class_embedding", 0, a->d_model, 0);
	m = oom_conv2d(t, "patch_embedding", m,
		       &(struct oom_conv){.out = a->d_model, .kernel = a->patch, .stride = a->patch,
					  .bias = !kind->class_token});
	if (t->status)
		return m.x;
	x = oom_input_grads(t, oom_map_tokens(t, m));
	n = m.h * m.w + kind->class_token;
	*tokens = n;
	oom_buffer(t, n, OOM_I64);              /* position_ids */
	if (kind->class_token) {
		token = oom_op_expand(t, token, t->m_b, d);
		token.perm = false;
		x = oom_op_cat_into(t, token, x, oom_tokens_of(t, n), d);
	}
	pos = oom_op_embedding(t, "position_embedding",
			       (struct oom_val){.sto = -1, .node = -1, .mono = oom_length_of(t, n),
						.width = 1, .dt = OOM_I64},
			       n, d, 0);
	return oom_op_add(t, x, pos);
}

/* The tower; n: its tokens.  The class's frame f keeps what the pooling head returns. */
static struct oom_val clip_tower(struct oom_frame *f, const struct oom_arch *a, uint64_t *n)
{
	const struct clip_kind *kind = a->type->kind;
	struct oom_tape *t = f->t;
	struct oom_frame tower = {.t = t};
	struct clip_layer l = {.a = a};
	struct oom_val x = clip_embeddings(t, a, &l.tokens);

	*n = l.tokens;
	if (t->status)
		return x;
	if (kind->class_token)
		x = oom_op_layer_norm(t, "pre_layrnorm", x, 0, true, true);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, clip_block, &l,
		       oom_name(&tower, x));
	/* CLIP norms the class token alone, for a result nobody reads */
	if (kind->class_token) {
		t->scope = "post_layernorm";
		used(t, "weight", 0, a->d_model, OOM_P_NORM, false);
		used(t, "bias", 0, a->d_model, OOM_P_NORM, false);
	} else {
		x = oom_op_layer_norm(t, "post_layernorm", x, 0, true, true);
	}
	if (clip_of(a)->head)
		pooling_head(f, a, l.tokens,
			     t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)x.dt);
	return oom_leave(&tower, x);
}

static struct oom_val clip_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct clip_kind *kind = a->type->kind;
	const struct oom_dim d = D(a->d_model);
	struct oom_frame f = {.t = t};
	uint64_t n = 0;
	struct oom_val x = oom_name(&f, clip_tower(&f, a, &n));

	if (t->status)
		return oom_leave(&f, x);
	if (kind->class_token)
		x = oom_op_slice(t, x, oom_tokens_of(t, n - 1), d);
	return oom_leave(&f, oom_image_loss(t, a, oom_op_mean(t, x, t->m_b, d)));
}

const struct oom_family oom_family_clip = {
	.name = "clip",
	.summary = "vision tower of an image-text pair, as a classifier",
	.source = "transformers 5.12 models/clip/modeling_clip.py",
	.types = clip_types,
	.task = OOM_TASK_IMAGE_CLS,
	.lora_targets = "q_proj+v_proj",
	.parse = clip_parse,
	.base_class = "the class that architectures names trains texts against images: its text tower and contrastive loss are not "
		      "counted, the step is a classifier's of images (--task image-cls)",
	.step = clip_step,
};
