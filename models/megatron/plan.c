/* A plan for the Megatron engine: the model's config and the knobs as a Megatron launch, and its
 * ranks as one evaluation.
 *
 * Megatron-core would build the model's blocks from its own layers; what it cannot express (other
 * norms, biases here and there) is the nearest switch it has. */
#include <string.h>

#include "step/allocator.h"
#include "step/engines.h"
#include "parts.h"
#include "families/model.h"
#include "step/optimizers.h"

void oom_model_as_megatron(struct oom_model *model)
{
	const struct oom_arch *a = &model->arch;
	struct oom_megatron *m = &model->megatron;
	struct oom_reader r = a->rd;

	model->megatron_can = !a->vlm && a->d_model && a->n_heads && a->n_layers && a->d_ff &&
			      a->vocab &&
			      (a->default_task == OOM_TASK_CAUSAL_LM ||
			       a->default_task == OOM_TASK_MASKED_LM);
	if (!model->megatron_can)
		return;
	*m = oom_megatron_default();
	m->stack = a->default_task == OOM_TASK_MASKED_LM ? OOM_MG_BERT : OOM_MG_GPT;
	m->layers = (int64_t)a->n_layers;
	m->hidden = (int64_t)a->d_model;
	m->ffn_hidden = (int64_t)a->d_ff;
	m->heads = (int64_t)a->n_heads;
	m->query_groups = (int64_t)a->n_kv_heads;
	m->kv_channels = (int64_t)a->head_dim;
	m->vocab = (int64_t)a->vocab;
	m->max_pos = (int64_t)a->max_positions;
	/* index into the words: 1 is learned_absolute */
	m->learned_pos = a->rotary_share == 0;
	m->tied_embeddings = a->tie;
	m->swiglu = a->gated || a->act == OOM_ACT_SILU;
	m->rmsnorm = a->norm == OOM_NORM_RMS || a->norm == OOM_NORM_RMS_PLUS1 ||
		     a->norm == OOM_NORM_RMS_FUSED;
	m->bias_linear = a->mlp_bias;
	m->qkv_bias = a->qkv_bias;
	m->qk_layernorm = a->qk_norm;
	m->attention_dropout = a->attn_dropout;
	m->hidden_dropout = a->dropout;
	m->mask_in_loader = 0;
	if (a->n_experts) {
		m->experts = (int64_t)a->n_experts;
		m->moe_topk = (int64_t)a->top_k;
		m->moe_ffn = (int64_t)a->d_expert;
		m->moe_grouped_gemm = 1;
		m->moe_dispatcher_gathers = 0;
		m->dense_layers = (int64_t)oom_read_count_or(&r, "first_k_dense_replace", 0);
		m->moe_shared_ffn = (int64_t)a->d_shared;
		if (!m->moe_shared_ffn)
			m->moe_shared_ffn = (int64_t)(oom_read_count_or(&r, "n_shared_experts", 0) *
						      a->d_expert);
	}
	m->kv_lora_rank = (int64_t)oom_read_count_or(&r, "kv_lora_rank", 0);
	m->mla = m->kv_lora_rank > 0;
	if (m->mla) {
		m->q_lora_rank = (int64_t)oom_read_count_or(&r, "q_lora_rank", 0);
		m->qk_head_dim = (int64_t)oom_read_count_or(&r, "qk_nope_head_dim", 128);
		m->qk_pos_dim = (int64_t)oom_read_count_or(&r, "qk_rope_head_dim", 64);
		m->v_head_dim = (int64_t)oom_read_count_or(&r, "v_head_dim", 128);
		m->qk_layernorm = 1;
	}
}

static enum oom_status check(const struct oom_model *model, const struct oom_plan *p,
			     struct oom_error *err)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : model->arch.default_task;

	if (!model->megatron_can)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: %s is not a GPT- or BERT-like model",
				     model->arch.model_type);
	if (task != model->arch.default_task)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: pre-training tasks only (causal-lm, "
				     "masked-lm)");
	if (strncmp(oom_optimizer_at((size_t)p->optimizer)->choice.name, "adamw", 5) &&
	    strcmp(oom_optimizer_at((size_t)p->optimizer)->choice.name, "sgd-momentum"))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: optimizers are adamw and sgd-momentum");
	return OOM_OK;
}

