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

/* Is the word among those a launch lists, divided by blanks, commas, + or quotes? */
static bool listed(const char *list, const char *word)
{
	static const char between[] = " ,+'\"[]";
	const size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || strchr(between, p[-1])) && (!p[n] || strchr(between, p[n])))
			return true;
	return false;
}

static bool recomputed(const struct oom_megatron *m, const char *module)
{
	if (m->recompute != OOM_MG_RC_SELECTIVE || !module)
		return false;
	return *m->recompute_modules ? listed(m->recompute_modules, module) :
				       !strcmp(module, "core_attn");
}

/* What a layer keeps, piece by piece: each may be computed again with a module, or wait in host
 * memory with another (fine_grained_activation_offload.py: the tensors a module saves, those of a
 * million elements or more). */
enum { LEAST_OFFLOADED = 1 << 20 };
struct kept {
	const struct oom_megatron *m;
	double saved, away;
	struct mg_pieces *stay, *again; /* blocks; NULL: nobody asks */
};

static void piece(struct mg_pieces *list, double bytes)
{
	if (list && bytes > 0 && list->n < MG_PIECES)
		list->bytes[list->n++] = bytes;
}

static void keep(struct kept *k, double bytes, double width, const char *again, const char *module)
{
	if (recomputed(k->m, again)) {
		piece(k->again, bytes);
		return;
	}
	if (module && *k->m->offload_modules && listed(k->m->offload_modules, module) &&
	    bytes / width >= LEAST_OFFLOADED) {
		k->away += bytes;
		piece(k->again, bytes);
		return;
	}
	k->saved += bytes;
	piece(k->stay, bytes);
}

/* Bytes an element of a matrix product's input is kept in: TransformerEngine quantises it and keeps
 * that (pytorch/module/linear.py, save_for_backward of inputmat), one direction of it. */
static double product_input(const struct oom_megatron *m)
{
	return m->fp8 ? oom_mg_fp8(m)->kept : 2;
}

/* What a linear module keeps of its input: `elems` of this rank, `whole` of them where a divided sequence is gathered.
 *
 * A frozen one keeps none (TransformerEngine d0067d0 pytorch/module/linear.py, saved_inputmat; layernorm_linear.py,
 * ln_out_to_save: where weight.requires_grad).  Its adapter keeps what it reads, in 16 bit and whole, as LayerNormLinear
 * returns what it gathered (return_layernorm_output_gathered), A's output, and dropout's mask. */
