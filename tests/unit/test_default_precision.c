/* Which precision a plan has where nobody says one.
 *
 * Expected values: transformers 5.12.1 modeling_utils.py from_pretrained (dtype "auto" is the config's) and
 * quantizer_awq.py update_dtype; torchtune recipes/configs (dtype: bf16 in all 196); torchtitan
 * config/configs.py (training.dtype float32, mixed_precision_param bfloat16); Megatron-LM
 * training/arguments.py (params_dtype float32 without --bf16 or --fp16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/oomplan.h"
#include "knobs.h"

#define SMALL \
	"\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2," \
	"\"intermediate_size\":128,\"vocab_size\":100"

static const struct {
	const char *dtype, *knobs;      /* of the config; NAME=VALUE, divided by blanks */
	enum oom_precision is;
} cases[] = {
	{"", "", OOM_FP32},
	{",\"dtype\":\"bfloat16\"", "", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "", OOM_BF16},
	{",\"torch_dtype\":\"float16\"", "", OOM_FP16},
	{",\"torch_dtype\":\"float32\"", "", OOM_FP32},
	{",\"torch_dtype\":\"torch.bfloat16\"", "", OOM_BF16},
	/* both are kept by configurations that were saved twice: dtype is read */
	{",\"dtype\":\"float32\",\"torch_dtype\":\"bfloat16\"", "", OOM_FP32},
	{",\"dtype\":null,\"torch_dtype\":\"bfloat16\"", "", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "transformers=4.46", OOM_FP32},
	{",\"torch_dtype\":\"bfloat16\"", "transformers=5.0", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "lora-r=16", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "lora-r=16 qlora=true", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "lora-r=16 base-weights=awq", OOM_FP16},
	{",\"torch_dtype\":\"bfloat16\"", "lora-r=16 base-weights=gptq", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "compute-capability=7.0", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "engine=deepspeed zero=2 gpus=8", OOM_BF16},
	{",\"torch_dtype\":\"float16\"", "engine=fsdp2 zero=3 gpus=8", OOM_FP16},
	{",\"torch_dtype\":\"bfloat16\"", "engine=fsdp2 zero=3 gpus=8 tp=2", OOM_AMP_BF16},
	{",\"torch_dtype\":\"float16\"", "engine=torchtune", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "engine=megatron", OOM_FP32},
	{",\"torch_dtype\":\"bfloat16\"", "engine=device-map gpus=2", OOM_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "precision=fp32", OOM_FP32},
	{",\"torch_dtype\":\"bfloat16\"", "precision=amp-bf16 engine=torchtune", OOM_AMP_BF16},
	/* Trainer(bf16=True): autocast over what was loaded; FSDP's mixed precision raises what trains
	 * (accelerate accelerator.py prepare_model, utils/fsdp_utils.py fsdp2_prepare_model) */
	{",\"torch_dtype\":\"bfloat16\"", "precision=auto-amp", OOM_BF16_AMP},
	{"", "precision=auto-amp", OOM_AMP_BF16},
	{",\"torch_dtype\":\"float32\"", "precision=auto-amp", OOM_AMP_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "precision=auto-amp transformers=4.46", OOM_AMP_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "precision=auto-amp engine=fsdp2 zero=3 gpus=8", OOM_AMP_BF16},
	{",\"torch_dtype\":\"bfloat16\"", "precision=auto-amp engine=fsdp2 zero=3 gpus=8 lora-r=8", OOM_BF16_AMP},
	{",\"torch_dtype\":\"bfloat16\"", "precision=auto-amp engine=megatron", OOM_AMP_BF16},
};

static struct oom_plan plan_of(const char *knobs)
{
	struct oom_plan p = oom_plan_default();

	set(&p, knobs);
	return p;
}

static struct oom_model *model_of(struct oom_keys *keys, const char *dtype)
{
	char config[400];
	struct oom_model *m = NULL;

	snprintf(config, sizeof(config), "{" SMALL "%s}", dtype);
	memset(keys, 0, sizeof(*keys));
	assert_int_equal(oom_keys_parse(keys, config, strlen(config), "test", NULL), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, NULL), OOM_OK);
	return m;
}

