/* gpt-oss: attention with a learned sink per head, written out in full; every other layer slides;
 * experts with biases and a clamped gate, behind a router that takes its softmax over the chosen
 * logits alone. Reference: transformers 5.12, models/gpt_oss/modeling_gpt_oss.py,
 * integrations/moe.py grouped_mm_experts_forward. There is no sdpa form of it: transformers runs
 * the eager one, and so does this file unless flash is asked for.
 * Only unsloth builds it of separate experts, and then runs its attention through flex attention on
 * any card (unsloth_zoo/temporary_patches/gpt_oss.py flex_attention_with_sink). */
#include "blocks/decoder.h"
#include "config/keys.h"

static const struct oom_key_row gpt_oss_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, MUST(d_ff, "intermediate_size"),
	LIKE(d_expert, NULL, 1, d_ff), MUST(n_experts, "num_local_experts"),
	MUST(top_k, "num_experts_per_tok"), OOM_USUAL_KEYS, OOM_BIAS_KEYS(true), OOM_KEYS_END};

static void gpt_oss_parse(struct oom_arch *a)
{
	a->act = OOM_ACT_SIGMOID;
	a->gated = true;
	a->rotary_share = 1;
	oom_check_experts(a);
	a->window = oom_read_sliding(a);
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++)
		a->kind[i] = oom_read_says(a, "layer_types", i, "sliding_attention", (i + 1) % 2) &&
			     a->window;
}

static struct oom_val repeat_kv(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	if (a->n_heads == a->n_kv_heads)
		return x;
	return oom_op_expand_copy(t, x, x.mono,
				  (struct oom_dim){a->n_heads * a->head_dim, "n_heads * head_dim"});
}

/* The scores of s keys and the sink, less their maximum, through a softmax in their own type.
 * layer: the frame of the block, where the weights have a name. */
static struct oom_val with_sinks(struct oom_frame *layer, const struct oom_arch *a,
				 struct oom_val mask, struct oom_val q, struct oom_val k,
				 struct oom_val v)
{
	struct oom_tape *t = layer->t;
	const uint16_t wide = oom_len_plus(t, t->m_bs, 1);
	const struct oom_dim heads = {a->n_heads, "n_heads"},
			     qd = {a->n_heads * a->head_dim, "n_heads * head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val w, c, max, index, p, sinks;

	t->scope = "self_attn";
	sinks = oom_param(t, "sinks", 0, a->n_heads, 0);
	k = oom_name(&f, repeat_kv(t, a, k));   /* key_states and value_states */
	v = oom_name(&f, repeat_kv(t, a, v));
	w = oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, t->m_bss, heads, a->head_dim));
	w = oom_name(&f, oom_is_none(mask) ? w : oom_op_add(t, w, mask));
	sinks = oom_op_expand(t, sinks, t->m_bs, heads);
	c = oom_name(&f, oom_op_cat_into(t, w, sinks, wide, heads));
	index = oom_new(t, "max index", t->m_bs, heads, OOM_I64);
	max = oom_op_gather(t, "max", c, index, t->m_bs, heads);
	c = oom_op_add(t, oom_take(&f, c), max);
	c = oom_name(&f, c);                    /* probs and scores, to the end */
	p = oom_op_slice(t, oom_op_softmax_own(t, c), t->m_bss, heads);
	p = oom_name(&f, p);
	p = oom_op_cast(t, oom_op_dropout(t, p, a->attn_dropout), v.dt);
	oom_forget(&f, w);                      /* attn_weights is reassigned only now */
	p = oom_name(layer, p);
	p = oom_op_bmm(t, "attention", p, v, t->m_bs, qd, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, p));
}

/* Who keeps no scores: flash_attn, and flex attention in unsloth's form of the model. */
static bool is_fused(const struct oom_plan *p)
{
	return p->attn == OOM_ATTN_FLASH ||
	       (p->attn == OOM_ATTN_SDPA && p->moe_experts == OOM_EXPERTS_SEPARATE);
}

