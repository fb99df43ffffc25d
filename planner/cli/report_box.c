/* Boxes for people: what fits, what it costs, what the rest is short of. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "box_out.h"
#include "table.h"
#include "term.h"

static const char *money_text(double v, char buf[24])
{
	snprintf(buf, 24, isnan(v) ? "?" : v < 10 ? "%.3f" : "%.2f", v);
	return buf;
}
/* Valid to the end of the block it stands in. */
#define money(v) money_text((v), (char[24]){0})

void oom_box_changes(const struct oom_plan *asked, const struct oom_plan *p, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; oom_knob_at(i) && n < size; i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE];

		if (!oom_box_is_hardware(k) && !oom_plan_alike(p, asked, k))
			n += (size_t)snprintf(out + n, size - n, "%s%s=%s", n ? " " : "", k->name,
					      oom_plan_get(p, k, a, sizeof(a)));
	}
}
static void rows(const struct oom_plan *asked, const struct oom_offers *o, const struct oom_boxes *b,
		 size_t from, size_t to)
{
	const bool texts = from >= to || b->items[from].plan->plan.seq_len > 0;
	const char *const heads[] = {"",	    "provider",	  "instance", "cards", "$/h",
				     "spot", texts ? "$/M tokens" : "$/M samples", texts ? "tokens/s" : "samples/s", "plan",  NULL};
	char text[300], count[32];
	struct oom_table t;

	oom_table_init(&t, heads);
	for (size_t i = from; i < to; i++) {
		const struct oom_box *x = &b->items[i];

		oom_table_cell(&t, x->stale ? (x->pareto ? "* old price" : "old price") : x->pareto ? "*" : "");
		oom_table_cell(&t, x->offer->provider);
		oom_table_cell(&t, x->offer->instance);
		snprintf(text, sizeof(text), "%lld x %s",
			 (long long)(x->offer->gpu_count * (uint64_t)x->nodes),
			 o->gpus.items[x->offer->gpu].name);
		oom_table_cell(&t, text);
		oom_table_cell(&t, money(x->offer->ondemand_usd_h * (double)x->nodes));
		oom_table_cell(&t, money(x->offer->spot_usd_h * (double)x->nodes));
		oom_table_cell(&t, money(x->usd_per_mtokens));
		oom_table_cell(&t,
			       oom_format_count((uint64_t)x->tokens_per_s, count, sizeof(count)));
		oom_box_changes(asked, &x->plan->plan, text, sizeof(text));
		oom_table_cell(&t, *text ? text : "as asked");
	}
	oom_table_print(&t, stdout, oom_term_width());
	oom_table_release(&t);
}

/* What is short, and what would have to change. */
static void missing(const struct oom_plan *asked, const struct oom_box *x)
{
	static const struct {
		size_t offset;
		const char *what, *knob;
	} parts[] = {{offsetof(struct oom_host_need, loading), "loading",
		      "fewer ranks that load at once"},
		     {offsetof(struct oom_host_need, pinned), "offloaded state",
		      "no offload: more or larger cards"},
		     {offsetof(struct oom_host_need, pageable), "offloaded state",
		      "no offload: more or larger cards"},
		     {offsetof(struct oom_host_need, saving), "saving", "sharded checkpoints"},
		     {offsetof(struct oom_host_need, processes), "the processes themselves",
		      "fewer cards per machine"}};
	uint64_t most = 0;
	size_t which = 0;
	char text[300];

	if (x->shortage == OOM_BOX_FITS) {
		oom_box_changes(asked, &x->plan->plan, text, sizeof(text));
		printf("fits only with %s: CHANGES THE SCIENCE", text);
		return;
	}
	printf("short of %s%s%s", oom_shortage_str(x->shortage), x->short_bytes ? " by " : "",
	       x->short_bytes ? oom_gib(x->short_bytes) : "");
	if (x->shortage == OOM_BOX_VRAM)
		printf(", even with every fix that may be taken and those that change the science; more or "
		       "larger cards");
	if (x->shortage == OOM_BOX_LAYOUT)
		printf(": the plan cannot be laid out over these cards");
	if (x->shortage == OOM_BOX_FABRIC)
		printf(": no network between such machines is known (network_gbps of a list names it)");
	if (x->shortage == OOM_BOX_BATCH)
		printf(": a step has fewer sequences than these GPUs have ranks; a larger --global-batch, or fewer GPUs");
	if (x->shortage == OOM_BOX_DISK)
		printf(": fewer checkpoints kept, or a larger disk beside it");
	if (x->shortage != OOM_BOX_RAM)
		return;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		const uint64_t bytes = *(const uint64_t *)(const void *)((const char *)&x->need +
									 parts[i].offset);

		if (bytes > most) {
			most = bytes;
			which = i;
		}
	}
	printf(": most goes to %s (%s): %s", parts[which].what, oom_gib(most), parts[which].knob);
}

