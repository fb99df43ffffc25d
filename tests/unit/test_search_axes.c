/* The search's axes: how many values each has for a plan, what class of change they are, and what becomes of a
 * vector of values.  Counts are by hand: divisors of a batch, halves of a length, the forms of an optimizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "oomplan/rules.h"
#include "search/axes.h"

static struct oom_model *model;
/* too large for the stack */
static struct search_space space;

static int make_model(void **state)
{
	static const char json[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, "
		"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"vocab_size\": 500}";
	struct oom_keys keys = {0};
	struct oom_error err = {{0}};

	(void)state;
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&model, &keys, &err))
		fail_msg("%s", err.text);
	oom_keys_release(&keys);
	return 0;
}

static int free_model(void **state)
{
	(void)state;
	oom_model_free(model);
	return 0;
}

/* The space around a plan in words; asked outlives it. */
static void around(const char *words, struct oom_search_query q)
{
	static struct oom_plan asked;
	struct oom_error err = {{0}};

	asked = oom_plan_default();
	set(&asked, words);
	q.asked = &asked;
	q.capacity_bytes = UINT64_C(1) << 36;
	memset(&space, 0, sizeof(space));
	if (search_space_init(&space, model, &q, &err))
		fail_msg("%s: %s", words, err.text);
}

static void axes_are_knobs(void **state)
{
	(void)state;
	for (size_t i = 0; i < AXES; i++) {
		const struct oom_search_axis *a = oom_search_axis_at(i);

		assert_non_null(oom_knob_find(a->knob));
		assert_string_equal(oom_knob_find(a->knob)->name, a->knob);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(oom_search_axis_at(k)->knob, a->knob);
	}
	assert_null(oom_search_axis_at(AXES));
}

/* 12 sequences have six divisors; 1,024 tokens halve to 512, 256, 128; 8 GPUs to 4, 2, 1; an AdamW has an 8-bit and
 * a paged form, SGD none. */
