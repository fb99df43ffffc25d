/* The engines: traits that the passes ask for, what each keeps and buffers, what follows it.
 *
 * Model states are the ZeRO paper's (arXiv:1910.02054, section 5): weights, gradients and optimizer
 * state, each either whole or divided by the data-parallel degree.  What does not divide - buckets,
 * gathered parameters, staging buffers - is added as each engine's code allocates it (passes/), and
 * is the floor that more GPUs do not lower. */
#include "plan/defaults.h"
#include "step/engines.h"

/* ---- what each of them is ---- */

/* from_pretrained's dtype is "auto" since transformers 5: the config's; neither accelerate nor FSDP casts
 * then.  DeepSpeed refuses 16-bit weights that its file does not enable (runtime/engine.py __check_params),
 * so that what runs is 16 bit there too. */
#define OF_CONFIG \
	.precision = OOM_AUTO_PRECISION, .mixed_precision = OOM_AUTO_PRECISION, \
	.precision_source = "transformers modeling_utils.py from_pretrained, _get_dtype"
/* Neither --bf16 nor --fp16. */
#define OF_MEGATRON \
	.precision = OOM_FP32, .mixed_precision = OOM_FP32, \
	.precision_source = "megatron/training/arguments.py params_dtype"

/* FULL_SHARD is what torch's FullyShardedDataParallel and fully_shard do unless told otherwise, accelerate's default
 * and what torchtune's and torchtitan's recipes leave it at. */
#define SHARDS_FULLY \
	.shards_unasked = 3, \
	.shards_source = "torch/distributed/fsdp/fully_sharded_data_parallel.py sharding_strategy; accelerate " \
			 "utils/dataclasses.py FullyShardedDataParallelPlugin"

/* Microseconds of a unit's hooks in one pass.  Qwen2.5-0.5B with adapters on four H100s takes 0.14 s a step whole on
 * each and 0.57 wrapped, of 24 layers and 192 matrices of adapters: 1 ms (Soup, benchmarks/gate-h100-validation.md,
 * step 20). */
#define FSDP_HOOK 1000

#define FSDP_UNITS "FSDP: transients as its collectives allocate them, one block per unit"

