/* Pre-norm decoders with rotary positions: Llama and the many types that differ from it by
 * switches. Reference: transformers 5.12,
 * models/{llama,mistral,qwen2,qwen3,gemma,gemma2,granite,phi3,olmo2,mixtral,qwen2_moe,
 * olmoe,...}/modeling_*.py. */
#include "llama.h"

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope, local;    /* local: the sliding layers' own tables (Gemma 3) */
	struct oom_val mask[2];         /* full, sliding */
};

static struct oom_val fused_attention(struct oom_tape *t, const struct oom_attn *at,
				      struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const struct oom_dim q = {at->heads * at->d, "n_heads * head_dim"},
			     kv = {at->kv_heads * at->d, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {q, kv, kv};
	const uint64_t rot = at->rot_dim ? at->rot_dim : at->d;
	const struct oom_val arg = x;           /* the module's until it returns */
	struct oom_val p[3], local[3], qkv;

	qkv = oom_op_linear(t, "qkv_proj", oom_keep(arg),
			    (struct oom_dim){q.n + 2 * kv.n,
					     "(n_heads + 2 * n_kv_heads) * head_dim"},
			    0);
	oom_op_split(t, qkv, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
	oom_rope_pair(t, &p[0], &p[1], at->rope, at->heads, at->kv_heads, at->d, rot);
	/* torch.cat([rotated, rest]) although nothing rests: a copy */
	if (rot == at->d) {
		p[0] = oom_op_copy(t, "cat", p[0]);
		p[1] = oom_op_copy(t, "cat", p[1]);
	}
	for (int i = 0; i < 3; i++)             /* query_states and its like, to the end */
		local[i] = oom_share(t, p[i]);
	x = oom_op_linear(t, "o_proj", oom_attention_core(t, at, p[0], p[1], p[2]), h, 0);
	for (int i = 2; i >= 0; i--)
		oom_drop(t, local[i]);
	oom_drop(t, arg);
	return x;
}

static struct oom_val fused_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim f[2] = {D(a->d_ff), D(a->d_ff)}, h = {x.width, x.text};
	struct oom_val p[2], gate;

	oom_op_split(t, oom_op_linear(t, "gate_up_proj", oom_keep(x), D(2 * a->d_ff), 0), 2, f, p);
	gate = oom_share(t, p[0]);              /* a view of both halves, a local to the end */
	p[0] = oom_activation(t, a->act, p[0]);
	p[0] = oom_op_linear(t, "down_proj", oom_op_mul(t, p[1], p[0]), h, 0);
	oom_drop(t, gate);
	oom_done(t, x);
	return p[0];
}

/* where(x > 0, alpha_p * x * x + beta * x, (expm1(min(x, eps)) - x) * alpha_n + beta * x),
 * written out in Python. */
static struct oom_val xielu(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val ap = oom_param(t, "alpha_p", 0, 1, 0), an = oom_param(t, "alpha_n", 0, 1, 0),
		       pos, neg, cond;

	oom_buffer(t, 1, dt);
	oom_buffer(t, 1, dt);
	ap = oom_op_unary(t, OOM_SOFTPLUS, ap);
	an = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SOFTPLUS, an));
	cond = oom_new(t, "x > 0", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
	pos = oom_op_mul(t, oom_op_mul(t, ap, oom_keep(x)), oom_keep(x));
	pos = oom_op_add(t, pos, oom_op_unary(t, OOM_SCALE, oom_keep(x)));
	neg = oom_op_unary(t, OOM_EXP, oom_op_unary(t, OOM_CLAMP, oom_keep(x)));
	neg = oom_op_mul(t, oom_op_add(t, neg, oom_keep(x)), an);
	neg = oom_op_add(t, neg, oom_op_unary(t, OOM_SCALE, x));
	return oom_op_add(t, oom_op_masked(t, "where", pos, cond), neg);
}

static struct oom_val xielu_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_val y = oom_op_linear(t, "up_proj", oom_keep(x), D(a->d_ff), 0);

	y = oom_op_linear(t, "down_proj", xielu(t, y), h, 0);
	oom_done(t, x);
	return y;
}

