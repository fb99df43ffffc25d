/* What the commands share: options, the job they describe, output. */
#ifndef OOM_CLI_H
#define OOM_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "oomplan/gpu.h"
#include "oomplan/ladder.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"
#include "oomplan/units.h"

enum oom_exit { OOM_EXIT_FITS = 0, OOM_EXIT_DOES_NOT_FIT = 1, OOM_EXIT_USAGE = 2, OOM_EXIT_INPUT = 3 };

/* One option that is not a knob. */
struct oom_option {
	const char *name;
	char letter;                    /* 0: none */
	const char *metavar;            /* NULL: a flag */
	const char *summary;
	size_t offset;                  /* of a const char * (or a bool, for flags) in struct oom_job */
};

/* Everything a command line can say. */
struct oom_job {
	const char *model, *gpu, *gpu_memory, *gpus_file, *allow, *runs, *output, *models_dir, *color;
	bool json, csv, quiet, help, version, exact;
	struct oom_plan plan;
	const char *words[8];           /* positional arguments */
	int n_words;
};

struct oom_command {
	const char *name, *summary, *usage;
	const struct oom_option *options;       /* ends with a NULL name */
	bool knobs;
	int (*run)(struct oom_job *job);
};
extern const struct oom_command oom_commands[]; /* ends with a NULL name */
const struct oom_command *oom_command_find(const char *name);

/* options.c: fills job; returns an exit code to leave with, or -1 to go on. */
int oom_options_parse(const struct oom_command *cmd, int argc, char **argv, struct oom_job *job);

/* help.c */
void oom_help(const struct oom_command *cmd);           /* NULL: the overview */
int oom_cmd_completion(struct oom_job *job);
int oom_cmd_help(struct oom_job *job);

/* job.c: the model and the card of a job; failures are printed, the exit code returned (0 = fine). */
struct oom_target {
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_gpu gpu;
	bool has_gpu;
	uint64_t capacity;
	char note[256];
};
int oom_target_open(struct oom_job *job, struct oom_target *t, bool need_gpu);
void oom_target_close(struct oom_target *t);
int oom_complain(int code, const char *fmt, ...) OOM_PRINTF(2, 3);
/* Bundled models: name without .json at i, or NULL; and their text. */
const char *oom_bundled_name(size_t i, char *buf, size_t size);
/* Output checked at exit: a full disk or a closed pipe is an error. */
int oom_finish(int code);

/* commands */
int oom_cmd_plan(struct oom_job *job);
int oom_cmd_estimate(struct oom_job *job);
int oom_cmd_explain(struct oom_job *job);
int oom_cmd_list(struct oom_job *job);
int oom_estimate_runs(struct oom_job *job);

/* report.c, json.c */
void oom_report_plan(const struct oom_job *job, const struct oom_target *t, const struct oom_ladder *l);
void oom_report_estimate(const struct oom_job *job, const struct oom_target *t, const struct oom_plan *plan,
			 const struct oom_eval *e, bool fits);
void oom_json_plan(const struct oom_target *t, const struct oom_ladder *l);
void oom_json_estimate(const struct oom_target *t, const struct oom_plan *plan, const struct oom_eval *e, bool fits);
void oom_json_string(FILE *out, const char *s);

#endif
