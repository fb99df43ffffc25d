/* What the commands share: the job a command line describes, how they complain and end. */
#ifndef OOM_CLI_H
#define OOM_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "oomplan/calibrate.h"
#include "oomplan/gpu.h"
#include "oomplan/ladder.h"
#include "oomplan/lengths.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "oomplan/search.h"
#include "oomplan/units.h"

#include "options.h"

/* INPUT: also output that could not be written. */
enum oom_exit {
	OOM_EXIT_FITS = 0,
	OOM_EXIT_DOES_NOT_FIT = 1,
	OOM_EXIT_USAGE = 2,
	OOM_EXIT_INPUT = 3
};

/* What commands have in common; a command's other options live in its own file. */
struct oom_job {
	const char *model, *gpu, *gpus_file, *runs, *output, *models_dir;
	struct oom_size gpu_memory, host_ram;   /* a text of NULL: not given */
	struct oom_list allow;
	const char *lengths, *lengths_field, *calibration;
	double confidence;
	struct oom_calibration calibrated;
	bool has_calibration;
	double margin;                  /* as asked; a calibration sets the plan's */
	double card_capability;         /* of --gpu, when the plan took it from there */
	bool json, csv, quiet, help;
	int color;                      /* enum oom_color_mode */
	struct oom_plan plan;           /* the knobs */
	struct oom_list words;          /* what is no option */
};
extern struct oom_job oom_job;          /* the one of this process, zeroed before it is read */

/* job.c: the model and the card of a job; failures are printed, the exit code
 * returned (0 = fine). */
struct oom_target {
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_gpu gpu;
	bool has_gpu;
	uint64_t capacity, host_ram;    /* 0: not given */
	char note[256];
	bool has_lengths;               /* --lengths was given */
	struct oom_lengths lengths;
	struct oom_lengths_report lengths_report;
};
int oom_target_open(struct oom_job *job, struct oom_target *t, bool need_gpu);
void oom_target_close(struct oom_target *t);

/* The bits (enum oom_allow) of words of --allow. */
unsigned oom_allowed(const struct oom_list *words);

/* One line on standard error, "oomplan: " before it; returns code. */
int oom_complain(int code, const char *fmt, ...) OOM_PRINTF(2, 3);
/* Output checked at exit: a full disk or a closed pipe is an error. */
int oom_finish(int code);

/* cmd_runs.c */
int oom_estimate_runs(struct oom_job *job);

/* What the search found and why; asked is the plan it departs from. */
struct oom_search_report {
	const struct oom_plan *asked;
	enum oom_objective objective;
	struct oom_search found;
	struct oom_reason reason[OOM_SEARCH_AXES];
	size_t n_reasons;
};

/* report.c, report_json.c, report_search.c */
void oom_report_plan(const struct oom_job *job, const struct oom_target *t,
		     const struct oom_ladder *l);
/* Whether --host-ram is enough for the plan; true when it was not given. */
bool oom_host_fits(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e);
void oom_report_estimate(const struct oom_job *job, const struct oom_target *t,
			 const struct oom_plan *plan, const struct oom_eval *e, bool fits);
void oom_report_search(const struct oom_job *job, const struct oom_search_report *r);
/* The line that prices p again. */
void oom_report_command(FILE *out, const struct oom_job *job, const struct oom_plan *p);
void oom_json_plan(const struct oom_job *job, const struct oom_target *t,
		   const struct oom_ladder *l, const struct oom_search_report *r);
struct oom_json;
void oom_json_search(struct oom_json *j, const struct oom_job *job,
		     const struct oom_search_report *r);
void oom_json_estimate(const struct oom_job *job, const struct oom_target *t,
		       const struct oom_plan *plan, const struct oom_eval *e, bool fits);

/* report_lengths.c: nothing where no lengths were given; asked is the plan before any fix */
struct oom_json;
void oom_report_lengths(const struct oom_target *t, const struct oom_plan *asked);
void oom_json_lengths(struct oom_json *j, const struct oom_target *t);

/* calibrated.c: nothing where neither --calibration nor --confidence was given.  Reads the file
 * (or takes the default); then sets the margin for the plan as asked. */
int oom_calibration_open(struct oom_job *job);
void oom_calibration_start(struct oom_job *job, const struct oom_target *t);
/* Bytes a card must have for the evaluation, by confidence or expectation and margin. */
double oom_calibrated_need(const struct oom_job *job, const struct oom_eval *e);
/* Whether it fits; what the prediction says where there is no calibration. */
bool oom_calibrated_verdict(const struct oom_job *job, const struct oom_target *t,
			    const struct oom_eval *e, bool fits);
/* True: what was found needs another margin, now set; ask once more.  round counts from 0. */
bool oom_calibrated_again(struct oom_job *job, const struct oom_target *t,
			  const struct oom_eval *e, int round);
/* The probability of fitting in words: "97.1 %"; returns buf. */
const char *oom_calibrated_percent(const struct oom_job *job, const struct oom_target *t,
				   const struct oom_eval *e, char buf[32]);
void oom_report_calibrated(const struct oom_job *job, const struct oom_eval *e);
/* The options that set the margin, for the line that prices a plan again. */
void oom_report_calibration_options(FILE *out, const struct oom_job *job);
void oom_json_calibrated(struct oom_json *j, const struct oom_job *job, const struct oom_target *t,
			 const struct oom_eval *e);
void oom_json_terms(struct oom_json *j, const struct oom_calibration *c);

#endif
