/* Gated delta nets with a softmax attention every few layers: Qwen3-Next, Qwen 3.5 (dense and with
 * experts), OLMo Hybrid. Reference: transformers 5.12,
 * models/{qwen3_next,qwen3_5,qwen3_5_moe,olmo_hybrid}/modeling_*.py, without the
 * flash-linear-attention and causal_conv1d kernels. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { NEXT, QWEN35, QWEN35_MOE, OLMO };
enum { TYPE, K_HEADS, V_HEADS, DK, DV, KERNEL, NORM_TOPK, ROPE, NEG_EIGVAL };  /* extra[] */
enum { FULL = 0, LINEAR = 1, DENSE = 2 };                               /* kinds */

static const struct oom_family_type types[] = {
	{"qwen3_next", NULL}, {"qwen3_5_text", NULL}, {"qwen3_5_moe_text", NULL},
	{"olmo_hybrid", NULL}, {NULL, NULL},
};

static void parse_linear(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const bool olmo = a->extra[TYPE] == OLMO;
	const struct oom_delta m = {
		.k_heads = oom_read_count_or(r, "linear_num_key_heads", olmo ? a->n_heads : 0),
		.v_heads = oom_read_count_or(r, "linear_num_value_heads", olmo ? a->n_heads : 0),
		.dk = oom_read_count_or(r, "linear_key_head_dim", 0),
		.dv = oom_read_count_or(r, "linear_value_head_dim", 0),
	};
	struct oom_delta n = m;

	if (olmo && m.k_heads && !m.dk)
		n.dk = (uint64_t)(0.75 * (double)a->d_model / (double)m.k_heads);
	if (olmo && !m.dv)
		n.dv = 2 * n.dk;
	a->extra[K_HEADS] = n.k_heads;
	a->extra[V_HEADS] = n.v_heads;
	a->extra[DK] = n.dk;
	a->extra[DV] = n.dv;
	a->extra[KERNEL] = oom_read_count(r, "linear_conv_kernel_dim", 1);
	a->extra[NEG_EIGVAL] = oom_read_bool(r, "linear_allow_neg_eigval", true);
	oom_delta_check(r, &n, a->extra[KERNEL]);
}

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t read = oom_read_count_or(r, "full_attention_interval", 4),
		       every = read ? read : 4;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);
	const struct oom_key *only = oom_read_key(r, "mlp_only_layers");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		bool linear = type ? !strcmp(type, "linear_attention") : (i + 1) % every != 0;
		bool dense = a->extra[TYPE] == NEXT &&
			     (!a->n_experts || (sparse && (i + 1) % sparse));

		for (uint32_t j = 0; a->extra[TYPE] == NEXT && only && only->type == OOM_KEY_LIST &&
				     j < only->n_items;
		     j++)
			dense |= oom_read_item_real(r, "mlp_only_layers", j, -1) == (double)i;
		a->kind[i] = (uint8_t)((linear ? LINEAR : FULL) | (dense ? DENSE : 0));
	}
}

