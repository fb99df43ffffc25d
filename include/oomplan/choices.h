/* The words that knobs choose from.  Each list is written once and gives the enum, the word for the command
 * line and files, its help text, what training frameworks write for it, the source of its behaviour, and its
 * effect on the result.
 *
 *   X(ENUM, "word", "sentence for help, without a full stop", "spellings", "source", class)
 *
 * Spellings are separated by blanks.  true and false are among them if transformers has a switch for the
 * choice.  Lists of engines and of many GPUs are in choices_machines.h, those of adapters and of what they lie on
 * in choices_adapters.h, those of losses and objectives in choices_objective.h. */
#ifndef OOMPLAN_CHOICES_H
#define OOMPLAN_CHOICES_H

#include "oomplan/choices_adapters.h"
#include "oomplan/choices_machines.h"
#include "oomplan/choices_objective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The effect of a change on the result of a run, in the playbook's classes. */
enum oom_class { OOM_EXACT, OOM_NUMERICS, OOM_PLACEMENT, OOM_SCIENCE };

#define OOM_TASKS(X) \
	X(OOM_TASK_AUTO, "auto", "what the config's architecture says, else the type's usual task", \
	  "", "config.json architectures", OOM_SCIENCE) \
	X(OOM_TASK_CAUSAL_LM, "causal-lm", "next-token prediction", "text-generation", \
	  "AutoModelForCausalLM", OOM_SCIENCE) \
	X(OOM_TASK_MASKED_LM, "masked-lm", "masked-token prediction", "fill-mask", \
	  "AutoModelForMaskedLM", OOM_SCIENCE) \
	X(OOM_TASK_SEQ_CLS, "seq-cls", "one label per sequence", "text-classification", \
	  "AutoModelForSequenceClassification", OOM_SCIENCE) \
	X(OOM_TASK_IMAGE_CLS, "image-cls", "one label per image", "image-classification", \
	  "AutoModelForImageClassification", OOM_SCIENCE) \
	X(OOM_TASK_SEQ2SEQ, "seq2seq", "encoder-decoder with target tokens", \
	  "seq_2_seq_lm text2text-generation", "AutoModelForSeq2SeqLM", OOM_SCIENCE) \
	X(OOM_TASK_IMAGE_TEXT, "image-text", "text that answers images", "image-text-to-text", \
	  "AutoModelForImageTextToText", OOM_SCIENCE) \
	X(OOM_TASK_TOKEN_CLS, "token-cls", "one label per token: names, parts of speech", \
	  "token-classification ner", "AutoModelForTokenClassification", OOM_SCIENCE) \
	X(OOM_TASK_EMBEDDING, "embedding", "a vector per text, the mean of its tokens", \
	  "feature-extraction sentence-similarity", "sentence-transformers", OOM_SCIENCE) \
	X(OOM_TASK_CTC, "ctc", "speech to letters, one for every frame of the audio", "", "AutoModelForCTC", OOM_SCIENCE)

#define OOM_PRECISIONS(X) \
	X(OOM_FP32, "fp32", "everything in 32 bit", "float32 32-true", \
	  "transformers TrainingArguments", OOM_NUMERICS) \
	X(OOM_BF16, "bf16", "weights, gradients and computation in bf16, no autocast", \
	  "bfloat16 bf16-true", "torch_dtype=bfloat16", OOM_NUMERICS) \
	X(OOM_FP16, "fp16", "weights, gradients and computation in fp16, no autocast", \
	  "float16 16-true", "torch_dtype=float16", OOM_NUMERICS) \
	X(OOM_AMP_BF16, "amp-bf16", "fp32 weights under bf16 autocast", "bf16-mixed amp_bf16", \
	  "transformers TrainingArguments bf16=True", OOM_NUMERICS) \
	X(OOM_AMP_FP16, "amp-fp16", "fp32 weights under fp16 autocast", "16-mixed amp_fp16", \
	  "transformers TrainingArguments fp16=True", OOM_NUMERICS) \
	X(OOM_BF16_AMP, "bf16-amp", \
	  "bf16 weights under autocast: Trainer(bf16=True) on a model loaded in bf16", "", \
	  "transformers TrainingArguments", OOM_NUMERICS) \
	X(OOM_FP16_AMP, "fp16-amp", \
	  "fp16 weights under autocast, for fp32 adapters on them: Trainer(fp16=True)", "", \
	  "transformers TrainingArguments, peft cast_adapter_dtype", OOM_NUMERICS) \
	X(OOM_AUTO_PRECISION, "auto", \
	  "what the engine does with this config: transformers 5 loads weights in the config's own dtype", \
	  "", "transformers modeling_utils.py from_pretrained", OOM_NUMERICS) \
	X(OOM_AUTO_AMP, "auto-amp", \
	  "bf16 autocast over weights as auto loads them: Trainer(bf16=True)", \
	  "", "transformers TrainingArguments, modeling_utils.py from_pretrained", OOM_NUMERICS)

