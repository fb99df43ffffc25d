/* What the readers of price lists share.  Private to planner/. */
#ifndef OOM_OFFERS_PARTS_H
#define OOM_OFFERS_PARTS_H

#include <time.h>

#include "../input/csv_rows.h"
#include "oomplan/box.h"

/* Days from a date to now; -1 if it is not a date. */
long offers_age_days(const char *date, time_t now);
/* Whether a price was older than a year then. */
bool offers_stale_at(const struct oom_offer *o, time_t now);

/* How a card is built, where there are two of one name. */
enum oom_offer_form { OOM_FORM_UNSAID, OOM_FORM_PCIE, OOM_FORM_SXM };
struct oom_offer_name {                 /* a GPU's name already looked up */
	char name[48];
	int gpu_mem;                    /* GB the list states; 0: none */
	enum oom_offer_form form;
	int each;                       /* devices that PyTorch sees of one */
	int32_t gpu;
};
struct oom_offer_seen {                 /* those, by their hash */
	struct oom_offer_name *rows;
	size_t size, n;
};
/* NULL: not yet looked up. */
const struct oom_offer_name *oom_offer_seen(const struct oom_offer_seen *seen, const struct oom_offer_name *n);
/* False: no room. */
bool oom_offer_see(struct oom_offer_seen *seen, const struct oom_offer_name *n);
/* What cards are called, as names are compared, and how near a name can be to each. */
struct oom_offer_words {
	struct oom_offer_word {
		char text[100];
		int most;
	} *items;
	size_t *first, n, cap;
};
enum oom_status oom_offer_words_make(const struct oom_gpus *gpus, struct oom_offer_words *out, struct oom_error *err);
void oom_offer_words_release(struct oom_offer_words *w);
/* 0: another card; up to 3, the nearer the plain name is to one of its. */
int oom_offer_named(const struct oom_offer_words *w, size_t gpu, const char *plain);
/* The name behind the maker's and the product line's words; its letters and digits, in lower case. */
const char *oom_offer_without_maker(const char *name);
void oom_offer_plain(const char *name, char *out, size_t size);
/* The name without the part that states the memory, in GB, which it returns; 0: none does. */
double oom_offer_named_memory(const char *name, char *out, size_t size);
/* A row of data/providers.csv; -1: no price is known. */
struct oom_provider {
	char name[24];
	bool market;                    /* private hosts let their machines */
	unsigned long linked_gpus;      /* machines of so many cards are linked; 0: none without being named so */
	double storage_usd_gib_month, egress_usd_gib;
	char sxm[40];                   /* cards of which it has the SXM form alone */
	char machines[220];             /* "NC*_H100_v5=H100-NVL-94GB;...": what cards machines of a name have */
};
struct oom_providers {
	struct oom_provider *items;
	size_t n;
};
enum oom_status oom_providers_load(struct oom_providers *p, struct oom_error *err);
void oom_providers_release(struct oom_providers *p);
/* Its row, or that of any provider. */
const struct oom_provider *oom_provider_of(const struct oom_providers *p, const char *name);
/* The form of its cards of this name. */
enum oom_offer_form oom_provider_form(const struct oom_provider *p, const char *card);
/* The card that its machine of this name has, where the list's name of the card is short for it; NULL: its names say none. */
const char *oom_provider_card(const struct oom_provider *p, const char *instance, const char *card, char out[48]);
/* Whether it is a slice of a card, which trains alone. */
bool oom_offer_is_slice(const struct oom_gpu *card);
/* Whether it clusters, and the prices that the list is silent about. */
void oom_provider_fill(const struct oom_provider *p, const struct oom_gpu *card, struct oom_offer *o);

/* A list that prices cards and the machines that they are attached to apart (offers_sky.c). */
struct oom_offer_host {
	char name[24], zone[32];
	double vcpus, ram_gib, ondemand_usd_h, spot_usd_h;
};
struct oom_offer_attached {
	struct oom_offer offer;
	char zone[32];
	double count, mem_gb;
};

