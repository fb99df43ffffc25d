/* Llama 4's text decoder: complex rotary positions on three layers of four, unweighted norms of
 * queries and keys, chunked attention, experts that all see every token (scaled by a sigmoid router
 * that is zero for those not chosen). Reference: transformers 5.12,
 * models/llama4/modeling_llama4.py (Llama4ForCausalLM). */
#include "blocks/decoder.h"
#include "config/keys.h"

enum { NO_ROPE = 1, DENSE = 2, CHUNKED = 4 };   /* kind[] */

struct llama4 {
	uint64_t d_dense;               /* feed-forward of layers without experts */
	bool qk_norm, tuned;            /* tuned: queries without positions are scaled by theirs */
};
OOM_OWN(llama4, struct llama4);

static const struct oom_key_row llama4_keys[] = {
	OR(vocab, "vocab_size", 202048), OR(d_model, "hidden_size", 5120),
	OR(d_ff, "intermediate_size", 8192), LIKE(d_expert, NULL, 1, d_ff),
	LIKE(d_shared, NULL, 1, d_ff),
	OR_OWN(struct llama4, d_dense, "intermediate_size_mlp", 16384),
	OR(n_layers, "num_hidden_layers", 48), OR(n_heads, "num_attention_heads", 40),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads), OR(n_experts, "num_local_experts", 16),
	OR(top_k, "num_experts_per_tok", 1), OR(head_dim, "head_dim", 128), OOM_USUAL_KEYS,
	OR(window, "attention_chunk_size", 8192), ACT(act, "hidden_act", "silu"),
	OOM_BIAS_KEYS(false), FLAG_OWN(struct llama4, qk_norm, "use_qk_norm", true),
	FLAG_OWN(struct llama4, tuned, "attn_temperature_tuning", true), OOM_KEYS_END};

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t every = oom_read_count_or(r, "no_rope_layer_interval", 4);
	const uint64_t step = oom_read_count_or(r, "interleave_moe_layer_step", 1);
	const bool listed = oom_read_listed(a, "moe_layers");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool usual = !every || (i + 1) % every;
		const bool rope = oom_read_item_real(r, "no_rope_layers", (uint32_t)i, usual) != 0;
		const bool chunked = oom_read_says(a, "layer_types", i, "chunked_attention", rope),
			   sparse = listed ? oom_read_lists(a, "moe_layers", i) :
					     !step || (i + 1) % step == 0;

		a->kind[i] = (uint8_t)((rope ? 0 : NO_ROPE) | (sparse ? 0 : DENSE) |
				       (chunked ? CHUNKED : 0));
	}
}

static void llama4_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->gated = true;
	a->rotary_share = 1;
	if (!a->n_heads || !a->n_kv_heads || !a->d_model || !a->vocab || !a->d_ff ||
	    !a->n_experts || !a->top_k || !llama4_of(a)->d_dense) {
		oom_read_fail(r, "llama4: sizes, heads and experts must be positive");
		return;
	}
	oom_check_experts(a);
	parse_kinds(a);
}

struct llama4_layer {
	struct oom_decoder_layer base;
	struct oom_val freqs;           /* complex frequencies, as pairs of fp32 */
};

/* view_as_complex(x.float()) * frequencies; both results and both copies are locals until the
 * function returns. */
static void rotate(struct oom_tape *t, struct oom_val *q, struct oom_val *k, struct oom_val freqs)
{
	const enum oom_dtype dt = q->dt;
	struct oom_frame f = {.t = t};
	struct oom_val qo, ko;

	qo = oom_name(&f, oom_op_cast(t, *q, OOM_F32));
	ko = oom_name(&f, oom_op_cast(t, *k, OOM_F32));
	qo = oom_name(&f, oom_op_mul(t, qo, freqs));
	ko = oom_name(&f, oom_op_mul(t, ko, freqs));
	*q = oom_give(&f, oom_op_cast(t, qo, dt));
	*k = oom_give(&f, oom_op_cast(t, ko, dt));
	oom_leave(&f, oom_none());
}

static struct oom_val llama4_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				       uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, l, kind & CHUNKED);
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.caller = layer;
	at.softmax_as_is = at.no_cast_back = true;
	x = oom_arg(&f, x);
	q = oom_op_linear(t, "q_proj", x, oom_q_width(&at), bias);
	k = oom_op_linear(t, "k_proj", x, oom_k_width(&at), bias);
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", x, oom_k_width(&at), bias));
	if (!(kind & NO_ROPE)) {
		rotate(t, &q, &k, ((const struct llama4_layer *)l)->freqs);
		if (llama4_of(a)->qk_norm) {
			q = oom_norm(t, OOM_NORM_RMS_PLAIN, "qk_norm", q, a->head_dim);
			k = oom_norm(t, OOM_NORM_RMS_PLAIN, "qk_norm", k, a->head_dim);
		}
	} else if (llama4_of(a)->tuned) { /* each position's fp32 factor widens the product */
		const enum oom_dtype dt = q.dt;

		q = oom_op_mul(t, q, oom_new(t, "attention scales", t->m_s, D(1), OOM_F32));
		q = oom_op_cast(t, q, dt);
	}
	k = oom_op_heads(t, k);
	q = oom_op_heads(t, q);
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_leave(&f, oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0));
	return oom_name(layer, q);              /* attention_states */
}