#define OOM_ATTENTIONS(X) \
	X(OOM_ATTN_EAGER, "eager", "score matrices in memory", "disabled", \
	  "attn_implementation=\"eager\"", OOM_EXACT) \
	X(OOM_ATTN_SDPA, "sdpa", "torch scaled_dot_product_attention", "", \
	  "attn_implementation=\"sdpa\"", OOM_EXACT) \
	/* FlashAttention 3 and flex attention keep the same: q, k, v, the result, a logsumexp */ \
	X(OOM_ATTN_FLASH, "flash", "the flash_attn package, of any version", \
	  "flash_attention_2 flash_attn fa2 flash_attention_3 fa3 flash_attention_4 fa4 flex_attention flex " \
	  "kernels-community/flash-attn2 kernels-community/flash-attn3 kernels-community/vllm-flash-attn3", "attn_implementation=\"flash_attention_2\"", \
	  OOM_EXACT)

#define OOM_CHECKPOINTINGS(X) \
	X(OOM_CKPT_NONE, "none", "every activation is kept", "false", \
	  "transformers TrainingArguments", OOM_EXACT) \
	X(OOM_CKPT_FULL, "full", "only block inputs are kept, blocks are recomputed", "true", \
	  "transformers TrainingArguments gradient_checkpointing=True", OOM_EXACT) \
	X(OOM_CKPT_SELECTIVE, "selective", \
	  "matrix products and attention are kept, the rest of a block is recomputed (Megatron: " \
	  "attention cores alone are)", "", \
	  "torch.utils.checkpoint create_selective_checkpoint_contexts; " \
	  "--recompute-granularity selective, arXiv:2205.05198", OOM_EXACT) \
	X(OOM_CKPT_SELECTIVE_ATTENTION, "selective-attention", \
	  "attention's results are kept, the rest of a block is recomputed", "", \
	  "torch.utils.checkpoint create_selective_checkpoint_contexts", OOM_EXACT) \
	X(OOM_CKPT_SELECTIVE_OP, "selective-op", \
	  "every second matrix product and attention are kept, the rest of a block is recomputed", "op", \
	  "torchtitan distributed/activation_checkpoint.py; torchtune modules/_activation_checkpointing.py", OOM_EXACT)

#define OOM_REENTRANTS(X) \
	X(OOM_REENTRANT_AUTO, "auto", "as --transformers has it: false from 5.0 on, true before, and true where FSDP1 wraps adapters", \
	  "", "huggingface/transformers#43203, #28538, #45640", OOM_EXACT) \
	X(OOM_REENTRANT_FALSE, "false", "saved tensors are packed away and unpacked one by one", \
	  "no off 0", "torch/utils/checkpoint.py _checkpoint_without_reentrant_generator", \
	  OOM_EXACT) \
	X(OOM_REENTRANT_TRUE, "true", "a block's backward is a backward pass of its own", \
	  "yes on 1", "torch/utils/checkpoint.py CheckpointFunction", OOM_EXACT) \
	X(OOM_REENTRANT_WRAPPED, "wrapped", "the same, by a checkpoint_wrapper inside of FSDP's units", "", \
	  "torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py CheckpointImpl.REENTRANT", OOM_EXACT)

