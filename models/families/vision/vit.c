/* Vision transformers: a patch embedding, class tokens, learned positions, pre-norm encoder, linear
 * classifier. The sequence is fixed by the image: its length enters as a constant (oom_tokens_of).
 * Reference: transformers 5.12, models/{vit,deit,vit_msn,ijepa,dinov2}/modeling_*.py. */
#include "blocks/image.h"
#include "config/keys.h"

/* What sets the types apart. */
struct vit_kind {
	uint64_t extra_tokens;          /* before the patches: class, distillation */
	/* layer scale, stochastic depth, perhaps a gated MLP; the classifier sees the class token
	 * and the patches' mean */
	bool dino;
	bool registers;                 /* tokens between class token and patches */
};
static const struct vit_kind vit = {.extra_tokens = 1};
static const struct vit_kind deit = {.extra_tokens = 2};
static const struct vit_kind ijepa = {.extra_tokens = 0};
static const struct vit_kind dinov2 = {.extra_tokens = 1, .dino = true};
static const struct vit_kind dinov2_registers = {.extra_tokens = 1, .dino = true, .registers = true};
static const struct oom_family_type vit_types[] = {
	{"vit", &vit}, {"deit", &deit}, {"vit_msn", &vit}, {"ijepa", &ijepa}, {"dinov2", &dinov2},
	{"dinov2_with_registers", &dinov2_registers}, {NULL, NULL},
};

struct vit {
	bool qkv_bias, swiglu;
	double drop_path;
	uint64_t registers;
};
OOM_OWN(vit, struct vit);

static const struct oom_key_row vit_keys[] = {
	MUST(d_model, "hidden_size"), MUST(n_layers, "num_hidden_layers"),
	MUST(n_heads, "num_attention_heads"), MUST(image_size, "image_size"),
	MUST(patch, "patch_size"), OR(channels, "num_channels", 3), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	FLAG_OWN(struct vit, qkv_bias, "qkv_bias", true), OOM_KEYS_END};
static const struct oom_key_row dino_keys[] = {
	FLAG_OWN(struct vit, swiglu, "use_swiglu_ffn", false),
	REAL_OWN(struct vit, drop_path, "drop_path_rate", 0), OOM_KEYS_END};

static void read_dino(struct oom_arch *a, const struct vit_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const double ratio = oom_read_real(r, "mlp_ratio", 4);
	struct vit *v = vit_own(a);

	if (!(ratio > 0 && ratio <= 1024) || a->d_model > 1 << 20) {
		oom_read_fail(r, "mlp_ratio or hidden_size out of range (model type %s)",
			      r->family);
		return;
	}
	oom_read_rows(a, dino_keys);
	a->d_ff = (uint64_t)((double)a->d_model * ratio);
	if (v->swiglu)                          /* Dinov2SwiGLUFFN */
		a->d_ff = (a->d_ff * 2 / 3 + 7) / 8 * 8;
	v->registers = kind->registers ? oom_read_count_or(r, "num_register_tokens", 4) : 0;
	if (v->registers > 65536)
		oom_read_fail(r, "num_register_tokens beyond 65536");
}

static void vit_parse(struct oom_arch *a)
{
	const struct vit_kind *kind = a->type->kind;
	struct oom_reader *r = &a->rd;

	if (kind->dino)
		read_dino(a, kind);
	else
		a->d_ff = oom_read_count(r, "intermediate_size", 1);
	if (a->image_size > 65536 || a->patch > a->image_size)
		oom_read_fail(r, "patch_size %llu does not fit image_size %llu",
			      (unsigned long long)a->patch, (unsigned long long)a->image_size);
}

struct vit_layer {
	const struct oom_arch *a;
	uint16_t m_tokens, m_len;
};

/* layer: the block's frame, where ViT's weights have a name ("hidden_states, _ =
 * self.attention(...)"). */
