/* SkyPilot's catalogues (v5 to v9).
 *
 * Their traps: counts written "8.0"; host memory that repeats the GPU's on runpod v6 and paperspace v5; rounded
 * hosts, shortened cards and the memory of all cards together on vast; spot prices of 0 or equal to the on-demand
 * one; 700.0 for "not offered"; and Google's cards, which are priced in rows of their own, without the machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offers_parts.h"

/* "{'Gpus': [{'Name': 'A100', ..., 'MemoryInfo': {'SizeInMiB': 81920}, ...", with either kind of quotes: GB of one
 * card, 0 where nothing is said.  Shadeform's catalogue has GB there under the same name. */
static double info_memory(const char *info)
{
	const char *at = strstr(info, "SizeInMiB");
	double v = 0;

	if (at)
		at += strcspn(at, ":");
	if (at && *at)
		v = strtod(at + 1, NULL);
	return v >= 1024 ? v / 1024 : v > 4 ? v : 0;
}

/* "2x-RTX_4060_Ti-32-65536": vast's own name of the card, which the column shortens to RTX4060. */
static void vast_name(const char *instance, char *name, size_t size)
{
	const size_t n = strspn(instance, "0123456789");
	const char *from = instance + n + 2, *end;

	if (!n || strncmp(instance + n, "x-", 2))
		return;
	end = strchr(from, '-');
	if (end && end > from)
		snprintf(name, size, "%.*s", (int)(end - from), from);
}

/* ---- cards that are attached ---- */

/* Which machine Google attaches a card to, by how many there are (sky/catalog/gcp_catalog.py,
 * _ACC_INSTANCE_TYPE_DICTS; older cards hang on n1 machines, of which the standard one with eight processors
 * a card is taken). */
static const struct {
	const char *card;
	double count;
	const char *host;
} hosts[] = {
	{"A100", 1, "a2-highgpu-1g"},       {"A100", 2, "a2-highgpu-2g"},       {"A100", 4, "a2-highgpu-4g"},
	{"A100", 8, "a2-highgpu-8g"},       {"A100", 16, "a2-megagpu-16g"},     {"A100-80GB", 1, "a2-ultragpu-1g"},
	{"A100-80GB", 2, "a2-ultragpu-2g"}, {"A100-80GB", 4, "a2-ultragpu-4g"}, {"A100-80GB", 8, "a2-ultragpu-8g"},
	{"L4", 1, "g2-standard-4"},         {"L4", 2, "g2-standard-24"},        {"L4", 4, "g2-standard-48"},
	{"L4", 8, "g2-standard-96"},        {"H100", 1, "a3-highgpu-1g"},       {"H100", 2, "a3-highgpu-2g"},
	{"H100", 4, "a3-highgpu-4g"},       {"H100", 8, "a3-highgpu-8g"},       {"H100-MEGA", 8, "a3-megagpu-8g"},
	{"H200", 8, "a3-ultragpu-8g"},      {"B200", 8, "a4-highgpu-8g"},       {"T4", 1, "n1-standard-8"},
	{"T4", 2, "n1-standard-16"},        {"T4", 4, "n1-standard-32"},        {"V100", 1, "n1-standard-8"},
	{"V100", 2, "n1-standard-16"},      {"V100", 4, "n1-standard-32"},      {"V100", 8, "n1-standard-64"},
	{"P100", 1, "n1-standard-8"},       {"P100", 2, "n1-standard-16"},      {"P100", 4, "n1-standard-32"},
	{"P4", 1, "n1-standard-8"},         {"P4", 2, "n1-standard-16"},        {"P4", 4, "n1-standard-32"},
};

static const char *host_of(const char *card, double count)
{
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (!strcmp(hosts[i].card, card) && fabs(hosts[i].count - count) < 0.5)
			return hosts[i].host;
	return NULL;
}

static bool is_host(const char *name)
{
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (!strcmp(hosts[i].host, name))
			return true;
	return false;
}

/* Room for one more; NULL: out of host memory. */
static void *room(void *items, size_t n, size_t *cap, size_t size)
{
	void *more;

	if (n < *cap)
		return items;
	*cap = *cap ? *cap * 2 : 64;
	more = realloc(items, *cap * size);
	return more;
}

static enum oom_status keep_host(struct oom_offer_loader *l, const struct oom_offer *f, const char *zone,
				 struct oom_error *err)
{
	struct oom_offer_host *more = room(l->hosts, l->n_hosts, &l->cap_hosts, sizeof(*more)), *h;

	if (!more)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	l->hosts = more;
	h = &l->hosts[l->n_hosts++];
	*h = (struct oom_offer_host){.vcpus = f->vcpus, .ram_gib = f->host_ram_gib,
				     .ondemand_usd_h = f->ondemand_usd_h, .spot_usd_h = f->spot_usd_h};
	oom_offer_copy(h->name, sizeof(h->name), f->instance);
	oom_offer_copy(h->zone, sizeof(h->zone), zone);
	return OOM_OK;
}

