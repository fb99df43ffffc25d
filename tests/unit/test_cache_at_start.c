/* What loading a model leaves in the allocator's cache, and who empties it before the first step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "knobs.h"
#include "priced.h"

/* The first step's own cache is small: short sequences of one sample, a step without states. */
#define FOUR_BIT "precision=bf16 attn=sdpa grad-ckpt=full optimizer=sgd lora-r=8 lora-targets=q_proj micro-batch=1 seq-len=64 qlora=true "
#define SHARDED "precision=amp-bf16 attn=sdpa grad-ckpt=full optimizer=sgd micro-batch=1 seq-len=64 engine=fsdp1 gpus=8 zero=3 "

static uint64_t reserved(const char *knobs)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_eval e;

	assert_non_null(ev);
	set(&p, knobs);
	if (oom_keys_parse(&keys, MISTRAL(2), strlen(MISTRAL(2)), "config.json", &err) || oom_model_new(&m, &keys, &err) ||
	    oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	assert_true(e.reserved_replayed);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e.reserved_bytes;
}

/* prepare_model_for_kbit_training makes fp32 of embeddings and head, 32,000 x 4,096 elements each (peft/utils/other.py): the 16-bit
 * ones lay in segments of their own, which nothing of so short a step needs. */
static void what_was_cast_stays(void **state)
{
	const uint64_t own = reserved(FOUR_BIT "kbit-prepare=true quantised-load=host"),
		       emptied = reserved(FOUR_BIT "kbit-prepare=true quantised-load=host empty-cache=true");

	(void)state;
	/* the peak of both is when the second is cast, but for what is used later */
	assert_true(emptied <= own);
	assert_true(own >= reserved(FOUR_BIT "kbit-prepare=false quantised-load=host"));
	/* the Trainer empties it (trainer.py _inner_training_loop, accelerator.free_memory()) */
	assert_int_equal(reserved(FOUR_BIT "kbit-prepare=true quantised-load=host loop=trainer empty-cache=true"),
			 reserved(FOUR_BIT "kbit-prepare=true quantised-load=host loop=trainer"));
	/* transformers 5 takes a segment for all of it first (modeling_utils.py caching_allocator_warmup) */
	assert_int_not_equal(reserved(FOUR_BIT "kbit-prepare=true"), own);
}

/* FSDP1 divides the model after the Trainer's emptying, and the flat parameter that it joined stays. */
static void what_was_joined_stays(void **state)
{
	const uint64_t kept = reserved(SHARDED "loop=trainer"), emptied = reserved(SHARDED "loop=trainer empty-cache=true");

	(void)state;
	assert_true(emptied < kept);
	assert_int_equal(reserved(SHARDED "loop=trainer empty-cache=false"), kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_cast_stays),
		cmocka_unit_test(what_was_joined_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
