/* --attn math: torch's attention held to its MATH backend, priced beside an emulated card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "oomplan/model.h"
#include "opened_model.h"

/* Origin: the peaks of a step's second forward and backward pass, emulated with torch 2.14.1 and
 * transformers 5.12.1, scaled_dot_product_attention held to its MATH backend; measured before the program had
 * the word. */
static void held_to_the_math_backend(void **state)
{
	static const struct {
		const char *model, *words;
		uint64_t fwd2, bwd2;
	} rows[] = {
		{"Llama-3.2-1B", "precision=bf16 micro-batch=2 seq-len=1024", 18531441152, 19056744448},
		{"Llama-3.2-1B", "precision=amp-bf16 micro-batch=2 seq-len=1024", 29114337792, 29622863872},
		{"Llama-3.2-1B", "precision=bf16 micro-batch=1 seq-len=2048 grad-ckpt=full", 10209942016, 11585787904},
		{"GPT-2", "precision=amp-fp16 micro-batch=4 seq-len=512", 5882949632, 6082311680},
		{"GPT-2", "precision=fp32 micro-batch=4 seq-len=512", 5841957376, 6253629440},
		{"GPT-2", "precision=bf16 micro-batch=4 seq-len=512 padding-mask=true", 4351177728, 4556997120},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char words[200];
		struct fixture f;
		struct oom_plan p;
		struct oom_eval e;

		snprintf(words, sizeof(words), "attn=math optimizer=adamw cublas-workspaces=false softmax-product=false "
			 "sum-buffers=false %s", rows[i].words);
		p = oom_plan_default();
		set(&p, words);
		open_model(&f, rows[i].model);
		e = price(&f, &p);
		if (e.peak[OOM_PHASE_FWD2] != rows[i].fwd2 || e.peak[OOM_PHASE_BWD2] != rows[i].bwd2)
			fail_msg("%s %s: %llu %llu", rows[i].model, rows[i].words,
				 (unsigned long long)e.peak[OOM_PHASE_FWD2], (unsigned long long)e.peak[OOM_PHASE_BWD2]);
		close_model(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(held_to_the_math_backend)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
