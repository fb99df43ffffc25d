/* Price lists: our own columns, SkyPilot's catalogue CSVs and gpuhunt's, told apart by their
 * headers.
 *
 * The traps of those lists are known (SkyPilot v5 to v9, gpuhunt): counts written "8.0", GPU rows
 * without a machine on GCP, host memory that repeats the GPU's on runpod v6 and paperspace v5,
 * rounded hosts on vast, spot prices of 0 or equal to the on-demand one, 700.0 for "not
 * offered". */
#include "oomplan/box.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "../input/csv_rows.h"
#include "embedded.h"
#include "offers_parts.h"

enum { MAX_OFFERS = 1000000, NAMES = 512 };

static double figure(struct oom_offers *o, const char *text)
{
	char *end;
	double v;

	if (!text || !*text)
		return NAN;
	text += *text == '$';
	v = strtod(text, &end);
	while (*end == ' ')
		end++;
	if (!strcmp(end, "/h") || !strcmp(end, "/hr"))
		end += strlen(end);
	if (end == text || *end || !isfinite(v) || v < 0) {
		o->bad_number++;
		return NAN;
	}
	return v;
}

/* A price that nobody charges is none. */
double oom_offer_price(struct oom_offers *o, double v)
{
	if (isnan(v) || v == 0)
		return NAN;
	if (v >= 700 || v < 0.01) {
		o->bad_price++;
		return NAN;
	}
	return v;
}

static double price(struct oom_offers *o, const char *text)
{
	return oom_offer_price(o, figure(o, text));
}

/* Only dollars are compared with dollars: a price in another currency is none, and counted. */
static double in_dollars(struct oom_offers *o, const char *currency, double v)
{
	if (!*currency || !strcasecmp(currency, "USD") || !strcmp(currency, "$") || isnan(v))
		return v;
	o->bad_price++;
	return NAN;
}

static const char *cell(const struct oom_csv_row *row, const char *name)
{
	const char *s = oom_csv_cell(row, name);

	return s ? s : "";
}

/* ---- cards ---- */

static void note_unknown(struct oom_offers *o, const char *name)
{
	const char *near, **names;

	o->unknown_gpu++;
	for (size_t i = 0; i < o->n_unknown; i++)
		if (!strcmp(o->unknown[i], name))
			return;
	if (o->n_unknown == sizeof(o->unknown) / sizeof(o->unknown[0]))
		return;
	names = calloc(o->gpus.n + 1, sizeof(*names));
	for (size_t i = 0; names && i < o->gpus.n; i++)
		names[i] = o->gpus.items[i].name;
	near = names ? oom_nearest(name, names) : NULL;
	snprintf(o->unknown[o->n_unknown], sizeof(o->unknown[0]), "%.47s", name);
	snprintf(o->nearest[o->n_unknown++], sizeof(o->nearest[0]), "%.47s", near ? near : "");
	free(names);
}

