/* Every model type under a handful of plans: what must hold between two evaluations of one model, whatever it is.  Types are
 * taken with the defaults of their own; those whose defaults are no whole model are passed over, and counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/ladder.h"
#include "oomplan/model.h"
#include "knobs.h"

static struct oom_evaluator *ev;
static size_t priced, compared;
static int bad;

/* ---- one type ---- */

struct type {
	const char *name;
	struct oom_model *model;
};

static bool price(const struct type *t, const char *words, struct oom_eval *e)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	char note[300];

	p.precision = OOM_FP32;
	p.micro_batch = 1;
	p.seq_len = 64;
	set(&p, words);
	oom_plan_settle_for(&p, t->model, note);
	return !oom_evaluate(ev, t->model, &p, OOM_EVAL_BUCKETS, e, &err);
}

static void expect(const struct type *t, bool holds, const char *what, uint64_t a, uint64_t b)
{
	compared++;
	if (holds)
		return;
	print_error("%s: %s: %llu and %llu\n", t->name, what, (unsigned long long)a, (unsigned long long)b);
	bad++;
}
#define EXPECT(t, a, op, b, what) expect(t, (a)op(b), what, a, b)

/* ---- laws ---- */

static void parts_are_no_more_than_the_whole(const struct type *t, const struct oom_eval *e)
{
	uint64_t sum = 0;

	EXPECT(t, e->trainable_params, <=, e->total_params, "trained and all parameters");
	EXPECT(t, e->active_params, <=, e->total_params, "active and all parameters");
	EXPECT(t, e->param_bytes, <=, e->peak[OOM_PHASE_LOAD], "weights and what is loaded");
	for (int i = 0; i < OOM_BUCKETS; i++)
		sum += e->bucket[i];
	EXPECT(t, sum, ==, e->overall_peak, "who is alive and the peak");
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_OPT2; i++)
		EXPECT(t, e->peak[i], <=, e->overall_peak, oom_phase_str((enum oom_phase)i));
	/* the second step finds what the first has left: optimizer states */
	EXPECT(t, e->peak[OOM_PHASE_FWD2], >=, e->peak[OOM_PHASE_FWD1], "forward of the second and the first step");
	EXPECT(t, e->peak[OOM_PHASE_BWD2], >=, e->peak[OOM_PHASE_BWD1], "backward of the second and the first step");
	/* a pass without gradients keeps nothing */
	EXPECT(t, e->peak[OOM_PHASE_EVAL], <=, e->peak[OOM_PHASE_FWD1], "evaluation and forward");
	EXPECT(t, e->overall_peak, <=, e->reserved_bytes, "allocated and reserved");
	EXPECT(t, e->reserved_bytes, <=, e->used_bytes, "reserved and used");
}

/* AdamW keeps two elements per trained one (arXiv:1711.05101), SGD none. */
static void optimizers(const struct type *t, const struct oom_eval *e)
{
	struct oom_eval sgd;

	EXPECT(t, e->opt_bytes, >=, 8 * e->trainable_params - 8 * (e->trainable_params - e->grad_bytes / 4), "AdamW's states");
	if (!price(t, "optimizer=sgd", &sgd))
		return;
	EXPECT(t, sgd.opt_bytes, ==, 0, "SGD's states");
	EXPECT(t, sgd.total_params, ==, e->total_params, "parameters under SGD");
	EXPECT(t, sgd.peak[OOM_PHASE_FWD1], ==, e->peak[OOM_PHASE_FWD1], "first forward under SGD");
	EXPECT(t, sgd.overall_peak, <=, e->overall_peak, "peaks of SGD and AdamW");
}

/* Weights of 16 bits are half of those of 32, but for what a model keeps in fp32. */
static void half_precision(const struct type *t, const struct oom_eval *e)
{
	struct oom_eval half;

	if (!price(t, "precision=bf16", &half))
		return;
	EXPECT(t, half.total_params, ==, e->total_params, "parameters in 16 bit");
	EXPECT(t, half.param_bytes, <=, e->param_bytes, "weights in 16 and in 32 bit");
	EXPECT(t, 2 * half.param_bytes, >=, e->param_bytes, "twice the weights in 16 bit and those in 32");
	EXPECT(t, half.saved_bytes, <=, e->saved_bytes + e->saved_bytes / 8 + 65536, "saved in 16 and in 32 bit");
}