#define OOM_AUTOCASTS(X) \
	X(OOM_AUTOCAST_AUTO, "auto", "what the engine's frameworks do: FSDP1's keep it, DeepSpeed's leave it off", "", \
	  "accelerate accelerator.py native_amp, prepare_model", OOM_EXACT) \
	X(OOM_AUTOCAST_FALSE, "false", "mixed precision is 16-bit weights and nothing else", \
	  "no off 0", "deepspeed/runtime/engine.py; Composer low_precision_layernorm", OOM_EXACT) \
	X(OOM_AUTOCAST_TRUE, "true", "autocast runs beside it: layer norms and losses in fp32", \
	  "yes on 1", "deepspeed/runtime/torch_autocast.py; torch/amp/autocast_mode.py", OOM_EXACT)

#define OOM_REDUCES(X) \
	X(OOM_REDUCE_AUTO, "auto", "fp32 under FSDP2's mixed precision, as torchtitan has it, else the gradients' own type", "", \
	  "torchtitan config/job_config.py mixed_precision_reduce", OOM_NUMERICS) \
	X(OOM_REDUCE_OWN, "own", "the type the step computes in, as accelerate has it", \
	  "bf16 bfloat16 torch.bfloat16 fp16 float16 torch.float16", \
	  "accelerate utils/dataclasses.py set_mixed_precision", OOM_NUMERICS) \
	X(OOM_REDUCE_FP32, "fp32", "32 bit", "float32 torch.float32", \
	  "torch/distributed/fsdp MixedPrecision(reduce_dtype=)", OOM_NUMERICS)

#define OOM_T5_ATTENTIONS(X) \
	X(OOM_T5_AUTO, "auto", "as --transformers has it, else as 5.12", "", "huggingface/transformers#47014", OOM_EXACT) \
	X(OOM_T5_WRITTEN, "written", "written out, with a softmax in fp32 and the mask added to the bias once", "", \
	  "transformers 5.12 models/t5/modeling_t5.py T5Attention", OOM_EXACT) \
	X(OOM_T5_INTERFACE, "interface", "as --attn says; written out, with a softmax in the scores' type", "", \
	  "transformers 5.17 models/t5/modeling_t5.py eager_attention_forward", OOM_EXACT)

#define OOM_PREFETCHES(X) \
	X(OOM_PREFETCH_PRE, "pre", "before this one's derivatives, as torch has it: two units are whole beside the gradients", \
	  "backward_pre", "torch/distributed/fsdp/api.py BACKWARD_PRE", OOM_EXACT) \
	X(OOM_PREFETCH_POST, "post", "when this one's gradients are there and its parameters gone", \
	  "backward_post", "torch/distributed/fsdp/api.py BACKWARD_POST", OOM_EXACT) \
	X(OOM_PREFETCH_NONE, "none", "when its own backward pass begins, as accelerate has it", \
	  "no_prefetch null", "accelerate utils/dataclasses.py FullyShardedDataParallelPlugin", OOM_EXACT)

#define OOM_KV_REPEATS(X) \
	X(OOM_KV_GROUPED, "grouped", "kernels take grouped heads wherever they can", "", \
	  "transformers 5.12 integrations/sdpa_attention.py: use_gqa_in_sdpa", OOM_EXACT) \
	X(OOM_KV_SDPA, "sdpa", "copied before scaled_dot_product_attention, not before flash_attn", "", \
	  "transformers 4.48 to 4.53 integrations/sdpa_attention.py", OOM_EXACT) \
	X(OOM_KV_CLASSES, "classes", "copied before both: before flash_attn in Mistral, Mixtral, Qwen2, Phi-3 " \
	  "and the types that copied their classes", "", \
	  "transformers 4.47 modeling_mistral.py MistralFlashAttention2", OOM_EXACT)