/* BitNet: down(norm(act(gate(x)) * up(x))). */
static struct oom_val sub_norm_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, f = D(a->d_ff);
	struct oom_val gate = oom_activation(t, a->act,
					     oom_op_linear(t, "gate_proj", oom_keep(x), f, 0));

	gate = oom_op_mul(t, gate, oom_op_linear(t, "up_proj", oom_keep(x), f, 0));
	gate = oom_op_linear(t, "down_proj", oom_norm(t, a->norm, "ffn_sub_norm", gate, 0), h, 0);
	oom_done(t, x);
	return gate;
}

/* Moshi: both halves are picked out of one projection. */
static struct oom_val moshi_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, f = D(a->d_ff);
	struct oom_val y = oom_op_linear(t, "fc1", oom_keep(x), D(2 * a->d_ff), 0), g;

	g = oom_activation(t, a->act, oom_op_slice(t, oom_keep(y), y.mono, f));
	y = oom_op_linear(t, "fc2", oom_op_mul(t, g, oom_op_slice(t, y, y.mono, f)), h, 0);
	oom_done(t, x);
	return y;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const uint64_t flags = a->extra[FLAGS];
	/* Phi MoE's sparsemixer always picks two */
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = is_type(a, "phimoe") && a->n_experts > 1 ? 2 : a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = a->extra[NORM_TOPK],
				  .scores_in_model_type = flags & SCORES_CAST,
				  .shared_gate = flags & SHARED_GATE,
				  .router_frozen_bias = flags & ERNIE_ROUTER,
				  .topk_first = flags & TOPK_FIRST,
				  .gate_fp32 = !strcmp(a->model_type, "hunyuan_v1_moe")};

	if (!strncmp(a->model_type, "granitemoe", 10))
		return oom_moe_parallel_experts(t, &m, x);
	if (a->n_experts && !(kind & 2))
		return oom_moe_mlp(t, &m, x);
	if (a->extra[MOSHI])
		return moshi_mlp(t, a, x);
	if (flags & XIELU)
		return xielu_mlp(t, a, x);
	if (flags & SUB_NORM)
		return sub_norm_mlp(t, a, x);
	if (flags & (FUSED | FUSED_MLP))
		return fused_mlp(t, a, x);
	if (oom_llama_kinds[a->extra[KIND]].up)
		return oom_plain_mlp(t, x, oom_llama_kinds[a->extra[KIND]].up, oom_llama_kinds[a->extra[KIND]].down,
				     a->act, D(a->d_ff), a->mlp_bias);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
}

/* residual + h, with Granite's multiplier or Phi-3's dropout before the sum */
static struct oom_val join(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val h)
{
	if (a->extra[FLAGS] & MULTIPLIERS)
		h = oom_op_unary(t, OOM_SCALE, h);
	return oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
}

/* OLMo rotates in its tables' type and converts the results. */
static bool olmo(const struct oom_arch *a)
{
	return !strncmp(a->model_type, "olmo", 4) || is_type(a, "flex_olmo");
}

/* The attention's switches. */
static struct oom_attn attention_of(struct oom_tape *t, const struct layer *l, uint8_t kind,
				    struct oom_rope *rope)
{
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[FLAGS];
	struct oom_attn at = oom_attn_of(t, a);