static double size_of(const struct oom_offers *o, const struct oom_box *x)
{
	return (double)x->offer->gpu_count * o->gpus.items[x->offer->gpu].memory_gb;
}

/* The largest machine of a provider that does not do as it is, and costs no more than the one
 * that does. */
static const struct oom_box *one_smaller(const struct oom_offers *o, const struct oom_boxes *b,
					 const struct oom_box *fits)
{
	const struct oom_box *found = NULL;

	for (size_t i = b->fitting; i < b->n; i++) {
		const struct oom_box *x = &b->items[i];

		if (strcmp(x->offer->provider, fits->offer->provider) || !(x->usd_h <= fits->usd_h))
			continue;
		if (!found || size_of(o, x) > size_of(o, found) ||
		    (size_of(o, x) >= size_of(o, found) && x->usd_h < found->usd_h))
			found = x;
	}
	return found;
}

static void smaller_text(const struct oom_plan *asked, const struct oom_offers *o,
			 const struct oom_boxes *b, const struct oom_box *fits)
{
	const struct oom_box *x = one_smaller(o, b, fits);

	if (!x)
		return;
	printf("    one size smaller, %s (%u x %s, %s $/h): ", x->offer->instance,
	       x->offer->gpu_count, o->gpus.items[x->offer->gpu].name, money(x->usd_h));
	missing(asked, x);
	putchar('\n');
}

/* Nothing fits: the nearest misses. */
static void nearest_misses(const struct oom_plan *asked, const struct oom_offers *o,
			   const struct oom_boxes *b)
{
	printf("\nthe nearest misses\n");
	for (size_t i = 0; i < b->n && i < 6; i++) {
		const struct oom_box *x = &b->items[i];

		printf("  %s %s (%u x %s): ", x->offer->provider, x->offer->instance,
		       x->offer->gpu_count, o->gpus.items[x->offer->gpu].name);
		missing(asked, x);
		putchar('\n');
	}
}

/* The first PROVIDERS of them; a list of more is cut, and says so. */
static void smallest(const struct oom_plan *asked, const struct oom_offers *o,
		     const struct oom_boxes *b)
{
	enum { PROVIDERS = 64 };
	const struct oom_box *best[PROVIDERS];
	size_t n = 0;
	bool cut = false;

	for (size_t i = 0; i < b->fitting; i++) {
		const struct oom_box *x = &b->items[i];
		size_t at = 0;

		if (isnan(x->usd_h))
			continue;
		while (at < n && strcmp(best[at]->offer->provider, x->offer->provider))
			at++;
		if (at == PROVIDERS) {
			cut = true;
			continue;
		}
		if (at == n || x->usd_h < best[at]->usd_h)
			best[at] = x;
		n += at == n;
	}
	printf("\nthe cheapest per hour of each provider\n");
	for (size_t i = 0; i < n; i++) {
		const char *date = best[i]->offer->price_date;
		const long age = oom_price_age_days(date);

		printf("  %-12s %-32s %s $/h on demand, %s spot%s (price ",
		       best[i]->offer->provider, best[i]->offer->instance,
		       money(best[i]->offer->ondemand_usd_h), money(best[i]->offer->spot_usd_h),
		       best[i]->nodes > 1 ? " per machine" : "");
		if (*date && age >= 0)
			printf("of %s, %ld days old)\n", date, age);
		else
			printf("of %s)\n", *date ? date : "an unknown date");
		smaller_text(asked, o, b, best[i]);
	}
	if (cut)
		printf("  (more providers than %d: the rest is not shown)\n", PROVIDERS);
}

static void needs(const struct oom_boxes *b)
{
	const struct oom_host_need *n = &b->items[0].need;

	printf("\nthe first one needs per node: %s of host RAM (processes %s, loading %s, offloaded %s, "
	       "loader %s, saving %s)\n",
	       oom_gib(n->ram_peak), oom_gib(n->processes), oom_gib(n->loading), oom_gib(n->pinned + n->pageable),
	       oom_gib(n->loader), oom_gib(n->saving));
	printf("  and %s of disk (a checkpoint is %s, the hub cache %s)\n", oom_gib(n->disk_peak),
	       oom_gib(n->checkpoint), oom_gib(n->hub_cache));
	if (isnan(b->items[0].usd_per_ksamples))
		return;
	if (b->items[0].plan->plan.seq_len > 0)
		printf("  a thousand samples of %lld tokens cost $%s there; %s binds\n",
		       (long long)b->items[0].plan->plan.seq_len, money(b->items[0].usd_per_ksamples),
		       oom_bound_str(b->items[0].binds));
	else    /* of images, of which thousands cost less than a cent */
		printf("  its samples are no texts: --tokens counts samples, of which a million cost $%s there; %s binds\n",
		       money(1000 * b->items[0].usd_per_ksamples), oom_bound_str(b->items[0].binds));
}

