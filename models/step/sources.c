/* Where each kind of row comes from.  A row is named after the operation that owns it; the first
 * entry whose word begins the name is its source. */
#include <string.h>

#include "program.h"

#define DERIV "PyTorch tools/autograd/derivatives.yaml: "
static const struct {
	const char *word, *source;
} table[] = {
	{"flash_attention", "aten/native/transformers/cuda/attention.cu _flash_attention_forward: q, k, v, out, logsumexp"},
	{"efficient_attention", "aten/native/transformers/cuda/attention.cu _efficient_attention_forward"},
	{"logsumexp", "aten/native/transformers/cuda: fp32 [b, heads, s]"},
	{"softmax_d", "flash_attn csrc/flash_attn/flash_api.cpp mha_bwd: softmax_d"},
	{"dq accumulator", "flash_attn csrc/flash_attn/flash_api.cpp mha_bwd: dq_accum"},
	{"expanded dk dv", "flash_attn csrc/flash_attn/flash_api.cpp mha_bwd: dk, dv expanded for grouped heads"},
	{"dq workspace", "aten/native/transformers/cuda/mem_eff_attention/kernel_backward.h workspace"},
	{"delta", "aten/native/transformers/cuda/attention_backward.cu: delta"},
	{"output accumulator", "aten/native/transformers/cuda/mem_eff_attention/kernel_forward.h output_accum"},
	{"philox", "aten/native/transformers/cuda/attention.cu: rng state"},
	{"rng_", "flash_attn flash_api.cpp: rng_state"},
	{"attention", "transformers modeling file: eager_attention_forward"},
	{"causal mask", "transformers masking_utils.py"},
	{"mask", "transformers masking_utils.py"},
	{"padded bias", "aten/native/transformers/attention.cpp pad_bias: last dimension to a multiple of 16"},
	{"native_layer_norm", DERIV "native_layer_norm saves input, mean, rstd"},
	{"layer_norm", DERIV "native_layer_norm saves input, mean, rstd"},
	{"native_dropout", DERIV "native_dropout saves the mask"},
	{"dropout", DERIV "native_dropout saves the mask"},
	{"embedding", DERIV "embedding saves the indices"},
	{"position ids", "transformers modeling file: position_ids"},
	{"permutation", "aten/native/cuda/Embedding.cu embedding_dense_backward_cuda: sort by index"},
	{"sorted ids", "aten/native/cuda/Embedding.cu embedding_dense_backward_cuda"},
	{"sort scratch", "aten/native/cuda/Embedding.cu, cub radix sort"},
	{"segments", "aten/native/cuda/EmbeddingBackwardKernel.cu"},
	{"partial sums", "aten/native/cuda/EmbeddingBackwardKernel.cu: fp32 partial sums"},
	{"nll_loss", DERIV "nll_loss_forward saves target and total_weight"},
	{"total_weight", DERIV "nll_loss_forward"},
	{"log_softmax", DERIV "_log_softmax saves its result"},
	{"softmax", DERIV "_softmax saves its result"},
	{"shifted labels", "transformers loss/loss_utils.py ForCausalLMLoss pads the labels"},
	{"padded labels", "transformers loss/loss_utils.py ForCausalLMLoss pads the labels"},
	{"logits chunk", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"head gradient chunk", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"input chunk", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"input gradient chunk", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"grad of", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"FusedLinearCE", "linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py"},
	{"dequantised weight", "bitsandbytes autograd/_functions.py MatMul4Bit: dequantised for one product, not saved"},
	{"absmax", "bitsandbytes functional.py dequantize_4bit: nested absmax in fp32"},
	{"MatMul4Bit", "bitsandbytes autograd/_functions.py MatMul4Bit"},
	{"weight copy", "aten/autocast_mode.cpp cached_cast: one copy a leaf until the region ends"},
	{"grouped_mm", "transformers integrations/moe.py, torch _grouped_mm"},
	{"linear", DERIV "mm, addmm save input and weight"},
	{"addmm", DERIV "addmm saves input and weight"},
	{"mm", DERIV "mm saves both factors"},
	{"matmul", DERIV "bmm saves both factors"},
	{"bmm", DERIV "bmm saves both factors"},
	{"convolution", DERIV "convolution saves input and weight"},
	{"batch_norm", DERIV "cudnn_batch_norm, native_batch_norm save input and statistics"},
	{"silu", DERIV "silu saves its input"},
	{"gelu", DERIV "gelu saves its input"},
	{"relu", DERIV "relu saves its result"},
	{"tanh", DERIV "tanh saves its result"},
	{"sigmoid", DERIV "sigmoid saves its result"},
	{"pow", DERIV "pow saves its input"},
	{"rsqrt", DERIV "rsqrt saves its result"},
	{"mul", DERIV "mul saves each factor the other needs"},
	{"div", DERIV "div saves what its inputs need"},
	{"mean", DERIV "mean saves sizes only"},
	{"add", DERIV "add saves nothing"},
	{"sub", DERIV "sub saves nothing"},
	{"neg", DERIV "neg saves nothing"},
	{"cat", DERIV "cat saves nothing: a fresh tensor"},
	{"_to_copy", DERIV "_to_copy saves nothing: a fresh tensor of the new type"},
	{"cos", "transformers modeling file: rotary tables"},
	{"sin", "transformers modeling file: rotary tables"},
	{"rotary", "transformers modeling_rope_utils.py"},
	{"checkpoint", "torch/utils/checkpoint.py: the block's input"},
	{"top-k", "transformers modeling file: router"},
	{"grad copy", "torch/csrc/autograd/functions/accumulate_grad.h: a gradient that may not be taken over is copied"},
};

const char *oom_row_source(const char *name, enum oom_cat cat, const char *fallback)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strncmp(name, table[i].word, strlen(table[i].word)))
			return table[i].source;
	if (cat == OOM_CAT_GRAD)
		return "torch/csrc/autograd/functions/accumulate_grad.h: the first gradient is "
		       "taken over";
	return fallback;
}
