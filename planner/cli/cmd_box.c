/* oomplan box: which machine to rent. */
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "csvout.h"
#include "json.h"
#include "oomplan/box.h"
#include "table.h"
#include "term.h"

static const char *const rank_words[] = {"tokens", "hour", "time", "science", NULL};
static const char *const emit_words[] = {"none", "skypilot", "dstack", NULL};
static const char *const allow_words[] = {"seq-len", "lora", "science", NULL};
static struct oom_list lists, allow;
static const char *providers, *max_price, *headroom, *tokens;
static bool spot, own_only;
static int rank, emit;
static int64_t top = 12, max_nodes = 1;

static const char *money(double v)
{
	static char buf[4][24];
	static int i;

	i = (i + 1) % 4;
	snprintf(buf[i], sizeof(buf[i]), isnan(v) ? "?" : v < 10 ? "%.3f" : "%.2f", v);
	return buf[i];
}

static const char *gib(uint64_t bytes)
{
	static char buf[6][32];
	static int i;

	i = (i + 1) % 6;
	return oom_format_bytes(bytes, buf[i], sizeof(buf[i]));
}

/* What stands in columns of its own, or follows from the card. */
static bool is_hardware(const struct oom_knob *k)
{
	return !strcmp(k->name, "gpus") || !strcmp(k->name, "nodes") ||
	       !strcmp(k->name, "compute-capability");
}

static void knobs_of(const struct oom_plan *asked, const struct oom_plan *p, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; oom_knob_at(i) && n < size; i++) {
		const struct oom_knob *k = oom_knob_at(i);
		char a[140], b[140];

		oom_plan_get(p, k, a, sizeof(a));
		oom_plan_get(asked, k, b, sizeof(b));
		if (strcmp(a, b) && !is_hardware(k))
			n += (size_t)snprintf(out + n, size - n, "%s%s=%s", n ? " " : "", k->name,
					      a);
	}
}

/* ---- text ---- */

static void rows(const struct oom_job *job, const struct oom_offers *o, const struct oom_boxes *b,
		 size_t from, size_t to)
{
	static const char *const heads[] = {"",	    "provider",	  "instance", "cards", "$/h",
					    "spot", "$/M tokens", "tokens/s", "plan",  NULL};
	char text[300], count[32];
	struct oom_table t;

	oom_table_init(&t, heads);
	for (size_t i = from; i < to; i++) {
		const struct oom_box *x = &b->items[i];

		oom_table_cell(&t, x->pareto ? "*" : "");
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
		knobs_of(&job->plan, &x->plan.plan, text, sizeof(text));
		oom_table_cell(&t, *text ? text : "as asked");
	}
	oom_table_print(&t, stdout, oom_term_width());
	oom_table_release(&t);
}

/* What is short, and what would have to change. */
static void missing(const struct oom_job *job, const struct oom_box *x)
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
		      "fewer cards a machine"}};
	uint64_t most = 0;
	size_t which = 0;
	char text[300];

	if (x->shortage == OOM_BOX_FITS) {
		knobs_of(&job->plan, &x->plan.plan, text, sizeof(text));
		printf("fits only with %s: CHANGES THE SCIENCE", text);
		return;
	}
	printf("short of %s%s%s", oom_shortage_str(x->shortage), x->short_bytes ? " by " : "",
	       x->short_bytes ? gib(x->short_bytes) : "");
	if (x->shortage == OOM_BOX_VRAM)
		printf(", with every fix that may be taken and those of the science; more cards or "
		       "larger ones");
	if (x->shortage == OOM_BOX_LAYOUT)
		printf(": the plan cannot be laid out over these cards");
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
	printf(": most goes to %s (%s): %s", parts[which].what, gib(most), parts[which].knob);
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

static void smaller_text(const struct oom_job *job, const struct oom_offers *o,
			 const struct oom_boxes *b, const struct oom_box *fits)
{
	const struct oom_box *x = one_smaller(o, b, fits);

	if (!x)
		return;
	printf("    one size smaller, %s (%u x %s, %s $/h): ", x->offer->instance,
	       x->offer->gpu_count, o->gpus.items[x->offer->gpu].name, money(x->usd_h));
	missing(job, x);
	putchar('\n');
}