/* In this order: who keeps them by one word keeps them by those behind it. */
#define OOM_ROPE_TABLES(X) \
	X(OOM_ROPE_MADE, "none", "made anew in every forward pass, once for all layers", "", \
	  "transformers 5.12 modeling_llama.py LlamaRotaryEmbedding", OOM_EXACT) \
	X(OOM_ROPE_MIXTRAL, "mixtral", "Mixtral's layers keep them", "", \
	  "transformers 4.47 modeling_mixtral.py _set_cos_sin_cache", OOM_EXACT) \
	X(OOM_ROPE_QWEN, "qwen", "those of Qwen2, StableLM and Starcoder2, too", "", \
	  "huggingface/transformers#32617", OOM_EXACT) \
	X(OOM_ROPE_MISTRAL, "mistral", "those of Mistral, too", "", \
	  "huggingface/transformers#30642", OOM_EXACT) \
	X(OOM_ROPE_LLAMA, "llama", "those of Llama, too", "", \
	  "transformers 4.39 modeling_llama.py _cos_cached", OOM_EXACT)

#define OOM_MOE_EXPERTS(X) \
	X(OOM_EXPERTS_FUSED, "fused", "the experts of a layer are one tensor", "", \
	  "transformers integrations/moe.py", OOM_EXACT) \
	X(OOM_EXPERTS_SEPARATE, "separate", \
	  "every expert is three linear layers, run in turn: adapters and quantisation find them", "", \
	  "modeling_mixtral.py 4.45 MixtralSparseMoeBlock", OOM_EXACT) \
	X(OOM_EXPERTS_QUANTISED, "quantised", \
	  "one tensor held in 4 bits, made whole in 16 while its layer runs, and for its backward pass", \
	  "quantize_moe_experts", "axolotl monkeypatch/moe_quant.py; bitsandbytes nn/parametrize.py", OOM_NUMERICS)

#define OOM_ZERO_GRADS(X) \
	X(OOM_ZERO_GRAD_NONE, "none", "gradients are given up", "", \
	  "torch.optim.Optimizer.zero_grad(set_to_none=True)", OOM_EXACT) \
	X(OOM_ZERO_GRAD_ZEROS, "zeros", "gradients become zeros and stay", "", \
	  "torch.optim.Optimizer.zero_grad(set_to_none=False)", OOM_EXACT)

/* Modules that Triton kernels of Liger's or Unsloth's replace; what each word takes of them: models/ops/kernels.h. */
#define OOM_LIGERS(X) \
	X(OOM_LIGER_NONE, "none", "PyTorch's own modules", "false", "-", OOM_EXACT) \
	X(OOM_LIGER_NORM, "norm", "RMSNorm: its input is kept, no fp32 copy and no normalised one", \
	  "rms-norm", "linkedin/Liger-Kernel ops/rms_norm.py", OOM_EXACT) \
	X(OOM_LIGER_GLU, "glu", "SwiGLU and GeGLU: gate and up are kept, not their activation", \
	  "swiglu geglu", "linkedin/Liger-Kernel ops/swiglu.py, geglu.py", OOM_EXACT) \
	X(OOM_LIGER_ALL, "all", "both, and rotary positions in place", "true", \
	  "linkedin/Liger-Kernel transformers/monkey_patch.py", OOM_EXACT) \
	X(OOM_LIGER_FAST, "fast-kernels", "RMSNorm and rotary positions as Unsloth's kernels do them, which fms-acceleration " \
	  "takes", "foak", "foundation-model-stack/fms-acceleration fms_acceleration_foak/kernels/unsloth", OOM_EXACT) \
	X(OOM_LIGER_FAST_LORA, "fast-lora", "both, and LoRA in one function with its base of few bits", "", \
	  "foundation-model-stack/fms-acceleration fms_acceleration_foak/fused_ops/unsloth_lora", OOM_EXACT)

