/* How many parameters the bundled models have, beside what was published of them.
 *
 * Origin: "hub" is safetensors.total of huggingface.co/api/models/ID, of models whose file holds each weight
 * once (Llama 2 13B's also hold 40 rotary buffers of 64 numbers, which are no parameters: taken off here);
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
	{"aya-23-8B", 8.0e9, CARD},
	{"Baichuan2-7B", 7.5e9, CARD},
	{"DeepSeek-V2-Lite", 16e9, CARD},
	{"Falcon-180B", 180e9, CARD},
	{"Falcon-40B", 41e9, CARD},
	{"Falcon-7B", 7e9, CARD},
	{"Gemma-2-27B", 27227128320, HUB},
	{"Gemma-2-9B", 9241705984, HUB},
	{"Gemma-2B", 2.506e9, CARD},
	{"Gemma-3-1B", 1.0e9, CARD},
	{"Gemma-7B", 8.538e9, CARD},
	{"GPT-2-medium", 355e6, CARD},
	{"internlm2-7b", 7.7e9, CARD},
	{"Llama-2-13B", 13015864320, HUB},
	{"Llama-3-70B", 70553706496, HUB},
	{"Llama-3-8B", 8030261248, HUB},
	{"Llama-3.1-405B", 405853388800, HUB},
	{"Llama-3.1-70B", 70553706496, HUB},
	{"Llama-3.2-3B", 3212749824, HUB},
	{"Mistral-7B-v0.1", 7241732096, HUB},
	{"Mistral-7B-v0.2", 7.24e9, CARD},
	{"Mistral-Large-2407", 123e9, CARD},
	{"Mixtral-8x22B", 141e9, CARD},
	{"OLMo-1B", 1.18e9, CARD},
	{"OLMo-2-13B", 13716198400, HUB},
	{"OLMo-2-32B", 32.2e9, CARD},
	{"OLMo-2-7B", 7298617344, HUB},
	{"OLMo-7B", 6.9e9, CARD},
	{"phi-1_5", 1.4e9, CARD},
	{"Phi-2", 2.78e9, CARD},
	{"Phi-3-mini", 3821079552, HUB},
	{"Phi-3-mini-128k", 3.8e9, CARD},
	{"Phi-4", 14659507200, HUB},
	{"Phi-4-mini", 3836021760, HUB},
	{"Phi-4-reasoning", 14.7e9, CARD},
	{"pythia-1.4b", 1414647808, PYTHIA},
	{"pythia-12b", 11846072320, PYTHIA},
	{"pythia-160m", 162322944, PYTHIA},
	{"pythia-1b", 1011781632, PYTHIA},
	{"pythia-2.8b", 2775208960, PYTHIA},
	{"pythia-410m", 405334016, PYTHIA},
	{"pythia-6.9b", 6857302016, PYTHIA},
	{"pythia-70m", 70426624, PYTHIA},
	{"Qwen1.5-1.8B", 1.84e9, CARD},
	{"Qwen1.5-MoE-A2.7B", 14.3e9, CARD},
	{"Qwen2-0.5B", 0.49e9, CARD},
	{"Qwen2-1.5B", 1.54e9, CARD},
	{"Qwen2-7B", 7.62e9, CARD},
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
	{"Qwen3-0.6B", 0.6e9, CARD},
	{"Qwen3-1.7B", 1.7e9, CARD},
	{"Qwen3-14B", 14.8e9, CARD},
	{"Qwen3-235B-A22B", 235093634560, HUB},
	{"Qwen3-30B-A3B", 30532122624, HUB},
	{"Qwen3-30B-A3B-2507", 30.5e9, CARD},
	{"Qwen3-32B", 32.8e9, CARD},
	{"Qwen3-4B", 4.0e9, CARD},
	{"Qwen3-4B-2507", 4.0e9, CARD},
	{"SmolLM-1.7B", 1.7e9, CARD},
	{"SmolLM-135M", 135e6, CARD},
	{"SmolLM-360M", 362e6, CARD},
	{"SmolLM2-1.7B", 1.71e9, CARD},
	{"SmolLM2-360M", 0.36e9, CARD},
	{"stablelm-2-1_6b", 1.64e9, CARD},
	{"stablelm-3b-4e1t", 2.795e9, CARD},
	{"TinyLlama-1.1B", 1.1e9, CARD},
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
