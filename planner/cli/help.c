/* Help, completion and the manual page, all from the tables. */
#include <string.h>

#include "cli.h"

static void wrapped(const char *text, int indent, int width)
{
	int col = indent;

	while (*text) {
		const size_t n = strcspn(text, " ");

		if (col > indent && col + 1 + (int)n > width) {
			printf("\n%*s", indent, "");
			col = indent;
		} else if (col > indent) {
			putchar(' ');
			col++;
		}
		printf("%.*s", (int)n, text);
		col += (int)n;
		text += n + (text[n] == ' ');
	}
	putchar('\n');
}

static void row(const char *left, const char *text)
{
	printf("  %-28s ", left);
	if (strlen(left) > 28)
		printf("\n%31s", "");
	wrapped(text, 31, 100);
}

static void knob_row(const struct oom_knob *k)
{
	struct oom_plan plan = oom_plan_default();
	char left[80], text[700], def[64];
	size_t n;

	snprintf(left, sizeof(left), "--%s%s%s", k->name, *k->metavar ? " " : "", k->metavar);
	n = (size_t)snprintf(text, sizeof(text), "%s", k->summary);
	if (k->kind == OOM_KNOB_CHOICE) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, ":");
		for (size_t i = 0; k->choice(i) && n < sizeof(text) - 40; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %s", i ? "," : "", k->choice(i)->name);
	} else if (k->kind == OOM_KNOB_COUNT) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, " (%.0f to %.0f)", k->min, k->max);
	}
	oom_plan_get(&plan, k, def, sizeof(def));
	if (*def && n < sizeof(text))
		snprintf(text + n, sizeof(text) - n, " [%s]", def);
	row(left, text);
}

void oom_help(const struct oom_command *cmd)
{
	if (!cmd) {
		printf("oomplan: what will fill the GPU, before it is rented\n\nusage: oomplan --model config.json --gpu A100-40G [knobs]\n"
		       "       oomplan COMMAND ...\n\ncommands:\n");
		for (const struct oom_command *c = oom_commands; c->name; c++)
			row(c->name, c->summary);
		printf("\nexit status: 0 fits or done, 1 does not fit, 2 usage, 3 unreadable or invalid input\n"
		       "more: oomplan COMMAND --help\n");
		return;
	}
	printf("%s\n\nusage: %s\n\noptions:\n", cmd->summary, cmd->usage);
	for (const struct oom_option *o = cmd->options; o->name; o++) {
		char left[80];

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
			 o->letter ? ", " : "  ", o->name, o->metavar ? " " : "", o->metavar ? o->metavar : "");
		row(left, o->summary);
	}
	if (!cmd->knobs)
		return;
	printf("\nknobs (defaults in brackets: what a Hugging Face Trainer user gets):\n");
	for (size_t i = 0; oom_knob_at(i); i++)
		knob_row(oom_knob_at(i));
}

/* ---- completion ---- */

static void all_options(const char *prefix, const char *suffix)
{
	for (const struct oom_option *o = oom_commands[0].options; o->name; o++)
		printf("%s%s%s", prefix, o->name, suffix);
	for (size_t i = 0; oom_knob_at(i); i++)
		printf("%s%s%s", prefix, oom_knob_at(i)->name, suffix);
}

