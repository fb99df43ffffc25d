/* Frozen bases in few bits: what each library stores, by hand from its layers; what a config's own
 * quantization_config comes to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/ladder.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"
#include "ops/ops.h"
#include "priced.h"

/* d = 256, feed-forward 512, 4 heads of 64, all of keys: a layer has 4 x 256 x 256 + 3 x 256 x 512
 * = 655360 elements in seven matrices; beside them stand 2 x 256 of norms, outside 1000 x 256 + 256 */
#define LLAMA(more) \
	("{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 2, " \
	"\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 1000, " \
	"\"tie_word_embeddings\": true" more "}")
enum { LAYER = 655360, BESIDE = 2 * 512 + 1000 * 256 + 256 };
#define ADAPTERS (2 * 4 * 2 * (256 + 256))      /* q and v at rank 4, fp32 */

static struct oom_plan adapted(enum oom_base base)
{
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 2;
	p.seq_len = 64;
	p.precision = OOM_BF16;
	p.lora_r = 4;
	p.base_weights = base;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+v_proj");
	return p;
}

static void stored_bytes(void **state)
{
	static const struct {
		enum oom_base base;
		uint64_t layer;         /* bytes of a layer's matrices */
		uint64_t buffers;       /* of a layer: columns' groups, rows' scales */
	} cases[] = {
		/* codes, an fp16 scale and half a byte of zero point for 128; g_idx of seven inputs */
		{OOM_BASE_GPTQ, LAYER / 2 + LAYER / 128 * 2 + LAYER / 128 / 2, 4 * (6 * 256 + 512)},
		{OOM_BASE_AWQ, LAYER / 2 + LAYER / 128 * 2 + LAYER / 128 / 2, 0},
		/* codes, scale and zero point in 16 bit for 64 */
		{OOM_BASE_HQQ, LAYER / 2 + LAYER / 64 * 4, 0},
		{OOM_BASE_INT8, LAYER, 4 * (4 * 256 + 2 * 512 + 256)},
	};
	struct oom_plan plain = adapted(OOM_BASE_PLAIN);
	const uint64_t none = must(LLAMA(""), &plain).buffer_bytes;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = adapted(cases[i].base);
		const struct oom_eval e = must(LLAMA(""), &p);
		const uint64_t want = 2 * cases[i].layer + BESIDE * 2 + ADAPTERS * 4;

		if (e.param_bytes != want || e.buffer_bytes - none != 2 * cases[i].buffers)
			fail_msg("base %d: %llu + %llu bytes, %llu + %llu by hand", (int)cases[i].base,
				 (unsigned long long)e.param_bytes,
				 (unsigned long long)(e.buffer_bytes - none), (unsigned long long)want,
				 2 * (unsigned long long)cases[i].buffers);
	}
}

/* Beside the codes of a layer: 2 and half a byte for every group, which ends with its row.  A row is 256 wide in six of the
 * seven matrices and 512 in the seventh, whose 256 rows are down's: 4 x 256 + 2 x 512 + 256 rows in all. */
