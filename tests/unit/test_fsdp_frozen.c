/* FSDP1 with frozen layers before torch 2.1, which gathers them for the backward pass and gives none up before it is through
 * (pytorch/pytorch#101982, new in 2.1: "frozen parameters involved in gradient computation are kept as unsharded through the
 * entire backward pass"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "oomplan/generations.h"
#include "priced.h"

/* A layer of Mistral 7B in 16 bit: q and o of 4096 x 4096, k and v of 1024 x 4096, three of 14336 x 4096, two norms. */
#define LAYER ((uint64_t)2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096))
enum { LAYERS = 12 };    /* as MISTRAL(12) below */

static uint64_t backward_of(int64_t torch_minor, int64_t lora_r, int64_t zero)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.use_reentrant = OOM_REENTRANT_FALSE;
	p.engine = OOM_ENGINE_FSDP1;
	p.zero_stage = zero;
	p.gpus = 8;
	p.seq_len = 64;
	p.micro_batch = 1;
	p.lora_r = lora_r;
	if (lora_r)
		snprintf(p.lora_targets, sizeof(p.lora_targets), "all-linear");
	p.torch = OOM_VERSION(2, torch_minor);
	oom_plan_resolve(&p);
	return must(MISTRAL(12), &p).peak[OOM_PHASE_BWD2];
}

/* Few tokens: with 2.1 the peak is where the root and one or two layers are whole, before it where all are. */
static void all_layers_are_whole_at_the_end(void **state)
{
	const uint64_t kept = backward_of(0, 8, 3), given = backward_of(1, 8, 3);

	(void)state;
	assert_true(kept - given >= (LAYERS - 2) * LAYER);
	assert_true(kept - given <= LAYERS * LAYER);
}

/* What is trained has the hook in any version. */
static void trained_layers_are_given_up(void **state)
{
	(void)state;
	assert_int_equal(backward_of(0, 0, 3), backward_of(1, 0, 3));
}

/* Whole between the passes in any version (SHARD_GRAD_OP). */
static void what_is_never_divided_is_no_more(void **state)
{
	(void)state;
	assert_int_equal(backward_of(0, 8, 2), backward_of(1, 8, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_layers_are_whole_at_the_end),
		cmocka_unit_test(trained_layers_are_given_up),
		cmocka_unit_test(what_is_never_divided_is_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
