/* How an answer is come by: few replays, the calibration's verdict, what a question lacks, and diagnose's question. */
#include "oomplan/compare.h"

#include "answer_case.h"

/* README's main job.  Replayed are the plans of the report (as asked, each rung's, the search's answer
 * and its alternatives, those of the reasons) and the few that bounds do not decide. */
static void test_few_replays(void **state)
{
	enum { MOST = 8 };
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_error err = {{0}};
	struct oom_gpus gpus = {0};
	struct fixture f = {0};

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	assert_int_equal(oom_gpus_load(&gpus, &err), OOM_OK);
	assert_int_equal(oom_gpu_find(&gpus, "A100-40G", &f.gpu, NULL, &err), OOM_OK);
	f.q = oom_question_default();
	f.q.model = f.model;
	f.q.gpu = &f.gpu;
	set(&f.q.plan, "precision", "amp-bf16");
	assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_OK);
	assert_true(a->best.fits && a->searched);
	printf("%zu replayed of %zu priced\n", a->replayed, a->search.evaluated);
	assert_true(a->replayed <= MOST);
	f.q.brief = true;
	set(&f.q.plan, "micro-batch", "1");
	assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_OK);
	assert_true(a->best.fits && !a->searched);
	printf("%zu for the verdict alone\n", a->replayed);
	free(a);
	close_model(&f);
	oom_gpus_release(&gpus);
}

/* A calibration that doubles states, activations and transients: the answer's plan is expected within the
 * card, its margin is the one asked with, and estimate with the calibration agrees. */
static void test_calibrated(void **state)
{
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_error err = {{0}};
	struct oom_calibration c;
	struct fixture f = {0};
	struct oom_solution s;

	(void)state;
	assert_int_equal(oom_calibration_default(&c, &err), OOM_OK);
	for (int i = 0; i < OOM_SCALES; i++)
		c.term[i].value = 2;
	open_model(&f, "SmolLM2-135M");
	f.q = oom_question_default();
	f.q.model = f.model;
	f.q.calibration = &c;
	for (uint64_t gib = 6; gib <= 30; gib += 4) {
		struct oom_judged j;

		f.q.capacity_bytes = gib << 30;
		f.q.confidence = gib % 3 ? 0 : 0.9;
		assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_OK);
		assert_true(a->best.fits_gpu ==
			    (a->best.expected.needed_bytes <= (double)f.q.capacity_bytes));
		j = estimate(&f, &a->best.plan);
		same(&f, "plan with a calibration", a->best.eval.used_bytes, a->best.fits_gpu, &j);
		j = estimate(&f, &a->as_asked.plan);
		same(&f, "as asked with a calibration", a->as_asked.eval.used_bytes,
		     a->as_asked.fits_gpu, &j);
		for (size_t i = 0; i < a->search.n_alternatives; i++)
			assert_true(estimate(&f, &a->search.alternative[i].plan).fits_gpu);
		assert_int_equal(oom_answer_solve(f.ev, &f.q, "micro-batch", 0, false, &s, &err), OOM_OK);
	}
	assert_int_equal(oom_answer_solve(f.ev, &f.q, "gpu-memory", 0, false, &s, &err), OOM_OK);
	oom_question_settle(&f.q);
	f.q.capacity_bytes = s.needed_bytes;
	assert_true(estimate(&f, &f.q.plan).fits_gpu);
	f.q.capacity_bytes = s.needed_bytes - (64 << 20);
	assert_false(estimate(&f, &f.q.plan).fits_gpu);
	free(a);
	close_model(&f);
}

/* The longest batch is planned for, the host counts, and what is missing is said. */
static void test_questions(void **state)
{
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_lengths lengths = {0};
	struct oom_error err = {{0}};
	struct fixture f = {0};
	struct oom_judged j;
	int64_t longest;
	double step;

	(void)state;
	open_model(&f, "GPT-2");
	f.q = oom_question_default();
	f.q.model = f.model;
	assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "card"));
	assert_int_equal(oom_answer_as_asked(NULL, &f.q, &j, &err), OOM_OK);
	assert_true(j.fits && j.first_limit == OOM_LIMIT_NONE);
	assert_int_equal(oom_answer_lengths(f.ev, &f.q, &longest, &step, &err), OOM_ERR_INVALID);

	assert_int_equal(oom_lengths_read(&lengths, "uniform:64:768", NULL, &err), OOM_OK);
	f.q.lengths = &lengths;
	f.q.capacity_bytes = (uint64_t)8 << 30;
	assert_int_equal(oom_answer_as_asked(f.ev, &f.q, &j, &err), OOM_OK);
	assert_int_equal(j.plan.seq_len, 768);
	assert_int_equal(oom_answer_lengths(f.ev, &f.q, &longest, &step, &err), OOM_OK);
	assert_true(longest > 64 && longest < 768 && step >= 1 && !j.fits);

	f.q.host_ram_bytes = 1 << 20;
	assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_OK);
	assert_true(a->best.fits_gpu && !a->best.fits);
	assert_int_equal(a->best.first_limit, OOM_LIMIT_HOST_LOADING);

	f.q.plan.micro_batch = 8;
	f.q.plan.global_batch = 20;
	oom_question_settle(&f.q);
	assert_int_equal(f.q.plan.micro_batch * f.q.plan.grad_accum, 20);
	assert_non_null(strstr(f.q.note, "global batch 20"));
	f.q.plan.zero_stage = 3;
	assert_int_equal(oom_answer(f.ev, &f.q, a, &err), OOM_ERR_INVALID);
	oom_lengths_release(&lengths);
	free(a);
	close_model(&f);
}

/* A message's capacity counts where the question has none; the plan is estimate's. */
static void test_compare(void **state)
{
	static const char text[] =
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB. GPU 0 has a "
		"total capacity of 14.56 GiB of which 1.00 GiB is free.";
	struct oom_comparison *m = malloc(sizeof(*m));
	struct oom_error err = {{0}};
	struct fixture f = {0};
	struct oom_crash c;
	struct oom_judged j;

	(void)state;
	assert_true(oom_crash_decode(text, sizeof(text) - 1, &c));
	open_model(&f, "GPT-2");
	f.q = oom_question_default();
	f.q.model = f.model;
	assert_int_equal(oom_compare(f.ev, &f.q, &c, m, &err), OOM_OK);
	assert_true(m->searched && m->search.found);
	f.q.capacity_bytes = m->capacity_bytes;
	j = estimate(&f, &m->asked.plan);
	same(&f, "diagnose", m->asked.eval.used_bytes, m->asked.fits_gpu, &j);
	check_search(&f, &m->search);
	free(m);
	close_model(&f);
}

/* A caller who does not look at what reading a model came to. */
static void test_no_model(void **state)
{
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_question q = oom_question_default();
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = (struct oom_model *)a;
	struct oom_judged j;
	struct oom_eval e;

	(void)state;
	assert_non_null(a);
	assert_int_not_equal(oom_model_new(&m, &keys, NULL), OOM_OK);
	assert_null(m);
	q.capacity_bytes = (uint64_t)24 << 30;
	assert_int_equal(oom_answer(ev, &q, a, NULL), OOM_ERR_INVALID);
	assert_int_equal(oom_answer_as_asked(NULL, &q, &j, NULL), OOM_ERR_INVALID);
	assert_int_equal(oom_evaluate(ev, NULL, &q.plan, 0, &e, NULL), OOM_ERR_INVALID);
	oom_evaluator_free(ev);
	free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_model), cmocka_unit_test(test_few_replays), cmocka_unit_test(test_calibrated),
					   cmocka_unit_test(test_questions), cmocka_unit_test(test_compare)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
