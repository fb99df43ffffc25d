/* xLSTM 7B: matrix memories with exponential gates, run in chunks.
 * Reference: transformers 5.12, models/xlstm/modeling_xlstm.py; Beck et al. 2025, arXiv:2503.13427.
 *  The chunkwise kernel is recorded as what it lays out in memory, not operation by operation. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { HEADS, QK, V, FF, CHUNK, BIAS, FUSED };          /* extra[] */

static uint64_t round_up(double x, uint64_t multiple)
{
	if (!multiple || !(x >= 0 && x < 1e12))
		return 0;
	return ((uint64_t)x + multiple - 1) / multiple * multiple;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count_or(r, "embedding_dim", 0);
	a->d_model = oom_read_explicit(r, "hidden_size") || !a->d_model ?
			     oom_read_count(r, "hidden_size", 1) :
			     a->d_model;
	a->n_layers = oom_read_count_or(r, "num_blocks", 0);
	a->n_layers = a->n_layers ? a->n_layers : oom_read_count(r, "num_hidden_layers", 1);
	/* the class lists no tied weights, whatever the config says */
	a->tie = false;
	a->act = OOM_ACT_SILU;
	a->softcap_logits = oom_read_real(r, "output_logit_soft_cap", 30);
	a->extra[HEADS] = oom_read_count(r, "num_heads", 1);
	a->extra[QK] = (uint64_t)((double)a->d_model * oom_read_real(r, "qk_dim_factor", 0.5));
	a->extra[V] = (uint64_t)((double)a->d_model * oom_read_real(r, "v_dim_factor", 1));
	a->extra[FF] = round_up((double)a->d_model * oom_read_real(r, "ffn_proj_factor", 2.667),
				oom_read_count(r, "ffn_round_up_to_multiple_of", 1));
	a->extra[CHUNK] = oom_read_count(r, "chunk_size", 1);
	a->extra[BIAS] = oom_read_bool(r, "use_bias", false);
	a->extra[FUSED] = !strcmp(oom_read_string(r, "weight_mode", "single"), "fused");
	if (!a->extra[QK] || !a->extra[V] || !a->extra[FF] || a->extra[QK] % a->extra[HEADS] ||
	    a->extra[V] % a->extra[HEADS] || a->extra[CHUNK] > 1u << 16 ||
	    (a->extra[QK] * (a->extra[V] / a->extra[HEADS])) >> 40)
		oom_read_fail(r,
			      "qk_dim_factor, v_dim_factor, num_heads or chunk_size make no model");
	snprintf(a->warning, sizeof(a->warning),
		 "%s: parameters are exact; activations of the chunkwise memory are approximated.", a->model_type);
}

/* x * rsqrt(mean(x^2) + eps) in fp32, cast back, then weight and perhaps bias: a head's mean
 * away first when centred. */
static struct oom_val norm(struct oom_tape *t, const struct oom_arch *a, const char *name,
			   struct oom_val x)
{
	const char *scope = t->scope;

	x = oom_norm(t, a->norm, name, x, 0);
	t->scope = name;
	if (a->extra[BIAS])
		x = oom_op_add(t, x, oom_param(t, "bias", 0, x.width, OOM_P_NORM));
	t->scope = scope;
	return x;
}

/* cap * tanh(x / cap) */
static struct oom_val soft_cap(struct oom_tape *t, struct oom_val x)
{
	return oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_TANH, oom_op_unary(t, OOM_SCALE, x)));
}

/* In fp32: gates, the decay matrix of every chunk, the states between chunks, and what they give
 * each token. */
static struct oom_val memory(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
			     struct oom_val k, struct oom_val v, struct oom_val gate_i,
			     struct oom_val gate_f)
{
	const uint64_t c = a->extra[CHUNK], heads = a->extra[HEADS];
	const uint16_t chunks = oom_len_chunks(t, t->m_b, c, 0);
	const struct oom_dim cc = {heads * c * c, "heads * chunk^2"}, value = {v.width, v.text};
	const struct oom_dim state = {a->extra[QK] * (a->extra[V] / heads), "heads * dqk * dv"};
	const enum oom_dtype dt = (enum oom_dtype)v.dt;
	struct oom_val d, s, w, y;

