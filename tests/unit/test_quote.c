/* A project's quote: which machine leads, deadlines, spot prices and what interruptions cost. */
#include "offers_case.h"

/* Daly's own limits: without a checkpoint's cost nothing is lost but restarts; for C far below M the interval is
 * Young's, and the loss sqrt(2 C / M). */
static void test_failures(void **state)
{
	struct oom_failures f;

	(void)state;
	f = oom_failures_of(60, 0, 0);
	assert_true(f.factor == 1 && f.interval_s == 0);
	f = oom_failures_of(60, 600, NAN);
	assert_true(f.factor == 1);
	/* C = 1 s, M = 2e6 s: sqrt(2 C M) = 2000 s, of which a thousandth is lost */
	f = oom_failures_of(1, 0, 2e6);
	assert_true(fabs(f.interval_s / 2000 - 1) < 0.001);
	assert_true(fabs((f.factor - 1) / 0.001 - 1) < 0.01);
	/* a restart of R s once in M: R / M more */
	assert_true(fabs(oom_failures_of(1, 2000, 2e6).factor - f.factor - 0.001) < 1e-5);
	/* a checkpoint that takes longer than machines last: one interval is M (Daly, section 3) */
	f = oom_failures_of(300, 0, 100);
	assert_true(f.interval_s == 100 && f.factor > 1 && isfinite(f.factor));
}

/* A model, a plan, and one machine at three prices: fresh, old, none. */
struct quoted {
	struct oom_offers offers;
	struct oom_plan plan;
	struct oom_model *model;
	struct oom_keys keys;
	struct oom_error err;
	double days;                    /* that the cheapest takes */
};

static void a_fresh_price_leads(struct quoted *w)
{
	const struct oom_box_query q = {.max_nodes = 8, .tokens = 1e9};
	const struct oom_box *x;
	struct oom_boxes b;

	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 3);
	/* old prices stand after fresh ones, none after all */
	assert_string_equal(b.items[0].offer->instance, "fresh");
	assert_string_equal(b.items[1].offer->instance, "old");
	assert_string_equal(b.items[2].offer->instance, "unpriced");
	x = &b.items[0];
	w->days = x->days;
	/* tokens / speed, and what interruptions add, by the hour; storage by 730 of them a month */
	assert_true(fabs(x->days * 86400 * x->tokens_per_s / 1e9 / x->failures.factor - 1) < 1e-9);
	assert_true(fabs(x->gpu_hours - x->days * 24 * 8) < 1e-6);
	assert_true(fabs(x->usd_storage - 0.1 * (double)x->need.disk_peak / 1073741824 * x->days * 24 / 730) < 1e-9);
	assert_true(fabs(x->usd_egress - 0.09 * (double)x->need.checkpoint / 1073741824) < 1e-9);
	assert_true(fabs(x->usd - (x->days * 24 * 30 + x->usd_storage + x->usd_egress)) < 1e-6);
	assert_true(x->days_low < x->days && x->days < x->days_high && x->usd_low < x->usd && x->usd < x->usd_high);
	assert_true(x->breaks_share > 0 && x->breaks_share <= 1);
	assert_true(x->failures.factor > 1 && x->failures.factor < 1.01);
	assert_true(isnan(b.items[2].usd) && !isnan(b.items[2].days));
	/* every number of nodes is a point, and some are on the front; old prices are on none */
	assert_true(b.n_points >= 3);
	for (size_t i = 0; i < b.n_points; i++)
		assert_false(b.points[i].guessed || b.points[i].stale);
	/* a row's star is that of the same machines among all that were tried */
	assert_false(b.items[1].pareto);
	for (size_t i = 0; i < b.n_points; i++)
		if (b.points[i].offer == x->offer && b.points[i].nodes == x->nodes)
			assert_true(b.points[i].pareto == x->pareto);
	oom_boxes_release(&b);
}

/* Without tokens an old price is on no front either, as cheap as it may be. */
static void an_old_price_is_on_no_front(struct quoted *w)
{
	const struct oom_box_query q = {.max_nodes = 1};
	struct oom_boxes b;

	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 3);
	for (size_t i = 0; i < b.n; i++)
		assert_true(b.items[i].pareto == !strcmp(b.items[i].offer->instance, "fresh"));
	oom_boxes_release(&b);
}

