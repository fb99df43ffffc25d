/* Machines for rent, and the ones that a training run fits on. */
#ifndef OOMPLAN_BOX_H
#define OOMPLAN_BOX_H

#include "oomplan/calibrate.h"
#include "oomplan/gpu.h"
#include "oomplan/host.h"
#include "oomplan/search.h"
#include "oomplan/steptime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One machine in one region.  Prices are in US dollars per hour for the whole machine; NAN if the list does
 * not give one. */
struct oom_offer {
	char provider[24], instance[64], region[32], gpu_name[48];
	char price_date[12], source[96];
	char interconnect[32];          /* between its cards; "": the card's own */
	int32_t gpu;                    /* index into the table of cards; -1: the table does not have it */
	uint32_t gpu_count;
	double host_ram_gib, disk_gib, vcpus, network_gbps;     /* NAN: not stated */
	double ondemand_usd_h, spot_usd_h;
	/* rates for what is stored and for downloading the last checkpoint: the list's, otherwise the
	 * provider's (data/providers.csv); NAN if neither states one */
	double storage_usd_gib_month, egress_usd_gib;
	bool rates_from_provider;
	/* several such machines can train together: their network is named, NVLink joins them, or they have
	 * as many cards as their provider links.  Never true for machines that private hosts offer. */
	bool clusters;
};
/* True if its price is older than a year. */
OOM_API bool oom_offer_is_stale(const struct oom_offer *offer);
/* Zero-initialise; free with oom_offers_release. */
struct oom_offers {
	struct oom_offer *items;
	size_t n, cap;
	struct oom_gpus gpus;
	/* counts of rows, and of those that were left out or corrected; names of the first unknown cards */
	size_t rows, malformed, no_gpu, unknown_gpu, bad_number, bad_price, duplicates, shares;
	size_t unavailable;             /* rows that say that they cannot be had now */
	size_t unsaid_form;             /* rows that do not say whether their cards are PCIe or SXM, where both are */
	char unknown[8][64], nearest[8][48];
	size_t n_unknown;
	char share[4][96];              /* "0.33 x A10 (an instance)" */
	size_t n_share;
};
/* Reads the shipped list (data/boxes.csv) or a user's own: a CSV with our columns, SkyPilot's or gpuhunt's,
 * which are told apart by their headers, or offers of gpuhunt or dstack as JSON (a name that ends in
 * .json).  OOM_ERR_INVALID names missing columns.  Rows with unknown cards are counted, never dropped
 * silently. */
OOM_API enum oom_status oom_offers_load(struct oom_offers *offers, struct oom_error *err);
OOM_API enum oom_status oom_offers_read(struct oom_offers *offers, const char *path,
					struct oom_error *err);
OOM_API void oom_offers_release(struct oom_offers *offers);
/* Days from a date to today; a date YYYY or YYYY-MM counts from its first day.  -1 if it is not a date. */
OOM_API long oom_price_age_days(const char *date);

enum oom_shortage {
	OOM_BOX_FITS, OOM_BOX_VRAM, OOM_BOX_RAM, OOM_BOX_DISK, OOM_BOX_LAYOUT,
	OOM_BOX_FABRIC,         /* several such machines have no network to train over */
	OOM_BOX_BATCH           /* more ranks than the step has sequences */
};
/* What interruptions do to a run: how often to write a checkpoint, and the factor by which it takes longer. */
struct oom_failures {
	double interval_s;      /* seconds of work between two checkpoints; 0: any */
	double factor;          /* 1: nothing is lost */
};
/* Young's and Daly's formulas (failures.c).  The arguments are seconds: to write a checkpoint, to resume
 * after an interruption, and the mean between interruptions (0: there are none, and nothing is lost). */
OOM_API struct oom_failures oom_failures_of(double checkpoint_s, double restart_s, double mean_s);
#define OOM_BOX_RANKS(X) \
	X(OOM_BOX_BY_TOKENS, "tokens", "the lowest price per million tokens (estimated)") \
	X(OOM_BOX_BY_HOUR, "hour", "the lowest price per hour") \
	X(OOM_BOX_BY_TIME, "time", "the least time per sample (estimated)") \
	X(OOM_BOX_BY_SCIENCE, "science", "the mildest change to the result, then the price")
enum oom_box_rank { OOM_BOX_RANKS(OOM_WORD_ID) };

