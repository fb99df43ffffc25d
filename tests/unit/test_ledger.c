/* The ledger that `oomplan explain` prints, against the evaluation that it explains: rows add up to what is loaded and to what
 * is saved for the backward pass, and the arithmetic of every row comes to its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"
#include "knobs.h"

static struct oom_plan plan(const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	oom_plan_settle(&p);
	return p;
}

struct sums {
	const char *of;
	uint64_t loaded, held, states;  /* bytes of weights and buffers; kept by the forward pass; of optimizer states */
	uint64_t work;                  /* workspaces, and what lies there from the beginning */
	size_t rows, reckoned;
};

/* "4 * 128 * 2048 * 2 B": the product; 0: it is more than a product of numbers. */
static uint64_t reckon(const char *text)
{
	uint64_t product = 1;

	for (;;) {
		char *end;
		const unsigned long long n = strtoull(text, &end, 10);

		if (end == text)
			return 0;
		product *= n;
		if (!strcmp(end, " B"))
			return product;
		if (strncmp(end, " * ", 3) != 0)
			return 0;
		text = end + 3;
	}
}

static void add(void *ctx, const struct oom_ledger_row *r)
{
	struct sums *s = ctx;
	const uint64_t bytes = reckon(r->numbers);

	s->rows++;
	if (!*r->formula || !*r->name || !*r->source || !*r->kind || !*r->born)
		fail_msg("%s: %s.%s lacks a word", s->of, r->scope, r->name);
	if (!strcmp(r->born, "load"))
		s->loaded += r->bytes * r->count;
	if (!strcmp(r->kind, "optimizer state"))
		s->states += r->bytes * r->count;
	if (!strcmp(r->kind, "workspace"))
		s->work += r->bytes * r->count;
	s->held += r->bytes * r->held;
	if (r->held > r->count)
		fail_msg("%s: %s.%s: %llu of %llu are held", s->of, r->scope, r->name, (unsigned long long)r->held,
			 (unsigned long long)r->count);
	if (!bytes || strcmp(r->kind, "optimizer state") == 0)
		return;
	s->reckoned++;
	/* in whole blocks of the allocator, which a rank's parts of many tensors are together */
	if (strcmp(r->scope, "rank") != 0 && (bytes + 511) / 512 * 512 != r->bytes)
		fail_msg("%s: %s.%s: %s is not %llu bytes", s->of, r->scope, r->name, r->numbers, (unsigned long long)r->bytes);
}

static const char *const models[] = {
	"{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 6, "
	"\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 1000}",
	"{\"model_type\": \"bert\", \"num_hidden_layers\": 4}",
	"{\"model_type\": \"gpt2\", \"n_layer\": 5}",
	"{\"model_type\": \"t5\", \"num_layers\": 3, \"num_decoder_layers\": 3}",
	"{\"model_type\": \"mixtral\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 3, "
	"\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 1000}",
	"{\"model_type\": \"gemma2\", \"num_hidden_layers\": 5, \"hidden_size\": 256}",
	"{\"model_type\": \"qwen3\", \"num_hidden_layers\": 3}",
	"{\"model_type\": \"mamba\", \"num_hidden_layers\": 3}",
	"{\"model_type\": \"modernbert\", \"num_hidden_layers\": 5}",
};
static const char *const plans[] = {
	"micro-batch=2 seq-len=96",
	"micro-batch=3 seq-len=77 precision=amp-bf16 attn=eager",
	"micro-batch=2 seq-len=96 precision=bf16 grad-ckpt=full",
	"micro-batch=1 seq-len=128 precision=bf16 lora-r=8 lora-targets=all-linear",
	"micro-batch=2 seq-len=100 precision=bf16 loss=fused",
	"micro-batch=2 seq-len=96 precision=bf16 optimizer=adamw-8bit padding-mask=true",
	"micro-batch=2 seq-len=96 precision=bf16 lora-r=8 lora-targets=all-linear qlora=true",
	/* a rank's part of the weights, in the type that it keeps them in */
	"micro-batch=2 seq-len=96 precision=amp-bf16 engine=fsdp1 gpus=8",
	"micro-batch=2 seq-len=96 precision=amp-bf16 engine=fsdp2 gpus=3",
	"micro-batch=2 seq-len=96 precision=bf16 engine=deepspeed zero=1 gpus=4",
	"micro-batch=2 seq-len=96 precision=bf16 engine=deepspeed zero=3 gpus=4",
};
enum { MODELS = sizeof(models) / sizeof(models[0]), PLANS = sizeof(plans) / sizeof(plans[0]) };

