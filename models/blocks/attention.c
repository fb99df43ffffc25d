/* Attention layers as transformers writes them: projections, rotary positions, one of three
 * kernels, output. Reference: transformers 5.12, models/llama/modeling_llama.py (LlamaAttention,
 * eager_attention_forward, repeat_kv), integrations/sdpa_attention.py. */
#include "blocks.h"

struct oom_attn oom_attn_of(struct oom_tape *t, const struct oom_arch *a)
{
	return (struct oom_attn){
		.heads = a->n_heads,
		.kv_heads = a->n_kv_heads,
		.d = a->head_dim,
		.dv = a->v_head_dim ? a->v_head_dim : a->head_dim,
		.causal = true,
		.qkv_bias = a->qkv_bias,
		.o_bias = a->o_bias,
		.qk_norm = a->qk_norm,
		.norm = a->norm,
		.dropout = a->attn_dropout,
		.softcap = a->softcap_attn,
		.scale_after = true,
		.q = "q_proj",
		.k = "k_proj",
		.v = "v_proj",
		.o = "o_proj",
		.mq = t->m_bs,
		.mk = t->m_bs,
		.sk = t->m_s,
		.mask = oom_none(),
		.kv_from = oom_none(),
	};
}

struct oom_attn oom_layer_attn(struct oom_tape *t, const struct oom_decoder_layer *l, bool slides)
{
	const struct oom_rope *rope = slides && !oom_is_none(l->local.cos) ? &l->local : &l->rope;
	struct oom_attn at = oom_attn_of(t, l->a);

	at.mask = slides ? l->sliding : l->mask;
	at.rope = oom_is_none(rope->cos) ? NULL : rope;
	return at;
}

/* expand + reshape to all query heads: a copy (none when the heads match). */
static struct oom_val repeat_kv(struct oom_tape *t, const struct oom_attn *a, struct oom_val x,
				uint64_t d)
{
	if (a->heads == a->kv_heads)
		return x;
	/* one head expanded is still a view after the reshape */
	if (a->kv_heads == 1)
		return oom_op_expand(t, x, x.mono,
				     (struct oom_dim){a->heads * d, "n_heads * head_dim"});
	return oom_op_expand_copy(t, x, x.mono,
				  (struct oom_dim){a->heads * d, "n_heads * head_dim"});
}

/* The classes of before 4.48 gave the copies the names of what they copied, which was gone with that (modeling_mistral.py 4.45
 * MistralFlashAttention2.forward, key_states = repeat_kv(key_states, ...)). */
static bool repeats_by_class(const struct oom_tape *t, const struct oom_attn *a)
{
	return t->plan->kv_repeat == OOM_KV_CLASSES && !a->written_out &&
	       (t->plan->attn == OOM_ATTN_SDPA || (t->plan->attn == OOM_ATTN_FLASH && a->repeat_kv_flash));
}

/* softmax(q k^T * scale + mask) v with every matrix in memory. */
static struct oom_val eager(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
			    struct oom_val k, struct oom_val v)
{
	const uint16_t scores = oom_mono_mul(t, a->mq, a->sk);
	const struct oom_dim heads = {a->heads, "n_heads"};
	const enum oom_dtype dt = (enum oom_dtype)q.dt;
	struct oom_frame f = {.t = t};
	struct oom_val w, p;

