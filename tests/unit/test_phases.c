/* Phases read from schedules written by hand, without a tape: a holding is there from one moment of the step to another, and
 * every phase peaks at what is there together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/arch.h"
#include "step/phases.h"

static struct oom_schedule none(void)
{
	struct oom_schedule s;

	memset(&s, 0, sizeof(s));
	s.ranks = (struct oom_ranks){.n = 1, .pad = 1};
	s.chain.whole = true;
	return s;
}

static void peaks_are(const struct oom_schedule *s, const char *name, const uint64_t want[OOM_PHASES])
{
	struct oom_alive alive[OOM_PHASES];
	struct oom_eval bytes, with;

	memset(&bytes, 0, sizeof(bytes));
	memset(&with, 0, sizeof(with));
	oom_read_phases(s, NULL, NULL, &bytes, NULL);
	oom_read_phases(s, NULL, NULL, &with, alive);
	for (int i = 0; i < OOM_PHASE_ROLLOUTS; i++) {
		uint64_t sum = 0;

		if (bytes.peak[i] != want[i])
			fail_msg("%s, %s: %llu, expected %llu", name, oom_phase_str((enum oom_phase)i),
				 (unsigned long long)bytes.peak[i], (unsigned long long)want[i]);
		/* who is alive is counted beside, and is the same */
		assert_int_equal(with.peak[i], bytes.peak[i]);
		assert_int_equal(with.end[i], bytes.end[i]);
		for (int b = 0; b < OOM_BUCKETS; b++)
			sum += alive[i].bucket[b];
		assert_int_equal(sum, want[i]);
	}
}

/* A single holding of 64 bytes between two moments, and the phases it is in: load, forward, backward and step, the same
 * of the second step, evaluation.  A holding that ends at OOM_AT_STEP_END is there while the step runs. */
static void one_holding(void **state)
{
	static const struct {
		enum oom_moment_of_step from, until;
		bool training;
		const char *phases;     /* a letter each, '.' where it is not */
	} cases[] = {
		{OOM_AT_LOAD, OOM_AT_NEVER, false, "lfbofboe"},
		{OOM_AT_LOAD, OOM_AT_NEVER, true, "lfbofboe"},          /* it was there before the evaluation */
		{OOM_AT_START, OOM_AT_NEVER, false, ".fbofboe"},
		{OOM_AT_FORWARD, OOM_AT_NEVER, false, ".fbofboe"},
		{OOM_AT_FORWARD, OOM_AT_NEVER, true, ".fbofbo."},
		{OOM_AT_FORWARD, OOM_AT_BACKWARD, false, ".f..f..e"},
		{OOM_AT_FORWARD, OOM_AT_BACKWARD, true, ".f..f..."},
		{OOM_AT_FORWARD, OOM_AT_STEP, true, ".fb.fb.."},
		{OOM_AT_OUTPUT, OOM_AT_BACKWARD, false, ".f..f..e"},
		{OOM_AT_OUTPUT, OOM_AT_STEP_END, true, ".fbofbo."},
		{OOM_AT_BACKWARD, OOM_AT_STEP, false, "..b..b.."},
		{OOM_AT_BACKWARD, OOM_AT_STEP_END, false, "..bo.bo."},
		{OOM_AT_BACKWARD, OOM_AT_NEVER, false, "..bofbo."},     /* found by the second forward */
		{OOM_AT_BACKWARD, OOM_AT_FORWARD, false, "..bo.bo."},
		{OOM_AT_STEP, OOM_AT_NEVER, false, "...ofbo."},         /* optimizer states */
		{OOM_AT_STEP, OOM_AT_STEP_END, false, "...o..o."},
		{OOM_AT_STEP, OOM_AT_BACKWARD, false, "...of.o."},
	};
	static const enum oom_phase order[] = {OOM_PHASE_LOAD, OOM_PHASE_FWD1, OOM_PHASE_BWD1, OOM_PHASE_OPT1,
					       OOM_PHASE_FWD2, OOM_PHASE_BWD2, OOM_PHASE_OPT2, OOM_PHASE_EVAL};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_schedule s = none();
		uint64_t want[OOM_PHASES] = {0};
		char name[60];

		oom_add_holding(&s, "x", OOM_BUCKET_COMM, 64, cases[i].from, cases[i].until)->training = cases[i].training;
		for (size_t k = 0; k < 8; k++)
			want[order[k]] = cases[i].phases[k] == '.' ? 0 : 64;
		snprintf(name, sizeof(name), "from %d until %d", cases[i].from, cases[i].until);
		peaks_are(&s, name, want);
	}
}