enum oom_status oom_megatron_launch(const struct oom_model *model, const struct oom_plan *p,
				    struct oom_megatron *m, struct oom_error *err)
{
	const enum oom_status st = check(model, p, err);

	if (st)
		return st;
	*m = model->megatron;
	if (p->num_layers)
		m->layers = p->num_layers;
	m->seq = p->seq_len;
	m->micro_batch = p->micro_batch;
	m->num_microbatches = p->grad_accum;
	m->n_gpus = p->gpus;
	m->tp = p->tp;
	m->pp = p->pp;
	m->cp = p->cp;
	m->ep = p->ep;
	m->moe_imbalance = p->moe_imbalance;
	m->etp = m->experts ? 1 : 0;
	m->vpp = p->vpp > 1 ? p->vpp : 0;
	m->gpipe = p->pp_schedule;
	m->cp_all_to_all = p->cp_comm;
	if (p->recompute_layers) {
		m->recompute_uniform = 0;
		m->recompute_layers = p->recompute_layers;
	}
	m->sequence_parallel = p->sp;
	m->distributed_optimizer = p->zero_stage >= 1;
	m->fsdp = p->zero_stage >= 2;                   /* any word but "none" */
	m->fsdp_sharding = p->zero_stage;
	m->precision = p->precision == OOM_FP32					? OOM_MG_FP32 :
		       p->precision == OOM_FP16 || p->precision == OOM_AMP_FP16 ? OOM_MG_FP16 :
										  OOM_MG_BF16;
	m->recompute = p->grad_ckpt == OOM_CKPT_FULL ? OOM_MG_RC_FULL :
		       p->grad_ckpt == OOM_CKPT_SELECTIVE ? OOM_MG_RC_SELECTIVE : OOM_MG_RC_NONE;
	m->attention = p->attn == OOM_ATTN_EAGER ? OOM_MG_ATTN_UNFUSED : OOM_MG_ATTN_FLASH;
	m->cross_entropy = p->fused_ce == OOM_LOSS_FUSED ? OOM_MG_CE_TE : OOM_MG_CE_NONE;
	m->sgd = !strcmp(oom_optimizer_at((size_t)p->optimizer)->choice.name, "sgd-momentum");
	return oom_megatron_derive(m, err);
}

/* The fullest rank as phases.  Between steps everything but activations stays, the optimizer
 * state from step 1 on. */
static void phases(const struct oom_mg_rank *k, struct oom_eval *out)
{
	const uint64_t before = k->alloc_bytes - k->optimizer_bytes;

	out->peak[OOM_PHASE_LOAD] = out->end[OOM_PHASE_LOAD] = before;
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_BWD2; i++) {
		const bool second = i >= OOM_PHASE_FWD2;

		out->peak[i] = second ? k->peak_bytes : k->peak_first_bytes;
		out->end[i] = second ? k->alloc_bytes : before;
	}
	out->end[OOM_PHASE_FWD1] = before + k->activation_bytes;
	out->end[OOM_PHASE_FWD2] = k->alloc_bytes + k->activation_bytes;
	out->peak[OOM_PHASE_OPT1] = out->end[OOM_PHASE_OPT1] = k->alloc_bytes;
	out->peak[OOM_PHASE_OPT2] = out->end[OOM_PHASE_OPT2] = k->alloc_bytes;
	out->peak[OOM_PHASE_EVAL] = k->peak_bytes - k->activation_bytes;
	out->end[OOM_PHASE_EVAL] = k->alloc_bytes;
	out->overall_peak = k->peak_bytes;
	out->peak_phase = OOM_PHASE_FWD2;
}

static void buckets(const struct oom_mg_rank *k, struct oom_eval *out)
{
	uint64_t rest = k->peak_bytes;

	memset(out->bucket, 0, sizeof(out->bucket));
	for (size_t i = 0; i < k->n_rows; i++) {
		const struct oom_mg_row *r = &k->row[i];
		const enum oom_bucket b = r->kind == OOM_MG_ROW_SAVED	  ? OOM_BUCKET_SAVED :
					  r->kind == OOM_MG_ROW_TRANSIENT ? OOM_BUCKET_LOGITS :
					  r->kind == OOM_MG_ROW_FIXED	  ? OOM_BUCKET_BUFFERS :
					  strstr(r->name, "weights") && r->name[0] != 'm' ?
									OOM_BUCKET_PARAMS :
					  !strcmp(r->name, "gradient buffer") ? OOM_BUCKET_GRADS :
										OOM_BUCKET_OPT;
		const uint64_t n = r->bytes < rest ? r->bytes : rest;

		out->bucket[b] += n;
		rest -= n;
	}
	out->bucket[OOM_BUCKET_TEMP] = rest;
}

