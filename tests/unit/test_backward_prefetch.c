/* When FSDP1 gathers a unit for its backward pass: which tensors stand beside which, as torch/distributed/fsdp/_runtime_utils.py
 * (2.14) orders them: _pre_backward_hook prefetches before a unit's derivatives run (BACKWARD_PRE), _post_backward_reshard
 * when its parameters are gone and before its gradient is reduced (BACKWARD_POST). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "priced.h"

/* A layer of Mistral 7B in 16 bit: q and o of 4096 x 4096, k and v of 1024 x 4096, three of 14336 x 4096, two norms. */
enum { LAYER = 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) };

static struct oom_plan plan_of(int64_t when, int64_t micro_batch)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.use_reentrant = OOM_REENTRANT_FALSE;
	p.engine = OOM_ENGINE_FSDP1;
	p.zero_stage = 3;
	p.gpus = 8;
	p.seq_len = 4096;
	p.micro_batch = micro_batch;
	p.backward_prefetch = when;
	return p;
}

static uint64_t backward_of(const struct oom_plan *p)
{
	return must(MISTRAL(12), p).peak[OOM_PHASE_BWD2];
}

/* Logits' gradient makes the peak: the root has prefetched the last layer before, or nobody has. */
static void the_root_prefetches_the_last_layer(void **state)
{
	const struct oom_plan pre = plan_of(OOM_PREFETCH_PRE, 4), post = plan_of(OOM_PREFETCH_POST, 4),
			      none = plan_of(OOM_PREFETCH_NONE, 4);

	(void)state;
	assert_int_equal(backward_of(&pre) - backward_of(&none), LAYER);
	assert_int_equal(backward_of(&post), backward_of(&none));
}

/* A layer makes the peak (no logits, few tokens).  Ahead: both layers stand whole beside the joined gradient of one.  Behind:
 * the gradient and the next layer, and then the rank's part of the gradient; not at all: that layer's own parameters
 * stand in the next one's place, until the part is made. */
static void a_layer_beside_the_next(void **state)
{
	struct oom_plan p[3];
	uint64_t peak[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		p[i] = plan_of(i, 1);
		p[i].seq_len = 64;
		p[i].fused_ce = OOM_LOSS_FUSED;
		p[i].grad_accum = 1;
		peak[i] = backward_of(&p[i]);
	}
	assert_true(peak[OOM_PREFETCH_PRE] > peak[OOM_PREFETCH_POST]);
	assert_true(peak[OOM_PREFETCH_POST] >= peak[OOM_PREFETCH_NONE]);
}

/* Under reentrant checkpointing no unit behind has run again yet: nothing can be asked for. */
static void reentrant_checkpoints_prefetch_nothing(void **state)
{
	struct oom_plan pre = plan_of(OOM_PREFETCH_PRE, 4), none = plan_of(OOM_PREFETCH_NONE, 4);

	(void)state;
	pre.use_reentrant = none.use_reentrant = OOM_REENTRANT_TRUE;
	assert_int_equal(backward_of(&pre), backward_of(&none));
}

/* What is never given up (SHARD_GRAD_OP) is never gathered again. */
static void whole_parameters_need_no_gathering(void **state)
{
	struct oom_plan pre = plan_of(OOM_PREFETCH_PRE, 4), none = plan_of(OOM_PREFETCH_NONE, 4);

	(void)state;
	pre.zero_stage = none.zero_stage = 2;
	assert_int_equal(backward_of(&pre), backward_of(&none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_root_prefetches_the_last_layer),
		cmocka_unit_test(a_layer_beside_the_next),
		cmocka_unit_test(reentrant_checkpoints_prefetch_nothing),
		cmocka_unit_test(whole_parameters_need_no_gathering),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
