/* The table of commands, and how one is run. */
#include "commands.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oomplan/config.h"
#include "oomplan/rules.h"
#include "out.h"
#include "term.h"

#define ROW(name) &oom_command_##name,
static const struct oom_command *const commands[] = {OOM_COMMANDS(ROW)};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

OOM_WORD_LIST(, oom_color_choice, OOM_COLOR_MODES)

const struct oom_command *oom_command_at(size_t i)
{
	return i < N_COMMANDS ? commands[i] : NULL;
}

const struct oom_command *oom_command_find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

int oom_complain(int code, const char *fmt, ...)
{
	char text[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* names out of files stand in messages: they must not steer the terminal */
	oom_scrub(text);
	fprintf(stderr, "oomplan: %s\n", text);
	return code;
}

int oom_failed(enum oom_status st, const struct oom_error *err)
{
	return oom_complain(st == OOM_ERR_INTERNAL ? OOM_EXIT_INTERNAL : OOM_EXIT_INPUT, "%s",
			    *err->text ? err->text : oom_status_str(st));
}

int oom_finish(int code)
{
	struct oom_error err = {{0}};

	if (!oom_out_flush(&err))
		return code;
	return *err.text ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : OOM_EXIT_INPUT;
}

enum { OWN_ROWS = 64 };

/* The command's rows with the places their values go to; returns --help's. */
static const struct oom_option *aim(const struct oom_command *cmd, struct oom_job *args,
				    struct oom_option rows[OWN_ROWS])
{
	const struct oom_option *help = NULL;
	size_t n = 0;

	for (; cmd->options[n].name; n++) {
		assert(n < OWN_ROWS - 1);
		rows[n] = cmd->options[n];
		rows[n].target = (char *)args + rows[n].offset;
		if (rows[n].target == (void *)&args->help)
			help = &rows[n];
	}
	rows[n] = (struct oom_option){.name = NULL};
	return help;
}

bool oom_is_model(const char *word)
{
	struct oom_keys keys = {0};
	bool is;

	/* a word that is no option is not read for a guess, unless it is a plain config.json */
	if (!strcmp(word, "-") || (!access(word, F_OK) && !strstr(word, ".json")))
		return false;
	is = !oom_keys_read_model(&keys, word, NULL);

	oom_keys_release(&keys);
	return is;
}

/* A word too many: what it probably is, in words that stand behind its name. */
static const char *instead_of(const char *word, const struct oom_command *cmd)
{
	const struct oom_command *other = oom_command_find(word);

	if (other && other != cmd)
		return ": the command comes first, its options behind it";
	return oom_is_model(word) ? ": a model is named by --model" : "";
}

/* Words against what the command takes; OOM_OK or words for the user. */
static enum oom_status check_words(const struct oom_command *cmd, const struct oom_list *given,
				   struct oom_error *err)
{
	const char *legal[OOM_LIST_MAX] = {NULL};
	char list[300];

	for (size_t i = 0; cmd->word && i < OOM_LIST_MAX - 1 && cmd->word(i); i++)
		legal[i] = cmd->word(i);
	if (given->n > cmd->max_words)
		return oom_error_set(err, OOM_ERR_INVALID, "unexpected word \"%.60s\"%s",
				     given->items[cmd->max_words],
				     instead_of(given->items[cmd->max_words], cmd));
	if (given->n < cmd->min_words)
		return oom_error_set(err, OOM_ERR_INVALID, "%s what? %s", cmd->name,
				     cmd->word ? oom_words_join(legal, list, sizeof(list))
					       : cmd->words);
	for (size_t i = 0; cmd->word && i < given->n; i++)
		if (oom_word_index(given->items[i], legal) < 0)
			return oom_word_unknown(cmd->name, given->items[i], legal, err);
	return OOM_OK;
}

static void tell(const char *text)
{
	oom_complain(0, "note: %s", text);
}

/* Options of training scripts that were accepted for nothing, in one line. */
static void tell_idle(const struct oom_list *idle)
{
	char list[900] = "";
	size_t used = 0;

	for (size_t i = 0; i < idle->n && used < sizeof(list) - 80; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s--%s", i ? ", " : "",
					 idle->items[i]);
	if (idle->n)
		oom_complain(0, "warning: without effect on memory, not used: %s", list);
}

static bool names_files(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "--from", 6))
			return true;
	return false;
}