/* What is not on the card is in no phase. */
static void other_places(void **state)
{
	static const uint64_t nothing[OOM_PHASES];

	(void)state;
	for (int place = OOM_IN_PINNED; place < OOM_PLACES; place++) {
		struct oom_schedule s = none();

		oom_add_holding(&s, "x", OOM_BUCKET_OPT, 64, OOM_AT_LOAD, OOM_AT_NEVER)->place = (uint8_t)place;
		peaks_are(&s, "elsewhere", nothing);
		assert_int_equal(oom_held_in(&s, (enum oom_place)place), 64);
		assert_int_equal(oom_held_in(&s, OOM_ON_GPU), 0);
	}
}

/* Weights 100, buffers 10, inputs 5, states 200 from the first step on, 7 of temporaries in the first step and 3 later. */
static void the_plain_step(void **state)
{
	const struct oom_state_sums states = {.rounded = 200, .temps = {7, 3}};
	const struct oom_model_sums in = {.params = 100, .state = &states};
	struct oom_schedule s;
	const uint64_t want[OOM_PHASES] = {
		[OOM_PHASE_LOAD] = 110, [OOM_PHASE_FWD1] = 115, [OOM_PHASE_BWD1] = 115, [OOM_PHASE_OPT1] = 115 + 200 + 7,
		[OOM_PHASE_FWD2] = 315, [OOM_PHASE_BWD2] = 315, [OOM_PHASE_OPT2] = 315 + 3, [OOM_PHASE_EVAL] = 115};
	struct oom_eval e;

	(void)state;
	oom_schedule_init(&s, &in, 10, 5);
	assert_int_equal(s.n_hold, OOM_HOLD_KNOWN);
	peaks_are(&s, "plain", want);
	memset(&e, 0, sizeof(e));
	oom_read_phases(&s, NULL, NULL, &e, NULL);
	assert_int_equal(e.overall_peak, 322);
	assert_int_equal(e.peak_phase, OOM_PHASE_OPT1);
	assert_int_equal(e.end[OOM_PHASE_LOAD], 110);
	assert_int_equal(e.end[OOM_PHASE_OPT1], 315);   /* temporaries are through */
	assert_int_equal(oom_held_in(&s, OOM_ON_GPU), 315);
	assert_int_equal(oom_buffers_of(&s), 0);        /* of communication, not the model's */
}

/* Of equal peaks the first phase is named; an evaluation's is none of the six. */
static void the_peak_phase(void **state)
{
	struct oom_schedule s = none();
	struct oom_eval e;

	(void)state;
	oom_add_holding(&s, "all along", OOM_BUCKET_PARAMS, 64, OOM_AT_LOAD, OOM_AT_NEVER);
	memset(&e, 0, sizeof(e));
	oom_read_phases(&s, NULL, NULL, &e, NULL);
	assert_int_equal(e.peak_phase, OOM_PHASE_FWD1);
	oom_add_holding(&s, "steps", OOM_BUCKET_OPT, 1, OOM_AT_STEP, OOM_AT_STEP_END);
	oom_read_phases(&s, NULL, NULL, &e, NULL);
	assert_int_equal(e.peak_phase, OOM_PHASE_OPT1);
	assert_int_equal(e.overall_peak, 65);
}

/* ---- logits that pile up over an evaluation ---- */

/* n batches of 10 bytes each; the pass itself peaks at 50 above nothing.  While batch n runs, n - 1 lie there and, from the
 * third on, the one before under its own name; then the pile is copied while it and the newest are there: 2 n. */
