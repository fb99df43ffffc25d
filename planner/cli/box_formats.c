/* Boxes for machines: JSON, CSV, and tasks for SkyPilot and dstack. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "box_out.h"
#include "csvout.h"
#include "json.h"
#include "oomplan/emit.h"

bool oom_box_is_hardware(const struct oom_option *k)
{
	return k->machine;
}

/* What the whole training takes, in the order of both formats. */
static const struct {
	const char *name;
	size_t offset;
} quoted[] = {
	{"tokens_per_second_low", offsetof(struct oom_box, tokens_low)},
	{"tokens_per_second_high", offsetof(struct oom_box, tokens_high)},
	{"usd_per_1000_samples", offsetof(struct oom_box, usd_per_ksamples)},
	{"mfu", offsetof(struct oom_box, mfu)},
	{"mfu_low", offsetof(struct oom_box, mfu_low)},
	{"mfu_high", offsetof(struct oom_box, mfu_high)},
	{"days", offsetof(struct oom_box, days)},
	{"days_low", offsetof(struct oom_box, days_low)},
	{"days_high", offsetof(struct oom_box, days_high)},
	{"gpu_hours", offsetof(struct oom_box, gpu_hours)},
	{"usd", offsetof(struct oom_box, usd)},
	{"usd_low", offsetof(struct oom_box, usd_low)},
	{"usd_high", offsetof(struct oom_box, usd_high)},
	{"usd_storage", offsetof(struct oom_box, usd_storage)},
	{"usd_egress", offsetof(struct oom_box, usd_egress)},
};
enum { QUOTED = sizeof(quoted) / sizeof(quoted[0]) };

static double quoted_value(const struct oom_box *x, size_t i)
{
	return *(const double *)(const void *)((const char *)x + quoted[i].offset);
}

static void quote_json(struct oom_json *j, const struct oom_box *x)
{
	for (size_t i = 0; i < QUOTED; i++)
		oom_json_real(j, quoted[i].name, quoted_value(x, i));
	oom_json_int(j, "sequences_per_step", x->batch);
	oom_json_real(j, "checkpoint_interval_s", x->failures.interval_s);
	oom_json_real(j, "interruptions_factor", x->failures.factor);
	oom_json_text(j, "binds", x->plan->used_bytes ? oom_bound_str(x->binds) : NULL);
	oom_json_text(j, "breaks_first", x->plan->used_bytes ? oom_shortage_str(x->breaks_first) : NULL);
	oom_json_real(j, "breaks_first_share", x->breaks_share);
	oom_json_bool(j, "late", x->late);
	oom_json_bool(j, "over_budget", x->over_budget);
	oom_json_bool(j, "may_be_late", x->may_be_late);
	oom_json_bool(j, "may_be_over_budget", x->may_be_over_budget);
	oom_json_bool(j, "old_price", x->stale);
}

/* The knobs in which its plan differs from the one asked for; none when no plan fits. */
static void changes_json(struct oom_json *j, const struct oom_plan *asked, const struct oom_box *x)
{
	oom_json_object(j, "changes");
	for (size_t i = 0; x->plan->used_bytes && oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE];

		if (!oom_box_is_hardware(k) && !oom_plan_alike(&x->plan->plan, asked, k))
			oom_json_text(j, k->column, oom_plan_get(&x->plan->plan, k, a, sizeof(a)));
	}
	oom_json_end(j);
}

