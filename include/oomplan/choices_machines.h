/* Choices of engines, of how GPUs share a step, and of the kernels that run it, in the form of choices.h. */
#ifndef OOMPLAN_CHOICES_MACHINES_H
#define OOMPLAN_CHOICES_MACHINES_H

#ifdef __cplusplus
extern "C" {
#endif

/* What engines are, as far as other knobs depend on it: rules between knobs and passes ask for these traits instead
 * of comparing names. */
enum oom_engine_trait {
	OOM_E_PLAIN = 1,        /* everything in full on every GPU: DDP, with torchao's offload */
	OOM_E_ZERO = 2,         /* divides states as DeepSpeed's ZeRO does, with its buckets and thresholds */
	OOM_E_FSDP = 4,         /* wraps layers as FSDP does, whose stages begin at 2 */
	OOM_E_RANKS = 8,        /* tensor- and pipeline-parallel ranks with schedules of their own (Megatron) */
	OOM_E_CORE = 16,        /* Megatron-core's layers, optimizer and launcher */
	OOM_E_PIPE = 32,        /* DeepSpeed's pipeline engine over Megatron's layers */
	OOM_E_MIXES = 64,       /* degrees of parallelism beside its sharding (torchtitan) */
	OOM_E_IN_TURN = 128,    /* one process, whose GPUs hold different layers and work in turn */
	OOM_E_AUTOCAST = 256,   /* a mixed precision of its own, beside which autocast is a choice */
	OOM_E_PURE = 512,       /* recipes in one type: no autocast, no fp32 master */
	OOM_E_HOOKED = 1024     /* hooks gather a unit for its backward pass, at a time that is a choice */
};

/* X: a choice as above.  T(ENUM, traits): its traits. */
#define OOM_ENGINE_ROWS(X, T) \
	X(OOM_ENGINE_HF, "hf", \
	  "plain PyTorch, HF Trainer or Lightning Fabric (DDP on several GPUs)", \
	  "ddp multi_gpu", "transformers TrainingArguments", OOM_EXACT) \
	T(OOM_ENGINE_HF, OOM_E_PLAIN) \
	X(OOM_ENGINE_DEEPSPEED, "deepspeed", "DeepSpeed ZeRO", "", "deepspeed config", \
	  OOM_PLACEMENT) \
	T(OOM_ENGINE_DEEPSPEED, OOM_E_ZERO | OOM_E_AUTOCAST) \
	X(OOM_ENGINE_FSDP2, "fsdp2", "fully_shard, torchtitan style", "", \
	  "torch.distributed.fsdp", OOM_PLACEMENT) \
	T(OOM_ENGINE_FSDP2, OOM_E_FSDP | OOM_E_MIXES) \
	X(OOM_ENGINE_FSDP1, "fsdp1", "FullyShardedDataParallel through accelerate", "fsdp", \
	  "accelerate FSDP", OOM_PLACEMENT) \
	T(OOM_ENGINE_FSDP1, OOM_E_FSDP | OOM_E_AUTOCAST | OOM_E_HOOKED) \
	X(OOM_ENGINE_MEGATRON, "megatron", "Megatron-LM", "megatron_lm", \
	  "Megatron-LM arguments", OOM_PLACEMENT) \
	T(OOM_ENGINE_MEGATRON, OOM_E_RANKS | OOM_E_CORE) \
	X(OOM_ENGINE_MEGATRON_DEEPSPEED, "megatron-deepspeed", \
	  "DeepSpeed's pipeline engine and ZeRO-1 under Megatron's layers (BigScience, GPT-NeoX)", "", \
	  "deepspeedai/Megatron-DeepSpeed, deepspeed/runtime/pipe/engine.py", OOM_PLACEMENT) \
	T(OOM_ENGINE_MEGATRON_DEEPSPEED, OOM_E_RANKS | OOM_E_PIPE) \
	X(OOM_ENGINE_TORCHTUNE, "torchtune", "pure bf16 recipes", "", "torchtune recipes", \
	  OOM_NUMERICS) \
	T(OOM_ENGINE_TORCHTUNE, OOM_E_FSDP | OOM_E_PURE) \
	X(OOM_ENGINE_DEVICE_MAP, "device-map", \
	  "one process, layers laid out over the GPUs of a node, which work in turn", "", \
	  "device_map=\"auto\", transformers integrations/accelerate.py", OOM_PLACEMENT) \
	T(OOM_ENGINE_DEVICE_MAP, OOM_E_IN_TURN)
#define OOM_NO_ROW(...)
#define OOM_ENGINES(X) OOM_ENGINE_ROWS(X, OOM_NO_ROW)
#define OOM_ENGINE_TRAITS(T) OOM_ENGINE_ROWS(OOM_NO_ROW, T)

#define OOM_SCANS(X) \
	X(OOM_SCAN_ASSOCIATIVE, "associative", \
	  "what traced runs take (torch.compile): the larger of the two", "", \
	  "torch/_higher_order_ops/associative_scan.py", OOM_EXACT) \
	X(OOM_SCAN_LOOP, "loop", "over the tokens: eager PyTorch without the mamba_ssm kernels", \
	  "", "transformers modeling_mamba.py slow_forward", OOM_EXACT)

#define OOM_FP8S(X) \
	X(OOM_FP8_NONE, "none", "products in --precision", "false no", "-", OOM_EXACT) \
	X(OOM_FP8_TENSORWISE, "tensorwise", \
	  "8-bit products, one scale per tensor (delayed or current scaling)", \
	  "true hybrid e4m3 delayed tensor", \
	  "torchao float8_linear_config.py, TransformerEngine recipes", OOM_NUMERICS) \
	X(OOM_FP8_ROWWISE, "rowwise", "8-bit products, one scale per row", "", \
	  "torchao float8_linear_config.py", OOM_NUMERICS) \
	X(OOM_FP8_BLOCKWISE, "blockwise", "8-bit products, one scale per block of 128 x 128", "", \
	  "TransformerEngine Float8BlockScaling", OOM_NUMERICS) \
	X(OOM_FP8_MXFP8, "mxfp8", "8-bit products, one scale per 32 elements (Blackwell)", "", \
	  "TransformerEngine MXFP8BlockScaling", OOM_NUMERICS) \
	X(OOM_FP8_NVFP4, "nvfp4", "4-bit products, one scale per 16 elements (Blackwell)", "", \
	  "TransformerEngine NVFP4BlockScaling", OOM_NUMERICS)

#define OOM_PP_SCHEDULES(X) \
	X(OOM_PP_1F1B, "1f1b", "one forward, one backward; interleaved where vpp is above 1", "", \
	  "Megatron-LM schedules.py, arXiv:2104.04473", OOM_EXACT) \
	X(OOM_PP_GPIPE, "gpipe", "all forward passes of a step, then all backward passes", "", \
	  "arXiv:1811.06965", OOM_EXACT)

#define OOM_LAYER_IMPLS(X) \
	X(OOM_LAYERS_TE, "transformer-engine", "TransformerEngine's fused modules", \
	  "transformer_engine", "Megatron-LM --transformer-impl", OOM_NUMERICS) \
	X(OOM_LAYERS_LOCAL, "local", "Megatron-core's own layers", "", \
	  "Megatron-LM --transformer-impl", OOM_NUMERICS)

#define OOM_CP_COMMS(X) \
	X(OOM_CP_P2P, "p2p", "ring: keys and values travel around", "ring", \
	  "--cp-comm-type p2p, arXiv:2310.01889", OOM_EXACT) \
	X(OOM_CP_A2A, "a2a", "all-to-all: whole sequences of fewer heads (Ulysses)", "ulysses", \
	  "--cp-comm-type a2a, arXiv:2309.14509", OOM_EXACT)

#define OOM_OVERLAPS(X) \
	X(OOM_OVERLAP_AUTO, "auto", "in stage 3 alone, which is DeepSpeed's default", "", "deepspeed/runtime/zero/config.py overlap_comm_valid", OOM_EXACT) \
	X(OOM_OVERLAP_TRUE, "true", "gradients are reduced on a stream of its own, in stages 1 and 2 with a second bucket", "yes on 1", \
	  "deepspeed/runtime/zero/stage_1_and_2.py setup_buckets", OOM_EXACT) \
	X(OOM_OVERLAP_FALSE, "false", "all on the computation's stream", "no off 0", "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py", OOM_EXACT)

#define OOM_OFFLOADS(X) \
	X(OOM_OFFLOAD_NONE, "none", "stays on the GPU", "", "-", OOM_EXACT) \
	X(OOM_OFFLOAD_CPU, "cpu", "in host memory", "", "DeepSpeed offload device: cpu", \
	  OOM_PLACEMENT) \
	X(OOM_OFFLOAD_NVME, "nvme", "on a local disk", "", "DeepSpeed offload device: nvme", \
	  OOM_PLACEMENT)

#ifdef __cplusplus
}
#endif

#endif