static void logits_pile_up(void **state)
{
	static const struct {
		uint64_t batches, peak;
	} cases[] = {
		{1, 50}, {2, 60}, {3, 50 + 20 + 10}, {4, 50 + 30 + 10}, {100, 2 * 1000},
		{6, 120},       /* 50 + 50 + 10 = 110, the copy takes 2 x 60 */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_alive alive[OOM_PHASES];
		struct oom_schedule s = none();
		struct oom_eval e;

		memset(&e, 0, sizeof(e));
		memset(alive, 0, sizeof(alive));
		e.peak[OOM_PHASE_EVAL] = 50;
		alive[OOM_PHASE_EVAL].bucket[OOM_BUCKET_TEMP] = 50;
		oom_pile_up(&s, &e, cases[i].batches, 10, alive);
		assert_int_equal(e.peak[OOM_PHASE_EVAL], cases[i].peak);
		assert_int_equal(alive[OOM_PHASE_EVAL].bucket[OOM_BUCKET_LOGITS] +
					 alive[OOM_PHASE_EVAL].bucket[OOM_BUCKET_TEMP],
				 cases[i].peak);
	}
}

/* After training steps optimizer states lie beside it; an evaluation may then be the run's peak. */
static void states_lie_beside_the_pile(void **state)
{
	struct oom_schedule s = none();
	struct oom_eval e;

	(void)state;
	oom_add_holding(&s, "states", OOM_BUCKET_OPT, 1000, OOM_AT_STEP, OOM_AT_NEVER);
	memset(&e, 0, sizeof(e));
	e.peak[OOM_PHASE_EVAL] = 50;
	e.overall_peak = 1049;
	e.peak_phase = OOM_PHASE_OPT1;
	oom_pile_up(&s, &e, 1, 0, NULL);
	assert_int_equal(e.peak[OOM_PHASE_EVAL], 1050);
	assert_int_equal(e.overall_peak, 1050);
	assert_int_equal(e.peak_phase, OOM_PHASE_EVAL);
	/* states in host memory do not */
	s.hold[0].place = OOM_IN_PINNED;
	e.peak[OOM_PHASE_EVAL] = 50;
	e.overall_peak = 1049;
	oom_pile_up(&s, &e, 1, 0, NULL);
	assert_int_equal(e.overall_peak, 1049);
}

/* A million batches of a petabyte are no small number: the sum is cut, it does not wrap. */
static void piles_do_not_wrap(void **state)
{
	struct oom_schedule s = none();
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	oom_pile_up(&s, &e, UINT64_MAX, (uint64_t)1 << 50, NULL);
	assert_true(e.overall_peak >= (uint64_t)1 << 60);
}

/* Per sequence, token or target token, in two bytes where the model computes in 16 bit without autocast, else in four
 * (accelerate's convert_to_fp32 after autocast). */
static void logits_of_an_evaluation(void **state)
{
	struct oom_arch *a = test_calloc(1, sizeof(*a));
	struct oom_plan p = oom_plan_default();

	(void)state;
	a->vocab = 1000;
	a->config_labels = 3;
	p.precision = OOM_BF16;
	a->default_task = OOM_TASK_CAUSAL_LM;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 50 * 1000 * 2);
	p.precision = OOM_AMP_BF16;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 50 * 1000 * 4);
	p.precision = OOM_FP32;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 50 * 1000 * 4);
	a->default_task = OOM_TASK_SEQ2SEQ;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 7 * 1000 * 4);
	a->default_task = OOM_TASK_SEQ_CLS;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 3 * 4);
	a->default_task = OOM_TASK_IMAGE_CLS;
	p.num_labels = 10;
	assert_int_equal(oom_eval_logits(a, &p, 2, 50, 7), 2 * 10 * 4);
	test_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_holding),
		cmocka_unit_test(other_places),
		cmocka_unit_test(the_plain_step),
		cmocka_unit_test(the_peak_phase),
		cmocka_unit_test(logits_pile_up),
		cmocka_unit_test(states_lie_beside_the_pile),
		cmocka_unit_test(piles_do_not_wrap),
		cmocka_unit_test(logits_of_an_evaluation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