static enum oom_status keep_attached(struct oom_offer_loader *l, const struct oom_offer *f, const char *zone,
				     double count, double mem_gb, struct oom_error *err)
{
	struct oom_offer_attached *more = room(l->attached, l->n_attached, &l->cap_attached, sizeof(*more)), *a;

	if (!more)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	l->attached = more;
	a = &l->attached[l->n_attached++];
	*a = (struct oom_offer_attached){.offer = *f, .count = count, .mem_gb = mem_gb};
	oom_offer_copy(a->zone, sizeof(a->zone), zone);
	return OOM_OK;
}

static int by_zone(const void *a, const void *b)
{
	const struct oom_offer_host *x = a, *y = b;
	const int c = strcmp(x->zone, y->zone);

	return c ? c : strcmp(x->name, y->name);
}

enum oom_status oom_offers_attach(struct oom_offer_loader *l, struct oom_error *err)
{
	enum oom_status st = OOM_OK;

	if (l->n_hosts)
		qsort(l->hosts, l->n_hosts, sizeof(*l->hosts), by_zone);
	for (size_t i = 0; i < l->n_attached && !st; i++) {
		struct oom_offer_attached *a = &l->attached[i];
		const char *const host = host_of(a->offer.gpu_name, a->count);
		struct oom_offer_host want = {.vcpus = 0};
		const struct oom_offer_host *h = NULL;

		if (host && l->n_hosts) {
			oom_offer_copy(want.name, sizeof(want.name), host);
			oom_offer_copy(want.zone, sizeof(want.zone), a->zone);
			h = bsearch(&want, l->hosts, l->n_hosts, sizeof(*l->hosts), by_zone);
		}
		if (!h) {
			oom_offer_share(l->o, &a->offer, a->count);     /* which nobody can rent alone */
			continue;
		}
		oom_offer_copy(a->offer.instance, sizeof(a->offer.instance), h->name);
		a->offer.vcpus = h->vcpus;
		a->offer.host_ram_gib = h->ram_gib;
		a->offer.ondemand_usd_h += h->ondemand_usd_h;
		a->offer.spot_usd_h += h->spot_usd_h;
		st = oom_offer_add(l, &a->offer, a->count, a->mem_gb, err);
	}
	return st;
}

/* ---- rows ---- */

/* Host memory that is known to be something else there. */
static bool hides_ram(const struct oom_offer_loader *l, const struct oom_csv_row *row)
{
	return !strcmp(l->provider, "vast") || !strcmp(l->provider, "paperspace") ||
	       (!strcmp(l->provider, "runpod") && !oom_csv_cell(row, "AvailabilityZone"));
}

/* GB of one card.  Where nothing is said "A100" is the 40 GB card beside "A100-80GB", "V100" and "P100" are those of
 * 16 GB (gpuhunt's constraints.py knows no other P100; Google and Oracle, who let them, have these). */
static double memory_of(const struct oom_offer_loader *l, const struct oom_csv_row *row, const char *name, double count)
{
	const double told = info_memory(oom_offer_cell(row, "GpuInfo"));

	if (told > 0)
		return !strcmp(l->provider, "vast") && count > 1 ? told / count : told;
	return !strcmp(name, "A100") ? 40 : !strcmp(name, "V100") || !strcmp(name, "P100") ? 16 : 0;
}

enum oom_status oom_offers_sky_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
				   struct oom_error *err)
{
	struct oom_offers *o = l->o;
	struct oom_offer f = OOM_NO_OFFER;
	const char *name = oom_offer_cell(row, "AcceleratorName"), *const zone = oom_offer_cell(row, "AvailabilityZone");
	const double count = oom_offer_figure(o, oom_offer_cell(row, "AcceleratorCount"));

	if (oom_offer_is_other("", name))
		name = "";                      /* no GPU */
	oom_offer_copy(f.provider, sizeof(f.provider), l->provider);
	oom_offer_copy(f.instance, sizeof(f.instance), oom_offer_cell(row, "InstanceType"));
	oom_offer_copy(f.region, sizeof(f.region), oom_offer_cell(row, "Region"));
	oom_offer_copy(f.gpu_name, sizeof(f.gpu_name), name);
	if (*name && !strcmp(l->provider, "vast"))
		vast_name(f.instance, f.gpu_name, sizeof(f.gpu_name));
	for (char *p = f.gpu_name; *p; p++)
		if (*p == '_')
			*p = '-';
	f.vcpus = oom_offer_figure(o, oom_offer_cell(row, "vCPUs"));
	f.host_ram_gib = hides_ram(l, row) ? NAN : oom_offer_figure(o, oom_offer_cell(row, "MemoryGiB"));
	f.disk_gib = NAN;
	f.ondemand_usd_h = oom_offer_price_of(o, oom_offer_cell(row, "Price"));
	f.spot_usd_h = oom_offer_price_of(o, oom_offer_cell(row, "SpotPrice"));
	if (f.spot_usd_h == f.ondemand_usd_h)
		f.spot_usd_h = NAN;
	if (*name && !*f.instance)
		return keep_attached(l, &f, zone, count, memory_of(l, row, name, count), err);
	if (!*name && is_host(f.instance)) {
		enum oom_status st = keep_host(l, &f, zone, err);

		if (st)
			return st;
	}
	return oom_offer_add(l, &f, count, memory_of(l, row, name, count), err);
}
