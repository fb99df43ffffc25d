/* oomplan: finds the command and runs it. */
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "out.h"
#include "stack.h"
#include "term.h"

static int unknown_command(const char *word)
{
	const char *names[32] = {NULL}, *near;

	for (size_t i = 0; i < 31 && oom_command_at(i); i++)
		names[i] = oom_command_at(i)->name;
	if (!access(word, R_OK))
		return oom_complain(
			OOM_EXIT_USAGE,
			"%.200s is a file, not a command; did you mean: oomplan --model %.200s",
			word, word);
	if (oom_is_model(word))
		return oom_complain(OOM_EXIT_USAGE,
				    "%.200s is a model, not a command; did you mean: oomplan --model %.200s", word,
				    word);
	near = oom_nearest(word, names);
	return oom_complain(OOM_EXIT_USAGE, "unknown command %.60s%s%s%s; see: oomplan --help",
			    word, near ? " (did you mean " : "", near ? near : "",
			    near ? "?)" : "");
}

int main(int argc, char **argv)
{
	const char *first = argc > 1 ? argv[1] : "";
	const struct oom_command *cmd;

	oom_out_start();
	if (!oom_stack_enough())
		return OOM_EXIT_INPUT;
	if (argc < 2) {
		oom_help_overview(stderr, oom_term_width());
		return OOM_EXIT_USAGE;
	}
	if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
		printf("oomplan %s\n", OOMPLAN_VERSION);
		return oom_finish(OOM_EXIT_FITS);
	}
	if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
		oom_help_overview(stdout, oom_term_width());
		return oom_finish(OOM_EXIT_FITS);
	}
	if (first[0] == '-')            /* options without a command: the main job */
		return oom_command_run(oom_command_at(0), argc - 1, argv + 1);
	cmd = oom_command_find(first);
	return cmd ? oom_command_run(cmd, argc - 2, argv + 2) : unknown_command(first);
}