static void keep_input(struct kept *k, enum oom_mg_target on, double elems, double whole, double rows, const char *again,
		       const char *module)
{
	const struct oom_megatron *m = k->m;
	const double in = product_input(m);

	if (!m->lora_r) {
		keep(k, in * elems, in, again, module);
		return;
	}
	if (!oom_mg_adapted(m, on))
		return;
	keep(k, (m->lora_dropout > 0 ? 3 : 2) * whole, 2, again, module);
	keep(k, 2 * rows * (double)m->lora_r, 2, again, NULL);
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
	return (!m->local_layers || m->pipe_engine) && m->attention != OOM_MG_ATTN_UNFUSED;
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

static void attention(struct kept *k, double seq, double key_seq)
{
	const struct oom_megatron *m = k->m;
	const double T = oom_mg_tokens(m, seq), K = oom_mg_tokens(m, key_seq),
		     h = (double)m->hidden, t = (double)m->tp, n = share(m), in = product_input(m);
	const double a = (double)m->heads, d = (double)m->kv_channels;
	const double kv = (double)(m->query_groups > m->tp ? m->query_groups : m->tp) * d;
	double out = a * d;

	if (m->mla) {
		const double rq = (double)m->q_lora_rank, rk = (double)m->kv_lora_rank,
			     q = a * (double)(m->qk_head_dim + m->qk_pos_dim);

		out = a * (double)m->v_head_dim;
		/* the norm's output: input of two projections, quantised for each */
		keep(k, (m->fp8 ? 2 * in : 2) * T * h / n, 2, "layernorm", "qkv_linear");
		/* compressed queries and keys: in (norm input) and out (input of the up
		 * projection) */
		keep(k, rq > 0 ? (m->qk_layernorm ? 2 + in : in) * T * rq : 0, 2, NULL,
		     "qkv_linear");
		keep(k, (2 * T * (rk + (double)m->qk_pos_dim) + in * T * rk) / n, 2, NULL,
		     "qkv_linear");
		/* q, k with the rotary part joined on, v */
		keep(k, 2 * T * (2 * q + out) / t, 2, "mla_up_proj", "core_attn");
	} else {
		/* the norm's output is LayerNormLinear's own, whatever is recomputed */
		keep_input(k, OOM_MG_LINEAR_QKV, T * h / n, T * h, T, NULL, "qkv_linear");
		keep(k, (2 * T * out + 2 * 2 * K * kv) / t, 2, NULL, "core_attn");
		if (m->qk_layernorm)
			keep(k, (2 * T * out + 2 * K * kv) / t, 2, NULL, "qkv_linear");
	}
	/* context: input of the output projection; a fused kernel keeps it as its output, an adapter reads the same unless
	 * dropout makes another */
	if (m->lora_r && flash_like(m))
		keep(k, 2 * T * out / t, 2, NULL, "attn_proj");
	if (!m->lora_r || !flash_like(m) || m->lora_dropout > 0)
		keep_input(k, OOM_MG_LINEAR_PROJ, T * out / t, T * out / t, T, NULL, "attn_proj");
	else if (oom_mg_adapted(m, OOM_MG_LINEAR_PROJ))
		keep(k, 2 * T * (double)m->lora_r, 2, NULL, NULL);
	if (!flash_like(m)) {
		keep(k, scores(m, seq, key_seq), 2, "core_attn", "core_attn");
		return;
	}
	/* its own output, which is the projection's input unless that is quantised */
	keep(k, m->fp8 && !m->lora_r ? 2 * T * out / t : 0, 2, "core_attn", "core_attn");
	/* gathered by heads and given back: both forms are kept */
	keep(k, m->cp > 1 && m->cp_all_to_all ? 2 * T * out / t : 0, 2, "core_attn", "core_attn");
	keep(k, 4 * T * a / t, 4, "core_attn", "core_attn");
	keep(k, copies_output(m) ? 2 * T * out / t : 0, 2, "core_attn", "core_attn");
}

static void mlp(struct kept *k, double seq)
{
	const struct oom_megatron *m = k->m;
	const double T = oom_mg_tokens(m, seq), f = (double)m->ffn_hidden / (double)m->tp, h = (double)m->hidden;

	keep_input(k, OOM_MG_LINEAR_FC1, T * h / share(m), T * h, T, NULL, NULL);       /* the norm's output */
	/* into the activation: without the fused kernel the bias is added out of place, and the
	 * activation's input is that sum; and out of it */
	keep(k, 2 * T * f * (m->swiglu ? 2 : 1), 2, "mlp", NULL);
	keep_input(k, OOM_MG_LINEAR_FC2, T * f, T * f, T, "mlp", NULL);
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

static void moe(struct kept *k, double seq)
{
	const struct oom_megatron *m = k->m;
	const double T = oom_mg_tokens(m, seq) / share(m), R = routed(m, seq),
		     h = (double)m->hidden;
	const double wide = m->moe_latent ? (double)m->moe_latent : h,
		     f = (double)m->moe_ffn / (double)m->etp;

	/* the norm's output: router, dispatcher, shared experts */
	keep(k, 2 * T * h, 2, "layernorm", NULL);
	/* router logits, probabilities and map, fp32 */
	keep(k, 3 * 4 * T * (double)m->experts, 4, NULL, NULL);
	if (recomputed(m, "moe"))
		return;
	/* dispatched tokens: input of the first expert matrix */
	keep_input(k, OOM_MG_LINEAR_FC1, R * wide, R * wide, R, NULL, "expert_fc1");
	/* the routing weight multiplies the activation (experts.py), fused for SwiGLU */
	keep(k, 2 * R * f * (m->swiglu ? 2 : 1), 2, NULL, "moe_act");
	keep_input(k, OOM_MG_LINEAR_FC2, R * f, R * f, R, "moe_act", NULL);
	keep(k, m->swiglu ? 0 : 2 * R * f, 2, "moe_act", NULL);
	if (m->moe_shared_ffn) {
		const double fs = (double)m->moe_shared_ffn / (double)m->tp, G = T * share(m);

		if (m->fp8 || m->lora_r)
			keep_input(k, OOM_MG_LINEAR_FC1, T * h, G * h, G, "shared_experts", NULL);
		keep(k, G * fs * 2 * (m->swiglu ? 2 : 1), 2, "shared_experts", NULL);
		keep_input(k, OOM_MG_LINEAR_FC2, G * fs, G * fs, G, "shared_experts", NULL);
	}
}

double oom_mg_moe_saved(const struct oom_megatron *m, double seq)
{
	struct kept k = {m, 0, 0, NULL, NULL};

	moe(&k, seq);
	return k.saved;
}

/* One layer, residual stream and dropout masks with it. */
static struct kept whole_layer(const struct oom_megatron *m, bool experts, double seq,
			       double cross_seq, struct mg_pieces *stay, struct mg_pieces *again)
{
	const double T = oom_mg_tokens(m, seq), h = (double)m->hidden, n = share(m);
	const double mask = m->hidden_dropout > 0 ? T * h / n : 0;
	struct kept k = {m, 0, 0, stay, again};

	/* residual stream into each sublayer (the norm's input), its output, the dropout mask
	 * behind it */
	keep(&k, 2 * T * h / n, 2, NULL, "attn_norm");
	attention(&k, seq, seq);
	keep(&k, mask, 1, NULL, NULL);
	if (cross_seq > 0) {
		keep(&k, 2 * T * h / n, 2, NULL, NULL);
		attention(&k, seq, cross_seq);
		keep(&k, mask, 1, NULL, NULL);
	}
	if (stay)
		stay->mlp = stay->n;
	if (again)
		again->mlp = again->n;
	keep(&k, 2 * T * h / n, 2, NULL, "mlp_norm");
	if (experts)
		moe(&k, seq);
	else
		mlp(&k, seq);
	keep(&k, mask, 1, NULL, NULL);
	return k;
}

void oom_mg_layer_pieces(const struct oom_megatron *m, bool experts, double seq, struct mg_pieces *kept,
			 struct mg_pieces *again)
{
	memset(kept, 0, sizeof(*kept));
	memset(again, 0, sizeof(*again));
	if (m->recompute != OOM_MG_RC_FULL) {
		whole_layer(m, experts, seq, 0, kept, again);
		return;
	}
	/* the layer's input alone, and all of it once more */
	whole_layer(m, experts, seq, 0, again, NULL);
	piece(kept, 2 * oom_mg_tokens(m, seq) * (double)m->hidden / share(m));
}

double oom_mg_scores_buffer(const struct oom_megatron *m, double seq)
{
	return flash_like(m) ? 0 :
			       2 * (double)m->micro_batch * seq * seq * (double)m->heads / (double)m->tp /
				       (double)m->cp;
}

double oom_mg_attention_gradients(const struct oom_megatron *m, double seq)
{
	const double T = oom_mg_tokens(m, seq), t = (double)m->tp, a = (double)m->heads,
		     qk = m->mla ? (double)(m->qk_head_dim + m->qk_pos_dim) : (double)m->kv_channels,
		     v = m->mla ? (double)m->v_head_dim : (double)m->kv_channels,
		     kv = m->mla ? a : (double)(m->query_groups > m->tp ? m->query_groups : m->tp);

	if (flash_like(m))
		return T * (2 * (a * qk + kv * (qk + v)) + 4 * a * qk) / t;
	return oom_mg_scores_buffer(m, seq);
}

struct mg_layer oom_mg_layer(const struct oom_megatron *m, bool experts, double seq,
			     double cross_seq)
{
	const double T = oom_mg_tokens(m, seq), h = (double)m->hidden, n = share(m);
	const double f = (double)(experts ? m->moe_ffn : m->ffn_hidden) /
			 (double)(experts ? m->etp : m->tp);
	const double rows = experts ? routed(m, seq) : T;
	const struct kept k = whole_layer(m, experts, seq, cross_seq, NULL, NULL);
	const bool all = m->recompute == OOM_MG_RC_FULL;
	struct mg_layer l = {.full = k.saved + k.away};

	l.saved = all ? 2 * T * h / n : k.saved;
	l.away = all ? 0 : k.away;
	/* backward of the MLP at its highest: the gradient of the activation's input, while that
	 * input is still held; the activation's output has given its place to its gradient */
	l.transient = 2 * T * h / n + 2 * rows * f * (m->swiglu ? 2 : 1);
	/* the adapter's part of the input's gradient, which is added to the module's own */
	if (oom_mg_adapted(m, OOM_MG_LINEAR_FC1))
		l.transient += 2 * rows * h;
	return l;
}
