/* LFM2: short gated convolutions with softmax attention between them, dense or with experts.
 * Reference: transformers 5.12, models/{lfm2,lfm2_moe}/modeling_*.py. */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

enum { ATTENTION = 1, EXPERTS = 2 };    /* of kind[] */

struct lfm2_kind {
	bool experts;
};
static const struct oom_family_type lfm2_types[] = {
	{"lfm2", &(const struct lfm2_kind){.experts = false}},
	{"lfm2_moe", &(const struct lfm2_kind){.experts = true}}, {NULL, NULL}};
OOM_KIND(lfm2, struct lfm2_kind);

struct lfm2 {
	uint64_t kernel, dense_layers;
	bool conv_bias, norm_topk, expert_bias;
};
OOM_OWN(lfm2, struct lfm2);

static const struct oom_key_row lfm2_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, OR(max_positions, "max_position_embeddings", 0),
	FLAG(tie, "tie_word_embeddings", true), MUST_OWN(struct lfm2, kernel, "conv_L_cache"),
	FLAG_OWN(struct lfm2, conv_bias, "conv_bias", false), OOM_KEYS_END};
static const struct oom_key_row lfm2_moe_keys[] = {
	MUST0_OWN(struct lfm2, dense_layers, "num_dense_layers"),
	FLAG_OWN(struct lfm2, norm_topk, "norm_topk_prob", true),
	FLAG_OWN(struct lfm2, expert_bias, "use_expert_bias", true), MUST(n_experts, "num_experts"),
	MUST(top_k, "num_experts_per_tok"), MUST(d_expert, "moe_intermediate_size"), OOM_KEYS_END};

static void parse_kinds(struct oom_arch *a)
{
	const bool moe = lfm2_kind_of(a)->experts, some = oom_read_listed(a, "full_attn_idxs");

	if (moe && !oom_read_listed(a, "layer_types"))
		oom_read_fail(&a->rd, "\"layer_types\" is missing; model type %s needs it",
			      a->model_type);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool full = oom_read_says(a, "layer_types", i, "full_attention",
						!some || oom_read_lists(a, "full_attn_idxs", i));

		a->kind[i] = (uint8_t)((full ? ATTENTION : 0) |
				       (moe && i >= lfm2_of(a)->dense_layers ? EXPERTS : 0));
	}
}

/* Two thirds of the size given, scaled, in whole multiples. */
static void parse_width(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t read = oom_read_count_or(r, "block_multiple_of", 256),
		       multiple = read ? read : 1;
	const double scale = oom_read_real(r, "block_ffn_dim_multiplier", -1);

	if (lfm2_kind_of(a)->experts || !oom_read_bool(r, "block_auto_adjust_ff_dim", true))
		return;
	a->d_ff = 2 * a->d_ff / 3;
	if (scale < 0)
		return;
	if (!(scale * (double)a->d_ff < 1e12)) {
		oom_read_fail(r, "block_ffn_dim_multiplier (%g) is out of range", scale);
		return;
	}
	a->d_ff = (uint64_t)(scale * (double)a->d_ff);
	a->d_ff = multiple * ((a->d_ff + multiple - 1) / multiple);
}

static void lfm2_parse(struct oom_arch *a)
{
	struct lfm2 *own = lfm2_own(a);
	struct oom_reader *r = &a->rd;

	a->act = OOM_ACT_SILU;
	a->d_ff = oom_read_count(
		r, oom_read_explicit(r, "block_ff_dim") ? "block_ff_dim" : "intermediate_size", 1);
	a->tie = oom_read_bool(r, "tie_embedding", a->tie);
	if (own->kernel > 1u << 20)
		oom_read_fail(r, "conv_L_cache (%llu) is out of range",
			      (unsigned long long)own->kernel);
	parse_width(a);
	if (lfm2_kind_of(a)->experts)
		oom_read_rows(a, lfm2_moe_keys);
	oom_check_experts(a);
	parse_kinds(a);
	if (!r->status && own->dense_layers >= a->n_layers)
		a->n_experts = 0;
}

