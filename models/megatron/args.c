/* The arguments of a Megatron launch: names, ranges, defaults.  What follows from them is in derive.c.
 *
 * Defaults are those of megatron/training/arguments.py and
 * megatron/core/transformer/transformer_config.py. */
#include "oomplan/megatron.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"
#include "oomplan/units.h"
#include "parts.h"

static const char *const stacks[] = {"gpt", "bert", "t5", "moe", "mixtral", NULL};
static const char *const precisions[] = {"bf16", "fp16", "fp32", NULL};
static const char *const recomputes[] = {"none", "selective", "full", NULL};
static const char *const attentions[] = {"auto",  "flash",	    "fused",   "unfused",
					 "local", "flash_or_fused", "unknown", NULL};
static const char *const entropies[] = {"none", "native", "te", NULL};
static const char *const archs[] = {"A100",	      "H100", "B200",  "GB200", "A100-PCIe-80GB",
				    "A100-SXM4-80GB", "H200", "GB300", NULL};
static const char *const norms[] = {"LayerNorm", "RMSNorm", NULL};
static const char *const positions[] = {"rope", "learned_absolute",
					"none", "relative",
					"yarn", "mrope",
					NULL};
static const char *const dtypes[] = {"fp8", "bf16", "fp16", "fp32", NULL};
static const char *const optimizers[] = {"adam", "sgd", "muon", "dist_muon", "adaptive_muon",
					  NULL};
static const char *const impls[] = {"transformer_engine", "local", "inference_optimized", NULL};
static const char *const dispatchers[] = {"alltoall", "allgather", "flex", "alltoall_seq", NULL};
static const char *const methods[] = {"block", "uniform", NULL};
static const char *const shardings[] = {"no_shard", "optim", "optim_grads", "optim_grads_params",
					NULL};
static const char *const cp_comms[] = {"p2p", "a2a", "all_gather", "a2a+p2p", NULL};
static const char *const fsdps[] = {"none", "megatron", "torch", "1", NULL};
static const char *const recipes[] = {"tensorwise", "delayed", "blockwise", "mxfp8", "nvfp4", NULL};
static const char *const fp8s[] = {"none", "hybrid", "e4m3", NULL};