	gate_f = oom_op_unary(t, OOM_LOGSIGMOID, oom_op_cast(t, gate_f, OOM_F32));
	gate_f = oom_op_unary(t, OOM_CUMSUM, gate_f);
	d = oom_op_add_into(t, gate_f, oom_op_cast(t, gate_i, OOM_F32), chunks, cc);
	d = oom_op_unary(t, OOM_EXP, d);
	q = oom_op_copy(t, "clone", oom_op_cast(t, q, OOM_F32));
	k = oom_op_copy(t, "clone", oom_op_cast(t, k, OOM_F32));
	v = oom_op_copy(t, "clone", oom_op_cast(t, v, OOM_F32));
	s = oom_op_bmm(t, "states", oom_op_unary(t, OOM_SCALE, oom_keep(k)), oom_keep(v), chunks,
		       state, c);
	w = oom_op_bmm(t, "q k^T", oom_keep(q), k, chunks, cc, a->extra[QK] / heads);
	w = oom_op_mul(t, oom_op_unary(t, OOM_SCALE, w), d);
	y = oom_op_bmm(t, "intra", w, v, t->m_bs, value, c);
	y = oom_op_add(t, y, oom_op_bmm(t, "inter", q, s, t->m_bs, value, a->extra[QK] / heads));
	y = oom_op_div(t, y,
		       oom_op_unary(t, OOM_ABS,
				    oom_op_sum(t, oom_keep(y), t->m_bs,
					       (struct oom_dim){heads, "heads"})));
	return oom_op_cast(t, y, dt);
}

static struct oom_val mlstm(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t *e = a->extra;
	const struct oom_dim h = {x.width, x.text}, qk = {e[QK], "qk_dim"}, v = {e[V], "v_dim"},
			     heads = {e[HEADS], "heads"};
	const struct oom_dim parts[4] = {qk, qk, v, v}, gates[2] = {heads, heads};
	const unsigned bias = e[BIAS] ? OOM_BIAS : 0;
	struct oom_val p[4], g[2], y;

	if (e[FUSED]) {
		oom_op_split(t,
			     oom_op_linear(t, "qkv_opreact", oom_keep(x),
					   (struct oom_dim){2 * qk.n + 2 * v.n,
							    "2 * (qk_dim + v_dim)"},
					   bias),
			     4, parts, p);
		oom_op_split(t,
			     soft_cap(t, oom_op_linear(t, "ifgate_preact", oom_keep(x),
						       (struct oom_dim){2 * heads.n, "2 * heads"},
						       OOM_BIAS)),
			     2, gates, g);
	} else {
		p[0] = oom_op_linear(t, "q", oom_keep(x), qk, bias);
		p[1] = oom_op_linear(t, "k", oom_keep(x), qk, bias);
		p[2] = oom_op_linear(t, "v", oom_keep(x), v, bias);
		p[3] = oom_op_linear(t, "ogate_preact", oom_keep(x), v, bias);
		g[0] = soft_cap(t, oom_op_linear(t, "igate_preact", oom_keep(x), heads, OOM_BIAS));
		g[1] = soft_cap(t, oom_op_linear(t, "fgate_preact", oom_keep(x), heads, OOM_BIAS));
	}
	y = memory(t, a, p[0], p[1], p[2], g[0], g[1]);
	y = norm(t, a, "multihead_norm", y);
	y = oom_op_mul(t, oom_op_unary(t, OOM_SIGMOID, p[3]), y);
	y = oom_op_linear(t, "out_proj", y, h, bias);
	oom_drop(t, x);
	return y;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim f = {a->extra[FF], "up_proj_dim"}, h = {x.width, x.text},
			     parts[2] = {f, f};
	const unsigned bias = a->extra[BIAS] ? OOM_BIAS : 0;
	struct oom_val p[2];

	if (a->extra[FUSED]) {
		oom_op_split(t,
			     oom_op_linear(t, "proj_up_gate_z", oom_keep(x),
					   (struct oom_dim){2 * f.n, "2 * up_proj_dim"}, bias),
			     2, parts, p);
		p[0] = oom_activation(t, a->act, p[0]);
	} else {
		p[0] = oom_activation(t, a->act,
				      oom_op_linear(t, "proj_up_gate", oom_keep(x), f, bias));
		p[1] = oom_op_linear(t, "proj_up", oom_keep(x), f, bias);
	}
	p[0] = oom_op_linear(t, "proj_down", oom_op_mul(t, p[0], p[1]), h, bias);
	oom_drop(t, x);
	return p[0];
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_arch *a = *(const struct oom_arch *const *)ctx;

	(void)i;
	x = oom_op_add(t, x, mlstm(t, a, norm(t, a, "norm_mlstm", oom_keep(x))));
	return oom_op_add(t, x, feed_forward(t, a, norm(t, a, "norm_ffn", oom_keep(x))));
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = "embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &a, x);
	x = oom_norm(t, a->norm, "out_norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_xlstm = {
	.name = "xlstm",
	.summary = "matrix memories with exponential gates, run in chunks",
	.source = "transformers 5.12 models/xlstm/modeling_xlstm.py",
	.types = OOM_TYPE("xlstm"),
	.lora_targets = "q+v",
	.parse = parse,
	.step = step,
};