struct oom_box {
	const struct oom_offer *offer;
	int64_t nodes;
	enum oom_shortage shortage;
	uint64_t short_bytes;           /* the bytes missing for the first shortage */
	/* The cheapest plan that fits the cards, shared by boxes of the same hardware and owned by struct
	 * oom_boxes; never NULL, and empty (used_bytes 0) where no plan fits. */
	const struct oom_candidate *plan;
	struct oom_host_need need;
	int64_t batch;                  /* sequences of a step; 0 without a plan */
	double usd_h;                   /* all nodes; the spot price if that was asked for */
	double tokens_per_s;            /* estimated (steptime.h) */
	double usd_per_mtokens;         /* at usd_h */
	double usd_per_ksamples;        /* per thousand samples of the plan's length */
	/* at both kinds of price; NAN without that price */
	double ondemand_usd_per_mtokens, spot_usd_per_mtokens;
	/* the interval's ends (steptime.h), model-FLOPs utilisation, and what most of a step's time goes to */
	double tokens_low, tokens_high, mfu, mfu_low, mfu_high;
	enum oom_bound binds;
	enum oom_shortage breaks_first; /* VRAM, RAM or DISK: the fullest of them, and its share in use */
	double breaks_share;
	struct oom_failures failures;   /* failures of the GPUs and, at spot prices, reclaimed machines */
	/* for the query's tokens, with interruptions; NAN without tokens, dollars also without a price */
	double days, days_low, days_high, gpu_hours;
	double usd, usd_low, usd_high, usd_storage, usd_egress;       /* the last two NAN, and not in usd, without rates */
	/* after the deadline and over the budget by the middle of days and dollars; by their far end, but not by the middle */
	bool late, over_budget, may_be_late, may_be_over_budget;
	bool stale;                     /* its price is older than a year */
	double key;                     /* the number it is ranked by; infinite without a price */
	bool needs_science;             /* it fits only with a change that must be allowed */
	/* no other is both cheaper per hour and faster; with tokens: none costs less and finishes earlier */
	bool pareto;
	bool guessed;                   /* during the search for boxes: the plan is that of fewer nodes */
};
struct oom_box_query {
	unsigned allow;
	enum oom_box_rank rank;
	const char *providers;          /* names joined by commas; NULL: all */
	const char *gpu;                /* NULL: all; else every card that the word may name */
	int64_t gpus_each;              /* machines of exactly so many cards; 0: any */
	double max_usd_h;               /* 0: any */
	double min_headroom;            /* share of the card that stays free, 0 to below 1 */
	int64_t max_nodes;              /* the fewest nodes that suffice are used, up to this many */
	int64_t nodes;                  /* exactly this many; 0: see max_nodes */
	bool spot;
	double spot_hours;              /* mean hours until a spot machine is reclaimed; 0: never */
	double tokens;                  /* of the whole run; 0: no quote */
	double deadline_days, budget_usd;       /* 0: none; nodes are added until the deadline is met */
	/* each card's headroom follows from the calibration, with this confidence (0: the expected bytes and
	 * the plan's margin); NULL: predictions are used as they are */
	const struct oom_calibration *calibration;
	bool by_kind;                   /* as in struct oom_question */
	double confidence;
};
struct oom_boxes {
	/* Best first.  Ahead are those that fit, meet the deadline and the budget, and have a recent price;
	 * behind them those with an old price, without a price, over the budget, late; at the end those that
	 * do not fit. */
	struct oom_box *items;
	size_t n, fitting, priced_groups;
	/* with tokens: every offer with every number of nodes that was tried and fits, sorted by days */
	struct oom_box *points;
	size_t n_points, cap_points;
	struct oom_candidate **plans;   /* which items and points refer to */
	size_t n_plans, cap_plans;
};
/* Finds the cheapest plan for every offer.  Offers with the same hardware are searched once.  An offer that nothing
 * fits is no failure; otherwise it fails as oom_search does.  The caller releases *out, unless it fails. */
OOM_API enum oom_status oom_boxes_find(const struct oom_offers *offers,
				       const struct oom_model *model, const struct oom_plan *plan,
				       const struct oom_box_query *query, struct oom_boxes *out,
				       struct oom_error *err);
OOM_API void oom_boxes_release(struct oom_boxes *boxes);
/* What a box is short of, in words.  Static. */
OOM_API const char *oom_shortage_str(enum oom_shortage s);

#ifdef __cplusplus
}
#endif

#endif