#define F(f) offsetof(struct oom_megatron, f), sizeof(((struct oom_megatron *)0)->f)
#define N(col, arg, f, lo, hi, d) {col, arg, OOM_MG_COUNT, F(f), NULL, lo, hi, d}
#define W(col, arg, f, list, d) {col, arg, OOM_MG_CHOICE, F(f), list, 0, 0, d}
static const struct oom_mg_arg args[] = {
	W("family", "pretrain_*.py", stack, stacks, 0),
	N("layers", "--num-layers", layers, 0, 4096, 0),
	N("encoder_layers", "--encoder-num-layers", encoder_layers, 0, 4096, 0),
	N("decoder_layers", "--decoder-num-layers", decoder_layers, 0, 4096, 0),
	N("hidden", "--hidden-size", hidden, 1, 1 << 20, 1024),
	N("ffn_hidden", "--ffn-hidden-size", ffn_hidden, 0, 1 << 24, 0),
	N("heads", "--num-attention-heads", heads, 1, 65536, 16),
	N("query_groups", "--num-query-groups", query_groups, 0, 65536, 0),
	N("kv_channels", "--kv-channels", kv_channels, 0, 65536, 0),
	N("vocab", "--vocab-size", vocab, 0, 1e8, 0),
	N("vocab_divisor", "--make-vocab-size-divisible-by", vocab_divisor, 1, 1 << 20, 128),
	N("padded_vocab", "", padded_vocab, 0, 1e8, 0),
	N("seq", "--seq-length", seq, 1, 1 << 26, 1024),
	N("decoder_seq", "--decoder-seq-length", decoder_seq, 0, 1 << 26, 0),
	N("max_pos", "--max-position-embeddings", max_pos, 0, 1 << 26, 0),
	W("pos_emb", "--position-embedding-type", learned_pos, positions, 1),
	N("tied_embeddings", "--untie-embeddings-and-output-weights", tied_embeddings, 0, 1, 1),
	N("swiglu", "--swiglu", swiglu, 0, 1, 0),
	W("normalization", "--normalization", rmsnorm, norms, 0),
	N("bias_linear", "--disable-bias-linear", bias_linear, 0, 1, 1),
	N("qkv_bias", "--add-qkv-bias", qkv_bias, 0, 1, 0),
	N("qk_layernorm", "--qk-layernorm", qk_layernorm, 0, 1, 0),
	{"attention_dropout", "--attention-dropout", OOM_MG_REAL, F(attention_dropout), NULL, 0, 1,
	 0.1},
	{"hidden_dropout", "--hidden-dropout", OOM_MG_REAL, F(hidden_dropout), NULL, 0, 1, 0.1},
	N("experts", "--num-experts", experts, 0, 65536, 0),
	N("moe_topk", "--moe-router-topk", moe_topk, 1, 65536, 2),
	N("moe_ffn", "--moe-ffn-hidden-size", moe_ffn, 0, 1 << 24, 0),
	N("moe_shared_ffn", "--moe-shared-expert-intermediate-size", moe_shared_ffn, 0, 1 << 24, 0),
	N("moe_shared_gate", "--moe-shared-expert-gate", moe_shared_gate, 0, 1, 0),
	N("moe_latent", "--moe-latent-size", moe_latent, 0, 1 << 20, 0),
	N("moe_grouped_gemm", "--moe-grouped-gemm", moe_grouped_gemm, 0, 1, 0),
	N("dense_layers", "--moe-layer-freq", dense_layers, 0, 4096, 0),
	W("moe_dispatcher", "--moe-token-dispatcher-type", moe_dispatcher_gathers, dispatchers, 1),
	{"moe_capacity", "--moe-expert-capacity-factor", OOM_MG_REAL, F(moe_capacity), NULL, 0, 1e6,
	 0},
	{"moe_imbalance", "", OOM_MG_REAL, F(moe_imbalance), NULL, 1, 65536, 1},
	{"moe_layer_freq", "--moe-layer-freq", OOM_MG_TEXT, F(moe_layer_freq), NULL, 0, 0, 0},
	N("mla", "--multi-latent-attention", mla, 0, 1, 0),
	N("q_lora_rank", "--q-lora-rank", q_lora_rank, 0, 1 << 20, 0),
	N("kv_lora_rank", "--kv-lora-rank", kv_lora_rank, 0, 1 << 20, 32),
	N("qk_head_dim", "--qk-head-dim", qk_head_dim, 0, 65536, 128),
	N("qk_pos_dim", "--qk-pos-emb-head-dim", qk_pos_dim, 0, 65536, 64),
	N("v_head_dim", "--v-head-dim", v_head_dim, 0, 65536, 128),
	N("mtp_layers", "--mtp-num-layers", mtp_layers, 0, 64, 0),
	N("n_gpus", "--nproc-per-node x --nnodes", n_gpus, 0, 1e7, 0),
	N("micro_batch", "--micro-batch-size", micro_batch, 1, 1 << 20, 1),
	N("num_microbatches", "--global-batch-size", num_microbatches, 0, 1e9, 0),
	N("tp", "--tensor-model-parallel-size", tp, 1, 65536, 1),
	N("pp", "--pipeline-model-parallel-size", pp, 1, 4096, 1),
	N("cp", "--context-parallel-size", cp, 1, 65536, 1),
	N("ep", "--expert-model-parallel-size", ep, 1, 65536, 1),
	N("etp", "--expert-tensor-parallel-size", etp, 0, 65536, 0),
	N("dp", "", dp, 0, 1e7, 0),
	N("vpp", "--num-virtual-stages-per-pipeline-rank", vpp, 0, 4096, 0),
	N("sequence_parallel", "--sequence-parallel", sequence_parallel, 0, 1, 0),
	W("cp_comm_type", "--cp-comm-type", cp_all_to_all, cp_comms, 0),
	N("first_stage_layers", "--decoder-first-pipeline-num-layers", first_stage_layers, 0, 4096,
	  0),
	N("last_stage_layers_given", "--decoder-last-pipeline-num-layers", last_stage_layers, 0,
	  4096, 0),
	N("account_embedding_in_split", "--account-for-embedding-in-pipeline-split",
	  account_embedding, 0, 1, 0),
	N("account_loss_in_split", "--account-for-loss-in-pipeline-split", account_loss, 0, 1, 0),
	{"pipeline_layout_expanded", "--pipeline-model-parallel-layout", OOM_MG_TEXT, F(layout),
	 NULL, 0, 0, 0},
	N("distributed_optimizer", "--use-distributed-optimizer", distributed_optimizer, 0, 1, 0),
	N("optimizer_instances", "--num-distributed-optimizer-instances", optimizer_instances, 1,
	  65536, 1),
	W("fsdp", "--use-megatron-fsdp", fsdp, fsdps, 0),
	W("fsdp_sharding", "--data-parallel-sharding-strategy", fsdp_sharding, shardings, 3),
	W("precision", "--bf16", precision, precisions, 0),
	W("grad_dtype", "--grad-reduce-in-bf16", grad_bytes, dtypes, 3),
	W("main_params_dtype", "--main-params-dtype", main_param_bytes, dtypes, 3),
	W("main_grads_dtype", "--main-grads-dtype", main_grad_bytes, dtypes, 3),
	W("exp_avg_dtype", "--exp-avg-dtype", exp_avg_bytes, dtypes, 3),
	W("exp_avg_sq_dtype", "--exp-avg-sq-dtype", exp_avg_sq_bytes, dtypes, 3),
	W("optimizer", "--optimizer", optimizer, optimizers, 0),
	N("layerwise_optimizer", "--use-layer-wise-distributed-optimizer", layerwise, 0, 1, 0),
	W("recompute_granularity", "--recompute-granularity", recompute, recomputes, 0),
	W("recompute_method", "--recompute-method", recompute_uniform, methods, 1),
	N("recompute_num_layers", "--recompute-num-layers", recompute_layers, 0, 4096, 1),
	{"recompute_modules", "--recompute-modules", OOM_MG_TEXT, F(recompute_modules), NULL, 0, 0,
	 0},
	W("transformer_impl", "--transformer-impl", local_layers, impls, 0),
	W("attention_resolved", "--attention-backend", attention, attentions, 0),
	W("attention_backend", "--attention-backend", attention, attentions, 0),
	W("cross_entropy_fusion", "--cross-entropy-fusion-impl", cross_entropy, entropies, 0),
	N("grad_accum_fusion", "--no-gradient-accumulation-fusion", grad_accum_fusion, 0, 1, 1),
	N("bias_act_fusion", "--no-bias-gelu-fusion", bias_act_fusion, 0, 1, 1),
	N("attention_mask_in_dataloader", "--no-create-attention-mask-in-dataloader",
	  mask_in_loader, 0, 1, 1),
	N("deterministic", "--deterministic-mode", deterministic, 0, 1, 0),
	W("fp8", "--fp8-format", fp8, fp8s, 0),
	N("fp8_param_gather", "--fp8-param-gather", fp8_params, 0, 1, 0),
	W("fp8_recipe", "--fp8-recipe", fp8_recipe, recipes, 0),
	N("first_last_bf16", "--first-last-layers-bf16", ends_in_bf16, 0, 1, 0),
	N("defer_embedding_wgrad", "--defer-embedding-wgrad-compute", defer_wgrad, 0, 1, 0),
	{"fine_grained_offload", "--fine-grained-activation-offloading --offload-modules",
	 OOM_MG_TEXT, F(offload_modules), NULL, 0, 0, 0},
	N("deepspeed", "--deepspeed", pipe_engine, 0, 1, 0),
	W("gpu", "", gpu_arch, archs, 0),
	{"cublas_workspace", "CUBLAS_WORKSPACE_CONFIG", OOM_MG_COUNT, F(cublas_kib), NULL, 0,
	 1 << 24, 0},
};
#undef N
#undef W

