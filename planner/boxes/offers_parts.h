/* What the readers of price lists share.  Private to planner/. */
#ifndef OOM_OFFERS_PARTS_H
#define OOM_OFFERS_PARTS_H

#include "oomplan/box.h"

struct oom_offer_name {                 /* a GPU's name already looked up */
	char name[48];
	int gpu_mem;                    /* GB the list states; 0: none */
	bool linked;                    /* eight of them and more */
	int each;                       /* devices that PyTorch sees of one */
	int32_t gpu;
};
/* A row of data/providers.csv; -1: no price is known. */
struct oom_provider {
	char name[24];
	bool market;                    /* private hosts let their machines */
	unsigned long linked_gpus;      /* machines of so many cards are linked; 0: none without being named so */
	double storage_usd_gib_month, egress_usd_gib;
};
struct oom_providers {
	struct oom_provider *items;
	size_t n;
};
enum oom_status oom_providers_load(struct oom_providers *p, struct oom_error *err);
void oom_providers_release(struct oom_providers *p);
/* Its row, or that of any provider. */
const struct oom_provider *oom_provider_of(const struct oom_providers *p, const char *name);
/* Whether it clusters, and the prices that the list is silent about. */
void oom_provider_fill(const struct oom_provider *p, const struct oom_gpu *card, struct oom_offer *o);

struct oom_offer_loader {
	struct oom_providers providers;

	struct oom_offers *o;
	const char *provider;
	struct oom_offer_name *seen;
	size_t n_seen;
	enum { OOM_OFFERS_OWN, OOM_OFFERS_SKY, OOM_OFFERS_HUNT, OOM_OFFERS_UNKNOWN } kind;
	bool header;
};

/* Looks the card up and appends the offer; what cannot be used is counted.  mem_gb: of one card,
 * 0 when the list is silent. */
enum oom_status oom_offer_add(struct oom_offer_loader *l, struct oom_offer *offer, double count,
			      double mem_gb, struct oom_error *err);
/* The card that a list calls so; -1: none, or several of different memory.  mem_gb: stated, or 0.  each: how many
 * devices one of them is (two dies of a board). */
int32_t oom_offer_card(const struct oom_gpus *gpus, const char *name, double mem_gb, double count, int *each);
/* Whether the vendor's accelerators are no GPUs: TPUs, Trainium, Tenstorrent's. */
bool oom_offer_is_other(const char *vendor, const char *name);
/* NAN, counted, for a price that nobody charges. */
double oom_offer_price(struct oom_offers *o, double v);

/* Fills days, dollars and limits of a box that fits. */
void oom_box_quote(const struct oom_gpu *card, const struct oom_box_query *q,
		   const struct oom_step_time *t, struct oom_box *b);

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
