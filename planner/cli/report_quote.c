/* The quote: rows of days and dollars, the front of both as a table and a picture, two rows compared. */
#include <math.h>
#include <string.h>

#include "box_out.h"
#include "out.h"
#include "svg.h"
#include "table.h"
#include "term.h"

/* A time with as many digits as it is known to, in the unit in which `longest` days are more than one. */
static const char *days(double v, double longest, char buf[32])
{
	static const struct {
		const char *unit;
		double of_day;
	} units[] = {{"", 1}, {" h", 24}, {" min", 1440}, {" s", 86400}};
	size_t u = 0;

	while (u < 3 && longest * units[u].of_day < 1)
		u++;
	v *= units[u].of_day;
	snprintf(buf, 32, isnan(v) ? "?" : v < 1 ? "%.2g%s" : v < 100 ? "%.1f%s" : "%.0f%s", v, units[u].unit);
	return buf;
}

/* From the least to the most, the unit behind both. */
static void days_range(double low, double high, char *out, size_t size)
{
	char first[32], last[32];

	days(low, high, first);
	first[strcspn(first, " ")] = 0;
	snprintf(out, size, "%s-%s", first, days(high, high, last));
}

static const char *dollars(double v, char buf[24])
{
	if (isnan(v))
		snprintf(buf, 24, "?");
	else if (v < 1000)
		snprintf(buf, 24, "%.3g", v);
	else if (v < 1e6)
		snprintf(buf, 24, v < 1e5 ? "%.1fk" : "%.0fk", v / 1e3);
	else
		snprintf(buf, 24, "%.2fM", v / 1e6);
	return buf;
}

/* Valid to the end of the block they stand in. */
#define DAYS(v) days((v), (v), (char[32]){0})
#define DOLLARS(v) dollars((v), (char[24]){0})

void oom_quote_cards(const struct oom_offers *o, const struct oom_box *x, char *text, size_t size)
{
	const char *name = o->gpus.items[x->offer->gpu].name;

	if (x->nodes > 1)
		snprintf(text, size, "%lld x %u x %s", (long long)x->nodes, x->offer->gpu_count, name);
	else
		snprintf(text, size, "%u x %s", x->offer->gpu_count, name);
}

/* What a plan's speed counts. */
const char *oom_box_speed_head(const struct oom_box *x)
{
	return x->plan->plan.seq_len > 0 ? ">tokens/s" : ">samples/s";
}

static void marks(const struct oom_box *x, char *text, size_t size)
{
	snprintf(text, size, "%s%s%s%s", x->pareto ? "*" : "", x->late ? " late" : x->may_be_late ? " late?" : "",
		 x->over_budget && !isnan(x->usd) ? " over budget" : x->may_be_over_budget ? " over budget?" : "",
		 x->stale ? " old price" : "");
}

void oom_quote_rows(const struct oom_plan *asked, const struct oom_offers *o, const struct oom_box *items,
		    size_t from, size_t to)
{
	const char *const heads[] = {"",	"provider", "instance", "machines x cards",
				     ">days",   ">GPU-h",   ">dollars", from < to ? oom_box_speed_head(&items[from]) : ">tokens/s",
				     ">MFU %",  "breaks first", "plan",  NULL};
	char text[300];
	struct oom_table t;

	oom_table_init(&t, heads);
	for (size_t i = from; i < to; i++) {
		const struct oom_box *x = &items[i];

		marks(x, text, sizeof(text));
		oom_table_cell(&t, text + (*text == ' '));
		oom_table_cell(&t, x->offer->provider);
		oom_table_cell(&t, x->offer->instance);
		oom_quote_cards(o, x, text, sizeof(text));
		oom_table_cell(&t, text);
		days_range(x->days_low, x->days_high, text, sizeof(text));
		oom_table_cell(&t, text);
		if (x->gpu_hours < 10)
			snprintf(text, sizeof(text), "%.2g", x->gpu_hours);
		else
			oom_format_count((uint64_t)x->gpu_hours, text, 32);
		oom_table_cell(&t, text);
		snprintf(text, sizeof(text), isnan(x->usd) ? "no price" : "%s-%s", DOLLARS(x->usd_low),
			 DOLLARS(x->usd_high));
		oom_table_cell(&t, text);
		oom_table_cell(&t, oom_format_count((uint64_t)x->tokens_per_s, (char[32]){0}, 32));
		snprintf(text, sizeof(text), "%.0f-%.0f", 100 * x->mfu_low, 100 * x->mfu_high);
		oom_table_cell(&t, text);
		snprintf(text, sizeof(text), "%s %.0f %%", oom_shortage_str(x->breaks_first),
			 100 * x->breaks_share);
		oom_table_cell(&t, text);
		oom_box_changes(asked, &x->plan->plan, text, sizeof(text));
		oom_table_cell(&t, *text ? text : "as asked");
	}
	oom_table_print(&t, stdout, oom_term_width());
	oom_table_release(&t);
}

