/* An evaluator keeps what the evaluation before has settled (models/step/before.c): whatever it was asked
 * before, it must answer as a fresh one does, to the byte and to the word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"
#include "oomplan/option.h"

/* Sizes that are kept apart, and knobs that change what they are kept with; some values break rules,
 * some recordings take another branch from one length or batch to the next. */
static const char *const moves[][2] = {
	{"micro-batch", "1"}, {"micro-batch", "2"}, {"micro-batch", "8"}, {"micro-batch", "64"},
	{"seq-len", "0"}, {"seq-len", "1"}, {"seq-len", "64"}, {"seq-len", "1000"}, {"seq-len", "4096"},
	{"grad-accum", "1"}, {"grad-accum", "2"}, {"grad-accum", "8"},
	{"optimizer", "adamw"}, {"optimizer", "sgd"}, {"optimizer", "adamw-8bit"}, {"optimizer", "lomo"},
	{"optimizer", "adafactor"}, {"optimizer", "muon"},
	{"compute-capability", "0"}, {"compute-capability", "7.5"}, {"compute-capability", "8.6"},
	{"compute-capability", "9"},
	{"attn", "eager"}, {"attn", "sdpa"}, {"attn", "flash"},
	{"precision", "fp32"}, {"precision", "amp-bf16"}, {"precision", "bf16"},
	{"gpus", "1"}, {"gpus", "4"}, {"engine", "hf"}, {"engine", "deepspeed"}, {"engine", "fsdp2"},
	{"engine", "device-map"}, {"zero", "0"}, {"zero", "1"}, {"zero", "3"},
	{"grad-ckpt", "none"}, {"grad-ckpt", "full"}, {"lora-r", "0"}, {"lora-r", "8"},
	{"lora-targets", "all-linear"}, {"lora-targets", "q_proj"}, {"compile", "true"}, {"compile", "false"},
	{"offload-gradients", "true"}, {"offload-gradients", "false"}, {"offload-optimizer", "cpu"},
	{"offload-optimizer", "none"}, {"loss", "fused"}, {"loss", "plain"}, {"global-batch", "0"},
	{"global-batch", "4"}, {"objective", "grpo"}, {"objective", "sft"}, {"objective", "sft"},
	{"objective", "sft"}, {"objective", "sft"},
	{"completion-len", "16"}, {"offload-activations", "true"}, {"offload-activations", "false"},
};
enum { MOVES = sizeof(moves) / sizeof(moves[0]), STEPS = 1500 };

static const char *const configs[] = {
	"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, "
	"\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"vocab_size\": 500}",
	"{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"intermediate_size\": 128, "
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
	"\"num_local_experts\": 4, \"vocab_size\": 500}",
	"{\"model_type\": \"t5\", \"d_model\": 64, \"d_ff\": 128, \"num_layers\": 2, \"num_heads\": 4, "
	"\"d_kv\": 16, \"vocab_size\": 500}"};

struct answer {
	enum oom_status st;
	struct oom_eval e;
	struct oom_error err;
};

static struct answer ask(struct oom_evaluator *ev, const struct oom_model *m, const struct oom_plan *p,
			 unsigned flags)
{
	struct answer a;

	memset(&a, 0, sizeof(a));
	a.st = oom_evaluate(ev, m, p, flags, &a.e, &a.err);
	if (a.st)               /* what a refusal leaves behind is nobody's */
		memset(&a.e, 0, sizeof(a.e));
	return a;
}

static void compare(const struct answer *a, const struct answer *b, const struct oom_plan *p)
{
	const struct oom_plan usual = oom_plan_default();
	char options[300];

	if (a->st == b->st && !strcmp(a->err.text, b->err.text) && !memcmp(&a->e, &b->e, sizeof(a->e)))
		return;
	fail_msg("%s: %llu \"%s\" after other questions, %llu \"%s\" at first",
		 oom_plan_options(&usual, p, options, sizeof(options)),
		 (unsigned long long)a->e.used_bytes, a->err.text, (unsigned long long)b->e.used_bytes,
		 b->err.text);
}

/* Whether a caller may say that p is near to what was asked last. */
static bool is_near(const struct oom_plan *asked, const struct oom_plan *p)
{
	struct oom_plan q = *p;
	const struct oom_option *k;

	for (size_t i = 0; (k = oom_knob_at(i)) != NULL; i++)
		if (oom_knob_near(k))
			memcpy((char *)&q + k->offset, (const char *)asked + k->offset, sizeof(int64_t));
	return !memcmp(&q, asked, sizeof(q));
}

