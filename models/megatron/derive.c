/* What follows from a Megatron launch's arguments: words folded to what they mean, sizes that were not given, and
 * launches that Megatron itself refuses (megatron/training/arguments.py validate_args). */
#include "oomplan/megatron.h"

#include <string.h>

#include "parts.h"

/* The choice lists hold more words than the enums have members: several words mean one thing. */
static void fold_words(struct oom_megatron *m)
{
	static const int64_t width[] = {1, 2, 2, 4};
	static const uint8_t stack_of[] = {OOM_MG_GPT, OOM_MG_BERT, OOM_MG_T5, OOM_MG_GPT,
					   OOM_MG_GPT};
	static const uint8_t arch_of[] = {OOM_MG_AMPERE,    OOM_MG_HOPPER,   OOM_MG_BLACKWELL,
					  OOM_MG_BLACKWELL, OOM_MG_AMPERE,   OOM_MG_AMPERE,
					  OOM_MG_HOPPER,    OOM_MG_BLACKWELL};
	static const uint8_t optimizer_of[] = {OOM_MG_ADAM, OOM_MG_SGD, OOM_MG_MUON, OOM_MG_MUON,
					       OOM_MG_MUON};
	static const uint8_t recipe_of[] = {OOM_MG_FP8_TENSORWISE, OOM_MG_FP8_TENSORWISE,
					    OOM_MG_FP8_BLOCKWISE, OOM_MG_FP8_MXFP8, OOM_MG_FP8_NVFP4};
	int64_t *dt[] = {&m->grad_bytes, &m->main_param_bytes, &m->main_grad_bytes,
			 &m->exp_avg_bytes, &m->exp_avg_sq_bytes};

	m->stack = stack_of[m->stack];
	m->gpu_arch = arch_of[m->gpu_arch];
	m->attention = m->attention == 4 ? OOM_MG_ATTN_UNFUSED :
		       m->attention > 4	 ? OOM_MG_ATTN_AUTO :
					   m->attention;
	m->learned_pos = m->learned_pos == 1;
	m->moe_dispatcher_gathers = m->moe_dispatcher_gathers == 1;
	m->cp_all_to_all = m->cp_all_to_all == 1;
	m->local_layers = m->local_layers == 1;
	m->fsdp = m->fsdp != 0;
	m->fp8 = m->fp8 != 0;
	/* "dist_muon" is the older word for Muon under --use-distributed-optimizer (arguments.py) */
	m->layerwise |= m->optimizer == 3;
	m->optimizer = optimizer_of[m->optimizer];
	m->fp8_recipe = recipe_of[m->fp8_recipe];
	if (!strcmp(m->offload_modules, "0") || !strcmp(m->offload_modules, "none"))
		m->offload_modules[0] = 0;
	/* said to be on, and nothing more: as NVIDIA's tests have it */
	else if (!strcmp(m->offload_modules, "1"))
		strcpy(m->offload_modules, "expert_fc1 moe_act attn_norm mlp_norm qkv_linear core_attn "
					   "attn_proj");
	for (size_t i = 0; i < sizeof(dt) / sizeof(dt[0]); i++)
		*dt[i] = width[*dt[i] & 3];
}

static enum oom_status check(const struct oom_megatron *m, struct oom_error *err)
{
	const int64_t model = m->tp * m->pp * m->cp;

	if (!m->layers && !(m->stack == OOM_MG_T5 && m->encoder_layers && m->decoder_layers))
		return oom_error_set(err, OOM_ERR_INVALID, "layers: the launch names none");
	if (m->heads % m->tp)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "tp: %lld attention heads do not divide over %lld "
				     "tensor-parallel ranks",
				     (long long)m->heads, (long long)m->tp);
	if (m->hidden % m->tp || m->ffn_hidden % m->tp)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "tp: hidden %lld and ffn %lld have to be multiples of %lld",
				     (long long)m->hidden, (long long)m->ffn_hidden,
				     (long long)m->tp);
	if (m->query_groups % m->tp && m->tp % m->query_groups)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "tp: %lld query groups do not divide over %lld "
				     "tensor-parallel ranks",
				     (long long)m->query_groups, (long long)m->tp);
	if (m->n_gpus % model)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%lld GPUs are not a multiple of tp %lld x pp %lld x cp %lld",
				     (long long)m->n_gpus, (long long)m->tp, (long long)m->pp,
				     (long long)m->cp);
	if (m->seq % (m->cp > 1 ? 2 * m->cp : 1))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "cp: a sequence of %lld is not a multiple of 2 x %lld",
				     (long long)m->seq, (long long)m->cp);
	if (m->experts && (m->experts % m->ep || m->n_gpus % (m->etp * m->ep * m->pp)))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "ep: %lld experts do not divide over %lld expert-parallel ranks on %lld GPUs",
				     (long long)m->experts, (long long)m->ep, (long long)m->n_gpus);
	return oom_mg_check_stages(m, err);
}

