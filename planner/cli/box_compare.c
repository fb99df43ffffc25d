/* --compare: two rows of the quote beside each other.
 *
 * A side is words: an instance ("p5.48xlarge", "aws:p5.48xlarge"), knobs that differ from the plan asked for
 * ("lora-r=16 grad-ckpt=full"), both, or "asked" for the plan as it is.  Without an instance it is the row that
 * leads for its plan. */
#include <math.h>
#include <string.h>

#include "box_out.h"
#include "table.h"
#include "term.h"

struct side {
	char title[120], instance[100];
	struct oom_plan plan;
	bool other_plan;                /* knobs were given: its boxes are its own */
	struct oom_boxes own;
	const struct oom_boxes *boxes;
	const struct oom_box *row;
};

static const struct oom_box *named(const struct oom_boxes *b, const char *word)
{
	for (size_t i = 0; i < b->fitting; i++) {
		const struct oom_offer *f = b->items[i].offer;
		char full[100];

		snprintf(full, sizeof(full), "%s:%s", f->provider, f->instance);
		if (!*word || oom_same_word(word, f->instance) || oom_same_word(word, full))
			return &b->items[i];
	}
	return NULL;
}

static enum oom_status set(struct side *s, char *word, struct oom_error *err)
{
	char *value = strchr(word, '=');
	const struct oom_option *knob;

	if (!value) {
		if (!oom_same_word(word, "asked"))
			snprintf(s->instance, sizeof(s->instance), "%s", word);
		return OOM_OK;
	}
	*value++ = 0;
	knob = oom_knob_find(word);
	if (!knob)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "no knob is called \"%s\" (oomplan list knobs)", word);
	s->other_plan = true;
	return oom_plan_set(&s->plan, knob, value, err);
}

static enum oom_status read_side(const char *text, size_t n, struct side *s, struct oom_error *err)
{
	char words[300], *at = words;
	enum oom_status st = OOM_OK;

	snprintf(s->title, sizeof(s->title), "%.*s", (int)(n < sizeof(s->title) - 1 ? n : sizeof(s->title) - 1), text);
	snprintf(words, sizeof(words), "%.*s", (int)(n < sizeof(words) - 1 ? n : sizeof(words) - 1), text);
	while (!st && *(at += strspn(at, " "))) {
		char *end = at + strcspn(at, " ");
		const bool last = !*end;

		*end = 0;
		st = set(s, at, err);
		at = last ? end : end + 1;
	}
	return st;
}

/* Both as the format says, with three digits where one of them would be left with fewer than two. */
static void pair(struct oom_table *t, const char *what, double a, double b, const char *format)
{
	char text[60];

	if (fmin(a, b) > 0 && fmin(a, b) < 10)
		format = "%.3g";
	oom_table_cell(t, what);
	snprintf(text, sizeof(text), format, a);
	oom_table_cell(t, isnan(a) ? "?" : text);
	snprintf(text, sizeof(text), format, b);
	oom_table_cell(t, isnan(b) ? "?" : text);
	snprintf(text, sizeof(text), "%.2f", b / a);
	oom_table_cell(t, isfinite(b / a) ? text : "");
}

static void words(struct oom_table *t, const char *what, const char *a, const char *b)
{
	oom_table_cell(t, what);
	oom_table_cell(t, a);
	oom_table_cell(t, b);
	oom_table_cell(t, "");
}

static double part_used(const struct oom_offers *o, const struct oom_box *x)
{
	return 100 * (double)x->plan->used_bytes / (double)o->gpus.items[x->offer->gpu].capacity_bytes;
}

