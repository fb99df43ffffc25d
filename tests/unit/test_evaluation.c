/* What is said of a run's evaluations: one batch, one figure, and what makes room for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "knobs.h"
#include "oomplan/answer.h"
#include "priced.h"

struct fixture {
	struct oom_keys keys;
	struct oom_question q;
	struct oom_model *model;
	struct oom_evaluator *ev;
};

static void open_question(struct fixture *f, const char *model, uint64_t gib)
{
	struct oom_error err = {{0}};

	memset(f, 0, sizeof(*f));
	assert_int_equal(oom_keys_read_model(&f->keys, model, &err), OOM_OK);
	assert_int_equal(oom_model_new(&f->model, &f->keys, &err), OOM_OK);
	f->ev = oom_evaluator_new();
	f->q = oom_question_default();
	f->q.model = f->model;
	f->q.capacity_bytes = gib << 30;
	f->q.plan.precision = OOM_AMP_BF16;
	f->q.plan.micro_batch = 1;
	f->q.plan.seq_len = 512;
}

static void close_question(struct fixture *f)
{
	oom_evaluator_free(f->ev);
	oom_model_free(f->model);
	oom_keys_release(&f->keys);
}

static struct oom_judged judged(const struct fixture *f)
{
	struct oom_error err = {{0}};
	struct oom_judged j;

	if (oom_answer_as_asked(f->ev, &f->q, &j, &err))
		fail_msg("%s", err.text);
	return j;
}

/* The phase is a pass of its own batch, as measured before the first step (eval_fwd_peak of the measured rows), above
 * the optimizer's states, which are there between steps. */
static void test_own_batch(void **state)
{
	struct fixture f;
	struct oom_judged j, other;
	struct oom_anatomy a;
	struct oom_plan alone;
	struct oom_eval e;
	uint64_t sum = 0;

	(void)state;
	open_question(&f, "SmolLM2-135M", 24);
	f.q.plan.eval_batch = 5;
	j = judged(&f);
	f.q.plan.micro_batch = 2;
	other = judged(&f);
	assert_int_equal(j.eval.peak[OOM_PHASE_EVAL], other.eval.peak[OOM_PHASE_EVAL]);
	assert_true(j.eval.peak[OOM_PHASE_BWD2] < other.eval.peak[OOM_PHASE_BWD2]);
	assert_int_equal(j.eval.end[OOM_PHASE_EVAL], other.eval.end[OOM_PHASE_EVAL]);
	alone = j.plan;
	alone.micro_batch = 5;
	assert_int_equal(oom_evaluate(f.ev, f.model, &alone, OOM_EVAL_FAST, &e, NULL), OOM_OK);
	assert_int_equal(j.eval.peak[OOM_PHASE_EVAL],
			 e.peak[OOM_PHASE_EVAL] + e.end[OOM_PHASE_OPT2] - e.end[OOM_PHASE_LOAD]);
	/* who is alive adds up to it */
	assert_int_equal(oom_answer_anatomy(f.ev, f.model, &j, &a, NULL), OOM_OK);
	for (int b = 0; b < OOM_BUCKETS; b++)
		sum += a.bucket[OOM_PHASE_EVAL][b];
	assert_int_equal(sum, j.eval.peak[OOM_PHASE_EVAL]);
	assert_true(a.bucket[OOM_PHASE_EVAL][OOM_BUCKET_OPT] >= j.eval.opt_bytes);
	/* a run that never evaluates has no such phase */
	f.q.plan.evaluates = OOM_EVALUATES_NO;
	j = judged(&f);
	assert_false(oom_phase_occurs(&j.eval, OOM_PHASE_EVAL));
	assert_true(oom_phase_occurs(&other.eval, OOM_PHASE_EVAL));
	close_question(&f);
}

/* It leaves what it found, which is of its own batch too: 64 images of a step are more than an evaluation of one takes
 * altogether. */
static void test_a_small_one(void **state)
{
	struct fixture f;
	struct oom_judged j;

	(void)state;
	open_question(&f, "ViT-B-16", 24);
	f.q.plan.micro_batch = 64;
	f.q.plan.eval_batch = 1;
	f.q.plan.lora_r = 1;
	j = judged(&f);
	assert_true(j.eval.end[OOM_PHASE_EVAL] <= j.eval.peak[OOM_PHASE_EVAL]);
	assert_true(j.eval.end[OOM_PHASE_EVAL] < j.eval.end[OOM_PHASE_OPT2]);
	close_question(&f);
}

