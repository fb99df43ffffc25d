/* One price for one configuration: what the library's calls say of the same plan and card is held
 * against each other.  Whether it is right is measured elsewhere (tests/accuracy); here no number is
 * expected but what another call gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/answer.h"
#include "oomplan/box.h"
#include "oomplan/compare.h"
#include "oomplan/runs.h"
#include "oomplan/sweep.h"

struct fixture {
	const char *name;
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_evaluator *ev;
	struct oom_gpus gpus;
	struct oom_gpu gpu;
	struct oom_question q;
	struct oom_judged truth;        /* what estimate says */
	char what[400];                 /* the plan, for messages */
};

static void open_model(struct fixture *f, const char *name)
{
	struct oom_error err = {{0}};

	f->name = name;
	f->ev = oom_evaluator_new();
	memset(&f->keys, 0, sizeof(f->keys));
	assert_int_equal(oom_keys_read_model(&f->keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&f->model, &f->keys, &err), OOM_OK);
}

static void close_model(struct fixture *f)
{
	oom_evaluator_free(f->ev);
	oom_model_free(f->model);
	oom_keys_release(&f->keys);
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 16) % n;
}

/* ---- a question ---- */

static void set(struct oom_plan *p, const char *knob, const char *word)
{
	struct oom_error err = {{0}};

	if (oom_plan_set(p, oom_knob_find(knob), word, &err))
		fail_msg("%s", err.text);
}

static void some_engine(struct oom_plan *p, uint32_t *seed)
{
	p->gpus = 1 << draw(seed, 4);
	p->nodes = p->gpus > 4 ? 2 : 1;
	switch (p->gpus > 1 ? draw(seed, 5) : 0) {
	case 1:
		p->engine = OOM_ENGINE_DEEPSPEED;
		p->zero_stage = 1 + draw(seed, 3);
		p->offload_optimizer = p->zero_stage > 1 && draw(seed, 3) == 0 ? OOM_OFFLOAD_CPU :
										OOM_OFFLOAD_NONE;
		break;
	case 2:
		p->engine = OOM_ENGINE_FSDP2;
		p->zero_stage = 2 + draw(seed, 2);
		break;
	case 3:
		p->engine = OOM_ENGINE_DEVICE_MAP;
		p->nodes = 1;
		break;
	case 4:
		p->engine = OOM_ENGINE_MEGATRON;
		p->precision = OOM_BF16;
		p->zero_stage = draw(seed, 2);
		break;
	}
}

static struct oom_plan some_plan(uint32_t *seed)
{
	static const char *const optimizers[] = {"adamw", "adamw-fused", "adamw-8bit", "sgd",
						 "adafactor", "lion"};
	static const char *const precisions[] = {"fp32", "bf16", "amp-bf16", "amp-fp16"};
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 1 + draw(seed, 1 + draw(seed, 24));
	p.grad_accum = 1 + draw(seed, 4);
	p.seq_len = 128 << draw(seed, 5);
	set(&p, "precision", precisions[draw(seed, 4)]);
	set(&p, "optimizer", optimizers[draw(seed, 6)]);
	p.attn = draw(seed, 3) ? OOM_ATTN_SDPA : OOM_ATTN_EAGER;
	p.grad_ckpt = draw(seed, 3) ? OOM_CKPT_NONE : OOM_CKPT_FULL;
	p.allocator = draw(seed, 2) ? OOM_ALLOC_NATIVE : OOM_ALLOC_EXPANDABLE;
	p.lora_r = draw(seed, 4) ? 0 : 8;
	if (draw(seed, 3) == 0)
		some_engine(&p, seed);
	if (draw(seed, 6) == 0)
		p.global_batch = p.micro_batch * oom_plan_data_parallel(&p) * (1 + draw(seed, 5));
	return p;
}