const struct oom_mg_arg *oom_mg_arg_at(size_t i)
{
	return i < sizeof(args) / sizeof(args[0]) ? &args[i] : NULL;
}

const struct oom_mg_arg *oom_mg_arg_find(const char *column)
{
	for (size_t i = 0; oom_mg_arg_at(i); i++)
		if (!strcmp(args[i].column, column))
			return &args[i];
	return NULL;
}

static int64_t *count_field(struct oom_megatron *m, const struct oom_mg_arg *a)
{
	return (int64_t *)(void *)((char *)m + a->offset);
}

struct oom_megatron oom_megatron_default(void)
{
	struct oom_megatron m;

	memset(&m, 0, sizeof(m));
	for (size_t i = 0; oom_mg_arg_at(i); i++) {
		if (args[i].kind == OOM_MG_REAL)
			*(double *)(void *)((char *)&m + args[i].offset) = args[i].def;
		else if (args[i].kind != OOM_MG_TEXT)
			*count_field(&m, &args[i]) = (int64_t)args[i].def;
	}
	return m;
}

/* ":4096:8" is eight buffers of 4096 KiB; several pairs add up (cuBLAS documentation,
 * CUBLAS_WORKSPACE_CONFIG). */
static int64_t workspace_kib(const char *text)
{
	int64_t sum = 0;

	while (*text == ':') {
		char *end;
		const long size = strtol(text + 1, &end, 10);
		const long count = *end == ':' ? strtol(end + 1, &end, 10) : 0;

		if (size < 0 || count < 0 || size > 1 << 20 || count > 1 << 10)
			return 0;
		sum += (int64_t)size * count;
		text = end;
	}
	return sum;
}

