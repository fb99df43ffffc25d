/* RecurrentGemma (Griffin): gated linear recurrences, every third layer local attention, always
 * scaled_dot_product. Reference: transformers 5.12,
 * models/recurrent_gemma/modeling_recurrent_gemma.py; De et al. 2024, arXiv:2402.19427. */
#include <string.h>

#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

enum { RECURRENT, ATTENTION };          /* kinds */

struct recurrent_gemma {
	uint64_t lru, kernel;
};
OOM_OWN(recurrent_gemma, struct recurrent_gemma);

static const struct oom_key_row recurrent_gemma_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	ACT(act, "hidden_activation", "gelu_pytorch_tanh"), FLAG(tie, "tie_word_embeddings", true),
	FLAG(qkv_bias, "attention_bias", false), REAL(attn_dropout, "attention_dropout", 0),
	MUST(window, "attention_window_size"), REAL(softcap_logits, "logits_soft_cap", 30),
	REAL(rotary_share, "partial_rotary_factor", 0.5),
	OR_OWN(struct recurrent_gemma, lru, "lru_width", 0),
	MUST_OWN(struct recurrent_gemma, kernel, "conv1d_width"), OOM_KEYS_END};

static void recurrent_gemma_parse(struct oom_arch *a)
{
	struct recurrent_gemma *own = recurrent_gemma_own(a);
	struct oom_reader *r = &a->rd;
	const struct oom_key *list = oom_read_key(r, "block_types");
	const uint32_t n = list && list->type == OOM_KEY_LIST ? (uint32_t)list->n_items : 0;

	a->d_ff /= 2;
	a->o_bias = a->mlp_bias = true;
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	own->lru = own->lru ? own->lru : a->d_model;
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and hidden_size / num_attention_heads must "
				 "be positive");
	if (!a->d_ff)
		oom_read_fail(r, "intermediate_size is less than 2");
	if (own->lru % a->n_heads || own->kernel > 1u << 20 ||
	    !(a->rotary_share > 0 && a->rotary_share <= 1))
		oom_read_fail(r,
			      "lru_width (%llu) is no multiple of num_attention_heads, or "
			      "conv1d_width or partial_rotary_factor is out of range",
			      (unsigned long long)own->lru);
	if (!n)
		oom_read_fail(r, "\"block_types\" must list the kinds of layers: \"recurrent\" and "
				 "\"attention\"");
	for (uint32_t i = 0; n && i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *word = oom_read_item(r, "block_types", i % n);

		a->kind[i] = word && !strcmp(word, "attention") ? ATTENTION : RECURRENT;
	}
	oom_warn(a, "%s: parameters are exact; the caches its training step fills are "
		 "approximated.", a->model_type);
}

/* sigmoid of a block-diagonal linear layer: one matrix for each head.  x is borrowed. */
static struct oom_val gate(struct oom_tape *t, const struct oom_arch *a, const char *weight,
			   const char *bias, struct oom_val x)
{
	const uint64_t lru = recurrent_gemma_of(a)->lru, width = lru / a->n_heads;
	const struct oom_dim out = {lru, "lru_width"}, all = {lru * width, NULL};
	struct oom_val w = oom_param(t, weight, lru, width, 0), b = oom_param(t, bias, 0, lru, 0);

	w.perm = false;
	x = oom_op_bmm(t, weight, x, oom_op_view(t, w, OOM_MONO_ONE, all), t->m_bs, out, width);
	x = oom_op_add(t, x, b);
	return oom_op_unary(t, OOM_SIGMOID, oom_op_copy(t, "reshape", x));
}

/* h[t] = gate[t] * h[t - 1] + x[t], in fp32, written into the result token by token. */
static struct oom_val recurrence(struct oom_tape *t, struct oom_val x, struct oom_val a)
{
	const struct oom_dim w = {x.width, x.text};
	const struct oom_loop l = oom_loop_over(t, 1);
	const enum oom_dtype dt = x.dt;
	/* the gate's fp32 copy and the state */
	const struct oom_dim kept = {w.n * (a.dt == OOM_F32 ? 1 : 2), "kept by a turn"};
	struct oom_frame f = {.t = t};
	struct oom_val h, out, g;

	x = oom_arg(&f, x);
	a = oom_arg(&f, a);
	h = oom_name(&f, oom_new(t, "recurrent_states", t->m_b, w, OOM_F32));
	out = oom_new(t, "contextualized_states", t->m_bs, w, dt);
	for (int i = 0; i < l.turns; i++) {
		h = oom_take(&f, h);
		if (i)
			h = oom_loop_carry(t, &l, i - 1, h, kept, OOM_F32);
		g = oom_op_cast(t, oom_op_slice(t, a, t->m_b, w), OOM_F32);
		h = oom_op_mul(t, g, h);
		g = oom_op_cast(t, oom_op_slice(t, x, t->m_b, w), OOM_F32);
		h = oom_name(&f, oom_op_add(t, h, g));
		out = oom_op_set(t, out, oom_op_cast(t, h, dt));
	}
	return oom_leave(&f, out);
}

