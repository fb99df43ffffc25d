/* oomplan: finds the command and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "cli.h"

#define OPT(field) offsetof(struct oom_job, field)
#define COMMON \
	{"help", 'h', NULL, "this text", OPT(help)}, \
	{"quiet", 'q', NULL, "the verdict alone", OPT(quiet)}, \
	{"json", 0, NULL, "machine output: JSON, bytes as integers", OPT(json)}
#define TARGET \
	{"model", 'm', "FILE", "config.json, a folder holding one, a bundled name, or - for standard input", OPT(model)}, \
	{"gpu", 'g', "NAME", "a card of data/gpus.csv, in any spelling (oomplan list gpus)", OPT(gpu)}, \
	{"gpu-memory", 0, "SIZE", "capacity instead of the table's, e.g. 23.65GiB", OPT(gpu_memory)}, \
	{"gpus-file", 0, "FILE", "your own cards, in the columns of data/gpus.csv", OPT(gpus_file)}

static const struct oom_option plan_options[] = {
	TARGET, {"allow", 0, "WORDS", "fixes that change the science: seq-len, lora, science (joined by commas)", OPT(allow)},
	{"csv", 0, NULL, "one CSV row a rung", OPT(csv)}, COMMON, {NULL, 0, NULL, NULL, 0}};
static const struct oom_option estimate_options[] = {
	TARGET, {"runs", 0, "FILE", "price every row of a CSV (columns: the knobs' names, model)", OPT(runs)},
	{"output", 'o', "FILE", "where the priced rows go (default: standard output)", OPT(output)},
	{"models-dir", 0, "DIR", "where the rows' model files lie (default: beside the CSV)", OPT(models_dir)},
	{"csv", 0, NULL, "one CSV row a phase", OPT(csv)}, COMMON, {NULL, 0, NULL, NULL, 0}};
static const struct oom_option explain_options[] = {TARGET, COMMON, {NULL, 0, NULL, NULL, 0}};
static const struct oom_option plain_options[] = {COMMON, {NULL, 0, NULL, NULL, 0}};

const struct oom_command oom_commands[] = {
	{"plan", "does it fit, and the cheapest fixes in order until it does (the default command)",
	 "oomplan [plan] --model FILE --gpu NAME [knobs]", plan_options, true, oom_cmd_plan},
	{"estimate", "price exactly the configuration given, or every row of a runs file",
	 "oomplan estimate --model FILE [--gpu NAME] [knobs]", estimate_options, true, oom_cmd_estimate},
	{"explain", "every row of the ledger: formula, numbers, bytes, origin", "oomplan explain [TERM] --model FILE [knobs]",
	 explain_options, true, oom_cmd_explain},
	{"list", "what the tables hold: models, gpus, optimizers, rungs, families, knobs", "oomplan list WHAT", plain_options, false,
	 oom_cmd_list},
	{"completion", "a completion script for bash, zsh or fish", "oomplan completion SHELL", plain_options, false,
	 oom_cmd_completion},
	{"help", "help on a command, or --man for the manual page", "oomplan help [COMMAND | man]", plain_options, false, oom_cmd_help},
	{NULL, NULL, NULL, NULL, false, NULL},
};

const struct oom_command *oom_command_find(const char *name)
{
	for (const struct oom_command *c = oom_commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

int oom_complain(int code, const char *fmt, ...)
{
	va_list ap;

	fputs("oomplan: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
	return code;
}

int oom_finish(int code)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		if (errno != EPIPE)             /* a reader that left early needs no message */
			oom_complain(OOM_EXIT_INPUT, "standard output: %s", strerror(errno ? errno : EIO));
		return OOM_EXIT_INPUT;
	}
	return code;
}

int main(int argc, char **argv)
{
	struct oom_job job = {.plan = oom_plan_default()};
	const struct oom_command *cmd = oom_commands;
	int first = 1, code;

	signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		oom_help(NULL);
		return oom_finish(OOM_EXIT_USAGE);
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("oomplan %s\n", OOMPLAN_VERSION);
		return oom_finish(OOM_EXIT_FITS);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		oom_help(NULL);
		return oom_finish(OOM_EXIT_FITS);
	}
	if (argv[1][0] != '-') {
		cmd = oom_command_find(argv[1]);
		first = 2;
		if (!cmd) {
			const char *names[32], *near;
			size_t n = 0;

			for (const struct oom_command *c = oom_commands; c->name && n < 31; c++)
				names[n++] = c->name;
			names[n] = NULL;
			near = oom_nearest(argv[1], names);
			return oom_complain(OOM_EXIT_USAGE, "unknown command %s%s%s%s; see: oomplan --help", argv[1],
					    near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
		}
	}
	code = oom_options_parse(cmd, argc - first, argv + first, &job);
	return code >= 0 ? code : oom_finish(cmd->run(&job));
}