#define OOM_EMPTY_CACHES(X) \
	X(OOM_EMPTY_CACHE_AUTO, "auto", \
	  "before transformers' Trainer trains a model that is whole on every card (its accelerator.free_memory()); no loop of one's own does", \
	  "", "transformers trainer.py _inner_training_loop; accelerate utils/memory.py release_memory", OOM_EXACT) \
	X(OOM_EMPTY_CACHE_TRUE, "true", "torch.cuda.empty_cache() once the model is there, however it is divided", "yes on 1", "c10/cuda/CUDACachingAllocator.cpp", OOM_EXACT) \
	X(OOM_EMPTY_CACHE_FALSE, "false", "what loading has left in the cache stays", "no off 0", "c10/cuda/CUDACachingAllocator.cpp", OOM_EXACT)

#define OOM_LOOPS(X) \
	X(OOM_LOOPS_AUTO, "auto", \
	  "TRL's trainers' for their objectives and losses, one's own where the model makes its loss itself", "", "-", OOM_EXACT) \
	X(OOM_LOOPS_OWN, "own", "a loop of one's own: one group of parameters, the loss as the model returns it", "custom", "-", \
	  OOM_EXACT) \
	X(OOM_LOOPS_TRAINER, "trainer", \
	  "transformers' Trainer: parameters that decay are stepped before those that do not, norms are clipped, outputs of autocast " \
	  "are converted to fp32", "hf", "transformers trainer.py", OOM_EXACT)

#define OOM_QUANTISED_LOADS(X) \
	X(OOM_QLOAD_AUTO, "auto", "card with FSDP2, which the newest libraries start, meta with FSDP1, which older ones did", "", \
	  "-", OOM_EXACT) \
	X(OOM_QLOAD_META, "meta", "in the memory of a node's first rank, the others have none of it", "", \
	  "huggingface/transformers#33154 (4.45)", OOM_EXACT) \
	X(OOM_QLOAD_HOST, "host", "in every rank's memory", "cpu", "huggingface/transformers#29587", OOM_EXACT) \
	X(OOM_QLOAD_CARD, "card", "whole on every rank's card, as transformers 5 loads it", "cuda", \
	  "transformers 5.12 quantizers/quantizer_bnb_4bit.py update_device_map", OOM_EXACT) \
	X(OOM_QLOAD_MADE, "made", "nowhere: the codes are made as they are, as on emulated cards", "", "-", OOM_EXACT)

#define OOM_EMAS(X) \
	X(OOM_EMA_NONE, "none", "no mean of the weights", "false", "-", OOM_EXACT) \
	X(OOM_EMA_FOREACH, "foreach", \
	  "a copy in the weights' type, moved all at once: torch.optim.swa_utils", "", \
	  "torch/optim/swa_utils.py get_ema_multi_avg_fn", OOM_EXACT) \
	X(OOM_EMA_LOOP, "loop", "a copy in the weights' type, one tensor after another: diffusers", \
	  "true", "diffusers training_utils.py EMAModel.step", OOM_EXACT) \
	X(OOM_EMA_FP32, "fp32", "a copy in 32 bit, towards which all weights are cast at once", "", \
	  "torch/optim/swa_utils.py on fp32 averages", OOM_EXACT) \
	X(OOM_EMA_LOOP_FP32, "loop-fp32", "a copy in 32 bit, one tensor after another", "", \
	  "diffusers training_utils.py EMAModel.step", OOM_EXACT)

