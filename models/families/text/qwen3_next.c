/* Gated delta nets with a softmax attention every few layers: Qwen3-Next, Qwen 3.5 (dense and with
 * experts), OLMo Hybrid. Reference: transformers 5.12,
 * models/{qwen3_next,qwen3_5,qwen3_5_moe,olmo_hybrid}/modeling_*.py, without the
 * flash-linear-attention and causal_conv1d kernels. */
#include <stdio.h>
#include <string.h>

#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

enum { FULL = 0, LINEAR = 1, DENSE = 2 };                               /* kinds */

struct delta_net;
/* What the delta rule reads: queries, keys, values after their convolution, gate, and the inputs
 * of beta and the decay. */
struct inputs {
	struct oom_val q, k, v, z, b, a;
};
typedef struct inputs (*project_fn)(struct oom_frame *f, const struct delta_net *n,
				    struct oom_val x);

/* What sets the types apart. */
struct delta_net_kind {
	enum oom_norm norm;
	project_fn project;
	bool experts;           /* when the config has some */
	bool norm_topk;         /* whatever norm_topk_prob says */
	bool some_dense;        /* decoder_sparse_step and mlp_only_layers leave layers without */
	bool all_sparse;        /* no intermediate_size */
	bool three_axes;        /* positions for time, height and width of every sequence */
	bool gate_late;         /* of one value head a key head, copied out only after the rule */
	/* OLMo: attention layers with norms after them, queries and keys normed as a whole, no gate,
	 * positions only with a rope_theta; linear layers as wide as the heads where the config is
	 * silent, their decay in fp32 */
	bool olmo;
	double rotary;          /* share of a head that is rotated */
};

struct delta_net {
	uint64_t k_heads, v_heads, dk, dv, kernel;
	bool norm_topk, rope, neg_eigval;
};
OOM_OWN(delta_net, struct delta_net);

static const struct oom_key_row keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, OOM_USUAL_KEYS, ACT(act, "hidden_act", "silu"),
	OOM_BIAS_KEYS(false), OR_OWN(struct delta_net, k_heads, "linear_num_key_heads", 0),
	OR_OWN(struct delta_net, v_heads, "linear_num_value_heads", 0),
	OR_OWN(struct delta_net, dk, "linear_key_head_dim", 0),
	OR_OWN(struct delta_net, dv, "linear_value_head_dim", 0),
	MUST_OWN(struct delta_net, kernel, "linear_conv_kernel_dim"),
	FLAG_OWN(struct delta_net, neg_eigval, "linear_allow_neg_eigval", true), OOM_KEYS_END};

static const struct delta_net_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

static struct oom_delta rule_of(const struct delta_net *n)
{
	return (struct oom_delta){.k_heads = n->k_heads, .v_heads = n->v_heads, .dk = n->dk,
				  .dv = n->dv};
}

static void parse_linear(struct oom_arch *a, const struct delta_net_kind *kind)
{
	struct delta_net *n = delta_net_own(a);
	struct oom_delta m;

	if (kind->olmo) {
		n->k_heads = n->k_heads ? n->k_heads : a->n_heads;
		n->v_heads = n->v_heads ? n->v_heads : a->n_heads;
		if (!n->dk)
			n->dk = (uint64_t)(0.75 * (double)a->d_model / (double)n->k_heads);
		n->dv = n->dv ? n->dv : 2 * n->dk;
	}
	m = rule_of(n);
	oom_delta_check(&a->rd, &m, n->kernel);
}

static void parse_layers(struct oom_arch *a, const struct delta_net_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const uint64_t read = oom_read_count_or(r, "full_attention_interval", 4),
		       every = read ? read : 4;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);
	const struct oom_key *only = oom_read_key(r, "mlp_only_layers");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		bool linear = type ? !strcmp(type, "linear_attention") : (i + 1) % every != 0;
		bool dense = kind->some_dense && (!a->n_experts || (sparse && (i + 1) % sparse));

		for (uint32_t j = 0; kind->some_dense && only && only->type == OOM_KEY_LIST &&
				     j < only->n_items;
		     j++)
			dense |= oom_read_item_real(r, "mlp_only_layers", j, -1) == (double)i;
		a->kind[i] = (uint8_t)((linear ? LINEAR : FULL) | (dense ? DENSE : 0));
	}
}

