/* Checkpoints in host memory: a function of one's own in the place of torch's checkpoint, which moves every layer's input
 * away and brings it back (unsloth's Unsloth_Offloaded_Gradient_Checkpointer, axolotl's `gradient_checkpointing: offload`).
 *
 * Measured with such a function, PyTorch 2.14.1 and transformers 5.12.1 on fake tensors (2026-11-25).  It
 * waits for its copies; what is priced has one layer's worth on its way besides, as torchtune's streams have, and unsloth's
 * newer one keeps two such buffers (unsloth_zoo/gradient_checkpointing.py GPU_BUFFERS): never below what was measured, and
 * at most two hidden states above. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/oomplan.h"
#include "oomplan/option.h"
#include "priced.h"

/* meta-llama/Llama-3.2-1B config.json, but for its depth */
#define LLAMA(layers) \
	"{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":2048,\"intermediate_size\":8192," \
	"\"num_hidden_layers\":" layers ",\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64," \
	"\"tie_word_embeddings\":true}"

static void test_offloaded_checkpoints(void **state)
{
	enum { HIDDEN = 2 * 1024 * 2048 };
	static const struct {
		const char *config;
		enum oom_precision precision;
		int64_t r;
		uint64_t measured, hidden;
	} cases[] = {
		{LLAMA("6"), OOM_BF16, 0, 6951512064, 2 * HIDDEN},
		{LLAMA("4"), OOM_AMP_BF16, 0, 9791370240, 4 * HIDDEN},
		{LLAMA("6"), OOM_BF16_AMP, 16, 4483465216, 2 * HIDDEN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		uint64_t peak;

		p.precision = cases[i].precision;
		p.optimizer = 0;
		p.micro_batch = 2;
		p.seq_len = 1024;
		p.grad_ckpt = OOM_CKPT_FULL;
		while (strcmp(oom_knob_find("optimizer")->choice((size_t)p.optimizer)->name, "adamw-fused"))
			p.optimizer++;
		p.lora_r = cases[i].r;
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", cases[i].r ? "all-linear" : "");
		peak = must(cases[i].config, &p).overall_peak;
		p.offload_activations = 1;
		assert_true(must(cases[i].config, &p).overall_peak < peak);
		peak = must(cases[i].config, &p).overall_peak;
		if (peak < cases[i].measured || peak > cases[i].measured + 2 * cases[i].hidden)
			fail_msg("case %zu: %llu priced, %llu measured", i, (unsigned long long)peak,
				 (unsigned long long)cases[i].measured);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_offloaded_checkpoints)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