static void values_by_hand(void **state)
{
	static const struct {
		const char *plan;
		struct oom_search_query query;
		bool resorts;
		enum search_axis axis;
		size_t n;
	} rows[] = {
		{"micro-batch=6 grad-accum=2", {0}, false, BATCH, 6},
		{"micro-batch=7 grad-accum=1", {0}, false, BATCH, 2},
		{"micro-batch=6 grad-accum=2", {.keep_batch = true}, false, BATCH, 1},
		{"seq-len=1024", {0}, false, SEQ, 1},
		{"seq-len=1024", {.allow = OOM_ALLOW_SEQ_LEN}, false, SEQ, 4},
		{"seq-len=200", {.allow = OOM_ALLOW_SEQ_LEN}, false, SEQ, 1},
		{"gpus=8 engine=fsdp2 zero=3", {0}, false, GPUS, 1},
		{"gpus=8 engine=fsdp2 zero=3", {.objective = OOM_OBJECTIVE_PRICE}, false, GPUS, 4},
		{"precision=fp32", {0}, false, PRECISION, 2},
		{"precision=amp-bf16", {0}, false, PRECISION, 1},
		{"precision=fp32", {0}, true, PRECISION, 3},
		{"precision=bf16", {0}, true, PRECISION, 1},
		{"attn=eager", {0}, false, ATTN, 2},
		{"attn=sdpa", {0}, false, ATTN, 1},
		{"grad-ckpt=none", {0}, false, CKPT, 2},
		{"lora-r=0", {0}, false, LORA, 1},
		{"lora-r=0", {.allow = OOM_ALLOW_LORA}, false, LORA, 3},
		{"lora-r=8", {.allow = OOM_ALLOW_LORA}, false, LORA, 1},
		{"optimizer=adamw", {0}, false, OPTIMIZER, 3},
		{"optimizer=sgd", {0}, false, OPTIMIZER, 1},
		{"gpus=1", {0}, false, STEP, 2},
		{"gpus=1 grad-accum=1 optimizer-in-backward=true", {0}, false, STEP, 1},
		{"gpus=2", {0}, false, STEP, 1},
		{"gpus=2", {0}, false, SEQPAR, 1},
		{"gpus=2 engine=megatron precision=bf16", {0}, false, SEQPAR, 2},
		{"allocator=native", {0}, false, ALLOCATOR, 2},
		{"allocator=expandable_segments", {0}, false, ALLOCATOR, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		around(rows[i].plan, rows[i].query);
		space.resorts = rows[i].resorts;
		if (search_values(&space, rows[i].axis) != rows[i].n)
			fail_msg("row %zu, %s: %zu values of %s, not %zu", i, rows[i].plan,
				 search_values(&space, rows[i].axis), oom_search_axis_at(rows[i].axis)->knob, rows[i].n);
	}
}

static void what_is_held_has_one_value(void **state)
{
	const char *words = "precision=fp32 attn=eager micro-batch=6 seq-len=1024";

	(void)state;
	for (unsigned i = 0; i < AXES; i++) {
		around(words, (struct oom_search_query){.allow = OOM_ALLOW_SCIENCE, .hold = 1u << i});
		for (unsigned k = 0; k < AXES; k++) {
			const size_t n = search_values(&space, (enum search_axis)k);

			assert_true(n >= 1);
			if (k == i)
				assert_int_equal(n, 1);
		}
		assert_true(search_values(&space, i == BATCH ? SEQ : BATCH) > 1);
	}
}

/* Exact changes are batches, checkpoints, kernels, layouts and the allocator; the rest changes numbers, places or
 * the science (rungs.c gives the classes of the same changes). */
static void classes_of_changes(void **state)
{
	static const unsigned want[AXES] = {[SEQ] = 1u << OOM_SCIENCE,	  [LORA] = 1u << OOM_SCIENCE,
					    [PRECISION] = 1u << OOM_NUMERICS, [OPTIMIZER] = 1u << OOM_NUMERICS,
					    [STEP] = 1u << OOM_NUMERICS,    [OFFLOAD] = 1u << OOM_PLACEMENT};
	uint16_t v[AXES] = {0};

	(void)state;
	around("precision=fp32 attn=eager", (struct oom_search_query){.allow = OOM_ALLOW_SCIENCE});
	assert_int_equal(search_inexact(&space, v), 0);
	for (int i = 0; i < AXES; i++) {
		v[i] = 1;
		assert_int_equal(search_classes(search_inexact(&space, v)), want[i]);
		/* what can be is at least what is */
		assert_int_equal(search_inexact(&space, v) & ~search_inexact_all(&space), 0);
		v[i] = 0;
	}
	around("precision=fp32 attn=eager",
	       (struct oom_search_query){.allow = OOM_ALLOW_SCIENCE, .exact_only = true});
	for (int i = 0; i < AXES; i++)
		if (want[i])
			assert_int_equal(search_values(&space, (enum search_axis)i), 1);
}

static void departures(void **state)
{
	uint16_t v[AXES] = {0};

	(void)state;
	assert_int_equal(search_departures(v), 0);
	for (int i = 0; i < AXES; i++) {
		v[i] = 1;
		assert_int_equal(search_departures(v), i + 1);
	}
	/* activations beside states, and kernels beside a loss, are one more each */
	v[OFFLOAD] = PLACES + 1;
	assert_int_equal(search_departures(v), AXES + 1);
	v[LOSS] = 2;
	assert_int_equal(search_departures(v), SEARCH_DEPARTURES);
}

static bool same(const struct oom_plan *a, const struct oom_plan *b)
{
	char x[OOM_VALUE_SIZE], y[OOM_VALUE_SIZE];

	for (size_t i = 0; oom_knob_at(i); i++)
		if (strcmp(oom_plan_get(a, oom_knob_at(i), x, sizeof(x)), oom_plan_get(b, oom_knob_at(i), y, sizeof(y))))
			return false;
	return true;
}

/* Nothing changed is what was asked; any one change is another plan, of as many sequences per step, told by
 * a knob in which the two differ.  Whether it breaks a rule is asked where it is priced: some do, which is
 * why the count is of those that do not. */
static void one_change_at_a_time(void **state)
{
	static const char *const plans[] = {"precision=fp32 attn=eager micro-batch=4 grad-accum=3 seq-len=1024 gpus=1",
					    "precision=amp-bf16 micro-batch=4 engine=fsdp2 zero=3 gpus=4 seq-len=512",
					    "precision=bf16 engine=deepspeed zero=2 gpus=2 micro-batch=8"};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		uint16_t v[AXES] = {0};
		struct oom_plan asked, p;
		size_t sound = 0;

		around(plans[i], (struct oom_search_query){.allow = OOM_ALLOW_SCIENCE});
		space.resorts = true;
		assert_true(search_build(&space, v, &asked));
		assert_true(same(&asked, space.asked));
		for (int axis = 0; axis < AXES; axis++, v[axis - 1] = 0)
			for (size_t k = 1; k < search_values(&space, (enum search_axis)axis); k++) {
				const struct oom_option *o;

				v[axis] = (uint16_t)k;
				if (!search_build(&space, v, &p))
					continue;
				sound += !oom_plan_broken(&p, NULL);
				if (same(&p, &asked))
					fail_msg("%s: value %zu of %s", plans[i], k, oom_search_axis_at((size_t)axis)->knob);
				assert_int_equal(p.micro_batch * p.grad_accum * oom_plan_data_parallel(&p), space.step_batch);
				o = oom_knob_find(search_knob((enum search_axis)axis, &p, &asked));
				assert_non_null(o);
				assert_int_not_equal(*oom_plan_field(&p, o), *oom_plan_field(&asked, o));
			}
		assert_true(sound > 10);
	}
}

