/* One price for one configuration: what the library's calls say of the same plan and card is held
 * against each other.  Whether it is right is measured elsewhere (tests/accuracy); here no number is
 * expected but what another call gives. */
#include <unistd.h>

#include "oomplan/runs.h"
#include "oomplan/sweep.h"

#include "answer_case.h"

static void check_judge(const struct fixture *f)
{
	struct oom_error err = {{0}};
	struct oom_eval e;
	bool fits;

	assert_int_equal(oom_judge(f->ev, f->model, &f->truth.plan, f->gpu.capacity_bytes, 0, &e,
				   &fits, &err),
			 OOM_OK);
	same(f, "judge", f->truth.eval.used_bytes, fits, &f->truth);
	assert_int_equal(e.used_bytes_estimated, f->truth.eval.used_bytes_estimated);
}

static void check_answer(const struct fixture *f)
{
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_error err = {{0}};
	struct oom_judged j;

	assert_non_null(a);
	if (oom_answer(f->ev, &f->q, a, &err))
		fail_msg("%s: %s", f->what, err.text);
	same(f, "plan, as asked", a->as_asked.eval.used_bytes, a->as_asked.fits_gpu, &f->truth);
	same(f, "the ladder's start", a->ladder.start_eval.used_bytes, a->ladder.start_fits,
	     &f->truth);
	j = estimate(f, &a->ladder.plan);
	same(f, "the ladder's end", a->ladder.eval.used_bytes, a->ladder.fits, &j);
	j = estimate(f, &a->best.plan);
	same(f, "plan", a->best.eval.used_bytes, a->best.fits_gpu, &j);
	/* the search knows every change of the ladder */
	if (a->ladder.fits && !a->search.found)
		fail_msg("%s on %s, %s: the ladder fits, the search finds nothing", f->name,
			 f->gpu.name, f->what);
	check_search(f, &a->search);
	free(a);
}

/* The largest micro-batch, and the next. */
static void check_solve(const struct fixture *f)
{
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct oom_judged j;
	struct oom_plan p;

	if (oom_answer_solve(f->ev, &f->q, "micro-batch", 0, false, &s, &err))
		fail_msg("%s on %s, %s: %s", f->name, f->gpu.name, f->what, err.text);
	if (!s.exists)
		return;
	j = estimate(f, &s.plan);
	same(f, "solve", s.eval.used_bytes, true, &j);
	if (s.at_limit || s.neighbour_bytes == UINT64_MAX)
		return;
	p = s.plan;
	p.micro_batch = s.neighbour;
	if (p.global_batch)
		p.grad_accum = p.global_batch / oom_plan_data_parallel(&p) / s.neighbour;
	j = estimate(f, &p);
	same(f, "the solution's neighbour", s.neighbour_bytes, false, &j);
}

/* The plan as a table of one cell: every knob an axis of one value. */
static void check_sweep(const struct fixture *f)
{
	struct oom_sweep *s = oom_sweep_new(&f->q.plan);
	const struct oom_sweep_options o = {.threads = 1};
	struct oom_error err = {{0}};
	unsigned long long used, estimated, rows64 = 0;
	char axis[160], *text = NULL;
	uint64_t rows;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int fits;

	snprintf(axis, sizeof(axis), "model=%s", f->name);
	assert_int_equal(oom_sweep_axis(s, axis, &err), OOM_OK);
	snprintf(axis, sizeof(axis), "gpu=%s", f->gpu.name);
	if (oom_sweep_axis(s, axis, &err))
		fail_msg("%s", err.text);
	assert_int_equal(oom_sweep_columns(s, "fits,used_bytes,used_bytes_estimated", &err), OOM_OK);
	assert_int_equal(oom_sweep_run(s, &o, out, &rows, &err), OOM_OK);
	fclose(out);
	if (sscanf(strchr(text, '\n'), "%d,%llu,%llu", &fits, &used, &estimated) != 3)
		fail_msg("%s: %s", f->what, text);
	same(f, "sweep", used, fits, &f->truth);
	assert_int_equal(estimated, f->truth.eval.used_bytes_estimated);
	/* the verdict alone, which replays only where it must */
	assert_int_equal(oom_sweep_columns(s, "capacity_bytes", &err), OOM_OK);
	assert_int_equal(oom_sweep_where(s, "fits", &err), OOM_OK);
	out = fopen("/dev/null", "w");
	assert_int_equal(oom_sweep_run(s, &o, out, &rows, &err), OOM_OK);
	fclose(out);
	rows64 = rows;
	same(f, "sweep --where fits", f->truth.eval.used_bytes, rows64 == 1, &f->truth);
	oom_sweep_free(s);
	free(text);
}

