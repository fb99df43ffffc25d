/* Completion scripts: what those of all shells are made of, from the tables. */
#include <string.h>

#include "commands.h"
#include "completion.h"
#include "out.h"
#include "view.h"

/* A word that no shell reads specially: what all names of the tables should be, and are checked to
 * be. */
static bool plain(const char *s)
{
	return *s &&
	       !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")];
}

void completion_quoted(const char *s, const char *special, const char *quote)
{
	for (; *s; s++) {
		if (*s == '\'') {
			fputs(quote, stdout);
			continue;
		}
		if (strchr(special, *s))
			putchar('\\');
		putchar(*s);
	}
}

static void words(const char *const *list)
{
	for (size_t i = 0; list[i]; i++)
		if (plain(list[i]))
			printf("%s%s", i ? " " : "", list[i]);
}

void completion_models(void)
{
	char name[80];

	for (size_t i = 0; oom_bundled_model(i, name, sizeof(name)); i++)
		if (plain(name))
			printf("%s%s", i ? " " : "", name);
}

static void gpu_names(void)
{
	struct oom_gpus gpus = {0};

	if (oom_gpus_load(&gpus, NULL)) {
		oom_out_incomplete();
		return;
	}
	for (size_t i = 0; i < gpus.n; i++)
		if (plain(gpus.items[i].name))
			printf("%s%s", i ? " " : "", gpus.items[i].name);
	oom_gpus_release(&gpus);
}

void completion_words(const struct oom_view *v)
{
	const char *list[OOM_LIST_MAX] = {NULL};

	for (size_t i = 0; i < OOM_LIST_MAX - 1; i++)
		list[i] = oom_view_choice(v, i, NULL);
	words(list);
	if (v->hint == OOM_HINT_MODEL)
		completion_models();
	else if (v->hint == OOM_HINT_GPU)
		gpu_names();
}

bool completion_takes_files(const struct oom_view *v)
{
	return v->hint == OOM_HINT_FILE || v->hint == OOM_HINT_MODEL;
}

void completion_command_words(const struct oom_command *c)
{
	for (size_t i = 0; c->word && c->word(i); i++)
		printf("%s%s", i ? " " : "", c->word(i));
}

void completion_commands(const char *between, bool skip_default)
{
	for (size_t i = skip_default ? 1 : 0; oom_command_at(i); i++)
		printf("%s%s", i > (skip_default ? 1u : 0u) ? between : "",
		       oom_command_at(i)->name);
}

static const char *shell_word(size_t i)
{
	static const char *const shells[] = {"bash", "zsh", "fish"};

	return i < sizeof(shells) / sizeof(shells[0]) ? shells[i] : NULL;
}

static int run(struct oom_job *job)
{
	static void (*const print[])(void) = {completion_bash, completion_zsh, completion_fish};

	for (size_t i = 0; shell_word(i); i++)
		if (!strcmp(job->words.items[0], shell_word(i)))
			print[i]();
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {OOM_OPTIONS_COMMON, OOM_OPTIONS_END};
static const struct oom_example examples[] = {
	{"completion bash >/etc/bash_completion.d/oomplan",
	 "for all users of bash; installing oomplan does this"},
	{NULL, NULL},
};
const struct oom_command oom_command_completion = {
	.name = "completion",
	.summary = "a completion script for bash, zsh or fish",
	.synopsis = "SHELL",
	.options = options,
	.words = "SHELL",
	.min_words = 1,
	.max_words = 1,
	.word = shell_word,
	.examples = examples,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
