/* What the commands share: the job a command line describes, how they complain and end. */
#ifndef OOM_CLI_H
#define OOM_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "oomplan/answer.h"
#include "oomplan/option.h"
#include "oomplan/reading.h"
#include "oomplan/units.h"

#include "options.h"

/* INPUT: also output that could not be written. */
enum oom_exit {
	OOM_EXIT_FITS = 0,
	OOM_EXIT_DOES_NOT_FIT = 1,
	OOM_EXIT_USAGE = 2,
	OOM_EXIT_INPUT = 3,
	OOM_EXIT_INTERNAL = 4   /* a defect of this program: no answer is printed */
};

/* What commands have in common; a command's other options live in its own file. */
struct oom_job {
	const char *model, *teacher, *gpu, *gpus_file, *runs, *output, *models_dir;
	struct oom_size gpu_memory, host_ram;   /* a text of NULL: not given */
	struct oom_list allow;
	const char *lengths, *lengths_field, *calibration;
	double confidence;
	bool json, csv, quiet, help;
	bool ladder;                    /* every rung with its cost, setting and source */
	int color;                      /* enum oom_color_mode */
	struct oom_plan plan;           /* the knobs */
	struct oom_list words;          /* what is no option */
	struct oom_list from;           /* files of a training framework */
	const char *const *command;     /* words of a training command; NULL: none */
	size_t n_command;
	const char *framework;
	struct oom_reading *reading;    /* of them; NULL: none */
	const char *named;              /* the model as the user or the files call it */
	char located[512];              /* where that lies */
	const char *described;          /* the config.json that the files amount to, which name none (model is "-") */
	char card[128];                 /* --gpu without the number of GPUs that stood in it */
	int64_t card_gpus;              /* GPUs of one machine, where it says them ("2x8xH100": 8); 0: it does not */
	bool any_card;                  /* --gpu only narrows a list of machines, whatever their cards' memory */
	struct oom_list emit;           /* FORMAT[:FILE] */
	bool strict, overwrite;
	bool check;                     /* the exit status is that of what was asked, and nothing else is said */
	struct oom_list report;         /* FORMAT[:FILE] of --check */
};

/* job.c: the question of a job, with all that it points to; failures are printed, the exit code
 * returned (0 = fine). */
struct oom_target {
	struct oom_keys keys, teacher_keys;
	struct oom_model *model, *teacher;      /* teacher: NULL: none */
	struct oom_gpu gpu;
	struct oom_calibration calibration;     /* of one's own runs, where q has it */
	struct oom_lengths lengths;
	char note[256];                 /* about the card */
	const char *name;               /* of the model, as the user has it; the job's */
	struct oom_question q;          /* settled */
};
/* "8xA100-80G", "A100:8", "A100 x8" mean so many GPUs: they go into the plan; an exit code. */
int oom_job_count_gpus(struct oom_job *job);
int oom_target_open(struct oom_job *job, struct oom_target *t, bool need_gpu);
void oom_target_close(struct oom_target *t);

/* from.c: the files of --from into job->reading and job->plan; what was not understood is printed.
 * points: lists of points among them are left alone.  said: what the command line itself says, for the versions
 * of libraries; knobs: which it sets, so that nothing is asked about them.  An exit code, 0 = fine. */
int oom_from_read(struct oom_job *job, bool points, const struct oom_plan *said,
		  const struct oom_list *knobs);
/* Is it a list of points, not a file of settings? */
bool oom_from_is_points(const char *file);
/* The model that the files name, unless --model names another; an exit code. */
int oom_from_model(struct oom_job *job);
/* Kernels that the files ask for and that do not exist for the model are not priced, and that is said.  After
 * the model is read. */
void oom_from_kernels(struct oom_job *job, const struct oom_model *model);
/* Attention of the files that the card has no kernels for: the run ends there, which is said, and PyTorch's own is priced.  After
 * the card is known. */
void oom_from_attn(struct oom_job *job, const struct oom_gpu *gpu);
/* A base that the files quantise otherwise than its checkpoint is: the checkpoint's stays, and that is said. */
void oom_from_base(struct oom_job *job, const struct oom_model *model);
/* What differs between the plans, in the files' own keys: "a.yaml: micro_batch_size: 8 -> 2".
 * Nothing where no file was read. */
void oom_from_changes(const struct oom_job *job, const struct oom_plan *from,
		      const struct oom_plan *to);
/* The same as an array "file_changes" of the object that is open; nothing where no file was read. */
struct oom_json;
void oom_from_json(struct oom_json *j, const struct oom_job *job, const struct oom_plan *from,
		   const struct oom_plan *to);
/* emit.c.  Whether a format goes to standard output, in place of the report. */
bool oom_emit_prints(const struct oom_job *job);
/* The framework that runs what an item of --emit asks for; NULL: none, or the files' own. */
const char *oom_emit_job_framework(const char *word);
/* Whether one of them is the patch of the files that were read. */
bool oom_emit_patches(const struct oom_job *job);
/* Unknown formats are bad usage: an exit code, 0 = fine. */
int oom_emit_check(const struct oom_job *job);
/* Writes the plan in all formats asked for; gpu may be NULL; code: what to return where nothing fails. */
int oom_emit_plan(const struct oom_job *job, const struct oom_plan *plan, const struct oom_gpu *gpu,
		  bool fits, int code);