int oom_cmd_completion(struct oom_job *job)
{
	const char *shell = job->n_words ? job->words[0] : "";

	if (!strcmp(shell, "bash") || !strcmp(shell, "zsh")) {
		if (*shell == 'z')
			printf("#compdef oomplan\nautoload -U +X bashcompinit && bashcompinit\n");
		printf("_oomplan() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n\tcase $prev in\n");
		for (size_t i = 0; oom_knob_at(i); i++) {
			const struct oom_knob *k = oom_knob_at(i);

			if (k->kind != OOM_KNOB_CHOICE)
				continue;
			printf("\t--%s) COMPREPLY=($(compgen -W \"", k->name);
			for (size_t j = 0; k->choice(j); j++)
				printf("%s%s", j ? " " : "", k->choice(j)->name);
			printf("\" -- \"$cur\")); return;;\n");
		}
		printf("\t--model|--gpus-file|--runs|--output) COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n\tesac\n"
		       "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\tCOMPREPLY=($(compgen -W \"");
		for (const struct oom_command *c = oom_commands; c->name; c++)
			printf("%s ", c->name);
		all_options("--", " ");
		printf("\" -- \"$cur\"))\n\telse\n\t\tCOMPREPLY=($(compgen -W \"");
		all_options("--", " ");
		printf("\" -- \"$cur\"))\n\tfi\n}\ncomplete -F _oomplan oomplan\n");
		return OOM_EXIT_FITS;
	}
	if (!strcmp(shell, "fish")) {
		for (const struct oom_command *c = oom_commands; c->name; c++)
			printf("complete -c oomplan -n __fish_use_subcommand -a %s -d '%s'\n", c->name, c->summary);
		for (size_t i = 0; oom_knob_at(i); i++) {
			const struct oom_knob *k = oom_knob_at(i);

			printf("complete -c oomplan -l %s", k->name);
			if (k->kind == OOM_KNOB_CHOICE) {
				printf(" -x -a '");
				for (size_t j = 0; k->choice(j); j++)
					printf("%s%s", j ? " " : "", k->choice(j)->name);
				printf("'");
			}
			printf("\n");
		}
		all_options("complete -c oomplan -l ", "\n");
		return OOM_EXIT_FITS;
	}
	return oom_complain(OOM_EXIT_USAGE, "completion for which shell? bash, zsh or fish");
}

/* ---- manual page ---- */

static void roff(const char *s)
{
	for (; *s; s++)
		if (*s == '-')
			fputs("\\-", stdout);
		else if (*s == '\\')
			fputs("\\e", stdout);
		else
			putchar(*s);
}

static void manual(void)
{
	printf(".TH OOMPLAN 1\n.SH NAME\noomplan \\- plan the memory of a training run before renting GPUs\n"
	       ".SH SYNOPSIS\n.B oomplan\n\\-\\-model FILE \\-\\-gpu NAME [knobs]\n.SH COMMANDS\n");
	for (const struct oom_command *c = oom_commands; c->name; c++) {
		printf(".TP\n.B %s\n", c->name);
		roff(c->summary);
		putchar('\n');
	}
	printf(".SH OPTIONS\n");
	for (const struct oom_command *c = oom_commands; c->name && c < oom_commands + 2; c++)
		for (const struct oom_option *o = c->options; o->name; o++) {
			if (c != oom_commands && !strcmp(o->name, "model"))
				continue;
			printf(".TP\n.B \\-\\-");
			roff(o->name);
			printf(" %s\n", o->metavar ? o->metavar : "");
			roff(o->summary);
			putchar('\n');
		}
	printf(".SH KNOBS\n");
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_knob *k = oom_knob_at(i);

		printf(".TP\n.B \\-\\-");
		roff(k->name);
		printf(" %s\n", k->metavar);
		roff(k->summary);
		printf(". Set by: ");
		roff(*k->setting ? k->setting : "this option");
		printf(". Source: ");
		roff(k->source);
		printf(".\n");
	}
	printf(".SH EXIT STATUS\n0 fits or done, 1 does not fit, 2 usage, 3 unreadable or invalid input.\n");
}

int oom_cmd_help(struct oom_job *job)
{
	const struct oom_command *cmd = NULL;

	if (job->n_words && !strcmp(job->words[0], "man")) {
		manual();
		return OOM_EXIT_FITS;
	}
	if (job->n_words && !(cmd = oom_command_find(job->words[0])))
		return oom_complain(OOM_EXIT_USAGE, "no command %s; see: oomplan --help", job->words[0]);
	oom_help(cmd);
	return OOM_EXIT_FITS;
}