static struct oom_val vit_attention(struct oom_frame *layer, const struct vit_layer *l,
				    struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const bool dino = ((const struct vit_kind *)a->type->kind)->dino;
	const unsigned bias = vit_of(a)->qkv_bias ? OOM_BIAS : 0;
	const struct oom_dim h = D(a->d_model);
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = dino;
	at.caller = dino ? NULL : layer;
	at.mq = at.mk = l->m_tokens;
	at.sk = l->m_len;
	q = oom_op_heads(t, oom_op_linear(t, dino ? "query" : "q_proj", x, h, bias));
	k = oom_op_heads(t, oom_op_linear(t, dino ? "key" : "k_proj", x, h, bias));
	v = oom_op_heads(t, oom_op_linear(t, dino ? "value" : "v_proj", x, h, bias));
	if (!dino) {                            /* DINO's projections are a module of their own */
		q = oom_name(&f, q);
		k = oom_name(&f, k);
		v = oom_name(&f, v);
	}
	q = oom_attention_core(t, &at, q, k, v);
	return oom_leave(&f, oom_op_linear(t, dino ? "dense" : "o_proj", q, h, OOM_BIAS));
}

static struct oom_val vit_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct vit_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	y = vit_attention(&f, l, oom_op_layer_norm(t, "layernorm_before", x, 0, true, true));
	x = oom_name(&f, oom_op_add(t, oom_op_dropout(t, y, a->dropout), x));
	y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	return oom_leave(&f, oom_op_add(t, oom_op_dropout(t, y, a->dropout), x));
}

/* weights_out(silu(x1) * x2) of one projection's two halves */
static struct oom_val dino_swiglu(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, half[2] = {D(a->d_ff), D(a->d_ff)};
	struct oom_frame f = {.t = t};
	struct oom_val part[2], both, y;

	x = oom_arg(&f, x);
	both = oom_name(&f, oom_op_linear(t, "weights_in", x, D(2 * a->d_ff), OOM_BIAS));
	oom_op_split(t, both, 2, half, part);
	y = oom_op_mul(t, oom_activation(t, OOM_ACT_SILU, part[0]), part[1]);
	return oom_leave(&f, oom_op_linear(t, "weights_out", y, h, OOM_BIAS));
}

static struct oom_val dino_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct vit_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct vit *v = vit_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val h, y;

	(void)i;
	/* hidden_states_norm and self_attention_output live until the layer returns */
	h = oom_name(&f, oom_op_layer_norm(t, "norm1", x, 0, true, true));
	y = oom_op_dropout(t, vit_attention(&f, l, h), a->dropout);
	t->scope = "layer_scale1";
	y = oom_op_mul(t, y, oom_param(t, "lambda1", 0, a->d_model, 0));
	y = oom_name(&f, y);
	x = oom_name(&f, oom_op_add(t, v->drop_path > 0 ? oom_drop_path(t, y) : y, x));
	y = oom_op_layer_norm(t, "norm2", x, 0, true, true);
	y = v->swiglu ? dino_swiglu(t, a, y) :
			oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	t->scope = "layer_scale2";
	y = oom_op_mul(t, y, oom_param(t, "lambda1", 0, a->d_model, 0));
	return oom_leave(&f, oom_op_add(t, v->drop_path > 0 ? oom_drop_path(t, y) : y, x));
}

/* cat(x[:, :1], registers, x[:, 1:]) of n tokens; consumes x. */
static struct oom_val insert_registers(struct oom_tape *t, struct vit_layer *l, struct oom_val x,
				       struct oom_val registers, uint64_t n)
{
	const uint64_t more = vit_of(l->a)->registers;
	const struct oom_dim h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val r, first, rest;

	x = oom_arg(&f, x);
	r = oom_op_expand(t, registers, t->m_b, (struct oom_dim){more * h.n, NULL});
	r.perm = false;
	first = oom_op_slice(t, x, t->m_b, h);
	rest = oom_op_slice(t, oom_take(&f, x), oom_tokens_of(t, n - 1), h);
	l->m_tokens = oom_tokens_of(t, n + more);
	l->m_len = oom_length_of(t, n + more);
	return oom_leave(&f, oom_cat3(t, first, r, rest, l->m_tokens, h));
}