static struct oom_model *model_of(const char *json, struct oom_keys *keys)
{
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};

	if (oom_keys_parse(keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, keys, &err))
		fail_msg("%s: %s", json, err.text);
	return m;
}

static void rows_add_up(void **state)
{
	size_t priced = 0, rows = 0, reckoned = 0;

	(void)state;
	for (size_t i = 0; i < MODELS; i++) {
		/* it knows models by their address, which the next one may have */
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_keys keys = {0};
		struct oom_model *m = model_of(models[i], &keys);

		assert_non_null(ev);

		for (size_t k = 0; k < PLANS; k++) {
			const struct oom_plan p = plan(plans[k]);
			struct sums s = {.of = oom_model_type(m)};
			struct oom_error err = {{0}};
			struct oom_eval e;

			if (oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err))
				continue;       /* the type has no such kernel */
			priced++;
			if (oom_ledger_each(ev, m, &p, add, &s, &err))
				fail_msg("%s, %s: %s", oom_model_type(m), plans[k], err.text);
			if (s.loaded != e.end[OOM_PHASE_LOAD])
				fail_msg("%s, %s: rows of %llu bytes are loaded, not %llu", oom_model_type(m), plans[k],
					 (unsigned long long)s.loaded, (unsigned long long)e.end[OOM_PHASE_LOAD]);
			if (s.held != e.saved_bytes)
				fail_msg("%s, %s: rows of %llu bytes are saved, not %llu", oom_model_type(m), plans[k],
					 (unsigned long long)s.held, (unsigned long long)e.saved_bytes);
			rows += s.rows;
			reckoned += s.reckoned;
		}
		oom_evaluator_free(ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	print_message("%zu plans, %zu rows, of %zu the arithmetic was done\n", priced, rows, reckoned);
	assert_true(priced > MODELS * PLANS * 3 / 4 && reckoned > rows / 4);
}

/* Engines whose ranks have schedules of their own tell their rows, too: what lies there between steps is their sum. */
static void ranks_of_their_own(void **state)
{
	static const struct {
		const char *plan;
		bool core;
	} cases[] = {
		{"engine=megatron precision=bf16 micro-batch=2 seq-len=128", true},
		{"engine=megatron precision=bf16 micro-batch=2 seq-len=128 gpus=4 tp=2 pp=2", true},
		{"engine=megatron precision=bf16 micro-batch=1 seq-len=128 gpus=4 zero=1 grad-ckpt=full", true},
		{"engine=fsdp2 precision=bf16 micro-batch=2 seq-len=128 gpus=4 tp=2 zero=3", false},
	};
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = model_of(models[0], &keys);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);
		struct sums s = {.of = cases[i].plan};
		struct oom_error err = {{0}};
		struct oom_eval e;

		if (oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err) || oom_ledger_each(ev, m, &p, add, &s, &err))
			fail_msg("%s: %s", cases[i].plan, err.text);
		assert_true(s.rows >= 5);
		assert_int_equal(s.work > 0, cases[i].core);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* What cannot run has no ledger, and says why. */
static void no_ledger(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = model_of(models[0], &keys);
	const struct oom_plan p = plan("qlora=true");
	struct sums s = {.of = "refused"};
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_ledger_each(ev, m, &p, add, &s, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "without adapters"));
	assert_int_equal(s.rows, 0);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_add_up),
		cmocka_unit_test(ranks_of_their_own),
		cmocka_unit_test(no_ledger),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
