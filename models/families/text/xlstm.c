/* xLSTM 7B: matrix memories with exponential gates, run in chunks.
 * Reference: transformers 5.12, models/xlstm/modeling_xlstm.py; Beck et al. 2025, arXiv:2503.13427.
 *  The chunkwise kernel is recorded as what it lays out in memory, not operation by operation. */
#include <string.h>

#include "blocks/decoder.h"
#include "config/keys.h"

struct xlstm {
	uint64_t heads, qk, v, ff, chunk;       /* qk, v: widths of all heads */
	bool bias, fused;
};
OOM_OWN(xlstm, struct xlstm);

static const struct oom_key_row xlstm_keys[] = {
	MUST(vocab, "vocab_size"), OR(d_model, "embedding_dim", 0), OR(n_layers, "num_blocks", 0),
	REAL(softcap_logits, "output_logit_soft_cap", 30),
	MUST_OWN(struct xlstm, heads, "num_heads"), MUST_OWN(struct xlstm, chunk, "chunk_size"),
	FLAG_OWN(struct xlstm, bias, "use_bias", false), OOM_KEYS_END};

static uint64_t round_up(double x, uint64_t multiple)
{
	if (!multiple || !(x >= 0 && x < 1e12))
		return 0;
	return ((uint64_t)x + multiple - 1) / multiple * multiple;
}

static void xlstm_parse(struct oom_arch *a)
{
	struct xlstm *own = xlstm_own(a);
	struct oom_reader *r = &a->rd;
	double d;

	a->act = OOM_ACT_SILU;
	a->tie = false;         /* the class lists no tied weights, whatever the config says */
	if (oom_read_explicit(r, "hidden_size") || !a->d_model)
		a->d_model = oom_read_count(r, "hidden_size", 1);
	if (!a->n_layers)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	d = (double)a->d_model;
	own->qk = (uint64_t)(d * oom_read_real(r, "qk_dim_factor", 0.5));
	own->v = (uint64_t)(d * oom_read_real(r, "v_dim_factor", 1));
	own->ff = round_up(d * oom_read_real(r, "ffn_proj_factor", 2.667),
			   oom_read_count(r, "ffn_round_up_to_multiple_of", 1));
	own->fused = !strcmp(oom_read_string(r, "weight_mode", "single"), "fused");
	if (!own->heads || !own->qk || !own->v || !own->ff || own->qk % own->heads ||
	    own->v % own->heads || own->chunk > 1u << 16 || (own->qk * (own->v / own->heads)) >> 40)
		oom_read_fail(r,
			      "qk_dim_factor, v_dim_factor, num_heads or chunk_size make no model");
	oom_warn(a, "%s: parameters are exact; activations of the chunkwise memory are "
		 "approximated.", a->model_type);
}

/* x * rsqrt(mean(x^2) + eps) in fp32, cast back, then weight and perhaps bias: a head's mean
 * away first when centred. */
static struct oom_val xlstm_norm(struct oom_tape *t, const struct oom_arch *a, const char *name,
				 struct oom_val x)
{
	const char *scope = t->scope;

	x = oom_norm(t, a->norm, name, x, 0);
	t->scope = name;
	if (xlstm_of(a)->bias)
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
static struct oom_val memory(struct oom_tape *t, const struct xlstm *m, struct oom_val q,
			     struct oom_val k, struct oom_val v, struct oom_val gate_i,
			     struct oom_val gate_f)
{
	const uint64_t c = m->chunk, heads = m->heads;
	const uint16_t chunks = oom_len_chunks(t, t->m_b, c, 0);
	const struct oom_dim cc = {heads * c * c, "heads * chunk^2"}, value = {v.width, v.text};
	const struct oom_dim state = {m->qk * (m->v / heads), "heads * dqk * dv"};
	const enum oom_dtype dt = v.dt;
	struct oom_frame f = {.t = t};
	struct oom_val d, s, w, y;