/* Nothing fits: the nearest misses. */
static void nearest_misses(const struct oom_job *job, const struct oom_offers *o,
			   const struct oom_boxes *b)
{
	printf("\nthe nearest misses\n");
	for (size_t i = 0; i < b->n && i < 6; i++) {
		const struct oom_box *x = &b->items[i];

		printf("  %s %s (%u x %s): ", x->offer->provider, x->offer->instance,
		       x->offer->gpu_count, o->gpus.items[x->offer->gpu].name);
		missing(job, x);
		putchar('\n');
	}
}

/* The first PROVIDERS of them; a list of more is cut, and says so. */
static void smallest(const struct oom_job *job, const struct oom_offers *o,
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
	printf("\nthe cheapest an hour of each provider\n");
	for (size_t i = 0; i < n; i++) {
		printf("  %-12s %-32s %s $/h on demand, %s spot%s (price of %s, %ld days old)\n",
		       best[i]->offer->provider, best[i]->offer->instance,
		       money(best[i]->offer->ondemand_usd_h), money(best[i]->offer->spot_usd_h),
		       best[i]->nodes > 1 ? " a machine" : "",
		       *best[i]->offer->price_date ? best[i]->offer->price_date : "?",
		       oom_price_age_days(best[i]->offer->price_date));
		smaller_text(job, o, b, best[i]);
	}
	if (cut)
		printf("  (more providers than %d: the rest is not shown)\n", PROVIDERS);
}

static void budget(const struct oom_boxes *b)
{
	const double n = tokens ? strtod(tokens, NULL) * (strchr(tokens, 'B') ? 1e9 :
							  strchr(tokens, 'M') ? 1e6 :
							  strchr(tokens, 'T') ? 1e12 :
										1) :
				  0;

	if (!(n > 0) || !b->fitting)
		return;
	printf("\n%s tokens on the first: %.0f hours, %s $\n", tokens,
	       n / b->items[0].tokens_per_s / 3600, money(n / 1e6 * b->items[0].usd_per_mtokens));
}

static void needs(const struct oom_boxes *b)
{
	const struct oom_host_need *n = &b->items[0].need;

	printf("\nthe first needs, a node: %s host RAM (processes %s, loading %s, offloaded %s, "
	       "loader %s, saving %s)\n",
	       gib(n->ram_peak), gib(n->processes), gib(n->loading), gib(n->pinned + n->pageable),
	       gib(n->loader), gib(n->saving));
	printf("  and %s disk (a checkpoint is %s, the hub cache %s)\n", gib(n->disk_peak),
	       gib(n->checkpoint), gib(n->hub_cache));
}

/* Nothing is left out in silence. */
static void left_out(const struct oom_offers *o)
{
	const struct {
		size_t n;
		const char *what;
	} counts[] = {{o->no_gpu, "without a GPU"},
		      {o->shares, "shares of a card or without a usable count"},
		      {o->malformed, "no offers"},
		      {o->duplicates, "folded into another of the same machine and region"},
		      {o->bad_price, "with an absurd price, left unpriced"},
		      {o->bad_number, "figures that are no numbers"}};
	char line[400] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i].n)
			n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%zu %s", n ? ", " : "",
					      counts[i].n, counts[i].what);
	if (n)
		oom_complain(0, "of %zu rows: %s", o->rows, line);
}

static void text(const struct oom_job *job, const struct oom_offers *o, const struct oom_boxes *b)
{
	size_t science = b->fitting;

	printf("%zu of %zu offers fit (%zu kinds of hardware searched; prices are a snapshot, "
	       "speeds a roofline guess within a factor of %.1f)\n",
	       b->fitting, b->n, b->priced_groups, OOM_STEP_ERROR);
	if (b->fitting) {
		rows(job, o, b, 0, b->fitting < (size_t)top ? b->fitting : (size_t)top);
		printf("* nothing is both cheaper an hour and faster\n");
	}
	while (science < b->n && b->items[science].shortage == OOM_BOX_FITS)
		science++;
	if (science > b->fitting) {
		printf("\nonly if you accept a change of the science (--allow science):\n");
		rows(job, o, b, b->fitting, science < b->fitting + 5 ? science : b->fitting + 5);
	}
	if (!job->quiet && b->fitting) {
		smallest(job, o, b);
		needs(b);
		budget(b);
	}
	if (!job->quiet && !b->fitting)
		nearest_misses(job, o, b);
	if (o->unknown_gpu)
		oom_complain(0,
			     "%zu rows of cards the table does not know were kept aside: %s%s%s%s",
			     o->unknown_gpu, o->unknown[0], *o->nearest[0] ? " (nearest " : "",
			     o->nearest[0], *o->nearest[0] ? ")" : "");
	left_out(o);
}