static void groups(void **state)
{
	enum { ROWS = 4 * 256 + 2 * 512 + 256 };
	static const struct {
		enum oom_base base;
		int64_t asked;
		const char *config;     /* its own group */
		uint64_t groups;        /* of a layer */
	} cases[] = {
		{OOM_BASE_GPTQ, 0, NULL, LAYER / 128},
		{OOM_BASE_GPTQ, 0, "\"gptq\", \"bits\": 4, \"group_size\": 128", LAYER / 128},
		{OOM_BASE_GPTQ, 0, "\"gptq\", \"bits\": 4, \"group_size\": -1", ROWS},
		{OOM_BASE_PLAIN, 0, "\"gptq\", \"bits\": 4, \"group_size\": -1", ROWS},
		{OOM_BASE_GPTQ, 32, "\"gptq\", \"bits\": 4, \"group_size\": -1", LAYER / 32},
		{OOM_BASE_GPTQ, OOM_GROUP_OF_ROW, NULL, ROWS},
		{OOM_BASE_GPTQ, 300, NULL, 6 * 256 + 2 * 256 + 256 * 2},
		{OOM_BASE_AWQ, 0, "\"awq\", \"bits\": 4, \"group_size\": 64", LAYER / 64},
		/* the checkpoint is in another form than what was asked for */
		{OOM_BASE_GPTQ, 0, "\"awq\", \"bits\": 4, \"group_size\": 64", LAYER / 128},
		/* no size that can be */
		{OOM_BASE_GPTQ, 0, "\"gptq\", \"bits\": 4, \"group_size\": \"none\"", LAYER / 128},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = adapted(cases[i].base);
		const uint64_t want = 2 * (LAYER / 2 + cases[i].groups * 2 + cases[i].groups / 2) + BESIDE * 2 + ADAPTERS * 4;
		char json[500], note[300];
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_eval e;

		snprintf(json, sizeof(json), "%.*s%s%s%s}", (int)strlen(LLAMA("")) - 1, LLAMA(""),
			 cases[i].config ? ", \"quantization_config\": {\"quant_method\": " : "",
			 cases[i].config ? cases[i].config : "", cases[i].config ? "}" : "");
		p.base_group = cases[i].asked;
		assert_int_equal(oom_keys_parse(&keys, json, strlen(json), "c", &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		oom_plan_settle_for(&p, m, note);
		assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err), OOM_OK);
		if (e.param_bytes != want)
			fail_msg("case %zu: %llu bytes, %llu by hand", i, (unsigned long long)e.param_bytes, (unsigned long long)want);
		oom_evaluator_free(ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* What a layer keeps for its backward: AWQ and HQQ their input, GPTQ and bitsandbytes' 4 bit nothing. */
static void kept_inputs(void **state)
{
	struct oom_plan p = adapted(OOM_BASE_GPTQ);
	uint64_t gptq, other;

	(void)state;
	p.precision = OOM_FP16;
	p.seq_len = 512;
	gptq = must(LLAMA(""), &p).bucket[OOM_BUCKET_SAVED];
	for (int i = 0; i < 2; i++) {
		p.base_weights = i ? OOM_BASE_HQQ : OOM_BASE_AWQ;
		other = must(LLAMA(""), &p).bucket[OOM_BUCKET_SAVED];
		assert_true(other > gptq);
	}
}

static const struct {
	const char *json;
	int64_t base, twice;
	const char *says;
} stored[] = {
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}"), OOM_BASE_GPTQ, 1, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"awq\"}"), OOM_BASE_AWQ, 1, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"hqq\"}"), OOM_BASE_HQQ, 1, ""},
	/* transformers' defaults: fp4, scales of their own */
	{LLAMA(", \"quantization_config\": {\"load_in_4bit\": true}"), OOM_BASE_FP4, 0, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
	       "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true}"),
	 OOM_BASE_NF4, 1, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}"),
	 OOM_BASE_INT8, 1, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 8}"), OOM_BASE_GPTQ8, 1, ""},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 3}"), OOM_BASE_PLAIN, 1,
	 "no adapters"},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"fp8\"}"), OOM_BASE_PLAIN, 1, "FineGrainedFP8"},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"mxfp4\"}"), OOM_BASE_PLAIN, 1, "Mxfp4Config"},
	{LLAMA(", \"quantization_config\": {\"quant_method\": \"nosuch\"}"), OOM_BASE_PLAIN, 1, "nosuch"},
	{LLAMA(", \"quantization_config\": null"), OOM_BASE_PLAIN, 1, ""},
	{LLAMA(", \"quantization_config\": 3"), OOM_BASE_PLAIN, 1, "no quant_method"},
	{LLAMA(""), OOM_BASE_PLAIN, 1, ""},
};

