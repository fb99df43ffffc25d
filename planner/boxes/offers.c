/* Price lists: our own columns, SkyPilot's catalogue CSVs (offers_sky.c) and gpuhunt's, told apart
 * by their headers. */
#include "oomplan/box.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../input/csv_rows.h"
#include "embedded.h"
#include "offers_parts.h"

void oom_offer_copy(char *to, size_t size, const char *from)
{
	const size_t n = strnlen(from, size - 1);

	memcpy(to, from, n);
	to[n] = 0;
}

static enum oom_status own_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
			       struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = {.gpu = -1};
	double mem = oom_offer_figure(o, oom_offer_cell(row, "gpu_memory_mib")) / 1024;

	oom_offer_copy(f.provider, sizeof(f.provider), oom_offer_cell(row, "provider"));
	oom_offer_copy(f.instance, sizeof(f.instance), oom_offer_cell(row, "instance"));
	oom_offer_copy(f.region, sizeof(f.region), oom_offer_cell(row, "region"));
	oom_offer_copy(f.gpu_name, sizeof(f.gpu_name), oom_offer_cell(row, "gpu"));
	oom_offer_copy(f.price_date, sizeof(f.price_date), oom_offer_cell(row, "price_date"));
	/* "2025-02 or older": the date alone */
	f.price_date[strspn(f.price_date, "0123456789-")] = 0;
	oom_offer_copy(f.source, sizeof(f.source), oom_offer_cell(row, "price_source"));
	oom_offer_copy(f.interconnect, sizeof(f.interconnect), oom_offer_cell(row, "interconnect"));
	f.network_gbps = oom_offer_figure(o, oom_offer_cell(row, "network_gbps"));
	f.vcpus = oom_offer_figure(o, oom_offer_cell(row, "vcpus"));
	f.host_ram_gib = oom_offer_figure(o, oom_offer_cell(row, "host_ram_gib"));
	f.disk_gib = oom_offer_figure(o, oom_offer_cell(row, "disk_gb")) * 1e9 / 1073741824.0;
	f.storage_usd_gib_month = oom_offer_figure(o, oom_offer_cell(row, "storage_usd_gib_month"));
	f.egress_usd_gib = oom_offer_figure(o, oom_offer_cell(row, "egress_usd_gib"));
	f.ondemand_usd_h = oom_offer_dollars(o, oom_offer_cell(row, "currency"), oom_offer_price_of(o, oom_offer_cell(row, "ondemand_usd_h")));
	f.spot_usd_h = oom_offer_dollars(o, oom_offer_cell(row, "currency"), oom_offer_price_of(o, oom_offer_cell(row, "spot_usd_h")));
	return oom_offer_add(l, &f, oom_offer_figure(o, oom_offer_cell(row, "gpu_count")), mem, err);
}

static enum oom_status hunt_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
				struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = OOM_NO_OFFER;
	const bool spot = !strcmp(oom_offer_cell(row, "spot"), "True") || !strcmp(oom_offer_cell(row, "spot"), "true");
	const char *vendor = oom_offer_cell(row, "gpu_vendor"), *name = oom_offer_cell(row, "gpu_name");

	if (oom_offer_is_other(vendor, name))
		name = "";
	oom_offer_copy(f.provider, sizeof(f.provider), *oom_offer_cell(row, "provider") ? oom_offer_cell(row, "provider") : l->provider);
	oom_offer_copy(f.instance, sizeof(f.instance), oom_offer_cell(row, "instance_name"));
	oom_offer_copy(f.region, sizeof(f.region), oom_offer_cell(row, "location"));
	oom_offer_copy(f.gpu_name, sizeof(f.gpu_name), name);
	f.vcpus = oom_offer_figure(o, oom_offer_cell(row, "cpu"));
	/* its GB are 2^30 (dstack core/backends/base/offers.py: memory_mib = memory * 1024) */
	f.host_ram_gib = oom_offer_figure(o, oom_offer_cell(row, "memory"));
	f.disk_gib = oom_offer_figure(o, oom_offer_cell(row, "disk_size"));
	f.ondemand_usd_h = f.spot_usd_h = NAN;
	*(spot ? &f.spot_usd_h : &f.ondemand_usd_h) = oom_offer_dollars(o, oom_offer_cell(row, "currency"), oom_offer_price_of(o, oom_offer_cell(row, "price")));
	return oom_offer_add(l, &f, *name ? oom_offer_figure(o, oom_offer_cell(row, "gpu_count")) : 1,
			     oom_offer_figure(o, oom_offer_cell(row, "gpu_memory")), err);
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
	case OOM_OFFERS_SKY: return oom_offers_sky_row(l, row, err);
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