static struct oom_val rg_lru(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val p, in, rec, log, sq, y;

	x = oom_arg(&f, x);
	t->scope = "rg_lru";
	p = oom_param(t, "recurrent_param", 0, recurrent_gemma_of(a)->lru, 0);
	in = gate(t, a, "input_gate_weight", "input_gate_bias", x);
	rec = gate(t, a, "recurrent_gate_weight", "recurrent_gate_bias", x);
	rec = oom_op_unary(t, OOM_SCALE, rec);
	log = oom_name(&f, oom_op_mul(t, rec, oom_op_unary(t, OOM_SOFTPLUS, p)));
	rec = oom_op_unary(t, OOM_EXP, log);
	sq = oom_op_unary(t, OOM_EXP, oom_op_unary(t, OOM_SCALE, oom_take(&f, log)));
	y = oom_op_mul(t, oom_take(&f, x), in);
	/* a square root that keeps its argument */
	sq = oom_op_unary(t, OOM_LOG, oom_op_unary(t, OOM_ADD_SCALAR, sq));
	sq = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SCALE, sq));
	y = oom_op_mul(t, y, oom_op_cast(t, sq, dt));
	rec = oom_op_unary(t, OOM_SCALE, rec);                                  /* times ~reset */
	return recurrence(t, y, rec);
}

static struct oom_val recurrent(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct recurrent_gemma *own = recurrent_gemma_of(a);
	const struct oom_dim w = {own->lru, "lru_width"}, h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val y, z;

	x = oom_arg(&f, x);
	y = oom_activation(t, a->act, oom_op_linear(t, "linear_y", x, w, OOM_BIAS));
	z = oom_op_linear(t, "linear_x", x, w, OOM_BIAS);
	z = oom_short_conv(t, "conv_1d", z, own->kernel, true, OOM_ACT_NONE);
	z = oom_op_mul(t, rg_lru(t, a, z), y);
	return oom_leave(&f, oom_op_linear(t, "linear_out", z, h, OOM_BIAS));
}

static struct oom_val attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				struct oom_val x)
{
	struct oom_tape *t = layer->t;
	const struct oom_plan *plan = t->plan;
	struct oom_plan sdpa = *plan;
	struct oom_attn at = oom_attn_of(t, l->a);
	struct oom_frame f = {.t = t};
	struct oom_rope rope;

	sdpa.attn = OOM_ATTN_SDPA;
	at.rot_dim = oom_rot_dim(l->a);
	rope = oom_rope_tables(t, at.rot_dim ? at.rot_dim : 1, x.dt, 2);
	rope.cos = oom_name(&f, rope.cos);
	rope.sin = oom_name(&f, rope.sin);
	at.rope = &rope;
	at.mask = l->mask;
	t->plan = &sdpa;
	x = oom_attention(t, &at, x);
	t->plan = plan;
	return oom_leave(&f, x);
}

static struct oom_val recurrent_gemma_mixer(struct oom_frame *layer, const struct oom_decoder_layer *l,
					    uint8_t kind, struct oom_val x)
{
	return kind == ATTENTION ? attention(layer, l, x) : recurrent(layer->t, l->a, x);
}

static struct oom_val recurrent_gemma_prepare(struct oom_frame *f, const struct oom_arch *a,
					      struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_plan eager = *t->plan;
	const struct oom_plan *plan = t->plan;

	oom_buffer(t, 1, OOM_DT_BF16);
	eager.attn = OOM_ATTN_EAGER;            /* the mask is always laid out */
	t->plan = &eager;
	l->mask = oom_name_shared(f, oom_causal_mask(t, a->window, x.dt));
	t->plan = plan;
	return oom_op_unary(t, OOM_SCALE, x);
}

const struct oom_family oom_family_recurrent_gemma = {
	.name = "recurrent_gemma",
	.summary = "gated linear recurrences with local attention between them",
	.source = "transformers 5.12 models/recurrent_gemma/modeling_recurrent_gemma.py",
	.types = OOM_TYPE("recurrent_gemma"),
	.norm = OOM_NORM_RMS_PLUS1,
	.lora_targets = "q_proj+v_proj",
	.keys = recurrent_gemma_keys,
	.parse = recurrent_gemma_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "final_norm", .position_ids = true,
			       .kinds = true, .mixer = recurrent_gemma_mixer,
			       .norms = {"temporal_pre_norm", "channel_pre_norm"},
			       .prepare = recurrent_gemma_prepare),
};
