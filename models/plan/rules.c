/* Rules between knobs: one row each, and the one place that applies them. */
#include "oomplan/rules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "plan/defaults.h"
#include "plan/open_rules.h"

/* ---- relations that take arithmetic ---- */

static bool nodes_are_full(const struct oom_plan *p)
{
	return !p->gpus_per_node || p->gpus == p->nodes * p->gpus_per_node;
}

static bool gpus_divide(const struct oom_plan *p)
{
	return p->gpus % p->nodes == 0;
}

static bool batch_holds(const struct oom_plan *p)
{
	return !p->global_batch || p->micro_batch <= p->global_batch;
}

static bool ranks_share(const struct oom_plan *p)
{
	/* DeepSpeed runs every stage on one GPU, of which it makes a partition */
	return p->gpus > 1 || p->engine == OOM_ENGINE_DEEPSPEED ||
	       p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE;
}

/* FP8 units came with Ada and Hopper (NVIDIA's tables of compute capabilities). */
static bool has_fp8(const struct oom_plan *p)
{
	return p->compute_capability <= 0 || p->compute_capability >= 8.9;
}

static bool degrees_divide(const struct oom_plan *p)
{
	return p->gpus % (p->tp * p->pp * p->cp) == 0;
}

static_assert(OOM_ENGINE_MEGATRON_DEEPSPEED == OOM_ENGINE_MEGATRON + 1, "rules speak of both as a range");

static bool splits_large(const struct oom_plan *p)
{
	return p->max_split > 20;
}

static bool has_tokens(const struct oom_plan *p)
{
	return p->virtual_tokens > 0;
}

static bool trains_base(const struct oom_plan *p)
{
	return !oom_plan_adapted(p);
}

/* ---- the rows ---- */

#define BIT(choice) ((uint64_t)1 << (choice))
#define FSDP (BIT(OOM_ENGINE_FSDP1) | BIT(OOM_ENGINE_FSDP2) | BIT(OOM_ENGINE_TORCHTUNE))
#define FOUR_BIT (BIT(OOM_BASE_NF4) | BIT(OOM_BASE_FP4))
/* engines of tensor- and pipeline-parallel ranks */
#define PIPELINES (BIT(OOM_ENGINE_MEGATRON) | BIT(OOM_ENGINE_MEGATRON_DEEPSPEED))
/* and torchtitan's */
#define DEGREES (PIPELINES | BIT(OOM_ENGINE_FSDP2))
#define NOT_MEGATRON (~PIPELINES)
/* their ranks and GPUs run parts of one forward pass */
#define WHOLE_CHAIN (PIPELINES | BIT(OOM_ENGINE_DEVICE_MAP))
/* losses that Megatron-core has in some form of its own */
#define EVERYWHERE (BIT(OOM_LOSS_PLAIN) | BIT(OOM_LOSS_FUSED) | BIT(OOM_LOSS_SLICED))
#define BY_TOKENS (BIT(OOM_LOSS_CHUNKED_NLL) | BIT(OOM_LOSS_TILED))
#define COMPARING (BIT(OOM_METHOD_DPO) | BIT(OOM_METHOD_KTO) | BIT(OOM_METHOD_GRPO) | \
		   BIT(OOM_METHOD_PPO))
/* of answers that the trained model gave */
#define ONLINE (BIT(OOM_METHOD_GRPO) | BIT(OOM_METHOD_PPO))
#define AT(field) offsetof(struct oom_plan, field)
#define IS(field, v) {AT(field), (uint64_t)(v), 0, 0}
#define IS_NOT(field, v) {AT(field), (uint64_t)(v) + 1, UINT64_MAX - 1, 0}
#define ABOVE(field, v) {AT(field), (uint64_t)(v) + 1, INT64_MAX - (uint64_t)(v) - 1, 0}
#define ABOVE_REAL(field, v) ABOVE(field, v##_AS_BITS)
#define AMONG(field, set) {AT(field), 0, 0, set}
#define ENGINE(id) IS(engine, OOM_ENGINE_##id)
/* the engines of PIPELINES, which stand next to each other */
#define PIPELINE {AT(engine), OOM_ENGINE_MEGATRON, OOM_ENGINE_MEGATRON_DEEPSPEED - OOM_ENGINE_MEGATRON, 0}
#define ANY {0, 0, UINT64_MAX, 0}
#define AMONG_PROMPTS \
	{AT(peft_type), OOM_ADAPTER_PROMPT, OOM_ADAPTER_P_TUNING - OOM_ADAPTER_PROMPT, 0}

/* 0.0 and 1.0 in IEEE 754 */
#define ZERO_AS_BITS 0
#define ONE_AS_BITS 0x3ff0000000000000