	k = oom_name(&f, repeat_kv(t, a, k, a->d));     /* key_states */
	v = oom_name(&f, repeat_kv(t, a, v, a->dv));    /* value_states */
	w = oom_op_bmm(t, "scores", q, k, scores, heads, a->d);
	if (a->scale_after)
		w = oom_op_unary(t, OOM_SCALE, w);
	if (a->softcap > 0) {
		w = oom_op_unary(t, OOM_SCALE, w);
		w = oom_op_unary(t, OOM_TANH, w);
		w = oom_op_unary(t, OOM_SCALE, w);
	}
	if (!oom_is_none(a->mask))
		w = oom_op_add(t, w, a->mask);
	w = oom_name(&f, w);
	p = oom_op_softmax(t, w, !a->softmax_as_is);
	if (a->softmax_as_is && !a->scores_local)       /* a statement of its own */
		oom_forget(&f, w);
	if (!a->no_cast_back)
		p = oom_op_cast(t, p, dt);
	if (!a->scores_local)                   /* the scores' name is reassigned only now */
		oom_forget(&f, w);
	p = oom_op_dropout(t, p, a->dropout);
	if (a->weights)
		*a->weights = oom_share(t, p);
	else if (a->caller)
		oom_name(a->caller, oom_share(t, p));
	if (a->returned)
		oom_block_returns(t, p);
	if (a->scores_local)
		p = oom_name(&f, p);
	v = oom_op_bmm(t, "attention", p, v, a->mq,
		       (struct oom_dim){a->heads * a->dv, "n_heads * head_dim"},
		       oom_mono_now(t, a->sk));
	/* context_layer.contiguous() while scores and probabilities still have their names */
	if (a->scores_local) {
		v = oom_op_merge_heads(t, v);
		if (a->scores)
			*a->scores = oom_give(&f, w);
	}
	return oom_leave(&f, v);
}

/* Self-attention of a decoder over a cache: keys and values that are trained stand before its own. */
static void join_prefix(struct oom_tape *t, struct oom_attn *a, struct oom_val *k, struct oom_val *v)
{
	const uint64_t n = oom_prefix_tokens(t);

	if (!n || !a->causal || a->mq != t->m_bs || a->mk != t->m_bs)
		return;
	*k = oom_prefix_joined(t, *k);
	*v = oom_prefix_joined(t, *v);
	a->mk = oom_len_plus(t, t->m_b, n);
	a->sk = oom_len_plus(t, OOM_MONO_ONE, n);
	oom_prefix_taken(t);
}

static struct oom_val attend(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
			     struct oom_val k, struct oom_val v)
{
	struct oom_sdpa s = {.heads = a->heads, .kv_heads = a->kv_heads, .d = a->d, .dv = a->dv,
			     .mq = a->mq, .mk = a->mk, .sk = a->sk,
			     .sq = a->mq == a->mk ? a->sk : a->mq == t->m_bs ? t->m_s : OOM_MONO_ONE,
			     .causal = a->causal, .across = a->across,
			     .gqa = true, .dropout = t->train ? a->dropout : 0};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	q = oom_arg(&f, q);
	k = oom_arg(&f, k);
	v = oom_arg(&f, v);
	switch (a->written_out ? OOM_ATTN_EAGER : (enum oom_attention)t->plan->attn) {
	case OOM_ATTN_SDPA:
		/* use_gqa_in_sdpa: a mask rules grouped heads out */
		if (!oom_is_none(a->mask) || a->repeat_kv || t->plan->kv_repeat != OOM_KV_GROUPED) {
			k = repeat_kv(t, a, k, a->d);
			v = repeat_kv(t, a, v, a->dv);
			s.kv_heads = a->heads;
		}
		y = oom_op_sdpa(t, q, k, v, a->mask, &s);
		break;
	case OOM_ATTN_FLASH:
		if (a->repeat_kv_flash && t->plan->kv_repeat == OOM_KV_CLASSES) {
			k = repeat_kv(t, a, k, a->d);
			v = repeat_kv(t, a, v, a->dv);
			s.kv_heads = a->heads;
		}
		y = oom_op_flash(t, q, k, v, &s);
		break;
	default:
		y = eager(t, a, q, k, v);
		break;
	}
	if (!a->written_out || !a->scores_local)
		y = oom_op_merge_heads(t, y);
	y.perm = false;
	return oom_leave(&f, y);
}

struct oom_val oom_attention_core(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
				  struct oom_val k, struct oom_val v)
{
	struct oom_attn own = *a;