/* Nothing is done in time: the nearest to that leads, with all the machines that there may be, not the cheapest. */
static void the_nearest_to_a_deadline_leads(struct quoted *w)
{
	const struct oom_box_query q = {.max_nodes = 4, .tokens = 1e9, .deadline_days = w->days / 1000};
	struct oom_offers two = {0};
	struct oom_boxes b;

	read_text(&two, "own.csv",
		  "provider,instance,gpu,gpu_count,network_gbps,ondemand_usd_h,price_date\n"
		  "p,slow,A100-SXM4-80GB,8,1600,5,2999\n"
		  "p,fast,H100-SXM5-80GB,8,3200,90,2999\n"
		  "p,alone,H100-SXM5-80GB,1,,4,2999\n",
		  OOM_OK, &w->err);
	assert_int_equal(oom_boxes_find(&two, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 3);
	assert_string_equal(b.items[0].offer->instance, "fast");
	assert_string_equal(b.items[1].offer->instance, "slow");
	assert_string_equal(b.items[2].offer->instance, "alone");
	assert_true(b.items[0].usd > b.items[1].usd && b.items[0].days < b.items[1].days);
	for (size_t i = 0; i < b.n; i++)
		assert_true(b.items[i].late && b.items[i].nodes == (b.items[i].offer->clusters ? 4 : 1));
	oom_boxes_release(&b);
	oom_offers_release(&two);
}

static void a_deadline_asks_for_nodes(struct quoted *w)
{
	struct oom_box_query q = {.max_nodes = 8, .tokens = 1e9};
	struct oom_boxes b;

	/* a deadline of half of that asks for three nodes, or four: small steps wait for the processor */
	q.deadline_days = w->days / 2;
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_in_range(b.items[0].nodes, 3, 4);
	assert_false(b.items[0].late);
	assert_true(b.items[0].days <= q.deadline_days);
	/* by the middle of its days, not by their far end */
	assert_true(b.items[0].may_be_late == (b.items[0].days_high > q.deadline_days));
	/* what is late is no answer */
	assert_true(b.n_points > 0);
	for (size_t i = 0; i < b.n_points; i++)
		assert_false(b.points[i].late);
	oom_boxes_release(&b);
	/* one that eight do not meet */
	q.deadline_days = w->days / 1000;
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_true(b.items[0].late && !b.items[0].may_be_late);
	oom_boxes_release(&b);
	/* one machine whose middle is in time and whose far end is not, and as much dearer than the budget */
	q = (struct oom_box_query){.max_nodes = 1, .tokens = 1e9};
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	q.deadline_days = b.items[0].days * 1.01;
	q.budget_usd = b.items[0].usd * 1.01;
	oom_boxes_release(&b);
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_true(!b.items[0].late && b.items[0].may_be_late && !b.items[0].over_budget && b.items[0].may_be_over_budget);
	oom_boxes_release(&b);
}

static void a_step_is_not_divided_further(struct quoted *w)
{
	struct oom_box_query q = {.max_nodes = 8, .tokens = 1e9, .deadline_days = w->days / 2.9};
	struct oom_plan few;
	struct oom_boxes b;

	/* 16 sequences in a step are enough for two machines of eight, and no more are taken */
	few = w->plan;
	few.global_batch = 16;
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &few, &q, &b, &w->err), OOM_OK);
	for (size_t i = 0; i < b.n_points; i++)
		assert_true(b.points[i].batch == 16 && b.points[i].nodes <= 2);
	oom_boxes_release(&b);
	q.nodes = 3;
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &few, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.items[0].shortage, OOM_BOX_BATCH);
	oom_boxes_release(&b);
}

static void spot_is_interrupted(struct quoted *w)
{
	const struct oom_box_query q = {.max_nodes = 1, .tokens = 1e9, .spot = true, .spot_hours = 1, .budget_usd = 1};
	struct oom_boxes b;

	/* a third of the price, and machines that are taken back every hour */
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_true(b.items[0].failures.factor > 1.15 && b.items[0].failures.factor < 2);
	assert_true(b.items[0].days > w->days && b.items[0].over_budget);
	oom_boxes_release(&b);
}

/* A card too small for the run as it is: what it would take is said where no other machine gives a quote, and without a
 * quote; it is no reason to search ten times as long where one does. */
