/* Holdings of a schedule: those that every step begins with, those that are added, and sums over them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "step/schedule.h"

/* 1,000 parameters in fp32 under AdamW: two moments of 4 bytes each; temporaries of the first and of later steps. */
static const struct oom_state_sums state_sums = {.bytes = 8000, .rounded = 8192, .temps = {4096, 8192}};
static const struct oom_model_sums model = {.total = 1000, .trainable = 1000, .params = 4096, .grads = 4096,
					    .state = &state_sums, .master_state = &state_sums};

/* What lives from when until when: weights and buffers are loaded and stay; the batch comes to the card before the
 * step; a partition of gradients lives from the backward pass to zero_grad; the optimizer makes its states in its
 * first step (torch/optim/adamw.py _init_group) and keeps them. */
static void what_every_step_begins_with(void **state)
{
	static const struct {
		uint64_t bytes;
		enum oom_bucket bucket;
		enum oom_moment_of_step from, until;
		enum oom_pieces pieces;
	} want[OOM_HOLD_KNOWN] = {
		[OOM_HOLD_WEIGHTS] = {4096, OOM_BUCKET_PARAMS, OOM_AT_LOAD, OOM_AT_NEVER, OOM_PER_PARAM},
		[OOM_HOLD_BUFFERS] = {512, OOM_BUCKET_BUFFERS, OOM_AT_LOAD, OOM_AT_NEVER, OOM_IN_ONE},
		[OOM_HOLD_INPUTS] = {1536, OOM_BUCKET_INPUTS, OOM_AT_START, OOM_AT_NEVER, OOM_PER_INPUT},
		[OOM_HOLD_GRADS] = {0, OOM_BUCKET_GRADS, OOM_AT_BACKWARD, OOM_AT_STEP_END, OOM_IN_ONE},
		[OOM_HOLD_MASTER] = {0, OOM_BUCKET_OPT, OOM_AT_START, OOM_AT_NEVER, OOM_IN_ONE},
		[OOM_HOLD_STATE] = {8192, OOM_BUCKET_OPT, OOM_AT_STEP, OOM_AT_NEVER, OOM_PER_STATE},
	};
	struct oom_schedule s;

	(void)state;
	memset(&s, 0xff, sizeof(s));
	oom_schedule_init(&s, &model, 512, 1536);
	assert_int_equal(s.n_hold, OOM_HOLD_KNOWN);
	for (size_t i = 0; i < s.n_hold; i++) {
		assert_int_equal(s.hold[i].bytes, want[i].bytes);
		assert_int_equal(s.hold[i].bucket, want[i].bucket);
		assert_int_equal(s.hold[i].from, want[i].from);
		assert_int_equal(s.hold[i].until, want[i].until);
		assert_int_equal(s.hold[i].pieces, want[i].pieces);
		assert_int_equal(s.hold[i].place, OOM_ON_GPU);
		assert_false(s.hold[i].training);
	}
	assert_int_equal(s.temps[0], 4096);
	assert_int_equal(s.temps[1], 8192);
	/* one rank that runs the whole model, whatever lay there before */
	assert_int_equal(s.ranks.n, 1);
	assert_true(s.ranks.pad == 1);
	assert_true(s.chain.whole);
	assert_int_equal(s.chain_grads, 0);
	assert_int_equal(s.mean.wider, 0);
	assert_int_equal(s.mean.temps, 0);
	assert_false(s.accumulates || s.master || s.divided || s.grads_linger || s.grads_stay || s.waits[0] || s.waits[1]);
}

