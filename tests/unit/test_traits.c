/* What passes and reports ask of an engine, plan by plan, and what can be solved for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "solve/parts.h"
#include "step/engines.h"
#include "step/pass.h"
#include "step/program.h"
#include "knobs.h"

static struct oom_plan plan(const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	oom_plan_settle(&p);
	return p;
}

/* d: states or layers are divided; r: ranks have schedules of their own; c: Megatron-core's layers run; m: the engine's mixed
 * precision computes in 16 bit on fp32 shards. */
static void traits(void **state)
{
	static const struct {
		const char *plan, *has;
	} cases[] = {
		{"engine=hf", ""},
		{"engine=hf gpus=8", ""},
		{"engine=deepspeed gpus=8 zero=1", "d"},
		{"engine=deepspeed gpus=8 zero=3 precision=amp-bf16", "d"},
		{"engine=fsdp1 gpus=8", "d"},
		{"engine=fsdp2 gpus=8 precision=amp-bf16", "dm"},
		{"engine=fsdp2 gpus=8 precision=amp-fp16", "dm"},
		{"engine=fsdp2 gpus=8 precision=bf16", "d"},
		{"engine=fsdp2 gpus=8 zero=0 precision=amp-bf16", ""},
		{"engine=fsdp2 gpus=8 tp=2", "dr"},
		{"engine=fsdp2 gpus=8 pp=2", "dr"},
		{"engine=device-map gpus=2", "d"},
		{"engine=device-map", ""},
		{"engine=megatron", "rc"},
		{"engine=megatron gpus=8 tp=2", "rc"},
		{"engine=megatron gpus=8 zero=1", "drc"},
		{"engine=megatron gpus=8 zero=3", "dr"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);
		char has[8];

		snprintf(has, sizeof(has), "%s%s%s%s", oom_engine_divides(&p) ? "d" : "", oom_engine_own_ranks(&p) ? "r" : "",
			 oom_engine_core_layers(&p) ? "c" : "", oom_engine_casts(&p) ? "m" : "");
		if (strcmp(has, cases[i].has))
			fail_msg("%s: \"%s\", not \"%s\"", cases[i].plan, has, cases[i].has);
		/* who has schedules of its own, has them in the table */
		assert_int_equal(oom_rank_engine_of(&p) != NULL, oom_engine_own_ranks(&p));
	}
}

/* What the engine trains where the plan says something else: DeepSpeed 16-bit weights in place of autocast
 * (transformers integrations/deepspeed.py), torchtune adapters in the model's type and copied heads. */