static void parse_experts(struct oom_arch *a, const struct delta_net_kind *kind)
{
	struct oom_reader *r = &a->rd;

	a->n_experts = oom_read_count_or(r, "num_experts", 0);
	if (!a->n_experts)
		return;
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
	a->d_shared = oom_read_count(r, "shared_expert_intermediate_size", 1);
	delta_net_own(a)->norm_topk = kind->norm_topk || oom_read_bool(r, "norm_topk_prob", true);
	oom_check_experts(a);
}

static void delta_net_parse(struct oom_arch *a)
{
	const struct delta_net_kind *kind = kind_of(a);
	struct oom_reader *r = &a->rd;
	const struct oom_key *rope = oom_read_key(r, "rope_parameters");

	a->norm = kind->norm;
	a->rotary_share = oom_read_real(r, "partial_rotary_factor", kind->rotary);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	delta_net_own(a)->rope = !kind->olmo ||
				 (rope && rope->type == OOM_KEY_OBJECT &&
				  oom_read_real(r, "rope_parameters.rope_theta", 0) > 0);
	a->d_ff = kind->all_sparse ? 0 : oom_read_count(r, "intermediate_size", 1);
	if (kind->experts)
		parse_experts(a, kind);
	parse_linear(a, kind);
	parse_layers(a, kind);
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the flash-linear-attention kernels; with them training needs far less.", a->model_type);
}

/* -exp(A_log) * softplus(a + dt_bias), in fp32. */
static struct oom_val decay(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t heads = delta_net_of(a)->v_heads;
	struct oom_val e = oom_param(t, "A_log", 0, heads, kind_of(a)->olmo ? OOM_P_FP32 : 0);

	e = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, e, OOM_F32)));
	x = oom_op_cast(t, x, OOM_F32);
	x = oom_op_unary(t, OOM_SOFTPLUS, oom_op_add(t, x, oom_param(t, "dt_bias", 0, heads, 0)));
	return oom_op_mul(t, e, x);
}

static struct oom_dim key_width(const struct delta_net *n)
{
	return (struct oom_dim){n->k_heads * n->dk, "key heads * dk"};
}

static struct oom_dim value_width(const struct delta_net *n)
{
	return (struct oom_dim){n->v_heads * n->dv, "value heads * dv"};
}

/* Queries, keys and values: parts of the convolved projection. */
static void convolved(struct oom_frame *f, const struct delta_net *n, struct oom_val mixed,
		      struct inputs *in)
{
	const struct oom_dim kd = key_width(n), parts[3] = {kd, kd, value_width(n)};
	struct oom_val p[3];

	mixed = oom_short_conv(f->t, "conv1d", mixed, n->kernel, false, OOM_ACT_SILU);
	oom_op_split(f->t, oom_name(f, mixed), 3, parts, p);
	in->q = p[0];
	in->k = p[1];
	in->v = p[2];
}

/* Qwen3-Next: two projections, interleaved by key head; every part is copied out. */
static struct inputs project_next(struct oom_frame *f, const struct delta_net *n, struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"},
			     parts[4] = {kd, kd, vd, vd}, two[2] = {h, h};
	const struct oom_dim all = {2 * kd.n + 2 * vd.n, "2 * (key heads * dk + value heads * dv)"};
	struct oom_tape *t = f->t;
	struct oom_val p[4], q[2], ba, mixed;
	struct inputs in;

	mixed = oom_name(f, oom_op_linear(t, "in_proj_qkvz", x, all, 0));
	ba = oom_op_linear(t, "in_proj_ba", x, (struct oom_dim){2 * h.n, "2 * value heads"}, 0);
	ba = oom_name(f, ba);
	oom_op_split(t, mixed, 4, parts, p);
	oom_op_split(t, ba, 2, two, q);
	/* one value head a key head: the gate stays a view until the norm */
	for (int i = 0; i < 4; i++)
		if (i < 3 || n->v_heads != n->k_heads)
			p[i] = oom_op_copy(t, "clone", p[i]);
	oom_name_each(f, p, 4);
	in.b = oom_name(f, oom_op_copy(t, "clone", q[0]));
	in.a = oom_name(f, oom_op_copy(t, "clone", q[1]));
	in.z = p[3];
	mixed = oom_op_cat3(t, p[0], p[1], p[2], (struct oom_dim){2 * kd.n + vd.n, "conv_dim"});
	convolved(f, n, mixed, &in);
	for (int i = 0; i < 3; i++)             /* names of the convolution's parts now */
		oom_forget(f, p[i]);
	return in;
}