/* A card about as large as the plan needs: there the verdicts could part. */
static const struct oom_gpu *near_card(const struct fixture *f, uint32_t *seed)
{
	const struct oom_gpu *best = &f->gpus.items[0];
	const double used = (double)f->truth.eval.used_bytes * (0.9 + draw(seed, 20) / 100.0);

	for (size_t i = 0; i < f->gpus.n; i++) {
		const double a = used - (double)f->gpus.items[i].capacity_bytes,
			     b = used - (double)best->capacity_bytes;

		if ((a < 0 ? -a : a) < (b < 0 ? -b : b))
			best = &f->gpus.items[i];
	}
	return best;
}

/* A question whose plan runs, and what estimate says of it. */
static bool ask(struct fixture *f, uint32_t *seed)
{
	struct oom_error err = {{0}};

	f->q = oom_question_default();
	f->q.model = f->model;
	f->q.plan = some_plan(seed);
	f->q.allow = draw(seed, 3) ? 0 : OOM_ALLOW_SCIENCE;
	f->q.objective = (enum oom_objective)draw(seed, 4);
	if (oom_answer_as_asked(f->ev, &f->q, &f->truth, &err))
		return false;
	f->gpu = *near_card(f, seed);
	f->q.gpu = &f->gpu;
	assert_int_equal(oom_answer_as_asked(f->ev, &f->q, &f->truth, &err), OOM_OK);
	oom_plan_options(&(struct oom_plan){0}, &f->truth.plan, f->what, sizeof(f->what));
	return true;
}

/* ---- held against it ---- */

static void same(const struct fixture *f, const char *who, uint64_t used, bool fits,
		 const struct oom_judged *truth)
{
	if (used != truth->eval.used_bytes || fits != truth->fits_gpu)
		fail_msg("%s on %s, %s: %s says %llu, fits %d; estimate %llu, fits %d", f->name,
			 f->gpu.name, f->what, who, (unsigned long long)used, fits,
			 (unsigned long long)truth->eval.used_bytes, truth->fits_gpu);
}

/* What estimate says of another plan on the card. */
static struct oom_judged estimate(const struct fixture *f, const struct oom_plan *p)
{
	struct oom_question q = f->q;
	struct oom_error err = {{0}};
	struct oom_judged j;

	q.plan = *p;
	if (oom_answer_as_asked(f->ev, &q, &j, &err))
		fail_msg("%s: %s", f->what, err.text);
	assert_memory_equal(&j.plan, p, sizeof(*p));
	return j;
}

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