bool oom_offer_is_other(const char *vendor, const char *name)
{
	static const char *const vendors[] = {"google", "tenstorrent", "aws"},
				 *const names[] = {"tpu", "trainium", "inferentia", "tt-galaxy"};

	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (!strcasecmp(vendor, vendors[i]))
			return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncasecmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* Looked up once for each name, memory and whether eight are linked. */
static struct oom_offer_name find_gpu(struct oom_offer_loader *l, const char *name, double mem_gb,
				      double count)
{
	struct oom_offer_name n = {.gpu_mem = mem_gb > 4 && mem_gb < 2000 ? (int)lround(mem_gb) : 0,
				   .linked = count >= 8};

	for (size_t i = 0; i < l->n_seen; i++)
		if (l->seen[i].gpu_mem == n.gpu_mem && l->seen[i].linked == n.linked &&
		    !strcmp(l->seen[i].name, name))
			return l->seen[i];
	snprintf(n.name, sizeof(n.name), "%.47s", name);
	n.gpu = oom_offer_card(&l->o->gpus, name, n.gpu_mem, count, &n.each);
	if (l->n_seen < NAMES && strlen(name) < sizeof(n.name))
		l->seen[l->n_seen++] = n;
	return n;
}

/* ---- rows ---- */

enum oom_status oom_offer_add(struct oom_offer_loader *l, struct oom_offer *f, double count,
			      double mem_gb, struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer_name card;

	if (!*f->gpu_name) {
		o->no_gpu++;
		return OOM_OK;
	}
	if (isnan(count) || count < 1 || count > 1024 || count != floor(count)) {
		o->shares++;                    /* a slice of a card, or no count */
		return OOM_OK;
	}
	card = find_gpu(l, f->gpu_name, mem_gb, count);
	f->gpu_count = (uint32_t)count * (uint32_t)card.each;
	f->gpu = card.gpu;
	if (f->gpu < 0) {
		note_unknown(o, f->gpu_name);
		return OOM_OK;
	}
	if (o->n == o->cap) {
		const size_t cap = o->cap ? o->cap * 2 : 256;
		void *q;

		if (cap > MAX_OFFERS * 2)
			return oom_error_set(err, OOM_ERR_LIMIT,
					     "more than %zu offers: leave out those you would not rent", o->n);
		q = realloc(o->items, cap * sizeof(*o->items));
		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		o->items = q;
		o->cap = cap;
	}
	oom_provider_fill(oom_provider_of(&l->providers, f->provider), &o->gpus.items[f->gpu], f);
	o->items[o->n++] = *f;
	return OOM_OK;
}

static void copy(char *to, size_t size, const char *from)
{
	const size_t n = strnlen(from, size - 1);

	memcpy(to, from, n);
	to[n] = 0;
}

#define NO_OFFER {.gpu = -1, .storage_usd_gib_month = NAN, .egress_usd_gib = NAN}

static enum oom_status own_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
			       struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = {.gpu = -1};
	double mem = figure(o, cell(row, "gpu_memory_mib")) / 1024;

	copy(f.provider, sizeof(f.provider), cell(row, "provider"));
	copy(f.instance, sizeof(f.instance), cell(row, "instance"));
	copy(f.region, sizeof(f.region), cell(row, "region"));
	copy(f.gpu_name, sizeof(f.gpu_name), cell(row, "gpu"));
	copy(f.price_date, sizeof(f.price_date), cell(row, "price_date"));
	/* "2025-02 or older": the date alone */
	f.price_date[strspn(f.price_date, "0123456789-")] = 0;
	copy(f.source, sizeof(f.source), cell(row, "price_source"));
	copy(f.interconnect, sizeof(f.interconnect), cell(row, "interconnect"));
	f.network_gbps = figure(o, cell(row, "network_gbps"));
	f.vcpus = figure(o, cell(row, "vcpus"));
	f.host_ram_gib = figure(o, cell(row, "host_ram_gib"));
	f.disk_gib = figure(o, cell(row, "disk_gb")) * 1e9 / 1073741824.0;
	f.storage_usd_gib_month = figure(o, cell(row, "storage_usd_gib_month"));
	f.egress_usd_gib = figure(o, cell(row, "egress_usd_gib"));
	f.ondemand_usd_h = in_dollars(o, cell(row, "currency"), price(o, cell(row, "ondemand_usd_h")));
	f.spot_usd_h = in_dollars(o, cell(row, "currency"), price(o, cell(row, "spot_usd_h")));
	return oom_offer_add(l, &f, figure(o, cell(row, "gpu_count")), mem, err);
}

/* "{'Gpus': [{'Name': 'A100', ..., 'MemoryInfo': {'SizeInMiB': 81920}, ...": GB of one card, 0 where nothing is
 * said.  Shadeform's catalogue has GB there under the same name. */
static double info_memory(const char *info)
{
	const char *at = strstr(info, "'SizeInMiB': ");
	const double v = at ? strtod(at + strlen("'SizeInMiB': "), NULL) : 0;

	return v >= 1024 ? v / 1024 : v > 4 ? v : 0;
}

