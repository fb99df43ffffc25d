/* What follows from several knobs of a plan together: predicates, degrees, settling, smaller forms of optimizers and
 * buffers.  A plan is written as options, as a user would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/engine.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "knobs.h"

/* "knob=value knob=value" */
static struct oom_plan plan(const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	return p;
}

static const char *options(const struct oom_plan *from, const struct oom_plan *to)
{
	static char text[400];

	return oom_plan_options(from, to, text, sizeof(text));
}

/* bitsandbytes' 4 bits are NF4 and FP4; prepare_model_for_kbit_training casts what is beside them (peft/utils/other.py:
 * not over GPTQ's and HQQ's layers). */
static void how_the_base_is_stored(void **state)
{
	static const struct {
		const char *plan;
		enum oom_base base;
		bool quantised, four_bit, kbit;
	} cases[] = {
		{"", OOM_BASE_PLAIN, false, false, false},
		{"lora-r=8", OOM_BASE_PLAIN, false, false, false},
		{"lora-r=8 qlora=true", OOM_BASE_NF4, true, true, false},
		{"lora-r=8 qlora=true kbit-prepare=true", OOM_BASE_NF4, true, true, true},
		{"lora-r=8 base-weights=fp4", OOM_BASE_FP4, true, true, false},
		{"lora-r=8 base-weights=int8 kbit-prepare=true", OOM_BASE_INT8, true, false, true},
		{"lora-r=8 base-weights=gptq kbit-prepare=true", OOM_BASE_GPTQ, true, false, false},
		{"lora-r=8 base-weights=hqq kbit-prepare=true", OOM_BASE_HQQ, true, false, false},
		{"kbit-prepare=true", OOM_BASE_PLAIN, false, false, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if (oom_plan_base(&p) != cases[i].base || oom_plan_quantised(&p) != cases[i].quantised ||
		    oom_plan_four_bit(&p) != cases[i].four_bit || oom_plan_kbit_fp32(&p) != cases[i].kbit)
			fail_msg("%s", cases[i].plan);
	}
}

static void what_the_adapters_are(void **state)
{
	static const struct {
		const char *plan;
		enum oom_adapter_kind kind;
		bool adapted, prompted, attended, norms;
	} cases[] = {
		{"", OOM_ADAPTER_LORA, false, false, false, false},
		{"lora-r=8", OOM_ADAPTER_LORA, true, false, false, false},
		{"lora-r=8 use-dora=true", OOM_ADAPTER_DORA, true, false, false, false},
		{"lora-r=8 peft-type=dora", OOM_ADAPTER_DORA, true, false, false, false},
		{"peft-type=vera", OOM_ADAPTER_VERA, false, false, false, false},
		{"peft-type=vera lora-r=8", OOM_ADAPTER_VERA, true, false, false, false},
		{"peft-type=ia3", OOM_ADAPTER_IA3, true, false, false, false},
		{"peft-type=ln-tuning", OOM_ADAPTER_LN_TUNING, true, false, false, true},
		{"peft-type=prompt-tuning num-virtual-tokens=8", OOM_ADAPTER_PROMPT, true, true, false, false},
		{"peft-type=p-tuning num-virtual-tokens=8", OOM_ADAPTER_P_TUNING, true, true, false, false},
		{"peft-type=prefix-tuning num-virtual-tokens=8", OOM_ADAPTER_PREFIX, true, false, true, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if (oom_plan_adapter(&p) != cases[i].kind || oom_plan_adapted(&p) != cases[i].adapted ||
		    oom_plan_prompted(&p) != cases[i].prompted || oom_plan_attended(&p) != cases[i].attended ||
		    oom_plan_norms(&p) != cases[i].norms)
			fail_msg("%s", cases[i].plan);
	}
}

static void adapters_come_and_go(void **state)
{
	struct oom_plan p = plan("lora-targets=q_proj"), was = p;

	(void)state;
	oom_plan_adapt(&p);
	assert_int_equal(p.lora_r, 16);         /* what transformers' and PEFT's examples begin with */
	oom_plan_adapt(&p);
	assert_int_equal(p.lora_r, 16);
	oom_plan_unadapt(&p);
	assert_string_equal(options(&was, &p), "");     /* the targets stay */
	p = plan("lora-r=4");
	oom_plan_adapt(&p);
	assert_int_equal(p.lora_r, 4);          /* a rank that was asked for is kept */
	p = plan("peft-type=prompt-tuning num-virtual-tokens=8");
	oom_plan_unadapt(&p);
	assert_false(oom_plan_adapted(&p) || p.virtual_tokens);
}

static void types_of_weights(void **state)
{
	static const struct {
		const char *precision;
		enum oom_precision stores;
		bool fp16;
	} cases[] = {
		{"fp32", OOM_FP32, false}, {"bf16", OOM_BF16, false}, {"fp16", OOM_FP16, true}, {"amp-bf16", OOM_FP32, false},
		{"amp-fp16", OOM_FP32, true}, {"bf16-amp", OOM_BF16, false}, {"fp16-amp", OOM_FP16, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();

		assert_int_equal(oom_plan_set(&p, oom_knob_find("precision"), cases[i].precision, NULL), OOM_OK);
		assert_int_equal(oom_plan_stores(&p), cases[i].stores);
		assert_int_equal(oom_plan_fp16(&p), cases[i].fp16);
		assert_false(oom_plan_precision_open(&p));
	}
	assert_true(oom_plan_precision_open(&(struct oom_plan){.precision = OOM_AUTO_PRECISION}));
}

/* Ranks that see different data: all GPUs over those that work on one sequence together. */
static void data_parallel_ranks(void **state)
{
	static const struct {
		const char *plan;
		int64_t ranks;
	} cases[] = {
		{"", 1}, {"gpus=8", 8}, {"gpus=8 engine=fsdp2", 8}, {"gpus=8 engine=megatron tp=2", 4},
		{"gpus=16 engine=megatron tp=2 pp=2 cp=2", 2}, {"gpus=8 engine=megatron tp=8", 1},
		{"gpus=4 engine=device-map", 1},        /* they work in turn, on the same batch */
		{"gpus=8 engine=megatron ep=4", 8},     /* experts are divided among data-parallel ranks */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if (oom_plan_data_parallel(&p) != cases[i].ranks)
			fail_msg("%s: %lld", cases[i].plan, (long long)oom_plan_data_parallel(&p));
	}
}

/* GPUs, nodes and GPUs per node: two of them give the third; a stage that nobody said is the engine's own. */
static void settling(void **state)
{
	static const struct {
		const char *plan, *changes;
	} cases[] = {
		{"", ""},
		{"gpus=8", ""},
		{"gpus-per-node=8", "--gpus=8"},
		{"nodes=2 gpus-per-node=8", "--gpus=16"},
		{"gpus=16 gpus-per-node=8", "--nodes=2"},
		{"gpus=12 gpus-per-node=8", ""},        /* they do not divide: a rule says so */
		{"gpus=8 engine=fsdp2", "--zero=3"},
		{"gpus=8 engine=fsdp1", "--zero=3"},
		{"gpus=8 engine=fsdp2 zero=0", ""},
		{"gpus=8 engine=fsdp2 zero=2", ""},
		{"gpus=1 engine=fsdp2", ""},
		{"gpus=8 engine=deepspeed", ""},        /* its file names the stage */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan asked = plan(cases[i].plan);
		struct oom_plan p = asked;

		oom_plan_settle(&p);
		if (strcmp(options(&asked, &p), cases[i].changes))
			fail_msg("%s: %s", cases[i].plan, options(&asked, &p));
		/* what is settled stays as it is */
		struct oom_plan again = p;

		oom_plan_settle(&again);
		assert_string_equal(options(&p, &again), "");
	}
}

/* torch.utils.checkpoint's two ways: what is asked for; where nobody says, the new one, but under FSDP1 over a frozen base
 * (the Trainer that starts FSDP1 without being told to is one from before transformers 5). */
static void ways_of_checkpointing(void **state)
{
	static const struct {
		const char *plan;
		bool reenters, around;
	} cases[] = {
		{"", false, false},
		{"use-reentrant=true", false, false},           /* nothing is checkpointed */
		{"grad-ckpt=full", false, false},
		{"grad-ckpt=full use-reentrant=true", true, true},
		{"grad-ckpt=full use-reentrant=false", false, false},
		{"grad-ckpt=full use-reentrant=wrapped", true, false},
		{"grad-ckpt=full engine=fsdp1 gpus=2", false, false},
		{"grad-ckpt=full engine=fsdp1 gpus=2 lora-r=8", true, true},
		{"grad-ckpt=full engine=fsdp1 gpus=2 lora-r=8 use-reentrant=false", false, false},
		{"grad-ckpt=full engine=fsdp2 gpus=2 lora-r=8", false, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if (oom_ckpt_reenters(&p) != cases[i].reenters || oom_ckpt_around_units(&p) != cases[i].around)
			fail_msg("%s", cases[i].plan);
	}
}

/* accelerate leaves its autocast on around FSDP1's 16-bit parameters; llm-foundry's loss is of a trainer that switches it off
 * where it would matter. */
static void autocast_beside_the_engine(void **state)
{
	static const struct {
		const char *plan;
		bool on;
	} cases[] = {
		{"engine=fsdp1", true}, {"engine=fsdp1 torch-autocast=false", false}, {"engine=fsdp1 loss=flash", false},
		{"engine=fsdp1 loss=flash torch-autocast=true", true}, {"engine=fsdp2", false}, {"engine=fsdp2 torch-autocast=true", true},
		{"engine=hf", false}, {"engine=deepspeed torch-autocast=true", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if (oom_plan_autocasts(&p) != cases[i].on)
			fail_msg("%s", cases[i].plan);
	}
}

static void the_card(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	assert_true(oom_capability(&p) == 8);
	p.compute_capability = 8.6;
	assert_true(oom_capability(&p) == 8.6);
}

/* A chain of smaller forms ends, leads to other optimizers, and comes back to where it began. */
static void smaller_forms(void **state)
{
	const struct oom_option *knob = oom_knob_find("optimizer");

	(void)state;
	for (int64_t i = 0; knob->choice((size_t)i); i++) {
		const struct oom_smaller_states s = oom_smaller_states(i);
		const int64_t form[] = {s.quantised, s.paged, s.sharded, s.least, s.whole};

		for (size_t k = 0; k < sizeof(form) / sizeof(form[0]); k++) {
			assert_true(form[k] >= -1 && form[k] != i);
			assert_true(form[k] < 0 || knob->choice((size_t)form[k]));
		}
		/* what the smaller form is one of has the same smaller form (AdamW, fused or not) */
		if (s.quantised >= 0 && s.whole < 0)
			assert_int_equal(oom_smaller_states(oom_smaller_states(s.quantised).whole).quantised, s.quantised);
		assert_int_equal(s.sharded < 0, s.least < 0);
		if (s.least >= 0)               /* there is nothing below the least */
			assert_int_equal(oom_smaller_states(s.least).sharded, -1);
	}
	assert_int_equal(oom_smaller_states(oom_choice_find(knob->choice, "adamw")).quantised,
			 oom_choice_find(knob->choice, "adamw-8bit-embfp32"));
	assert_int_equal(oom_smaller_states(oom_choice_find(knob->choice, "adamw")).paged,
			 oom_choice_find(knob->choice, "paged-adamw-8bit"));
	assert_int_equal(oom_smaller_states(oom_choice_find(knob->choice, "sgd")).quantised, -1);
}

/* DeepSpeed's buffers have sizes; who set one is left alone. */
static void smaller_buffers(void **state)
{
	static const struct {
		const char *plan, *changes;
	} cases[] = {
		{"", NULL},
		{"engine=hf gpus=8", NULL},
		{"engine=deepspeed gpus=8", NULL},              /* stage 0 */
		{"engine=deepspeed gpus=8 zero=2", "--reduce-bucket-size=auto"},
		{"engine=deepspeed gpus=8 zero=2 reduce-bucket-size=1000", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan asked = plan(cases[i].plan);
		struct oom_plan p = asked;

		assert_int_equal(oom_engine_narrow(&p), cases[i].changes != NULL);
		if (strcmp(options(&asked, &p), cases[i].changes ? cases[i].changes : ""))
			fail_msg("%s: %s", cases[i].plan, options(&asked, &p));
		assert_false(oom_engine_narrow(&p));            /* once */
	}
}

/* Words of reports and columns: each there, none twice. */
static void names_are_told_apart(void **state)
{
	(void)state;
	for (int i = 0; i < OOM_PHASES; i++)
		for (int k = 0; k <= i; k++) {
			assert_true(*oom_phase_str((enum oom_phase)i) && *oom_phase_column((enum oom_phase)i));
			assert_true((i == k) == !strcmp(oom_phase_str((enum oom_phase)i), oom_phase_str((enum oom_phase)k)));
			assert_true((i == k) == !strcmp(oom_phase_column((enum oom_phase)i), oom_phase_column((enum oom_phase)k)));
		}
	for (int i = 0; i < OOM_BUCKETS; i++)
		for (int k = 0; k <= i; k++) {
			assert_true((i == k) == !strcmp(oom_bucket_str((enum oom_bucket)i), oom_bucket_str((enum oom_bucket)k)));
			assert_true((i == k) ==
				    !strcmp(oom_bucket_column((enum oom_bucket)i), oom_bucket_column((enum oom_bucket)k)));
		}
	for (int i = OOM_EXACT; i <= OOM_SCIENCE; i++)
		assert_true(*oom_class_str((enum oom_class)i));
}

/* What every step has; rollouts and an evaluation only where they take memory. */
static void phases_that_occur(void **state)
{
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	for (int i = 0; i < OOM_PHASES; i++)
		assert_int_equal(oom_phase_occurs(&e, (enum oom_phase)i), i != OOM_PHASE_ROLLOUTS && i != OOM_PHASE_EVAL);
	e.peak[OOM_PHASE_ROLLOUTS] = e.peak[OOM_PHASE_EVAL] = 1;
	for (int i = 0; i < OOM_PHASES; i++)
		assert_true(oom_phase_occurs(&e, (enum oom_phase)i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(how_the_base_is_stored), cmocka_unit_test(what_the_adapters_are),
		cmocka_unit_test(adapters_come_and_go),	  cmocka_unit_test(types_of_weights),
		cmocka_unit_test(data_parallel_ranks),	  cmocka_unit_test(settling),
		cmocka_unit_test(ways_of_checkpointing),  cmocka_unit_test(autocast_beside_the_engine),
		cmocka_unit_test(the_card),		  cmocka_unit_test(smaller_forms),
		cmocka_unit_test(smaller_buffers),	  cmocka_unit_test(names_are_told_apart),
		cmocka_unit_test(phases_that_occur),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