static struct oom_val gpt_oss_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_tape *t = layer->t;
	const struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", x, oom_q_width(&at), bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", x, oom_k_width(&at), bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", x, oom_k_width(&at), bias));
	v = oom_name(&f, v);
	q = oom_name(&f, oom_rope_halves(t, q, &l->rope));
	k = oom_name(&f, oom_rope_halves(t, k, &l->rope));
	if (is_fused(t->plan)) {
		oom_param(t, "sinks", 0, a->n_heads, OOM_P_UNUSED);
		q = oom_attention_core(t, &at, q, k, v);
	} else {
		q = with_sinks(layer, a, kind ? l->sliding : l->mask, q, k, v);
	}
	return oom_leave(&f, oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0));
}

/* (up + 1) * gate * sigmoid(alpha * gate), both clamped; gate and up are interleaved. */
static struct oom_val clamped_gate(struct oom_tape *t, const struct oom_arch *a, struct oom_val y)
{
	const struct oom_dim d = {a->top_k * a->d_expert, "top_k * d_expert"};
	struct oom_frame f = {.t = t};
	struct oom_val gate, up, glu;

	y = oom_arg(&f, y);
	gate = oom_op_slice(t, y, y.mono, d);
	up = oom_op_slice(t, y, y.mono, d);
	gate = oom_name(&f, oom_op_unary(t, OOM_CLAMP_SIDE, gate));
	up = oom_name(&f, oom_op_unary(t, OOM_CLAMP, up));
	glu = oom_op_unary(t, OOM_SIGMOID, oom_op_unary(t, OOM_SCALE, gate));
	glu = oom_op_mul(t, gate, glu);
	return oom_leave(&f, oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, up), glu));
}

/* One product of the rows sorted by expert, and the bias of each row's expert. */
struct product {
	const char *name, *weight, *bias;
	struct oom_val ids, offs;
	uint64_t experts, top_k;
};
static struct oom_val biased(struct oom_frame *f, const struct product *p, struct oom_val x,
			     uint64_t in, struct oom_dim out, struct oom_val *rows)
{
	const struct oom_dim all = {p->top_k * out.n, out.text};
	struct oom_tape *t = f->t;
	struct oom_val w, b, y;

	w = oom_param(t, p->weight, p->experts * in, out.n, OOM_P_EXPERT);
	oom_param_stacked(t, w, in);
	b = oom_param(t, p->bias, p->experts, out.n, OOM_P_EXPERT);
	oom_forget(f, *rows);
	*rows = oom_name(f, oom_op_gather(t, "bias of each row", b, p->ids, x.mono, all));
	y = oom_op_grouped_mm(t, p->name, x, w, p->offs, in, out);
	return oom_op_add_inplace(t, y, *rows);
}

