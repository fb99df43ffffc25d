/* Which layers a pipeline rank holds, and their parameters.
 *
 * megatron/core/transformer/transformer_block.py get_num_layers_to_build,
 * pipeline_parallel_layer_layout.py, transformer_layer.py, moe/experts.py,
 * multi_latent_attention.py. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

/* "([0]*3+[1]*11)" -> is layer i one of experts?  A plain number N means every N-th, from layer
 * 0 on. */
static bool is_moe(const struct oom_megatron *m, int64_t i)
{
	const char *p = m->moe_layer_freq;
	int64_t at = 0;

	if (!m->experts)
		return false;
	if (m->dense_layers)
		return i >= m->dense_layers;
	if (!strchr(p, '[')) {
		const long n = *p ? strtol(p, NULL, 10) : 1;

		return n <= 1 || i % n == 0;
	}
	while ((p = strchr(p, '['))) {
		int64_t reps = 1;
		const char *end = strchr(p, ']');
		int64_t n = 0;
		bool flag[64];

		for (const char *c = p + 1; end && c < end && n < 64; c++)
			if (*c == '0' || *c == '1')
				flag[n++] = *c == '1';
		if (!end || !n)
			return true;
		if (end[1] == '*')
			reps = strtol(end + 2, NULL, 10);
		if (reps > 0 && i < at + n * reps)
			return flag[(i - at) % n];
		at += n * (reps > 0 ? reps : 0);
		p = end;
	}
	return true;
}

static void add_layers(const struct oom_megatron *m, struct mg_chunk *c, int64_t first, int64_t n)
{
	for (int64_t i = first; i < first + n; i++) {
		if (is_moe(m, i))
			c->moe++;
		else
			c->dense++;
	}
}

/* A given layout: stages by '|', E embedding, t layer, m prediction layer, L loss; stage i lies
 * on rank i mod pp. */
static size_t from_layout(const struct oom_megatron *m, int64_t r, struct mg_chunk out[MG_CHUNKS])
{
	int64_t stage = 0, layer = 0;
	size_t n = 0;

	if (r == 0)
		n = 1;
	for (const char *p = m->layout; *p; p++) {
		const bool mine = stage % m->pp == r;

		if (*p == '|') {
			stage++;
			if (stage % m->pp == r && n < MG_CHUNKS)
				n++;
			continue;
		}
		if (*p == 't') {
			if (mine && n)
				add_layers(m, &out[n - 1], layer, 1);
			layer++;
		}
		if (!mine || !n)
			continue;
		out[n - 1].embedding |= *p == 'E';
		out[n - 1].loss |= *p == 'L';
		out[n - 1].mtp += *p == 'm';
	}
	return n ? n : 1;
}

/* Layers of rank r without interleaving: even, unless the ends are given. */
static int64_t layers_of(const struct oom_megatron *m, int64_t r)
{
	const int64_t ends = (m->first_stage_layers != 0) + (m->last_stage_layers != 0);
	int64_t left = m->layers + m->account_embedding + m->account_loss, n;

	if (!ends) {
		n = left / m->pp;
		return n - (r == 0 ? m->account_embedding : 0) -
		       (r == m->pp - 1 ? m->account_loss : 0);
	}
	if (r == 0 && m->first_stage_layers)
		return m->first_stage_layers;
	if (r == m->pp - 1 && m->last_stage_layers)
		return m->last_stage_layers;
	left = m->layers - m->first_stage_layers - m->last_stage_layers;
	return m->pp > ends && left > 0 ? left / (m->pp - ends) : 0;
}

size_t oom_mg_chunks(const struct oom_megatron *m, int64_t r, struct mg_chunk out[MG_CHUNKS])
{
	const int64_t v = m->vpp ? (m->vpp < MG_CHUNKS ? m->vpp : MG_CHUNKS) : 1;
	int64_t before = 0, per;

	memset(out, 0, sizeof(out[0]) * MG_CHUNKS);
	if (*m->layout)
		return from_layout(m, r, out);
	for (int64_t i = 0; i < r; i++)
		before += layers_of(m, i);
	per = layers_of(m, r) / v;
	for (int64_t j = 0; j < v; j++) {
		/* interleaved: chunk j of rank r is stage j x pp + r */
		add_layers(m, &out[j], m->vpp ? (j * m->pp + r) * per : before, per);
		out[j].embedding = r == 0 && j == 0;
		out[j].loss = r == m->pp - 1 && j == v - 1;
	}
	out[v - 1].mtp = out[v - 1].loss ? m->mtp_layers : 0;
	return (size_t)v;
}

/* ---- parameters ---- */

static double norm(const struct oom_megatron *m, double width)
{
	return m->rmsnorm ? width : 2 * width;
}