	at.layer_names_weights = true;
	at.rope = rope;
	at.mask = l->mask[kind & 1];
	at.qk_norm = flags & QK_NORM;
	at.qk_norm_full = flags & QK_NORM_FULL;
	at.qk_norm_late = flags & QK_NORM_LATE;
	at.rot_dim = oom_rot_dim(a);
	at.rope_fp32 = flags & FP32_ROPE && a->rope_axes != OOM_ROPE_3D_LAYER;
	at.rope_spread = flags & INTERLEAVED && !a->rope_axes;
	at.rope_sections = a->rope_axes == OOM_ROPE_3D_LAYER || a->rope_axes == OOM_ROPE_3D_SPREAD;
	if (flags & LOCAL_ROPE && !(kind & 1))
		at.rope = NULL;
	at.repeat_kv = a->extra[MOSHI] || is_type(a, "nemotron");
	at.rope_cat = is_type(a, "nemotron");
	at.rope_back = olmo(a) && !is_type(a, "olmoe");
	at.views_late = olmo(a) || is_type(a, "stablelm") || is_type(a, "nemotron") ||
			a->extra[MOSHI];
	at.q_scaled = is_type(a, "ministral3");
	at.norm_per_head = a->extra[HEAD_NORMS];
	at.o_square = is_type(a, "helium");
	at.rope_inline = is_type(a, "phi") || is_type(a, "stablelm");
	at.o_norm = flags & SUB_NORM ? "attn_sub_norm" : NULL;
	return at;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[FLAGS];
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const bool post = flags & (SANDWICH | POST_ONLY);
	struct oom_rope rope = flags & (PATTERN_6 | LAYER_ROPES) && kind & 1 ? l->local : l->rope;
	struct oom_attn at = attention_of(t, l, kind, &rope);
	struct oom_val h;

	/* an attention's rotary module, its frequencies twice, though the model's own is used */
	for (int k = 0; k < 2 && is_type(a, "nemotron"); k++)
		oom_buffer(t, at.rot_dim / 2, OOM_F32);
	if (a->extra[MOSHI])                    /* every layer makes its own tables */
		rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	h = flags & POST_ONLY ? oom_share(t, x) :
				oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	if (flags & PARALLEL) {                 /* x + attention(h) + feed_forward(h) */
		struct oom_val y, sum;

		at.o = flags & ALL_BIAS ? "dense" : "o_proj";
		y = oom_attention(t, &at, oom_keep(h));
		if (is_type(a, "phi"))
			y = oom_op_dropout(t, y, a->dropout);
		h = oom_op_dropout(t, feed_forward(t, a, kind, h), a->dropout);
		/* all three are locals until the layer returns */
		sum = oom_op_add(t, oom_keep(y), oom_keep(h));
		sum = oom_op_add(t, sum, x);
		oom_drop(t, y);
		oom_drop(t, h);
		return sum;
	}
	/* the normed input, both branches: names of their own to the end */
	if (is_type(a, "stablelm")) {
		struct oom_val y = oom_attention(t, &at, oom_keep(h)), z;

		x = oom_op_add(t, x, oom_keep(y));
		z = feed_forward(t, a, kind,
				 oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0));
		x = oom_op_add(t, x, oom_op_dropout(t, z, a->dropout));
		oom_drop(t, y);
		oom_drop(t, h);
		return x;
	}
	h = flags & FUSED ? fused_attention(t, &at, h) : oom_attention(t, &at, h);
	if (a->extra[MOSHI]) {
		oom_drop(t, rope.cos);
		oom_drop(t, rope.sin);
	}
	if (post)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = join(t, a, x, h);
	h = flags & POST_ONLY ? oom_share(t, x) :
				oom_norm(t, a->norm,
					 flags & SANDWICH ? "pre_feedforward_layernorm" :
							    "post_attention_layernorm",
					 oom_keep(x), 0);
	h = feed_forward(t, a, kind, h);
	if (post)
		h = oom_norm(t, a->norm, "post_feedforward_layernorm", h, 0);
	return join(t, a, x, h);
}

/* A mask for full attention is made although no layer may use it. */
static bool both_masks(const struct oom_arch *a)
{
	return is_type(a, "ministral") || is_type(a, "qwen2") || is_type(a, "qwen3") ||
	       is_type(a, "qwen2_moe") || is_type(a, "smollm3");
}