static struct oom_val experts(struct oom_frame *layer, const struct oom_decoder_layer *l,
			      uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t width = a->d_expert, h = x.width;
	const struct oom_dim e = {a->n_experts, "n_experts"}, k = {a->top_k, "top_k"},
			     kh = {a->top_k * h, "top_k * d_model"}, d = {h, "d_model"};
	const struct oom_moe apart = {.experts = e.n, .top_k = k.n, .d_expert = width, .glu = OOM_GLU_OAI,
				      .expert_bias = true};
	struct product p = {"gate and up", "gate_up_proj", "gate_up_proj_bias", .experts = e.n,
			    .top_k = k.n};
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val w, b, index, scores, perm, rows = oom_none(), sel, mask, y;

	(void)kind;
	x = oom_arg(&f, x);
	t->scope = "router";
	w = oom_param(t, "weight", e.n, h, 0);
	b = oom_param(t, "bias", 0, e.n, 0);
	scores = oom_op_matmul_param(t, "router logits", x, w, b, e);
	oom_router_keeps(t, e.n, k.n, scores);
	index = oom_name(&f, oom_new(t, "top-k index", x.mono, k, OOM_I64));
	scores = oom_op_gather(t, "top-k value", scores, index, x.mono, k);
	scores = oom_op_softmax_own(t, scores);
	if (t->plan->moe_experts == OOM_EXPERTS_SEPARATE)
		return oom_leave(&f, oom_moe_separate_experts(t, &apart, oom_take(&f, x), scores,
							      oom_take(&f, index)));
	t->scope = "experts";
	p.ids = oom_name(&f, oom_new(t, "sorted experts", x.mono, k, OOM_I64));
	perm = oom_name(&f, oom_new(t, "permutation", x.mono, k, OOM_I64));
	y = oom_new(t, "row of each choice", x.mono, k, OOM_I64);
	sel = oom_op_gather(t, "dispatched", x, y, x.mono, kh);
	scores = oom_op_gather(t, "sorted scores", scores, perm, x.mono, k);
	p.offs = oom_name(&f, oom_new(t, "offsets", OOM_MONO_ONE, e, OOM_I32));
	mask = oom_name(&f, oom_new(t, "sentinel mask", x.mono, k, OOM_U8));
	sel = oom_name(&f, oom_op_masked_inplace(t, sel, mask));        /* to the end */
	y = biased(&f, &p, sel, h, (struct oom_dim){2 * width, "2 * d_expert"}, &rows);
	y = clamped_gate(t, a, y);
	p.name = "down";
	p.weight = "down_proj";
	p.bias = "down_proj_bias";
	y = biased(&f, &p, y, width, d, &rows);
	y = oom_op_masked_inplace(t, oom_op_mul(t, y, scores), oom_take(&f, mask));
	oom_forget(&f, p.offs);
	y = oom_op_gather(t, "combined", y, oom_new(t, "inverse permutation", x.mono, k, OOM_I64),
			  x.mono, kh);
	y = oom_op_sum(t, y, x.mono, d);
	oom_forget(&f, rows);
	oom_forget(&f, sel);
	oom_forget(&f, p.ids);
	oom_forget(&f, perm);
	oom_forget(&f, index);
	return oom_leave(&f, oom_op_cast(t, y, x.dt));
}

static struct oom_val gpt_oss_prepare(struct oom_frame *f, const struct oom_arch *a,
				      struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;
	const struct oom_plan *real = t->plan;
	struct oom_plan plan = *real;

	if (plan.attn == OOM_ATTN_SDPA)
		plan.attn = is_fused(real) ? OOM_ATTN_FLASH : OOM_ATTN_EAGER;
	t->plan = &plan;
	l->mask = oom_name_shared(f, oom_causal_mask(t, 0, dt));
	if (a->window)
		l->sliding = oom_name_shared(f, oom_causal_mask(t, a->window, dt));
	t->plan = real;
	for (int i = 0; i < 2; i++)
		oom_buffer(t, a->head_dim / 2, OOM_F32);
	/* tables of half the head */
	l->rope = oom_rope_tables(t, a->head_dim / 2 ? a->head_dim / 2 : 1, dt, 0);
	l->rope = oom_name_tables(f, l->rope);
	return x;
}

const struct oom_family oom_family_gpt_oss = {
	.name = "gpt_oss",
	.summary = "attention sinks, alternating sliding windows, experts with biases and clamped "
		   "gates",
	.source = "transformers 5.12 models/gpt_oss/modeling_gpt_oss.py",
	.one_sample = true,
	.types = OOM_TYPE("gpt_oss"),
	.norm = OOM_NORM_RMS_FP32,
	.lora_targets = "q_proj+v_proj",
	.keys = gpt_oss_keys,
	.parse = gpt_oss_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .kinds = true,
			       .mixer = gpt_oss_attention, .feed_forward = experts,
			       .prepare = gpt_oss_prepare),
};