/* out_proj(C * conv(B * x)): all three from one projection, the convolution cut to the sequence. */
static struct oom_val short_conv(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct lfm2 *own = lfm2_of(a);
	const struct oom_dim h = {x.width, x.text}, parts[3] = {h, h, h},
			     wide = {3 * h.n, "3 * d_model"};
	const unsigned bias = own->conv_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	x = oom_name(&f, oom_mask_padding(t, oom_arg(&f, x), false));
	oom_op_split(t, oom_op_linear(t, "in_proj", x, wide, bias), 3, parts, p);
	p[0] = oom_name(&f, p[0]);
	y = oom_name(&f, oom_op_mul(t, p[0], p[2]));
	y = oom_short_conv(t, "conv", y, own->kernel, own->conv_bias, OOM_ACT_NONE);
	y = oom_name(&f, y);
	y = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_mul(t, p[1], y)));
	return oom_leave(&f, oom_op_linear(t, "out_proj", y, h, bias));
}

/* Sigmoid scores of a router that is an nn.Linear; the bias, a buffer in fp32, decides the
 * choice alone. */
static struct oom_val mixture(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = OOM_MOE(a, .norm_topk = lfm2_of(a)->norm_topk);
	const struct oom_dim e = {m.experts, "n_experts"}, k = {m.top_k, "top_k"};
	struct oom_frame f = {.t = t};
	struct oom_val p, v, index;
	enum oom_dtype dt;

	x = oom_arg(&f, x);
	t->scope = "gate";
	p = oom_op_linear(t, "gate", x, e, 0);
	dt = p.dt;
	p = oom_op_unary(t, OOM_SIGMOID, p);
	if (lfm2_of(a)->expert_bias) {
		oom_buffer(t, m.experts, OOM_F32);
		oom_scratch(t, "scores for choice", x.mono, m.experts, OOM_F32);
	}
	index = oom_name(&f, oom_new(t, "top-k index", x.mono, k, OOM_I64));
	v = oom_op_cast(t, oom_op_gather(t, "top-k value", p, index, x.mono, k), dt);
	if (m.norm_topk) {
		v = oom_name(&f, v);
		p = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_sum_wide(t, v, v.mono, D(1)));
		v = oom_op_div(t, oom_take(&f, v), p);
	}
	v = oom_op_unary(t, OOM_SCALE, v);
	return oom_moe_experts(t, &m, oom_take(&f, x), v, oom_take(&f, index));
}

static struct oom_val lfm2_feed_forward(struct oom_frame *layer, const struct oom_decoder_layer *l,
					uint8_t kind, struct oom_val x)
{
	static const char *const names[3] = {"w1", "w3", "w2"};
	const struct oom_arch *a = l->a;

	return kind & EXPERTS ? mixture(layer->t, a, x) :
				oom_named_glu(layer->t, x, names, OOM_ACT_SILU, D(a->d_ff), false, false);
}

static struct oom_val lfm2_mixer(struct oom_frame *layer, const struct oom_decoder_layer *l,
				 uint8_t kind, struct oom_val x)
{
	struct oom_attn at = oom_layer_attn(layer->t, l, false);

	if (!(kind & ATTENTION))
		return short_conv(layer->t, l->a, x);
	at.qk_norm = true;
	at.q_norm = "q_layernorm";
	at.k_norm = "k_layernorm";
	at.o = "out_proj";
	at.dropout = 0;
	return oom_attention(layer->t, &at, x);
}

const struct oom_family oom_family_lfm2 = {
	.name = "lfm2",
	.summary = "short gated convolutions, softmax attention between them, gated feed-forward "
		   "or experts",
	.source = "transformers 5.12 models/lfm2/modeling_lfm2.py",
	.types = lfm2_types,
	.norm = OOM_NORM_RMS,
	.lora_targets = "in_proj+q_proj+v_proj",
	.keys = lfm2_keys,
	.parse = lfm2_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "embedding_norm",
			       .position_ids = true, .rope = true, .kinds = true,
			       .mixer = lfm2_mixer, .feed_forward = lfm2_feed_forward,
			       .norms = {"operator_norm", "ffn_norm"}),
};