void oom_quote_front(const struct oom_offers *o, const struct oom_boxes *b, int64_t top)
{
	const bool texts = b->n_points && b->points[0].plan->plan.seq_len > 0;
	const char *const heads[] = {">days", ">dollars", "provider", "instance", "machines x cards",
				     texts ? ">sequences" : ">samples", texts ? ">tokens/s" : ">samples/s", "binds", NULL};
	char text[200];
	struct oom_table t;
	size_t shown = 0, priced = 0;

	for (size_t i = 0; i < b->n_points; i++)
		priced += b->points[i].pareto && !isnan(b->points[i].usd);
	if (!priced)
		return;
	printf("\ndays against dollars: nothing is done earlier for less (%s: of a step)\n", texts ? "sequences" : "samples");
	oom_table_init(&t, heads);
	for (size_t i = 0; i < b->n_points; i++) {
		const struct oom_box *x = &b->points[i];

		if (!x->pareto || isnan(x->usd) || shown++ >= (size_t)top)
			continue;
		oom_table_cell(&t, DAYS(x->days));
		oom_table_cell(&t, DOLLARS(x->usd));
		oom_table_cell(&t, x->offer->provider);
		oom_table_cell(&t, x->offer->instance);
		oom_quote_cards(o, x, text, sizeof(text));
		oom_table_cell(&t, text);
		oom_table_cell(&t, oom_format_count((uint64_t)x->batch, (char[32]){0}, 32));
		oom_table_cell(&t, oom_format_count((uint64_t)x->tokens_per_s, (char[32]){0}, 32));
		oom_table_cell(&t, oom_bound_str(x->binds));
	}
	oom_table_print(&t, stdout, oom_term_width());
	oom_table_release(&t);
}

/* Whose rates storage and egress were priced at, and which of them nobody names. */
static void rates(const struct oom_box *first)
{
	const bool storage = !isnan(first->usd_storage), egress = !isnan(first->usd_egress);
	const char *const with = storage && egress ? "storage and egress" : storage ? "storage" : "egress",
		   *const without = storage ? "egress" : egress ? "storage" : "storage and egress";

	if (!storage || !egress)
		printf("; without %s, which nobody prices for the first", without);
	if ((storage || egress) && first->offer->rates_from_provider)
		printf("; %s at the provider's rates (data/providers.csv)", with);
}

/* Without --global-batch a step is that of one card, whatever the machine; plan gives each card of many as much. */
static void step_of_one_card(const struct oom_plan *asked, const struct oom_boxes *b)
{
	const int64_t one = asked->micro_batch * asked->grad_accum;
	bool shared = false;

	for (size_t i = 0; i < b->fitting; i++)
		shared |= b->items[i].batch == one && b->items[i].nodes * b->items[i].offer->gpu_count > 1;
	if (shared)
		printf("a step sees %lld %s on every machine, so that many cards share few: --global-batch N says another "
		       "number (plan gives each card %lld)\n", (long long)one,
		       b->items[0].plan->plan.seq_len > 0 ? "sequences" : "samples", (long long)one);
}