static double attention(const struct oom_megatron *m)
{
	const double h = (double)m->hidden, t = (double)m->tp, a = (double)m->heads;
	const double d = (double)m->kv_channels, q = a * d;
	/* with fewer groups than ranks every rank keeps one group of its own */
	const double kv = (double)(m->query_groups > m->tp ? m->query_groups : m->tp) * d;
	double n;

	if (m->mla) {
		const double rq = (double)m->q_lora_rank, rk = (double)m->kv_lora_rank,
			     dr = (double)m->qk_pos_dim;
		const double qk = a * ((double)m->qk_head_dim + dr),
			     up = a * (double)(m->qk_head_dim + m->v_head_dim);

		n = rq > 0 ? h * rq + (m->qk_layernorm ? norm(m, rq) : 0) + rq * qk / t :
			     h * qk / t;
		n += h * (rk + dr) + (m->qk_layernorm ? norm(m, rk) : 0) + rk * up / t;
		return n + a * (double)m->v_head_dim * h / t + (m->bias_linear ? h : 0);
	}
	n = h * (q + 2 * kv) / t + q * h / t;
	n += m->bias_linear || m->qkv_bias ? (q + 2 * kv) / t : 0;
	n += m->bias_linear ? h : 0;
	return n + (m->qk_layernorm ? 2 * norm(m, d) : 0);
}

static double mlp(const struct oom_megatron *m, double in, double f, double t, bool bias)
{
	const double wide = m->swiglu ? 2 * f : f;

	return in * wide / t + f * in / t + (bias ? wide / t + in : 0);
}

static struct mg_params layer(const struct oom_megatron *m, bool experts)
{
	const double h = (double)m->hidden;
	struct mg_params p = {0, 0, 0};

	p.dense = 2 * norm(m, h) + attention(m);
	if (!experts) {
		p.dense += mlp(m, h, (double)m->ffn_hidden, (double)m->tp, m->bias_linear);
	} else {
		const double e = (double)m->experts, in = m->moe_latent ? (double)m->moe_latent : h;

		p.dense += h * e + (m->moe_latent ? 2 * h * in : 0) + (m->moe_shared_gate ? h : 0);
		if (m->moe_shared_ffn)
			p.dense += mlp(m, h, (double)m->moe_shared_ffn, (double)m->tp,
				       m->bias_linear);
		p.expert = e / (double)m->ep *
			   mlp(m, in, (double)m->moe_ffn, (double)m->etp, m->bias_linear);
	}
	p.largest = p.dense + p.expert;
	return p;
}

double oom_mg_matrix_elems(const struct oom_megatron *m, bool dense, bool moe)
{
	struct oom_megatron w = *m;
	double n;

	w.bias_linear = w.qkv_bias = w.qk_layernorm = 0;        /* matrices only */
	n = attention(&w);
	if (dense)
		n += mlp(&w, (double)w.hidden, (double)w.ffn_hidden, (double)w.tp, false);
	if (moe)
		n += mlp(&w, (double)(w.moe_latent ? w.moe_latent : w.hidden), (double)w.moe_ffn,
			 (double)w.etp, false);
	if (moe && w.moe_shared_ffn)
		n += mlp(&w, (double)w.hidden, (double)w.moe_shared_ffn, (double)w.tp, false);
	return n;
}

/* BERT: token types, the pooler and binary head, and the masked-LM head
 * (megatron/core/models/bert). */
static double bert_ends(const struct oom_megatron *m, const struct mg_chunk *c)
{
	const double h = (double)m->hidden, v = (double)m->padded_vocab / (double)m->tp;

	return (c->embedding ? 2 * h : 0) +
	       (c->loss ? h * h + h + norm(m, h) + v + h * h + h + 2 * h + 2 : 0);
}

/* T5: both stacks on every rank; decoder layers add cross-attention and its norm
 * (megatron/core/models/T5). */
static struct mg_params t5_params(const struct oom_megatron *m)
{
	const double h = (double)m->hidden, v = (double)m->padded_vocab / (double)m->tp;
	const struct mg_params one = layer(m, false);
	struct mg_params p = {0, 0, one.dense};

	p.dense = (double)m->encoder_layers * one.dense +
		  (double)m->decoder_layers * (one.dense + attention(m) + norm(m, h));
	p.dense += v * h + (m->learned_pos ? (double)m->max_pos * h : 0) + 2 * norm(m, h) + v;
	return p;
}

struct mg_params oom_mg_params(const struct oom_megatron *m, const struct mg_chunk *c,
			       bool last_rank)
{
	const double h = (double)m->hidden, v = (double)m->padded_vocab / (double)m->tp * h;
	const struct mg_params d = layer(m, false), e = layer(m, true);
	struct mg_params p = {0, 0, 0};

	if (m->stack == OOM_MG_T5)
		return t5_params(m);
	p.dense = (double)c->dense * d.dense + (double)c->moe * e.dense;
	p.expert = (double)c->moe * e.expert;
	p.largest = c->moe ? e.largest : d.largest;
	if (c->mtp) {
		/* a layer, two norms, the projection of 2 h to h and a final norm; the embedding
		 * is held again */
		const struct mg_params one = m->experts ? e : d;

		p.dense += (double)c->mtp *
			   (one.dense + 3 * norm(m, h) + 2 * h * h / (double)m->tp);
		p.expert += (double)c->mtp * one.expert;
	}
	if (c->embedding)
		p.dense += v + (m->learned_pos ? (double)m->max_pos * h : 0);
	if (c->loss) {
		p.dense += norm(m, h);
		if (!m->tied_embeddings || !last_rank || m->pp > 1)
			p.dense += v;           /* the head, or the tied copy on the last stage */
		if (c->mtp && !c->embedding && !m->tied_embeddings)
			p.dense += v;           /* prediction modules embed their own inputs */
	}
	if (m->stack == OOM_MG_BERT)
		p.dense += bert_ends(m, c);
	return p;
}