static void parse_experts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->n_experts = oom_read_count_or(r, "num_experts", 0);
	if (!a->n_experts)
		return;
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
	a->d_shared = oom_read_count(r, "shared_expert_intermediate_size", 1);
	a->extra[NORM_TOPK] = a->extra[TYPE] == QWEN35_MOE ||
			      oom_read_bool(r, "norm_topk_prob", true);
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *theta;

	a->extra[TYPE] = (uint64_t)(a->type - types);
	a->norm = a->extra[TYPE] == OLMO ? OOM_NORM_RMS_FP32 : OOM_NORM_RMS_PLUS1;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->rotary_share = oom_read_real(r, "partial_rotary_factor",
					a->extra[TYPE] == OLMO ? 1 : 0.25);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	theta = oom_read_key(r, "rope_parameters");
	a->extra[ROPE] = a->extra[TYPE] != OLMO ||
			 (theta && theta->type == OOM_KEY_OBJECT &&
			  oom_read_real(r, "rope_parameters.rope_theta", 0) > 0);
	a->d_ff = a->extra[TYPE] == QWEN35_MOE ? 0 : oom_read_count(r, "intermediate_size", 1);
	if (a->extra[TYPE] == NEXT || a->extra[TYPE] == QWEN35_MOE)
		parse_experts(a);
	parse_linear(a);
	parse_kinds(a);
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the flash-linear-attention kernels; with them training needs far less.", a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* -exp(A_log) * softplus(a + dt_bias), in fp32. */
static struct oom_val decay(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t heads = a->extra[V_HEADS];
	struct oom_val log = oom_param(t, "A_log", 0, heads,
				       a->extra[TYPE] == OLMO ? OOM_P_FP32 : 0),
		       e;

	e = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, log, OOM_F32)));
	x = oom_op_cast(t, x, OOM_F32);
	x = oom_op_unary(t, OOM_SOFTPLUS, oom_op_add(t, x, oom_param(t, "dt_bias", 0, heads, 0)));
	return oom_op_mul(t, e, x);
}

/* What the delta rule reads: queries, keys, values after their convolution, gate, and the inputs
 * of beta and the decay. */
struct inputs {
	struct oom_val q, k, v, z, b, a;
};

static void convolved(struct oom_tape *t, const struct oom_arch *a, struct oom_val mixed,
		      struct inputs *in, struct oom_hold *held)
{
	const uint64_t *e = a->extra;
	const struct oom_dim kd = {e[K_HEADS] * e[DK], "key heads * dk"},
			     vd = {e[V_HEADS] * e[DV], "value heads * dv"};
	const struct oom_dim parts[3] = {kd, kd, vd};
	struct oom_val p[3];

	mixed = oom_hold(t, held,
			 oom_short_conv(t, "conv1d", mixed, e[KERNEL], false, OOM_ACT_SILU));
	oom_op_split(t, mixed, 3, parts, p);
	in->q = p[0];
	in->k = p[1];
	in->v = p[2];
}

/* Qwen3-Next: two projections, interleaved by key head; every part is copied out. */
static struct inputs project_next(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				  struct oom_hold *held)
{
	const uint64_t *e = a->extra;
	const struct oom_dim kd = {e[K_HEADS] * e[DK], "key heads * dk"},
			     vd = {e[V_HEADS] * e[DV], "value heads * dv"};
	const struct oom_dim parts[4] = {kd, kd, vd, vd}, h = {e[V_HEADS], "value heads"},
			     ba[2] = {h, h};
	const struct oom_dim all = {2 * kd.n + 2 * vd.n, "2 * (key heads * dk + value heads * dv)"};
	struct oom_val p[4], q[2], kv;
	struct inputs in;

	kv = oom_hold(t, held, oom_op_linear(t, "in_proj_qkvz", oom_keep(x), all, 0));
	in.b = oom_hold(t, held,
			oom_op_linear(t, "in_proj_ba", x,
				      (struct oom_dim){2 * h.n, "2 * value heads"}, 0));
	oom_op_split(t, kv, 4, parts, p);
	oom_op_split(t, in.b, 2, ba, q);
	/* one value head a key head: the gate stays a view until the norm */
	for (int i = 0; i < 4; i++)
		if (i < 3 || e[V_HEADS] != e[K_HEADS])
			p[i] = oom_op_copy(t, "clone", p[i]);
	in.b = oom_hold(t, held, oom_op_copy(t, "clone", q[0]));
	in.a = oom_hold(t, held, oom_op_copy(t, "clone", q[1]));
	in.z = oom_hold(t, held, p[3]);
	kv = oom_op_cat3(t, oom_keep(p[0]), oom_keep(p[1]), oom_keep(p[2]),
			 (struct oom_dim){2 * kd.n + vd.n, "conv_dim"});
	convolved(t, a, kv, &in, held);
	/* taken over by the parts of the convolution's result */
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return in;
}

