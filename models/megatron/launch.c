/* A plan for the Megatron engine: the model's config and the knobs as a Megatron launch.
 *
 * Megatron-core would build the model's blocks from its own layers; what it cannot express (other
 * norms, biases here and there) is the nearest switch it has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/model.h"
#include "oomplan/option.h"
#include "parts.h"
#include "ranks.h"
#include "step/engines.h"
#include "step/optimizers.h"

/* Is it a stack that Megatron-core has? */
static bool can(const struct oom_arch *a)
{
	return !a->vlm && a->d_model && a->n_heads && a->n_layers && a->d_ff && a->vocab &&
	       (a->default_task == OOM_TASK_CAUSAL_LM || a->default_task == OOM_TASK_MASKED_LM);
}

static void read_model(const struct oom_model *model, struct oom_megatron *m)
{
	const struct oom_arch *a = &model->arch;
	struct oom_reader r = a->rd;

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

/* A search asks for it thousands of times: it is read once. */
enum oom_status oom_megatron_prepare(struct oom_model *model)
{
	struct oom_megatron *m;

	model->launch = NULL;
	if (!can(&model->arch))
		return OOM_OK;
	m = malloc(sizeof(*m));
	if (!m)
		return OOM_ERR_MEMORY;
	read_model(model, m);
	model->launch = m;
	return OOM_OK;
}

static enum oom_status check(const struct oom_model *model, const struct oom_plan *p,
			     struct oom_error *err)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : model->arch.default_task;

	if (!model->launch)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: %s is not a GPT- or BERT-like model",
				     model->arch.model_type);
	if (oom_engine_of(p)->info.mixes &&
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

/* PEFT's names of linear modules, and Megatron-core's, as one of its modules each. */
static const struct {
	const char *name;
	enum oom_mg_target on;
} modules[] = {
	{"linear_qkv", OOM_MG_LINEAR_QKV}, {"q_proj", OOM_MG_LINEAR_QKV},      {"k_proj", OOM_MG_LINEAR_QKV},
	{"v_proj", OOM_MG_LINEAR_QKV},	   {"qkv_proj", OOM_MG_LINEAR_QKV},    {"linear_proj", OOM_MG_LINEAR_PROJ},
	{"o_proj", OOM_MG_LINEAR_PROJ},	   {"linear_fc1", OOM_MG_LINEAR_FC1},  {"gate_proj", OOM_MG_LINEAR_FC1},
	{"up_proj", OOM_MG_LINEAR_FC1},	   {"gate_up_proj", OOM_MG_LINEAR_FC1}, {"linear_fc2", OOM_MG_LINEAR_FC2},
	{"down_proj", OOM_MG_LINEAR_FC2},
};

/* Nobody's choice and all of them are the same there: LoRA's target_modules in Megatron-Bridge are four by default. */
static enum oom_status set_targets(struct oom_megatron *m, const struct oom_plan *p, struct oom_error *err)
{
	const bool all = !*p->lora_targets || !strcmp(p->lora_targets, "all-linear");

	m->lora_targets = all ? (1 << OOM_MG_TARGETS) - 1 : 0;
	for (const char *w = all ? "" : p->lora_targets; *w; w += *w == '+') {
		const size_t n = strcspn(w, "+");
		size_t i = 0;

		while (i < sizeof(modules) / sizeof(modules[0]) &&
		       (strlen(modules[i].name) != n || strncmp(modules[i].name, w, n)))
			i++;
		if (i == sizeof(modules) / sizeof(modules[0]))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "lora-targets: \"%.*s\" is none of the modules that Megatron-Bridge puts adapters "
					     "on: linear_qkv (q_proj, k_proj, v_proj), linear_proj (o_proj), linear_fc1 "
					     "(gate_proj, up_proj), linear_fc2 (down_proj)",
					     (int)(n < 60 ? n : 60), w);
		m->lora_targets |= 1 << modules[i].on;
		w += n;
	}
	return OOM_OK;
}

static enum oom_status set_adapters(struct oom_megatron *m, const struct oom_plan *p, struct oom_error *err)
{
	if (!oom_plan_adapted(p))
		return OOM_OK;
	if (*p->modules_to_save || *p->exclude_modules || *p->rank_pattern || *p->layers_to_transform || p->lora_bias ||
	    p->trainable_tokens || p->idle_adapters)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: Megatron-Bridge's LoRA is modelled with lora-targets and lora-dropout, "
				     "nothing else of PEFT's; use hf, deepspeed or fsdp2");
	if (m->stack != OOM_MG_GPT || m->mla || p->zero_stage >= 2)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "engine megatron: LoRA is modelled for GPT-like models without multi-latent attention and "
				     "without Megatron-FSDP (--zero 0 or 1)");
	if (p->lora_r % p->tp)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "lora-r: a rank of %lld does not divide over %lld tensor-parallel ranks",
				     (long long)p->lora_r, (long long)p->tp);
	m->lora_r = p->lora_r;
	m->lora_dropout = p->lora_dropout;
	return set_targets(m, p, err);
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