/* Logits that pile up: what they use is one figure, wherever it is said. */
static void test_pile_is_one_figure(void **state)
{
	struct fixture f;

	(void)state;
	open_question(&f, "SmolLM2-135M", 80);
	for (f.q.plan.eval_accumulation = 4; f.q.plan.eval_accumulation <= 64; f.q.plan.eval_accumulation *= 4) {
		const struct oom_judged j = judged(&f);

		if (j.eval.peak_phase == OOM_PHASE_EVAL)
			assert_int_equal(j.eval.used_bytes, j.eval_used_bytes);
		assert_int_equal(j.fits_gpu, j.eval.used_bytes <= oom_budget(f.q.capacity_bytes, &j.plan));
	}
	close_question(&f);
}

/* Answers that an evaluation generates count as what it keeps does, whether its batch is the step's or not. */
static void test_answers_count_in_either_batch(void **state)
{
	struct oom_eval e[2];
	struct fixture f;

	(void)state;
	open_question(&f, "T5-base", 80);
	f.q.plan.eval_accumulation = f.q.plan.eval_generates = 1;
	f.q.plan.seq_len = 32;
	f.q.plan.eval_beams = 16;
	f.q.plan.eval_new_tokens = 8192;
	f.q.plan.eval_batch = 8;
	for (int i = 0; i < 2; i++) {
		f.q.plan.micro_batch = 7 + i;
		assert_int_equal(oom_evaluate(f.ev, f.model, &f.q.plan, OOM_EVAL_FAST, &e[i], NULL), OOM_OK);
		assert_int_equal(e[i].peak_phase, OOM_PHASE_EVAL);
		assert_int_equal(e[i].overall_peak, e[i].peak[OOM_PHASE_EVAL]);
	}
	assert_int_equal(e[0].overall_peak, e[1].overall_peak);
	close_question(&f);
}

/* Where the pile alone has no room, a smaller batch of the evaluation is the whole plan; one that is larger by half
 * has no room. */
static void test_pile_is_cured_by_its_batch(void **state)
{
	struct oom_error err = {{0}};
	struct oom_answer answer;
	struct oom_judged j;
	struct fixture f;
	char options[200];

	(void)state;
	open_question(&f, "SmolLM2-135M", 24);
	f.q.plan.eval_batch = 16;
	f.q.plan.eval_accumulation = 40;
	assert_int_equal(oom_answer(f.ev, &f.q, &answer, &err), OOM_OK);
	assert_false(answer.as_asked.fits_gpu);
	assert_int_equal(answer.as_asked.plan.eval_batch, 16);
	assert_true(answer.best.fits_gpu);
	assert_int_equal(answer.changes, 1);
	assert_int_equal(answer.best.plan.micro_batch, 1);
	assert_ptr_equal(strstr(oom_plan_options(&answer.as_asked.plan, &answer.best.plan, options, sizeof(options)),
				"--eval-batch="), options);
	assert_null(strchr(options, ' '));
	f.q.plan.eval_batch = 2 * answer.best.plan.eval_batch;
	j = judged(&f);
	assert_false(j.fits_gpu);
	f.q.plan.eval_batch = answer.best.plan.eval_batch;
	j = judged(&f);
	assert_true(j.fits_gpu);
	assert_int_equal(j.eval.used_bytes, answer.best.eval.used_bytes);
	close_question(&f);
}

/* The largest batch of an evaluation by solve: estimate, told that the run evaluates, agrees on it and on the next. */
static void test_solved(void **state)
{
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct fixture f;

	(void)state;
	open_question(&f, "SmolLM2-135M", 24);
	assert_int_equal(oom_answer_solve(f.ev, &f.q, "eval-batch", 0, false, &s, &err), OOM_OK);
	assert_true(s.exists && s.value > 1);
	assert_int_equal(s.evaluation_bytes, oom_evaluation_bytes(f.ev, f.model, &s.plan));
	f.q.plan.evaluates = OOM_EVALUATES_YES;
	f.q.plan.eval_batch = s.value;
	assert_true(judged(&f).fits_gpu);
	f.q.plan.eval_batch = s.value + 1;
	assert_false(judged(&f).fits_gpu);
	assert_true(s.neighbour == s.value + 1 && s.neighbour_evaluates);
	/* changes of the training step make no room for it */
	assert_int_equal(oom_answer_solve(f.ev, &f.q, "eval-batch", 0, true, &s, &err), OOM_OK);
	assert_false(s.tried);
	close_question(&f);
}