#define NEEDS(...) ANY, false, __VA_ARGS__, NULL, false
#define EXCLUDES(...) ANY, true, __VA_ARGS__, NULL, false
/* The knob has no effect without the other one. */
#define WITHOUT_EFFECT_UNLESS(...) ANY, false, __VA_ARGS__, NULL, true
/* Under another condition. */
#define AND_EXCLUDES(cond, ...) cond, true, __VA_ARGS__, NULL, false
#define AND_NEEDS(cond, ...) cond, false, __VA_ARGS__, NULL, false
/* ... and the knob has no effect where it does not hold */
#define CALCULATES_IDLE(fn) ANY, false, ANY, fn, true
#define CALCULATES(fn) ANY, false, ANY, fn, false
#define AND_CALCULATES(cond, fn) cond, false, ANY, fn, false

/* adapters of most kinds come with a size, lora-r; some have none */
#define WITH_ADAPTERS ANY, false, ABOVE(lora_r, 0), oom_plan_adapted, false
#define IDLE_WITHOUT_ADAPTERS ANY, false, ABOVE(lora_r, 0), oom_plan_adapted, true
#define WITHOUT_ADAPTERS ANY, true, ABOVE(lora_r, 0), trains_base, false

#define ADAPTERS "; --lora-r 16 trains adapters"
#define PARALLEL \
	"tensor, pipeline, context and expert parallelism are Megatron's and torchtitan's: --engine " \
	"megatron or fsdp2"
#define LAID_OUT "how layers lie on pipeline stages is Megatron's: --engine megatron"
#define MEGATRONS(what) (what " is Megatron's: --engine megatron")
#define IN_TURN \
	"engine device-map is one process on the GPUs of one node (64 at most): no ZeRO, no " \
	"offload, no second node"
#define STREAMED \
	"offload-gradients is torchao's CPUOffloadOptimizer: --engine hf --offload-optimizer cpu"
#define NO_OFFLOAD "engine megatron: offload is not modelled; use deepspeed or fsdp2"
#define NO_FREEZING "engine megatron: frozen parts are not modelled; use hf, deepspeed or fsdp2"
#define BASE_IS_FROZEN \
	"with adapters all of the base is frozen: freeze, train and train-last choose what trains " \
	"without; --lora-targets and --exclude-modules choose among adapters"
#define NO_LORA "engine megatron: LoRA is not modelled; use hf, deepspeed or fsdp2"
#define BY_ENGINE "offload needs --engine deepspeed, fsdp1 or fsdp2"
#define BY_STAGE "offload needs a ZeRO stage (--zero 1, 2 or 3)"
#define ALL_OR_NOTHING "FSDP offloads everything to the CPU or nothing: --offload-params cpu"
#define HYBRID "hybrid-shard is FSDP's HYBRID_SHARD: --zero 3 on two nodes or more"

/* A plan that breaks several hears of the first: what chooses the engine stands before what the
 * engine then lacks. */