static enum oom_status set_choice(struct oom_megatron *m, const struct oom_mg_arg *a,
				  const char *text, struct oom_error *err)
{
	const char *near;

	for (int64_t i = 0; a->words[i]; i++)
		if (!strcmp(a->words[i], text)) {
			*count_field(m, a) = i;
			return OOM_OK;
		}
	if (a->words == archs) {
		/* another card: Ampere's workspaces are the smaller */
		*count_field(m, a) = 0;
		return OOM_OK;
	}
	near = oom_nearest(text, a->words);
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%s\" is not known%s%s%s", a->column, text,
			     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

enum oom_status oom_mg_set_optimizer(struct oom_megatron *m, const char *word, struct oom_error *err)
{
	for (int64_t i = 0; optimizers[i]; i++)
		if (!strcmp(optimizers[i], word)) {
			m->optimizer = i;
			return OOM_OK;
		}
	return oom_megatron_set(m, oom_mg_arg_find("optimizer"), word, err);
}

enum oom_status oom_megatron_set(struct oom_megatron *m, const struct oom_mg_arg *a,
				 const char *text, struct oom_error *err)
{
	int64_t n = 0;
	double v = 0;

	if (!strcmp(a->column, "cublas_workspace")) {
		m->cublas_kib = workspace_kib(text);
		return OOM_OK;
	}
	if (a->kind == OOM_MG_CHOICE)
		return set_choice(m, a, text, err);
	if (a->kind == OOM_MG_TEXT) {
		if (strlen(text) >= a->size)
			return oom_error_set(err, OOM_ERR_INVALID, "%s: longer than %zu characters",
					     a->column, a->size - 1);
		strcpy((char *)m + a->offset, text);
		return OOM_OK;
	}
	if (a->kind == OOM_MG_REAL ? oom_parse_real(text, &v, NULL) :
				     oom_parse_count(text, &n, NULL))
		v = NAN;
	else if (a->kind != OOM_MG_REAL)
		v = (double)n;
	if (!(v >= a->min && v <= a->max))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: \"%s\" is not a number from %.0f to %.0f", a->column,
				     text, a->min, a->max);
	if (a->kind == OOM_MG_REAL)
		*(double *)(void *)((char *)m + a->offset) = v;
	else
		*count_field(m, a) = n;
	return OOM_OK;
}