static enum oom_status sky_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
			       struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = NO_OFFER;
	const char *name = cell(row, "AcceleratorName");
	const double count = figure(o, cell(row, "AcceleratorCount")),
		     memory = info_memory(cell(row, "GpuInfo"));

	if (oom_offer_is_other("", name))
		name = "";                      /* no GPU */
	if (*name && !*cell(row, "InstanceType")) {
		/* GCP: an accelerator to attach; its machine stands in another row */
		o->shares++;
		return OOM_OK;
	}
	copy(f.provider, sizeof(f.provider), l->provider);
	copy(f.instance, sizeof(f.instance), cell(row, "InstanceType"));
	copy(f.region, sizeof(f.region), cell(row, "Region"));
	copy(f.gpu_name, sizeof(f.gpu_name), name);
	for (char *p = f.gpu_name; *p; p++)
		if (*p == '_')
			*p = '-';
	f.vcpus = figure(o, cell(row, "vCPUs"));
	f.host_ram_gib = figure(o, cell(row, "MemoryGiB"));
	if (!strcmp(l->provider, "vast") ||
	    (!strcmp(l->provider, "runpod") && !oom_csv_cell(row, "AvailabilityZone")) ||
	    !strcmp(l->provider, "paperspace"))
		f.host_ram_gib = NAN;           /* known to be something else there */
	f.disk_gib = NAN;
	f.ondemand_usd_h = price(o, cell(row, "Price"));
	f.spot_usd_h = price(o, cell(row, "SpotPrice"));
	if (f.spot_usd_h == f.ondemand_usd_h)
		f.spot_usd_h = NAN;
	/* "A100" is the 40 GB card beside "A100-80GB", "V100" the 16 GB one; vast calls all so,
	 * and its rows are kept aside */
	return oom_offer_add(l, &f, count,
			     !strcmp(l->provider, "vast") ? 0 :
			     memory > 0			  ? memory :
			     !strcmp(name, "A100")	  ? 40 :
			     !strcmp(name, "V100")	  ? 16 :
							    0,
			     err);
}

static enum oom_status hunt_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
				struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = NO_OFFER;
	const bool spot = !strcmp(cell(row, "spot"), "True") || !strcmp(cell(row, "spot"), "true");
	const char *vendor = cell(row, "gpu_vendor"), *name = cell(row, "gpu_name");

	if (oom_offer_is_other(vendor, name))
		name = "";
	copy(f.provider, sizeof(f.provider), *cell(row, "provider") ? cell(row, "provider") : l->provider);
	copy(f.instance, sizeof(f.instance), cell(row, "instance_name"));
	copy(f.region, sizeof(f.region), cell(row, "location"));
	copy(f.gpu_name, sizeof(f.gpu_name), name);
	f.vcpus = figure(o, cell(row, "cpu"));
	/* its GB are 2^30 (dstack core/backends/base/offers.py: memory_mib = memory * 1024) */
	f.host_ram_gib = figure(o, cell(row, "memory"));
	f.disk_gib = figure(o, cell(row, "disk_size"));
	f.ondemand_usd_h = f.spot_usd_h = NAN;
	*(spot ? &f.spot_usd_h : &f.ondemand_usd_h) = in_dollars(o, cell(row, "currency"), price(o, cell(row, "price")));
	return oom_offer_add(l, &f, *name ? figure(o, cell(row, "gpu_count")) : 1,
			     figure(o, cell(row, "gpu_memory")), err);
}

static enum oom_status on_row(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct oom_offer_loader *l = ctx;

	if (!l->header) {
		l->header = true;
		l->kind = oom_csv_cell(row, "AcceleratorName") &&
					  oom_csv_cell(row, "InstanceType") ?
				  OOM_OFFERS_SKY :
			  oom_csv_cell(row, "gpu_name") && oom_csv_cell(row, "instance_name") ?
				  OOM_OFFERS_HUNT :
			  oom_csv_cell(row, "gpu") && oom_csv_cell(row, "gpu_count") &&
					  oom_csv_cell(row, "instance") ?
				  OOM_OFFERS_OWN :
				  OOM_OFFERS_UNKNOWN;
		if (l->kind == OOM_OFFERS_UNKNOWN)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s:1: no list of offers: expected the columns "
					     "provider, instance, gpu, "
					     "gpu_count, ondemand_usd_h, or those of SkyPilot or "
					     "gpuhunt",
					     row->file);
	}
	l->o->rows++;
	switch (l->kind) {
	case OOM_OFFERS_SKY: return sky_row(l, row, err);
	case OOM_OFFERS_HUNT: return hunt_row(l, row, err);
	default: return own_row(l, row, err);
	}
}

static int by_place(const void *a, const void *b)
{
	const struct oom_offer *x = a, *y = b;
	int c = strcmp(x->provider, y->provider);

	c = c ? c : strcmp(x->instance, y->instance);
	c = c ? c : strcmp(x->region, y->region);
	c = c ? c : x->gpu - y->gpu;
	return c ? c : (int)x->gpu_count - (int)y->gpu_count;
}