	join_prefix(t, &own, &k, &v);
	return attend(t, &own, q, k, v);
}

enum oom_dtype oom_linear_dtype(const struct oom_tape *t, enum oom_dtype x)
{
	if (!t->amp)
		return x;
	return oom_plan_quantised(t->plan) ? OOM_F32 : (enum oom_dtype)t->amp_dt;
}

struct oom_val oom_weights_before(struct oom_tape *t, uint32_t i, uint64_t heads, enum oom_dtype dt)
{
	if (!i || t->recompute || (t->grad && !t->packing))
		return oom_none();
	return oom_new(t, "attention weights of the layer before", t->m_bss,
		       (struct oom_dim){heads, "n_heads"}, dt);
}

/* Every head through a LayerNorm of its own (weight alone), then joined again: a copy.  One node
 * stands for the norms' inputs and statistics, one per head for its weight.
 * Reference: models/stablelm/modeling_stablelm.py, StableLmLayerNormPerHead. */
static struct oom_val norm_per_head(struct oom_tape *t, const char *name, struct oom_val x,
				    uint64_t heads, uint64_t d)
{
	const bool rg = t->grad && x.rg;
	const struct oom_dim whole = {x.width, x.text};
	const char *scope = t->scope;
	struct oom_val y;

	t->scope = name;
	if (rg)                                 /* split: the heads' gradients are joined */
		oom_op_split(t, x, 1, &whole, &x);
	if (t->grad) {
		y = oom_op_layer_norm(t, name, x, d, false, false);
	} else {                                /* one head at a time is converted */
		y = oom_new_like(t, "native_layer_norm", x, t->amp ? OOM_F32 : (enum oom_dtype)x.dt);
		oom_discard(t, x);
	}
	for (uint64_t i = 0; i < heads; i++) {
		const struct oom_val w = oom_norm_param(t, "weight", d);

		if (t->grad && (y.rg || w.rg)) {
			const int32_t n = oom_node(t, OOM_NODE_CAT, "weight of a head");

			oom_node_edge(t, n, y);
			oom_node_edge(t, n, w);
			y = oom_node_out(t, n, 0, y);
		}
	}
	y = oom_op_copy(t, "cat", y);
	t->scope = scope;
	return y;
}

struct oom_dim oom_q_width(const struct oom_attn *a)
{
	return (struct oom_dim){a->heads * a->d, "n_heads * head_dim"};
}

struct oom_dim oom_k_width(const struct oom_attn *a)
{
	return (struct oom_dim){a->kv_heads * a->d, "n_kv_heads * head_dim"};
}

/* Queries, keys and values as heads, with what stands between a projection and the rotation; the
 * gate beside them. */
