/* Between the files of oomplan diagnose. */
#ifndef OOM_CLI_DIAGNOSE_H
#define OOM_CLI_DIAGNOSE_H

#include "cli.h"
#include "json.h"
#include "oomplan/diagnose.h"
#include "oomplan/snapshot.h"

/* A crash beside the plan for the knobs given. */
struct oom_comparison {
	bool done;                      /* a model was given and could be priced */
	struct oom_plan asked;
	struct oom_eval eval;           /* as asked */
	/* allocated, in the phase of the crash; 0: no phase of the plan */
	uint64_t phase_peak;
	const char *phase;
	uint64_t capacity;              /* the card's as given, or as the message says */
	/* the tensor the failing request was */
	/* step_only: the allocator's own 2 or 20 MiB, any small tensor */
	bool matched, step_only;
	/* with which it matches, where that is not the one asked for; 0: the same */
	int64_t micro_batch;
	char scope[64], row[64], kind[40], formula[160], numbers[120];
	size_t also;                    /* rows of the same size beside it */
	bool searched;
	struct oom_search_report search;        /* the cheapest that would have fitted */
};
int oom_compare_crash(struct oom_job *job, const struct oom_crash *c, struct oom_comparison *out);
void oom_compare_text(const struct oom_job *job, const struct oom_crash *c,
		      const struct oom_comparison *m);
void oom_compare_json(struct oom_json *j, const struct oom_comparison *m);

/* The keys of one crash, into the object that is open. */
void oom_crash_json(struct oom_json *j, const struct oom_crash *c, const char *file,
		    uint64_t messages);

/* The cards of the table that report the message's capacity, to its printed digit:
 * "RTX-3090|RTX-4090"; "" when none does. */
const char *oom_crash_cards(const struct oom_crash *c, char *buf, size_t size);

bool oom_path_is_snapshot(const char *path);
int oom_diagnose_snapshot(struct oom_job *job, const char *path);

#endif