/* Sizes whose products fit in what follows: a model of at most 2^48 parameters, activations of at most
 * 2^58 elements. */
static enum oom_status bound(const struct oom_megatron *m, struct oom_error *err)
{
	const double h = (double)m->hidden, attn = (double)m->heads * (double)(m->kv_channels + m->qk_head_dim +
							    m->qk_pos_dim + m->v_head_dim),
		     layer = 4 * h * attn + 3 * h * (double)m->ffn_hidden +
			     3 * h * ((double)m->experts * (double)m->moe_ffn +
				      (double)m->moe_shared_ffn) +
			     h * (double)(m->q_lora_rank + m->kv_lora_rank),
		     params = layer * (double)(m->layers + m->mtp_layers) +
			      2 * h * ((double)m->padded_vocab + (double)m->max_pos),
		     wide = h + attn + (double)m->ffn_hidden + (double)m->padded_vocab +
			    (double)(m->moe_topk ? m->moe_topk : 1) *
				    (double)(m->moe_ffn + m->moe_shared_ffn);

	if (params > (double)((uint64_t)1 << 48))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "some %.2g parameters (hidden size %lld, feed-forward %lld, %lld "
				     "layers, %lld experts, vocabulary %lld): more than 2^48",
				     params, (long long)m->hidden, (long long)m->ffn_hidden,
				     (long long)m->layers, (long long)m->experts,
				     (long long)m->vocab);
	if (wide * (double)m->seq * (double)m->micro_batch > (double)((uint64_t)1 << 58))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%lld sequences of %lld tokens, some %.2g numbers per token: "
				     "more than 2^58 together",
				     (long long)m->micro_batch, (long long)m->seq, wide);
	return OOM_OK;
}

enum oom_status oom_megatron_derive(struct oom_megatron *m, struct oom_error *err)
{
	struct oom_megatron d = *m;
	enum oom_status st;

	fold_words(&d);
	st = oom_mg_expand_layout(m->layout, d.layout, sizeof(d.layout), err);
	if (st)
		return st;
	if (!d.query_groups)
		d.query_groups = d.heads;
	if (!d.kv_channels)
		d.kv_channels = d.hidden / d.heads;
	if (!d.ffn_hidden)
		d.ffn_hidden = d.swiglu ? d.hidden * 8 / 3 / 64 * 64 : 4 * d.hidden;
	if (!d.moe_ffn)
		d.moe_ffn = d.ffn_hidden;
	if (!d.etp)
		d.etp = d.tp;
	if (!d.n_gpus)
		d.n_gpus = d.tp * d.pp * d.cp * (d.dp ? d.dp : 1);
	if (!d.max_pos)
		d.max_pos = d.seq;
	if (!d.padded_vocab)
		d.padded_vocab = (d.vocab + d.vocab_divisor * d.tp - 1) / (d.vocab_divisor * d.tp) *
				 (d.vocab_divisor * d.tp);
	if (!d.layers && d.stack != OOM_MG_T5)
		d.layers = d.encoder_layers;
	if (d.stack == OOM_MG_T5 && !d.encoder_layers)
		d.encoder_layers = d.decoder_layers = d.layers;
	if (!d.decoder_seq)
		d.decoder_seq = d.seq;
	if (d.tp == 1)
		d.sequence_parallel = 0;
	if (d.pp == 1 || d.vpp == 1)
		d.vpp = 0;
	if (!d.recompute_layers)
		d.recompute_layers = 1;
	if (*d.layout && !d.vpp)
		d.vpp = oom_mg_layout_chunks(&d);
	d.split = oom_mg_split(&d);
	st = bound(&d, err);
	if (!st)
		st = check(&d, err);
	if (st)
		return st;
	d.dp = d.n_gpus / (d.tp * d.pp * d.cp);
	if (!d.num_microbatches)
		d.num_microbatches = d.pp;      /* enough to fill the pipeline */
	*m = d;
	return OOM_OK;
}