/* Two samples take more than one, and no weight more. */
static void batches(const struct type *t, const struct oom_eval *e)
{
	struct oom_eval two, four;

	if (!price(t, "micro-batch=2", &two) || !price(t, "micro-batch=4", &four))
		return;
	EXPECT(t, two.peak[OOM_PHASE_LOAD], ==, e->peak[OOM_PHASE_LOAD], "loaded for two samples");
	EXPECT(t, two.opt_bytes, ==, e->opt_bytes, "states for two samples");
	EXPECT(t, two.grad_bytes, ==, e->grad_bytes, "gradients for two samples");
	EXPECT(t, two.saved_bytes, >=, e->saved_bytes, "saved of two samples and of one");
	/* not so of one and two: of a single sample some copies are views (an expanded mask, say) */
	EXPECT(t, four.saved_bytes, <=, 2 * two.saved_bytes, "saved of four samples and twice of two");
	EXPECT(t, two.overall_peak, >=, e->overall_peak, "peaks of two samples and of one");
	EXPECT(t, two.input_bytes, ==, 2 * e->input_bytes, "inputs of two samples");
}

/* Checkpointing keeps less, and computes the same parameters. */
static void checkpointing(const struct type *t, const struct oom_eval *e)
{
	struct oom_eval c;

	if (!price(t, "grad-ckpt=full", &c))
		return;
	EXPECT(t, c.total_params, ==, e->total_params, "parameters with checkpoints");
	/* where hardly anything trains (Idefics freezes its text model, whose step this is), layers keep nothing that
	 * checkpoints could give up */
	if (e->grad_bytes > e->param_bytes / 8)
		EXPECT(t, c.saved_bytes, <=, e->saved_bytes, "saved with and without checkpoints");
	EXPECT(t, c.peak[OOM_PHASE_EVAL], ==, e->peak[OOM_PHASE_EVAL], "evaluation with checkpoints");
	EXPECT(t, c.grad_bytes, ==, e->grad_bytes, "gradients with checkpoints");
}

/* Adapters come on top of the model and train alone; of twice the rank there is twice as much. */
static void adapters(const struct type *t, const struct oom_eval *e)
{
	struct oom_eval four, eight;

	if (!price(t, "lora-r=4 lora-targets=all-linear", &four) || !price(t, "lora-r=8 lora-targets=all-linear", &eight))
		return;
	EXPECT(t, four.total_params, ==, e->total_params + four.trainable_params, "parameters with adapters");
	EXPECT(t, eight.trainable_params, ==, 2 * four.trainable_params, "adapters of rank 8 and twice those of 4");
	EXPECT(t, four.opt_bytes, <, e->opt_bytes, "states of adapters and of all");
	EXPECT(t, four.peak[OOM_PHASE_OPT1], <, e->peak[OOM_PHASE_OPT1], "steps of adapters and of all");
}

static void laws_of(const char *name)
{
	struct oom_keys keys = {0};
	struct type t = {.name = name};
	struct oom_error err = {{0}};
	struct oom_eval e;
	char json[200];

	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", name);
	if (!oom_keys_parse(&keys, json, strlen(json), name, &err) && !oom_model_new(&t.model, &keys, &err) &&
	    price(&t, "", &e)) {
		priced++;
		parts_are_no_more_than_the_whole(&t, &e);
		optimizers(&t, &e);
		half_precision(&t, &e);
		batches(&t, &e);
		checkpointing(&t, &e);
		adapters(&t, &e);
	}
	oom_model_free(t.model);
	oom_keys_release(&keys);
}

static void every_type(void **state)
{
	size_t types = 0;

	(void)state;
	for (size_t f = 0; oom_family_at(f); f++)
		for (const struct oom_family_type *t = oom_family_at(f)->types; t->name; t++) {
			types++;
			/* remembered models are told by their address */
			ev = oom_evaluator_new();
			assert_non_null(ev);
			laws_of(t->name);
			oom_evaluator_free(ev);
		}
	print_message("%zu of %zu types, %zu comparisons\n", priced, types, compared);
	assert_true(priced > types * 3 / 4);
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_type)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