	gate_f = oom_op_unary(t, OOM_LOGSIGMOID, oom_op_cast(t, gate_f, OOM_F32));
	gate_f = oom_op_unary(t, OOM_CUMSUM, gate_f);
	d = oom_op_add_into(t, gate_f, oom_op_cast(t, gate_i, OOM_F32), chunks, cc);
	d = oom_op_unary(t, OOM_EXP, d);
	q = oom_name(&f, oom_op_copy(t, "clone", oom_op_cast(t, q, OOM_F32)));
	k = oom_name(&f, oom_op_copy(t, "clone", oom_op_cast(t, k, OOM_F32)));
	v = oom_name(&f, oom_op_copy(t, "clone", oom_op_cast(t, v, OOM_F32)));
	s = oom_op_bmm(t, "states", oom_op_unary(t, OOM_SCALE, k), v, chunks, state, c);
	w = oom_op_bmm(t, "q k^T", q, oom_take(&f, k), chunks, cc, m->qk / heads);
	w = oom_op_mul(t, oom_op_unary(t, OOM_SCALE, w), d);
	y = oom_op_bmm(t, "intra", w, oom_take(&f, v), t->m_bs, value, c);
	s = oom_op_bmm(t, "inter", oom_take(&f, q), s, t->m_bs, value, m->qk / heads);
	y = oom_name(&f, oom_op_add(t, y, s));
	s = oom_op_sum(t, y, t->m_bs, (struct oom_dim){heads, "heads"});
	y = oom_op_div(t, oom_take(&f, y), oom_op_unary(t, OOM_ABS, s));
	return oom_leave(&f, oom_op_cast(t, y, dt));
}

/* Queries, keys, values, the output's gate; g: the gates of input and memory.  x stays the
 * caller's. */
static void project(struct oom_tape *t, const struct xlstm *m, struct oom_val x,
		    struct oom_val p[4], struct oom_val g[2])
{
	const struct oom_dim qk = {m->qk, "qk_dim"}, v = {m->v, "v_dim"},
			     heads = {m->heads, "heads"};
	const struct oom_dim all = {2 * qk.n + 2 * v.n, "2 * (qk_dim + v_dim)"},
			     both = {2 * heads.n, "2 * heads"};
	const struct oom_dim parts[4] = {qk, qk, v, v}, gates[2] = {heads, heads};
	const unsigned bias = m->bias ? OOM_BIAS : 0;
	struct oom_val y;

	if (m->fused) {
		y = oom_op_linear(t, "qkv_opreact", x, all, bias);
		oom_op_split(t, y, 4, parts, p);
		y = soft_cap(t, oom_op_linear(t, "ifgate_preact", x, both, OOM_BIAS));
		oom_op_split(t, y, 2, gates, g);
		return;
	}
	p[0] = oom_op_linear(t, "q", x, qk, bias);
	p[1] = oom_op_linear(t, "k", x, qk, bias);
	p[2] = oom_op_linear(t, "v", x, v, bias);
	p[3] = oom_op_linear(t, "ogate_preact", x, v, bias);
	g[0] = soft_cap(t, oom_op_linear(t, "igate_preact", x, heads, OOM_BIAS));
	g[1] = soft_cap(t, oom_op_linear(t, "fgate_preact", x, heads, OOM_BIAS));
}

static struct oom_val mlstm(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct xlstm *m = xlstm_of(a);
	const struct oom_dim h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val p[4], g[2], y;

	x = oom_arg(&f, x);
	project(t, m, x, p, g);
	y = memory(t, m, p[0], p[1], p[2], g[0], g[1]);
	y = xlstm_norm(t, a, "multihead_norm", y);
	y = oom_op_mul(t, oom_op_unary(t, OOM_SIGMOID, p[3]), y);
	return oom_leave(&f, oom_op_linear(t, "out_proj", y, h, m->bias ? OOM_BIAS : 0));
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct xlstm *m = xlstm_of(a);
	const struct oom_dim ff = {m->ff, "up_proj_dim"}, both = {2 * ff.n, "2 * up_proj_dim"},
			     h = {x.width, x.text}, parts[2] = {ff, ff};
	static const char *const names[3] = {"proj_up_gate", "proj_up", "proj_down"};
	struct oom_frame f = {.t = t};
	struct oom_val p[2], y;

	if (!m->fused)
		return oom_named_glu(t, x, names, a->act, ff, m->bias, m->bias);
	x = oom_arg(&f, x);
	y = oom_op_linear(t, "proj_up_gate_z", x, both, m->bias ? OOM_BIAS : 0);
	oom_op_split(t, y, 2, parts, p);
	p[0] = oom_activation(t, a->act, p[0]);
	y = oom_op_linear(t, "proj_down", oom_op_mul(t, p[0], p[1]), h, m->bias ? OOM_BIAS : 0);
	return oom_leave(&f, y);
}

static struct oom_val xlstm_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};

	(void)i;
	x = oom_name(&f, oom_op_add(t, x, mlstm(t, a, xlstm_norm(t, a, "norm_mlstm", x))));
	return oom_leave(&f,
			 oom_op_add(t, x, feed_forward(t, a, xlstm_norm(t, a, "norm_ffn", x))));
}

const struct oom_family oom_family_xlstm = {
	.name = "xlstm",
	.summary = "matrix memories with exponential gates, run in chunks",
	.source = "transformers 5.12 models/xlstm/modeling_xlstm.py",
	.types = OOM_TYPE("xlstm"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q+v",
	.keys = xlstm_keys,
	.parse = xlstm_parse,
	.decoder = OOM_DECODER(.embed = "embeddings", .norm = "out_norm", .block = xlstm_block, .bare = true),
};
