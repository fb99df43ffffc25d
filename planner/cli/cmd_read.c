/* read: what a training framework's files say, in knobs.  No model and no card is needed. */
#include <string.h>

#include "commands.h"
#include "json.h"
#include "oomplan/reading.h"
#include "out.h"
#include "page.h"

static const char *const kinds[] = {
	[OOM_SETTING_USED] = "used",
	[OOM_SETTING_IDLE] = "idle",
	[OOM_SETTING_DEFAULT] = "default",
	[OOM_SETTING_UNMODELLED] = "not-modelled",
	[OOM_SETTING_UNREADABLE] = "not-understood",
	[OOM_SETTING_UNKNOWN] = "unknown",
};

static void json_text(struct oom_json *j, const char *key, const char *text)
{
	oom_json_text(j, key, *text ? text : NULL);
}

static void json_setting(struct oom_json *j, const struct oom_setting *s)
{
	oom_json_object(j, NULL);
	oom_json_text(j, "key", s->key);
	json_text(j, "value", s->value);
	json_text(j, "knob", s->knob);
	json_text(j, "knob_value", s->knob_value);
	oom_json_text(j, "from", s->kind == OOM_SETTING_DEFAULT ? "default" : "file");
	oom_json_bool(j, "understood", s->kind < OOM_SETTING_UNMODELLED);
	oom_json_text(j, "kind", kinds[s->kind]);
	json_text(j, "file", s->file);
	oom_json_uint(j, "line", s->line);
	json_text(j, "source", s->source);
	json_text(j, "note", s->note);
	oom_json_end(j);
}

static void json_warning(void *data, const char *text)
{
	oom_json_text(data, NULL, text);
}

static void print_json(const struct oom_reading *r)
{
	struct oom_json j = {.out = stdout};
	struct oom_plan plan = oom_plan_default();
	const struct oom_reading_knob *k;
	const struct oom_setting *s;
	const char *file, *framework;

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-read/1");
	oom_json_array(&j, "files");
	for (size_t i = 0; (file = oom_reading_file(r, i, &framework)) != NULL; i++) {
		oom_json_object(&j, NULL);
		oom_json_text(&j, "file", file);
		oom_json_text(&j, "framework", framework);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	oom_json_object(&j, "knobs");
	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++)
		oom_json_text(&j, k->name, k->value);
	oom_json_end(&j);
	oom_json_array(&j, "keys");
	for (size_t i = 0; (s = oom_reading_setting(r, i)) != NULL; i++)
		json_setting(&j, s);
	oom_json_end(&j);
	oom_json_array(&j, "warnings");
	oom_reading_apply(r, &plan, json_warning, &j);
	oom_json_end(&j);
	oom_json_end(&j);
}

static void complain(void *data, const char *text)
{
	(void)data;
	oom_complain(0, "warning: %s", text);
}

static void print_text(const struct oom_reading *r)
{
	struct oom_plan plan = oom_plan_default();
	const struct oom_reading_knob *k;
	const char *file, *framework;
	struct oom_page page;

	oom_page_begin(&page);
	for (size_t i = 0; (file = oom_reading_file(r, i, &framework)) != NULL; i++)
		printf("%s: %s\n", file, framework);
	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++) {
		printf("  %-22s %-24s ", k->name, k->value);
		if (k->from_file && k->from && *k->from->key)
			printf("%s: %.60s", k->from->key, k->from->value);
		else if (k->from)
			printf("default%s%s%s%s", *k->from->key ? " of " : "", k->from->key,
			       *k->from->source ? ": " : "", k->from->source);
		printf("\n");
	}
	oom_page_end(&page);
	fflush(stdout);
	oom_reading_apply(r, &plan, complain, NULL);
}

static int run(struct oom_job *job)
{
	struct oom_error err = {{0}};
	struct oom_reading *r;

	if (!job->words.n && !job->n_command)
		return oom_complain(OOM_EXIT_USAGE, "read what? FILE; see: oomplan read --help");
	if (oom_reading_of_run(&r, job->words.items, job->words.n, job->command, job->n_command,
			       job->framework, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	if (job->json)
		print_json(r);
	else
		print_text(r);
	oom_reading_free(r);
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {
	{.name = "framework",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, framework),
	 .metavar = "NAME",
	 .unset = "recognised by its keys",
	 .summary = "whose files they are: trl, hf-trainer, accelerate, deepspeed, axolotl, ..."},
	OOM_OPTION_JSON,
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"read axolotl.yaml", "its knobs, each with the key or the default it comes from"},
	{"read recipe.yaml accelerate.yaml ds_config.json --json", "three files of one run"},
	{"read -- accelerate launch --num_processes 8 train.py --per_device_train_batch_size 4 --bf16",
	 "a command line"},
	{NULL, NULL},
};
const struct oom_command oom_command_read = {
	.name = "read",
	.summary = "what a training framework's own files say, in knobs",
	.synopsis = "FILE... [options] [-- COMMAND]",
	.command_line = true,
	.options = options,
	.words = "FILE",
	.min_words = 0,
	.max_words = 16,
	.examples = examples,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
