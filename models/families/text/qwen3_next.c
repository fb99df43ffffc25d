/* Gated delta nets with a softmax attention every few layers: Qwen3-Next, Qwen 3.5 (dense and with
 * experts), OLMo Hybrid. Reference: transformers 5.12,
 * models/{qwen3_next,qwen3_5,qwen3_5_moe,olmo_hybrid}/modeling_*.py, without the
 * flash-linear-attention and causal_conv1d kernels. */
#include "config/keys.h"
#include "qwen3_next.h"

enum { FULL = 0, LINEAR = 1, DENSE = 2 };                               /* kinds */

static const struct oom_key_row keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, OOM_USUAL_KEYS, ACT(act, "hidden_act", "silu"),
	OOM_BIAS_KEYS(false), OR_OWN(struct delta_net, k_heads, "linear_num_key_heads", 0),
	OR_OWN(struct delta_net, v_heads, "linear_num_value_heads", 0),
	OR_OWN(struct delta_net, dk, "linear_key_head_dim", 0),
	OR_OWN(struct delta_net, dv, "linear_value_head_dim", 0),
	MUST_OWN(struct delta_net, kernel, "linear_conv_kernel_dim"),
	FLAG_OWN(struct delta_net, neg_eigval, "linear_allow_neg_eigval", true), OOM_KEYS_END};

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
	m = delta_net_rule(n);
	oom_delta_check(&a->rd, &m, n->kernel);
}

static void parse_layers(struct oom_arch *a, const struct delta_net_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const uint64_t read = oom_read_count_or(r, "full_attention_interval", 4),
		       every = read ? read : 4;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool linear = oom_read_says(a, "layer_types", i, "linear_attention",
						  (i + 1) % every),
			   dense = kind->some_dense &&
				   (!a->n_experts || (sparse && (i + 1) % sparse) ||
				    oom_read_lists(a, "mlp_only_layers", i));

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
	const struct delta_net_kind *kind = delta_net_kind_of(a);
	struct oom_reader *r = &a->rd;
	const struct oom_key *rope = oom_read_key(r, "rope_parameters");

	a->norm = kind->norm;
	a->rotary_share = oom_read_rotary(a, kind->rotary);
	delta_net_own(a)->rope = !kind->olmo ||
				 (rope && rope->type == OOM_KEY_OBJECT &&
				  oom_read_real(r, "rope_parameters.rope_theta", 0) > 0);
	a->d_ff = kind->all_sparse ? 0 : oom_read_count(r, "intermediate_size", 1);
	if (kind->experts)
		parse_experts(a, kind);
	parse_linear(a, kind);
	parse_layers(a, kind);
	oom_warn_kernels(a, "the flash-linear-attention kernels", "them");
}

static struct oom_val full_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_layer_attn(t, l, false);

	at.rot_dim = oom_rot_dim(a);
	at.qk_norm = true;
	at.qk_norm_full = delta_net_kind_of(a)->olmo;
	at.gate_in_q = !delta_net_kind_of(a)->olmo;
	return oom_attention(t, &at, x);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				   struct oom_val x)
{
	const struct oom_moe m = OOM_MOE(a, .d_shared = a->d_shared,
					 .norm_topk = delta_net_of(a)->norm_topk,
					 .scores_in_model_type = true, .shared_gate = true);

	if (a->n_experts && !(layer & DENSE))
		return oom_moe_mlp(t, &m, x);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), false);
}

static struct oom_val delta_net_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t layer = oom_layer_kind(a, i);
	const bool after = delta_net_kind_of(a)->olmo && !(layer & LINEAR);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	h = after ? x : oom_norm(t, a->norm, "input_layernorm", x, 0);
	t->selection.within = layer & LINEAR ? "linear_attn" : "self_attn";
	h = layer & LINEAR ? delta_net_attention(t, a, h) : full_attention(t, l, h);
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

	if (!delta_net_kind_of(a)->three_axes)
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
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_causal_mask(t, 0, dt));
	if (delta_net_of(a)->rope)
		l->rope = oom_name_tables(f, tables(t, a, dt));
	return x;
}

static const struct delta_net_kind qwen3_next = {
	.norm = OOM_NORM_RMS_PLUS1, .project = delta_net_project_next, .rotary = 0.25, .experts = true,
	.some_dense = true, .gate_late = true};
static const struct delta_net_kind qwen3_5 = {
	.norm = OOM_NORM_RMS_PLUS1, .project = delta_net_project_qwen35, .rotary = 0.25, .three_axes = true};
static const struct delta_net_kind qwen3_5_moe = {
	.norm = OOM_NORM_RMS_PLUS1, .project = delta_net_project_qwen35, .rotary = 0.25, .three_axes = true,
	.experts = true, .all_sparse = true, .norm_topk = true};
static const struct delta_net_kind olmo_hybrid = {
	.norm = OOM_NORM_RMS_FP32, .project = delta_net_project_olmo, .rotary = 1, .olmo = true};

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
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .kinds = true, .block = delta_net_block,
			       .prepare = delta_net_prepare),
};
