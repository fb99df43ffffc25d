/* The table of commands, and how one is run. */
#include "commands.h"

#include <stdarg.h>
#include <string.h>

#include "oomplan/rules.h"
#include "out.h"
#include "term.h"

#define ROW(name) &oom_command_##name,
static const struct oom_command *const commands[] = {OOM_COMMANDS(ROW)};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

struct oom_job oom_job;
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

int oom_finish(int code)
{
	struct oom_error err = {{0}};

	return oom_out_flush(&err) ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : code;
}

static const struct oom_option *help_row(const struct oom_command *cmd)
{
	for (const struct oom_option *o = cmd->options; o->name; o++)
		if (o->target == &oom_job.help)
			return o;
	return NULL;
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
		return oom_error_set(err, OOM_ERR_INVALID, "unexpected word \"%.60s\"",
				     given->items[cmd->max_words]);
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

int oom_command_run(const struct oom_command *cmd, int argc, char **argv)
{
	struct oom_list idle = {.n = 0};
	struct oom_options set = {.own = cmd->options,
				  .words = &oom_job.words,
				  .stop = help_row(cmd),
				  .idle = &idle,
				  .tell = tell};
	struct oom_error err = {{0}};

	memset(&oom_job, 0, sizeof(oom_job));
	if (cmd->knobs) {
		oom_job.plan = oom_plan_default();
		set.plan = &oom_job.plan;
	}
	if (oom_options_parse(&set, argc, argv, &err) ||
	    (!oom_job.help && check_words(cmd, &oom_job.words, &err)))
		return oom_complain(OOM_EXIT_USAGE, "%s; see: oomplan %s --help", err.text,
				    cmd->name);
	oom_term_set_color((enum oom_color_mode)oom_job.color);
	if (oom_job.help) {
		oom_help_command(cmd, stdout, oom_term_width());
		return oom_finish(OOM_EXIT_FITS);
	}
	tell_idle(&idle);
	oom_plan_settle(&oom_job.plan);
	if (cmd->as_given && oom_plan_check(&oom_job.plan, &err))
		return oom_complain(OOM_EXIT_USAGE, "%s", err.text);
	return oom_finish(cmd->run(&oom_job));
}