static struct inputs project_qwen35(struct oom_frame *f, const struct delta_net *n,
				    struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"},
			     all = {2 * kd.n + vd.n, "conv_dim"};
	struct oom_tape *t = f->t;
	struct oom_val mixed = oom_op_linear(t, "in_proj_qkv", x, all, 0);
	struct inputs in;

	in.z = oom_name(f, oom_op_linear(t, "in_proj_z", x, vd, 0));
	in.b = oom_name(f, oom_op_linear(t, "in_proj_b", x, h, 0));
	in.a = oom_name(f, oom_op_linear(t, "in_proj_a", x, h, 0));
	convolved(f, n, mixed, &in);
	return in;
}

/* OLMo Hybrid: a convolution each; conv_state, the padded input, is a copy that nobody reads. */
static struct oom_val olmo_conv(struct oom_frame *f, const struct delta_net *n, const char *name,
				struct oom_val x)
{
	oom_name(f, oom_new_like(f->t, "conv_state", x, (enum oom_dtype)x.dt));
	return oom_short_conv(f->t, name, x, n->kernel, false, OOM_ACT_SILU);
}

static struct inputs project_olmo(struct oom_frame *f, const struct delta_net *n, struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"};
	struct oom_tape *t = f->t;
	struct inputs in = {.z = oom_none()};

	in.q = oom_op_linear(t, "q_proj", x, kd, 0);
	in.k = oom_op_linear(t, "k_proj", x, kd, 0);
	in.v = oom_op_linear(t, "v_proj", x, vd, 0);
	in.q = olmo_conv(f, n, "q_conv1d", in.q);
	in.k = olmo_conv(f, n, "k_conv1d", in.k);
	in.v = olmo_conv(f, n, "v_conv1d", in.v);
	in.b = oom_op_linear(t, "b_proj", x, h, 0);
	in.a = oom_op_linear(t, "a_proj", x, h, 0);
	return in;
}

/* beta and g, by which the rule forgets. */
static void gates(struct oom_frame *f, const struct oom_arch *a, const struct inputs *in,
		  struct oom_val *beta, struct oom_val *g)
{
	*beta = oom_op_unary(f->t, OOM_SIGMOID, in->b);
	if (kind_of(a)->olmo && delta_net_of(a)->neg_eigval)
		*beta = oom_op_unary(f->t, OOM_SCALE, *beta);
	*beta = oom_name(f, *beta);
	*g = oom_name(f, decay(f->t, a, in->a));
}

static struct oom_val linear_attention(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x)
{
	const struct delta_net_kind *kind = kind_of(a);
	const struct delta_net *n = delta_net_of(a);
	const struct oom_delta m = rule_of(n);
	const struct oom_dim h = {x.width, x.text}, all = {m.v_heads * m.dk, "value heads * dk"};
	struct oom_frame f = {.t = t};
	const char *scope = t->scope;
	struct oom_val y, beta, g;
	struct inputs in;

	x = oom_name(&f, oom_mask_padding(t, oom_arg(&f, x), false));
	in = kind->project(&f, n, x);
	t->scope = "linear_attn";
	if (!kind->olmo)
		gates(&f, a, &in, &beta, &g);
	if (m.v_heads != m.k_heads) {
		in.q = oom_op_expand_copy(t, in.q, t->m_bs, all);
		in.k = oom_op_expand_copy(t, in.k, t->m_bs, all);
	}
	if (kind->olmo)
		gates(&f, a, &in, &beta, &g);
	in.q = oom_name(&f, in.q);
	in.k = oom_name(&f, in.k);
	in.v = oom_name(&f, in.v);
	y = oom_name(&f, oom_delta_rule(t, &m, in.q, in.k, in.v, g, beta));
	if (kind->olmo)
		in.z = oom_name(&f, oom_op_linear(t, "g_proj", x, value_width(n), 0));
	else if (kind->gate_late && m.v_heads == m.k_heads)
		in.z = oom_name(&f, oom_op_copy(t, "clone", in.z));
	y = oom_delta_norm(t, kind->olmo ? "o_norm" : "norm", y, in.z, m.dv);
	y = oom_leave(&f, oom_op_linear(t, kind->olmo ? "o_proj" : "out_proj", y, h, 0));
	t->scope = scope;
	return y;
}

