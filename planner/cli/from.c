/* --from: a training framework's files as the plan that a command begins with. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "json.h"
#include "oomplan/compat.h"
#include "oomplan/reading.h"

/* What the command line says, whose word is the last. */
struct line {
	const struct oom_list *knobs;
	struct oom_gpu_count cards;     /* of --gpu 8xA100 */
};

/* "seq-len: the files name no length": is the knob that it begins with set by the command line? */
static bool is_answered(const struct line *l, const char *text)
{
	const size_t n = strcspn(text, ": ");

	if ((l->cards.gpus && n == strlen("gpus") && !strncmp(text, "gpus", n)) ||
	    (l->cards.nodes > 1 && n == strlen("nodes") && !strncmp(text, "nodes", n)))
		return true;
	for (size_t i = 0; i < l->knobs->n; i++)
		if (strlen(l->knobs->items[i]) == n && !strncmp(text, l->knobs->items[i], n))
			return true;
	return false;
}

static void complain(void *data, const char *text)
{
	if (!is_answered(data, text))
		oom_complain(0, "warning: %s", text);
}

bool oom_from_is_points(const char *file)
{
	static const char *const settings[] = {".yaml", ".yml", ".json", ".toml", ".sh", ".py", ".args",
					       NULL};
	const size_t n = strlen(file);

	for (size_t i = 0; settings[i]; i++)
		if (n > strlen(settings[i]) && !strcmp(file + n - strlen(settings[i]), settings[i]))
			return false;
	return true;
}

static bool says(const struct oom_list *knobs, const char *name)
{
	for (size_t i = 0; i < knobs->n; i++)
		if (!strcmp(knobs->items[i], name))
			return true;
	return false;
}