static void print(const struct oom_offers *o, const struct oom_plan *asked, const struct side s[2])
{
	const struct oom_box *x = s[0].row, *y = s[1].row;
	const char *const heads[] = {"", s[0].title, s[1].title, "second / first", NULL};
	char a[300], c[300];
	struct oom_table t;

	oom_table_init(&t, heads);
	snprintf(a, sizeof(a), "%s %s", x->offer->provider, x->offer->instance);
	snprintf(c, sizeof(c), "%s %s", y->offer->provider, y->offer->instance);
	words(&t, "machine", a, c);
	oom_quote_cards(o, x, a, sizeof(a));
	oom_quote_cards(o, y, c, sizeof(c));
	words(&t, "machines x cards", a, c);
	pair(&t, "days", x->days, y->days, "%.2f");
	pair(&t, "  at least", x->days_low, y->days_low, "%.2f");
	pair(&t, "  at most", x->days_high, y->days_high, "%.2f");
	pair(&t, "GPU-hours", x->gpu_hours, y->gpu_hours, "%.0f");
	pair(&t, "dollars", x->usd, y->usd, "%.0f");
	pair(&t, "  at least", x->usd_low, y->usd_low, "%.0f");
	pair(&t, "  at most", x->usd_high, y->usd_high, "%.0f");
	pair(&t, "  for storage", x->usd_storage, y->usd_storage, "%.0f");
	pair(&t, "  for egress", x->usd_egress, y->usd_egress, "%.0f");
	pair(&t, "dollars per hour", x->usd_h, y->usd_h, "%.2f");
	pair(&t, oom_box_speed_head(x) + 1, x->tokens_per_s, y->tokens_per_s, "%.0f");
	pair(&t, "MFU %", 100 * x->mfu, 100 * y->mfu, "%.1f");
	pair(&t, "GPU memory used %", part_used(o, x), part_used(o, y), "%.0f");
	pair(&t, "lost to interruptions %", 100 * (x->failures.factor - 1), 100 * (y->failures.factor - 1), "%.2f");
	words(&t, "binds", oom_bound_str(x->binds), oom_bound_str(y->binds));
	oom_table_print(&t, stdout, 0);
	oom_table_release(&t);
	oom_box_changes(asked, &x->plan->plan, a, sizeof(a));
	oom_box_changes(asked, &y->plan->plan, c, sizeof(c));
	printf("plan of the first: %s\nplan of the second: %s\n", *a ? a : "as asked", *c ? c : "as asked");
	if (x->days >= y->days && x->days <= y->days)
		return;         /* the same plan on the same cards */
	if (x->days_low <= y->days_high && y->days_low <= x->days_high)
		printf("which of them is done first is not known: the intervals overlap\n");
}

static enum oom_status price(const struct oom_offers *o, const struct oom_model *model,
			     const struct oom_box_query *q, const struct oom_boxes *asked, struct side *s,
			     struct oom_error *err)
{
	char note[300];
	enum oom_status st = OOM_OK;

	s->boxes = asked;
	if (s->other_plan) {
		oom_plan_settle_for(&s->plan, model, note);
		st = oom_boxes_find(o, model, &s->plan, q, &s->own, err);
		s->boxes = &s->own;
	}
	if (!st)
		s->row = named(s->boxes, s->instance);
	return st;
}

int oom_box_compare(const char *text, const struct oom_target *t, const struct oom_offers *o,
		    const struct oom_boxes *boxes, const struct oom_box_query *q)
{
	const char *comma = strchr(text, ',');
	struct side s[2] = {{.plan = t->q.plan}, {.plan = t->q.plan}};
	struct oom_error err = {{0}};
	enum oom_status st = read_side(text, (size_t)(comma - text), &s[0], &err);
	int code = 0;

	if (!st)
		st = read_side(comma + 1, strlen(comma + 1), &s[1], &err);
	if (st)
		return oom_complain(OOM_EXIT_USAGE, "--compare: %s", err.text);
	for (int i = 0; i < 2 && !st; i++)
		st = price(o, t->model, q, boxes, &s[i], &err);
	for (int i = 0; i < 2 && !st && !code; i++)
		if (!s[i].row)
			code = oom_complain(OOM_EXIT_USAGE, *s[i].instance ?
					    "--compare: no offer that fits is called \"%s\"; its names stand in "
					    "the report's column instance" :
					    "--compare: \"%s\" fits on no offer",
					    oom_shown(*s[i].instance ? s[i].instance : s[i].title));
	if (st)
		code = oom_failed(st, &err);
	else if (!code)
		print(o, &t->q.plan, s);
	oom_boxes_release(&s[0].own);
	oom_boxes_release(&s[1].own);
	return code;
}
