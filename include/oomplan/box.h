/* Machines for rent, and which of them a training run fits. */
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

/* One machine in one region.  Prices in US dollars for the whole machine and hour; NAN where the
 * list gives none. */
struct oom_offer {
	char provider[24], instance[64], region[32], gpu_name[48];
	char price_date[12], source[96];
	char interconnect[32];          /* between its cards; "" = the card's own */
	int32_t gpu;                    /* index into the cards; -1: unknown to the table */
	uint32_t gpu_count;
	double host_ram_gib, disk_gib, vcpus, network_gbps;     /* NAN: not given */
	double ondemand_usd_h, spot_usd_h;
	/* of what is kept, and of the last checkpoint taken away: the list's, else the provider's
	 * (data/providers.csv); NAN where nobody says */
	double storage_usd_gib_month, egress_usd_gib;
	bool rates_from_provider;
	/* machines of it train together: their network is named, NVLink joins them, or they have as many
	 * cards as their provider links; never those that private hosts let on a market */
	bool clusters;
};
/* Whether its price is older than a year. */
OOM_API bool oom_offer_is_stale(const struct oom_offer *offer);
/* Zero-initialise; free with oom_offers_release. */
struct oom_offers {
	struct oom_offer *items;
	size_t n, cap;
	struct oom_gpus gpus;
	/* rows left out or mended, counted; the first few in words */
	size_t rows, malformed, no_gpu, unknown_gpu, bad_number, bad_price, duplicates, shares;
	char unknown[8][48], nearest[8][48];
	size_t n_unknown;
};
/* The shipped list (data/boxes.csv), and a user's own: our columns, SkyPilot catalogue CSVs,
 * gpuhunt CSVs, told apart by their headers; gpuhunt's and dstack's offers as JSON (a name ending
 * in .json).  OOM_ERR_INVALID names the columns that are missing.  Rows of unknown cards are
 * counted, never dropped in silence. */
OOM_API enum oom_status oom_offers_load(struct oom_offers *offers, struct oom_error *err);
OOM_API enum oom_status oom_offers_read(struct oom_offers *offers, const char *path,
					struct oom_error *err);
OOM_API void oom_offers_release(struct oom_offers *offers);
/* Days from a date (YYYY, YYYY-MM, YYYY-MM-DD, from its first day) to today; -1 when it is none. */
OOM_API long oom_price_age_days(const char *date);

enum oom_shortage {
	OOM_BOX_FITS, OOM_BOX_VRAM, OOM_BOX_RAM, OOM_BOX_DISK, OOM_BOX_LAYOUT,
	OOM_BOX_FABRIC          /* no network that several of these machines could train over */
};
/* What interruptions do to a run: how often to write a checkpoint, and how many times as long it takes. */
struct oom_failures {
	double interval_s;      /* of work between two checkpoints; 0: no matter */
	double factor;          /* 1: nothing is lost */
};
/* Young's and Daly's formulas (failures.c): seconds that a checkpoint takes, until the run goes on after an
 * interruption, and between interruptions in the mean.  No mean, no loss. */
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
	uint64_t short_bytes;           /* by how much, of the first shortage */
	/* the cheapest that fits the cards (valid unless VRAM or LAYOUT) */
	struct oom_candidate plan;
	struct oom_host_need need;
	double usd_h;                   /* all nodes; the spot price when asked for */
	double tokens_per_s;            /* an estimate (steptime.h) */
	double usd_per_mtokens;         /* of that price */
	double usd_per_ksamples;        /* a thousand samples of the plan's length */
	/* beside each other; NAN without that price */
	double ondemand_usd_per_mtokens, spot_usd_per_mtokens;
	/* the ends of an interval (steptime.h), model-flops utilisation, what most of a step goes to */
	double tokens_low, tokens_high, mfu, mfu_low, mfu_high;
	enum oom_bound binds;
	enum oom_shortage breaks_first; /* VRAM, RAM or DISK: the fullest, and how full of 1 */
	double breaks_share;
	struct oom_failures failures;   /* of these GPUs; with spot prices of these machines, too */
	/* of the query's tokens, interruptions included; NAN without tokens, dollars without a price */
	double days, days_low, days_high, gpu_hours;
	double usd, usd_low, usd_high, usd_storage, usd_egress;
	bool late, over_budget;         /* past the deadline, over the budget */
	bool stale;                     /* its price is older than a year */
	double key;                     /* what it is ranked by; infinite without a price */
	bool needs_science;             /* fits only with a change that must be allowed */
	/* nothing is both cheaper an hour and faster; with tokens: nothing costs less and is done earlier */
	bool pareto;
	bool guessed;                   /* while boxes are looked for: the plan of fewer nodes, not searched for */
};
struct oom_box_query {
	unsigned allow;
	enum oom_box_rank rank;
	const char *providers;          /* comma list, NULL: all */
	const char *gpu;                /* NULL: all */
	double max_usd_h;               /* 0: any */
	double min_headroom;            /* part of the card to stay free: 0 to below 1 */
	int64_t max_nodes;              /* 1 unless asked: as few of them as do */
	int64_t nodes;                  /* exactly so many; 0: as max_nodes says */
	bool spot;
	double spot_hours;              /* mean until a spot machine is taken back; 0: never */
	double tokens;                  /* of the whole training; 0: no quote */
	double deadline_days, budget_usd;       /* 0: none.  Nodes are added until the deadline is met */
	/* NULL: predictions are taken as they are; else each card's headroom follows from it, for
	 * this confidence (0: what is expected, and the plan's margin) */
	const struct oom_calibration *calibration;
	double confidence;
};
struct oom_boxes {
	/* best first: what fits, is in time and within the budget, with a price, a fresh one; then what
	 * lacks these, the last first; those that do not fit behind */
	struct oom_box *items;
	size_t n, fitting, priced_groups;
	/* with tokens: every offer with every number of nodes that was tried and fits, by days */
	struct oom_box *points;
	size_t n_points, cap_points;
};
/* Finds the cheapest plan for every offer.  Offers that share hardware are searched once. */
OOM_API enum oom_status oom_boxes_find(const struct oom_offers *offers,
				       const struct oom_model *model, const struct oom_plan *plan,
				       const struct oom_box_query *query, struct oom_boxes *out,
				       struct oom_error *err);
OOM_API void oom_boxes_release(struct oom_boxes *boxes);
OOM_API const char *oom_shortage_str(enum oom_shortage s);

#ifdef __cplusplus
}
#endif

#endif