/* One knob changes from each question to the next. */
static void walk(const char *config, unsigned seed)
{
	struct oom_evaluator *kept = oom_evaluator_new();
	struct oom_plan p = oom_plan_default(), asked = p;
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	size_t priced = 0, near = 0, refused = 0;

	assert_non_null(kept);
	assert_int_equal(oom_keys_parse(&keys, config, strlen(config), "config.json", NULL), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, NULL), OOM_OK);
	for (int i = 0; i < STEPS; i++) {
		const char *const *move = moves[(seed = seed * 1103515245 + 12345) / 65536 % MOVES];
		const unsigned flags = i % 16 == 0 ? OOM_EVAL_REPLAY : i % 16 == 1 ? OOM_EVAL_BUCKETS : OOM_EVAL_FAST;
		struct oom_plan before = p;
		struct oom_evaluator *fresh;
		struct answer a, b;

		assert_int_equal(oom_plan_set(&p, oom_knob_find(move[0]), move[1], NULL), OOM_OK);
		fresh = oom_evaluator_new();
		assert_non_null(fresh);
		near += i && is_near(&asked, &p);
		a = ask(kept, m, &p, flags | (i && is_near(&asked, &p) ? OOM_EVAL_NEAR : 0));
		asked = p;
		b = ask(fresh, m, &p, flags);
		oom_evaluator_free(fresh);
		compare(&a, &b, &p);
		priced += !a.st;
		refused = a.st ? refused + 1 : 0;
		if (a.st && seed / 65536 % 4)   /* mostly back from what is refused */
			p = before;
		if (refused == 8)
			p = oom_plan_default();
	}
	assert_in_range(priced, STEPS / 5, STEPS);
	assert_in_range(near, STEPS / 5, STEPS);
	oom_evaluator_free(kept);
	oom_model_free(m);
	oom_keys_release(&keys);
}

static void answers_do_not_depend_on_the_questions_before(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
		walk(configs[i], (unsigned)(i + 1));
}

/* ---- models that come and go ---- */

/* A model of so many layers, over keys that the caller releases. */
static struct oom_model *made(struct oom_keys *keys, int layers)
{
	struct oom_model *m = NULL;
	char config[200];

	snprintf(config, sizeof(config),
		 "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, "
		 "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"vocab_size\": 500}",
		 layers);
	assert_int_equal(oom_keys_parse(keys, config, strlen(config), "config.json", NULL), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, NULL), OOM_OK);
	return m;
}

/* The C library gives a freed model's memory to the next one, so that it has its address (seldom under a
 * sanitizer, which keeps what was freed for a while): an evaluator must not take it for the first. */
static void a_model_in_anothers_place(void **state)
{
	static const unsigned how[] = {OOM_EVAL_FAST, OOM_EVAL_NEAR, OOM_EVAL_REPLAY, OOM_EVAL_BUCKETS};
	struct oom_evaluator *kept = oom_evaluator_new();
	const struct oom_plan p = oom_plan_default();
	uintptr_t before = 0;
	size_t again = 0;

	(void)state;
	assert_non_null(kept);
	for (int i = 0; i < 32; i++) {
		struct oom_evaluator *fresh = oom_evaluator_new();
		struct oom_keys keys = {0};
		struct oom_model *m = made(&keys, 2 + i % 3);
		const struct answer a = ask(kept, m, &p, how[i / 8]), b = ask(fresh, m, &p, how[i / 8]);

		assert_int_equal(a.st, OOM_OK);
		compare(&a, &b, &p);
		again += (uintptr_t)m == before;
		before = (uintptr_t)m;
		oom_evaluator_free(fresh);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	oom_evaluator_free(kept);
	if (!again)
		skip();
}

/* What a model is distilled from is part of what it is: the same student under another teacher, and alone. */
static void a_student_of_several_teachers(void **state)
{
	struct oom_evaluator *kept = oom_evaluator_new(), *fresh = oom_evaluator_new();
	struct oom_keys keys[3] = {{0}};
	struct oom_model *m[3];
	struct oom_plan p = oom_plan_default();
	struct answer a[2], b;

	(void)state;
	for (int i = 0; i < 3; i++)
		m[i] = made(&keys[i], 2 + 2 * i);
	assert_int_equal(oom_plan_set(&p, oom_knob_find("objective"), "gkd", NULL), OOM_OK);
	for (int i = 0; i < 2; i++) {
		oom_model_teach(m[0], m[1 + i]);
		a[i] = ask(kept, m[0], &p, OOM_EVAL_FAST);
		assert_int_equal(a[i].st, OOM_OK);
	}
	b = ask(fresh, m[0], &p, OOM_EVAL_FAST);
	compare(&a[1], &b, &p);
	/* two layers more: q, k, v, o, gate, up, down in fp32, and two norms in a block of the allocator each */
	assert_int_equal(a[1].e.end[0] - a[0].e.end[0], 2 * (4 * 64 * 64 * 4 + 3 * 64 * 128 * 4 + 2 * 512));
	for (int i = 0; i < 3; i++) {
		oom_model_free(m[i]);
		oom_keys_release(&keys[i]);
	}
	oom_evaluator_free(kept);
	oom_evaluator_free(fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_do_not_depend_on_the_questions_before),
		cmocka_unit_test(a_model_in_anothers_place), cmocka_unit_test(a_student_of_several_teachers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