/* Checkpoints whose inputs wait on the host stay: Unsloth moves nothing else there. */
static void waiting_checkpoints(void **state)
{
	static const struct {
		const char *asked;
		size_t values;
	} rows[] = {{"grad-ckpt=full", 2}, {"grad-ckpt=full offload-activations=true", 1}, {"offload-activations=true", 2}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan asked = oom_plan_default();
		struct search_space s = {.asked = &asked};

		set(&asked, rows[i].asked);
		assert_int_equal(search_values(&s, CKPT), rows[i].values);
	}
}

/* Its own knob where that differs, then its others, before what only follows: a batch that changed with it. */
static void the_knob_that_tells(void **state)
{
	static const struct {
		enum search_axis axis;
		const char *with, *without, *knob;
	} rows[] = {
		{LAYOUT, "engine=fsdp2 zero=3 micro-batch=2", "engine=fsdp2 zero=2 micro-batch=4", "zero"},
		{LAYOUT, "engine=fsdp2 zero=3 micro-batch=2", "engine=deepspeed zero=3 micro-batch=4", "engine"},
		{LAYOUT, "micro-batch=2", "micro-batch=4", "micro-batch"},
		{PRECISION, "kbit-prepare=false micro-batch=2", "kbit-prepare=true micro-batch=4", "kbit-prepare"},
		{OFFLOAD, "offload-activations=true micro-batch=2", "micro-batch=4", "offload-activations"},
		{CKPT, "grad-ckpt=full", NULL, "grad-ckpt"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan with = oom_plan_default(), without = with;

		set(&with, rows[i].with);
		set(&without, rows[i].without ? rows[i].without : "");
		assert_string_equal(search_knob(rows[i].axis, &with, rows[i].without ? &without : NULL), rows[i].knob);
	}
}

/* Where nothing fits over the fewest tokens none of the lengths between are searched: as many plans as of two lengths,
 * where eight are allowed. */
static void too_small_for_any_length(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan asked = oom_plan_default();
	struct oom_search_query q = {.asked = &asked, .capacity_bytes = 1 << 20};
	struct oom_search one, all;
	struct oom_error err = {{0}};

	(void)state;
	set(&asked, "seq-len=65536");
	assert_non_null(ev);
	assert_false(oom_search(ev, model, &q, &one, &err));
	q.allow = OOM_ALLOW_SEQ_LEN;
	around("seq-len=65536", q);
	assert_true(search_values(&space, SEQ) >= 8);
	assert_false(oom_search(ev, model, &q, &all, &err));
	assert_false(one.found || all.found);
	assert_int_equal(all.evaluated, 2 * one.evaluated);
	oom_evaluator_free(ev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(axes_are_knobs),
		cmocka_unit_test(values_by_hand),
		cmocka_unit_test(what_is_held_has_one_value),
		cmocka_unit_test(classes_of_changes),
		cmocka_unit_test(departures),
		cmocka_unit_test(one_change_at_a_time),
		cmocka_unit_test(waiting_checkpoints), cmocka_unit_test(the_knob_that_tells),
		cmocka_unit_test(too_small_for_any_length),
	};

	return cmocka_run_group_tests(tests, make_model, free_model);
}
