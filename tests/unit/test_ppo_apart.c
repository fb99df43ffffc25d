/* OpenRLHF's train_ppo (openrlhf/cli/train_ppo.py): actor, critic, reference and reward model stand on every card, and only
 * actor and critic have states; their updates follow each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "priced.h"

static struct oom_eval priced(int64_t objective)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.seq_len = 256;
	p.micro_batch = 1;
	p.objective = objective;
	return must(MISTRAL(4), &p);
}

/* Embeddings and head are 32000 x 4096 in 16 bit; the critic and the reward model have a row of 4096 in the head's place. */
static void four_models_are_loaded(void **state)
{
	const uint64_t head = (uint64_t)2 * 32000 * 4096, one = priced(OOM_METHOD_SFT).peak[OOM_PHASE_LOAD],
		       four = priced(OOM_METHOD_PPO_APART).peak[OOM_PHASE_LOAD];

	(void)state;
	assert_true(four <= 4 * one - 2 * head + (1 << 20));
	assert_true(four >= 4 * one - 2 * head - (1 << 20));
}

/* No activations of the critic's stand beside the actor's: less than where one wrapper calls both (TRL's PPOTrainer). */
static void updates_follow_each_other(void **state)
{
	(void)state;
	assert_true(priced(OOM_METHOD_PPO_APART).peak[OOM_PHASE_BWD2] < priced(OOM_METHOD_PPO).peak[OOM_PHASE_BWD2]);
	assert_true(priced(OOM_METHOD_PPO_APART).peak[OOM_PHASE_BWD2] > priced(OOM_METHOD_PPO_APART).peak[OOM_PHASE_LOAD]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_models_are_loaded),
		cmocka_unit_test(updates_follow_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