static void box_json(struct oom_json *j, const struct oom_plan *asked, const struct oom_offers *o,
		     const struct oom_box *x)
{
	oom_json_object(j, NULL);
	oom_json_text(j, "provider", x->offer->provider);
	oom_json_text(j, "instance", x->offer->instance);
	oom_json_text(j, "region", x->offer->region);
	oom_json_text(j, "gpu", o->gpus.items[x->offer->gpu].name);
	oom_json_uint(j, "gpu_count", x->offer->gpu_count);
	oom_json_int(j, "nodes", x->nodes);
	/* plan takes it as --network-gbps */
	oom_json_real(j, "network_gbps", x->offer->network_gbps > 0 ? x->offer->network_gbps : NAN);
	oom_json_text(j, "shortage", x->shortage ? oom_shortage_str(x->shortage) : NULL);
	oom_json_uint(j, "short_bytes", x->short_bytes);
	oom_json_bool(j, "needs_science", x->needs_science);
	oom_json_bool(j, "pareto", x->pareto);
	oom_json_real(j, "usd_per_hour", x->usd_h);
	oom_json_real(j, "usd_per_million_tokens", x->usd_per_mtokens);
	oom_json_real(j, "ondemand_usd_per_hour",
		      x->offer->ondemand_usd_h * (double)x->nodes);
	oom_json_real(j, "spot_usd_per_hour", x->offer->spot_usd_h * (double)x->nodes);
	oom_json_real(j, "ondemand_usd_per_million_tokens", x->ondemand_usd_per_mtokens);
	oom_json_real(j, "spot_usd_per_million_tokens", x->spot_usd_per_mtokens);
	oom_json_real(j, "tokens_per_second", x->tokens_per_s);
	oom_json_text(j, "price_date", x->offer->price_date);
	quote_json(j, x);
	changes_json(j, asked, x);
	oom_json_uint(j, "used_bytes", x->plan->used_bytes);
	oom_json_uint(j, "host_ram_bytes", x->need.ram_peak);
	oom_json_uint(j, "disk_bytes", x->need.disk_peak);
	oom_json_end(j);
}

/* What nothing else beats in both days and dollars. */
static void front_json(struct oom_json *j, const struct oom_boxes *b)
{
	oom_json_array(j, "front");
	for (size_t i = 0; i < b->n_points; i++) {
		const struct oom_box *x = &b->points[i];

		if (!x->pareto || isnan(x->usd))
			continue;
		oom_json_object(j, NULL);
		oom_json_text(j, "provider", x->offer->provider);
		oom_json_text(j, "instance", x->offer->instance);
		oom_json_int(j, "nodes", x->nodes);
		oom_json_real(j, "days", x->days);
		oom_json_real(j, "usd", x->usd);
		oom_json_end(j);
	}
	oom_json_end(j);
}

void oom_box_json(const struct oom_plan *asked, const struct oom_target *t,
		 const struct oom_offers *o, const struct oom_boxes *b)
{
	struct oom_json j = {.out = stdout};

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-box/1");
	oom_json_text(&j, "precision_default", t->q.precision_note);
	oom_json_uint(&j, "offers", b->n);
	oom_json_uint(&j, "fitting", b->fitting);
	oom_json_array(&j, "boxes");
	for (size_t i = 0; i < b->n; i++)
		box_json(&j, asked, o, &b->items[i]);
	oom_json_end(&j);
	front_json(&j, b);
	oom_json_lengths(&j, t);
	oom_json_end(&j);
}

static void box_csv(struct oom_csv *c, const struct oom_offers *o, const struct oom_box *x)
{
	const double n = (double)x->nodes;
	const double reals[] = {x->usd_h,
				x->usd_per_mtokens,
				x->tokens_per_s,
				x->offer->ondemand_usd_h * n,
				x->offer->spot_usd_h * n,
				x->ondemand_usd_per_mtokens,
				x->spot_usd_per_mtokens};
	char number[32];

	oom_csv_text(c, x->offer->provider);
	oom_csv_text(c, x->offer->instance);
	oom_csv_text(c, x->offer->region);
	oom_csv_text(c, o->gpus.items[x->offer->gpu].name);
	oom_csv_uint(c, x->offer->gpu_count);
	oom_csv_uint(c, (uint64_t)x->nodes);
	oom_csv_text(c, x->shortage ? oom_shortage_str(x->shortage) : "");
	oom_csv_uint(c, x->short_bytes);
	oom_csv_uint(c, x->needs_science);
	oom_csv_uint(c, x->pareto);
	for (size_t k = 0; k < sizeof(reals) / sizeof(reals[0]); k++) {
		snprintf(number, sizeof(number), "%.6g", reals[k]);
		oom_csv_text(c, isnan(reals[k]) ? "" : number);
	}
	oom_csv_uint(c, x->plan->used_bytes);
	oom_csv_uint(c, x->need.ram_peak);
	oom_csv_uint(c, x->need.disk_peak);
	oom_csv_uint(c, x->late);
	oom_csv_uint(c, x->over_budget);
	oom_csv_uint(c, x->stale);
	oom_csv_text(c, x->plan->used_bytes ? oom_bound_str(x->binds) : "");
	oom_csv_text(c, x->plan->used_bytes ? oom_shortage_str(x->breaks_first) : "");
	for (size_t k = 0; k < QUOTED; k++) {
		snprintf(number, sizeof(number), "%.6g", quoted_value(x, k));
		oom_csv_text(c, isnan(quoted_value(x, k)) ? "" : number);
	}
	oom_csv_end(c);
}

