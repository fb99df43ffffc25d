/* The skeleton of causal decoders: the smallest family that there can be, rows of keys and the names of two
 * modules, is Llama's forward pass, whose family was measured (tests/accuracy).  Its layer is the plain one, its
 * attention and its feed-forward are those of a part that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "blocks/decoder.h"
#include "config/keys.h"
#include "families/model.h"
#include "knobs.h"

static const struct oom_key_row smallest_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, MUST(d_ff, "intermediate_size"), OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), OOM_KEYS_END};

static const struct oom_family smallest = {
	.name = "smallest",
	.summary = "pre-norm decoder, rotary positions, gated feed-forward",
	.source = "transformers 5.12 models/llama/modeling_llama.py",
	.types = OOM_TYPE("llama"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = smallest_keys,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true, .rope = true),
};

static const char json[] =
	"{\"model_type\": \"llama\", \"vocab_size\": 1000, \"hidden_size\": 128, \"num_hidden_layers\": 4,"
	"\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"intermediate_size\": 320}";

/* family: NULL is the type's own. */
static struct oom_eval priced(const struct oom_family *family, const char *words)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_eval e;

	set(&plan, words);
	memset(&e, 0, sizeof(e));
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err))
		fail_msg("%s", err.text);
	if (family) {
		struct oom_arch a = {.family = family, .rd = m->arch.rd, .targets = m->arch.targets,
				     .default_task = m->arch.default_task,
				     .config_labels = m->arch.config_labels};

		snprintf(a.model_type, sizeof(a.model_type), "%s", m->arch.model_type);
		snprintf(a.config_type, sizeof(a.config_type), "%s", m->arch.config_type);
		oom_family_parse(family, &a);
		assert_int_equal(a.rd.status, OOM_OK);
		m->arch = a;
	}
	if (oom_evaluate(ev, m, &plan, OOM_EVAL_BUCKETS, &e, &err))
		fail_msg("%s: %s", words, err.text);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e;
}

static void the_smallest_family_is_llama(void **state)
{
	static const char *const plans[] = {
		"precision=bf16 micro-batch=2 seq-len=96",
		"precision=fp32 attn=eager micro-batch=2 seq-len=96",
		"precision=amp-bf16 attn=flash grad-ckpt=full micro-batch=1 seq-len=128",
		"precision=bf16 attn=eager padding-mask=true lora-r=8 lora-targets=all-linear micro-batch=3 seq-len=64",
		"precision=bf16 qlora=true lora-r=8 lora-targets=q_proj+v_proj micro-batch=2 seq-len=64",
		"precision=amp-bf16 loss=fused grad-ckpt=selective micro-batch=2 seq-len=96",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		const struct oom_eval want = priced(NULL, plans[i]), e = priced(&smallest, plans[i]);

		if (e.total_params != want.total_params || e.saved_bytes != want.saved_bytes ||
		    e.overall_peak != want.overall_peak || memcmp(e.peak, want.peak, sizeof(e.peak)) ||
		    memcmp(e.end, want.end, sizeof(e.end)))
			fail_msg("%s: peak %llu, saved %llu; Llama's %llu and %llu", plans[i],
				 (unsigned long long)e.overall_peak, (unsigned long long)e.saved_bytes,
				 (unsigned long long)want.overall_peak, (unsigned long long)want.saved_bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_family_is_llama),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