/* 4,096 + 512 + 1,536 + 8,192 = 14,336 bytes; what is added counts where it is put. */
static void sums_by_place(void **state)
{
	struct oom_schedule s;
	struct oom_holding *bucket, *staging;

	(void)state;
	oom_schedule_init(&s, &model, 512, 1536);
	assert_int_equal(oom_held_in(&s, OOM_ON_GPU), 14336);
	for (int place = OOM_IN_PINNED; place < OOM_PLACES; place++)
		assert_int_equal(oom_held_in(&s, (enum oom_place)place), 0);
	bucket = oom_add_holding(&s, "bucket", OOM_BUCKET_COMM, 1024, OOM_AT_START, OOM_AT_NEVER);
	assert_ptr_equal(bucket, &s.hold[OOM_HOLD_KNOWN]);
	assert_string_equal(bucket->name, "bucket");
	assert_int_equal(bucket->pieces, OOM_IN_ONE);
	assert_int_equal(oom_held_in(&s, OOM_ON_GPU), 15360);
	/* the optimizer's states to pinned memory, beside a staging buffer of 2,048 there */
	s.hold[OOM_HOLD_STATE].place = OOM_IN_PINNED;
	staging = oom_add_holding(&s, "staging", OOM_BUCKET_COMM, 2048, OOM_AT_STEP, OOM_AT_STEP_END);
	staging->place = OOM_IN_PINNED;
	assert_int_equal(oom_held_in(&s, OOM_ON_GPU), 15360 - 8192);
	assert_int_equal(oom_held_in(&s, OOM_IN_PINNED), 8192 + 2048);
	s.hold[OOM_HOLD_WEIGHTS].place = OOM_ON_NVME;
	assert_int_equal(oom_held_in(&s, OOM_ON_NVME), 4096);
	assert_int_equal(oom_held_in(&s, OOM_IN_PAGEABLE), 0);
	assert_int_equal(s.n_hold, OOM_HOLD_KNOWN + 2);
}

/* Of communication on the card alone: not weights, and not what is staged on the host. */
static void sums_of_communication(void **state)
{
	struct oom_schedule s;

	(void)state;
	oom_schedule_init(&s, &model, 512, 1536);
	assert_int_equal(oom_buffers_of(&s), 0);
	oom_add_holding(&s, "a", OOM_BUCKET_COMM, 1024, OOM_AT_START, OOM_AT_NEVER);
	oom_add_holding(&s, "b", OOM_BUCKET_COMM, 2048, OOM_AT_BACKWARD, OOM_AT_STEP)->training = true;
	oom_add_holding(&s, "c", OOM_BUCKET_COMM, 4096, OOM_AT_START, OOM_AT_NEVER)->place = OOM_IN_PAGEABLE;
	oom_add_holding(&s, "d", OOM_BUCKET_TEMP, 512, OOM_AT_START, OOM_AT_NEVER);
	assert_int_equal(oom_buffers_of(&s), 1024 + 2048);
}

/* What was set before is gone: in a slot that is used again, too. */
static void slots_that_are_used_again(void **state)
{
	struct oom_schedule s;
	struct oom_holding *h;

	(void)state;
	oom_schedule_init(&s, &model, 512, 1536);
	h = oom_add_holding(&s, "old", OOM_BUCKET_COMM, 1024, OOM_AT_START, OOM_AT_NEVER);
	h->place = OOM_ON_NVME;
	h->pieces = OOM_PER_UNIT;
	h->training = true;
	s.divided = s.accumulates = true;
	s.ranks.n = 8;
	oom_schedule_init(&s, &model, 0, 0);
	assert_int_equal(s.n_hold, OOM_HOLD_KNOWN);
	assert_int_equal(s.ranks.n, 1);
	assert_false(s.divided || s.accumulates);
	h = oom_add_holding(&s, "new", OOM_BUCKET_TEMP, 512, OOM_AT_OUTPUT, OOM_AT_BACKWARD);
	assert_int_equal(h->place, OOM_ON_GPU);
	assert_int_equal(h->pieces, OOM_IN_ONE);
	assert_false(h->training);
	assert_int_equal(h->from, OOM_AT_OUTPUT);
	assert_int_equal(h->until, OOM_AT_BACKWARD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_every_step_begins_with),
		cmocka_unit_test(sums_by_place),
		cmocka_unit_test(sums_of_communication),
		cmocka_unit_test(slots_that_are_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