/* Nothing is left out in silence. */
void oom_box_left_out(const struct oom_offers *o)
{
	const struct {
		size_t n;
		const char *what;
	} counts[] = {{o->no_gpu, "without a GPU"},
		      {o->shares, "shares of a card, without a usable count or a machine"},
		      {o->malformed, "that are no offers"},
		      {o->unavailable, "that cannot be had now, as they say"},
		      {o->duplicates, "folded into another of the same machine and region"},
		      {o->bad_price, "with an absurd price, left unpriced"},
		      {o->bad_number, "with figures that are no numbers"}};
	char line[1100] = "", whole[450] = "";
	size_t n = 0;

	for (size_t i = 0; i < o->n_unknown; i++)
		n += (size_t)snprintf(line + n, n < sizeof(line) ? sizeof(line) - n : 0, "%s%s%s%s%s", i ? ", " : "", o->unknown[i],
				      *o->nearest[i] ? " (nearest " : "", o->nearest[i], *o->nearest[i] ? ")" : "");
	if (o->unknown_gpu)
		oom_complain(0, "%zu row%s of cards that the table does not know set aside: %s%s", o->unknown_gpu,
			     o->unknown_gpu == 1 ? "" : "s", line,
			     o->n_unknown == sizeof(o->unknown) / sizeof(o->unknown[0]) ? ", ..." : "");
	if (o->unsaid_form)
		oom_complain(0, "%zu of the rows do not say whether their cards are PCIe or SXM: eight or more in a machine were taken "
			     "as SXM, fewer as PCIe, which is slower", o->unsaid_form);
	n = 0;
	for (size_t i = 0; i < o->n_share; i++)
		n += (size_t)snprintf(whole + n, sizeof(whole) - n, "%s%s", i ? ", " : " (", o->share[i]);
	if (n)
		snprintf(whole + n, sizeof(whole) - n, "%s)", o->shares > o->n_share ? ", ..." : "");
	n = 0;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i].n)
			n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%zu %s%s", n ? ", " : "", counts[i].n,
					      counts[i].what, i == 1 ? whole : "");
	if (n)
		oom_complain(0, "of %zu rows: %s", o->rows, line);
}

void oom_box_text(const struct oom_job *job, const struct oom_target *t,
		  const struct oom_offers *o, const struct oom_boxes *b,
		  const struct oom_box_view *v)
{
	const struct oom_plan *asked = &t->q.plan;
	size_t science = b->fitting;

	printf("%zu of %zu offers fit (%zu kinds of hardware searched; prices are a snapshot, "
	       "speeds estimates)\n",
	       b->fitting, b->n, b->priced_groups);
	if (b->fitting) {
		const size_t shown = b->fitting < (size_t)v->top ? b->fitting : (size_t)v->top;

		if (v->tokens > 0)
			oom_quote_rows(asked, o, b->items, 0, shown);
		else
			rows(asked, o, b, 0, shown);
		printf(v->tokens > 0 ? "* nothing that was tried, on any number of machines, costs less and is done earlier\n" :
				       "* nothing is both cheaper per hour and faster\n");
		if (v->tokens > 0)
			oom_quote_notes(asked, b, v);
		oom_box_steps(asked, b);
	}
	while (science < b->n && b->items[science].shortage == OOM_BOX_FITS)
		science++;
	if (science > b->fitting) {
		printf("\nonly if you accept a change of the science (--allow science):\n");
		rows(asked, o, b, b->fitting, science < b->fitting + 5 ? science : b->fitting + 5);
	}
	if (!job->quiet && b->fitting) {
		if (v->tokens > 0)
			oom_quote_front(o, b, v->top);
		else
			smallest(asked, o, b);
		needs(b);
	}
	if (!b->n)
		printf("of %zu offers none is left by --gpu, --provider and --max-price; --boxes FILE adds others\n", o->n);
	else if (!job->quiet && !b->fitting)
		nearest_misses(asked, o, b);
}
