/* What every reader of price lists does with a row: numbers and prices as lists write them, the card that is meant, and
 * what cannot be used, counted and remembered. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "offers_parts.h"

enum { MAX_OFFERS = 1000000 };

double oom_offer_figure(struct oom_offers *o, const char *text)
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

double oom_offer_price_of(struct oom_offers *o, const char *text)
{
	return oom_offer_price(o, oom_offer_figure(o, text));
}

/* Only dollars are compared with dollars: a price in another currency is none, and counted. */
double oom_offer_dollars(struct oom_offers *o, const char *currency, double v)
{
	if (!*currency || !strcasecmp(currency, "USD") || !strcmp(currency, "$") || isnan(v))
		return v;
	o->bad_price++;
	return NAN;
}

const char *oom_offer_cell(const struct oom_csv_row *row, const char *name)
{
	const char *s = oom_csv_cell(row, name);

	return s ? s : "";
}

/* ---- cards ---- */

/* mem_gb: stated, or 0; what the list says may contradict itself. */
static void note_unknown(const struct oom_offer_loader *l, const char *name, double mem_gb)
{
	struct oom_offers *const o = l->o;
	const char *near, **names;
	char said[64];
	int32_t alike;
	int each;

	o->unknown_gpu++;
	if (o->n_unknown == sizeof(o->unknown) / sizeof(o->unknown[0]))
		return;
	if (mem_gb > 4 && mem_gb < 2000)
		snprintf(said, sizeof(said), "%.47s of %.0f GB", name, mem_gb);
	else
		snprintf(said, sizeof(said), "%.47s", name);
	for (size_t i = 0; i < o->n_unknown; i++)
		if (!strcmp(o->unknown[i], said))
			return;
	/* the card of that name, whose memory is another */
	alike = oom_offer_card(&o->gpus, &l->words, name, 0, OOM_FORM_UNSAID, &each);
	names = calloc(o->gpus.n + 1, sizeof(*names));
	for (size_t i = 0; names && i < o->gpus.n; i++)
		names[i] = o->gpus.items[i].name;
	near = alike >= 0 ? o->gpus.items[alike].name : names ? oom_nearest(name, names) : NULL;
	memcpy(o->unknown[o->n_unknown], said, sizeof(said));
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

/* Looked up once for each name, memory and form. */
static struct oom_offer_name find_gpu(struct oom_offer_loader *l, const char *name, double mem_gb,
				      enum oom_offer_form form)
{
	struct oom_offer_name n = {.gpu_mem = mem_gb > 4 && mem_gb < 2000 ? (int)lround(mem_gb) : 0,
				   .form = form};
	const struct oom_offer_name *seen;

	snprintf(n.name, sizeof(n.name), "%.47s", name);
	seen = oom_offer_seen(&l->seen, &n);
	if (seen)
		return *seen;
	n.gpu = oom_offer_card(&l->o->gpus, &l->words, name, n.gpu_mem, form, &n.each);
	(void)oom_offer_see(&l->seen, &n);      /* without room for it, the next one is looked up as well */
	return n;
}

/* How the cards are built: what their name says, or the machine's, or what the provider has; else eight in a machine
 * are linked ones.  That nobody says it is counted where it makes a difference. */
static struct oom_offer_name card_of(struct oom_offer_loader *l, const struct oom_offer *f, double count, double mem_gb)
{
	const struct oom_provider *const from = oom_provider_of(&l->providers, f->provider);
	enum oom_offer_form form = oom_offer_form(f->gpu_name);
	char name[48];

	if (oom_provider_card(from, f->instance, f->gpu_name, name)) {
		const struct oom_offer_name own = find_gpu(l, name, mem_gb, OOM_FORM_UNSAID);

		if (own.gpu >= 0)
			return own;     /* else the list states another memory */
	}
	if (form == OOM_FORM_UNSAID)
		form = oom_offer_form(f->instance);
	if (form == OOM_FORM_UNSAID)
		form = oom_provider_form(from, f->gpu_name);
	if (form == OOM_FORM_UNSAID) {
		l->o->unsaid_form += find_gpu(l, f->gpu_name, mem_gb, OOM_FORM_PCIE).gpu !=
				     find_gpu(l, f->gpu_name, mem_gb, OOM_FORM_SXM).gpu;
		form = count >= 8 ? OOM_FORM_SXM : OOM_FORM_UNSAID;
	}
	return find_gpu(l, f->gpu_name, mem_gb, form);
}

/* ---- rows ---- */

void oom_offer_share(struct oom_offers *o, const struct oom_offer *f, double count)
{
	char said[sizeof(o->share[0])], times[24] = "?";

	o->shares++;
	if (!isnan(count))
		snprintf(times, sizeof(times), "%.3g", count);
	snprintf(said, sizeof(said), "%s x %.31s%s%.31s%s", times, f->gpu_name, *f->instance ? " (" : ", no machine",
		 f->instance, *f->instance ? ")" : "");
	for (size_t i = 0; i < o->n_share; i++)
		if (!strcmp(o->share[i], said))
			return;
	if (o->n_share < sizeof(o->share) / sizeof(o->share[0]))
		memcpy(o->share[o->n_share++], said, sizeof(said));
}

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
		oom_offer_share(o, f, count);
		return OOM_OK;
	}
	card = card_of(l, f, count, mem_gb);
	f->gpu_count = (uint32_t)count * (uint32_t)card.each;
	f->gpu = card.gpu;
	if (f->gpu < 0) {
		note_unknown(l, f->gpu_name, mem_gb);
		return OOM_OK;
	}
	if (f->gpu_count > 1 && oom_offer_is_slice(&o->gpus.items[f->gpu])) {
		oom_offer_share(o, f, count);
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