/* A pile is of the resized vocabulary too: n batches' logits in fp32 differ by n b s rows x 4 bytes where torch.cat copies
 * them all (twice that), beside what one evaluation without a pile differs by.  By hand, b = 8, s = 512, n = 8:
 * the peak is that of the copy, end + states + 2 x 8 x logits. */
static void test_pile_of_resized_vocabulary(void **state)
{
	const uint64_t rows[] = {128256, 256000};
	uint64_t peak[2], end[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct oom_error err = {{0}};
		struct oom_eval e;
		struct fixture f;

		open_question(&f, "Llama-3.2-1B", 80);
		assert_int_equal(oom_plan_set(&f.q.plan, oom_knob_find("optimizer"), "none", &err), OOM_OK);
		f.q.plan.eval_batch = 8;
		f.q.plan.eval_accumulation = 8;
		f.q.plan.resize_vocab = (int64_t)rows[i];
		assert_int_equal(oom_evaluate(f.ev, f.model, &f.q.plan, OOM_EVAL_FAST, &e, &err), OOM_OK);
		peak[i] = e.peak[OOM_PHASE_EVAL];
		end[i] = e.end[OOM_PHASE_EVAL];
		close_question(&f);
	}
	assert_true(peak[1] - end[1] - (peak[0] - end[0]) == 2 * 8 * 8ull * 512 * (rows[1] - rows[0]) * 4);
}

/* An evaluation keeps all that the model returns beside its loss: an encoder's last hidden states, and Mamba's logits in fp32.  Peaks of
 * transformers' Trainer with its EvalLoopContainer, two layers, two sequences of 200 tokens, fused AdamW, clipped; measured with torch
 * 2.14.1 and transformers 5.12.1 on emulated cards.  Scalars of the loop are less than 10 KB of them. */
static void test_all_that_is_returned(void **state)
{
	static const struct {
		const char *type, *knobs;
		uint64_t peak;
	} cases[] = {
		{"marian", "task=seq2seq precision=bf16 eval-accumulation=2", 903251456},
		{"bart", "task=seq2seq precision=bf16-amp convert-outputs-fp32=true eval-accumulation=3", 1166715392},
		{"m2m_100", "task=seq2seq precision=amp-bf16 convert-outputs-fp32=true eval-accumulation=2", 3287941120},
		{"mamba", "task=causal-lm precision=bf16 attn=eager eval-accumulation=2", 679630336},
		{"falcon_mamba", "task=causal-lm precision=bf16 attn=eager seq-len=64 eval-accumulation=3", 457470464},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_question_default().plan;
		char config[64];
		struct oom_eval e;

		snprintf(config, sizeof(config), "{\"model_type\": \"%s\"}", cases[i].type);
		set(&p, "num-layers=2 micro-batch=2 eval-batch=2 seq-len=200 optimizer=adamw-fused loop=trainer");
		set(&p, cases[i].knobs);
		e = must(config, &p);
		if (e.peak[OOM_PHASE_EVAL] > cases[i].peak || e.peak[OOM_PHASE_EVAL] + 10240 < cases[i].peak)
			fail_msg("%s: %llu, measured %llu", cases[i].type, (unsigned long long)e.peak[OOM_PHASE_EVAL],
				 (unsigned long long)cases[i].peak);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_batch),
		cmocka_unit_test(test_a_small_one), cmocka_unit_test(test_pile_is_one_figure),
		cmocka_unit_test(test_answers_count_in_either_batch),
					   cmocka_unit_test(test_pile_is_cured_by_its_batch),
					   cmocka_unit_test(test_solved), cmocka_unit_test(test_pile_of_resized_vocabulary),
		cmocka_unit_test(test_all_that_is_returned)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