/* A step is what was asked only where the GPUs divide it. */
void oom_box_steps(const struct oom_plan *asked, const struct oom_boxes *b)
{
	size_t other = 0;

	if (!asked->global_batch)
		step_of_one_card(asked, b);
	for (size_t i = 0; i < b->fitting; i++)
		other += asked->global_batch && b->items[i].batch != asked->global_batch;
	if (!other)
		return;
	printf("the GPUs of %zu of these do not divide a step of %lld sequences: their steps see the nearest number that they do",
	       other, (long long)asked->global_batch);
	if (b->items[0].batch != asked->global_batch)
		printf(", the first one's %lld", (long long)b->items[0].batch);
	putchar('\n');
}

/* By which end of a range a row is late or over the budget. */
static void which_end(const struct oom_boxes *b, const struct oom_box_query *q)
{
	size_t may = 0;

	if (!(q->deadline_days > 0) && !(q->budget_usd > 0))
		return;
	for (size_t i = 0; i < b->fitting; i++)
		may += b->items[i].may_be_late || b->items[i].may_be_over_budget;
	printf("deadline and budget are held against the middle of days and dollars%s\n",
	       may ? "; ? says that the far end is beyond them" : "");
}

void oom_quote_notes(const struct oom_plan *asked, const struct oom_boxes *b, const struct oom_box_view *v)
{
	const struct oom_box *first = &b->items[0];
	const bool hourly = first->failures.interval_s >= 3600;
	size_t alone = 0;

	if (first->late || first->over_budget)
		printf("nothing is done %s%s%s: the nearest to that first\n", first->late ? "in time" : "",
		       first->late && first->over_budget ? " and " : "", first->over_budget ? "within the budget" : "");
	which_end(b, v->query);
	printf("days and dollars: 85 of 100 such runs should lie between (models/step/time/README.md)");
	if (first->failures.interval_s > 0)
		printf("; interruptions cost the first %.1f %% with a checkpoint every %.1f %s (Young, Daly; %s)",
		       100 * (first->failures.factor - 1), first->failures.interval_s / (hourly ? 3600 : 60), hourly ? "h" : "min",
		       v->query->spot ? "spot machines taken back as --spot-hours says, and failures" :
					"failures as Llama 3's, one in 50,700 GPU-hours");
	rates(first);
	putchar('\n');
	if (first->batch != asked->micro_batch * asked->grad_accum && !asked->global_batch)
		printf("a step of the first sees %lld sequences, %lld as asked on one GPU: --global-batch N keeps a step as it "
		       "is, whatever the machine\n",
		       (long long)first->batch, (long long)(asked->micro_batch * asked->grad_accum));
	for (size_t i = 0; i < b->fitting; i++)
		alone += !b->items[i].offer->clusters;
	if (v->query->max_nodes > 1 && alone)
		printf("%zu of these stand alone: no network between such machines is known, or a market lets "
		       "them (network_gbps of a list names it)\n", alone);
}

/* ---- the picture ---- */

enum { WIDTH = 900, HEIGHT = 560, LEFT = 90, RIGHT = 30, TOP = 60, BOTTOM = 60 };

struct axes {
	double days_low, days_high, usd_low, usd_high;
};

static double x_of(const struct axes *a, double v)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * log(v / a->days_low) / log(a->days_high / a->days_low);
}

static double y_of(const struct axes *a, double v)
{
	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * log(v / a->usd_low) / log(a->usd_high / a->usd_low);
}

static bool drawn(const struct oom_box *x)
{
	return x->usd > 0 && x->days > 0 && isfinite(x->usd) && isfinite(x->days);
}

static void ticks(FILE *out, const struct axes *a)
{
	static const double steps[] = {1, 2, 5};

	for (int e = -6; e < 14; e++)
		for (size_t i = 0; i < 3; i++) {
			const double v = steps[i] * pow(10, e);

			if (v >= a->days_low && v <= a->days_high) {
				oom_svg_line(out, x_of(a, v), TOP, x_of(a, v), HEIGHT - BOTTOM, "#e6e6e6", NULL);
				oom_svg_text(out, x_of(a, v), HEIGHT - BOTTOM + 18, 12, OOM_ANCHOR_MIDDLE,
					     OOM_SVG_INK, "%g", v);
			}
			if (v >= a->usd_low && v <= a->usd_high) {
				oom_svg_line(out, LEFT, y_of(a, v), WIDTH - RIGHT, y_of(a, v), "#e6e6e6", NULL);
				oom_svg_text(out, LEFT - 8, y_of(a, v) + 4, 12, OOM_ANCHOR_END, OOM_SVG_INK, "%s",
					     DOLLARS(v));
			}
		}
}