/* Most plans have none of these texts, and a search launches thousands. */
static void copy_text(char *to, size_t size, const char *from)
{
	const size_t n = strlen(from);

	memcpy(to, from, n < size ? n + 1 : size);
	to[size - 1] = 0;
}

/* Degrees, stages, and how layers lie on them. */
static void set_layout(const struct oom_plan *p, struct oom_megatron *m)
{
	m->n_gpus = p->gpus;
	m->tp = p->tp;
	m->pp = p->pp;
	m->cp = p->cp;
	m->ep = p->ep;
	m->etp = m->experts ? p->etp : 0;
	m->vpp = p->vpp > 1 ? p->vpp : 0;
	m->first_stage_layers = p->pp_first;
	m->last_stage_layers = p->pp_last;
	m->account_embedding = p->pp_embedding;
	m->account_loss = p->pp_loss;
	copy_text(m->layout, sizeof(m->layout), p->pp_layout);
	m->gpipe = p->pp > 1 && p->pp_schedule;        /* one rank: forward_backward_no_pipelining */
	m->cp_all_to_all = p->cp_comm;
	m->sequence_parallel = p->sp;
	m->distributed_optimizer = p->zero_stage >= 1;
	m->fsdp = p->zero_stage >= 2;                   /* any word but "none" */
	m->fsdp_sharding = p->zero_stage;
}

/* What layers compute in, keep and recompute. */
static void set_layers(const struct oom_plan *p, struct oom_megatron *m)
{
	m->precision = p->precision == OOM_FP32					? OOM_MG_FP32 :
		       p->precision == OOM_FP16 || p->precision == OOM_AMP_FP16 ? OOM_MG_FP16 :
										  OOM_MG_BF16;
	m->recompute = p->grad_ckpt == OOM_CKPT_FULL ? OOM_MG_RC_FULL :
		       p->grad_ckpt == OOM_CKPT_SELECTIVE || p->grad_ckpt == OOM_CKPT_SELECTIVE_OP ? OOM_MG_RC_SELECTIVE :
												     OOM_MG_RC_NONE;
	if (p->recompute_layers) {
		m->recompute_uniform = 0;
		m->recompute_layers = p->recompute_layers;
	}
	copy_text(m->recompute_modules, sizeof(m->recompute_modules), p->recompute_modules);
	copy_text(m->offload_modules, sizeof(m->offload_modules), p->offload_modules);
	m->attention = p->attn == OOM_ATTN_EAGER ? OOM_MG_ATTN_UNFUSED : OOM_MG_ATTN_FLASH;
	m->cross_entropy = p->fused_ce == OOM_LOSS_FUSED ? OOM_MG_CE_TE : OOM_MG_CE_NONE;
	m->grad_bytes = p->grads_16bit ? 1 : m->grad_bytes;     /* words of dtypes: bf16 */
	m->pipe_engine = oom_engine_of(p)->pipe_engine;
	m->local_layers = p->layer_impl == OOM_LAYERS_LOCAL || m->pipe_engine;
	/* words of cards: A100, H100, B200; as the compute capability tells them */
	m->gpu_arch = p->compute_capability >= 10 ? 2 : p->compute_capability >= 9 ? 1 : 0;
	m->fp8 = p->fp8 != OOM_FP8_NONE;
	m->fp8_params = p->fp8_params;
	m->defer_wgrad = p->defer_wgrad;
}

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
	*m = *(const struct oom_megatron *)model->launch;
	if (p->num_layers)
		m->layers = p->num_layers;
	m->mtp_layers = p->mtp_layers;
	m->seq = p->seq_len;
	m->micro_batch = p->micro_batch;
	m->num_microbatches = p->grad_accum;
	m->moe_imbalance = p->moe_imbalance;
	set_layout(p, m);
	set_layers(p, m);
	st = oom_mg_set_optimizer(m, oom_optimizer_at((size_t)p->optimizer)->megatron, err);
	if (!st)
		st = set_adapters(m, p, err);
	if (!st && p->fp8)
		st = set_recipe(m, p, err);
	if (st)
		return st;
	st = oom_megatron_derive(m, err);
	if (!st && oom_engine_of(p)->info.mixes) {
		/* torchtitan pads no vocabulary and always cuts with the ends as a layer each */
		m->padded_vocab = m->vocab;
		m->split = m->pp > 1 && m->layers + 2 >= m->pp * (m->vpp ? m->vpp : 1) ?
				   OOM_MG_SPLIT_BALANCED :
				   OOM_MG_SPLIT_EVEN;
	}
	return st;
}

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