/* What the row of choices.h says. */
#define INFO_OF(id) \
	.plain = (id##_TRAITS & OOM_E_PLAIN) != 0, .bucket_view = (id##_TRAITS & OOM_E_PLAIN) != 0, \
	.in_turn = (id##_TRAITS & OOM_E_IN_TURN) != 0, .degrees = (id##_TRAITS & OOM_E_RANKS) != 0, \
	.mixes = (id##_TRAITS & OOM_E_MIXES) != 0, .casts_model = (id##_TRAITS & OOM_E_ZERO) != 0, \
	.keeps_autocast = (id##_TRAITS & (OOM_E_AUTOCAST | OOM_E_FSDP)) == (OOM_E_AUTOCAST | OOM_E_FSDP), \
	.hybrid = (id##_TRAITS & OOM_E_FSDP) != 0, .offloads_whole = (id##_TRAITS & OOM_E_FSDP) != 0
#define TRAITS_OF(id) \
	.partitions = (id##_TRAITS & OOM_E_ZERO) != 0, .wraps_units = (id##_TRAITS & OOM_E_FSDP) != 0, \
	.whole_offload = (id##_TRAITS & OOM_E_FSDP) != 0, .pure_bf16 = (id##_TRAITS & OOM_E_PURE) != 0, \
	.unit_hook_us = (id##_TRAITS & OOM_E_FSDP) ? FSDP_HOOK : 0, \
	.core_layers = (id##_TRAITS & OOM_E_CORE) != 0, .pipe_engine = (id##_TRAITS & OOM_E_PIPE) != 0

static const struct oom_engine engines[] = {
	[OOM_ENGINE_HF] = {
		TRAITS_OF(OOM_ENGINE_HF),
		.info = {"weights, gradients and optimizer state, whole on every GPU",
			 "DDP's buckets, together as large as the gradients, unless "
			 "gradient_as_bucket_view",
			 "torch/csrc/distributed/c10d/reducer.cpp", OF_CONFIG,
			 .shards_as = OOM_ENGINE_DEEPSPEED, .shards_from = 1, .shards_to = 3,
			 .offloads = true, .offloads_as = OOM_ENGINE_DEEPSPEED,
			 .tries = {OOM_ENGINE_DEEPSPEED, OOM_ENGINE_FSDP2}, .n_tries = 2,
			 .last_try = OOM_ENGINE_FSDP1,
			 INFO_OF(OOM_ENGINE_HF)},
		.buckets = true},
	[OOM_ENGINE_DEEPSPEED] = {
		TRAITS_OF(OOM_ENGINE_DEEPSPEED),
		.info = {"optimizer state and an fp32 master copy / GPUs from stage 1 on, gradients "
			 "from 2, weights from 3",
			 "one reduce bucket (whatever the model's size), the fp32 gradients of a "
			 "sub-group in the step and what its optimizer takes beside them; stage 3: live, prefetched and persistent parameters",
			 "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, "
			 "partitioned_param_coordinator.py",
			 .replicates = true, OF_CONFIG,
			 .shards_as = OOM_ENGINE_DEEPSPEED, .shards_from = 1, .shards_to = 3,
			 .offloads = true, .offloads_as = OOM_ENGINE_DEEPSPEED,
			 .tries = {OOM_ENGINE_DEEPSPEED}, .n_tries = 1, .narrows = true,
			 INFO_OF(OOM_ENGINE_DEEPSPEED)},
		/* FusedAdam unless torch_adam is asked for (runtime/engine.py _configure_basic_optimizer) */
		.lowest_stage = 1, .buckets = true, .fp32_master = true, .fused_update = true,
		/* runtime/zero/config.py: overlap_comm is off below stage 3; in stage 3 weights are
		 * fetched by hooks in Python that wait for what the trace did not prefetch
		 * (partitioned_param_coordinator.py, fetch_sub_module).  bigscience, experiments/gpt2.md:
		 * 111, 118, 150 and 175 s with micro-batches of 6, 8, 10 and 12 are 36 s and 11.5 s for
		 * each sequence */
		.waits = true,
		/* DeepSpeed's own figures of ZeRO-Offload: 1.5 billion parameters take 1.1 s and 3 billion 2.1 s of two ranks with their
		 * cores bound (blogs/zenflow-corebinding/README.md), 7 billion 6.5 s of four (blogs/deepspeed-zenflow/README.md),
		 * at 28 bytes each 29 to 42 GB/s */
		.host_bytes_s = 35e9,
		/* submodules are fetched and released by Python calls before and after each.  Not more than 0.2 ms of a
		 * tensor, as Qwen-72B with adapters (1,300 tensors) takes 2.2 s for three passes over 256 tokens (QwenLM/Qwen,
		 * README.md); 18,900 of 128 experts a layer as modules show (ms-swift, Megatron-SWIFT/Quick-start.md:
		 * Qwen3-30B-A3B, 91 s a step) */
		.tensor_hook_us = 200,
		.approximates = "DeepSpeed: states as its code divides them; stage 3 reserves "
				"more where the host runs far ahead of the card"},
	[OOM_ENGINE_FSDP2] = {
		TRAITS_OF(OOM_ENGINE_FSDP2),
		.info = {"weights (rows of each, padded), gradients and optimizer state / GPUs",
			 "two gathered blocks, a block's gradients, its reduce-scatter input; the "
			 "root's parameters throughout",
			 "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, "
			 "_fsdp_param_group.py; data/fsdp2_tracker.csv",
			 /* FSDP begins at SHARD_GRAD_OP and offloads everything or nothing */
			 /* torchtitan's training.dtype and mixed_precision_param, where it mixes degrees */
			 .precision = OOM_AUTO_PRECISION, .mixed_precision = OOM_AMP_BF16,
			 .precision_source = "transformers modeling_utils.py from_pretrained; torchtitan "
					     "config/configs.py training.dtype, mixed_precision_param",
			 .launcher = "torchtitan", SHARDS_FULLY, .for_many = true, .shards_as = OOM_ENGINE_FSDP2, .shards_from = 2, .shards_to = 3,
			 .offloads = true, .offloads_as = OOM_ENGINE_FSDP2,
			 .tries = {OOM_ENGINE_FSDP2}, .n_tries = 1,
			 INFO_OF(OOM_ENGINE_FSDP2)},
		.lowest_stage = 2, .gathers_apart = true, .full_state_dict = true,
		.approximates = FSDP_UNITS},
	[OOM_ENGINE_FSDP1] = {
		TRAITS_OF(OOM_ENGINE_FSDP1),
		.info = {"flat weights, gradients and optimizer state / GPUs",
			 "two gathered blocks (limit_all_gathers), a block's gradients",
			 "torch/distributed/fsdp/_flat_param.py, _runtime_utils.py",
			 /* FSDP begins at SHARD_GRAD_OP and offloads everything or nothing */
			 OF_CONFIG, SHARDS_FULLY, .shards_as = OOM_ENGINE_FSDP1, .shards_from = 2, .shards_to = 3,
			 .offloads = true, .offloads_as = OOM_ENGINE_FSDP1,
			 .tries = {OOM_ENGINE_FSDP1}, .n_tries = 1,
			 /* huggingface/transformers#45640: FSDP2 is the default, FSDP1 deprecated */
			 .of_old_libraries = true, INFO_OF(OOM_ENGINE_FSDP1)},
		.lowest_stage = 2, .upcasts = true,
		.full_state_dict = true, .approximates = FSDP_UNITS},
	[OOM_ENGINE_MEGATRON] = {
		TRAITS_OF(OOM_ENGINE_MEGATRON),
		.info = {"16-bit weights and the fp32 gradient buffer / (tp x pp), fp32 master and "
			 "optimizer state / data-parallel ranks with --zero 1",
			 "passes in flight, workspaces of cuBLAS and TransformerEngine, dummy weight "
			 "gradients, received activations",
			 "megatron/core/optimizer/distrib_optimizer.py, pipeline_parallel/schedules.py",
			 /* its distributed optimizer */
			 OF_MEGATRON, .shards_as = OOM_ENGINE_MEGATRON, .shards_from = 1, .shards_to = 1,
			 .launcher = "Megatron-LM",
			 INFO_OF(OOM_ENGINE_MEGATRON)},
		/* TransformerEngine's or apex' FusedAdam (megatron/core/optimizer/__init__.py) */
		.full_state_dict = true, .fused_update = true},
	[OOM_ENGINE_TORCHTUNE] = {
		TRAITS_OF(OOM_ENGINE_TORCHTUNE),
		.info = {"as fsdp2, everything in bf16 (or fp32): no master copy", "as fsdp2",
			 "torchtune recipes/full_finetune_distributed.py",
			 /* FSDP begins at SHARD_GRAD_OP and offloads everything or nothing */
			 /* each of its recipes' configs says so (recipes/configs, dtype: bf16) */
			 .precision = OOM_BF16, .mixed_precision = OOM_BF16,
			 .precision_source = "torchtune recipes/configs dtype",
			 SHARDS_FULLY, .shards_as = OOM_ENGINE_TORCHTUNE, .shards_from = 2, .shards_to = 3,
			 .offloads = true, .offloads_as = OOM_ENGINE_TORCHTUNE,
			 .tries = {OOM_ENGINE_TORCHTUNE}, .n_tries = 1,
			 INFO_OF(OOM_ENGINE_TORCHTUNE)},
		.lowest_stage = 2, .gathers_apart = true,
		.copies_heads = true, .own_adapters = true, .full_state_dict = true, .approximates = FSDP_UNITS},
	[OOM_ENGINE_DEVICE_MAP] = {
		TRAITS_OF(OOM_ENGINE_DEVICE_MAP),
		.info = {"the layers that fall to a GPU, with their gradients and optimizer state",
			 "the hidden states received; copies of masks and rotary tables; GPU 0: the "
			 "logits brought back",
			 "transformers integrations/accelerate.py, accelerate hooks.py",
			 OF_CONFIG, .shards_as = OOM_ENGINE_DEEPSPEED, .shards_from = 3, .shards_to = 3,
			 .tries = {OOM_ENGINE_DEEPSPEED, OOM_ENGINE_FSDP2}, .n_tries = 2,
			 INFO_OF(OOM_ENGINE_DEVICE_MAP)},
		.approximates = "device_map: balanced by weights; layers are taken as equal, copies "
				"of masks and rotary tables as kept by every layer"},
	[OOM_ENGINE_MEGATRON_DEEPSPEED] = {
		TRAITS_OF(OOM_ENGINE_MEGATRON_DEEPSPEED),
		/* ReduceGrads ends the schedule (deepspeed/runtime/pipe/engine.py _exec_reduce_grads) */
		.waits = true,
		.info = {"16-bit weights and gradients / (tp x pp), in bf16 fp32 gradients besides; fp32 "
			 "master and optimizer state / data-parallel ranks with --zero 1",
			 "what a stage received and gave for every pass in flight; at the step a bucket of "
			 "500 M gradients, in fp16 fp32 gradients of the rank's part",
			 "deepspeed/runtime/pipe/engine.py, bf16_optimizer.py, zero/stage_1_and_2.py, "
			 "fp16/fused_optimizer.py",
			 OF_MEGATRON, .shards_as = OOM_ENGINE_MEGATRON_DEEPSPEED, .shards_from = 1, .shards_to = 1,
			 INFO_OF(OOM_ENGINE_MEGATRON_DEEPSPEED)},
		/* apex' FusedAdam (megatron/optimizer/__init__.py) */
		.full_state_dict = true, .fused_update = true},
};

const struct oom_engine *oom_engine_of(const struct oom_plan *p)
{
	return &engines[p->engine];
}

const struct oom_engine_info *oom_engine_at(size_t i)
{
	return i < sizeof(engines) / sizeof(engines[0]) ? &engines[i].info : NULL;
}

double oom_engine_hooks_s(const struct oom_plan *p, const struct oom_work *w)
{
	const struct oom_engine *e = oom_engine_of(p);
	/* PEFT's policy makes adapters FSDP1's units (peft/utils/other.py fsdp_auto_wrap_policy); FSDP2's are layers alone
	 * (torchtune/training/_distributed.py get_shard_conditions; accelerate/utils/fsdp_utils.py fsdp2_prepare_auto_wrap_policy) */
	const bool apart = oom_plan_adapted(p) && !e->gathers_apart;
	const double passes = p->grad_ckpt == OOM_CKPT_NONE ? 2 : 3, units = w->units + 1 + (apart ? w->trained : 0);

	if (p->zero_stage < (e->wraps_units ? 2 : 3) || p->gpus <= 1)
		return 0;
	return passes * 1e-6 * (e->unit_hook_us * units + e->tensor_hook_us * w->tensors);
}

/* Python of Megatron-core's and TransformerEngine's modules for each kernel of a micro-batch, forward and backward, whatever
 * it computes: 24 layers of BERT-large over 16 micro-batches of 4 x 512 tokens take 4.5 ms each with four tensor ranks and
 * 4.7 with two and two stages, 12 layers of 512 elements 6.8 ms on four tensor ranks and 3.9 to 6.9 on one or two, the rest
 * of the step included, which is most of it where passes are few (eight H100s: Megatron-LM, golden_values_dev_dgx_h100.json
 * of bert_mcore_tp4_pp1, bert_mcore_tp2_pp2 and gpt3_mcore_*, tests/functional_tests/test_cases; a DGX A100, whose
 * processor is older, takes 6 to 9 for BERT), and a dense layer has 44 kernels (../megatron/work.c).  A layer of experts has
 * 106: 9.9 to 20 ms, and a dense one with two adapters 64: 6.75 (H100s; Megatron-Bridge 067f987
 * examples/model_verification_cards of Qwen3 and GPT-OSS, which had not been looked at when the number was set).  A floor
 * and no summand: kernels are queued while larger ones run.  Estimated, as those tests ask for deterministic kernels.  A
 * graph of a layer is launched as a kernel is: with them layers of experts take 5.8 to 8 ms (the same cards), and Llama 2 70B's
 * 80 layers on 72 GB200 with eight context ranks no more than 0.16 ms each way (MLPerf Training 5.0, data/throughput.csv mlp-11). */
#define CORE_KERNEL_S 1e-4

double oom_engine_launched(const struct oom_plan *p, const struct oom_work *w)
{
	const double all = w->launches + w->launches_back;

	return p->cuda_graphs && oom_engine_core_layers(p) && all > 0 ? 1 - (w->captured - w->replays) / all : 1;
}

double oom_engine_layers_s(const struct oom_plan *p, const struct oom_work *w)
{
	return oom_engine_core_layers(p) ? CORE_KERNEL_S * (w->launches + w->launches_back) * oom_engine_launched(p, w) : 0;
}

bool oom_engine_own_ranks(const struct oom_plan *p)
{
	const struct oom_engine *e = oom_engine_of(p);

	return e->info.degrees || (e->info.mixes && (p->tp > 1 || p->pp > 1 || p->cp > 1 || p->ep > 1));
}

bool oom_engine_divides(const struct oom_plan *p)
{
	return p->zero_stage || (oom_engine_of(p)->info.in_turn && p->gpus > 1);
}

/* transformers' bf16=True sets bf16.enabled (integrations/deepspeed.py trainer_config_process), with
 * which the engine calls module.bfloat16() (deepspeed/runtime/engine.py _configure_distributed_model)
 * and accelerate leaves its autocast off (accelerator.py, native_amp).  Adapters are cast with the rest,
 * those on integers excepted, which are counted in fp32 still. */
bool oom_engine_core_layers(const struct oom_plan *p)
{
	return oom_engine_of(p)->core_layers && p->zero_stage < 3;
}

static bool casts_16bit(const struct oom_plan *p)
{
	return oom_engine_of(p)->info.casts_model && !oom_plan_autocasts(p) && p->precision != OOM_FP32 &&
	       ((p->precision != OOM_BF16 && p->precision != OOM_FP16) ||
		(p->adapter_fp32 && oom_plan_adapted(p)));
}

/* accelerate keeps FSDP1's flat parameters in fp32 where they train under autocast, whatever they were loaded in
 * (accelerator.py prepare_model; data/h100_caps.csv, sh-01 and sh-07).  Its FSDP2 does so too (utils/fsdp_utils.py
 * fsdp2_prepare_model), but others run FSDP2 without it.  Who says --torch-autocast runs FSDP1 without accelerate, and
 * keeps what was loaded (verl/workers/fsdp_workers.py, Composer).  Units in which nothing trains stay as they were
 * loaded: they are counted in fp32 as well, 2 bytes too much for each parameter of the rank's part. */
static bool upcasts(const struct oom_plan *p)
{
	return oom_engine_of(p)->upcasts && p->zero_stage && p->torch_autocast == OOM_AUTOCAST_AUTO && !oom_plan_adapted(p) &&
	       !oom_plan_quantised(p) && (p->precision == OOM_BF16_AMP || p->precision == OOM_FP16_AMP);
}

static bool copies_heads(const struct oom_plan *p)
{
	return oom_engine_of(p)->copies_heads && p->kv_repeat == OOM_KV_GROUPED;
}

/* torchtune compiles its layers, one by one (training/_compile.py), and makes no mask for them. */
static bool compiles_layers(const struct oom_plan *p)
{
	return oom_engine_of(p)->copies_heads && p->compile && !p->compile_layers;
}

/* torchtune makes the model, adapters and all, under set_default_dtype (recipes/lora_finetune_single_device.py
 * _setup_model), those on a 4-bit base too: only its weight becomes an NF4Tensor (modules/peft/lora.py), which is
 * sharded as any other. */
static bool owns_quantised(const struct oom_plan *p)
{
	return oom_plan_quantised(p) && p->quant_storage != OOM_QUANT_STORAGE_OWN;
}

static bool narrows_adapters(const struct oom_plan *p)
{
	return oom_engine_of(p)->own_adapters && oom_plan_adapted(p) && (p->adapter_fp32 || owns_quantised(p));
}

/* FSDP flattens floating parameters only, whatever it divides of them, and ZeRO-3 divides such ones: there the word auto
 * means the model's own type, which PEFT gives to adapters that nobody asks it to keep in fp32. */
static bool stores_to_divide(const struct oom_plan *p)
{
	const struct oom_engine *e = oom_engine_of(p);

	return p->quant_storage == OOM_QUANT_STORAGE_AUTO && oom_plan_quantised(p) && !p->adapter_fp32 &&
	       (e->wraps_units || (e->partitions && p->zero_stage == 3));
}

bool oom_engine_recasts(const struct oom_plan *p)
{
	return casts_16bit(p) || upcasts(p) || copies_heads(p) || compiles_layers(p) || narrows_adapters(p) ||
	       stores_to_divide(p);
}

void oom_engine_recast(struct oom_plan *p)
{
	if (copies_heads(p))
		p->kv_repeat = OOM_KV_SDPA;
	if (compiles_layers(p))
		p->compile_layers = 1;
	if (stores_to_divide(p))
		p->quant_storage = OOM_QUANT_STORAGE_OWN;
	if (narrows_adapters(p)) {
		if (owns_quantised(p))
			p->quant_storage = OOM_QUANT_STORAGE_OWN;
		p->adapter_fp32 = 0;
	}
	oom_engine_respell(p);
	if (casts_16bit(p) && oom_plan_adapted(p))
		p->adapter_fp32 = 0;
}

void oom_engine_respell(struct oom_plan *p)
{
	if (casts_16bit(p) && !oom_plan_precision_open(p))
		p->precision = oom_plan_fp16(p) ? OOM_FP16 : OOM_BF16;
	else if (upcasts(p))
		p->precision = oom_plan_fp16(p) ? OOM_AMP_FP16 : OOM_AMP_BF16;
}

/* What DeepSpeed's documentation names where memory is short (docs/_pages/config-json.md).  Buckets become as large as
 * transformers makes them of "auto" (integrations/deepspeed.py trainer_config_finalize: hidden x hidden, 0.9 of it,
 * 10 x hidden); a tenth of the default's live parameters is a guess. */
bool oom_engine_narrow(struct oom_plan *p)
{
	if (!oom_engine_of(p)->info.narrows || !p->zero_stage || p->reduce_bucket != OOM_DEFAULT_REDUCE_BUCKET ||
	    p->max_live_params != OOM_DEFAULT_MAX_LIVE || p->prefetch_bucket != OOM_DEFAULT_PREFETCH ||
	    p->persistence != OOM_DEFAULT_PERSISTENCE)
		return false;
	p->reduce_bucket = OOM_COUNT_AUTO;
	if (p->zero_stage == 3) {
		p->prefetch_bucket = p->persistence = OOM_COUNT_AUTO;
		p->max_live_params = OOM_DEFAULT_MAX_LIVE / 10;
	}
	return true;
}

bool oom_engine_casts(const struct oom_plan *p)
{
	return oom_engine_of(p)->wraps_units && p->zero_stage &&
	       (p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16);
}

bool oom_engine_casts_adapters(const struct oom_plan *p)
{
	const struct oom_engine *e = oom_engine_of(p);

	return e->wraps_units && e->gathers_apart && !e->own_adapters && p->zero_stage && p->adapter_fp32 &&
	       oom_plan_adapted(p) && !oom_plan_quantised(p) &&
	       (p->precision == OOM_BF16_AMP || p->precision == OOM_FP16_AMP);
}

bool oom_engine_casts_trained(const struct oom_plan *p)
{
	return oom_engine_casts(p) || oom_engine_casts_adapters(p);
}