/* ---- machine output ---- */

/* The knobs in which its plan differs from the one asked for; none when no plan fits. */
static void changes_json(struct oom_json *j, const struct oom_plan *asked, const struct oom_box *x)
{
	oom_json_object(j, "changes");
	for (size_t i = 0; x->plan.used_bytes && oom_knob_at(i); i++) {
		const struct oom_knob *k = oom_knob_at(i);
		char a[140], b[140];

		oom_plan_get(&x->plan.plan, k, a, sizeof(a));
		oom_plan_get(asked, k, b, sizeof(b));
		if (strcmp(a, b) && !is_hardware(k))
			oom_json_text(j, k->column, a);
	}
	oom_json_end(j);
}

static void json(const struct oom_plan *asked, const struct oom_target *t,
		 const struct oom_offers *o, const struct oom_boxes *b)
{
	struct oom_json j = {.out = stdout};

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-box/1");
	oom_json_uint(&j, "offers", b->n);
	oom_json_uint(&j, "fitting", b->fitting);
	oom_json_array(&j, "boxes");
	for (size_t i = 0; i < b->n; i++) {
		const struct oom_box *x = &b->items[i];

		oom_json_object(&j, NULL);
		oom_json_text(&j, "provider", x->offer->provider);
		oom_json_text(&j, "instance", x->offer->instance);
		oom_json_text(&j, "region", x->offer->region);
		oom_json_text(&j, "gpu", o->gpus.items[x->offer->gpu].name);
		oom_json_uint(&j, "gpu_count", x->offer->gpu_count);
		oom_json_int(&j, "nodes", x->nodes);
		oom_json_text(&j, "shortage", x->shortage ? oom_shortage_str(x->shortage) : NULL);
		oom_json_uint(&j, "short_bytes", x->short_bytes);
		oom_json_bool(&j, "needs_science", x->needs_science);
		oom_json_bool(&j, "pareto", x->pareto);
		oom_json_real(&j, "usd_per_hour", x->usd_h);
		oom_json_real(&j, "usd_per_million_tokens", x->usd_per_mtokens);
		oom_json_real(&j, "ondemand_usd_per_hour",
			      x->offer->ondemand_usd_h * (double)x->nodes);
		oom_json_real(&j, "spot_usd_per_hour", x->offer->spot_usd_h * (double)x->nodes);
		oom_json_real(&j, "ondemand_usd_per_million_tokens", x->ondemand_usd_per_mtokens);
		oom_json_real(&j, "spot_usd_per_million_tokens", x->spot_usd_per_mtokens);
		oom_json_real(&j, "tokens_per_second", x->tokens_per_s);
		oom_json_text(&j, "price_date", x->offer->price_date);
		changes_json(&j, asked, x);
		oom_json_uint(&j, "used_bytes", x->plan.used_bytes);
		oom_json_uint(&j, "host_ram_bytes", x->need.ram_peak);
		oom_json_uint(&j, "disk_bytes", x->need.disk_peak);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	oom_json_lengths(&j, t);
	oom_json_end(&j);
}

static void csv(const struct oom_offers *o, const struct oom_boxes *b)
{
	static const char *const names[] = {"provider",
					    "instance",
					    "region",
					    "gpu",
					    "gpu_count",
					    "nodes",
					    "shortage",
					    "short_bytes",
					    "needs_science",
					    "pareto",
					    "usd_per_hour",
					    "usd_per_million_tokens",
					    "tokens_per_second",
					    "ondemand_usd_per_hour",
					    "spot_usd_per_hour",
					    "ondemand_usd_per_million_tokens",
					    "spot_usd_per_million_tokens",
					    "used_bytes",
					    "host_ram_bytes",
					    "disk_bytes",
					    NULL};
	struct oom_csv c = {.out = stdout};
	char number[32];

	oom_csv_head(&c, names);
	for (size_t i = 0; i < b->n; i++) {
		const struct oom_box *x = &b->items[i];
		const double n = (double)x->nodes;
		const double reals[] = {x->usd_h,
					x->usd_per_mtokens,
					x->tokens_per_s,
					x->offer->ondemand_usd_h * n,
					x->offer->spot_usd_h * n,
					x->ondemand_usd_per_mtokens,
					x->spot_usd_per_mtokens};

		oom_csv_text(&c, x->offer->provider);
		oom_csv_text(&c, x->offer->instance);
		oom_csv_text(&c, x->offer->region);
		oom_csv_text(&c, o->gpus.items[x->offer->gpu].name);
		oom_csv_uint(&c, x->offer->gpu_count);
		oom_csv_uint(&c, (uint64_t)x->nodes);
		oom_csv_text(&c, x->shortage ? oom_shortage_str(x->shortage) : "");
		oom_csv_uint(&c, x->short_bytes);
		oom_csv_uint(&c, x->needs_science);
		oom_csv_uint(&c, x->pareto);
		for (size_t k = 0; k < sizeof(reals) / sizeof(reals[0]); k++) {
			snprintf(number, sizeof(number), "%.6g", reals[k]);
			oom_csv_text(&c, isnan(reals[k]) ? "" : number);
		}
		oom_csv_uint(&c, x->plan.used_bytes);
		oom_csv_uint(&c, x->need.ram_peak);
		oom_csv_uint(&c, x->need.disk_peak);
		oom_csv_end(&c);
	}
}

/* A card as SkyPilot and dstack call it: RTX4090, RTX6000-Ada (RTX6000Ada for dstack), RTXPRO6000,
 * A6000, A100-80GB; form factor and, where a field of its own states it, the size are left out. */
static void list_name(const struct oom_gpu *g, bool sky, char out[80])
{
	const char *p = g->name;
	size_t n = 0;

	if (!strncmp(p, "RTX-", 4)) {
		p += strncmp(p, "RTX-A", 5) ? 0 : 4;
		for (; *p && n < 64 && strncmp(p, "-Blackwell", 10); p++) {
			if (*p == '-' && isdigit((unsigned char)p[1]) &&
			    !strcmp(p + 1 + strspn(p + 1, "0123456789"), "GB"))
				break;
			if (*p != '-' || (sky && !strcmp(p, "-Ada")))
				out[n++] = *p;
		}
		out[n] = 0;
		return;
	}
	n = strcspn(p, "-");
	snprintf(out, 80, "%.*s%s", (int)(n < 64 ? n : 64), p,
		 strstr(p, "-NVL") ? (sky ? "-NVL" : "NVL") : "");
	if (sky && ((!strcmp(out, "A100") && g->memory_gb > 60) ||
		    (!strcmp(out, "V100") && g->memory_gb > 20)))
		strcat(out, g->memory_gb > 60 ? "-80GB" : "-32GB");
}

/* Fields as SkyPilot's page "SkyPilot YAML" (docs.skypilot.co, reference/yaml-spec; infra is
 * cloud/region) and dstack's models name them (github.com/dstackai/dstack, core/models/resources.py
 * @0268145: resources.gpu.name, .memory, .count, .memory and .disk as "min..";
 * core/models/profiles.py @033382e: backends, regions, instance_types, spot_policy;
 * core/models/configurations.py @01fda0f: nodes of a task). */
static void yaml(const struct oom_offers *o, const struct oom_box *x)
{
	const struct oom_gpu *g = &o->gpus.items[x->offer->gpu];
	const double ram = ceil((double)x->need.ram_peak / 1073741824.0),
		     disk = ceil((double)x->need.disk_peak / 1073741824.0);
	char name[80];

	list_name(g, emit == 1, name);
	if (emit == 1) {
		/* "infra" since 0.9.2, which replaced "cloud" and "region"; a region that is
		 * prose ("France, FR") is left open */
		const bool region = *x->offer->region && !strpbrk(x->offer->region, " ,:#");

		printf("resources:\n  infra: %s%s%s\n", x->offer->provider, region ? "/" : "",
		       region ? x->offer->region : "");
		if (!strpbrk(x->offer->instance, " :#"))   /* a description ("1x A10") is no type */
			printf("  instance_type: %s\n", x->offer->instance);
		printf("  accelerators: %s:%u\n  memory: %.0f+\n  disk_size: %.0f\n  use_spot: "
		       "%s\n",
		       name, x->offer->gpu_count, ram, disk, spot ? "true" : "false");
		if (x->nodes > 1)
			printf("num_nodes: %lld\n", (long long)x->nodes);
	} else {
		printf("resources:\n  gpu:\n    name: %s\n    memory: %.0fGB\n    count: %u\n  "
		       "memory: %.0fGB..\n  disk: %.0fGB..\n",
		       name, g->memory_gb, x->offer->gpu_count, ram, disk);
		printf("backends: [%s]\n", x->offer->provider);
		if (*x->offer->region && !strpbrk(x->offer->region, " ,:#[]"))
			printf("regions: [%s]\n", x->offer->region);
		if (*x->offer->instance && !strpbrk(x->offer->instance, " ,:#[]"))
			printf("instance_types: [%s]\n", x->offer->instance);
		printf("spot_policy: %s\n", spot ? "spot" : "on-demand");
		if (x->nodes > 1)
			printf("nodes: %lld\n", (long long)x->nodes);
	}
}

static int read_offers(struct oom_offers *o)
{
	struct oom_error err = {{0}};
	enum oom_status st = lists.n && own_only ? OOM_OK : oom_offers_load(o, &err);

	for (size_t i = 0; !st && i < lists.n; i++)
		st = oom_offers_read(o, lists.items[i], &err);
	for (size_t i = 0; !st && i < o->n; i++) {
		oom_scrub(o->items[i].provider);
		oom_scrub(o->items[i].instance);
		oom_scrub(o->items[i].region);
		oom_scrub(o->items[i].gpu_name);
	}
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}

static unsigned allowed(void)
{
	static const unsigned bits[] = {OOM_ALLOW_SEQ_LEN, OOM_ALLOW_LORA, OOM_ALLOW_SCIENCE};
	unsigned bit = 0;

	for (size_t i = 0; i < allow.n; i++)
		bit |= bits[oom_word_index(allow.items[i], allow_words)];
	return bit;
}

static int run(struct oom_job *job)
{
	struct oom_box_query q = {.allow = allowed(),
				  .rank = (enum oom_box_rank)rank,
				  .providers = providers,
				  .gpu = job->gpu,
				  .max_nodes = max_nodes,
				  .nodes = job->plan.nodes > 1 ? job->plan.nodes : 0,
				  .spot = spot};
	struct oom_offers offers = {0};
	struct oom_error err = {{0}};
	struct oom_boxes b;
	struct oom_target t;
	const char *gpu = job->gpu;
	int code;

	if (max_price && !((q.max_usd_h = strtod(max_price, NULL)) > 0))
		return oom_complain(OOM_EXIT_USAGE,
				    "--max-price %s: expected dollars an hour, such as 20 or 20/h",
				    max_price);
	if (headroom) {
		char *end;

		q.min_headroom = strtod(headroom, &end) / 100;
		if (end == headroom || (*end && strcmp(end, "%")) ||
		    !(q.min_headroom >= 0 && q.min_headroom < 1))
			return oom_complain(OOM_EXIT_USAGE,
					    "--min-headroom %s: expected percent of the card from "
					    "0 to below 100, such as 5%%",
					    headroom);
	}
	code = oom_target_open(job, &t, false);
	job->gpu = gpu;
	if (code)
		return code;
	code = read_offers(&offers);
	if (!code && oom_boxes_find(&offers, t.model, &job->plan, &q, &b, &err)) {
		code = oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	} else if (!code) {
		if (job->json)
			json(&job->plan, &t, &offers, &b);
		else if (job->csv)
			csv(&offers, &b);
		else if (emit && b.fitting)
			yaml(&offers, &b.items[0]);
		else
			text(job, &offers, &b);
		if (!job->json && !job->csv && !emit && !job->quiet)
			oom_report_lengths(&t, &job->plan);
		code = b.fitting ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT;
		oom_boxes_release(&b);
	}
	oom_offers_release(&offers);
	oom_target_close(&t);
	return code;
}

static const struct oom_option options[] = {
	{.name = "model",
	 .letter = 'm',
	 .kind = OOM_OPTION_TEXT,
	 .target = &oom_job.model,
	 .metavar = "FILE",
	 .hint = OOM_HINT_MODEL,
	 .summary = "config.json, a folder holding one, a bundled name, or - for standard input"},
	{.name = "gpu",
	 .letter = 'g',
	 .kind = OOM_OPTION_TEXT,
	 .target = &oom_job.gpu,
	 .metavar = "NAME",
	 .hint = OOM_HINT_GPU,
	 .summary = "only machines with this card"},
	{.name = "boxes",
	 .kind = OOM_OPTION_LIST,
	 .target = &lists,
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "more offers: our columns, a SkyPilot vms.csv, gpuhunt's CSV, or JSON of "
		    "gpuhunt or `dstack offer --json`"},
	{.name = "only-boxes",
	 .kind = OOM_OPTION_FLAG,
	 .target = &own_only,
	 .summary = "leave the shipped list out"},
	{.name = "provider",
	 .kind = OOM_OPTION_TEXT,
	 .target = &providers,
	 .metavar = "NAMES",
	 .summary = "only these, joined by commas"},
	{.name = "max-price",
	 .kind = OOM_OPTION_TEXT,
	 .target = &max_price,
	 .metavar = "USD",
	 .summary = "dollars an hour for a machine, at most"},
	{.name = "min-headroom",
	 .kind = OOM_OPTION_TEXT,
	 .target = &headroom,
	 .metavar = "PERCENT",
	 .summary = "part of every card that must stay free, such as 5%"},
	{.name = "spot",
	 .kind = OOM_OPTION_FLAG,
	 .target = &spot,
	 .summary = "rank by spot prices"},
	{.name = "max-nodes",
	 .kind = OOM_OPTION_COUNT,
	 .target = &max_nodes,
	 .metavar = "N",
	 .min = 1,
	 .max = 4096,
	 .def = "1",
	 .summary = "as few machines as do, at most so many; --nodes N: exactly so many"},
	{.name = "rank",
	 .kind = OOM_OPTION_CHOICE,
	 .target = &rank,
	 .metavar = "WORD",
	 .choices = rank_words,
	 .def = "tokens",
	 .summary = "by dollars a million tokens, dollars an hour, time, or fewest changes of the "
		    "science"},
	{.name = "tokens",
	 .kind = OOM_OPTION_TEXT,
	 .target = &tokens,
	 .metavar = "N",
	 .summary = "a token budget, such as 2B: hours and dollars"},
	{.name = "allow",
	 .kind = OOM_OPTION_LIST,
	 .target = &allow,
	 .metavar = "WORDS",
	 .choices = allow_words,
	 .summary = "changes of the science that may be taken"},
	{.name = "top",
	 .kind = OOM_OPTION_COUNT,
	 .target = &top,
	 .metavar = "N",
	 .min = 1,
	 .max = 10000,
	 .def = "12",
	 .summary = "rows shown"},
	{.name = "emit",
	 .kind = OOM_OPTION_CHOICE,
	 .target = &emit,
	 .metavar = "WORD",
	 .choices = emit_words,
	 .def = "none",
	 .summary = "print the first as a resources block of SkyPilot or dstack"},
	OOM_OPTIONS_DATA,
	OOM_OPTION_JSON,
	OOM_OPTION_CSV("print CSV, one row an offer"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"box --model Llama-3.1-8B --precision bf16 --grad-ckpt full --max-price 20/h", "machines for a full fine-tune under 20 dollars an hour"},
	{"box --model Llama-2-70B --lora-r 16 --qlora --precision bf16-amp --emit skypilot", "the cheapest for QLoRA, as a SkyPilot task"},
	{NULL, NULL},
};
const struct oom_command oom_command_box = {
	.name = "box",
	.summary = "which machine to rent: cards, host RAM, disk and price",
	.synopsis = "--model FILE [options] [knobs]",
	.options = options,
	.knobs = true,
	.examples = examples,
	.run = run,
};