/* "--from a.yaml -- accelerate launch train.py", "read -- torchrun ...": takes the training command off
 * the line and returns what is left of argc.  A file behind "--" is a file. */
static int take_command(const struct oom_command *cmd, struct oom_job *job, int argc, char **argv)
{
	int at = 0;

	while (at < argc && strcmp(argv[at], "--"))
		at++;
	if (at + 1 >= argc || (!cmd->command_line && !names_files(at, argv)) || access(argv[at + 1], F_OK) == 0)
		return argc;
	job->command = (const char *const *)(argv + at + 1);
	job->n_command = (size_t)(argc - at - 1);
	/* no file between "--from" and the command */
	return at && !strcmp(argv[at - 1], "--from") ? at - 1 : at;
}

/* "--from a.yaml b.json": words beyond what the command takes are files too. */
static void join_files(const struct oom_command *cmd, struct oom_job *job)
{
	while (job->from.n && job->words.n > cmd->max_words && job->from.n < OOM_LIST_MAX) {
		job->from.items[job->from.n++] = job->words.items[cmd->max_words];
		job->words.n--;
		for (size_t i = cmd->max_words; i < job->words.n; i++)
			job->words.items[i] = job->words.items[i + 1];
	}
}

/* What the files say stands below what the command line says, so the line is read twice: for the
 * files' names, then over their plan. */
static int begin_with_files(const struct oom_command *cmd, struct oom_job *job,
			    const struct oom_options *set, int argc, char **argv)
{
	struct oom_options quiet = *set;
	struct oom_list knobs = {.n = 0};
	struct oom_error err = {{0}};
	struct oom_job files = {.plan = oom_plan_default(), .command = job->command,
				.n_command = job->n_command};
	bool own;
	int code = 0;

	quiet.idle = NULL;
	quiet.tell = NULL;
	quiet.knobs = &knobs;
	if (!oom_options_parse(&quiet, argc, argv, &err) && !job->help) {
		join_files(cmd, job);
		files.from = job->from;
		files.framework = job->framework;
		files.gpu = job->gpu;
		code = oom_from_read(&files, cmd->points, &job->plan, &knobs);
	}
	own = job->plan.precision != oom_plan_default().precision;
	memset(job, 0, cmd->args_size);
	job->command = files.command;
	job->n_command = files.n_command;
	job->plan = files.plan;
	if (own)                        /* the command line's own word */
		job->plan.precision_by_card = 0;
	job->reading = files.reading;
	return code;
}

static int read_and_run(const struct oom_command *cmd, struct oom_job *job, int argc, char **argv)
{
	struct oom_option rows[OWN_ROWS];
	struct oom_list idle = {.n = 0};
	struct oom_options set = {.own = rows,
				  .words = &job->words,
				  .stop = aim(cmd, job, rows),
				  .idle = &idle,
				  .tell = tell};
	struct oom_error err = {{0}};

	if (cmd->knobs) {
		job->plan = oom_plan_default();
		set.plan = &job->plan;
	}
	argc = take_command(cmd, job, argc, argv);
	if (names_files(argc, argv) || (cmd->knobs && job->n_command)) {
		const int code = begin_with_files(cmd, job, &set, argc, argv);

		if (code)
			return code;
	}
	if (oom_options_parse(&set, argc, argv, &err) || (join_files(cmd, job), false) ||
	    (!job->help && check_words(cmd, &job->words, &err)))
		return oom_complain(OOM_EXIT_USAGE, "%s; see: oomplan %s --help", err.text,
				    cmd->name);
	oom_term_set_color((enum oom_color_mode)job->color);
	if (job->help) {
		oom_help_command(cmd, stdout, oom_term_width());
		return oom_finish(OOM_EXIT_FITS);
	}
	tell_idle(&idle);
	if (cmd->knobs && oom_job_count_gpus(job))
		return OOM_EXIT_USAGE;
	oom_plan_settle(&job->plan);
	if (cmd->as_given && oom_plan_check(&job->plan, &err))
		return oom_complain(OOM_EXIT_USAGE, "%s", err.text);
	return oom_finish(cmd->run(job));
}

int oom_command_run(const struct oom_command *cmd, int argc, char **argv)
{
	struct oom_job *job = calloc(1, cmd->args_size);
	const int code = job ? read_and_run(cmd, job, argc, argv) :
			       oom_complain(OOM_EXIT_INPUT, "out of host memory");

	if (job)
		oom_reading_free(job->reading);
	free(job);
	return code;
}