static struct oom_val full_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);

	at.rope = delta_net_of(a)->rope ? &rope : NULL;
	at.rot_dim = oom_rot_dim(a);
	at.mask = l->mask;
	at.qk_norm = true;
	at.qk_norm_full = kind_of(a)->olmo;
	at.gate_in_q = !kind_of(a)->olmo;
	return oom_attention(t, &at, x);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				   struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared, .act = a->act,
				  .norm_topk = delta_net_of(a)->norm_topk,
				  .scores_in_model_type = true, .shared_gate = true};

	if (a->n_experts && !(layer & DENSE))
		return oom_moe_mlp(t, &m, x);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), false);
}

static struct oom_val delta_net_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t layer = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const bool after = kind_of(a)->olmo && !(layer & LINEAR);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	h = after ? x : oom_norm(t, a->norm, "input_layernorm", x, 0);
	t->selection.within = layer & LINEAR ? "linear_attn" : "self_attn";
	h = layer & LINEAR ? linear_attention(t, a, h) : full_attention(t, l, h);
	t->selection.within = NULL;
	if (after)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = after ? x : oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = feed_forward(t, a, layer, h);
	if (after)
		h = oom_norm(t, a->norm, "post_feedforward_layernorm", h, 0);
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* Qwen 3.5's tables: [b, s, dim] from three of freqs. */
static struct oom_rope tables(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt)
{
	const uint64_t rot = oom_rot_dim(a) ? oom_rot_dim(a) : a->head_dim;
	const uint16_t s = t->m_s;
	struct oom_frame f = {.t = t};
	struct oom_rope r;

	if (!kind_of(a)->three_axes)
		return oom_rope_tables(t, rot, dt, 2);
	oom_name(&f, oom_new(t, "freqs of three axes", t->m_bs, (struct oom_dim){rot, "rotary_dim"},
			     OOM_F32));
	t->m_s = t->m_bs;
	r = oom_rope_tables(t, rot, dt, 2);
	t->m_s = s;
	oom_leave(&f, oom_none());
	return r;
}

static struct oom_val delta_net_prepare(struct oom_frame *f, const struct oom_arch *a,
					struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s));
	if (!delta_net_of(a)->rope)
		return x;
	l->rope = oom_name_tables(f, tables(t, a, dt));
	return x;
}

static const struct oom_decoder delta_net_decoder = {
	.embed = "embed_tokens",
	.norm = "norm",
	.position_ids = true,
	.kinds = true,
	.block = delta_net_block,
	.prepare = delta_net_prepare,
};

static const struct delta_net_kind qwen3_next = {
	.norm = OOM_NORM_RMS_PLUS1, .project = project_next, .rotary = 0.25, .experts = true,
	.some_dense = true, .gate_late = true};
static const struct delta_net_kind qwen3_5 = {
	.norm = OOM_NORM_RMS_PLUS1, .project = project_qwen35, .rotary = 0.25, .three_axes = true};
static const struct delta_net_kind qwen3_5_moe = {
	.norm = OOM_NORM_RMS_PLUS1, .project = project_qwen35, .rotary = 0.25, .three_axes = true,
	.experts = true, .all_sparse = true, .norm_topk = true};
static const struct delta_net_kind olmo_hybrid = {
	.norm = OOM_NORM_RMS_FP32, .project = project_olmo, .rotary = 1, .olmo = true};

static const struct oom_family_type types[] = {
	{"qwen3_next", &qwen3_next}, {"qwen3_5_text", &qwen3_5},
	{"qwen3_5_moe_text", &qwen3_5_moe}, {"olmo_hybrid", &olmo_hybrid}, {NULL, NULL},
};

const struct oom_family oom_family_qwen3_next = {
	.name = "qwen3_next",
	.summary = "gated delta nets, every few layers softmax attention; gated feed-forward or "
		   "experts",
	.source = "transformers 5.12 models/qwen3_next/modeling_qwen3_next.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.keys = keys,
	.parse = delta_net_parse,
	.decoder = &delta_net_decoder,
};
