/* Choices of adapters and of the frozen model below them, in the form of choices.h. */
#ifndef OOMPLAN_CHOICES_ADAPTERS_H
#define OOMPLAN_CHOICES_ADAPTERS_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the layers of a frozen base are stored as: `qlora` is nf4. */
#define OOM_BASES(X) \
	X(OOM_BASE_PLAIN, "plain", "as --precision stores them", "none", "-", OOM_NUMERICS) \
	X(OOM_BASE_NF4, "nf4", "4 bit and scales (bitsandbytes), the rest of the model in bf16", \
	  "bnb_nf4", "BitsAndBytesConfig(load_in_4bit=True), arXiv:2305.14314", OOM_SCIENCE) \
	X(OOM_BASE_FP4, "fp4", "the same bytes in another code", "bnb_fp4", \
	  "BitsAndBytesConfig(bnb_4bit_quant_type=\"fp4\")", OOM_SCIENCE) \
	X(OOM_BASE_INT8, "int8", "8 bit and a scale for every row (bitsandbytes LLM.int8)", \
	  "llm.int8 bnb_int8", "BitsAndBytesConfig(load_in_8bit=True), arXiv:2208.07339", OOM_SCIENCE) \
	X(OOM_BASE_GPTQ, "gptq", "4 bit in groups of 128 (GPTQModel's Triton kernel: estimated)", "", \
	  "GPTQModel nn_modules/triton_utils/dequant.py, arXiv:2210.17323", OOM_SCIENCE) \
	X(OOM_BASE_AWQ, "awq", "4 bit in groups of 128, computes in fp16 (estimated)", "", \
	  "GPTQModel nn_modules/qlinear/gemm_awq_triton.py, arXiv:2306.00978", OOM_SCIENCE) \
	X(OOM_BASE_HQQ, "hqq", "4 bit in groups of 64 (HQQ's PyTorch back end: estimated)", "", \
	  "hqq core/quantize.py, HQQLinear", OOM_SCIENCE) \
	X(OOM_BASE_GPTQ8, "gptq-8bit", "8 bit in groups of 128 (GPTQModel's Triton kernel: estimated)", "", \
	  "GPTQModel nn_modules/triton_utils/dequant.py, arXiv:2210.17323", OOM_SCIENCE) \
	X(OOM_BASE_LIGHTNING, "lightning", "bitsandbytes' 4 bit in every linear layer, the head too (Lightning's plugin, which litgpt has)", \
	  "", "lightning fabric/plugins/precision/bitsandbytes.py", OOM_SCIENCE) \
	X(OOM_BASE_LITGPT, "litgpt", "the same, and a table of words that gets a gradient which nothing steps (litgpt 0.5)", \
	  "", "litgpt finetune/lora.py main(): StableEmbedding", OOM_SCIENCE)

/* FSDP flattens parameters of one floating type, and ZeRO-3 divides such ones (PEFT's guides to both). */
#define OOM_QUANT_STORAGES(X) \
	X(OOM_QUANT_STORAGE_AUTO, "auto", "what the engine needs: the model's own type where weights are sharded", "", \
	  "peft docs accelerate/fsdp.md, deepspeed.md", OOM_EXACT) \
	X(OOM_QUANT_STORAGE_UINT8, "uint8", "bytes, bitsandbytes' default: cannot be sharded", "torch.uint8", \
	  "bitsandbytes nn/modules.py Params4bit", OOM_EXACT) \
	X(OOM_QUANT_STORAGE_OWN, "own", "the type of the rest of the model: the same bytes, which can be sharded", \
	  "bfloat16 torch.bfloat16 bf16 float16 torch.float16 fp16 float32 torch.float32", \
	  "bitsandbytes nn/modules.py Params4bit", OOM_EXACT)

/* What the modules of GPTQ and AWQ hold their packed weights in.  fms-acceleration makes parameters of qweight and qzeros
 * under FSDP (accelerated-peft autogptq_utils.py PATCH_FOR_FSDP_TRITON_V2). */
#define OOM_PACKED_AS(X) \
	X(OOM_PACKED_BUFFERS, "buffers", "as their libraries do: FSDP and ZeRO-3 divide parameters alone, every card has all of them", "", \
	  "GPTQModel nn_modules/qlinear, AutoAWQ modules/linear", OOM_EXACT) \
	X(OOM_PACKED_PARAMETERS, "parameters", "as fms-acceleration does (auto_gptq): they are sharded, their scales are not", \
	  "triton_v2", "fms-acceleration accelerated-peft autogptq_utils.py", OOM_EXACT)