/* The same of a machine that was chosen: tasks of SkyPilot and dstack then name it. */
struct oom_offers;
struct oom_box;
int oom_emit_box(const struct oom_job *job, const struct oom_offers *offers, const struct oom_box *box,
		 bool spot, int code);

/* The bits (enum oom_allow) of words of --allow. */
unsigned oom_allowed(const struct oom_list *words);

/* One line on standard error, "oomplan: " before it; returns code. */
int oom_complain(int code, const char *fmt, ...) OOM_PRINTF(2, 3);
/* The same of a failure: exit code 4 of an internal error, else 3. */
int oom_failed(enum oom_status st, const struct oom_error *err);
/* Output checked at exit: a full disk or a closed pipe is an error. */
int oom_finish(int code);

/* cmd_runs.c */
int oom_estimate_runs(struct oom_job *job);

/* Bytes as people read them: "23.65 GiB".  Valid to the end of the block it stands in. */
#define oom_gib(bytes) oom_format_bytes((bytes), (char[32]){0}, 32)
/* The same of a number that may be negative: not below 0. */
#define oom_gib_real(bytes) oom_gib((bytes) > 0 ? (uint64_t)(bytes) : 0)

/* "50.79 of 39.38 GiB", each with its unit where they differ; returns buf. */
const char *oom_used_of(char buf[80], uint64_t used, uint64_t capacity);
/* What its bytes are called: more than there is was not used, it is what a card without an end would show. */
const char *oom_used_or_wanted(const struct oom_target *t, const struct oom_judged *j);

/* report.c, report_json.c, report_search.c */
void oom_report_plan(const struct oom_job *job, const struct oom_target *t,
		     const struct oom_answer *a);
void oom_report_estimate(const struct oom_job *job, const struct oom_target *t,
			 const struct oom_judged *j);
/* asked: the plan it departs from */
void oom_report_search(const struct oom_target *t, const struct oom_plan *asked,
		       const struct oom_search *s);
/* A plan before any option: the defaults, with what follows from the card. */
struct oom_plan oom_plan_before(const struct oom_target *t);
/* What changes in the files that were read, and that line. */
void oom_report_to_run(const struct oom_job *job, const struct oom_target *t,
		       const struct oom_plan *asked, const struct oom_plan *p);
/* The line that prices p again. */
void oom_report_command(FILE *out, const struct oom_job *job, const struct oom_target *t,
			const struct oom_plan *p);
void oom_json_plan(const struct oom_job *job, const struct oom_target *t,
		   const struct oom_answer *a);
void oom_json_estimate(const struct oom_job *job, const struct oom_target *t,
		       const struct oom_judged *judged);
struct oom_json;
void oom_json_search(struct oom_json *j, const struct oom_job *job, const struct oom_target *t,
		     const struct oom_plan *asked, const struct oom_search *s);

/* report_lengths.c: nothing where no lengths were given */
void oom_report_lengths(const struct oom_target *t);
/* A line about the precision, where nobody asked for one. */
void oom_report_precision(const struct oom_target *t);
/* What another launcher offers; nothing where there is nothing. */
void oom_report_elsewhere(const struct oom_target *t, const struct oom_answer *a);
void oom_json_elsewhere(struct oom_json *j, const struct oom_answer *a);
/* What the allocator makes of the step, and which GPU of several is priced. */
void oom_report_allocation(const struct oom_eval *e);
void oom_report_several(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e);
/* Contexts that the other processes of a node may open on its first GPU, which is then the fullest; 0: there are none, or they
 * are counted. */
uint64_t oom_foreign_contexts(const struct oom_plan *p, const struct oom_eval *e);
/* The plan fits where they are not, and does not where they are. */
bool oom_is_tight(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e);
/* The step's time: a line of a report where a card is known, an object, a ledger. */
void oom_report_time(const struct oom_target *t, const struct oom_plan *plan, const struct oom_eval *eval);
void oom_json_time(struct oom_json *j, const struct oom_target *t, const struct oom_plan *plan,
		   const struct oom_eval *eval);
void oom_report_time_ledger(const struct oom_target *t, const struct oom_plan *plan,
			    const struct oom_eval *eval);
void oom_json_lengths(struct oom_json *j, const struct oom_target *t);

/* report_calibrated.c: nothing where neither --calibration nor --confidence was given */
void oom_report_calibrated(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e);
/* The probability of fitting in words: "97.1 %"; returns buf. */
const char *oom_calibrated_percent(const struct oom_expectation *x, char buf[32]);
void oom_json_calibrated(struct oom_json *j, const struct oom_target *t, const struct oom_plan *p,
			 const struct oom_eval *e);
void oom_json_terms(struct oom_json *j, const struct oom_calibration *c);

#endif
