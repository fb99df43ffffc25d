/* The ladder: what its rungs save, and what they leave as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/ladder.h"
#include "oomplan/model.h"
#include "opened_model.h"

/* SDPA removes the score matrices, checkpointing all but the block inputs: differences of two
 * evaluations. */
static void rungs_save_what_they_should(void **state)
{
	struct oom_plan p = oom_plan_default(), q;
	struct fixture f;
	const uint64_t b = 2, s = 1024, h = 2048, heads = 32, layers = 16;

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	p.precision = OOM_BF16;
	p.micro_batch = (int64_t)b;
	p.seq_len = (int64_t)s;
	p.attn = OOM_ATTN_EAGER;
	q = p;
	q.attn = OOM_ATTN_SDPA;
	/* per layer: fp32 softmax and its bf16 copy, 6 bytes a score, are gone */
	assert_true(price(&f, &p).saved_bytes - price(&f, &q).saved_bytes >
		    layers * 6 * b * heads * s * s);
	p = q;
	q.grad_ckpt = OOM_CKPT_FULL;
	/* what is left of the layers: one bf16 input each; the tail and the logits stay */
	assert_true(price(&f, &q).saved_bytes <
		    layers * 2 * b * s * h + 4 * b * s * 128256 + 16 * b * s * h);
	assert_true(price(&f, &q).saved_bytes < price(&f, &p).saved_bytes / 2);
	close_model(&f);
}

static void ladder_keeps_the_effective_batch(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_ladder l;
	struct fixture f;

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	p.micro_batch = 12;
	for (uint64_t gib = 4; gib <= 96; gib += 4) {
		assert_int_equal(oom_ladder_climb(f.ev, f.model, &p, NULL, gib << 30, 0, &l, &err),
				 OOM_OK);
		assert_int_equal(l.plan.micro_batch * l.plan.grad_accum, 12);
		/* science is never taken silently */
		assert_int_equal(l.plan.lora_r, 0);
		assert_int_equal(l.plan.seq_len, p.seq_len);
		if (l.fits)
			assert_true(l.eval.used_bytes <= oom_budget(gib << 30, &l.plan));
	}
	close_model(&f);
}

/* In the order of their cost; the playbook's numbers, each once. */
static void rungs_are_complete(void **state)
{
	int seen = 0;

	(void)state;
	for (int i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at((size_t)i);

		assert_in_range(r->number, 1, OOM_RUNGS);
		seen |= 1 << r->number;
		assert_true(i == 0 || oom_rung_at((size_t)i - 1)->cls <= r->cls ||
			    oom_rung_at((size_t)i - 1)->allow || r->cls == OOM_EXACT);
		assert_true(*r->name && *r->cost && *r->setting && *r->source);
		assert_true((r->cls == OOM_SCIENCE) == (r->allow != 0));
	}
	assert_int_equal(seen, 0x7fe);
	assert_null(oom_rung_at(OOM_RUNGS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rungs_save_what_they_should),
		cmocka_unit_test(ladder_keeps_the_effective_batch),
		cmocka_unit_test(rungs_are_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
