/* The table of commands.  A command is one file that defines its descriptor `oom_command_NAME`, and
 * one name in OOM_COMMANDS. */
#ifndef OOM_CLI_COMMANDS_H
#define OOM_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "cli.h"
#include "options.h"

struct oom_example {
	const char *args;               /* after "oomplan " */
	const char *what;
};

struct oom_command {
	const char *name, *summary;     /* the summary without capital and full stop */
	const char *synopsis;           /* after the name: "--model FILE --gpu NAME [options]" */
	const struct oom_option *options;       /* ends with a NULL name */
	bool knobs;                     /* every knob is an option too */
	bool as_given;                  /* it begins with the plan as given: no rule may be broken */
	bool command_line;              /* behind "--" stands a training command, not words */
	bool points;                    /* --from takes a list of points too */
	const char *words;              /* metavar of what is no option; NULL: it takes none */
	size_t min_words, max_words;
	const char *(*word)(size_t i);  /* the legal words, NULL past the end; NULL: any */
	const struct oom_example *examples;     /* ends with NULL args; or NULL */
	/* What the options fill: a struct oom_job, or a struct that begins with one and is of this size.
	 * Zero, and the knobs' defaults, where the command line says nothing. */
	size_t args_size;
	int (*run)(struct oom_job *job);        /* returns an enum oom_exit */
};

/* In the order of help; the first is the default. */
#define OOM_COMMANDS(X) X(plan) X(estimate) X(explain) X(solve) X(sweep) X(box) X(diagnose) X(calibrate) X(read) X(record) X(list) X(help) X(completion) X(man)
#define OOM_COMMAND_DECLARE(name) extern const struct oom_command oom_command_##name;
OOM_COMMANDS(OOM_COMMAND_DECLARE)

/* NULL past the end. */
const struct oom_command *oom_command_at(size_t i);
/* NULL: there is none. */
const struct oom_command *oom_command_find(const char *name);
/* Whether --model could read this word. */
bool oom_is_model(const char *word);
/* Reads the arguments behind the command's name and runs it with them; returns the exit code. */
int oom_command_run(const struct oom_command *cmd, int argc, char **argv);

/* help.c: to out, wrapped at width. */
void oom_help_overview(FILE *out, int width);
void oom_help_command(const struct oom_command *cmd, FILE *out, int width);
/* man.c */
void oom_man_print(FILE *out);

/* Rows that commands share; they fill struct oom_job.  A row's offset is that of its value in the
 * command's arguments. */
oom_choice_fn oom_color_choice, oom_allow_choice, oom_objective_choice;
#define OOM_OPTIONS_COMMON \
	{.name = "help", .letter = 'h', .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, help), \
	 .summary = "print this text and stop"}, \
	{.name = "quiet", .letter = 'q', .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, quiet), \
	 .summary = "print the verdict alone"}, \
	{.name = "color", .kind = OOM_OPTION_CHOICE, .offset = offsetof(struct oom_job, color), .metavar = "WHEN", \
	 .choice = oom_color_choice, .unset = "auto", \
	 .summary = "colour on a terminal, always or never; auto honours NO_COLOR"}
#define OOM_ALSO(...) (const struct oom_alias[]){__VA_ARGS__, {.name = NULL}}
/* What training scripts call the model. */
#define OOM_MODEL_ALIASES \
	OOM_ALSO({.name = "model-name-or-path"}, {.name = "model-id-or-path"}, \
		 {.name = "model-name"}, {.name = "base-model"})
/* The search's wish was called objective before that was a knob. */
#define OOM_PREFER_ALIASES OOM_ALSO({.name = "objective", .older = true})
#define OOM_TEACHER_ALIASES \
	OOM_ALSO({.name = "teacher-model"}, {.name = "teacher-model-name-or-path"})
#define OOM_OPTION_JSON \
	{.name = "json", .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, json), \
	 .summary = "print JSON, sizes as integers in bytes"}
#define OOM_OPTION_CSV(what) \
	{.name = "csv", .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, csv), .summary = what}
#define OOM_OPTIONS_TARGET \
	{.name = "model", .letter = 'm', .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, model), \
	 .metavar = "FILE", .hint = OOM_HINT_MODEL, .aliases = OOM_MODEL_ALIASES, \
	 .summary = "config.json, a folder holding one, a bundled name, or - for standard input"}, \
	{.name = "gpu", .letter = 'g', .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, gpu), \
	 .metavar = "NAME", .hint = OOM_HINT_GPU, \
	 .summary = "a card in any spelling (see oomplan list gpus)"}, \
	{.name = "teacher", .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, teacher), \
	 .metavar = "FILE", .hint = OOM_HINT_MODEL, .aliases = OOM_TEACHER_ALIASES, \
	 .summary = "the model that --objective distill or gkd learns from, as --model"}, \
	OOM_OPTIONS_CARD
