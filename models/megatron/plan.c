/* A plan for the Megatron engine: the model's config and the knobs as a Megatron launch, and its
 * ranks as one evaluation.
 *
 * Megatron-core would build the model's blocks from its own layers; what it cannot express (other
 * norms, biases here and there) is the nearest switch it has. */
#include <stdio.h>
#include <string.h>

#include "step/engines.h"
#include "parts.h"
#include "families/model.h"
#include "oomplan/option.h"
#include "step/optimizers.h"
#include "step/phases.h"
#include "step/reserved.h"

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
	if (oom_engine_of(p)->mixes &&
	    (oom_plan_adapted(p) || *p->freeze || *p->train || p->train_last || p->objective ||
	     p->offload_optimizer || p->offload_params || p->offload_activations ||
	     p->step_in_backward || p->ema))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "FSDP2 with tensor, pipeline, context or expert parallelism: full "
				     "fine-tuning or pre-training without offload is modelled, nothing "
				     "else");
	if (task != model->arch.default_task)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: pre-training tasks only (causal-lm, "
				     "masked-lm)");
	if (!oom_optimizer_at((size_t)p->optimizer)->megatron)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: its optimizers are adamw, adamw-fused, "
				     "muon and sgd-momentum");
	return OOM_OK;
}

/* Names joined by +, each one of the list. */
static enum oom_status known(const char *knob, const char *names, const char *const *list,
			     struct oom_error *err)
{
	for (const char *p = names; *p; p += *p == '+') {
		const size_t n = strcspn(p, "+");
		char word[64];
		const char *near;
		size_t i = 0;

		snprintf(word, sizeof(word), "%.*s", (int)(n < 63 ? n : 63), p);
		while (list[i] && strcmp(list[i], word))
			i++;
		near = list[i] ? NULL : oom_nearest(word, list);
		if (!list[i])
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: a Megatron layer has no module \"%s\"%s%s%s", knob,
					     word, near ? " (did you mean \"" : "", near ? near : "",
					     near ? "\"?)" : "");
		p += n;
	}
	return OOM_OK;
}

static enum oom_status set_recipe(struct oom_megatron *m, const struct oom_plan *p,
				  struct oom_error *err)
{
	/* Megatron has one scale per row in no recipe: the tensor's is what it takes as much as */
	static const char *const words[] = {
		[OOM_FP8_NONE] = "tensorwise",	 [OOM_FP8_TENSORWISE] = "tensorwise",
		[OOM_FP8_ROWWISE] = "tensorwise", [OOM_FP8_BLOCKWISE] = "blockwise",
		[OOM_FP8_MXFP8] = "mxfp8",	 [OOM_FP8_NVFP4] = "nvfp4"};

	return oom_megatron_set(m, oom_mg_arg_find("fp8_recipe"), words[p->fp8], err);
}

/* transformer_config.py, allowed_modules of recompute_modules */
static const char *const offloaded[] = {"attn_norm", "qkv_linear", "core_attn",	"attn_proj",
					"mlp_norm",  "expert_fc1", "moe_act",	NULL};
static const char *const recomputed[] = {"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp",
					 "moe", "shared_experts", NULL};

enum oom_status oom_megatron_launch(const struct oom_model *model, const struct oom_plan *p,
				    struct oom_megatron *m, struct oom_error *err)
{
	enum oom_status st = check(model, p, err);

	if (!st)
		st = known("recompute-modules", p->recompute_modules, recomputed, err);
	if (!st)
		st = known("offload-modules", p->offload_modules, offloaded, err);
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
	m->etp = m->experts ? p->etp : 0;
	m->vpp = p->vpp > 1 ? p->vpp : 0;
	m->first_stage_layers = p->pp_first;
	m->last_stage_layers = p->pp_last;
	m->account_embedding = p->pp_embedding;
	m->account_loss = p->pp_loss;
	snprintf(m->layout, sizeof(m->layout), "%s", p->pp_layout);
	m->mtp_layers = p->mtp_layers;
	m->gpipe = p->pp > 1 && p->pp_schedule;        /* one rank: forward_backward_no_pipelining */
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
	m->grad_bytes = p->grads_16bit ? 1 : m->grad_bytes;     /* words of dtypes: bf16 */
	m->pipe_engine = oom_engine_of(p)->pipe_engine;
	m->local_layers = p->layer_impl == OOM_LAYERS_LOCAL || m->pipe_engine;
	snprintf(m->recompute_modules, sizeof(m->recompute_modules), "%s", p->recompute_modules);
	/* words of cards: A100, H100, B200; as the compute capability tells them */
	m->gpu_arch = p->compute_capability >= 10 ? 2 : p->compute_capability >= 9 ? 1 : 0;
	m->fp8 = p->fp8 != OOM_FP8_NONE;
	m->fp8_params = p->fp8_params;
	m->defer_wgrad = p->defer_wgrad;
	snprintf(m->offload_modules, sizeof(m->offload_modules), "%s", p->offload_modules);
	st = oom_megatron_set(m, oom_mg_arg_find("optimizer"),
			      oom_optimizer_at((size_t)p->optimizer)->megatron, err);
	if (!st && p->fp8)
		st = set_recipe(m, p, err);
	if (st)
		return st;
	st = oom_megatron_derive(m, err);
	if (!st && oom_engine_of(p)->mixes) {
		/* torchtitan pads no vocabulary and always cuts with the ends as a layer each */
		m->padded_vocab = m->vocab;
		m->split = m->pp > 1 && m->layers + 2 >= m->pp * (m->vpp ? m->vpp : 1) ?
				   OOM_MG_SPLIT_BALANCED :
				   OOM_MG_SPLIT_EVEN;
	}
	return st;
}