static void test_who_decides(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys;
		struct oom_model *m = model_of(&keys, cases[i].dtype);
		struct oom_plan p = plan_of(cases[i].knobs), before = p;
		char told[200];

		oom_model_settle_precision(m, &p, told);
		if (p.precision != (int64_t)cases[i].is)
			fail_msg("%s %s: %d, not %d", cases[i].dtype, cases[i].knobs, (int)p.precision,
				 (int)cases[i].is);
		/* it is told where it was not asked for, and then alone */
		assert_int_equal(*told != 0, oom_plan_precision_open(&before));
		assert_int_equal(p.precision_unasked, before.precision == OOM_AUTO_PRECISION);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* Files that say "bf16: auto": axolotl utils/config/__init__.py normalize_config asks
 * torch.cuda.is_bf16_supported, which begins with Ampere; unsloth models/_utils.py is_bfloat16_supported. */
static void test_card_decides(void **state)
{
	static const struct {
		double capability;
		enum oom_precision says, is;
		int by_card;
	} cards[] = {
		{7.5, OOM_AMP_BF16, OOM_AMP_FP16, 1}, {7.0, OOM_BF16_AMP, OOM_FP16_AMP, 1},
		{7.0, OOM_BF16, OOM_FP16, 1},	      {8.0, OOM_AMP_BF16, OOM_AMP_BF16, 1},
		{0, OOM_AMP_BF16, OOM_AMP_BF16, 1},   {7.5, OOM_AMP_BF16, OOM_AMP_BF16, 0},
		{7.5, OOM_FP32, OOM_FP32, 1},
	};
	struct oom_keys keys;
	struct oom_model *m = model_of(&keys, "");

	(void)state;
	for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
		struct oom_plan p = oom_plan_default();
		char told[200];

		p.compute_capability = cards[i].capability;
		p.precision = cards[i].says;
		p.precision_by_card = cards[i].by_card;
		oom_model_settle_precision(m, &p, told);
		assert_int_equal(p.precision, cards[i].is);
		assert_int_equal(*told != 0, cards[i].is != cards[i].says);
	}
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* An evaluation without a word is that of the precision said. */
static void test_one_price(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys;
		struct oom_model *m;
		struct oom_plan p = plan_of(cases[i].knobs), said = p;
		struct oom_eval a, b;
		enum oom_status st;

		m = model_of(&keys, cases[i].dtype);
		said.precision = cases[i].is;
		st = oom_evaluate(ev, m, &said, OOM_EVAL_FAST, &b, NULL);
		assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &a, NULL), st);
		if (!st)
			assert_memory_equal(a.peak, b.peak, sizeof(a.peak));
		oom_model_free(m);
		oom_keys_release(&keys);
		oom_evaluator_free(ev);
		ev = oom_evaluator_new();
	}
	oom_evaluator_free(ev);
}

/* An engine that copies heads of keys and values changes no precision for that: torchtune's fp32 recipes stay
 * fp32 (recipes/full_finetune_distributed.py dtype), and what it has not is left to the rules to refuse. */
static void test_kept(void **state)
{
	static const enum oom_precision said[] = {OOM_FP32, OOM_BF16, OOM_AMP_BF16};

	(void)state;
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		struct oom_plan p = plan_of("engine=torchtune");

		p.precision = said[i];
		oom_engine_respell(&p);
		assert_int_equal(p.precision, said[i]);
	}
}

/* What nobody asked for is given up where the card cannot do it well; what was asked for is not. */
static void test_given_up(void **state)
{
	static const struct {
		const char *dtype, *knobs;
		double capability;
		enum oom_precision becomes;
	} of[] = {
		{"bfloat16", "", 7.5, OOM_AMP_FP16},            /* T4, V100: issue 14, point 1 */
		{"bfloat16", "lora-r=8", 7.0, OOM_FP16_AMP},
		{"bfloat16", "", 8.0, OOM_BF16},
		{"float16", "", 8.0, OOM_AMP_BF16},             /* no scaler takes fp16 weights */
		{"float16", "", 7.0, OOM_AMP_FP16},
		{"float16", "lora-r=8", 8.0, OOM_FP16_AMP},
		{"float32", "", 7.0, OOM_FP32},
		{"float32", "precision=bf16", 7.0, OOM_BF16},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char dtype[60];
		struct oom_keys keys;
		struct oom_plan p = plan_of(of[i].knobs);
		struct oom_compat c;
		struct oom_model *m;

		snprintf(dtype, sizeof(dtype), ",\"dtype\":\"%s\"", of[i].dtype);
		m = model_of(&keys, dtype);
		p.compute_capability = of[i].capability;
		oom_model_settle_precision(m, &p, NULL);
		assert_int_equal(oom_compat_init(&c, m, &p, NULL, NULL), OOM_OK);
		oom_compat_mend(&c, &p);
		if (p.precision != (int64_t)of[i].becomes)
			fail_msg("%s %s on %.1f: %d", of[i].dtype, of[i].knobs, of[i].capability,
				 (int)p.precision);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_decides), cmocka_unit_test(test_card_decides), cmocka_unit_test(test_one_price),
					   cmocka_unit_test(test_kept), cmocka_unit_test(test_given_up)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