/* What PEFT trains beside the frozen model (its peft_type). */
#define OOM_ADAPTERS(X) \
	X(OOM_ADAPTER_LORA, "lora", "two thin matrices beside a layer", \
	  "rslora lora+ loraplus pissa olora loftq eva corda lora-ga", \
	  "arXiv:2106.09685; peft tuners/lora", OOM_SCIENCE) \
	X(OOM_ADAPTER_DORA, "dora", "LoRA whose directions and magnitudes are trained apart", "", \
	  "arXiv:2402.09353; peft tuners/lora/dora.py", OOM_SCIENCE) \
	X(OOM_ADAPTER_ADALORA, "adalora", "three factors, of which the middle one is pruned; lora-r is init_r", \
	  "", "arXiv:2303.10512; peft tuners/adalora", OOM_SCIENCE) \
	X(OOM_ADAPTER_IA3, "ia3", "a vector that scales keys, values and feed-forwards", "(ia)^3", \
	  "arXiv:2205.05638; peft tuners/ia3", OOM_SCIENCE) \
	X(OOM_ADAPTER_VERA, "vera", "random matrices that all layers share, two trained vectors per layer", \
	  "", "arXiv:2310.11454; peft tuners/vera", OOM_SCIENCE) \
	X(OOM_ADAPTER_MISS, "miss", "one matrix over the sums of a layer's inputs", "bone", \
	  "arXiv:2409.15371; peft tuners/miss", OOM_SCIENCE) \
	X(OOM_ADAPTER_LOHA, "loha", "the Hadamard product of two products of thin matrices", "", \
	  "arXiv:2108.06098; peft tuners/loha", OOM_SCIENCE) \
	X(OOM_ADAPTER_LOKR, "lokr", "a Kronecker product", "", \
	  "arXiv:2309.14859; peft tuners/lokr", OOM_SCIENCE) \
	X(OOM_ADAPTER_FOURIER, "fourierft", "coefficients of a sparse spectrum; lora-r is n_frequency", "", \
	  "arXiv:2405.03003; peft tuners/fourierft", OOM_SCIENCE) \
	X(OOM_ADAPTER_OFT, "oft", "a rotation of the input in blocks; lora-r is oft_block_size", "", \
	  "arXiv:2306.07280; peft tuners/oft", OOM_SCIENCE) \
	X(OOM_ADAPTER_HRA, "hra", "reflections of the input: the whole weight is made anew in fp32, once for each", "", \
	  "arXiv:2405.17484; peft tuners/hra", OOM_SCIENCE) \
	X(OOM_ADAPTER_VBLORA, "vblora", "LoRA whose matrices are mixtures of a bank's vectors, which all layers share", \
	  "vb-lora", "arXiv:2405.15179; peft tuners/vblora", OOM_SCIENCE) \
	X(OOM_ADAPTER_BOFT, "boft", "a rotation of the whole input made of blocks, its permutation kept as a matrix; lora-r is boft_block_size", \
	  "", "arXiv:2311.06243; peft tuners/boft", OOM_SCIENCE) \
	X(OOM_ADAPTER_PROMPT, "prompt-tuning", "virtual tokens before the text", "", \
	  "arXiv:2104.08691; peft tuners/prompt_tuning", OOM_SCIENCE) \
	X(OOM_ADAPTER_P_TUNING, "p-tuning", "virtual tokens that a small network makes", "", \
	  "arXiv:2103.10385; peft tuners/p_tuning", OOM_SCIENCE) \
	X(OOM_ADAPTER_ADAPTION, "adaption-prompt", "LLaMA-Adapter: virtual tokens that attention looks at besides, behind a gate", \
	  "adaption_prompt llama-adapter", "arXiv:2303.16199; peft tuners/adaption_prompt", OOM_SCIENCE) \
	X(OOM_ADAPTER_PREFIX, "prefix-tuning", "virtual keys and values before those of every layer", "", \
	  "arXiv:2101.00190; peft tuners/prefix_tuning", OOM_SCIENCE) \
	X(OOM_ADAPTER_LN_TUNING, "ln-tuning", "copies of norms: those lora-targets names, or all", "", \
	  "arXiv:2312.11420; peft tuners/ln_tuning", OOM_SCIENCE)

/* LoraConfig(bias=) */
#define OOM_LORA_BIASES(X) \
	X(OOM_LORA_BIAS_NONE, "none", "biases are frozen", "", "peft tuners/lora/config.py", OOM_EXACT) \
	X(OOM_LORA_BIAS_ALL, "all", "every bias of the model trains", "", "peft tuners/lora/config.py", \
	  OOM_SCIENCE) \
	X(OOM_LORA_BIAS_LORA, "lora-only", "biases of the adapted layers train", "lora_only", \
	  "peft tuners/lora/config.py", OOM_SCIENCE)

#ifdef __cplusplus
}
#endif

#endif