static void check_search(const struct fixture *f, const struct oom_search *s)
{
	for (size_t i = 0; s->found && i <= s->n_alternatives; i++) {
		const struct oom_candidate *c = i ? &s->alternative[i - 1] : &s->best;
		const struct oom_judged j = estimate(f, &c->plan);

		same(f, i ? "an alternative" : "the search", c->used_bytes, true, &j);
	}
	for (size_t i = 0; i < s->n_reasons; i++) {
		const struct oom_reason *r = &s->reason[i];

		if (r->runs) {
			const struct oom_judged j = estimate(f, &r->without);

			same(f, "a reason", r->used_bytes, r->fits, &j);
		}
	}
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

	assert_int_equal(oom_answer_solve(f->ev, &f->q, "micro-batch", 0, false, &s, &err), OOM_OK);
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

/* Every machine's plan fits its card as estimate says. */
static void test_boxes(void **state)
{
	struct oom_box_query query = {.max_nodes = 1};
	struct oom_offers offers = {0};
	struct oom_error err = {{0}};
	struct fixture f = {0};
	struct oom_boxes b;

	(void)state;
	assert_int_equal(oom_offers_load(&offers, &err), OOM_OK);
	open_model(&f, "GPT-2");
	f.q = oom_question_default();
	f.q.model = f.model;
	f.q.plan.micro_batch = 24;
	assert_int_equal(oom_boxes_find(&offers, f.model, &f.q.plan, &query, &b, &err), OOM_OK);
	assert_true(b.fitting > 20);
	for (size_t i = 0; i < b.fitting; i++) {
		struct oom_judged j;

		f.gpu = offers.gpus.items[b.items[i].offer->gpu];
		f.q.gpu = &f.gpu;
		j = estimate(&f, &b.items[i].plan->plan);
		same(&f, "box", b.items[i].plan->used_bytes, true, &j);
	}
	oom_boxes_release(&b);
	close_model(&f);
	oom_offers_release(&offers);
}

/* The machine's cards as its offer links them, and the step asked for over all of them. */
static void on_machine(struct fixture *f, const struct oom_offers *offers, const struct oom_box *b,
		       const struct oom_plan *asked)
{
	const int64_t gpus = (int64_t)b->offer->gpu_count * b->nodes, batch = asked->micro_batch * asked->grad_accum,
		      mine = batch > gpus ? batch / gpus : 1;

	f->gpu = offers->gpus.items[b->offer->gpu];
	if (*b->offer->interconnect)
		snprintf(f->gpu.interconnect, sizeof(f->gpu.interconnect), "%s", b->offer->interconnect);
	f->gpu.network_gbps = b->offer->network_gbps > 0 ? b->offer->network_gbps : 0;
	f->q.gpu = &f->gpu;
	f->q.capacity_bytes = f->gpu.capacity_bytes;
	f->q.plan = *asked;
	f->q.plan.gpus = gpus;
	f->q.plan.nodes = b->nodes;
	f->q.plan.gpus_per_node = 0;
	f->q.plan.compute_capability = f->gpu.compute_capability;
	f->q.plan.micro_batch = asked->micro_batch < mine ? asked->micro_batch : mine;
	while (mine % f->q.plan.micro_batch)
		f->q.plan.micro_batch--;
	f->q.plan.grad_accum = mine / f->q.plan.micro_batch;
}

/* A row's plan is what `plan` finds for that machine: the best of its search, or where the host's memory is too
 * small for that one of those beside it. */
static void test_boxes_as_plans(void **state)
{
	static const struct {
		const char *model, *precision;
		int64_t batch, seq;
	} asked[] = {{"GPT-2", "amp-bf16", 24, 1024}, {"Llama-3.2-1B", "bf16", 32, 2048}, {"BERT-large", "fp32", 64, 512}};
	struct oom_box_query query = {.max_nodes = 2};
	struct oom_offers offers = {0};
	struct oom_error err = {{0}};
	size_t same_best = 0, n = 0;

	(void)state;
	assert_int_equal(oom_offers_load(&offers, &err), OOM_OK);
	for (size_t m = 0; m < sizeof(asked) / sizeof(asked[0]); m++) {
		struct fixture f = {0};
		struct oom_plan plan;
		struct oom_boxes b;

		open_model(&f, asked[m].model);
		f.q = oom_question_default();
		f.q.model = f.model;
		plan = f.q.plan;
		set(&plan, "precision", asked[m].precision);
		plan.micro_batch = asked[m].batch;
		plan.seq_len = asked[m].seq;
		assert_int_equal(oom_boxes_find(&offers, f.model, &plan, &query, &b, &err), OOM_OK);
		/* every seventh: machines repeat in regions */
		for (size_t i = 0; i < b.fitting; i += 7) {
			const struct oom_box *x = &b.items[i];
			struct oom_search found;
			bool best, beside = false;

			on_machine(&f, &offers, x, &plan);
			assert_int_equal(oom_answer_search(f.ev, &f.q, &found, &err), OOM_OK);
			assert_true(found.found);
			best = !memcmp(&found.best.plan, &x->plan->plan, sizeof(found.best.plan));
			for (size_t k = 0; k < found.n_alternatives; k++)
				beside |= !memcmp(&found.alternative[k].plan, &x->plan->plan, sizeof(found.best.plan));
			if (!best && !beside)
				fail_msg("%s on %s %s: box and plan differ", asked[m].model, x->offer->provider,
					 x->offer->instance);
			same_best += best;
			n++;
		}
		oom_boxes_release(&b);
		close_model(&f);
	}
	oom_offers_release(&offers);
	assert_true(n > 40 && same_best * 10 >= n * 9);
}

/* ---- the answer itself ---- */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_price), cmocka_unit_test(test_boxes), cmocka_unit_test(test_boxes_as_plans),
		cmocka_unit_test(test_few_replays), cmocka_unit_test(test_calibrated),
		cmocka_unit_test(test_questions), cmocka_unit_test(test_compare)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
