/* What one Megatron layer saves for backward.  Symbols: T tokens of a micro-batch on the rank, h
 * hidden, t tensor-parallel ranks, n = t with sequence parallelism else 1, a heads, d head size, f
 * MLP width; 2-byte activations.
 *
 * The list is Korthikanti et al.'s (arXiv:2205.05198, section 4) read off the code that runs today:
 * megatron/core transformer_layer.py, attention.py, mlp.py, moe/, and TransformerEngine's
 * LayerNormLinear, Linear and DotProductAttention; the 34 sbh of the paper is what the dense
 * case adds up to. */
#include <string.h>

#include "parts.h"

double oom_mg_tokens(const struct oom_megatron *m, double seq)
{
	return seq * (double)m->micro_batch / (double)m->cp;
}

static double share(const struct oom_megatron *m)
{
	return m->sequence_parallel ? (double)m->tp : 1;
}

static bool recomputed(const struct oom_megatron *m, const char *module)
{
	if (m->recompute != OOM_MG_RC_SELECTIVE)
		return false;
	if (!*m->recompute_modules)
		return !strcmp(module, "core_attn");
	for (const char *p = m->recompute_modules; (p = strstr(p, module)); p++) {
		const char end = p[strlen(module)];

		if ((p == m->recompute_modules || p[-1] == ' ' || p[-1] == ',' || p[-1] == '\'' ||
		     p[-1] == '+') &&
		    (!end || end == ' ' || end == ',' || end == '\'' || end == '+'))
			return true;
	}
	return false;
}

/* The score matrix: probabilities 2, dropped-out probabilities 2, mask 1.  Without dropout only
 * the probabilities. */
static double scores(const struct oom_megatron *m, double seq, double key_seq)
{
	const double per = m->attention_dropout > 0 ? 5 : 2;

	return per * (double)m->micro_batch * seq * key_seq * (double)m->heads / (double)m->tp /
	       (double)m->cp;
}

static bool flash_like(const struct oom_megatron *m)
{
	return !m->local_layers && m->attention != OOM_MG_ATTN_UNFUSED;
}

/* FlashAttention wants [b, s, a, d]: q, k, v and the output are copied from and to Megatron's [s,
 * b, a, d], and the output stays alive twice (one sequence is in both layouts at once: no copy).
 * cuDNN's fused kernel takes the layout as it is; TransformerEngine prefers it from Hopper on,
 * except where deterministic kernels are asked for on Blackwell
 * (attention/dot_product_attention/utils.py). */
static bool copies_output(const struct oom_megatron *m)
{
	if (m->attention == OOM_MG_ATTN_FUSED || m->micro_batch == 1)
		return false;
	if (m->attention == OOM_MG_ATTN_FLASH || m->gpu_arch == OOM_MG_AMPERE)
		return true;
	return m->gpu_arch == OOM_MG_BLACKWELL && m->deterministic;
}

double oom_mg_attention_saved(const struct oom_megatron *m, double seq, double key_seq)
{
	const double T = oom_mg_tokens(m, seq), K = oom_mg_tokens(m, key_seq),
		     h = (double)m->hidden, t = (double)m->tp, n = share(m);
	const double a = (double)m->heads, d = (double)m->kv_channels;
	const double kv = (double)(m->query_groups > m->tp ? m->query_groups : m->tp) * d;
	double q_width = a * d, out = q_width, sum;

	/* the norm's output, input of the projections */
	sum = 2 * T * h / n;
	if (m->mla) {
		const double rq = (double)m->q_lora_rank, rk = (double)m->kv_lora_rank;

		/* compressed queries and keys: in (norm input) and out (input of the up
		 * projection) */
		sum += (rq > 0 ? 2 * 2 * T * rq / (m->qk_layernorm ? 1 : 2) : 0) +
		       (2 * T * (rk + (double)m->qk_pos_dim) + 2 * T * rk) / n;
		q_width = a * (double)(m->qk_head_dim + m->qk_pos_dim);
		out = a * (double)m->v_head_dim;
		sum += 2 * T * (2 * q_width + out) / t; /* q, k with the rotary part joined on, v */
	} else {
		sum += (2 * T * q_width + 2 * 2 * K * kv) / t;
		if (m->qk_layernorm)
			sum += (2 * T * q_width + 2 * K * kv) / t;
	}
	/* context: input of the output projection */
	sum += 2 * T * out / t;
	if (recomputed(m, "core_attn"))
		return sum;
	if (!flash_like(m))
		return sum + scores(m, seq, key_seq);
	if (m->cp > 1 && m->cp_all_to_all)
		/* gathered by heads and given back: both forms are kept */
		sum += 2 * T * out / t;
	return sum + 4 * T * a / t + (copies_output(m) ? 2 * T * out / t : 0);
}

