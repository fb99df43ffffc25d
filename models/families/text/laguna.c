/* Laguna: Llama-like, with heads counted by layer, a gate for every head, sliding layers,
 * sigmoid-routed experts. Reference: transformers 5.12, models/laguna/modeling_laguna.py. */
#include <string.h>

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
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i),
			   *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);
		const bool slides = type && !strcmp(type, "sliding_attention"),
			   dense = mlp ? !strcmp(mlp, "dense") : i == 0;
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

struct laguna_layer {
	struct oom_decoder_layer base;
	struct oom_rope rope[2];        /* full, sliding */
	struct oom_val mask[2];
};

/* Sigmoid scores of a 16-bit product in fp32; a frozen bias of the choice alone; normalised, in
 * the model's type. */
static struct oom_val mixture(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .act = a->act};
	const struct oom_dim e = {m.experts, "n_experts"}, k = {m.top_k, "top_k"},
			     d_shared = {a->d_shared, "d_shared"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val shared, p, v, index;

	x = oom_arg(&f, x);
	t->selection.shared = true;
	shared = oom_gated_mlp(t, x, a->act, d_shared, false);
	t->selection.shared = false;
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

static struct oom_val laguna_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct laguna_layer *l = ctx;
	const struct oom_arch *a = l->base.a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const int slides = kind & SLIDES;
	struct oom_rope rope = l->rope[slides];
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", x, 0);

	at.heads = laguna_of(a)->counts[kind >> 2];
	at.rope = &rope;
	at.rot_dim = laguna_of(a)->rot[slides];
	at.mask = l->mask[slides];
	at.qk_norm = true;
	at.head_gate = true;
	x = oom_name(&f, oom_op_add(t, x, oom_attention(t, &at, h)));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = kind & DENSE ? oom_gated_mlp(t, h, a->act, D(a->d_ff), false) : mixture(t, a, h);
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* A mask and tables for each kind of layer there is. */
static struct oom_val laguna_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *base, struct oom_val x)
{
	struct laguna_layer *l = (struct laguna_layer *)base;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_tape *t = f->t;

	for (int i = 0; i < 2; i++) {
		l->mask[i] = l->rope[i].cos = l->rope[i].sin = oom_none();
		if ((i && !a->window) || !oom_any_layer(t, a, SLIDES, i ? SLIDES : 0))
			continue;
		l->mask[i] = oom_name_shared(f, oom_make_mask(t, true, i ? a->window : 0, dt, t->m_b,
							      t->m_s, t->m_s));
		l->rope[i] = oom_name_tables(f, oom_rope_tables(t, laguna_of(a)->rot[i], dt, 2));
	}
	return x;
}

static const struct oom_decoder laguna_decoder = {
	.embed = "embed_tokens",
	.norm = "norm",
	.position_ids = true,
	.kinds = true,
	.layer_size = sizeof(struct laguna_layer),
	.block = laguna_block,
	.prepare = laguna_prepare,
};

const struct oom_family oom_family_laguna = {
	.name = "laguna",
	.summary = "heads by layer, a gate for every head, sigmoid-routed experts",
	.source = "transformers 5.12 models/laguna/modeling_laguna.py",
	.types = OOM_TYPE("laguna"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = laguna_keys,
	.parse = laguna_parse,
	.decoder = &laguna_decoder,
};