/* When each kind of row is there, and whose it is. */
static const struct {
	uint8_t bucket, from, until;
	bool training;
	const char *kind, *born;        /* words for the ledger */
} life[OOM_MG_ROW_KINDS] = {
	[OOM_MG_ROW_WEIGHTS] = {OOM_BUCKET_PARAMS, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_GRADS] = {OOM_BUCKET_GRADS, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_MASTER] = {OOM_BUCKET_OPT, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_OPTIMIZER] = {OOM_BUCKET_OPT, OOM_AT_STEP, OOM_AT_NEVER, false, "state",
				  "optimizer"},
	[OOM_MG_ROW_COPIES] = {OOM_BUCKET_GRADS, OOM_AT_STEP, OOM_AT_FORWARD, false, "state",
			       "optimizer"},
	[OOM_MG_ROW_FIXED] = {OOM_BUCKET_BUFFERS, OOM_AT_START, OOM_AT_NEVER, false, "workspace",
			      "load"},
	[OOM_MG_ROW_SAVED] = {OOM_BUCKET_SAVED, OOM_AT_FORWARD, OOM_AT_STEP, true,
			      "saved activation", "forward"},
	[OOM_MG_ROW_GATHERED] = {OOM_BUCKET_COMM, OOM_AT_FORWARD, OOM_AT_STEP, false,
				 "communication buffer", "forward"},
	[OOM_MG_ROW_TRANSIENT] = {OOM_BUCKET_LOGITS, OOM_AT_OUTPUT, OOM_AT_STEP, false,
				  "temporary", "forward"},
	[OOM_MG_ROW_RECOMPUTED] = {OOM_BUCKET_RECOMPUTE, OOM_AT_BACKWARD, OOM_AT_STEP, false,
				   "temporary", "backward"},
};

/* The rank's step: its rows, each from its moment to its other.  What one kind has several rows of
 * is one holding. */
static void schedule_of(const struct oom_mg_rank *k, struct oom_schedule *s)
{
	uint64_t sum[OOM_MG_ROW_KINDS] = {0};

	memset(s, 0, sizeof(*s));
	s->ranks = (struct oom_ranks){1, 1};
	s->chain.whole = true;
	for (size_t i = 0; i < k->n_rows; i++)
		sum[k->row[i].kind] += k->row[i].bytes;
	for (int i = 0; i < OOM_MG_ROW_KINDS; i++)
		oom_add_holding(s, life[i].kind, (enum oom_bucket)life[i].bucket, sum[i],
			 (enum oom_moment_of_step)life[i].from,
			 (enum oom_moment_of_step)life[i].until)->training = life[i].training;
}

/* The model undivided: its parameters, each once and without padding. */
static struct mg_params whole(const struct oom_megatron *m)
{
	struct mg_params sum = {0, 0, 0, 0, 0, 0};
	struct oom_megatron w = *m;
	struct mg_chunk c[MG_CHUNKS];
	size_t n;

	w.tp = w.pp = w.cp = w.ep = w.etp = w.n_gpus = w.dp = 1;
	w.vpp = w.first_stage_layers = w.last_stage_layers = w.account_embedding = w.account_loss = 0;
	w.layout[0] = 0;
	w.split = OOM_MG_SPLIT_EVEN;
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
	return r > 1 && r < m->pp - 1 && oom_mg_ranks_alike(m);
}

/* torchtitan's ranks differ in what their layers keep and in what is divided over the others. */
static enum oom_status price(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			     struct oom_mg_rank *out, struct oom_error *err)
{
	return oom_engine_of(p)->mixes ? oom_titan_rank(m, p, r, out, err) :
					 oom_megatron_rank(m, r, out, err);
}

#define MIXED \
	"FSDP2 with tensor, pipeline, context or expert parallelism: torchtitan's own layers in place of " \
	"the model's, from its source (estimated); the fullest pipeline rank; " \
	"the embedding and the head count as a layer each where stages are cut; balanced routing"
#define NEAREST \
	"engine megatron: Megatron-core's own layers in place of the model's; the fullest pipeline " \
	"rank; balanced routing"