#define OOM_ALLOCATORS(X) \
	X(OOM_ALLOC_NATIVE, "native", "cudaMalloc segments", "", "PyTorch default", OOM_EXACT) \
	X(OOM_ALLOC_EXPANDABLE, "expandable_segments", \
	  "segments that grow: next to no fragmentation", "expandable_segments:True", \
	  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", OOM_EXACT)

/* Whether a run evaluates, which decides whether an evaluation has to fit. */
#define OOM_EVALUATES(X) \
	X(OOM_EVALUATES_UNSAID, "unsaid", "not known: evaluation is told, and does not decide", "", \
	  "-", OOM_EXACT) \
	X(OOM_EVALUATES_NO, "no", "never", "false", "eval_strategy=\"no\"", OOM_EXACT) \
	X(OOM_EVALUATES_YES, "yes", "evaluation has to fit, too", "true steps epoch", \
	  "eval_strategy=\"steps\"", OOM_EXACT)

#define OOM_CHOICE_ID(id, ...) id,
#define OOM_WORD_ID OOM_CHOICE_ID
enum oom_task { OOM_TASKS(OOM_CHOICE_ID) };
enum oom_precision { OOM_PRECISIONS(OOM_CHOICE_ID) };
enum oom_attention { OOM_ATTENTIONS(OOM_CHOICE_ID) };
enum oom_checkpointing { OOM_CHECKPOINTINGS(OOM_CHOICE_ID) };
enum oom_reentrant { OOM_REENTRANTS(OOM_CHOICE_ID) };
enum oom_autocast { OOM_AUTOCASTS(OOM_CHOICE_ID) };
enum oom_reduce { OOM_REDUCES(OOM_CHOICE_ID) };
enum oom_t5_attention { OOM_T5_ATTENTIONS(OOM_CHOICE_ID) };
enum oom_prefetch { OOM_PREFETCHES(OOM_CHOICE_ID) };
enum oom_quantised_load { OOM_QUANTISED_LOADS(OOM_CHOICE_ID) };
enum oom_kv_repeat { OOM_KV_REPEATS(OOM_CHOICE_ID) };
enum oom_rope_kept { OOM_ROPE_TABLES(OOM_CHOICE_ID) };
enum oom_moe_experts { OOM_MOE_EXPERTS(OOM_CHOICE_ID) };
enum oom_zero_grad { OOM_ZERO_GRADS(OOM_CHOICE_ID) };
enum oom_loss { OOM_LOSSES(OOM_CHOICE_ID) };
enum oom_liger { OOM_LIGERS(OOM_CHOICE_ID) };
enum oom_evaluates { OOM_EVALUATES(OOM_CHOICE_ID) };
enum oom_allocator { OOM_ALLOCATORS(OOM_CHOICE_ID) };
enum oom_method { OOM_METHODS(OOM_CHOICE_ID) };
enum oom_reference { OOM_REFERENCES(OOM_CHOICE_ID) };
enum oom_empty_cache { OOM_EMPTY_CACHES(OOM_CHOICE_ID) };
enum oom_loops { OOM_LOOPS(OOM_CHOICE_ID) };
enum oom_rollouts_by { OOM_ROLLOUTS(OOM_CHOICE_ID) };
enum oom_ema { OOM_EMAS(OOM_CHOICE_ID) };
enum oom_engine_id { OOM_ENGINES(OOM_CHOICE_ID) };
/* OOM_ENGINE_HF_TRAITS and so on. */
#define OOM_TRAITS_ID(id, traits) id##_TRAITS = (traits),
enum oom_engine_traits { OOM_ENGINE_TRAITS(OOM_TRAITS_ID) };
enum oom_scan { OOM_SCANS(OOM_CHOICE_ID) };
enum oom_fp8 { OOM_FP8S(OOM_CHOICE_ID) };
enum oom_pp_schedule { OOM_PP_SCHEDULES(OOM_CHOICE_ID) };
enum oom_cp_comm { OOM_CP_COMMS(OOM_CHOICE_ID) };
enum oom_layer_impl { OOM_LAYER_IMPLS(OOM_CHOICE_ID) };
enum oom_offload { OOM_OFFLOADS(OOM_CHOICE_ID) };
enum oom_overlap { OOM_OVERLAPS(OOM_CHOICE_ID) };
enum oom_base { OOM_BASES(OOM_CHOICE_ID) };
enum oom_lora_bias { OOM_LORA_BIASES(OOM_CHOICE_ID) };
enum oom_quant_storage { OOM_QUANT_STORAGES(OOM_CHOICE_ID) };
enum oom_packed_as { OOM_PACKED_AS(OOM_CHOICE_ID) };
enum oom_adapter_kind { OOM_ADAPTERS(OOM_CHOICE_ID) };

#ifdef __cplusplus
}
#endif

#endif
