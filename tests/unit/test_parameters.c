/* How many parameters the bundled models have, beside what was published of them.
 *
 * Origin: "hub" is safetensors.total of huggingface.co/api/models/ID, of models whose file holds each weight
 * once (Llama 2 13B's also hold 40 rotary buffers of 64 numbers, which are no parameters: taken off here; so is the
 * layer that Qwen3.5's files hold for the token after the next, "mtp.*", which transformers does not load);
 * "pythia" is Table 1 of the Pythia paper (arXiv 2304.01373), its non-embedding parameters and two matrices of
 * 50304 x hidden (12b: 50688, 6.9b: 50432, as their config.json says); "card" is the number of the model card or
 * the technical report, rounded there, and Qwen2.5-32B's 32.5B is short of what its own files hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/ladder.h"
#include "oomplan/model.h"
#include "opened_model.h"

enum origin { HUB, PYTHIA, CARD };

static const struct {
	const char *model;
	double published;
	enum origin origin;
} models[] = {
	{"all-MiniLM-L6", 22.7e6, CARD},
	{"Apertus-8B", 8053338176, HUB},
	{"aya-23-8B", 8.0e9, CARD},
	{"Baichuan2-13B", 13.9e9, CARD},
	{"Baichuan2-7B", 7.5e9, CARD},
	{"BART-base", 139e6, CARD},
	{"BART-large", 406e6, CARD},
	{"BART-large-CNN", 406e6, CARD},
	{"bge-m3", 568e6, CARD},
	{"bge-small-en-v1.5", 33.4e6, CARD},
	{"BLOOM-176B", 176e9, CARD},
	{"BLOOM-1b1", 1.07e9, CARD},
	{"BLOOM-1b7", 1.72e9, CARD},
	{"BLOOM-3b", 3.0e9, CARD},
	{"BLOOM-560m", 559e6, CARD},
	{"BLOOM-7b1", 7.07e9, CARD},
	{"ChatGLM3-6B", 6.24e9, CARD},
	{"DeepSeek-Coder-33B", 33.3e9, CARD},
	{"DeepSeek-Coder-6.7B", 6.74e9, CARD},
	{"DeepSeek-LLM-7B", 6910365696, HUB},
	{"DeepSeek-MoE-16B", 16375728128, HUB},
	{"DeepSeek-R1-Distill-Qwen-1.5B", 1.78e9, CARD},
	{"DeepSeek-V2-Lite", 16e9, CARD},
	{"DeepSeek-V3", 671e9, CARD},
	{"DeepSeek-V3.2", 671e9, CARD},
	{"DistilBERT-base", 66e6, CARD},
	{"EmbeddingGemma-300M", 308e6, CARD},
	{"ERNIE-4.5-0.3B", 0.36e9, CARD},
	{"ERNIE-4.5-21B-A3B", 21.8e9, CARD},
	{"Falcon-180B", 180e9, CARD},
	{"Falcon-40B", 41e9, CARD},
	{"Falcon-7B", 7e9, CARD},
	{"Gemma-2-27B", 27227128320, HUB},
	{"Gemma-2-9B", 9241705984, HUB},
	{"Gemma-2B", 2.506e9, CARD},
	{"Gemma-3-12B", 12187325040, HUB},
	{"Gemma-3-1B", 1.0e9, CARD},
	{"Gemma-3-27B", 27432406640, HUB},
	{"Gemma-3-4B", 4300079472, HUB},
	{"Gemma-4-26B-A4B", 26e9, CARD},
	{"Gemma-4-31B", 31e9, CARD},
	{"Gemma-4-E2B", 5.1e9, CARD},
	{"Gemma-4-E4B", 8.0e9, CARD},
	{"Gemma-7B", 8.538e9, CARD},
	{"GLM-4-32B-0414", 32566081536, HUB},
	{"GLM-4-9B", 9399951360, HUB},
	{"GLM-4-9B-0414", 9400279040, HUB},
	{"GLM-4.5", 355e9, CARD},
	{"GLM-4.5-Air", 106e9, CARD},
	{"GLM-4.7-Flash", 30e9, CARD},
	{"GLM-5", 744e9, CARD},
	{"GPT-2-large", 774e6, CARD},
	{"GPT-2-medium", 355e6, CARD},
	{"gpt-j-6b", 6.05e9, CARD},
	{"GPT-Neo-1.3B", 1.3e9, CARD},
	{"GPT-Neo-125M", 125e6, CARD},
	{"gpt-neox-20b", 20.6e9, CARD},
	{"gpt-oss-120b", 116829156672, HUB},
	{"gpt-oss-20b", 20914757184, HUB},
	{"Granite-3.3-2B", 2533539840, HUB},
	{"Granite-3.3-8B", 8170864640, HUB},
	{"internlm-7b", 7.3e9, CARD},
	{"internlm2-7b", 7.7e9, CARD},
	{"Kimi-K2", 1030e9, CARD},
	{"Llama-13B", 13.0e9, CARD},
	{"Llama-2-13B", 13015864320, HUB},
	{"Llama-3-70B", 70553706496, HUB},
	{"Llama-3-8B", 8030261248, HUB},
	{"Llama-3.1-405B", 405853388800, HUB},
	{"Llama-3.1-70B", 70553706496, HUB},
	{"Llama-3.2-11B-Vision", 10.67e9, CARD},
	{"Llama-3.2-3B", 3212749824, HUB},
	{"Llama-30B", 32.5e9, CARD},
	{"Llama-4-Maverick", 400e9, CARD},
	{"Llama-4-Scout", 108641793536, HUB},
	{"Llama-65B", 65.2e9, CARD},
	{"Llama-7B", 6.7e9, CARD},
	{"LLaVA-1.5-7B", 7063427072, HUB},
	{"MiniCPM-2B", 2724880896, HUB},
	{"MiniMax-M2", 229e9, CARD},
	{"Mistral-7B-v0.1", 7241732096, HUB},
	{"Mistral-7B-v0.2", 7.24e9, CARD},
	{"Mistral-Large-2407", 123e9, CARD},
	{"Mistral-Nemo-2407", 12247782400, HUB},
	{"Mistral-Small-24B", 23572403200, HUB},
	{"Mistral-Small-3.1-24B", 24011361280, HUB},
	{"Mixtral-8x22B", 141e9, CARD},
	{"Moonlight-16B-A3B", 16e9, CARD},
	{"MPNet-base", 109e6, CARD},
	{"MPT-30B", 29.95e9, CARD},
	{"MPT-7B", 6649286656, HUB},
	{"multilingual-MiniLM-L12", 118e6, CARD},
	{"OLMo-1B", 1.18e9, CARD},
	{"OLMo-2-13B", 13716198400, HUB},
	{"OLMo-2-1B", 1484916736, HUB},
	{"OLMo-2-32B", 32.2e9, CARD},
	{"OLMo-2-7B", 7298617344, HUB},
	{"Olmo-3-32B", 32.2e9, CARD},
	{"Olmo-3-7B", 7.3e9, CARD},
	{"OLMo-7B", 6.9e9, CARD},
	{"OPT-1.3b", 1.3e9, CARD},
	{"OPT-125m", 125e6, CARD},
	{"OPT-13b", 12.9e9, CARD},
	{"OPT-2.7b", 2.7e9, CARD},
	{"OPT-30b", 30e9, CARD},
	{"OPT-350m", 331196416, HUB},
	{"OPT-6.7b", 6.7e9, CARD},
	{"OPT-66b", 65.7e9, CARD},
	{"phi-1_5", 1.4e9, CARD},
	{"Phi-2", 2.78e9, CARD},
	{"Phi-3-mini", 3821079552, HUB},
	{"Phi-3-mini-128k", 3.8e9, CARD},
	{"Phi-4", 14659507200, HUB},
	{"Phi-4-mini", 3836021760, HUB},
	{"Phi-4-reasoning", 14.7e9, CARD},
	{"PowerLM-3b", 3.5e9, CARD},
	{"pythia-1.4b", 1414647808, PYTHIA},
	{"pythia-12b", 11846072320, PYTHIA},
	{"pythia-160m", 162322944, PYTHIA},
	{"pythia-1b", 1011781632, PYTHIA},
	{"pythia-2.8b", 2775208960, PYTHIA},
	{"pythia-410m", 405334016, PYTHIA},
	{"pythia-6.9b", 6857302016, PYTHIA},
	{"pythia-70m", 70426624, PYTHIA},
	{"Qwen-14B", 14.2e9, CARD},
	{"Qwen-1_8B", 1.84e9, CARD},
	{"Qwen-72B", 72.3e9, CARD},
	{"Qwen-7B", 7.72e9, CARD},
	{"Qwen1.5-1.8B", 1.84e9, CARD},
	{"Qwen1.5-MoE-A2.7B", 14.3e9, CARD},
	{"Qwen2-0.5B", 0.49e9, CARD},
	{"Qwen2-1.5B", 1.54e9, CARD},
	{"Qwen2-7B", 7.62e9, CARD},
	{"Qwen2-VL-2B", 2208985600, HUB},
	{"Qwen2-VL-7B", 8291375616, HUB},
	{"Qwen2.5-1.5B", 1.54e9, CARD},
	{"Qwen2.5-14B", 14.7e9, CARD},
	{"Qwen2.5-14B-Instruct-1M", 14.7e9, CARD},
	{"Qwen2.5-32B", 32.5e9, CARD},
	{"Qwen2.5-3B", 3.09e9, CARD},
	{"Qwen2.5-72B", 72706203648, HUB},
	{"Qwen2.5-7B-Instruct-1M", 7.61e9, CARD},
	{"Qwen2.5-Coder-1.5B", 1.54e9, CARD},
	{"Qwen2.5-Coder-14B", 14.7e9, CARD},
	{"Qwen2.5-Coder-32B", 32.5e9, CARD},
	{"Qwen2.5-Coder-7B", 7.61e9, CARD},
	{"Qwen2.5-Math-1.5B", 1.54e9, CARD},
	{"Qwen2.5-Math-7B", 7.61e9, CARD},
	{"Qwen2.5-VL-3B", 3.75e9, CARD},
	{"Qwen2.5-VL-7B", 8.29e9, CARD},
	{"Qwen3-0.6B", 0.6e9, CARD},
	{"Qwen3-1.7B", 1.7e9, CARD},
	{"Qwen3-14B", 14.8e9, CARD},
	{"Qwen3-235B-A22B", 235093634560, HUB},
	{"Qwen3-30B-A3B", 30532122624, HUB},
	{"Qwen3-30B-A3B-2507", 30.5e9, CARD},
	{"Qwen3-32B", 32.8e9, CARD},
	{"Qwen3-4B", 4.0e9, CARD},
	{"Qwen3-4B-2507", 4.0e9, CARD},
	{"Qwen3-Coder-480B-A35B", 480e9, CARD},
	{"Qwen3-Next-80B-A3B", 80e9, CARD},
	{"Qwen3-Reranker-0.6B", 0.6e9, CARD},
	{"Qwen3-VL-2B", 2.1e9, CARD},
	{"Qwen3-VL-30B-A3B", 31.1e9, CARD},
	{"Qwen3-VL-4B", 4.4e9, CARD},
	{"Qwen3-VL-8B", 8767123696, HUB},
	{"Qwen3.5-0.8B", 873438784 - 20452864, HUB},
	{"Qwen3.5-122B-A10B", 122e9, CARD},
	{"Qwen3.5-27B", 27781427952 - 424699392, HUB},
	{"Qwen3.5-2B", 2274069824 - 60828160, HUB},
	{"Qwen3.5-35B-A3B", 35e9, CARD},
	{"Qwen3.5-397B-A17B", 397e9, CARD},
	{"Qwen3.5-4B", 4659865088 - 120599552, HUB},
	{"Qwen3.5-9B", 9653104368 - 243290624, HUB},
	{"RedPajama-3B", 2.8e9, CARD},
	{"RoBERTa-base", 125e6, CARD},
	{"RoBERTa-large", 355e6, CARD},
	{"SantaCoder", 1.12e9, CARD},
	{"Seed-OSS-36B", 36.2e9, CARD},
	{"SmolLM-1.7B", 1.7e9, CARD},
	{"SmolLM-135M", 135e6, CARD},
	{"SmolLM-360M", 362e6, CARD},
	{"SmolLM2-1.7B", 1.71e9, CARD},
	{"SmolLM2-360M", 0.36e9, CARD},
	{"SmolLM3-3B", 3075098624, HUB},
	{"stablelm-2-1_6b", 1.64e9, CARD},
	{"stablelm-3b-4e1t", 2.795e9, CARD},
	{"stablelm-base-alpha-3b", 3.64e9, CARD},
	{"StarCoder", 15.5e9, CARD},
	{"StarCoder2-3B", 3.03e9, CARD},
	{"StarCoder2-7B", 7.17e9, CARD},
	{"T5-3B", 2.85e9, CARD},
	{"T5-large", 738e6, CARD},
	{"TinyLlama-1.1B", 1.1e9, CARD},
	{"whisper-base", 72.6e6, CARD},
	{"whisper-large-v2", 1543e6, CARD},
	{"whisper-large-v3", 1543e6, CARD},
	{"whisper-large-v3-turbo", 809e6, CARD},
	{"whisper-medium", 764e6, CARD},
	{"whisper-small", 242e6, CARD},
	{"whisper-tiny", 37.8e6, CARD},
	{"XLM-RoBERTa-base", 278e6, CARD},
	{"XLM-RoBERTa-large", 560e6, CARD},
	{"Yi-34B", 34.4e9, CARD},
	{"Yi-6B", 6.06e9, CARD},
};

static void test_as_published(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		const struct oom_plan p = oom_plan_default();
		struct fixture f;
		double ours, off;

		open_model(&f, models[i].model);
		ours = (double)price(&f, &p).total_params;
		off = ours > models[i].published ? ours - models[i].published : models[i].published - ours;
		/* a rounded number says no more than two digits or three */
		if (off > (models[i].origin == CARD ? 0.02 * models[i].published : 0))
			fail_msg("%s: %.0f, published %.0f", models[i].model, ours, models[i].published);
		close_model(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_published)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