static struct inputs project_qwen35(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				    struct oom_hold *held)
{
	const uint64_t *e = a->extra;
	const struct oom_dim kd = {e[K_HEADS] * e[DK], "key heads * dk"},
			     vd = {e[V_HEADS] * e[DV], "value heads * dv"};
	const struct oom_dim h = {e[V_HEADS], "value heads"};
	struct oom_val mixed = oom_op_linear(t, "in_proj_qkv", oom_keep(x),
					     (struct oom_dim){2 * kd.n + vd.n, "conv_dim"}, 0);
	struct inputs in;

	in.z = oom_hold(t, held, oom_op_linear(t, "in_proj_z", oom_keep(x), vd, 0));
	in.b = oom_hold(t, held, oom_op_linear(t, "in_proj_b", oom_keep(x), h, 0));
	in.a = oom_hold(t, held, oom_op_linear(t, "in_proj_a", x, h, 0));
	convolved(t, a, mixed, &in, held);
	return in;
}

/* OLMo Hybrid: a convolution each; conv_state, the padded input, is a copy that nobody reads. */
static struct oom_val olmo_conv(struct oom_tape *t, const struct oom_arch *a, const char *name,
				struct oom_val x, struct oom_hold *held)
{
	const struct oom_dim w = {x.width, x.text};
	struct oom_val state;
	const bool grad = t->grad;

	t->grad = false;
	state = oom_new(t, "conv_state", x.mono, w, (enum oom_dtype)x.dt);
	t->grad = grad;
	oom_hold(t, held, state);
	x = oom_short_conv(t, name, x, a->extra[KERNEL], false, OOM_ACT_SILU);
	oom_drop(t, state);
	return x;
}

static struct inputs project_olmo(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				  struct oom_hold *held)
{
	const uint64_t *e = a->extra;
	const struct oom_dim kd = {e[K_HEADS] * e[DK], "key heads * dk"},
			     vd = {e[V_HEADS] * e[DV], "value heads * dv"};
	const struct oom_dim h = {e[V_HEADS], "value heads"};
	struct inputs in;

	in.q = oom_op_linear(t, "q_proj", oom_keep(x), kd, 0);
	in.k = oom_op_linear(t, "k_proj", oom_keep(x), kd, 0);
	in.v = oom_op_linear(t, "v_proj", oom_keep(x), vd, 0);
	in.q = olmo_conv(t, a, "q_conv1d", in.q, held);
	in.k = olmo_conv(t, a, "k_conv1d", in.k, held);
	in.v = olmo_conv(t, a, "v_conv1d", in.v, held);
	in.b = oom_op_linear(t, "b_proj", oom_keep(x), h, 0);
	in.a = oom_op_linear(t, "a_proj", x, h, 0);
	in.z = oom_none();
	return in;
}

static struct oom_val linear_attention(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x)
{
	const uint64_t *e = a->extra;
	const bool olmo = e[TYPE] == OLMO;
	const struct oom_delta m = {.k_heads = e[K_HEADS],
				    .v_heads = e[V_HEADS],
				    .dk = e[DK],
				    .dv = e[DV]};
	const struct oom_dim h = {x.width, x.text}, all = {m.v_heads * m.dk, "value heads * dk"};
	struct oom_hold held = {.n = 0};
	const char *scope = t->scope;
	struct oom_val y, beta, g;
	struct inputs in;