/* Scores [tokens, experts]: the top logits scattered into -inf, through a sigmoid in fp32; the logits
 * are returned beside them, until then a name. */
static struct oom_val route(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim e = {a->n_experts, "n_experts"}, k = {a->top_k, "top_k"};
	struct oom_frame f = {.t = t};
	struct oom_val logits, index, s;
	enum oom_dtype dt;

	/* a subclass of nn.Linear, which transformers does not quantise (integrations/bitsandbytes.py);
	 * PEFT's nn.Linear wrapper around a router that returns two tensors fails */
	t->approximate |= oom_lora_takes_all(t);
	logits = oom_name(&f, oom_op_linear(t, "router", x, e, OOM_NO_QUANT));
	dt = logits.dt;
	index = oom_name(&f, oom_new(t, "top-k index", x.mono, k, OOM_I64));
	s = oom_op_gather(t, "top-k value", logits, index, x.mono, k);
	s = oom_op_gather(t, "scatter_", s, oom_take(&f, index), x.mono, e);
	s = oom_op_unary(t, OOM_SIGMOID, oom_op_cast(t, s, OOM_F32));
	return oom_leave(&f, oom_op_cast(t, s, dt));
}

static struct oom_val llama4_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t E = a->n_experts, ff = a->d_expert, h = x.width;
	const struct oom_dim all = {E * h, "n_experts * d_model"}, one = {E * ff, "n_experts * d_expert"},
			     both = {2 * E * ff, "n_experts * 2 * d_expert"}, half[2] = {one, one};
	struct oom_frame f = {.t = t};
	struct oom_val scores, in, w, p[2], y, shared;

	x = oom_arg(&f, x);
	scores = route(t, a, x);
	in = oom_op_expand_copy(t, x, x.mono, all);
	in = oom_name(&f, oom_op_mul(t, in, oom_op_copy(t, "reshape", scores)));
	t->scope = "experts";
	w = oom_param(t, "gate_up_proj", E * h, 2 * ff, OOM_P_EXPERT);
	oom_param_stacked(t, w, h);
	y = oom_name(&f, oom_op_bmm(t, "gate and up", in, w, x.mono, both, 0));
	oom_op_split(t, y, 2, half, p);
	w = oom_param(t, "down_proj", E * ff, h, OOM_P_EXPERT);
	oom_param_stacked(t, w, ff);
	p[0] = oom_op_mul(t, p[1], oom_activation(t, a->act, p[0]));
	p[0] = oom_name(&f, oom_op_bmm(t, "down", p[0], w, x.mono, all, 0));
	oom_forget(&f, y);                      /* gate and up, names of the experts' module */
	oom_tape_flops(t, x.mono, 6.0 * (double)E * (double)h * (double)ff, (enum oom_dtype)x.dt, oom_trains(t, w));
	shared = oom_shared_expert(t, a, x);
	y = oom_op_sum(t, p[0], x.mono, (struct oom_dim){h, "d_model"});
	return oom_leave(&f, oom_op_add_inplace(t, shared, y));
}

static struct oom_val llama4_feed_forward(struct oom_frame *layer, const struct oom_decoder_layer *l,
					  uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;

	return kind & DENSE ? oom_gated_mlp(layer->t, x, a->act, D(llama4_of(a)->d_dense), false) :
			      llama4_experts(layer->t, a, x);
}

/* polar(1, inv_freq * position), times the attention scaling, under no_grad. */
static struct oom_val frequencies(struct oom_tape *t, uint64_t d)
{
	const struct oom_dim half = {d / 2, "head_dim / 2"}, full = {d, "head_dim"};
	const bool grad = t->grad;
	struct oom_frame f = {.t = t};
	struct oom_val one, y;

	oom_buffer(t, d / 2, OOM_F32);
	oom_buffer(t, d / 2, OOM_F32);
	t->grad = false;
	oom_name(&f, oom_new(t, "rotary freqs", t->m_s, half, OOM_F32));
	one = oom_name(&f, oom_new(t, "ones", t->m_s, half, OOM_F32));
	y = oom_new(t, "polar", t->m_s, full, OOM_F32);
	oom_forget(&f, one);
	y = oom_leave(&f, oom_op_unary(t, OOM_SCALE, y));
	t->grad = grad;
	return y;
}

static struct oom_val llama4_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *base, struct oom_val x)
{
	struct llama4_layer *l = (struct llama4_layer *)base;

	oom_decoder_masks(f, base, CHUNKED, true, x.dt);
	l->freqs = oom_name_shared(f, frequencies(f->t, a->head_dim));
	return x;
}

const struct oom_family oom_family_llama4 = {
	.name = "llama4",
	.summary = "chunked attention, complex rotary positions, experts over every token beside a "
		   "shared one",
	.source = "transformers 5.12 models/llama4/modeling_llama4.py",
	.types = OOM_TYPE("llama4_text"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = llama4_keys,
	.parse = llama4_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .kinds = true,
			       .layer_size = sizeof(struct llama4_layer), .mixer = llama4_attention,
			       .feed_forward = llama4_feed_forward, .prepare = llama4_prepare),
};
