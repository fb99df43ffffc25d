/* torchtitan's mixes of FSDP with tensor and pipeline parallelism, by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "launch.h"
#include "megatron/parts.h"
#include "oomplan/plan.h"
#include "step/replay.h"

static uint64_t titan_reserved(const struct mg_flow *f)
{
	const struct oom_plan rules = oom_plan_default();
	struct oom_replay_result result = {0};
	struct oom_player player = {0};

	oom_player_begin(&player, &rules, 0);
	assert_int_equal(oom_mg_play(f, &player), OOM_OK);
	assert_int_equal(oom_player_end(&player, &result), OOM_OK);
	oom_player_release(&player);
	return result.reserved;
}

/* torchtitan's mix, by hand: 16 B per parameter over the ranks that shard (8 in pure bf16); the logits' 12 B,
 * with loss-parallel 16 B of the rank's part; with a pipeline all parameters in bf16 and fp32 gradients whole, and a
 * checkpointed layer's 2 T h / t for each pass in flight. */
static void test_titan(void **state)
{
	const char *const words[] = {"hidden", "1024", "heads", "16", "vocab", "32768", "seq", "2048",
				     "max_pos", "2048", "bias_linear", "0", "hidden_dropout", "0", "layers",
				     "8", "tp", "2", "n_gpus", "8", "recompute_granularity", "full", NULL};
	struct oom_plan p = oom_plan_default();
	struct oom_mg_rank whole, divided, pure, first;
	struct oom_megatron m = launch(words);

	(void)state;
	p.zero_stage = 3;
	p.precision = OOM_AMP_BF16;
	assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
	m.padded_vocab = m.vocab;
	assert_int_equal(oom_titan_rank(&m, &p, 0, &divided, NULL), OOM_OK);
	p.loss_parallel = 0;
	assert_int_equal(oom_titan_rank(&m, &p, 0, &whole, NULL), OOM_OK);
	assert_true(whole.peak_bytes > divided.peak_bytes);
	assert_true(rows_of(&divided, OOM_MG_ROW_TRANSIENT) == 16.0 * 2048 * 32768 / 2);
	assert_true(rows_of(&whole, OOM_MG_ROW_TRANSIENT) == 12.0 * 2048 * 32768);
	assert_int_equal(divided.optimizer_bytes, 8 * divided.params / 4);
	assert_int_equal(divided.activation_bytes, 8 * 2 * 2048 * 1024 / 2);
	p.precision = OOM_BF16;
	assert_int_equal(oom_titan_rank(&m, &p, 0, &pure, NULL), OOM_OK);
	assert_int_equal(pure.optimizer_bytes, 4 * pure.params / 4);
	m = launch(words);
	m.pp = 4;
	m.num_microbatches = 8;
	assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
	m.split = OOM_MG_SPLIT_BALANCED;
	assert_int_equal(oom_titan_rank(&m, &p, 0, &first, NULL), OOM_OK);
	/* ten with the ends, over four stages: three, of which one is the embedding; four in flight */
	assert_int_equal(first.activation_bytes, 4 * 2 * 2 * 2048 * 1024 / 2);
	/* buffers for eight micro-batches' gradients and four outputs; the second stage, three passes deep, has
	 * five inputs besides that no layer keeps */
	assert_true(rows_of(&first, OOM_MG_ROW_FIXED) == (8 + 4) * 2 * 2048 * 1024 / 2);
	assert_int_equal(oom_titan_rank(&m, &p, 1, &first, NULL), OOM_OK);
	assert_true(rows_of(&first, OOM_MG_ROW_FIXED) == (8 - 3 + 8 + 3) * 2 * 2048 * 1024 / 2);
}

/* Gathers and reductions have pools of their own: what the root's take, 4 B of reduction per element of
 * embedding and head and 2 B of gather, is on top of what the same step reserves without them. */
static void test_titan_pools(void **state)
{
	const char *const words[] = {"hidden", "1024", "heads", "16", "vocab", "32768", "seq", "2048",
				     "max_pos", "2048", "bias_linear", "0", "hidden_dropout", "0", "layers",
				     "8", "tp", "2", "n_gpus", "8", "recompute_granularity", "full", NULL};
	struct oom_plan p = oom_plan_default();
	struct oom_megatron m = launch(words);
	struct mg_flow f;
	uint64_t with;

	(void)state;
	p.zero_stage = 3;
	p.precision = OOM_AMP_BF16;
	assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
	assert_int_equal(oom_titan_flow(&m, &p, 0, &f, NULL), OOM_OK);
	assert_true(f.wrapped.root == 2 * 32768 / 2 * 1024);
	with = titan_reserved(&f);
	assert_true((double)with >= 0.97 * (double)f.rank.peak_bytes);
	f.wrapped.there = false;
	assert_true((double)with >= (double)titan_reserved(&f) + 6 * f.wrapped.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_titan),
		cmocka_unit_test(test_titan_pools),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