/* Megatron itself takes layers that do not divide over the stages when it is told how they lie. */
static const char *const warnings[] = {
	[OOM_MG_SPLIT_EVEN] = NEAREST,
	[OOM_MG_SPLIT_ENDS] = (NEAREST "; the layers do not divide over the stages: embedding and loss "
				       "take the place of a layer each (--pp-embedding --pp-loss)"),
	[OOM_MG_SPLIT_UP] = (NEAREST "; the layers do not divide over the stages: rounded up, the last "
				     "stage takes what is left (--pp-layout)"),
	[OOM_MG_SPLIT_BALANCED] = (NEAREST "; the layers do not divide over the stages: they differ by "
					   "one (--pp-layout)"),
};

void oom_megatron_say_split(const struct oom_model *model, struct oom_plan *p)
{
	struct oom_megatron m;

	if (!oom_engine_of(p)->info.degrees ||
	    oom_megatron_launch(model, p, &m, NULL))
		return;
	if (m.split == OOM_MG_SPLIT_ENDS)
		p->pp_embedding = p->pp_loss = 1;
	else if (m.split != OOM_MG_SPLIT_EVEN)
		oom_mg_write_layout(&m, p->pp_layout, sizeof(p->pp_layout));
}

enum oom_status oom_megatron_evaluate(const struct oom_model *model, const struct oom_plan *p,
				      unsigned flags, struct oom_eval *out, struct oom_alive *alive,
				      struct oom_error *err)
{
	struct oom_mg_rank one, top = {0};
	struct oom_schedule s;
	struct oom_megatron m;
	struct mg_params all;
	int64_t fullest = 0;
	uint64_t least = UINT64_MAX;
	enum oom_status st = oom_megatron_launch(model, p, &m, err);

	for (int64_t r = 0; !st && r < m.pp; r++) {
		if (less_than_before(&m, r) && r < m.pp - 2)
			continue;
		st = price(&m, p, r, &one, err);
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
	out->peak_op = out->peak_module = "";
	out->total_params = out->trainable_params = (uint64_t)all.dense + (uint64_t)all.expert;
	out->active_params = (uint64_t)all.dense;
	if (m.experts)
		out->active_params += (uint64_t)all.expert / (uint64_t)m.experts *
				      (uint64_t)m.moe_topk;
	out->param_bytes = (m.precision == OOM_MG_FP32 ? 4 : 2) * (top.params + top.expert_params);
	out->grad_bytes = (m.precision == OOM_MG_FP16 ? 2 : (uint64_t)m.grad_bytes) * (top.params + top.expert_params);
	out->opt_bytes = top.optimizer_bytes;
	schedule_of(&top, &s);
	oom_read_phases(&s, NULL, NULL, out, alive);
	(void)flags;
	/* forward + backward: 6 per active parameter and token, and the attention scores
	 * (Megatron's num_floating_point_operations) */
	out->flops_per_sample = (double)m.seq *
				(6 * (double)out->active_params +
				 12 * (double)m.layers * (double)m.hidden * (double)m.seq) *
				(p->grad_ckpt == OOM_CKPT_FULL ? 4.0 / 3 : 1);
	out->work = oom_mg_work(&m);
	out->host_pinned_bytes = out->offloaded_bytes = top.host_bytes;
	if (m.pp > 1) {
		out->stage = (uint32_t)fullest;
		out->n_stages = (uint32_t)m.pp;
		out->least_peak = least;
	}
	for (int i = OOM_PHASE_FWD1; alive && i <= OOM_PHASE_BWD2; i++)
		if (i != OOM_PHASE_OPT1)
			alive[i].op = "the last micro-batch in flight";
	out->warning = oom_engine_of(p)->mixes ? MIXED : warnings[m.split];
	out->reserved_bytes = oom_reserved_estimate(out, p);
	oom_overheads(out, p);
	out->used_bytes_estimated = out->wanted_bytes = out->used_bytes;
	out->retries = 0;
	return OOM_OK;
}

/* The Megatron engine keeps a ledger of its own: the fullest pipeline rank's. */
enum oom_status oom_megatron_ledger(const struct oom_model *model, const struct oom_plan *p,
				    oom_ledger_fn fn, void *ctx, struct oom_error *err)
{
	struct oom_mg_rank one, top = {0};
	struct oom_megatron m;
	enum oom_status st = oom_megatron_launch(model, p, &m, err);

	for (int64_t r = 0; !st && r < m.pp; r++) {
		st = price(&m, p, r, &one, err);
		if (one.peak_bytes > top.peak_bytes)
			top = one;
	}
	for (size_t i = 0; !st && i < top.n_rows; i++) {
		struct oom_ledger_row r = {.scope = "rank",
					   .name = top.row[i].name,
					   .kind = life[top.row[i].kind].kind,
					   .born = life[top.row[i].kind].born,
					   .bytes = top.row[i].bytes,
					   .count = 1,
					   .source = "megatron/core, TransformerEngine; "
						     "arXiv:2205.05198"};

		snprintf(r.formula, sizeof(r.formula), "%s", top.row[i].formula);
		fn(ctx, &r);
	}
	return st;
}