static void plans_as_they_train(void **state)
{
	static const struct {
		const char *plan, *trains;
	} cases[] = {
		{"engine=hf precision=amp-bf16", ""},
		{"engine=deepspeed precision=fp32", ""},
		{"engine=deepspeed precision=bf16", ""},
		{"engine=deepspeed precision=amp-bf16", "--precision=bf16"},
		{"engine=deepspeed precision=amp-fp16", "--precision=fp16"},
		{"engine=deepspeed precision=amp-bf16 torch-autocast=true", ""},
		{"engine=deepspeed precision=amp-bf16 lora-r=8", "--precision=bf16 --no-autocast-adapter-dtype"},
		{"engine=deepspeed precision=bf16 lora-r=8", "--no-autocast-adapter-dtype"},
		{"engine=torchtune precision=bf16 lora-r=8", "--no-autocast-adapter-dtype"},
		{"engine=torchtune precision=bf16 lora-r=8 qlora=true", "--quant-storage=own"},
		{"engine=fsdp2 gpus=2 precision=amp-bf16", ""},
		/* accelerate accelerator.py prepare_model: flat parameters that train, under autocast */
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16-amp", "--precision=amp-bf16"},
		{"engine=fsdp1 gpus=2 zero=2 precision=fp16-amp", "--precision=amp-fp16"},
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16-amp freeze=embed_tokens", "--precision=amp-bf16"},
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16-amp train-last=1", "--precision=amp-bf16"},
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16-amp lora-r=8", ""},
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16", ""},
		{"engine=fsdp1 gpus=2 zero=0 precision=bf16-amp", ""},
		/* verl/workers/fsdp_workers.py, which is without accelerate */
		{"engine=fsdp1 gpus=2 zero=3 precision=bf16-amp torch-autocast=true", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan asked = plan(cases[i].plan);
		struct oom_plan p = asked;
		char text[300];

		oom_engine_recast(&p);
		oom_plan_options(&asked, &p, text, sizeof(text));
		/* torchtune's heads are copied besides: that is no part of this table */
		if (*cases[i].trains ? !strstr(text, strstr(cases[i].trains, "--no") ? "--no-autocast-adapter-dtype" : cases[i].trains) :
				       *text != 0)
			fail_msg("%s: %s", cases[i].plan, text);
		if (*text)
			assert_true(oom_engine_recasts(&asked));
		struct oom_plan again = p;

		oom_engine_recast(&again);
		assert_memory_equal(&again, &p, sizeof(p));     /* once */
	}
}

/* Passes that rewrite streams say which streams; others leave them as recorded. */
static void shapes(void **state)
{
	static const struct {
		const char *plan;
		bool rewritten;
	} cases[] = {
		{"", false},
		{"optimizer=lomo", true},
		{"engine=hf gpus=8", false},
		{"engine=deepspeed gpus=8 zero=1", true},     /* its bucket */
		{"engine=deepspeed gpus=8 zero=2", true},
		{"engine=deepspeed gpus=8 zero=3", true},
		{"engine=fsdp2 gpus=8", true},
		{"engine=fsdp1 gpus=8", true},
		{"offload-activations=true", true},
		{"compile=true", false},
		{"compile=true grad-accum=2", true},    /* gradients are whole before the first is added */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		if ((oom_shape_of(&p) != 0) != cases[i].rewritten)
			fail_msg("%s: shape %llx", cases[i].plan, (unsigned long long)oom_shape_of(&p));
	}
	/* one number for each set of streams: batch and card are no part of it, what a layer keeps is */
	struct oom_plan a = plan("engine=fsdp2 gpus=8"), b = a;

	b.micro_batch = 3;
	assert_true(oom_shape_of(&a) == oom_shape_of(&b));
	b.zero_stage = 2;
	assert_true(oom_shape_of(&a) != oom_shape_of(&b));
}

/* Every pass is told: a name that no other has, knobs that exist, a sentence without its full stop, a source. */
static void passes(void **state)
{
	(void)state;
	for (size_t i = 0; oom_pass_at(i); i++) {
		const struct oom_pass *p = oom_pass_at(i);
		char knobs[200], *at = NULL;

		assert_true(*p->name && *p->summary && *p->source && p->applies);
		assert_true(p->summary[strlen(p->summary) - 1] != '.');
		assert_true(p->hooks || p->holdings);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(p->name, oom_pass_at(k)->name);
		snprintf(knobs, sizeof(knobs), "%s", p->knobs);
		for (char *k = strtok_r(knobs, "+", &at); k; k = strtok_r(NULL, "+", &at))
			if (!oom_knob_find(k))
				fail_msg("%s is turned on by %s, which is no knob", p->name, k);
	}
}

/* Rows of the tape's variables: sequences that a forward pass takes, tokens that adapters add, target tokens. */
static void sizes_of_a_batch(void **state)
{
	static const struct {
		const char *plan;
		uint64_t b, s, t;
	} cases[] = {
		{"micro-batch=3 seq-len=100", 3, 100, 100},
		{"micro-batch=3 seq-len=100 tgt-len=7", 3, 100, 7},
		{"micro-batch=3 seq-len=100 objective=dpo", 6, 100, 100},       /* chosen and rejected */
		{"micro-batch=3 seq-len=100 peft-type=prompt-tuning num-virtual-tokens=20", 3, 120, 100},
		{"micro-batch=3 seq-len=100 peft-type=prefix-tuning num-virtual-tokens=20", 3, 100, 100},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);
		uint64_t b, s, t;

		oom_batch_sizes(&p, &b, &s, &t);
		if (b != cases[i].b || s != cases[i].s || t != cases[i].t)
			fail_msg("%s: %llu x %llu, %llu", cases[i].plan, (unsigned long long)b, (unsigned long long)s,
				 (unsigned long long)t);
	}
}

/* Kernels differ in what they allocate up to Ampere; without a fused kernel the card is nothing to it. */
static void cards_whose_kernels_differ(void **state)
{
	static const struct {
		const char *plan;
		double kernels;
	} cases[] = {
		{"", 8}, {"compute-capability=8.6", 8}, {"compute-capability=9", 8}, {"compute-capability=12", 8},
		{"compute-capability=7.5", 7}, {"compute-capability=6.1", 6}, {"compute-capability=7 attn=eager", 8},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);

		assert_true(oom_kernels_of(&p) == cases[i].kernels);
	}
}

/* Each knob that can be solved for is a knob (memory of the card apart), found by its name and by a framework's. */
static void what_can_be_solved_for(void **state)
{
	static const char *const names[] = {"micro-batch", "seq-len", "tgt-len", "image-size", "num-layers", "lora-r", "grad-accum",
					    "global-batch", "gpus", "nodes", "gpu-memory", "eval-batch", "eval-accumulation", "images"};
	const struct solved *s;
	struct oom_error err = {{0}};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(solved_find(names[i], &s, &err), OOM_OK);
		assert_string_equal(s->knob, names[i]);
		assert_true(oom_knob_find(names[i]) || !strcmp(names[i], "gpu-memory"));
		assert_true(!s->by || oom_knob_find(s->by));
	}
	assert_int_equal(solved_find("layers", &s, &err), OOM_OK);
	assert_string_equal(s->knob, "num-layers");
	assert_int_equal(solved_find("lora-rank", &s, &err), OOM_OK);
	assert_int_equal(solved_find("per_device_train_batch_size", &s, &err), OOM_OK);
	assert_string_equal(s->knob, "micro-batch");
	assert_int_equal(solved_find("optimizer", &s, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "cannot solve for \"optimizer\"; what can be: micro-batch, seq-len"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traits),	       cmocka_unit_test(plans_as_they_train), cmocka_unit_test(shapes),
		cmocka_unit_test(passes),	       cmocka_unit_test(sizes_of_a_batch),
		cmocka_unit_test(cards_whose_kernels_differ), cmocka_unit_test(what_can_be_solved_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