static const struct oom_rule rules[] = {
	/* adapters */
	{ABOVE(qlora, 0), WITH_ADAPTERS,
	 "qlora freezes the weights in 4 bit and trains nothing without adapters" ADAPTERS},
	{ABOVE(base_weights, 0), WITH_ADAPTERS,
	 "base-weights {base-weights} freezes the layers and trains nothing without adapters" ADAPTERS},
	{ABOVE(qlora, 0), NEEDS(AMONG(base_weights, FOUR_BIT | BIT(OOM_BASE_PLAIN))),
	 "qlora is 4 bit, base-weights says {base-weights}: one of them"},
	{ABOVE(kbit_prepare, 0), CALCULATES_IDLE(oom_plan_quantised),
	 "kbit-prepare prepares a base that is loaded in 4 or 8 bit: --qlora"},
	{IS(double_quant, 0), CALCULATES_IDLE(oom_plan_four_bit),
	 "double-quant concerns the scales of 4-bit weights, of which there are none: --qlora"},
	{ABOVE(use_dora, 0), IDLE_WITHOUT_ADAPTERS,
	 "use-dora is a kind of adapter, of which there are none" ADAPTERS},
	{IS_NOT(peft_type, OOM_ADAPTER_LORA), IDLE_WITHOUT_ADAPTERS,
	 "peft-type {peft-type} is a kind of adapter, of which there are none" ADAPTERS},
	{ABOVE(virtual_tokens, 0), CALCULATES_IDLE(oom_plan_prompted),
	 "num-virtual-tokens is about prompts that train: --peft-type prompt-tuning"},
	{AMONG_PROMPTS, CALCULATES(has_tokens),
	 "peft-type {peft-type} trains virtual tokens: --num-virtual-tokens 20 says how many"},
	{ABOVE(encoder_hidden, 0), WITHOUT_EFFECT_UNLESS(IS(peft_type, OOM_ADAPTER_P_TUNING)),
	 "encoder-hidden-size is p-tuning's: --peft-type p-tuning"},
	{ABOVE(trainable_tokens, 0), WITH_ADAPTERS,
	 "trainable-tokens train beside adapters, of which there are none" ADAPTERS},
	{IS_NOT(rank_pattern, 0), IDLE_WITHOUT_ADAPTERS,
	 "rank-pattern is about adapters, of which there are none" ADAPTERS},
	{IS_NOT(rank_pattern, 0), NEEDS(AMONG(peft_type, BIT(OOM_ADAPTER_LORA) | BIT(OOM_ADAPTER_DORA))),
	 "rank-pattern is priced for LoRA and DoRA alone"},
	{IS_NOT(layers_to_transform, 0), IDLE_WITHOUT_ADAPTERS,
	 "layers-to-transform chooses among adapters, of which there are none" ADAPTERS},
	{ABOVE(lora_bias, 0), WITH_ADAPTERS,
	 "lora-bias trains biases beside adapters, of which there are none" ADAPTERS},
	{ABOVE(use_dora, 0), NEEDS(AMONG(peft_type, BIT(OOM_ADAPTER_LORA) | BIT(OOM_ADAPTER_DORA))),
	 "use-dora is LoRA's, peft-type says {peft-type}: one of them"},
	{IS(adapter_fp32, 0), IDLE_WITHOUT_ADAPTERS,
	 "autocast-adapter-dtype is about adapters, of which there are none" ADAPTERS},
	{ABOVE_REAL(lora_dropout, ZERO), IDLE_WITHOUT_ADAPTERS,
	 "lora-dropout stands before adapters, of which there are none" ADAPTERS},
	{PIPELINE, WITHOUT_ADAPTERS, NO_LORA},
	{IS_NOT(modules_to_save, 0), IDLE_WITHOUT_ADAPTERS,
	 "modules-to-save train beside adapters, of which there are none" ADAPTERS},
	{IS_NOT(exclude_modules, 0), IDLE_WITHOUT_ADAPTERS,
	 "exclude-modules leaves modules without adapters, of which there are none" ADAPTERS},

	/* what trains */
	{IS_NOT(freeze, 0), WITHOUT_ADAPTERS, BASE_IS_FROZEN},
	{IS_NOT(train, 0), WITHOUT_ADAPTERS, BASE_IS_FROZEN},
	{ABOVE(train_last, 0), WITHOUT_ADAPTERS, BASE_IS_FROZEN},
	{IS_NOT(freeze, 0), EXCLUDES(PIPELINE), NO_FREEZING},
	{IS_NOT(train, 0), EXCLUDES(PIPELINE), NO_FREEZING},
	{ABOVE(train_last, 0), EXCLUDES(PIPELINE), NO_FREEZING},
	{ABOVE(freeze_tower, 0), EXCLUDES(PIPELINE), NO_FREEZING},
	{ABOVE(freeze_projector, 0), EXCLUDES(PIPELINE), NO_FREEZING},
	{ABOVE(freeze_language, 0), EXCLUDES(PIPELINE), NO_FREEZING},

	/* formats */
	{ABOVE(fp8, 0), EXCLUDES(IS(precision, OOM_FP32)),
	 "fp8 is about products of 16-bit training: --precision bf16 or amp-bf16"},
	{ABOVE(fp8, 0), AND_CALCULATES(ANY, has_fp8),
	 "fp8 needs compute capability 8.9 (Ada, Hopper) or later, not {compute-capability}"},

	/* Megatron's own */
	{ABOVE(tp, 1), NEEDS(AMONG(engine, DEGREES)), PARALLEL},
	{ABOVE(pp, 1), NEEDS(AMONG(engine, DEGREES)), PARALLEL},
	{ABOVE(cp, 1), NEEDS(AMONG(engine, BIT(OOM_ENGINE_MEGATRON) | BIT(OOM_ENGINE_FSDP2))), PARALLEL},
	{ABOVE(ep, 1), NEEDS(AMONG(engine, BIT(OOM_ENGINE_MEGATRON) | BIT(OOM_ENGINE_FSDP2))), PARALLEL},
	{ABOVE(vpp, 1), NEEDS(AMONG(engine, BIT(OOM_ENGINE_MEGATRON) | BIT(OOM_ENGINE_FSDP2))), PARALLEL},
	{ABOVE(sp, 0), NEEDS(AMONG(engine, DEGREES)), PARALLEL},
	{IS_NOT(pp_schedule, 0), WITHOUT_EFFECT_UNLESS(AMONG(engine, DEGREES)),
	 "pp-schedule orders Megatron's pipelines: --engine megatron"},
	{IS_NOT(cp_comm, 0), WITHOUT_EFFECT_UNLESS(ENGINE(MEGATRON)),
	 "cp-comm is about Megatron's context parallelism: --engine megatron"},
	{ABOVE(recompute_layers, 0), NEEDS(PIPELINE),
	 "recompute-num-layers is Megatron's: --engine megatron"},
	{ABOVE(pp_first, 0), NEEDS(ENGINE(MEGATRON)), LAID_OUT},
	{ABOVE(pp_last, 0), NEEDS(ENGINE(MEGATRON)), LAID_OUT},
	{ABOVE(pp_embedding, 0), NEEDS(PIPELINE), LAID_OUT},
	{ABOVE(pp_loss, 0), NEEDS(PIPELINE), LAID_OUT},
	{IS_NOT(pp_layout, 0), NEEDS(ENGINE(MEGATRON)), LAID_OUT},
	{ABOVE(etp, 1), NEEDS(ENGINE(MEGATRON)), PARALLEL},
	{ABOVE(mtp_layers, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("mtp-num-layers")},
	{IS_NOT(layer_impl, OOM_LAYERS_TE), NEEDS(ENGINE(MEGATRON)), MEGATRONS("transformer-impl")},
	{ABOVE(grads_16bit, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("grad-reduce-in-bf16")},
	{IS_NOT(recompute_modules, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("recompute-modules")},
	{IS_NOT(recompute_modules, 0), NEEDS(IS(grad_ckpt, OOM_CKPT_SELECTIVE)),
	 "recompute-modules goes with --grad-ckpt selective"},
	{ABOVE(fp8_params, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("fp8-param-gather")},
	{ABOVE(fp8_params, 0), NEEDS(ABOVE(fp8, 0)),
	 "fp8-param-gather needs a recipe of fp8: --fp8 tensorwise"},
	{ABOVE(defer_wgrad, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("defer-embedding-wgrad")},
	{ABOVE(defer_wgrad, 0), NEEDS(ABOVE(pp, 1)),
	 "defer-embedding-wgrad is about the last pipeline rank: --pp 2 or more"},
	{IS_NOT(offload_modules, 0), NEEDS(ENGINE(MEGATRON)), MEGATRONS("offload-modules")},
	{IS_NOT(offload_modules, 0), EXCLUDES(IS(grad_ckpt, OOM_CKPT_FULL)),
	 "offload-modules has nothing to move where whole layers are recomputed: --grad-ckpt "
	 "selective or none"},
	{ABOVE_REAL(moe_imbalance, ONE), WITHOUT_EFFECT_UNLESS(ENGINE(MEGATRON)),
	 "moe-imbalance is about Megatron's expert parallelism: --engine megatron"},
	{IS(grad_ckpt, OOM_CKPT_SELECTIVE_ATTENTION), EXCLUDES(PIPELINE),
	 "grad-ckpt selective-attention keeps what attention makes; Megatron's --grad-ckpt selective "
	 "recomputes it"},
	{IS_NOT(pp_schedule, 0), EXCLUDES(ABOVE(vpp, 1)),
	 "pp-schedule gpipe has no interleaved form: --vpp 1"},
	{ABOVE(recompute_layers, 0), NEEDS(IS(grad_ckpt, OOM_CKPT_FULL)),
	 "recompute-num-layers goes with --grad-ckpt full"},
	{ENGINE(MEGATRON_DEEPSPEED), EXCLUDES(ABOVE(zero_stage, 1)),
	 "engine megatron-deepspeed: DeepSpeed's pipeline engine takes ZeRO stage 0 or 1 "
	 "(pipe/engine.py); --engine deepspeed for 2 and 3"},
	{ENGINE(MEGATRON_DEEPSPEED), EXCLUDES(ABOVE(fp8, 0)),
	 "engine megatron-deepspeed: its layers multiply in 16 bit; --engine megatron"},
	{PIPELINE, CALCULATES(degrees_divide),
	 "{gpus} GPUs are not a multiple of tp {tp} x pp {pp} x cp {cp}"},
	{ENGINE(FSDP2), CALCULATES(degrees_divide),
	 "{gpus} GPUs are not a multiple of tp {tp} x pp {pp} x cp {cp}"},
	{IS(loss_parallel, 0), WITHOUT_EFFECT_UNLESS(ENGINE(FSDP2)),
	 "loss-parallel is torchtitan's: --engine fsdp2 with --tp"},

	/* objectives */
	{IS_NOT(objective, OOM_METHOD_SFT), EXCLUDES(AMONG(engine, WHOLE_CHAIN)),
	 "objective: the second forward pass and the loss outside of the model are not modelled in "
	 "engine {engine}; use hf, deepspeed, fsdp1 or fsdp2"},
	{IS_NOT(objective, OOM_METHOD_SFT), EXCLUDES(IS_NOT(fused_ce, OOM_LOSS_PLAIN)),
	 "objective {objective} makes its own loss of whole logits: --loss plain"},
	{IS(objective, OOM_METHOD_PPO), EXCLUDES(AMONG(engine, FSDP)),
	 "objective ppo: two models in one wrapper are not modelled in engine {engine}; use hf or deepspeed"},
	{IS(reference, OOM_REF_ADAPTER), WITH_ADAPTERS,
	 "reference adapter is the model with its adapters switched off" ADAPTERS},
	{IS_NOT(reference, OOM_REF_AUTO), WITHOUT_EFFECT_UNLESS(AMONG(objective, COMPARING)),
	 "reference: objective {objective} compares the model with nothing; dpo, kto, grpo and ppo do"},
	{IS_NOT(completion_len, OOM_DEFAULT_COMPLETION),
	 WITHOUT_EFFECT_UNLESS(AMONG(objective, ONLINE)),
	 "completion-len is about answers the model is trained on its own: --objective grpo or ppo"},
	{PIPELINE, NEEDS(AMONG(fused_ce, EVERYWHERE)),
	 "engine megatron has a cross entropy of its own: --loss plain, or fused for TE's"},
	{IS_NOT(texts, 2), WITHOUT_EFFECT_UNLESS(IS(objective, OOM_METHOD_CONTRASTIVE)),
	 "texts: objective {objective} compares no texts of a sample; contrastive does"},
	{IS_NOT(rollouts, OOM_ROLLOUTS_AUTO), WITHOUT_EFFECT_UNLESS(AMONG(objective, ONLINE)),
	 "rollouts: objective {objective} learns from no answers of its own; grpo and ppo do"},
	{ABOVE_REAL(vllm_share, ZERO), EXCLUDES(IS(rollouts, OOM_ROLLOUTS_GENERATE)),
	 "vllm-gpu-memory-utilization is the share of an engine: --rollouts engine"},
	{ABOVE_REAL(vllm_share, ZERO), WITHOUT_EFFECT_UNLESS(AMONG(objective, ONLINE)),
	 "vllm-gpu-memory-utilization is about rollouts: --objective grpo"},
	{ABOVE(vllm_sleep, 0), WITHOUT_EFFECT_UNLESS(ABOVE_REAL(vllm_share, ZERO)),
	 "vllm-sleep is about an engine on the card: --vllm-gpu-memory-utilization"},
	{ABOVE(ckpt_every, 1), WITHOUT_EFFECT_UNLESS(IS_NOT(grad_ckpt, OOM_CKPT_NONE)),
	 "ckpt-every is about checkpointed layers: --grad-ckpt full"},
	{ABOVE(ckpt_every, 1), EXCLUDES(AMONG(engine, WHOLE_CHAIN)),
	 "ckpt-every: engine {engine} takes layers as equal"},
	{ABOVE(loss_chunk, 0), WITHOUT_EFFECT_UNLESS(AMONG(fused_ce, BY_TOKENS)),
	 "loss-chunk is about losses in chunks of tokens: --loss chunked-nll or tiled"},
	{IS_NOT(liger_kernels, OOM_LIGER_NONE), EXCLUDES(PIPELINE),
	 "engine megatron has kernels of its own, not Liger's"},
	{ABOVE_REAL(label_smoothing, ZERO), NEEDS(IS(objective, OOM_METHOD_SFT)),
	 "label-smoothing: objective {objective} has no labels to smooth"},
	{ABOVE_REAL(label_smoothing, ZERO), NEEDS(IS(fused_ce, OOM_LOSS_PLAIN)),
	 "label-smoothing makes its own loss of whole logits: --loss plain"},
	{ABOVE_REAL(label_smoothing, ZERO), EXCLUDES(AMONG(engine, WHOLE_CHAIN)),
	 "label-smoothing is not modelled in engine {engine}"},
	{ABOVE(step_in_backward, 0), EXCLUDES(ABOVE(grad_accum, 1)),
	 "optimizer-in-backward steps after every backward: nothing can be accumulated, --grad-accum 1"},
	{ABOVE(step_in_backward, 0), EXCLUDES(PIPELINE),
	 "engine megatron: optimizer-in-backward is not modelled"},
	{IS_NOT(ema, OOM_EMA_NONE), EXCLUDES(PIPELINE),
	 "engine megatron: a mean of the weights is not modelled"},

	/* batches, GPUs, nodes */
	{ABOVE(global_batch, 0), CALCULATES(batch_holds),
	 "--micro-batch {micro-batch} is larger than --global-batch {global-batch}"},
	{ABOVE(gpus_per_node, 0), CALCULATES(nodes_are_full),
	 "--gpus {gpus} is not --nodes {nodes} x --gpus-per-node {gpus-per-node}"},
	{ABOVE(nodes, 1), CALCULATES(gpus_divide), "{gpus} GPUs do not divide over {nodes} nodes"},
	{ABOVE(zero_stage, 0), AND_CALCULATES(AMONG(engine, NOT_MEGATRON), ranks_share),
	 "ZeRO stage {zero} needs more than {gpus} GPU"},

	/* device maps */
	{ENGINE(DEVICE_MAP), EXCLUDES(ABOVE(zero_stage, 0)), IN_TURN},
	{ENGINE(DEVICE_MAP), EXCLUDES(IS_NOT(offload_optimizer, OOM_OFFLOAD_NONE)), IN_TURN},
	{ENGINE(DEVICE_MAP), EXCLUDES(IS_NOT(offload_params, OOM_OFFLOAD_NONE)), IN_TURN},
	{ENGINE(DEVICE_MAP), EXCLUDES(ABOVE(offload_activations, 0)), IN_TURN},
	{ENGINE(DEVICE_MAP), EXCLUDES(ABOVE(nodes, 1)), IN_TURN},
	{ENGINE(DEVICE_MAP), EXCLUDES(ABOVE(gpus, OOM_MAP_GPUS)), IN_TURN},

	/* sharding */
	{ABOVE(zero_stage, 0), EXCLUDES(ENGINE(HF)),
	 "zero: plain PyTorch does not shard; --engine deepspeed, fsdp1 or fsdp2"},
	{IS(zero_stage, 1), EXCLUDES(AMONG(engine, FSDP)),
	 "FSDP has no stage 1: zero 2 is SHARD_GRAD_OP, 3 FULL_SHARD"},
	{ABOVE(hybrid_shard, 0), NEEDS(AMONG(engine, FSDP)), HYBRID},
	{ABOVE(hybrid_shard, 0), NEEDS(IS(zero_stage, 3)), HYBRID},
	{ABOVE(hybrid_shard, 0), NEEDS(ABOVE(nodes, 1)), HYBRID},
	{ENGINE(TORCHTUNE), NEEDS(AMONG(precision, BIT(OOM_BF16) | BIT(OOM_FP32) | BIT(OOM_AUTO_PRECISION))),
	 "torchtune's recipes are pure bf16 or fp32: --precision bf16"},
	{ABOVE(bucket_view, 0), WITHOUT_EFFECT_UNLESS(ENGINE(HF)),
	 "gradient-as-bucket-view is an option of DDP: --engine hf"},
	{ABOVE(torch_autocast, 0),
	 WITHOUT_EFFECT_UNLESS(AMONG(engine, BIT(OOM_ENGINE_DEEPSPEED) | BIT(OOM_ENGINE_FSDP1))),
	 "torch-autocast stands beside an engine's own mixed precision: --engine deepspeed or fsdp1"},
	{ABOVE(fp32_grads, 0), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "fp32-grad-accum is DeepSpeed's: --engine deepspeed"},
	/* engine.py _do_optimizer_sanity_check: "unsupported mix of model_dtype and grad_accum_dtype" */
	{ABOVE(fp32_grads, 0), WITHOUT_EFFECT_UNLESS(ABOVE(zero_stage, 0)),
	 "fp32-grad-accum: DeepSpeed adds up in another type than the weights' from --zero 1 on"},
	{IS_NOT(reduce_bucket, OOM_DEFAULT_REDUCE_BUCKET), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "reduce-bucket-size is DeepSpeed's: --engine deepspeed"},
	{IS_NOT(max_live_params, OOM_DEFAULT_MAX_LIVE), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "max-live-parameters is DeepSpeed's: --engine deepspeed"},
	{IS_NOT(prefetch_bucket, OOM_DEFAULT_PREFETCH), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "prefetch-bucket-size is DeepSpeed's: --engine deepspeed"},
	{IS_NOT(persistence, OOM_DEFAULT_PERSISTENCE), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "param-persistence-threshold is DeepSpeed's: --engine deepspeed"},
	{IS_NOT(sub_group_size, OOM_DEFAULT_SUB_GROUP), WITHOUT_EFFECT_UNLESS(ENGINE(DEEPSPEED)),
	 "sub-group-size is DeepSpeed's: --engine deepspeed"},

	/* offload */
	{IS_NOT(offload_optimizer, OOM_OFFLOAD_NONE), EXCLUDES(PIPELINE), NO_OFFLOAD},
	{IS_NOT(offload_params, OOM_OFFLOAD_NONE), EXCLUDES(PIPELINE), NO_OFFLOAD},
	{ABOVE(offload_activations, 0), EXCLUDES(PIPELINE), NO_OFFLOAD},
	{IS(offload_optimizer, OOM_OFFLOAD_NVME), EXCLUDES(ENGINE(HF)), BY_ENGINE},
	{IS_NOT(offload_params, OOM_OFFLOAD_NONE), EXCLUDES(ENGINE(HF)), BY_ENGINE},
	/* plain PyTorch: torchao's CPUOffloadOptimizer */
	{IS_NOT(offload_optimizer, OOM_OFFLOAD_NONE),
	 AND_NEEDS(AMONG(engine, ~BIT(OOM_ENGINE_HF)), ABOVE(zero_stage, 0)), BY_STAGE},
	{ABOVE(offload_gradients, 0), NEEDS(IS(offload_optimizer, OOM_OFFLOAD_CPU)), STREAMED},
	{ABOVE(offload_gradients, 0), NEEDS(ENGINE(HF)), STREAMED},
	{ABOVE(offload_gradients, 0), EXCLUDES(ABOVE(grad_accum, 1)),
	 "offload-gradients clears gradients after every backward: nothing can be accumulated, "
	 "--grad-accum 1"},
	{ABOVE(step_in_backward, 0), AND_EXCLUDES(ENGINE(HF), IS(offload_optimizer, OOM_OFFLOAD_CPU)),
	 "optimizer-in-backward steps on the card, torchao's CPUOffloadOptimizer on the host after the "
	 "backward: --offload-gradients frees gradients as they come"},
	{IS_NOT(offload_params, OOM_OFFLOAD_NONE), NEEDS(IS(zero_stage, 3)),
	 "offload-params needs --zero 3"},
	{IS_NOT(offload_params, OOM_OFFLOAD_NONE),
	 AND_NEEDS(AMONG(engine, FSDP), IS(offload_params, OOM_OFFLOAD_CPU)), ALL_OR_NOTHING},
	{IS_NOT(offload_optimizer, OOM_OFFLOAD_NONE),
	 AND_NEEDS(AMONG(engine, FSDP), IS(offload_params, OOM_OFFLOAD_CPU)), ALL_OR_NOTHING},
	{IS(offload_optimizer, OOM_OFFLOAD_NVME), EXCLUDES(AMONG(engine, FSDP)), ALL_OR_NOTHING},

	/* the allocator; c10/core/AllocatorConfig.cpp refuses what is not above kLargeBuffer */
	{ABOVE(max_split, 0), CALCULATES(splits_large),
	 "max-split-size-mb {max-split-size-mb}: PyTorch wants more than 20"},
	{ABOVE(max_split, 0), WITHOUT_EFFECT_UNLESS(IS(allocator, OOM_ALLOC_NATIVE)),
	 "max-split-size-mb is about cudaMalloc's segments, which expandable ones are not: "
	 "--allocator native"},

	/* host; torch.utils.data.DataLoader itself refuses this one */
	{IS_NOT(prefetch_factor, OOM_DEFAULT_PREFETCH_FACTOR),
	 WITHOUT_EFFECT_UNLESS(ABOVE(dataloader_workers, 0)),
	 "prefetch-factor is how far data-loader processes read ahead: --dataloader-workers 4"},
};

enum { N_RULES = sizeof(rules) / sizeof(rules[0]) };

const struct oom_rule *oom_rule_at(size_t i)
{
	return i < N_RULES ? &rules[i] : NULL;
}

/* ---- their application ---- */

static inline bool within(const struct oom_plan *p, const struct oom_condition *c)
{
	uint64_t n;

	memcpy(&n, (const char *)p + c->offset, sizeof(n));
	return n - c->from <= c->span;
}

static bool holds(const struct oom_plan *p, const struct oom_condition *c)
{
	uint64_t n;

	memcpy(&n, (const char *)p + c->offset, sizeof(n));
	return c->among ? n < 64 && c->among >> n & 1 : within(p, c);
}

/* Of a rule whose `when` holds. */
static bool broken(const struct oom_rule *r, const struct oom_plan *p)
{
	if (!holds(p, &r->also))
		return false;
	return r->right ? !r->right(p) : holds(p, &r->other) == r->excludes;
}

enum { WORDS = (N_RULES + 63) / 64 };

/* Of the rules [64 * word, 64 * word + 64) those whose `when` holds, as bits.  Few do in any plan,
 * and a sweep asks millions of times: all are looked at without a branch, which takes a twentieth of
 * an evaluation. */
static uint64_t in_question(const struct oom_plan *p, size_t word)
{
	const size_t first = 64 * word, end = first + 64 < N_RULES ? first + 64 : N_RULES;
	uint64_t bits = 0;

	for (size_t i = first; i < end; i++)
		bits |= (uint64_t)within(p, &rules[i].when) << (i - first);
	return bits;
}

bool oom_rule_concerns(const struct oom_rule *r, const struct oom_option *k)
{
	const struct oom_condition *all[] = {&r->when, &r->also, &r->other};
	char name[60];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if ((all[i]->among || all[i]->span != UINT64_MAX) && all[i]->offset == k->offset)
			return true;
	/* what arithmetic is about stands in the sentence */
	snprintf(name, sizeof(name), "{%s}", k->name);
	return strstr(r->sentence, name) != NULL;
}

const struct oom_rule *oom_plan_broken(const struct oom_plan *plan, const struct oom_option *open)
{
	for (size_t word = 0; word < WORDS; word++) {
		uint64_t bits = in_question(plan, word);

		for (size_t i = 64 * word; bits; i++, bits >>= 1)
			if (bits & 1 && broken(&rules[i], plan) &&
			    !(open && oom_rule_concerns(&rules[i], open)))
				return &rules[i];
	}
	return NULL;
}

/* ---- what is left open while only sizes change ---- */

static bool asks_size(const struct oom_condition *c)
{
	static const size_t sizes[] = {AT(micro_batch), AT(grad_accum), AT(seq_len), AT(optimizer),
				       AT(compute_capability)};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (c->offset == sizes[i] && (c->among || c->span != UINT64_MAX))
			return true;
	return false;
}

bool oom_rules_left_open(const struct oom_plan *plan, struct oom_open_rules *open)
{
	static_assert(N_RULES <= UINT8_MAX, "numbers of rules are bytes");
	open->n = 0;
	for (size_t i = 0; i < N_RULES; i++) {
		const struct oom_rule *r = &rules[i];
		const bool when = asks_size(&r->when), also = asks_size(&r->also);

		if ((!when && !holds(plan, &r->when)) || (!also && !holds(plan, &r->also)) ||
		    (!when && !also && !r->right && !asks_size(&r->other)))
			continue;
		if (open->n == sizeof(open->rule))
			return false;
		open->rule[open->n++] = (uint8_t)i;
	}
	return true;
}

bool oom_open_rules_hold(const struct oom_open_rules *open, const struct oom_plan *plan)
{
	for (size_t i = 0; i < open->n; i++) {
		const struct oom_rule *r = &rules[open->rule[i]];

		if (within(plan, &r->when) && broken(r, plan))
			return false;
	}
	return true;
}

/* ---- in words ---- */

/* The sentence with the knobs' values in place of their names in braces. */
static void fill_in(const struct oom_plan *p, const char *sentence, char *buf, size_t size)
{
	size_t used = 0;

	for (const char *at = sentence; *at && used + 1 < size;) {
		const size_t len = *at == '{' ? strcspn(at, "}") : 0;
		char name[60], value[OOM_VALUE_SIZE];
		const struct oom_option *k = NULL;

		snprintf(name, sizeof(name), "%.*s", len ? (int)len - 1 : 0, at + 1);
		k = len ? oom_knob_find(name) : NULL;
		if (!k) {
			buf[used++] = *at++;
			continue;
		}
		oom_plan_get(p, k, value, sizeof(value));
		for (const char *v = value; *v && used + 1 < size; v++)
			buf[used++] = *v;
		at += len + 1;
	}
	buf[used] = 0;
}

enum oom_status oom_plan_check_open(const struct oom_plan *plan, const struct oom_option *open,
				    struct oom_error *err)
{
	const struct oom_rule *r = oom_plan_broken(plan, open);
	char text[400];

	if (!r)
		return OOM_OK;
	fill_in(plan, r->sentence, text, sizeof(text));
	return oom_error_set(err, OOM_ERR_INVALID, "%s", text);
}

enum oom_status oom_plan_check(const struct oom_plan *plan, struct oom_error *err)
{
	return oom_plan_check_open(plan, NULL, err);
}

/* What is set back may have been what another knob needed: once more until all is quiet. */
void oom_plan_relax(struct oom_plan *plan)
{
	struct oom_plan plain;
	bool again = true, made = false;

	while (again) {
		again = false;
		for (size_t i = 0; i < N_RULES; i++) {
			const size_t at = rules[i].when.offset;

			if (!within(plan, &rules[i].when) || !rules[i].idle ||
			    !broken(&rules[i], plan))
				continue;
			if (!made)
				plain = oom_plan_default();
			made = again = true;
			memcpy((char *)plan + at, (const char *)&plain + at, sizeof(int64_t));
		}
	}
}
