/* Between the files of oomplan diagnose. */
#ifndef OOM_CLI_DIAGNOSE_H
#define OOM_CLI_DIAGNOSE_H

#include "cli.h"
#include "json.h"
#include "oomplan/compare.h"
#include "oomplan/diagnose.h"
#include "oomplan/emit.h"
#include "oomplan/priced.h"
#include "oomplan/snapshot.h"

/* The smallest change that the keys of the run's files can say, and what it is in them. */
struct oom_patch {
	struct oom_search search;
	struct oom_emitted diff;        /* owned: oom_emitted_release */
};

/* The crash beside the plan, in words and as JSON, into the object that is open. */
void oom_compare_text(const struct oom_job *job, const struct oom_target *t,
		      const struct oom_crash *c, const struct oom_comparison *m);
/* patch: NULL where there is none */
void oom_compare_json(struct oom_json *j, const struct oom_comparison *m, const struct oom_patch *patch);

/* False without files, where the run should have fitted, or where nothing the files can say does. */
bool oom_patch_find(const struct oom_job *job, const struct oom_target *t, const struct oom_comparison *m,
		    struct oom_patch *out);
void oom_patch_text(const struct oom_comparison *m, const struct oom_patch *p, bool found);

/* The keys of one crash, into the object that is open. */
void oom_crash_json(struct oom_json *j, const struct oom_crash *c, const char *file,
		    uint64_t messages);

/* The run that the text gives: what was priced, and the change that fits, before the other things to do.  r: NULL where there
 * is none. */
void oom_priced_text(const struct oom_priced *r);
void oom_priced_do(const struct oom_priced *r);
/* Whether it says already what this fix says. */
bool oom_priced_says(const struct oom_priced *r, const char *fix);
void oom_priced_json(struct oom_json *j, const struct oom_priced *r);

/* Its ranks and its run, into the object that is open. */
void oom_run_json(struct oom_json *j, const struct oom_crash_log *log);

/* The cards of the table that report the message's capacity, to its printed digit:
 * "RTX-3090|RTX-4090"; "" when none does. */
const char *oom_crash_cards(const struct oom_crash *c, char *buf, size_t size);
/* Whether none of them computes bfloat16. */
void oom_crash_note_cards(struct oom_crash *c);

bool oom_path_is_snapshot(const char *path);
/* plot: where to draw, "-": in characters, NULL: nowhere. */
int oom_diagnose_snapshot(struct oom_job *job, const char *path, const char *plot);

/* A recording's pieces as phases of training, by what is held (estimated: a recording names none). */
struct oom_recorded_phases {
	uint8_t of_point[OOM_SNAPSHOT_POINTS];  /* enum oom_phase */
	size_t n_points;
	bool seen[OOM_PHASES];
	uint64_t peak[OOM_PHASES];
};
void oom_phases_read(const struct oom_snapshot *s, struct oom_recorded_phases *out);
void oom_phases_text(const struct oom_recorded_phases *r, const struct oom_eval *e);
/* e: NULL without a plan */
void oom_phases_json(struct oom_json *j, const struct oom_recorded_phases *r, const struct oom_eval *e);

/* Who held what over the events, and over it the plan's peak of each phase; e: NULL without a plan. */
void oom_timeline_svg(FILE *out, const struct oom_snapshot *s, const struct oom_eval *e);
void oom_timeline_text(const struct oom_snapshot *s, const struct oom_eval *e);

#endif