double oom_mg_mlp_saved(const struct oom_megatron *m, double seq)
{
	const double T = oom_mg_tokens(m, seq), f = (double)m->ffn_hidden / (double)m->tp;
	double sum = 2 * T * (double)m->hidden / share(m);      /* the norm's output */

	if (recomputed(m, "mlp"))
		return sum;
	if (m->swiglu)
		return sum + 2 * T * 2 * f + 2 * T * f;
	/* without the fused kernel the bias is added out of place, and the activation's input is
	 * that sum */
	return sum + 2 * T * f + 2 * T * f;
}

/* Tokens an expert rank works on: padded to the capacity, or as the router sends them: the mean
 * times the imbalance, at most every token of all ranks as often as this one has experts to
 * choose (formulas H8). */
static double routed(const struct oom_megatron *m, double seq)
{
	const double T = oom_mg_tokens(m, seq) / share(m) * (double)m->etp, k = (double)m->moe_topk,
		     ep = (double)m->ep;
	const double mine = (double)m->experts / ep, worst = T * ep * (k < mine ? k : mine);

	if (m->moe_capacity > 0)
		return T * k * m->moe_capacity;
	return m->ep > 1 && m->moe_imbalance > 1 && T * k * m->moe_imbalance < worst ?
		       T * k * m->moe_imbalance :
	       m->ep > 1 && m->moe_imbalance > 1 ? worst :
						   T * k;
}

double oom_mg_moe_saved(const struct oom_megatron *m, double seq)
{
	const double T = oom_mg_tokens(m, seq) / share(m), R = routed(m, seq),
		     h = (double)m->hidden;
	const double in = m->moe_latent ? (double)m->moe_latent : h,
		     f = (double)m->moe_ffn / (double)m->etp;
	/* the norm's output: router, dispatcher, shared experts */
	double sum = 2 * T * h;

	/* router logits, probabilities and map, fp32 */
	sum += 3 * 4 * T * (double)m->experts;
	if (recomputed(m, "moe"))
		return sum;
	/* dispatched tokens: input of the first expert matrix */
	sum += 2 * R * in;
	/* the routing weight multiplies the activation (experts.py), fused for SwiGLU */
	if (m->swiglu)
		sum += 2 * R * 2 * f + (recomputed(m, "moe_act") ? 0 : 2 * R * f);
	else
		sum += 2 * R * f + (recomputed(m, "moe_act") ? 0 : 2 * 2 * R * f);
	if (m->moe_shared_ffn) {
		const double fs = (double)m->moe_shared_ffn / (double)m->tp, G = T * share(m);

		if (!recomputed(m, "shared_experts"))
			sum += 2 * G * fs * (m->swiglu ? 3 : 2);
	}
	return sum;
}

struct mg_layer oom_mg_layer(const struct oom_megatron *m, bool experts, double seq,
			     double cross_seq)
{
	const double T = oom_mg_tokens(m, seq), h = (double)m->hidden, n = share(m);
	const double mask = m->hidden_dropout > 0 ? T * h / n : 0;
	const double f = (double)(experts ? m->moe_ffn : m->ffn_hidden) /
			 (double)(experts ? m->etp : m->tp);
	const double rows = experts ? routed(m, seq) : T;
	struct mg_layer l;

	/* residual stream into each sublayer (the norm's input), its output, the dropout mask
	 * behind it */
	l.full = 2 * T * h / n + oom_mg_attention_saved(m, seq, seq) + mask;
	if (cross_seq > 0)
		l.full += 2 * T * h / n + oom_mg_attention_saved(m, seq, cross_seq) + mask;
	l.full += 2 * T * h / n + (experts ? oom_mg_moe_saved(m, seq) : oom_mg_mlp_saved(m, seq)) +
		  mask;
	l.saved = m->recompute == OOM_MG_RC_FULL ? 2 * T * h / n : l.full;
	/* backward of the MLP at its highest: the gradient of the activation's input, while that
	 * input is still held; the activation's output has given its place to its gradient */
	l.transient = 2 * T * h / n + 2 * rows * f * (m->swiglu ? 2 : 1);
	return l;
}
