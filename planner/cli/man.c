/* The manual page, in troff with the man macros: print it with `oomplan help --man | man -l -`. */
#include <string.h>

#include "commands.h"
#include "oomplan/rules.h"
#include "view.h"

/* Text that troff must not read: backslashes, dashes that are minus signs, a dot or quote that
 * begins a line. */
static void roff(FILE *out, const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", out);
	for (; *s; s++) {
		if (*s == '-')
			fputs("\\-", out);
		else if (*s == '\\')
			fputs("\\e", out);
		else
			putc(*s, out);
	}
}

static void sentence(FILE *out, const char *s)
{
	roff(out, s);
	fputs(".\n", out);
}

/* What the rules say of a knob that is set; those with numbers in them speak for themselves. */
static void needs(FILE *out, const struct oom_option *knob)
{
	const struct oom_rule *r;
	const char *last = "";

	for (size_t i = 0; (r = oom_rule_at(i)) != NULL; i++) {
		if (r->when.offset != knob->offset || strchr(r->sentence, '{') ||
		    !strcmp(r->sentence, last))
			continue;
		fputs("Rule: ", out);
		sentence(out, r->sentence);
		last = r->sentence;
	}
}

static void option(FILE *out, const struct oom_view *v)
{
	const char *word, *summary;
	char also[400];

	fputs(".TP\n.B ", out);
	if (v->letter)
		fprintf(out, "\\-%c, ", v->letter);
	fputs(!v->metavar && v->knob ? "\\-\\-[no\\-]" : "\\-\\-", out);
	roff(out, v->name);
	if (v->metavar)
		fprintf(out, " \\fI%s\\fR", v->metavar);
	fputc('\n', out);
	sentence(out, v->summary);
	if (*v->range)
		fprintf(out, "Range: %s.\n", v->range);
	for (size_t i = 0; (word = oom_view_choice(v, i, &summary)) != NULL; i++) {
		fputs(".br\n\\fB", out);
		roff(out, word);
		fputs("\\fR", out);
		if (summary) {
			fputs(": ", out);
			roff(out, summary);
		}
		fputc('\n', out);
	}
	if (oom_view_choice(v, 0, NULL))
		fputs(".br\n", out);
	if (*v->def) {
		fputs("Default: ", out);
		sentence(out, v->def);
	}
	if (*oom_view_aliases(v, also, sizeof(also))) {
		fputs("Also: ", out);
		sentence(out, also);
	}
	if (v->knob)
		needs(out, v->row);
	if (*v->setting) {
		fputs("Set in training by: ", out);
		sentence(out, v->setting);
	}
	if (*v->source) {
		fputs("Source: ", out);
		sentence(out, v->source);
	}
}

static void command(FILE *out, const struct oom_command *c)
{
	struct oom_view v;

	fputs(".SS oomplan ", out);
	roff(out, c->name);
	fputs("\n.B oomplan ", out);
	roff(out, c->name);
	fputs(" \\fR", out);
	roff(out, c->synopsis);
	fputs("\n.PP\n", out);
	sentence(out, c->summary);
	if (c->knobs)
		fputs("Takes the knobs below, too.\n", out);
	for (size_t i = 0; oom_view_at(c->options, false, i, &v); i++)
		option(out, &v);
}

static void foreign(FILE *out)
{
	struct oom_view v;
	char also[400];

	fputs(".SH OPTIONS OF TRAINING SCRIPTS\n"
	      "What frameworks call the knobs stands with them (\"Also\"); switches may be followed\n"
	      "by True or False. The following are accepted as well; they have no effect on memory\n"
	      "unless they say one.\n",
	      out);
	for (size_t i = 0; oom_view_foreign(i, &v); i++) {
		fputs(".TP\n.B \\-\\-", out);
		roff(out, v.name);
		if (v.metavar)
			fprintf(out, " \\fI%s\\fR", v.metavar);
		fputc('\n', out);
		if (v.row->kind == OOM_OPTION_IDLE)
			sentence(out, v.row->summary);
		if (v.row->note) {
			fputs(v.row->kind == OOM_OPTION_ABSENT ? "Refused: " : "", out);
			sentence(out, v.row->note);
		}
		if (*oom_view_aliases(&v, also, sizeof(also))) {
			fputs("Also: ", out);
			sentence(out, also);
		}
	}
}