/* What both rows promise: of a limit the smaller. */
static double lesser(double a, double b)
{
	return a < b || isnan(b) ? a : b;
}

/* The same machine at two dates, "" for a list that says none and is taken for today's: the newer prices, and an older
 * one where the newer row has none.  Then the date is the older one too, since a row has one date for both. */
static struct oom_offer newer_first(const struct oom_offer *a, const struct oom_offer *b)
{
	const bool second = *a->price_date && (!*b->price_date || strcmp(b->price_date, a->price_date) > 0);
	const struct oom_offer *const old = second ? a : b;
	struct oom_offer now = second ? *b : *a;
	const bool demand = isnan(now.ondemand_usd_h) && !isnan(old->ondemand_usd_h);
	const bool spot = isnan(now.spot_usd_h) && !isnan(old->spot_usd_h);

	if ((!demand && !spot) || offers_stale_at(old, time(NULL)))
		return now;
	if (demand)
		now.ondemand_usd_h = old->ondemand_usd_h;
	if (spot)
		now.spot_usd_h = old->spot_usd_h;
	memcpy(now.price_date, old->price_date, sizeof(now.price_date));
	memcpy(now.source, old->source, sizeof(now.source));
	return now;
}

/* The same machine in one region again.  Of one date (zones, spot and on-demand rows): folded at the cheaper price, and
 * what it has of memory and disk is what all of them have. */
static void fold_into(struct oom_offer *to, const struct oom_offer *again)
{
	if (strcmp(to->price_date, again->price_date)) {
		*to = newer_first(to, again);
		return;
	}
	to->ondemand_usd_h = cheaper(to->ondemand_usd_h, again->ondemand_usd_h);
	to->spot_usd_h = cheaper(to->spot_usd_h, again->spot_usd_h);
	to->host_ram_gib = lesser(to->host_ram_gib, again->host_ram_gib);
	to->disk_gib = lesser(to->disk_gib, again->disk_gib);
}

static void fold(struct oom_offers *o)
{
	size_t n = 0;

	if (!o->n)
		return;
	qsort(o->items, o->n, sizeof(*o->items), by_place);
	for (size_t i = 0; i < o->n; i++) {
		if (n && !by_place(&o->items[n - 1], &o->items[i])) {
			fold_into(&o->items[n - 1], &o->items[i]);
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
	enum oom_status st = o->gpus.n ? OOM_OK : oom_gpus_load(&o->gpus, err);

	*l = (struct oom_offer_loader){.o = o, .provider = ""};
	if (!st)
		st = oom_offer_words_make(&o->gpus, &l->words, err);
	return st ? st : oom_providers_load(&l->providers, err);
}

static void end(struct oom_offer_loader *l)
{
	free(l->seen.rows);
	oom_offer_words_release(&l->words);
	free(l->hosts);
	free(l->attached);
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
	const size_t before = o->n, rows = o->rows;
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
	if (!st)
		st = oom_offers_attach(&l, err);
	if (!st && o->rows == rows)
		st = oom_error_set(err, OOM_ERR_PARSE, "%s: no offer: a header and no row", path);
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

long offers_age_days(const char *date, time_t now)
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
	return (long)(difftime(now, then) / 86400);
}

long oom_price_age_days(const char *date)
{
	return offers_age_days(date, time(NULL));
}