struct oom_offer_loader {
	struct oom_providers providers;
	struct oom_offer_host *hosts;
	struct oom_offer_attached *attached;
	size_t n_hosts, cap_hosts, n_attached, cap_attached;

	struct oom_offers *o;
	const char *provider;
	struct oom_offer_words words;
	struct oom_offer_seen seen;
	enum { OOM_OFFERS_OWN, OOM_OFFERS_SKY, OOM_OFFERS_HUNT, OOM_OFFERS_UNKNOWN } kind;
	bool header;
};

/* Looks the card up and appends the offer; what cannot be used is counted.  mem_gb: of one card,
 * 0 when the list is silent. */
enum oom_status oom_offer_add(struct oom_offer_loader *l, struct oom_offer *offer, double count,
			      double mem_gb, struct oom_error *err);
/* Counts a row of no whole card, a fraction of one or one without a machine, and remembers the first few. */
void oom_offer_share(struct oom_offers *o, const struct oom_offer *f, double count);
/* The card that a list calls so; -1: none, or several of different memory.  mem_gb: stated, or 0.  each: how many
 * devices one of them is (two dies of a board). */
int32_t oom_offer_card(const struct oom_gpus *gpus, const struct oom_offer_words *words, const char *name, double mem_gb,
		       enum oom_offer_form form, int *each);
/* The form that a name of a card or a machine says. */
enum oom_offer_form oom_offer_form(const char *text);
/* Whether the vendor's accelerators are no GPUs: TPUs, Trainium, Tenstorrent's. */
bool oom_offer_is_other(const char *vendor, const char *name);
/* NAN, counted, for a price that nobody charges. */
double oom_offer_price(struct oom_offers *o, double v);
/* A cell's text, "" where the column is missing; its number, or price; NAN, counted where it is no number. */
const char *oom_offer_cell(const struct oom_csv_row *row, const char *name);
double oom_offer_figure(struct oom_offers *o, const char *text);
double oom_offer_price_of(struct oom_offers *o, const char *text);
/* Only dollars are compared with dollars: NAN, counted, for a price in another currency. */
double oom_offer_dollars(struct oom_offers *o, const char *currency, double v);
/* Cuts what does not fit. */
void oom_offer_copy(char *to, size_t size, const char *from);
#define OOM_NO_OFFER {.gpu = -1, .storage_usd_gib_month = NAN, .egress_usd_gib = NAN}
/* SkyPilot's rows; oom_offers_attach, after the last one, joins cards with their machines. */
enum oom_status oom_offers_sky_row(struct oom_offer_loader *l, const struct oom_csv_row *row,
				   struct oom_error *err);
enum oom_status oom_offers_attach(struct oom_offer_loader *l, struct oom_error *err);

/* Fills days, dollars and limits of a box that fits. */
void oom_box_quote(const struct oom_gpu *card, const struct oom_box_query *q,
		   const struct oom_step_time *t, struct oom_box *b);

/* Drops points that are late, too dear or of an old price, where others are not or less so. */
void oom_boxes_only_answers(struct oom_boxes *out);

/* Marks what nothing beats in both price and time. */
enum oom_status oom_boxes_front(struct oom_box *items, size_t n, struct oom_error *err);
/* Sorts items and points, counts what fits, marks the fronts. */
enum oom_status oom_boxes_order(struct oom_boxes *out, const struct oom_box_query *q,
				struct oom_error *err);

bool oom_offers_are_json(const char *path);
enum oom_status oom_offers_parse_json(struct oom_offer_loader *l, const char *text, size_t size,
				      const char *name, struct oom_error *err);
/* From memory what oom_offers_read reads from a file of this name. */
enum oom_status oom_offers_parse(struct oom_offers *offers, const char *text, size_t size,
				 const char *name, struct oom_error *err);
enum oom_status oom_offers_read_json(struct oom_offer_loader *l, const char *path,
				     struct oom_error *err);

#endif