int oom_from_read(struct oom_job *job, bool points, const struct oom_plan *said,
		  const struct oom_list *knobs)
{
	struct line line = {.knobs = knobs};
	struct oom_plan known = *said;
	const char *files[OOM_LIST_MAX];
	struct oom_error err = {{0}};
	size_t n = 0;

	for (size_t i = 0; i < job->from.n; i++)
		if (!points || !oom_from_is_points(job->from.items[i]))
			files[n++] = job->from.items[i];
	if (!n && !job->n_command)
		return 0;
	/* how many cards there are is known before the files are read: one process takes several as another engine */
	if (job->gpu && oom_gpu_counted(job->gpu, &line.cards))
		known.gpus = line.cards.gpus;
	else
		line.cards = (struct oom_gpu_count){.name = ""};
	if (oom_reading_of_dated(&job->reading, files, n, job->command, job->n_command, job->framework, &known, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	oom_reading_apply(job->reading, &job->plan, complain, &line);
	/* as of files that say so: settle_counts.c, reading_settle_one_process */
	if (says(knobs, "gpus") && said->gpus == 1 && job->plan.engine == OOM_ENGINE_FSDP1 && job->plan.zero_stage > 0) {
		job->plan.zero_stage = 0;
		oom_complain(0, "warning: zero: one process: FSDP shards nothing there, and is priced so");
	}
	return 0;
}

/* --model by a hub id: what is no file and no bundled name. */
static int locate(struct oom_job *job, const char *id, const char *beside)
{
	struct oom_error err = {{0}};

	if (oom_model_locate(id, beside, job->models_dir, job->located, sizeof(job->located), &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	job->model = job->located;
	return 0;
}

/* No name, but perhaps the layers themselves: as good as a config on standard input. */
static int describe(struct oom_job *job)
{
	const char *why = NULL;

	job->described = oom_reading_config(job->reading, &why);
	if (!job->described)
		return oom_complain(OOM_EXIT_USAGE, "the files name no model%s%s: --model config.json, a "
						    "folder, or a name of: oomplan list models",
				    why ? "; " : "", why ? why : "");
	if (why)
		oom_complain(0, "warning: model: %s", why);
	job->named = job->model = "-";
	return 0;
}

int oom_from_model(struct oom_job *job)
{
	const struct oom_setting *key;

	if (!job->named)
		job->named = job->model;
	if (job->model)
		return strchr(job->model, '/') && access(job->model, F_OK) && *job->model != '/' &&
				       *job->model != '.' && !strstr(job->model, ".json")
			       ? locate(job, job->model, NULL)
			       : 0;
	if (!job->reading)
		return 0;
	job->named = oom_reading_value(job->reading, "model");
	if (!job->named)
		return describe(job);
	key = oom_reading_key_of(job->reading, "model");
	return locate(job, job->named, key ? key->file : NULL);
}

void oom_from_kernels(struct oom_job *job, const struct oom_model *model)
{
	const enum oom_task task = job->plan.task ? (enum oom_task)job->plan.task : oom_model_task(model);
	struct oom_class_flags c;

	if (!job->reading || !oom_reading_value(job->reading, "liger-kernels") ||
	    job->plan.liger_kernels == OOM_LIGER_NONE ||
	    !oom_class_flags(model, task, &c) || c.liger)
		return;
	job->plan.liger_kernels = OOM_LIGER_NONE;
	oom_complain(0, "warning: liger-kernels: Liger has none for %s: PyTorch's own modules are priced",
		     oom_model_type(model));
}

void oom_from_attn(struct oom_job *job, const struct oom_gpu *gpu)
{
	if (!job->reading || !oom_reading_value(job->reading, "attn") || job->plan.attn != OOM_ATTN_FLASH || !gpu ||
	    gpu->compute_capability <= 0 || gpu->compute_capability >= 8)
		return;
	job->plan.attn = OOM_ATTN_SDPA;
	oom_complain(0, "warning: attn: the files ask for flash_attn, which has no kernels before compute capability 8.0 (Ampere) and "
		     "ends the run there (csrc/flash_attn/flash_api.cpp): sdpa is priced");
}

void oom_from_base(struct oom_job *job, const struct oom_model *model)
{
	const struct oom_option *k = oom_knob_find("base-weights");
	char asked[OOM_VALUE_SIZE], kept[OOM_VALUE_SIZE];

	if (!job->reading || !oom_reading_value(job->reading, "base-bits"))
		return;
	oom_plan_get(&job->plan, k, asked, sizeof(asked));
	if (!oom_model_keep_base(model, &job->plan))
		return;
	oom_complain(0, "warning: base-weights: the files ask for %s, but the checkpoint is %s by its own quantization_config, "
		     "which stays (transformers quantizers/auto.py)", asked,
		     oom_plan_get(&job->plan, k, kept, sizeof(kept)));
}

void oom_from_changes(const struct oom_job *job, const struct oom_plan *from,
		      const struct oom_plan *to)
{
	bool any = false, several = false;

	for (size_t i = 0; job->reading && oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE], b[OOM_VALUE_SIZE];
		struct oom_key_change c;

		if (oom_plan_alike(from, to, k))
			continue;
		oom_plan_get(from, k, a, sizeof(a));
		oom_plan_get(to, k, b, sizeof(b));
		if (!any)
			printf("in the files' own words:\n");
		any = true;
		if (oom_reading_change(job->reading, k->name, b, &c))
			printf("  %s%s%s: %s -> %s\n", c.file, *c.file ? ": " : "", c.key,
			       *c.was ? c.was : "(absent)", c.word);
		else
			printf("  no single key says %s: %s -> %s\n", k->name, a, b);
		several |= !oom_reading_change(job->reading, k->name, b, &c);
	}
	if (several)
		printf("  (several keys together may: --emit patch writes them where the format has them)\n");
}

void oom_from_json(struct oom_json *j, const struct oom_job *job, const struct oom_plan *from,
		   const struct oom_plan *to)
{
	const struct oom_reading_knob *k;

	if (!job->reading)
		return;
	oom_json_array(j, "file_keys");
	for (size_t i = 0; (k = oom_reading_knob_at(job->reading, i)) != NULL; i++) {
		if (!k->from_file || !k->from || !*k->from->key)
			continue;
		oom_json_object(j, NULL);
		oom_json_text(j, "knob", k->name);
		oom_json_text(j, "key", k->from->key);
		oom_json_text(j, "value", k->from->value);
		oom_json_text(j, "file", k->from->file);
		oom_json_uint(j, "line", k->from->line);
		oom_json_end(j);
	}
	oom_json_end(j);
	oom_json_array(j, "file_changes");
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *knob = oom_knob_at(i);
		char a[OOM_VALUE_SIZE], b[OOM_VALUE_SIZE];
		struct oom_key_change c;
		bool said;

		oom_plan_get(from, knob, a, sizeof(a));
		oom_plan_get(to, knob, b, sizeof(b));
		if (!strcmp(a, b))
			continue;
		said = oom_reading_change(job->reading, knob->name, b, &c);
		oom_json_object(j, NULL);
		oom_json_text(j, "knob", knob->name);
		oom_json_text(j, "key", said ? c.key : NULL);
		oom_json_text(j, "file", said && *c.file ? c.file : NULL);
		oom_json_text(j, "was", said && *c.was ? c.was : NULL);
		oom_json_text(j, "becomes", said ? c.word : b);
		oom_json_end(j);
	}
	oom_json_end(j);
}