static double cheaper(double a, double b)
{
	return isnan(a) ? b : isnan(b) ? a : a < b ? a : b;
}

/* The same machine in one region again (zones, spot and on-demand rows): folded at the cheaper
 * price. */
static void fold(struct oom_offers *o)
{
	size_t n = 0;

	if (!o->n)
		return;
	qsort(o->items, o->n, sizeof(*o->items), by_place);
	for (size_t i = 0; i < o->n; i++) {
		if (n && !by_place(&o->items[n - 1], &o->items[i])) {
			o->items[n - 1].ondemand_usd_h = cheaper(o->items[n - 1].ondemand_usd_h,
								 o->items[i].ondemand_usd_h);
			o->items[n - 1].spot_usd_h = cheaper(o->items[n - 1].spot_usd_h,
							     o->items[i].spot_usd_h);
			o->duplicates++;
			continue;
		}
		o->items[n++] = o->items[i];
	}
	o->n = n;
}

static enum oom_status begin(struct oom_offer_loader *l, struct oom_offers *o,
			     struct oom_error *err)
{
	const enum oom_status st = o->gpus.n ? OOM_OK : oom_gpus_load(&o->gpus, err);

	*l = (struct oom_offer_loader){.o = o, .provider = ""};
	if (st)
		return st;
	l->seen = calloc(NAMES, sizeof(*l->seen));
	return l->seen ? oom_providers_load(&l->providers, err) :
			 oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
}

static void end(struct oom_offer_loader *l)
{
	free(l->seen);
	oom_providers_release(&l->providers);
}

enum oom_status oom_offers_load(struct oom_offers *o, struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("boxes.csv");
	struct oom_offer_loader l;
	enum oom_status st = begin(&l, o, err);

	if (!st)
		st = oom_csv_parse((const char *)f->bytes, f->size, "boxes.csv", on_row, &l, err);
	end(&l);
	if (!st)
		fold(o);
	return st;
}

/* "v8/vast/vms.csv" and "runpod.csv": the folder, or the file, names the provider. */
static void provider_of(const char *path, char out[24])
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t n;

	if (!strcmp(base, "vms.csv") && slash) {
		const char *from = slash;

		while (from > path && from[-1] != '/')
			from--;
		n = (size_t)(slash - from);
		snprintf(out, 24, "%.*s", (int)(n < 23 ? n : 23), from);
		return;
	}
	n = strcspn(base, ".");
	snprintf(out, 24, "%.*s", (int)(n < 23 ? n : 23), base);
}

static enum oom_status read_list(struct oom_offers *o, const char *text, size_t size,
				 const char *path, struct oom_error *err)
{
	char provider[24];
	struct oom_offer_loader l;
	const size_t before = o->n;
	const bool json = oom_offers_are_json(path);
	enum oom_status st = begin(&l, o, err);

	provider_of(path, provider);
	l.provider = provider;
	if (!st && text)
		st = json ? oom_offers_parse_json(&l, text, size, path, err) :
			    oom_csv_parse(text, size, path, on_row, &l, err);
	else if (!st)
		st = json ? oom_offers_read_json(&l, path, err) :
			    oom_csv_read(path, on_row, &l, err);
	end(&l);
	if (st)
		o->n = before;
	else
		fold(o);
	return st;
}

enum oom_status oom_offers_read(struct oom_offers *o, const char *path, struct oom_error *err)
{
	return read_list(o, NULL, 0, path, err);
}

enum oom_status oom_offers_parse(struct oom_offers *o, const char *text, size_t size,
				 const char *name, struct oom_error *err)
{
	return read_list(o, text, size, name, err);
}

void oom_offers_release(struct oom_offers *o)
{
	if (!o)
		return;
	free(o->items);
	oom_gpus_release(&o->gpus);
	memset(o, 0, sizeof(*o));
}

long oom_price_age_days(const char *date)
{
	struct tm t = {.tm_mday = 1};
	int year, month = 1, day = 1;
	const int n = sscanf(date, "%4d-%2d-%2d", &year, &month, &day);
	time_t then;

	if (n < 1 || year < 1990 || year > 3000 || month < 1 || month > 12 || day < 1 || day > 31)
		return -1;
	t.tm_year = year - 1900;
	t.tm_mon = month - 1;
	t.tm_mday = day;
	then = timegm(&t);
	return (long)(difftime(time(NULL), then) / 86400);
}