/* What the table of cards does not say. */
#define OOM_OPTIONS_CARD \
	{.name = "gpu-memory", .kind = OOM_OPTION_SIZE, .offset = offsetof(struct oom_job, gpu_memory), \
	 .metavar = "SIZE", .summary = "capacity instead of the table's, such as 23.65GiB"}, \
	{.name = "gpus-file", .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, gpus_file), \
	 .metavar = "FILE", .hint = OOM_HINT_FILE, \
	 .summary = "your own cards, in the columns of data/gpus.csv"}
/* The files a run is started with. */
#define OOM_OPTIONS_FROM \
	{.name = "from", .kind = OOM_OPTION_LIST, .offset = offsetof(struct oom_job, from), \
	 .metavar = "FILE", .hint = OOM_HINT_FILE, \
	 .summary = "the run's own files (axolotl, LLaMA-Factory, TRL, accelerate, DeepSpeed, ...), " \
		    "joined by blanks: model and knobs are theirs unless given here; see oomplan read"}, \
	{.name = "framework", .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, framework), \
	 .metavar = "NAME", .unset = "recognised by its keys", \
	 .summary = "whose files --from names"}, \
	{.name = "models-dir", .kind = OOM_OPTION_TEXT, .offset = offsetof(struct oom_job, models_dir), \
	 .metavar = "DIR", .hint = OOM_HINT_DIR, .unset = "the local hub cache", \
	 .summary = "where the config.json of models that are named by hub id lie"}
/* The gate. */
#define OOM_OPTIONS_CHECK \
	{.name = "check", .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, check), \
	 .summary = "a gate for CI: verdicts of what was asked and no more; exit status 1 if any set-up " \
		    "does not fit, 3 if one cannot be judged"}, \
	{.name = "report", .kind = OOM_OPTION_LIST, .offset = offsetof(struct oom_job, report), \
	 .metavar = "FORMAT[:FILE]", \
	 .summary = "the verdicts of --check as md (a Markdown table), junit, json or text; without FILE in " \
		    "place of what is printed"}
/* The plan in a framework's own file. */
#define OOM_OPTIONS_EMIT \
	{.name = "emit", .kind = OOM_OPTION_LIST, .offset = offsetof(struct oom_job, emit), \
	 .metavar = "FORMAT[:FILE]", \
	 .summary = "write the plan as trl, trainer, python, accelerate, deepspeed, axolotl, llamafactory, ms-swift, " \
		    "torchtune, torchtitan, litgpt, llm-foundry, openrlhf, verl, megatron, torchrun, slurm, skypilot or dstack, or the changes as a " \
		    "patch of the files of --from; without FILE in place of the report"}, \
	{.name = "strict", .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, strict), \
	 .summary = "what a format of --emit cannot say is an error, not a comment in the file"}, \
	{.name = "overwrite", .kind = OOM_OPTION_FLAG, .offset = offsetof(struct oom_job, overwrite), \
	 .summary = "--emit may replace a file"}
#define OOM_OPTIONS_DATA                                                                           \
	{.name = "lengths",                                                                        \
	 .kind = OOM_OPTION_TEXT,                                                                  \
	 .offset = offsetof(struct oom_job, lengths),                                                               \
	 .metavar = "FILE",                                                                        \
	 .hint = OOM_HINT_FILE,                                                                    \
	 .summary = "observed sequence lengths (a line each, a CSV column, JSON lines) or "        \
		    "lognormal:MEDIAN:SIGMA and "                                                  \
		    "the like: the longest batch is planned for"},                                 \
		{.name = "lengths-field",                                                          \
		 .kind = OOM_OPTION_TEXT,                                                          \
		 .offset = offsetof(struct oom_job, lengths_field),                                                 \
		 .metavar = "NAME",                                                                \
		 .unset = "length, seq_len, n_tokens, ...",                                          \
		 .summary = "the column or JSON field of --lengths that holds the length; of a "   \
			    "list, its elements count"},                                           \
		{.name = "host-ram",                                                               \
		 .kind = OOM_OPTION_SIZE,                                                          \
		 .offset = offsetof(struct oom_job, host_ram),                                                      \
		 .metavar = "SIZE",                                                                \
		 .summary = "host memory of a node, such as 64GiB: says which limit breaks "       \
			    "first, and counts for the verdict"},                                  \
		{.name = "calibration",                                                            \
		 .kind = OOM_OPTION_TEXT,                                                          \
		 .offset = offsetof(struct oom_job, calibration),                                                   \
		 .metavar = "FILE",                                                                \
		 .hint = OOM_HINT_FILE,                                                            \
		 .summary = "a file of oomplan calibrate instead of the shipped default"},         \
	{                                                                                          \
		.name = "confidence", .kind = OOM_OPTION_REAL, .offset = offsetof(struct oom_job, confidence),      \
		.metavar = "P", .min = 0, .max = 0.9999, .percent = true,                          \
		.summary = "headroom so that the run fits with this probability, instead of "      \
			   "--margin"                                                              \
	}
#define OOM_OPTIONS_END {.name = NULL}

#endif
