/* Machines' plans are those that estimate and plan give for the machine. */
#include "oomplan/box.h"

#include "answer_case.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_boxes), cmocka_unit_test(test_boxes_as_plans)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