/* n: the tokens, without registers. */
static struct oom_val vit_embeddings(struct oom_tape *t, const struct oom_arch *a,
				     struct vit_layer *l, uint64_t *n)
{
	const struct vit_kind *kind = a->type->kind;
	const uint64_t registers = vit_of(a)->registers;
	const struct oom_dim h = D(a->d_model);
	struct oom_map m = oom_pixels(t, a);
	struct oom_val token[2], pos, x, tokens, inserted = oom_none();
	const size_t from = t->cursor;

	t->scope = "embeddings";
	for (uint64_t i = 0; i < kind->extra_tokens; i++)
		token[i] = oom_param(t, i ? "distillation_token" : "cls_token", 1, a->d_model, 0);
	if (kind->dino)
		oom_param(t, "mask_token", 1, a->d_model, OOM_P_UNUSED);
	if (registers)
		inserted = oom_param(t, "register_tokens", registers, a->d_model, 0);
	oom_params_first(t, from, 1);   /* parameters of the module itself, before those of its patch_embeddings */
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = a->d_model, .kernel = a->patch, .stride = a->patch,
					  .bias = true});
	if (t->status)
		return m.x;
	*n = m.h * m.w + kind->extra_tokens;
	l->m_tokens = oom_tokens_of(t, *n);
	l->m_len = oom_length_of(t, *n);
	pos = oom_param_tokens(t, "position_embeddings", *n, a->d_model);
	oom_param_first(t, pos, 1);
	x = oom_input_grads(t, oom_map_tokens(t, m));
	if (kind->extra_tokens) {
		tokens = oom_op_expand(t, token[0], t->m_b, h);
		if (kind->extra_tokens > 1)
			tokens = oom_op_cat(t, tokens, oom_op_expand(t, token[1], t->m_b, h),
					    D(2 * a->d_model));
		tokens.perm = false;
		x = oom_op_cat_into(t, tokens, x, l->m_tokens, h);
	}
	x = oom_op_add(t, x, pos);
	if (registers)
		x = insert_registers(t, l, x, inserted, *n);
	return oom_op_dropout(t, x, a->dropout);
}

/* The base model; n: its tokens without registers. */
static struct oom_val vit_model(struct oom_tape *t, const struct oom_arch *a, uint64_t *n)
{
	const struct vit_kind *kind = a->type->kind;
	struct vit_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, vit_embeddings(t, a, &l, n));

	if (!kind->dino)
		oom_mask_nothing(t, true);
	if (!t->status)
		x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL,
			       kind->dino ? dino_block : vit_block, &l, x);
	oom_mask_nothing(t, false);             /* what comes after a tower has masks of its own, or none */
	return oom_leave(&f, oom_op_layer_norm(t, "layernorm", x, 0, true, true));
}

static struct oom_val vit_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct vit_kind *kind = a->type->kind;
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	uint64_t n = 0;
	/* the model's output, a local until the loss is returned */
	struct oom_val y, x = oom_name(&f, vit_model(t, a, &n));

	if (kind->dino) {                       /* class token beside the mean of the patches */
		y = oom_op_slice(t, x, t->m_b, h);
		x = oom_op_slice(t, x, oom_tokens_of(t, n - kind->extra_tokens), h);
		y = oom_op_cat(t, y, oom_op_mean(t, x, t->m_b, h), D(2 * a->d_model));
	} else {
		y = kind->extra_tokens ? oom_op_slice(t, x, t->m_b, h) :
					 oom_op_mean(t, x, t->m_b, h);
	}
	if (t->n_labels || kind->dino)
		y = oom_op_linear(t, "classifier", y, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, y));
}

static const struct oom_type_targets vit_targets[] = {
	{"dinov2", "query+value", NULL}, {"dinov2_with_registers", "query+value", NULL}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_vit = {
	.name = "vit",
	.summary = "pre-norm vision encoder over image patches",
	.source = "transformers 5.12 models/vit/modeling_vit.py",
	.types = vit_types,
	.task = OOM_TASK_IMAGE_CLS,
	.lora_targets = "q_proj+v_proj",
	.type_targets = vit_targets,
	.keys = vit_keys,
	.parse = vit_parse,
	.step = vit_step,
};
