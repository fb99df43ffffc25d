/* Llama 4's text decoder: complex rotary positions on three layers of four, unweighted norms of
 * queries and keys, chunked attention, experts that all see every token (scaled by a sigmoid router
 * that is zero for those not chosen). Reference: transformers 5.12,
 * models/llama4/modeling_llama4.py (Llama4ForCausalLM). */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

enum { D_DENSE, QK_NORM, TUNED };               /* extra[] */
enum { NO_ROPE = 1, DENSE = 2, CHUNKED = 4 };   /* kind[] */

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t every = oom_read_count_or(r, "no_rope_layer_interval", 4);
	const uint64_t step = oom_read_count_or(r, "interleave_moe_layer_step", 1);
	const struct oom_key *moe = oom_read_key(r, "moe_layers");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool usual = !every || (i + 1) % every;
		const bool rope = oom_read_item_real(r, "no_rope_layers", (uint32_t)i, usual) != 0;
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		bool sparse = !step || (i + 1) % step == 0;

		if (moe && moe->type == OOM_KEY_LIST) {
			sparse = false;
			for (uint32_t j = 0; j < moe->n_items; j++)
				sparse |= oom_read_item_real(r, "moe_layers", j, -1) == (double)i;
		}
		a->kind[i] = (uint8_t)((rope ? 0 : NO_ROPE) | (sparse ? 0 : DENSE) |
				       ((type ? !strcmp(type, "chunked_attention") : rope) ?
						CHUNKED :
						0));
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count_or(r, "vocab_size", 202048);
	a->d_model = oom_read_count_or(r, "hidden_size", 5120);
	a->d_ff = a->d_expert = a->d_shared = oom_read_count_or(r, "intermediate_size", 8192);
	a->extra[D_DENSE] = oom_read_count_or(r, "intermediate_size_mlp", 16384);
	a->n_layers = oom_read_count_or(r, "num_hidden_layers", 48);
	a->n_heads = oom_read_count_or(r, "num_attention_heads", 40);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->n_experts = oom_read_count_or(r, "num_local_experts", 16);
	a->top_k = oom_read_count_or(r, "num_experts_per_tok", 1);
	if (!a->n_heads || !a->n_kv_heads || !a->d_model || !a->vocab || !a->d_ff ||
	    !a->n_experts || !a->top_k || !a->extra[D_DENSE]) {
		oom_read_fail(r, "llama4: sizes, heads and experts must be positive");
		return;
	}
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	a->head_dim = oom_read_count_or(r, "head_dim", 128);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->window = oom_read_count_or(r, "attention_chunk_size", 8192);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->gated = true;
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->rotary_share = 1;
	a->extra[QK_NORM] = oom_read_bool(r, "use_qk_norm", true);
	a->extra[TUNED] = oom_read_bool(r, "attn_temperature_tuning", true);
	parse_kinds(a);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val freqs;           /* complex frequencies, as pairs of fp32 */
	struct oom_val mask[2];         /* full, chunked */
};

/* view_as_complex(x.float()) * frequencies; both results and both copies are locals until the
 * function returns. */
static void rotate(struct oom_tape *t, struct oom_val *q, struct oom_val *k, struct oom_val freqs)
{
	const enum oom_dtype dt = (enum oom_dtype)q->dt;
	struct oom_val qf = oom_op_cast(t, *q, OOM_F32), kf = oom_op_cast(t, *k, OOM_F32), qo, ko;

	qo = oom_op_mul(t, oom_keep(qf), oom_keep(freqs));
	ko = oom_op_mul(t, oom_keep(kf), oom_keep(freqs));
	*q = oom_op_cast(t, oom_share(t, qo), dt);
	*k = oom_op_cast(t, oom_share(t, ko), dt);
	oom_drop(t, qo);
	oom_drop(t, ko);
	oom_drop(t, qf);
	oom_drop(t, kf);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint8_t kind,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     qd = {a->n_heads * a->head_dim, "n_heads * head_dim"};
	const struct oom_dim kd = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	q = oom_op_linear(t, "q_proj", oom_keep(x), qd, bias);
	k = oom_op_linear(t, "k_proj", oom_keep(x), kd, bias);
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), kd, bias));
	if (!(kind & NO_ROPE)) {
		rotate(t, &q, &k, l->freqs);
		if (a->extra[QK_NORM]) {
			q = oom_norm(t, OOM_NORM_RMS_PLAIN, "qk_norm", q, a->head_dim);
			k = oom_norm(t, OOM_NORM_RMS_PLAIN, "qk_norm", k, a->head_dim);
		}
	} else if (a->extra[TUNED]) { /* the fp32 factor of each position widens the product */
		struct oom_val f = oom_new(t, "attention scales", t->m_s, D(1), OOM_F32);
		const enum oom_dtype dt = (enum oom_dtype)q.dt;

		q = oom_op_cast(t, oom_op_mul(t, q, f), dt);
	}
	at.layer_names_weights = true;
	at.softmax_as_is = at.no_cast_back = true;
	at.mask = l->mask[kind & CHUNKED ? 1 : 0];
	q = oom_attention_core(t, &at, oom_op_heads(t, q), oom_op_heads(t, k), v);
	q = oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0);
	oom_done(t, x);
	return q;
}