/* Everything that was tried as dots, the front as a line with names. */
static void draw(FILE *out, const struct oom_offers *o, const struct oom_boxes *b, const struct axes *a)
{
	const struct oom_box *last = NULL;
	char text[400], where[120];

	for (size_t i = 0; i < b->n_points; i++) {
		const struct oom_box *x = &b->points[i];
		double r = x->pareto ? 4 : 2;

		if (!drawn(x))
			continue;
		oom_quote_cards(o, x, where, sizeof(where));
		snprintf(text, sizeof(text), "%s %s, %s: %s days, %s $", x->offer->provider, x->offer->instance,
			 where, DAYS(x->days), DOLLARS(x->usd));
		if (x->pareto && last)
			oom_svg_line(out, x_of(a, last->days), y_of(a, last->usd), x_of(a, x->days),
				     y_of(a, x->usd), "#0072b2", NULL);
		oom_svg_rect(out, x_of(a, x->days) - r, y_of(a, x->usd) - r, 2 * r, 2 * r,
			     x->stale ? "#bdbdbd" : x->pareto ? "#0072b2" : "#e69f00", text);
		if (x->pareto) {
			oom_svg_text(out, x_of(a, x->days) + 7, y_of(a, x->usd) - 6, 11, OOM_ANCHOR_START,
				     OOM_SVG_INK, "%s", where);
			last = x;
		}
	}
}

static void quote_svg(FILE *out, const struct oom_offers *o, const struct oom_boxes *b, const struct oom_box_query *q)
{
	struct axes a = {INFINITY, 0, INFINITY, 0};

	for (size_t i = 0; i < b->n_points; i++) {
		const struct oom_box *x = &b->points[i];

		if (!drawn(x))
			continue;
		a.days_low = fmin(a.days_low, x->days / 1.3);
		a.days_high = fmax(a.days_high, x->days * 1.6);
		a.usd_low = fmin(a.usd_low, x->usd / 1.3);
		a.usd_high = fmax(a.usd_high, x->usd * 1.3);
	}
	oom_svg_begin(out, WIDTH, HEIGHT, "days against dollars");
	oom_svg_text(out, LEFT, 28, 15, OOM_ANCHOR_START, OOM_SVG_INK,
		     "%.4g billion tokens: days against dollars, %s prices", q->tokens / 1e9,
		     q->spot ? "spot" : "on-demand");
	oom_svg_text(out, LEFT, 46, 11, OOM_ANCHOR_START, OOM_SVG_INK,
		     "blue: nothing is done earlier for less; grey: prices older than a year; estimates");
	if (a.days_high > 0) {
		ticks(out, &a);
		if (q->deadline_days > a.days_low && q->deadline_days < a.days_high)
			oom_svg_line(out, x_of(&a, q->deadline_days), TOP, x_of(&a, q->deadline_days),
				     HEIGHT - BOTTOM, "#b00020", "4 3");
		if (q->budget_usd > a.usd_low && q->budget_usd < a.usd_high)
			oom_svg_line(out, LEFT, y_of(&a, q->budget_usd), WIDTH - RIGHT, y_of(&a, q->budget_usd),
				     "#b00020", "4 3");
		draw(out, o, b, &a);
	}
	oom_svg_text(out, WIDTH / 2.0, HEIGHT - 16, 12, OOM_ANCHOR_MIDDLE, OOM_SVG_INK, "days");
	oom_svg_text(out, 16, 46, 12, OOM_ANCHOR_START, OOM_SVG_INK, "dollars");
	oom_svg_end(out);
}

enum oom_status oom_quote_svg(const char *path, const struct oom_offers *o, const struct oom_boxes *b,
			      const struct oom_box_query *q, struct oom_error *err)
{
	struct oom_out out;
	const enum oom_status st = oom_out_open(&out, path, err);

	if (st)
		return st;
	quote_svg(out.file, o, b, q);
	return oom_out_close(&out, err);
}
