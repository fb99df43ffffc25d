/* Help on the program and on each command, from the tables. */
#include "commands.h"
#include "term.h"
#include "view.h"

/* Text begins in this column; lines end at WIDEST even on a wide terminal, where eyes lose the
 * line. */
enum { TEXT_COLUMN = 30, NARROW_COLUMN = 8, WIDEST = 110 };

/* "  left          text", the text on a line of its own where left is too long or the terminal too
 * narrow. */
static void row(FILE *out, const char *left, const char *text, int width)
{
	const int len = (int)oom_display_width(left) + 2;
	const int column = width < 2 * TEXT_COLUMN ? NARROW_COLUMN : TEXT_COLUMN;

	if (len + 2 > column)
		fprintf(out, "  %s\n%*s", left, column, "");
	else
		fprintf(out, "  %s%*s", left, column - len, "");
	oom_wrap(out, text, column, column, width);
}

static void option_row(FILE *out, const struct oom_view *v, int width)
{
	char left[100], text[2000], words[1000], also[400], letter[8] = "    ";

	if (v->letter)
		snprintf(letter, sizeof(letter), "-%c, ", v->letter);
	snprintf(left, sizeof(left), "%s--%s%s%s%s", letter, !v->metavar && v->knob ? "[no-]" : "",
		 v->name, v->metavar ? " " : "", v->metavar ? v->metavar : "");
	oom_view_choices(v, words, sizeof(words));
	oom_view_aliases(v, also, sizeof(also));
	snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s%s%s%s", v->summary, *words ? ": " : "",
		 words, *v->range ? " (" : "", v->range, *v->range ? ")" : "", *v->def ? " [" : "",
		 v->def, *v->def ? "]" : "", *also ? "; also " : "", also);
	row(out, left, text, width);
}

/* What command lines of training scripts may hold besides. */
static void foreign(FILE *out, int width)
{
	struct oom_view v;
	char text[3000];
	size_t used = (size_t)snprintf(text, sizeof(text),
				       "taken from training scripts, without effect on memory "
				       "(help --man has all of them): ");

	for (size_t i = 0, n = 0; oom_view_foreign(i, &v); i++)
		if (v.row->kind == OOM_OPTION_IDLE && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s--%s",
						 n++ ? ", " : "", v.name);
	fputc('\n', out);
	oom_wrap(out, text, 0, 0, width);
}

static int clamp(int width)
{
	return width > WIDEST ? WIDEST : width;
}

void oom_help_overview(FILE *out, int width)
{
	const struct oom_command *c;

	width = clamp(width);
	fputs("oomplan: what will fill the GPU, before it is rented\n\n"
	      "usage: oomplan --model config.json --gpu A100-40G [options]\n"
	      "       oomplan COMMAND [options]\n\ncommands:\n", out);
	for (size_t i = 0; (c = oom_command_at(i)) != NULL; i++)
		row(out, c->name, c->summary, width);
	fputs("\nmore:\n", out);
	row(out, "oomplan COMMAND --help", "options of a command", width);
	row(out, "oomplan help --man", "the manual page", width);
	row(out, "oomplan --version", "the version", width);
	fputc('\n', out);
	oom_wrap(out,
		 "exit status: 0 fits or done, 1 does not fit, 2 usage, 3 unreadable or invalid "
		 "input, or output that could not be written, 4 an internal error: please report it",
		 0, 0, width);
}

void oom_help_command(const struct oom_command *cmd, FILE *out, int width)
{
	char line[600];
	struct oom_view v;
	size_t i = 0;

	width = clamp(width);
	oom_wrap(out, cmd->summary, 0, 0, width);
	snprintf(line, sizeof(line), "usage: oomplan %s %s", cmd->name, cmd->synopsis);
	fputc('\n', out);
	oom_wrap(out, line, 0, 7, width);
	fputs("\noptions:\n", out);
	for (; oom_view_at(cmd->options, cmd->knobs, i, &v) && !v.knob; i++)
		option_row(out, &v, width);
	if (cmd->knobs) {
		fputc('\n', out);
		oom_wrap(out,
			 "knobs (ranges in parentheses; defaults in brackets: what a Hugging Face "
			 "Trainer user gets; counts take 8k for 8000 and 8Ki for 8192, and M, Mi, "
			 "G, Gi likewise):",
			 0, 0, width);
	}
	for (; oom_view_at(cmd->options, cmd->knobs, i, &v); i++)
		option_row(out, &v, width);
	if (cmd->knobs)
		foreign(out, width);
	if (cmd->examples)
		fputs("\nexamples:\n", out);
	for (const struct oom_example *e = cmd->examples; e && e->args; e++) {
		fprintf(out, "  oomplan %s\n      ", e->args);
		oom_wrap(out, e->what, 6, 6, width);
	}
}

struct args {
	struct oom_job job;
	bool man_page;
};

static const char *command_word(size_t i)
{
	return oom_command_at(i) ? oom_command_at(i)->name : NULL;
}

static int run(struct oom_job *job)
{
	if (((const struct args *)job)->man_page)
		oom_man_print(stdout);
	else if (job->words.n)
		oom_help_command(oom_command_find(job->words.items[0]), stdout, oom_term_width());
	else
		oom_help_overview(stdout, oom_term_width());
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {
	{.name = "man",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, man_page),
	 .summary = "print the manual page, in troff"},
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"help plan", "every option and knob of plan"},
	{"help --man | man -l -", "the manual page, without installing it"},
	{NULL, NULL},
};
const struct oom_command oom_command_help = {
	.name = "help",
	.summary = "help on a command, or the manual page",
	.synopsis = "[COMMAND] [--man]",
	.options = options,
	.words = "COMMAND",
	.max_words = 1,
	.word = command_word,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};
