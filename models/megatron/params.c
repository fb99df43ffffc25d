/* The parameters of a rank's layers: megatron/core/transformer/transformer_layer.py, moe/experts.py,
 * multi_latent_attention.py. */
#include "parts.h"

static double norm(const struct oom_megatron *m, double width)
{
	return m->rmsnorm ? width : 2 * width;
}

/* bare: matrices alone, without biases and the norms of queries and keys */
static double attention(const struct oom_megatron *m, bool bare)
{
	const bool bias = m->bias_linear && !bare, normed = m->qk_layernorm && !bare;
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

		n = rq > 0 ? h * rq + (normed ? norm(m, rq) : 0) + rq * qk / t :
			     h * qk / t;
		n += h * (rk + dr) + (normed ? norm(m, rk) : 0) + rk * up / t;
		return n + a * (double)m->v_head_dim * h / t + (bias ? h : 0);
	}
	n = h * (q + 2 * kv) / t + q * h / t;
	n += bias || (m->qkv_bias && !bare) ? (q + 2 * kv) / t : 0;
	n += bias ? h : 0;
	return n + (normed ? 2 * norm(m, d) : 0);
}

static double mlp(const struct oom_megatron *m, double in, double f, double t, bool bias)
{
	const double wide = m->swiglu ? 2 * f : f;

	return in * wide / t + f * in / t + (bias ? wide / t + in : 0);
}

/* Adapters of a layer, those of experts apart. */
static void add_adapters(const struct oom_megatron *m, bool experts, struct mg_params *p)
{
	struct mg_adapter a[MG_ADAPTERS];
	const size_t n = m->lora_r ? oom_mg_adapters(m, experts, a) : 0;

	for (size_t i = 0; i < n; i++)
		*(a[i].routed ? &p->expert_adapters : &p->adapters) += a[i].a + a[i].b;
}

static struct mg_params layer(const struct oom_megatron *m, bool experts)
{
	const double h = (double)m->hidden;
	struct mg_params p = {0};

	p.dense = 2 * norm(m, h) + attention(m, false);
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
	p.matrices = attention(m, true) +
		     (experts ? 0 : mlp(m, h, (double)m->ffn_hidden, (double)m->tp, false));
	if (experts) {
		const double in = m->moe_latent ? (double)m->moe_latent : h;

		p.matrices += (m->moe_latent ? 2 * h * in : 0) +
			      (m->moe_shared_ffn ?
				       mlp(m, h, (double)m->moe_shared_ffn, (double)m->tp, false) :
				       0);
		p.expert_matrices = (double)m->experts / (double)m->ep *
				    mlp(m, in, (double)m->moe_ffn, (double)m->etp, false);
	}
	p.largest_matrices = p.matrices + p.expert_matrices;
	add_adapters(m, experts, &p);
	return p;
}

static void matrix(struct mg_matrices *w, double elems)
{
	if (elems > 0 && w->n < MG_MATRICES)
		w->elems[w->n++] = elems;
}

void oom_mg_layer_matrices(const struct oom_megatron *m, bool experts, struct mg_matrices *w)
{
	const struct mg_params all = layer(m, experts);
	const double h = (double)m->hidden, t = (double)m->tp,
		     out = (double)m->heads * (double)(m->mla ? m->v_head_dim : m->kv_channels) * h / t;
	double sum = 0;

	w->n = 0;
	matrix(w, attention(m, true) - out);
	matrix(w, out);
	if (experts) {
		/* the experts' as two, however many they are */
		matrix(w, all.expert * (m->swiglu ? 2.0 / 3 : 0.5));
		matrix(w, all.expert * (m->swiglu ? 1.0 / 3 : 0.5));
	} else {
		matrix(w, h * (double)m->ffn_hidden / t * (m->swiglu ? 2 : 1));
		matrix(w, h * (double)m->ffn_hidden / t);
	}
	for (size_t i = 0; i < w->n; i++)
		sum += w->elems[i];
	matrix(w, all.dense + all.expert - sum);        /* norms, biases, router, shared experts */
}

double oom_mg_matrix_elems(const struct oom_megatron *m, bool dense, bool moe)
{
	double n = attention(m, true);

	if (dense)
		n += mlp(m, (double)m->hidden, (double)m->ffn_hidden, (double)m->tp, false);
	if (moe)
		n += mlp(m, (double)(m->moe_latent ? m->moe_latent : m->hidden), (double)m->moe_ffn,
			 (double)m->etp, false);
	if (moe && m->moe_shared_ffn)
		n += mlp(m, (double)m->hidden, (double)m->moe_shared_ffn, (double)m->tp, false);
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
	struct mg_params p = {.largest = one.dense};

	p.dense = (double)m->encoder_layers * one.dense +
		  (double)m->decoder_layers * (one.dense + attention(m, false) + norm(m, h));
	p.dense += v * h + (m->learned_pos ? (double)m->max_pos * h : 0) + 2 * norm(m, h) + v;
	return p;
}

struct mg_params oom_mg_params(const struct oom_megatron *m, const struct mg_chunk *c,
			       bool last_rank)
{
	const double h = (double)m->hidden, v = (double)m->padded_vocab / (double)m->tp * h;
	struct mg_params p = {0}, d = p, e = p;

	if (m->stack == OOM_MG_T5)
		return t5_params(m);
	if (c->dense || !c->moe || (c->mtp && !m->experts))
		d = layer(m, false);
	if (c->moe || (c->mtp && m->experts))
		e = layer(m, true);
	p.dense = (double)c->dense * d.dense + (double)c->moe * e.dense;
	p.expert = (double)c->moe * e.expert;
	p.largest = c->moe ? e.largest : d.largest;
	p.adapters = (double)c->dense * d.adapters + (double)c->moe * e.adapters;
	p.expert_adapters = (double)c->moe * e.expert_adapters;
	p.matrices = (double)c->dense * d.matrices + (double)c->moe * e.matrices;
	p.expert_matrices = (double)c->moe * e.expert_matrices;
	p.largest_matrices = c->moe ? e.largest_matrices : d.largest_matrices;
	if (c->mtp) {
		/* a layer, two norms, the projection of 2 h to h and a final norm; the embedding
		 * is held again */
		const struct mg_params one = m->experts ? e : d;

		p.dense += (double)c->mtp *
			   (one.dense + 3 * norm(m, h) + 2 * h * h / (double)m->tp);
		p.expert += (double)c->mtp * one.expert;
		p.adapters += (double)c->mtp * one.adapters;
		p.expert_adapters += (double)c->mtp * one.expert_adapters;
		p.matrices += (double)c->mtp * (one.matrices + 2 * h * h / (double)m->tp);
		p.expert_matrices += (double)c->mtp * one.expert_matrices;
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