/* Scores [tokens, experts]: the top logits scattered into -inf, through a sigmoid in fp32. */
static struct oom_val route(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim e = {a->n_experts, "n_experts"}, k = {a->top_k, "top_k"};
	struct oom_val logits, index, top, s;
	enum oom_dtype dt;

	/* PEFT's nn.Linear wrapper around a router that returns two tensors fails */
	t->approximate |= oom_lora_takes_all(t);
	logits = oom_op_linear(t, "router", x, e, 0);
	dt = (enum oom_dtype)logits.dt;
	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	top = oom_op_gather(t, "top-k value", oom_keep(logits), oom_keep(index), x.mono, k);
	s = oom_op_gather(t, "scatter_", top, index, x.mono, e);
	s = oom_op_cast(t, oom_op_unary(t, OOM_SIGMOID, oom_op_cast(t, s, OOM_F32)), dt);
	oom_drop(t, logits);                    /* returned beside the scores */
	return s;
}

static struct oom_val experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t E = a->n_experts, f = a->d_expert, h = x.width;
	const struct oom_dim all = {E * h, "n_experts * d_model"},
			     half[2] = {{E * f, "n_experts * d_expert"},
					{E * f, "n_experts * d_expert"}};
	struct oom_val scores = route(t, a, oom_keep(x)), in, w, p[2], y, shared;

	in = oom_op_expand_copy(t, oom_keep(x), x.mono, all);
	scores = oom_op_copy(t, "reshape", scores);
	in = oom_op_mul(t, in, scores);
	t->scope = "experts";
	w = oom_param(t, "gate_up_proj", E * h, 2 * f, OOM_P_EXPERT);
	oom_param_stacked(t, w, h);
	y = oom_op_bmm(t, "gate and up", oom_keep(in), w, x.mono,
		       (struct oom_dim){2 * E * f, "n_experts * 2 * d_expert"}, 0);
	oom_op_split(t, oom_keep(y), 2, half, p);
	w = oom_param(t, "down_proj", E * f, h, OOM_P_EXPERT);
	oom_param_stacked(t, w, f);
	p[0] = oom_op_mul(t, p[1], oom_activation(t, a->act, p[0]));
	p[0] = oom_op_bmm(t, "down", p[0], w, x.mono, all, 0);
	oom_drop(t, y);
	oom_tape_flops(t, x.mono, 6.0 * (double)E * (double)h * (double)f, (enum oom_dtype)x.dt);
	shared = oom_gated_mlp(t, oom_keep(x), a->act, (struct oom_dim){a->d_shared, "d_shared"},
			       false);
	y = oom_op_sum(t, oom_keep(p[0]), x.mono, (struct oom_dim){h, "d_model"});
	shared = oom_op_add_inplace(t, shared, y);
	oom_drop(t, p[0]);
	oom_drop(t, in);
	oom_done(t, x);
	return shared;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	x = oom_op_add(t, x, attention(t, l, kind, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = kind & DENSE ? oom_gated_mlp(t, h, a->act, D(a->extra[D_DENSE]), false) :
			   experts(t, a, h);
	return oom_op_add(t, x, h);
}

/* polar(1, inv_freq * position), times the attention scaling, under no_grad. */
static struct oom_val frequencies(struct oom_tape *t, uint64_t d)
{
	const struct oom_dim half = {d / 2, "head_dim / 2"}, full = {d, "head_dim"};
	const bool grad = t->grad;
	struct oom_val f, one, polar, y;

	oom_buffer(t, d / 2, OOM_F32);
	oom_buffer(t, d / 2, OOM_F32);
	t->grad = false;
	f = oom_new(t, "rotary freqs", t->m_s, half, OOM_F32);
	one = oom_new(t, "ones", t->m_s, half, OOM_F32);
	polar = oom_new(t, "polar", t->m_s, full, OOM_F32);
	oom_drop(t, one);
	y = oom_op_unary(t, OOM_SCALE, polar);
	oom_drop(t, f);
	t->grad = grad;
	return y;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	dt = (enum oom_dtype)x.dt;
	l.mask[0] = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	l.mask[1] = oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s);
	l.freqs = frequencies(t, a->head_dim);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.freqs);
	oom_drop_shared(t, l.mask[0]);
	oom_drop_shared(t, l.mask[1]);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_llama4 = {
	.name = "llama4",
	.summary = "chunked attention, complex rotary positions, experts over every token beside a "
		   "shared one",
	.source = "transformers 5.12 models/llama4/modeling_llama4.py",
	.types = OOM_TYPE("llama4_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
