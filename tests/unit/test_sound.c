/* What must be true of every evaluation: one that is sound, and each way of contradicting itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "families/model.h"
#include "step/sound.h"

static struct oom_model *model;
static struct oom_plan plan;

static int make(void **state)
{
	(void)state;
	model = test_calloc(1, sizeof(*model));
	strcpy(model->arch.model_type, "llama");
	plan = oom_plan_default();
	plan.micro_batch = 3;
	return 0;
}

static int drop(void **state)
{
	(void)state;
	test_free(model);
	return 0;
}

/* Weights of 100 bytes, a peak of 300 in the first backward pass, 320 reserved, 350 used. */
static struct oom_eval sound(void)
{
	struct oom_eval e;

	memset(&e, 0, sizeof(e));
	for (int i = 0; i < OOM_PHASES; i++) {
		e.peak[i] = 200;
		e.end[i] = 100;
	}
	e.peak[OOM_PHASE_BWD1] = e.overall_peak = 300;
	e.peak_phase = OOM_PHASE_BWD1;
	e.reserved_bytes = 320;
	e.used_bytes = 350;
	e.total_params = 25;
	e.trainable_params = 20;
	e.bucket[OOM_BUCKET_PARAMS] = 100;
	e.bucket[OOM_BUCKET_TEMP] = 200;
	return e;
}

static void a_sound_one(void **state)
{
	struct oom_eval e = sound();
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_OK);
	assert_int_equal(oom_sound_on_card(model, &plan, &e, &err), OOM_OK);
	/* an evaluation may peak above the training step, and rollouts may */
	e.peak[OOM_PHASE_EVAL] = 1000;
	assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_OK);
}

/* The message tells both numbers, the type and the knobs: what a report needs to be of use. */
static void contradictions(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		const char *says;
		bool on_card;
	} spoilt[] = {
		{offsetof(struct oom_eval, end) + sizeof(uint64_t) * OOM_PHASE_OPT1, 201, "a phase peaks below its end (200 and 201)", false},
		{offsetof(struct oom_eval, end) + sizeof(uint64_t) * OOM_PHASE_EVAL, 250, "a phase peaks below its end (200 and 250)", false},
		{offsetof(struct oom_eval, peak) + sizeof(uint64_t) * OOM_PHASE_OPT2, 301, "the overall peak lies below a phase's (300 and 301)", false},
		{offsetof(struct oom_eval, reserved_bytes), 299, "less is reserved than allocated (300 and 299)", true},
		{offsetof(struct oom_eval, used_bytes), 319, "less is used than reserved (319 and 320)", true},
		{offsetof(struct oom_eval, trainable_params), 26, "more parameters are trained than there are (25 and 26)", false},
		{offsetof(struct oom_eval, total_params), 0, "more parameters are trained than there are (0 and 20)", false},
		{offsetof(struct oom_eval, bucket) + sizeof(uint64_t) * OOM_BUCKET_SAVED, (uint64_t)-8, "one kind of memory is negative", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
		struct oom_eval e = sound();
		struct oom_error err = {{0}};

		memcpy((char *)&e + spoilt[i].at, &spoilt[i].value, sizeof(spoilt[i].value));
		assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_ERR_INTERNAL);
		if (!strstr(err.text, spoilt[i].says) || !strstr(err.text, "llama") ||
		    !strstr(err.text, "--micro-batch=3") || !strstr(err.text, "please report it"))
			fail_msg("case %zu: %s", i, err.text);
		assert_int_equal(oom_sound_on_card(model, &plan, &e, &err), spoilt[i].on_card ? OOM_ERR_INTERNAL : OOM_OK);
	}
}

/* Without buckets they are not looked at: they may be anything. */
static void buckets_that_were_not_asked_for(void **state)
{
	struct oom_eval e = sound();

	(void)state;
	memset(e.bucket, 0xff, sizeof(e.bucket));
	assert_int_equal(oom_sound(model, &plan, &e, false, NULL), OOM_OK);
	assert_int_equal(oom_sound(model, &plan, &e, true, NULL), OOM_ERR_INTERNAL);
}

/* An exbibyte is no defect of ours but a size that nobody meant: the config's or the plan's. */
static void more_than_an_exbibyte(void **state)
{
	const uint64_t exbibyte = (uint64_t)1 << 60;
	struct oom_eval e = sound();
	struct oom_error err = {{0}};

	(void)state;
	e.peak[OOM_PHASE_FWD2] = exbibyte;
	assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "would need more than 1 EiB: the config or a knob gives a size that no model has"));
	assert_non_null(strstr(err.text, oom_phase_str(OOM_PHASE_FWD2)));
	e = sound();
	e.used_bytes = exbibyte;
	assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_ERR_INVALID);
	assert_int_equal(oom_sound_on_card(model, &plan, &e, &err), OOM_ERR_INVALID);
	assert_string_equal(err.text, "the GPU would need more than 1 EiB");
	for (int i = 0; i < 3; i++) {
		e = sound();
		*(i == 0 ? &e.host_pinned_bytes : i == 1 ? &e.host_pageable_bytes : &e.nvme_bytes) = exbibyte;
		assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_ERR_INVALID);
		assert_string_equal(err.text, "the host would need more than 1 EiB");
	}
}

/* A sum that went below nothing is as large as a sum can be: that is a defect, not a large model. */
static void a_negative_peak(void **state)
{
	struct oom_eval e = sound();
	struct oom_error err = {{0}};

	(void)state;
	e.peak[OOM_PHASE_FWD1] = (uint64_t)-512;
	assert_int_equal(oom_sound(model, &plan, &e, true, &err), OOM_ERR_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_sound_one, make, drop),
		cmocka_unit_test_setup_teardown(contradictions, make, drop),
		cmocka_unit_test_setup_teardown(buckets_that_were_not_asked_for, make, drop),
		cmocka_unit_test_setup_teardown(more_than_an_exbibyte, make, drop),
		cmocka_unit_test_setup_teardown(a_negative_peak, make, drop),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
