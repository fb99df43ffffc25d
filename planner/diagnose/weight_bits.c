/* In how many bits a run keeps its weights, and among how many cards it divides them, by its own options. */
#include <string.h>

#include "tables.h"

/* The first row whose value begins the option's, in the sense of the program that has the option. */
static const struct {
	const char *name, *value;
	unsigned bits;
} rows[] = {
	/* text-generation-inference launcher/src/main.rs, enum Quantization */
	{"quantize", "bitsandbytes-nf4", 4}, {"quantize", "bitsandbytes-fp4", 4}, {"quantize", "bitsandbytes", 8}, {"quantize", "eetq", 8}, {"quantize", "fp8", 8},
	{"quantize", "awq", 4}, {"quantize", "gptq", 4}, {"quantize", "marlin", 4},
	/* vllm/model_executor/layers/quantization/__init__.py, sglang/srt/layers/quantization/__init__.py; vLLM's bitsandbytes
	 * makes NF4 of what is not quantised (quantization/bitsandbytes.py) */
	{"quantization", "fp8", 8}, {"quantization", "w8a8", 8}, {"quantization", "awq", 4}, {"quantization", "gptq", 4}, {"quantization", "bitsandbytes", 4},
	{"quantization", "mxfp4", 4}, {"quantization", "modelopt_fp4", 4}, {"quantization", "moe_wna16", 4},
	/* transformers BitsAndBytesConfig, and options of scripts with that name */
	{"load_in_8bit", "", 8}, {"load_in_4bit", "", 4},
};

void oom_weight_bits_note(struct oom_crash *c, const char *name, size_t n, const char *value)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (oom_told_same(name, n, rows[i].name) && !strncmp(value, rows[i].value, strlen(rows[i].value))) {
			c->weight_bits = rows[i].bits;
			return;
		}
}

unsigned oom_weight_cards(const struct oom_crash *c)
{
	const double told = oom_told(c, "tensor_parallel_size") > 1 ? oom_told(c, "tensor_parallel_size") : oom_told(c, "num_shard");

	return told > 1 && told <= 1024 ? (unsigned)told : 1;
}
