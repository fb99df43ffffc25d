/* The option engine: a command's own rows, then every knob of the knob table. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char *nearest_option(const struct oom_command *cmd, const char *word)
{
	const char *names[128];
	size_t n = 0;

	for (const struct oom_option *o = cmd->options; o && o->name && n < 100; o++)
		names[n++] = o->name;
	for (size_t i = 0; cmd->knobs && oom_knob_at(i) && n < 127; i++)
		names[n++] = oom_knob_at(i)->name;
	names[n] = NULL;
	return oom_nearest(word, names);
}

static int unknown(const struct oom_command *cmd, const char *arg)
{
	const char *near = nearest_option(cmd, arg + strspn(arg, "-"));

	return oom_complain(OOM_EXIT_USAGE, "unknown option %s%s%s%s; see: oomplan %s --help", arg, near ? " (did you mean --" : "",
			    near ? near : "", near ? "?)" : "", cmd->name);
}

static const struct oom_option *own_option(const struct oom_command *cmd, const char *name, size_t len, char letter)
{
	for (const struct oom_option *o = cmd->options; o && o->name; o++)
		if ((letter && o->letter == letter) || (len && strlen(o->name) == len && !strncmp(o->name, name, len)))
			return o;
	return NULL;
}

static int set_knob(struct oom_job *job, const struct oom_knob *k, const char *value)
{
	struct oom_error err = {{0}};

	if (oom_plan_set(&job->plan, k, value, &err))
		return oom_complain(OOM_EXIT_USAGE, "--%s", err.text);
	return -1;
}

/* One argument that begins with a dash; *i advances over a separate value. */
static int take(const struct oom_command *cmd, int argc, char **argv, int *i, struct oom_job *job)
{
	const char *arg = argv[*i], *name = arg + 2, *eq = strchr(arg, '=');
	const bool is_long = arg[1] == '-';
	const size_t len = is_long ? (eq ? (size_t)(eq - name) : strlen(name)) : 0;
	const struct oom_option *o = own_option(cmd, name, len, is_long ? 0 : arg[1]);
	const struct oom_knob *k = NULL;
	char key[64] = "";
	const char *value = is_long ? (eq ? eq + 1 : NULL) : arg[1] && arg[2] ? arg + 2 : NULL;
	bool off = false;

	if (!o && is_long && cmd->knobs && len < sizeof(key)) {
		memcpy(key, name, len);
		k = oom_knob_find(key);
		if (!k && !strncmp(key, "no-", 3) && (k = oom_knob_find(key + 3)) != NULL) {
			off = true;
			if (k->kind != OOM_KNOB_FLAG)
				k = NULL;
		}
	}
	if (!o && !k)
		return unknown(cmd, arg);
	if (o && !o->metavar) {
		if (value)
			return oom_complain(OOM_EXIT_USAGE, "--%s takes no value", o->name);
		*(bool *)(void *)((char *)job + o->offset) = true;
		return -1;
	}
	if (k && k->kind == OOM_KNOB_FLAG && !value)
		return set_knob(job, k, off ? "false" : "true");
	if (!value) {
		if (*i + 1 >= argc)
			return oom_complain(OOM_EXIT_USAGE, "--%s needs a value (%s)", o ? o->name : k->name, o ? o->metavar : k->metavar);
		value = argv[++*i];
	}
	if (k)
		return set_knob(job, k, value);
	*(const char **)(void *)((char *)job + o->offset) = value;
	return -1;
}

int oom_options_parse(const struct oom_command *cmd, int argc, char **argv, struct oom_job *job)
{
	bool only_words = false;

	for (int i = 0; i < argc; i++) {
		int code;

		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = true;
			continue;
		}
		if (only_words || argv[i][0] != '-' || !argv[i][1]) {
			if (job->n_words == (int)(sizeof(job->words) / sizeof(job->words[0])))
				return oom_complain(OOM_EXIT_USAGE, "too many words");
			job->words[job->n_words++] = argv[i];
			continue;
		}
		code = take(cmd, argc, argv, &i, job);
		if (code >= 0)
			return code;
	}
	if (job->help) {
		oom_help(cmd);
		return oom_finish(OOM_EXIT_FITS);
	}
	return -1;
}