/* The model undivided: its parameters, each once and without padding. */
static struct mg_params whole(const struct oom_megatron *m)
{
	struct mg_params sum = {0, 0, 0};
	struct oom_megatron w = *m;
	struct mg_chunk c[MG_CHUNKS];
	size_t n;

	w.tp = w.pp = w.cp = w.ep = w.etp = w.n_gpus = w.dp = 1;
	w.vpp = 0;
	w.padded_vocab = w.vocab;
	n = oom_mg_chunks(&w, 0, c);
	for (size_t i = 0; i < n; i++) {
		const struct mg_params p = oom_mg_params(&w, &c[i], true);

		sum.dense += p.dense;
		sum.expert += p.expert;
	}
	return sum;
}

/* Between the ends of the pipeline ranks hold the same layers, as far as they are of one kind; the
 * earlier have more passes in flight, so the first of them is the fullest. */
static bool less_than_before(const struct oom_megatron *m, int64_t r)
{
	return r > 1 && r < m->pp - 1 && !*m->layout && !(m->experts && m->dense_layers) &&
	       !m->first_stage_layers && !m->last_stage_layers;
}

enum oom_status oom_megatron_evaluate(const struct oom_model *model, const struct oom_plan *p,
				      unsigned flags, struct oom_eval *out, struct oom_error *err)
{
	struct oom_mg_rank one, top = {0};
	struct oom_megatron m;
	struct mg_params all;
	int64_t fullest = 0;
	uint64_t least = UINT64_MAX;
	enum oom_status st = oom_megatron_launch(model, p, &m, err);

	for (int64_t r = 0; !st && r < m.pp; r++) {
		if (less_than_before(&m, r) && r < m.pp - 2)
			continue;
		st = oom_megatron_rank(&m, r, &one, err);
		least = one.peak_bytes < least ? one.peak_bytes : least;
		if (one.peak_bytes <= top.peak_bytes)
			continue;
		top = one;
		fullest = r;
	}
	if (st)
		return st;
	all = whole(&m);
	memset(out, 0, sizeof(*out));
	out->total_params = out->trainable_params = (uint64_t)all.dense + (uint64_t)all.expert;
	out->active_params = (uint64_t)all.dense;
	if (m.experts)
		out->active_params += (uint64_t)all.expert / (uint64_t)m.experts *
				      (uint64_t)m.moe_topk;
	out->param_bytes = (m.precision == OOM_MG_FP32 ? 4 : 2) * (top.params + top.expert_params);
	out->grad_bytes = (m.precision == OOM_MG_FP16 ? 2 : 4) * (top.params + top.expert_params);
	out->opt_bytes = top.optimizer_bytes;
	out->saved_bytes = top.activation_bytes;
	phases(&top, out);
	if (flags & OOM_EVAL_BUCKETS)
		buckets(&top, out);
	/* forward + backward: 6 per active parameter and token, and the attention scores
	 * (Megatron's num_floating_point_operations) */
	out->flops_per_sample = (double)m.seq *
				(6 * (double)out->active_params +
				 12 * (double)m.layers * (double)m.hidden * (double)m.seq) *
				(p->grad_ckpt == OOM_CKPT_FULL ? 4.0 / 3 : 1);
	if (m.pp > 1) {
		out->stage = (uint32_t)fullest;
		out->n_stages = (uint32_t)m.pp;
		out->least_peak = least;
	}
	out->peak_op = "forward of the last micro-batch in flight";
	out->peak_module = "";
	out->warning = "engine megatron: Megatron-core's own layers in place of the model's; the "
		       "fullest pipeline rank; balanced routing";
	out->reserved_bytes = oom_reserved_estimate(out, p);
	oom_overheads(out, p);
	out->used_bytes_estimated = out->used_bytes;
	return OOM_OK;
}