static struct oom_val project(struct oom_tape *t, const struct oom_attn *a, struct oom_val x,
			      struct oom_val *q, struct oom_val *k, struct oom_val *v)
{
	const struct oom_dim qd = oom_q_width(a), kd = oom_k_width(a);
	const struct oom_dim vd = {a->kv_heads * a->dv, "n_kv_heads * v_head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	const struct oom_val src = oom_is_none(a->kv_from) ? x : a->kv_from;
	struct oom_val gate = oom_none();

	if (a->gate_in_q) {
		const struct oom_dim halves[2] = {qd, qd};
		struct oom_val p[2];

		*q = oom_op_linear(t, a->q, x,
				   (struct oom_dim){2 * qd.n, "2 * n_heads * head_dim"}, bias);
		oom_op_split(t, *q, 2, halves, p);
		*q = p[0];
		gate = oom_op_copy(t, "clone", p[1]);
	} else {
		*q = oom_op_linear(t, a->q, x, qd, bias);
	}
	if (a->qk_norm && !a->qk_norm_late)
		*q = oom_norm(t, a->norm, a->q_norm ? a->q_norm : "q_norm", *q, a->qk_norm_full ? 0 : a->d);
	if (!a->views_late)
		*q = oom_op_heads(t, *q);
	*k = oom_op_linear(t, a->k, src, kd, bias);
	if (a->qk_norm && !a->qk_norm_late)
		*k = oom_norm(t, a->norm, a->k_norm ? a->k_norm : "k_norm", *k, a->qk_norm_full ? 0 : a->d);
	if (!a->views_late)
		*k = oom_op_heads(t, *k);
	if (a->k_scaled)
		*k = oom_op_unary(t, OOM_SCALE, *k);
	*v = oom_op_linear(t, a->v, src, vd, bias);
	if (a->views_late) {
		*q = oom_op_heads(t, *q);
		*k = oom_op_heads(t, *k);
	}
	*v = oom_op_heads(t, *v);
	if (a->gated)
		gate = oom_op_linear(t, "gate_proj", x, qd, a->gate_bias ? OOM_BIAS : 0);
	return gate;
}

/* The output times a gate: that of the projections, or one number per head from x (Laguna). */
static struct oom_val gate_output(struct oom_frame *f, const struct oom_attn *a, struct oom_val x,
				  struct oom_val gate, struct oom_val y)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt;
	struct oom_tape *t = f->t;

	if (a->gated || a->gate_in_q)
		y = oom_op_mul(t, y, oom_op_unary(t, OOM_SIGMOID, gate));
	if (!a->head_gate)
		return y;
	gate = oom_op_linear(t, "g_proj", x, (struct oom_dim){a->heads, "n_heads"}, 0);
	gate = oom_op_unary(t, OOM_SOFTPLUS, oom_op_cast(t, gate, OOM_F32));
	return oom_op_mul(t, y, oom_name(f, oom_op_cast(t, gate, dt)));
}

static struct oom_val attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_attn own = *a;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, gate;

	x = oom_arg(&f, x);
	gate = oom_name(&f, project(t, a, x, &q, &k, &v));
	if (a->norm_per_head) {
		q = norm_per_head(t, "q_layernorm", q, a->heads, a->d);
		k = norm_per_head(t, "k_layernorm", k, a->kv_heads, a->d);
	}
	if (a->rope)
		oom_attn_rotate(&f, a, &q, &k);
	if (a->q_scaled)
		q = oom_op_mul(t, q, oom_new(t, "attention scale", t->m_s, D(1),
					     (enum oom_dtype)q.dt));
	if (a->qk_norm && a->qk_norm_late) {
		q = oom_norm(t, a->norm, a->q_norm ? a->q_norm : "q_norm", q, a->d);
		k = oom_norm(t, a->norm, a->k_norm ? a->k_norm : "k_norm", k, a->d);
	}
	join_prefix(t, &own, &k, &v);
	if (repeats_by_class(t, a)) {
		k = repeat_kv(t, a, k, a->d);
		v = repeat_kv(t, a, v, a->dv);
		own.kv_heads = a->heads;
	}
	/* query_states and its like live until the module returns */
	q = oom_name(&f, q);
	k = oom_name(&f, k);
	v = oom_name(&f, v);
	if (a->chosen_keys)
		own.mask = a->chosen_keys(&f, a->chosen_by, x);
	q = gate_output(&f, a, x, gate, attend(t, &own, q, k, v));
	if (a->o_norm)
		q = oom_norm(t, a->norm, a->o_norm, q, 0);
	if (a->o_square && q.width != h.n)      /* no step runs so: only the weights count */
		q = oom_op_view(t, q, q.mono, h);
	return oom_leave(&f, oom_op_linear(t, a->o, q, h, a->o_bias ? OOM_BIAS : 0));
}

struct oom_val oom_attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	if (!oom_adaption(t))
		return attention(t, a, x);
	x = oom_arg(&f, x);
	return oom_leave(&f, oom_adaption_added(t, a, x, attention(t, a, x)));
}