static void as_the_config_has_it(void **state)
{
	char note[300];

	(void)state;
	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
		struct oom_plan p = adapted(OOM_BASE_PLAIN), whole = p, asked = adapted(OOM_BASE_INT8);
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_eval e;
		char said[OOM_WARNINGS_SIZE];
		const char *says;

		assert_int_equal(oom_keys_parse(&keys, stored[i].json, strlen(stored[i].json), "c", &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		oom_plan_settle_for(&p, m, note);
		oom_plan_settle_for(&asked, m, note);
		oom_plan_unadapt(&whole);
		oom_plan_settle_for(&whole, m, note);
		assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err), OOM_OK);
		says = oom_model_stored_warning(m, &p);
		oom_warnings_of(NULL, &e, said);
		if (p.base_weights != stored[i].base || p.double_quant != stored[i].twice ||
		    !*says != !*stored[i].says || !strstr(says, stored[i].says) || strcmp(said, says))
			fail_msg("%s: base %lld, \"%s\"", stored[i].json, (long long)p.base_weights, said);
		/* what was asked stands, and nothing is trained whole in few bits */
		assert_int_equal(asked.base_weights, OOM_BASE_INT8);
		/* unless the checkpoint's stays, of which there has to be one */
		assert_int_equal(oom_model_keep_base(m, &asked), stored[i].base != OOM_BASE_PLAIN && stored[i].base != OOM_BASE_INT8);
		assert_int_equal(asked.base_weights, stored[i].base == OOM_BASE_PLAIN ? OOM_BASE_INT8 : stored[i].base);
		assert_false(oom_model_keep_base(m, &whole));
		assert_int_equal(whole.base_weights, OOM_BASE_PLAIN);
		oom_evaluator_free(ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* Files of GPTQ and AWQ hold packed linear layers alone, so a mixture's experts are layers of their own; bitsandbytes' and HQQ's
 * may hold stacks in 16 bit (transformers 5) or layers in 4 (transformers 4, unsloth), which is said. */
static void experts_of_a_checkpoint(void **state)
{
#define MIXTURE(rest) "{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2, " \
		      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_local_experts\": 4, \"vocab_size\": 100, \"quantization_config\": {" rest "}}"
	static const struct {
		const char *json;
		int64_t experts;
		const char *says;
	} cases[] = {
		{MIXTURE("\"quant_method\": \"gptq\", \"bits\": 4"), OOM_EXPERTS_SEPARATE, ""},
		{MIXTURE("\"quant_method\": \"awq\""), OOM_EXPERTS_SEPARATE, ""},
		{MIXTURE("\"quant_method\": \"hqq\""), OOM_EXPERTS_FUSED, "--moe-experts separate"},
		{MIXTURE("\"load_in_4bit\": true"), OOM_EXPERTS_FUSED, "--moe-experts separate"},
		{LLAMA(", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}"), OOM_EXPERTS_FUSED, ""},
	};
	char note[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = adapted(OOM_BASE_PLAIN);
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;

		assert_int_equal(oom_keys_parse(&keys, cases[i].json, strlen(cases[i].json), "c", &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		oom_plan_settle_for(&p, m, note);
		if (p.moe_experts != cases[i].experts || !*oom_model_stored_warning(m, &p) != !*cases[i].says ||
		    !strstr(oom_model_stored_warning(m, &p), cases[i].says))
			fail_msg("%s: experts %lld, \"%s\"", cases[i].json, (long long)p.moe_experts,
				 oom_model_stored_warning(m, &p));
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* What no rank divides: with two cards and FSDP or ZeRO-3 a card holds as much of a base in buffers as one card alone; as
 * parameters, and in bitsandbytes' format, about half of the codes less (all but scales and what is beside the base).  By hand
 * from the layer above: the codes of two layers are LAYER bytes, so LAYER / 2 of them leave each card. */
static void buffers_are_whole(void **state)
{
	static const struct {
		enum oom_engine_id engine;
		int64_t offload;
	} engines[] = {{OOM_ENGINE_FSDP1, OOM_OFFLOAD_NONE}, {OOM_ENGINE_FSDP2, OOM_OFFLOAD_NONE},
		       {OOM_ENGINE_DEEPSPEED, OOM_OFFLOAD_NONE}, {OOM_ENGINE_FSDP1, OOM_OFFLOAD_CPU},
		       {OOM_ENGINE_DEEPSPEED, OOM_OFFLOAD_CPU}};
	static const enum oom_base packed[] = {OOM_BASE_GPTQ, OOM_BASE_GPTQ8, OOM_BASE_AWQ};

	(void)state;
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]) * 3; i++) {
		const enum oom_base base = packed[i % 3];
		struct oom_plan p = adapted(base);
		uint64_t buffers, parameters;
		const uint64_t codes = base == OOM_BASE_GPTQ8 ? 2 * LAYER : LAYER;

		p.precision = OOM_FP16;
		p.engine = engines[i / 3].engine;
		p.offload_params = engines[i / 3].offload;
		p.offload_optimizer = p.engine == OOM_ENGINE_DEEPSPEED ? p.offload_params : OOM_OFFLOAD_NONE;
		p.zero_stage = 3;
		if (p.engine == OOM_ENGINE_DEEPSPEED)
			p.persistence = 0;
		p.gpus = 2;
		buffers = must(LLAMA(""), &p).end[OOM_PHASE_LOAD];
		p.packed_weights = OOM_PACKED_PARAMETERS;
		parameters = must(LLAMA(""), &p).end[OOM_PHASE_LOAD];
		if (buffers < parameters + codes / 2 || buffers > parameters + codes + codes / 8)
			fail_msg("base %d, engine %d: %llu and %llu bytes", (int)base, (int)p.engine, (unsigned long long)buffers,
				 (unsigned long long)parameters);
	}
}

/* Nothing of such a base is gathered: a layer's share of the peak is its activations alone. */
static void buffers_are_not_gathered(void **state)
{
	struct oom_plan p = adapted(OOM_BASE_GPTQ), one;
	struct oom_eval sharded, single;

	(void)state;
	p.precision = OOM_FP16;
	one = p;
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	p.gpus = 2;
	sharded = must(LLAMA(""), &p);
	single = must(LLAMA(""), &one);
	assert_int_equal(sharded.whole_bytes, 2 * (LAYER / 2 + LAYER / 128 * 2 + LAYER / 128 / 2));
	assert_true(sharded.bucket[OOM_BUCKET_COMM] < LAYER / 4 + 2 * (BESIDE + ADAPTERS) * 2);
	assert_true(sharded.overall_peak > single.whole_bytes);
}

/* The rule that knows of such bases asks a list of its own (rules.c PACKED): it is the formats that say so. */
static void buffers_are_the_rules(void **state)
{
	(void)state;
	for (int64_t base = 0; base <= OOM_BASE_LITGPT; base++) {
		struct oom_plan p = adapted((enum oom_base)base);

		p.packed_weights = OOM_PACKED_PARAMETERS;
		oom_plan_relax(&p);             /* of what has no effect */
		assert_int_equal(p.packed_weights == OOM_PACKED_PARAMETERS, oom_quantised_in_buffers((enum oom_base)base));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stored_bytes),
		cmocka_unit_test(buffers_are_the_rules),
		cmocka_unit_test(groups),
		cmocka_unit_test(kept_inputs),
		cmocka_unit_test(as_the_config_has_it), cmocka_unit_test(experts_of_a_checkpoint),
		cmocka_unit_test(buffers_are_whole),
		cmocka_unit_test(buffers_are_not_gathered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