void oom_box_csv(const struct oom_offers *o, const struct oom_boxes *b)
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
					    "late",
					    "over_budget",
					    "old_price",
					    "binds",
					    "breaks_first"};
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	const char *heads[NAMES + QUOTED + 1];
	struct oom_csv c = {.out = stdout};

	memcpy(heads, names, sizeof(names));
	for (size_t i = 0; i < QUOTED; i++)
		heads[NAMES + i] = quoted[i].name;
	heads[NAMES + QUOTED] = NULL;
	oom_csv_head(&c, heads);
	for (size_t i = 0; i < b->n; i++)
		box_csv(&c, o, &b->items[i]);
}

/* Fields as SkyPilot's page "SkyPilot YAML" (docs.skypilot.co, reference/yaml-spec; infra is
 * cloud/region) and dstack's models name them (github.com/dstackai/dstack, core/models/resources.py
 * @0268145: resources.gpu.name, .memory, .count, .memory and .disk as "min..";
 * core/models/profiles.py @033382e: backends, regions, instance_types, spot_policy;
 * core/models/configurations.py @01fda0f: nodes of a task). */
void oom_box_yaml(FILE *out, const struct oom_offers *o, const struct oom_box *x, enum oom_box_yaml form,
		  bool spot)
{
	const struct oom_gpu *g = &o->gpus.items[x->offer->gpu];
	const double ram = ceil((double)x->need.ram_peak / 1073741824.0),
		     disk = ceil((double)x->need.disk_peak / 1073741824.0);
	/* a spot machine whose price nobody lists is none to ask for */
	const bool reclaimed = spot && !isnan(x->offer->spot_usd_h);
	char name[80];

	if (spot && !reclaimed)
		fprintf(out, "# no spot price of this machine is known: it is asked for on demand\n");
	oom_gpu_listed(g, form == OOM_YAML_SKYPILOT, name);
	if (form == OOM_YAML_SKYPILOT) {
		/* "infra" since 0.9.2, which replaced "cloud" and "region"; a region that is
		 * prose ("France, FR") is left open */
		const bool region = *x->offer->region && !strpbrk(x->offer->region, " ,:#");

		fprintf(out, "resources:\n  infra: %s%s%s\n", x->offer->provider, region ? "/" : "",
		       region ? x->offer->region : "");
		if (!strpbrk(x->offer->instance, " :#"))   /* a description ("1x A10") is no type */
			fprintf(out, "  instance_type: %s\n", x->offer->instance);
		fprintf(out, "  accelerators: %s:%u\n  memory: %.0f+\n  disk_size: %.0f\n  use_spot: "
		       "%s\n",
		       name, x->offer->gpu_count, ram, disk, reclaimed ? "true" : "false");
		if (x->nodes > 1)
			fprintf(out, "num_nodes: %lld\n", (long long)x->nodes);
	} else {
		fprintf(out, "resources:\n  gpu:\n    name: %s\n    memory: %.0fGB\n    count: %u\n  "
		       "memory: %.0fGB..\n  disk: %.0fGB..\n",
		       name, g->memory_gb, x->offer->gpu_count, ram, disk);
		fprintf(out, "backends: [%s]\n", x->offer->provider);
		if (*x->offer->region && !strpbrk(x->offer->region, " ,:#[]"))
			fprintf(out, "regions: [%s]\n", x->offer->region);
		if (*x->offer->instance && !strpbrk(x->offer->instance, " ,:#[]"))
			fprintf(out, "instance_types: [%s]\n", x->offer->instance);
		fprintf(out, "spot_policy: %s\n", reclaimed ? "spot" : "on-demand");
		if (x->nodes > 1)
			fprintf(out, "nodes: %lld\n", (long long)x->nodes);
	}
}