static void science_is_no_part_of_a_quote(struct quoted *w)
{
	static const char head[] = "provider,instance,gpu,gpu_count,ondemand_usd_h,price_date\n", small[] = "p,small,T4,1,0.5,2999\n",
			  large[] = "p,large,H100-SXM5-80GB,8,30,2999\n";
	struct oom_box_query q = {.max_nodes = 1, .tokens = 1e9};
	struct oom_offers one = {0}, two = {0};
	struct oom_plan lengthy = w->plan;
	char text[200];
	struct oom_boxes b;

	lengthy.seq_len = 32768;
	snprintf(text, sizeof(text), "%s%s", head, small);
	read_text(&one, "own.csv", text, OOM_OK, &w->err);
	assert_int_equal(oom_boxes_find(&one, w->model, &lengthy, &q, &b, &w->err), OOM_OK);
	assert_true(b.items[0].needs_science && b.items[0].nodes == 1);
	oom_boxes_release(&b);
	snprintf(text, sizeof(text), "%s%s%s", head, small, large);
	read_text(&two, "own.csv", text, OOM_OK, &w->err);
	assert_int_equal(oom_boxes_find(&two, w->model, &lengthy, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 1);
	assert_false(b.items[1].needs_science);
	assert_int_equal(b.items[1].shortage, OOM_BOX_VRAM);
	assert_true(b.items[1].short_bytes > 0);
	oom_boxes_release(&b);
	q.tokens = 0;
	assert_int_equal(oom_boxes_find(&two, w->model, &lengthy, &q, &b, &w->err), OOM_OK);
	assert_true(b.items[1].needs_science);
	oom_boxes_release(&b);
	oom_offers_release(&one);
	oom_offers_release(&two);
}

static void private_hosts_are_not_joined(struct quoted *w)
{
	const struct oom_box_query q = {.nodes = 2};
	struct oom_boxes b;

	oom_offers_release(&w->offers);
	read_text(&w->offers, "own.csv", "provider,instance,gpu,gpu_count,ondemand_usd_h\nvast,x,H100-SXM5-80GB,8,20\n",
		  OOM_OK, &w->err);
	assert_int_equal(oom_boxes_find(&w->offers, w->model, &w->plan, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 0);
	assert_int_equal(b.items[0].shortage, OOM_BOX_FABRIC);
	oom_boxes_release(&b);
	oom_offers_release(&w->offers);
}

/* Cards that are too small however many there are: one machine and the most are looked at, and not again over another
 * network; where the most do, the fewest are looked for as ever. */
static void too_small_is_seen_at_once(struct quoted *w)
{
	const struct oom_box_query q = {.max_nodes = 16, .tokens = 1e9};
	struct oom_plan large = w->plan;
	struct oom_offers some = {0};
	struct oom_boxes b;

	large.grad_accum = 16;
	large.seq_len = 262144;
	read_text(&some, "own.csv",
		  "provider,instance,gpu,gpu_count,network_gbps,ondemand_usd_h,price_date\n"
		  "p,small,T4,1,10,1,2999\n"
		  "p,alike,T4,1,25,1,2999\n", OOM_OK, &w->err);
	assert_int_equal(oom_boxes_find(&some, w->model, &large, &q, &b, &w->err), OOM_OK);
	assert_int_equal(b.fitting, 0);
	for (size_t i = 0; i < b.n; i++)
		assert_true(b.items[i].nodes == 16 && b.items[i].needs_science);
	/* 1 and 16, and 16 of the other network, whose verdict is known */
	assert_int_equal(b.priced_groups, 3);
	oom_boxes_release(&b);
	oom_offers_release(&some);
}

static void test_quote(void **state)
{
	static const char *const full[] = {"precision", "bf16", "micro-batch", "1", "grad-accum", "64",
					   "seq-len", "1024", "grad-ckpt", "full", NULL};
	struct quoted w = {.plan = knobs(full)};

	(void)state;
	read_text(&w.offers, "own.csv",
		  "provider,instance,gpu,gpu_count,network_gbps,ondemand_usd_h,spot_usd_h,price_date,"
		  "storage_usd_gib_month,egress_usd_gib\n"
		  "p,fresh,H100-SXM5-80GB,8,3200,30,10,2999,0.1,0.09\n"
		  "p,old,H100-SXM5-80GB,8,3200,3,1,2020,,\n"
		  "p,unpriced,H100-SXM5-80GB,8,3200,,,2999,,\n",
		  OOM_OK, &w.err);
	assert_int_equal(oom_keys_read_model(&w.keys, "Llama-3.1-8B", &w.err), OOM_OK);
	assert_int_equal(oom_model_new(&w.model, &w.keys, &w.err), OOM_OK);
	a_fresh_price_leads(&w);
	an_old_price_is_on_no_front(&w);
	a_deadline_asks_for_nodes(&w);
	the_nearest_to_a_deadline_leads(&w);
	a_step_is_not_divided_further(&w);
	spot_is_interrupted(&w);
	science_is_no_part_of_a_quote(&w);
	private_hosts_are_not_joined(&w);
	too_small_is_seen_at_once(&w);
	oom_model_free(w.model);
	oom_keys_release(&w.keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_quote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