/* Masks and rotary tables, which all layers share. */
static void shared_tables(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt,
			  struct layer *l)
{
	const uint64_t flags = a->extra[FLAGS],
		       rot = oom_rot_dim(a);
	const bool fp32 = (flags & FP32_ROPE && flags & INTERLEAVED) ||
			  (olmo(a) && !is_type(a, "olmo3") && !is_type(a, "olmoe"));
	/* tables of their own for sliding layers, where there are any */
	const bool apart = flags & (PATTERN_6 | LAYER_ROPES);

	l->mask[0] = flags & ALTERNATING || !a->window || both_masks(a) ?
			     oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s) :
			     oom_none();
	l->mask[1] = a->window ? oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s) :
				 oom_none();
	/* made only from a mask that is given */
	if (a->extra[MOSHI] && !t->plan->padding_mask) {
		oom_drop(t, l->mask[0]);
		oom_drop(t, l->mask[1]);
		l->mask[0] = l->mask[1] = oom_none();
	}
	l->rope.cos = l->rope.sin = oom_none();
	if (a->rope_axes)
		l->rope = oom_rope_tables_3d(t, rot ? rot : a->head_dim, dt, 2,
					     a->rope_axes != OOM_ROPE_3D_LAYER);
	else if (!a->extra[MOSHI] && (!apart || oom_any_layer(t, a, 1, 0)))
		l->rope = oom_rope_tables(t, rot ? rot : a->head_dim, fp32 ? OOM_F32 : dt, 2);
	l->local.cos = l->local.sin = oom_none();
	if (apart && a->window && oom_any_layer(t, a, 1, 1))
		l->local = oom_rope_tables(t, a->head_dim, dt, 2);
}

/* Head and loss.  Moshi: logits.float(), sliced and copied before the library's usual loss. */
static struct oom_val tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val embed)
{
	if (a->extra[MOSHI])
		t->shift = OOM_SHIFT_LOGITS_FP32;
	return oom_causal_tail(t, a, x, embed);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val ids,
				 struct oom_val *embed)
{
	const uint64_t flags = a->extra[FLAGS], rows = a->vocab + a->extra[EMBED_MORE];
	struct oom_val x;

	t->scope = "embed_tokens";
	*embed = oom_param(t, "weight", rows, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, rows, D(a->d_model));
	if (flags & SCALED_EMBED) {
		oom_buffer(t, 1, x.dt == OOM_F32 && !t->plan->qlora ? OOM_F32 : OOM_DT_BF16);
		x = oom_op_unary(t, OOM_SCALE, x);
	}
	x = oom_input_grads(t, x);
	return flags & MULTIPLIERS ? oom_op_unary(t, OOM_SCALE, x) : x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t depth = oom_depth(t, a->n_layers), cross = a->extra[N_CROSS];
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	x = embeddings(t, a, ids, &embed);
	/* inputs_embeds and position_ids, locals of the model */
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	shared_tables(t, a, (enum oom_dtype)x.dt, &l);
	if (is_type(a, "phi")) {                /* under the embeddings' own name */
		oom_drop(t, first);
		x = oom_op_dropout(t, x, a->embed_dropout);
		first = oom_share(t, x);
	} else {
		x = oom_op_dropout(t, x, a->embed_dropout);
	}
	if (a->extra[FLAGS] & EMBED_NORM)
		x = oom_norm(t, a->norm, "norm", x, 0);
	oom_llama_cross_unused(t, a, cross);
	if (is_type(a, "phi4_multimodal"))
		oom_llama_phi4_unused(t, a);
	x = oom_layers(t, (uint32_t)(depth > cross ? depth - cross : 1), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.local.cos);
	oom_drop_shared(t, l.local.sin);
	oom_drop_shared(t, l.mask[0]);
	oom_drop_shared(t, l.mask[1]);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return tail(t, a, x, embed);
}

const struct oom_family oom_family_llama = {
	.name = "llama",
	.summary = "pre-norm decoder, rotary positions, grouped heads, gated feed-forward or "
		   "experts",
	.source = "transformers 5.12 models/llama/modeling_llama.py",
	.types = oom_llama_types,
	.lora_targets = "q_proj+v_proj",
	.parse = oom_llama_parse,
	.step = step,
};
