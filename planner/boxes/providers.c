/* What holds for all machines of a provider (data/providers.csv): whether several of them train together, and what
 * kept and carried-away bytes cost where a list of offers is silent. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../input/csv_rows.h"
#include "embedded.h"
#include "offers_parts.h"

static double dollars(const struct oom_csv_row *row, const char *column)
{
	const char *text = oom_csv_cell(row, column);

	return text && *text ? strtod(text, NULL) : -1;
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct oom_providers *p = ctx;
	const char *name = oom_csv_cell(row, "provider"), *market = oom_csv_cell(row, "market"),
		   *linked = oom_csv_cell(row, "linked_gpus"), *sxm = oom_csv_cell(row, "sxm"),
		   *machines = oom_csv_cell(row, "machines");
	struct oom_provider *q;

	if (!name || !market || !linked || !*name)
		return oom_error_set(err, OOM_ERR_INVALID, "%s:%zu: expected provider, market, linked_gpus",
				     row->file, row->line);
	q = realloc(p->items, (p->n + 1) * sizeof(*q));
	if (!q)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	p->items = q;
	q += p->n++;
	memset(q, 0, sizeof(*q));
	memcpy(q->name, name, strlen(name) < sizeof(q->name) ? strlen(name) : sizeof(q->name) - 1);
	q->market = !strcmp(market, "yes");
	q->linked_gpus = strtoul(linked, NULL, 10);
	if (sxm)
		oom_offer_copy(q->sxm, sizeof(q->sxm), sxm);
	if (machines)
		oom_offer_copy(q->machines, sizeof(q->machines), machines);
	q->storage_usd_gib_month = dollars(row, "storage_usd_gib_month");
	q->egress_usd_gib = dollars(row, "egress_usd_gib");
	return OOM_OK;
}

enum oom_status oom_providers_load(struct oom_providers *p, struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("providers.csv");

	return p->n ? OOM_OK : oom_csv_parse((const char *)f->bytes, f->size, "providers.csv", take, p, err);
}

void oom_providers_release(struct oom_providers *p)
{
	free(p->items);
	memset(p, 0, sizeof(*p));
}

/* The first row is that of any provider. */
const struct oom_provider *oom_provider_of(const struct oom_providers *p, const char *name)
{
	for (size_t i = 1; i < p->n; i++)
		if (!strcasecmp(p->items[i].name, name))
			return &p->items[i];
	return p->items;
}

enum oom_offer_form oom_provider_form(const struct oom_provider *p, const char *card)
{
	const char *at = p->sxm;

	for (; *at; at += strcspn(at, ";"), at += *at == ';') {
		const size_t n = strcspn(at, ";");

		if (n && !strncasecmp(card, at, n) && (!card[n] || card[n] == '-'))
			return OOM_FORM_SXM;
	}
	return OOM_FORM_UNSAID;
}

/* Azure's lists call the H100 NVL of its NC machines and the SXM one of its ND machines "H100" alike, and say no memory. */
const char *oom_provider_card(const struct oom_provider *p, const char *instance, const char *card, char out[48])
{
	char pattern[sizeof(p->machines)], said[100], mine[100];

	for (const char *at = p->machines; *at; at += strcspn(at, ";"), at += *at == ';') {
		const size_t n = strcspn(at, ";"), eq = strcspn(at, "=");

		snprintf(pattern, sizeof(pattern), "%.*s", (int)(eq < n ? eq : n), at);
		if (eq >= n || fnmatch(pattern, instance, 0))
			continue;
		snprintf(out, 48, "%.*s", (int)(n - eq - 1), at + eq + 1);
		oom_offer_named_memory(card, said, sizeof(said));
		oom_offer_plain(said, pattern, sizeof(said));
		oom_offer_plain(out, mine, sizeof(mine));
		return strncmp(mine, pattern, strlen(pattern)) ? NULL : out;
	}
	return NULL;
}

/* NCCL refuses two slices of one card, and has no path between slices but host memory and the network; from 2.32 on it
 * lets them, as an experiment for tests (NVIDIA/nccl#1716): a run is not priced over several. */
bool oom_offer_is_slice(const struct oom_gpu *card)
{
	return strstr(card->name, " MIG ") != NULL;
}

/* Machines of private hosts have nothing but the internet between two of them, whatever a list says; else a
 * network that the list names, cards of one NVLink domain over several machines, or as many cards as the provider
 * links. */
void oom_provider_fill(const struct oom_provider *p, const struct oom_gpu *card, struct oom_offer *o)
{
	o->clusters = !p->market && !oom_offer_is_slice(card) &&
		      (o->network_gbps > 0 || card->nvlink_domain > (double)o->gpu_count ||
		       (p->linked_gpus && o->gpu_count >= p->linked_gpus));
	if (!(o->storage_usd_gib_month >= 0) && p->storage_usd_gib_month >= 0) {
		o->storage_usd_gib_month = p->storage_usd_gib_month;
		o->rates_from_provider = true;
	}
	if (!(o->egress_usd_gib >= 0) && p->egress_usd_gib >= 0) {
		o->egress_usd_gib = p->egress_usd_gib;
		o->rates_from_provider = true;
	}
}
