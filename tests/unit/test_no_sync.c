/* FSDP between the micro-batches of a step: under no_sync gradients are whole on every GPU beside all that a later
 * micro-batch needs, FSDP1's in the type of the computation, FSDP2's in the type in which they will be reduced
 * (torch/distributed/fsdp/_runtime_utils.py _post_backward_hook, _fully_shard/_fsdp_param.py
 * to_accumulated_grad_if_needed; accelerate accelerator.py no_sync). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "priced.h"

/* Mistral 7B with four layers: q and o of 4096 x 4096, k and v of 1024 x 4096, three of 14336 x 4096 and two norms in each;
 * embeddings, head and the last norm. */
#define ELEMENTS ((uint64_t)4 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) + 2 * 32000 * 4096 + 4096)
enum { GPUS = 8, NEAR = 1 << 20 };

static uint64_t backward_of(int64_t engine, int64_t precision, int64_t accumulation, int64_t no_sync)
{
	struct oom_plan p = oom_plan_default();

	p.precision = precision;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.use_reentrant = OOM_REENTRANT_FALSE;
	p.engine = engine;
	p.zero_stage = 3;
	p.gpus = GPUS;
	p.seq_len = 256;
	p.micro_batch = 1;
	p.grad_accum = accumulation;
	p.no_sync = no_sync;
	return must(MISTRAL(4), &p).peak[OOM_PHASE_BWD2];
}

static void is_near(uint64_t got, uint64_t want)
{
	assert_in_range(got, want - NEAR, want + NEAR);
}

static uint64_t more(int64_t engine, int64_t precision)
{
	return backward_of(engine, precision, 4, 1) - backward_of(engine, precision, 4, 0);
}

/* Whole ones of two bytes in place of an eighth of them, of two bytes and of four; FSDP2 under mixed precision adds them up
 * in four. */
static void gradients_are_whole(void **state)
{
	(void)state;
	is_near(more(OOM_ENGINE_FSDP1, OOM_BF16), 2 * ELEMENTS - 2 * ELEMENTS / GPUS);
	is_near(more(OOM_ENGINE_FSDP2, OOM_BF16), 2 * ELEMENTS - 2 * ELEMENTS / GPUS);
	is_near(more(OOM_ENGINE_FSDP1, OOM_AMP_BF16), 2 * ELEMENTS - 4 * ELEMENTS / GPUS);
	is_near(more(OOM_ENGINE_FSDP2, OOM_AMP_BF16), 4 * ELEMENTS - 4 * ELEMENTS / GPUS);
}

static void one_micro_batch_is_the_last(void **state)
{
	(void)state;
	assert_int_equal(backward_of(OOM_ENGINE_FSDP1, OOM_BF16, 1, 1), backward_of(OOM_ENGINE_FSDP1, OOM_BF16, 1, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_whole),
		cmocka_unit_test(one_micro_batch_is_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
