/* IDEFICS 2's resampler: learned latents attend to an image's patches and to themselves.  Its layers are no
 * GradientCheckpointingLayer.
 * Reference: transformers 5.12, models/idefics2/modeling_idefics2.py Idefics2Connector, Idefics2PerceiverResampler. */
#include "projector.h"

struct layer {
	uint64_t heads, kv_heads, head, ff;
	enum oom_act act;
	struct oom_val context, mask;
	uint16_t m_latents, m_keys, m_len;
};

static struct oom_val attention(struct oom_frame *caller, const struct layer *l, struct oom_val x, struct oom_val context)
{
	const struct oom_dim h = {x.width, x.text}, qd = {l->heads * l->head, "n_heads * head_dim"},
			     kd = {l->kv_heads * l->head, "n_kv_heads * head_dim"};
	struct oom_attn at = {.heads = l->heads, .kv_heads = l->kv_heads, .d = l->head, .dv = l->head, .norm = OOM_NORM_RMS,
			      .scale_after = true, .mq = l->m_latents, .mk = l->m_keys, .sk = l->m_len, .mask = l->mask,
			      .kv_from = oom_none(), .caller = caller};
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], all;

	all = oom_name(&f, oom_op_cat_into(t, context, x, l->m_keys, h));
	p[0] = oom_op_heads(t, oom_op_linear(t, "q_proj", x, qd, 0));
	p[1] = oom_op_heads(t, oom_op_linear(t, "k_proj", all, kd, 0));
	p[2] = oom_op_heads(t, oom_op_linear(t, "v_proj", all, kd, 0));
	oom_name_each(&f, p, 3);
	x = oom_attention_core(t, &at, p[0], p[1], p[2]);
	return oom_leave(&f, oom_op_linear(t, "o_proj", x, h, 0));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val h, context;

	(void)i;
	h = oom_name(&f, oom_norm(t, OOM_NORM_RMS, "input_latents_norm", x, 0));
	context = oom_name(&f, oom_norm(t, OOM_NORM_RMS, "input_context_norm", l->context, 0));
	h = oom_rename(&f, h, attention(&f, l, h, context));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	h = oom_norm(t, OOM_NORM_RMS, "post_attention_layernorm", x, 0);
	h = oom_gated_mlp(t, h, l->act, (struct oom_dim){l->ff, "4 * hidden_size"}, false);
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* Idefics2MLP, from the tower's width to the text's. */
static struct oom_val modality_projection(struct oom_emit *e, struct oom_val x)
{
	struct oom_frame f = {.t = e->t};
	struct oom_val gate, up;

	e->t->scope = "modality_projection";
	gate = oom_activation(e->t, e->a->act, oom_project(e, "gate_proj", x, e->a->d_ff, false));
	up = oom_project(e, "up_proj", x, e->a->d_ff, false);
	return oom_leave(&f, oom_project(e, "down_proj", oom_op_mul(e->t, gate, up), e->a->d_model, false));
}

/* Patches that are there, and all latents. */
static struct oom_val mask_of(struct oom_emit *e, const struct layer *l, enum oom_dtype dt)
{
	struct oom_tape *t = e->t;

	if (!t->plan->padding_mask || t->plan->attn == OOM_ATTN_FLASH)
		return oom_none();
	return oom_new(t, "patches that are there", oom_mono_mul(t, l->m_latents, l->m_len), D(1),
		       t->plan->attn == OOM_ATTN_SDPA ? OOM_U8 : dt);
}

struct oom_val oom_emit_perceiver(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[2];
	/* whatever width the resampler is given, it takes the text's (Idefics2Config.__post_init__) */
	const struct oom_dim d = {e->a->d_model, "hidden_size"};
	const uint64_t n = oom_read_count(r, "resampler_n_latents", 1), depth = oom_read_count(r, "resampler_depth", 0);
	struct layer l = {.heads = oom_read_count(r, "resampler_n_heads", 1), .kv_heads = oom_read_count(r, "num_key_value_heads", 1),
			  .head = oom_read_count(r, "resampler_head_dim", 1), .ff = 4 * d.n,
			  .act = oom_read_act(r, "hidden_act", "silu")};
	struct oom_frame f = {.t = t};
	struct oom_tower w;
	struct oom_val x = oom_name(&f, oom_tower_part(e, 1, &w));
	const uint64_t keys = oom_mono_now(t, e->m_len) + n;

	l.context = oom_name_shared(&f, modality_projection(e, x));
	oom_tower_tokens(e, n);
	l.m_latents = e->m_tokens;
	l.m_keys = oom_len_const(t, e->m_images, keys);
	l.m_len = oom_len_const(t, OOM_MONO_ONE, keys);
	l.mask = oom_name_shared(&f, mask_of(e, &l, (enum oom_dtype)l.context.dt));
	t->scope = "perceiver_resampler";
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_view(t, oom_param(t, "latents", n, d.n, 0), oom_len_const(t, OOM_MONO_ONE, n), d);
	x = oom_op_expand(t, x, l.m_latents, d);
	x.perm = false;
	x = oom_plain_layers(t, depth, NULL, block, &l, sizeof(l), x);
	oom_forget_shared(&f);
	t->scope = "perceiver_resampler";
	x = oom_norm(t, OOM_NORM_RMS, "norm", x, 0);
	t->selection.part = OOM_PART_TOWER;
	return oom_leave(&f, x);
}