/* ---- tables of many plans ---- */

/* A runs file of the plans asked, one per row, every knob a column. */
static void put_run(FILE *out, const struct fixture *f, bool head)
{
	char buf[140];

	for (size_t i = 0; head && oom_knob_at(i); i++)
		fprintf(out, "%s,", oom_knob_at(i)->column);
	if (head)
		fputs("model\n", out);
	for (size_t i = 0; oom_knob_at(i); i++)
		fprintf(out, "%s,", oom_plan_get(&f->q.plan, oom_knob_at(i), buf, sizeof(buf)));
	fprintf(out, "%s\n", f->name);
}

/* The cells of a row without quotes, by the name of the head's column. */
static const char *cell(const char *head, const char *row, const char *name, char buf[64])
{
	while (*head) {
		const size_t n = strcspn(head, ","), m = strcspn(row, ",\n");

		if (n == strlen(name) && !strncmp(head, name, n)) {
			snprintf(buf, 64, "%.*s", (int)m, row);
			return buf;
		}
		head += n + (head[n] == ',');
		row += m + (row[m] == ',');
	}
	fail_msg("no column %s", name);
	return "";
}

static void check_runs(const char *path, const uint64_t *used, size_t n)
{
	struct oom_error err = {{0}};
	struct oom_runs_report rep;
	char *text = NULL, *line, *rest, *head, buf[64];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(oom_runs_price(path, "data/models", out, &rep, &err), OOM_OK);
	fclose(out);
	assert_int_equal(rep.rows, n);
	rest = text;
	head = strsep(&rest, "\n");
	for (size_t i = 0; i < n; i++) {
		line = strsep(&rest, "\n");
		if (strtoull(cell(head, line, "pred_used_bytes", buf), NULL, 10) != used[i])
			fail_msg("run %zu: %s used, estimate %llu: %s", i, buf,
				 (unsigned long long)used[i], line);
	}
	free(text);
}

static void test_one_price(void **state)
{
	static const char *const models[] = {"GPT-2", "SmolLM2-135M", "BERT-base", "ViT-B-16",
					     "T5-base"};
	enum { PLANS = 40, MODELS = sizeof(models) / sizeof(models[0]) };
	/* a runs file names no card: what is wanted */
	static uint64_t used[PLANS * MODELS];
	char path[] = "/tmp/oomplan-runs-XXXXXX.csv";
	const int fd = mkstemps(path, 4);
	FILE *runs = fdopen(fd, "w");
	struct oom_error err = {{0}};
	struct fixture f = {0};
	uint32_t seed = 11;
	size_t n = 0, fit = 0;

	(void)state;
	assert_non_null(runs);
	assert_int_equal(oom_gpus_load(&f.gpus, &err), OOM_OK);
	for (int m = 0; m < MODELS; m++) {
		open_model(&f, models[m]);
		for (int i = 0; i < PLANS; i++) {
			if (!ask(&f, &seed))
				continue;
			check_judge(&f);
			check_answer(&f);
			check_solve(&f);
			check_sweep(&f);
			f.q.plan.compute_capability = f.gpu.compute_capability;
			put_run(runs, &f, !n);
			used[n++] = f.truth.eval.wanted_bytes;
			fit += f.truth.fits_gpu;
		}
		close_model(&f);
	}
	fclose(runs);
	check_runs(path, used, n);
	unlink(path);
	oom_gpus_release(&f.gpus);
	assert_true(n > 150 && fit > 40 && fit < n - 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_price)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