	oom_hold(t, &held, x);
	x = oom_hold(t, &held, oom_mask_padding(t, x, false));
	in = e[TYPE] == NEXT ? project_next(t, a, x, &held) :
	     olmo	     ? project_olmo(t, a, oom_keep(x), &held) :
			       project_qwen35(t, a, x, &held);
	t->scope = "linear_attn";
	if (!olmo) {
		beta = oom_hold(t, &held, oom_op_unary(t, OOM_SIGMOID, in.b));
		g = decay(t, a, in.a);
	}
	if (m.v_heads != m.k_heads) {
		in.q = oom_op_expand_copy(t, in.q, t->m_bs, all);
		in.k = oom_op_expand_copy(t, in.k, t->m_bs, all);
	}
	if (olmo) {
		beta = oom_op_unary(t, OOM_SIGMOID, in.b);
		if (e[NEG_EIGVAL])
			beta = oom_op_unary(t, OOM_SCALE, beta);
		oom_hold(t, &held, beta);
		g = decay(t, a, in.a);
	}
	oom_hold(t, &held, g);
	oom_hold(t, &held, in.q);
	oom_hold(t, &held, in.k);
	oom_hold(t, &held, in.v);
	y = oom_hold(t, &held, oom_delta_rule(t, &m, in.q, in.k, in.v, g, beta));
	if (olmo)
		in.z = oom_hold(
			t, &held,
			oom_op_linear(t, "g_proj", x,
				      (struct oom_dim){m.v_heads * m.dv, "value heads * dv"}, 0));
	else if (e[TYPE] == NEXT && m.v_heads == m.k_heads)
		in.z = oom_hold(t, &held, oom_op_copy(t, "clone", in.z));
	y = oom_delta_norm(t, olmo ? "o_norm" : "norm", y, in.z, m.dv);
	y = oom_op_linear(t, olmo ? "o_proj" : "out_proj", y, h, 0);
	oom_release(t, &held);
	t->scope = scope;
	return y;
}

static struct oom_val full_attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const bool olmo = a->extra[TYPE] == OLMO;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);

	at.rope = a->extra[ROPE] ? &rope : NULL;
	at.rot_dim = oom_rot_dim(a);
	at.mask = l->mask;
	at.qk_norm = true;
	at.qk_norm_full = olmo;
	at.gate_in_q = !olmo;
	return oom_attention(t, &at, x);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = a->extra[NORM_TOPK],
				  .scores_in_model_type = true,
				  .shared_gate = true};

	if (a->n_experts && !(kind & DENSE))
		return oom_moe_mlp(t, &m, x);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), false);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	/* OLMo's attention layers: norms after */
	const bool post = a->extra[TYPE] == OLMO && !(kind & LINEAR);
	struct oom_val h;

	h = post ? oom_share(t, x) : oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	h = kind & LINEAR ? linear_attention(t, a, h) : full_attention(t, l, h);
	if (post)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = oom_op_add(t, x, h);
	h = post ? oom_share(t, x) :
		   oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = feed_forward(t, a, kind, h);
	if (post)
		h = oom_norm(t, a->norm, "post_feedforward_layernorm", h, 0);
	return oom_op_add(t, x, h);
}

/* Qwen 3.5 keeps positions for time, height and width of every sequence: tables of [b, s, dim]
 * from three of freqs. */
static struct oom_rope tables(struct oom_tape *t, const struct oom_arch *a, uint64_t rot,
			      enum oom_dtype dt)
{
	const uint16_t s = t->m_s;
	struct oom_val freqs;
	struct oom_rope r;

	if (a->extra[TYPE] != QWEN35 && a->extra[TYPE] != QWEN35_MOE)
		return oom_rope_tables(t, rot, dt, 2);
	freqs = oom_new(t, "freqs of three axes", t->m_bs, (struct oom_dim){rot, "rotary_dim"},
			OOM_F32);
	t->m_s = t->m_bs;
	r = oom_rope_tables(t, rot, dt, 2);
	t->m_s = s;
	oom_drop(t, freqs);
	return r;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t rot = oom_rot_dim(a);
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .rope = {oom_none(), oom_none()}};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	dt = (enum oom_dtype)x.dt;
	l.mask = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	if (a->extra[ROPE])
		l.rope = tables(t, a, rot ? rot : a->head_dim, dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_qwen3_next = {
	.name = "qwen3_next",
	.summary = "gated delta nets, every few layers softmax attention; gated feed-forward or "
		   "experts",
	.source = "transformers 5.12 models/qwen3_next/modeling_qwen3_next.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
