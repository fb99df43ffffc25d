/* Laguna: Llama-like, with heads counted by layer, a gate for every head, sliding layers,
 * sigmoid-routed experts. Reference: transformers 5.12, models/laguna/modeling_laguna.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

/* kinds: and four times the index of the number of heads */
enum { SLIDES = 1, DENSE = 2, MOST_COUNTS = 16 };

struct laguna {
	uint64_t rot[2];                /* rotated part of a head: full attention, sliding */
	uint64_t n_counts, counts[MOST_COUNTS];         /* numbers of heads in use */
	bool softcap;
};
OOM_OWN(laguna, struct laguna);

static const struct oom_key_row laguna_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), OOM_GROUPED_KEYS, OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), OOM_BIAS_KEYS(false), OR(window, "sliding_window", 0),
	MUST(n_experts, "num_experts"), MUST(top_k, "num_experts_per_tok"),
	MUST(d_expert, "moe_intermediate_size"), MUST(d_shared, "shared_expert_intermediate_size"),
	OOM_KEYS_END};

/* The index of a number of heads among those in use. */
static uint64_t head_count(struct oom_arch *a, uint64_t heads)
{
	struct laguna *own = laguna_own(a);

	for (uint64_t i = 0; i < own->n_counts; i++)
		if (own->counts[i] == heads)
			return i;
	if (own->n_counts == MOST_COUNTS) {
		oom_read_fail(&a->rd,
			      "num_attention_heads_per_layer: more than %d different numbers",
			      MOST_COUNTS);
		return 0;
	}
	own->counts[own->n_counts] = heads;
	return own->n_counts++;
}

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool slides = oom_read_says(a, "layer_types", i, "sliding_attention", false),
			   dense = oom_read_says(a, "mlp_layer_types", i, "dense", i == 0);
		const double heads = oom_read_item_real(r, "num_attention_heads_per_layer",
							(uint32_t)i, (double)a->n_heads);

		if (!(heads >= 1 && heads <= 65536) || (uint64_t)heads % a->n_kv_heads) {
			oom_read_fail(r,
				      "num_attention_heads_per_layer: %g is no multiple of "
				      "num_key_value_heads (%llu)",
				      heads, (unsigned long long)a->n_kv_heads);
			return;
		}
		any |= slides;
		a->kind[i] = (uint8_t)((slides ? SLIDES : 0) | (dense ? DENSE : 0) |
				       head_count(a, (uint64_t)heads) << 2);
	}
	if (!any)
		a->window = 0;
}

static void laguna_parse(struct oom_arch *a)
{
	static const char *const share[2] = {
		"rope_parameters.full_attention.partial_rotary_factor",
		"rope_parameters.sliding_attention.partial_rotary_factor"};
	struct laguna *own = laguna_own(a);
	struct oom_reader *r = &a->rd;

	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	own->softcap = oom_read_real(r, "moe_router_logit_softcapping", 0) > 0;
	oom_check_experts(a);
	for (int i = 0; i < 2; i++) {
		own->rot[i] = (uint64_t)((double)a->head_dim *
					 oom_read_real(r, share[i], i ? 1 : 0.5));
		if (!own->rot[i] || own->rot[i] > a->head_dim)
			oom_read_fail(r, "partial_rotary_factor must be above 0 and at most 1");
	}
	if (!r->status)
		parse_kinds(a);
}

/* Sigmoid scores of a 16-bit product in fp32; a frozen bias of the choice alone; normalised, in
 * the model's type. */
static struct oom_val mixture(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .act = a->act};
	const struct oom_dim e = {m.experts, "n_experts"}, k = {m.top_k, "top_k"};
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val shared, p, v, index;

	x = oom_arg(&f, x);
	shared = oom_shared_expert(t, a, x);
	t->scope = "gate";
	p = oom_param(t, "weight", m.experts, x.width, 0);
	oom_param(t, "e_score_correction_bias", 0, m.experts, OOM_P_FROZEN);
	p = oom_op_cast(t, oom_op_matmul_param(t, "router logits", x, p, oom_none(), e), OOM_F32);
	oom_router_keeps(t, m.experts, m.top_k, p);
	if (laguna_of(a)->softcap) {
		p = oom_op_unary(t, OOM_TANH, oom_op_unary(t, OOM_SCALE, p));
		p = oom_op_unary(t, OOM_SCALE, p);
	}
	p = oom_op_unary(t, OOM_SIGMOID, p);
	oom_scratch(t, "scores for choice", x.mono, m.experts, OOM_F32);
	index = oom_name(&f, oom_new(t, "top-k index", x.mono, k, OOM_I64));
	v = oom_name(&f, oom_op_gather(t, "top-k value", p, index, x.mono, k));
	p = oom_op_sum(t, v, v.mono, D(1));
	v = oom_op_cast(t, oom_op_div(t, oom_take(&f, v), p), dt);
	v = oom_moe_experts(t, &m, oom_take(&f, x), v, oom_take(&f, index));
	return oom_leave(&f, oom_op_add(t, oom_op_unary(t, OOM_SCALE, v), shared));
}

static struct oom_val laguna_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				       uint8_t kind, struct oom_val x)
{
	const struct laguna *own = laguna_of(l->a);
	struct oom_attn at = oom_layer_attn(layer->t, l, kind & SLIDES);

	at.heads = own->counts[kind >> 2];
	at.rot_dim = own->rot[kind & SLIDES];
	at.qk_norm = at.head_gate = true;
	return oom_attention(layer->t, &at, x);
}

static struct oom_val laguna_feed_forward(struct oom_frame *layer, const struct oom_decoder_layer *l,
					  uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;

	return kind & DENSE ? oom_gated_mlp(layer->t, x, a->act, D(a->d_ff), false) :
			      mixture(layer->t, a, x);
}

/* A mask and tables for each kind of layer there is. */
static struct oom_val laguna_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;

	for (int i = 0; i < 2; i++) {
		if ((i && !a->window) || !oom_any_layer(t, a, SLIDES, i ? SLIDES : 0))
			continue;
		*(i ? &l->sliding : &l->mask) =
			oom_name_shared(f, oom_causal_mask(t, i ? a->window : 0, dt));
		*(i ? &l->local : &l->rope) =
			oom_name_tables(f, oom_rope_tables(t, laguna_of(a)->rot[i], dt, 2));
	}
	return x;
}

const struct oom_family oom_family_laguna = {
	.name = "laguna",
	.summary = "heads by layer, a gate for every head, sigmoid-routed experts",
	.source = "transformers 5.12 models/laguna/modeling_laguna.py",
	.types = OOM_TYPE("laguna"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = laguna_keys,
	.parse = laguna_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .kinds = true, .mixer = laguna_attention,
			       .feed_forward = laguna_feed_forward, .prepare = laguna_prepare),
};