static void examples(FILE *out)
{
	const struct oom_command *c;

	fputs(".SH EXAMPLES\n", out);
	for (size_t i = 0; (c = oom_command_at(i)) != NULL; i++) {
		for (const struct oom_example *e = c->examples; e && e->args; e++) {
			fputs(".TP\n.B oomplan ", out);
			roff(out, e->args);
			fputc('\n', out);
			sentence(out, e->what);
		}
	}
}

void oom_man_print(FILE *out)
{
	const struct oom_command *c;
	struct oom_view v;

	/* no date: the page is the same whenever it is built */
	fputs(".\\\" generated from the option tables: oomplan help \\-\\-man\n"
	      ".TH OOMPLAN 1 \"\" \"oomplan " OOMPLAN_VERSION "\" \"User Commands\"\n"
	      ".SH NAME\noomplan \\- what will fill the GPU, before it is rented\n"
	      ".SH SYNOPSIS\n.B oomplan\n\\-\\-model FILE \\-\\-gpu NAME [options]\n.br\n"
	      ".B oomplan\nCOMMAND [options]\n"
	      ".SH DESCRIPTION\n"
	      "Reads a model's config.json, a training set\\-up and a GPU; says how much memory\n"
	      "each phase of training takes, whether it fits, and which fixes make it fit,\n"
	      "cheapest first. Offline, in milliseconds.\n"
	      "Without a command, options are those of\n.BR plan .\n"
	      "Options are written \\-\\-name value or \\-\\-name=value; a bare \\-\\- ends them.\n"
	      "An option given twice keeps its last value; a list keeps all.\n"
	      ".SH COMMANDS\n",
	      out);
	for (size_t i = 0; (c = oom_command_at(i)) != NULL; i++)
		command(out, c);
	fputs(".SH KNOBS\nThe defaults are what a Hugging Face Trainer user gets.\n"
	      "Counts are plain whole numbers, with k, M, G (thousands) or Ki, Mi, Gi (1024s) behind\n"
	      "them if need be: 8k is 8000, 8Ki is 8192. Real numbers take a decimal point and an\n"
	      "exponent, shares a percent sign too. Sizes of memory carry their unit: 24GiB, 80GB.\n",
	      out);
	for (size_t i = 0; oom_view_at(NULL, true, i, &v); i++)
		option(out, &v);
	foreign(out);
	fputs(".SH EXIT STATUS\n"
	      ".TP\n.B 0\nIt fits, or the command did what was asked.\n"
	      ".TP\n.B 1\nA valid answer: it does not fit.\n"
	      ".TP\n.B 2\nUsage: an unknown option, command or word, a value out of range.\n"
	      ".TP\n.B 3\nUnreadable or invalid input; or output that could not be written\n"
	      "(a full disk is reported, a reader that closed the pipe is not).\n"
	      ".TP\n.B 4\nAn internal error: an evaluation contradicted itself. Please report it.\n"
	      ".SH ENVIRONMENT\n"
	      ".TP\n.B NO_COLOR\nSet and not empty: no colour unless \\-\\-color always.\n"
	      ".TP\n.B COLUMNS\nThe width of text; else the terminal's, else 80.\n"
	      ".TP\n.B LC_ALL\\fR, \\fBLC_CTYPE\\fR, \\fBLANG\n"
	      "The first that is set: bars are drawn in Unicode when it names UTF\\-8, in ASCII\n"
	      "else.\n",
	      out);
	examples(out);
}

static int run(struct oom_job *job)
{
	(void)job;
	oom_man_print(stdout);
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {OOM_OPTIONS_COMMON, OOM_OPTIONS_END};
const struct oom_command oom_command_man = {
	.name = "man",
	.summary = "the manual page, in troff",
	.synopsis = "",
	.options = options,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
