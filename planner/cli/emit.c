/* --emit FORMAT[:FILE]: the plan in a framework's own words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "box_out.h"
#include "cli.h"
#include "oomplan/config.h"
#include "oomplan/emit.h"
#include "out.h"

/* "trl:plan.yaml": the format; *file: behind the colon, NULL where there is none */
static const char *format_of(const char *word, char *buf, size_t size, const char **file)
{
	const char *colon = strchr(word, ':');

	snprintf(buf, size, "%.*s", (int)(colon ? (size_t)(colon - word) : strlen(word)), word);
	*file = colon ? colon + 1 : NULL;
	return buf;
}

/* The one format that is made of the files that were read. */
static bool is_patch(const char *name)
{
	return oom_same_word(name, "patch");
}

const char *oom_emit_job_framework(const char *word)
{
	const char *file;
	char name[60];

	return oom_emit_framework(format_of(word, name, sizeof(name), &file));
}

static int put(const char *text, size_t size, const char *file, bool overwrite)
{
	struct oom_error err = {{0}};
	struct oom_out out;
	struct stat st;

	if (file && !overwrite && !stat(file, &st) && S_ISREG(st.st_mode))
		return oom_complain(OOM_EXIT_INPUT, "%s: is there already; --overwrite replaces it", file);
	if (oom_out_open(&out, file, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	if (size && fwrite(text, 1, size, out.file) != size)
		oom_out_incomplete();
	if (oom_out_close(&out, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	return 0;
}

bool oom_emit_prints(const struct oom_job *job)
{
	for (size_t i = 0; i < job->emit.n; i++)
		if (!strchr(job->emit.items[i], ':'))
			return true;
	return false;
}

bool oom_emit_patches(const struct oom_job *job)
{
	for (size_t i = 0; i < job->emit.n; i++) {
		const char *file;
		char name[60];

		if (is_patch(format_of(job->emit.items[i], name, sizeof(name), &file)))
			return true;
	}
	return false;
}

int oom_emit_check(const struct oom_job *job)
{
	const struct oom_emit_format *f;
	int printed = 0;

	for (size_t i = 0; i < job->emit.n; i++)
		printed += !strchr(job->emit.items[i], ':');
	if (printed > 1)
		return oom_complain(OOM_EXIT_USAGE, "--emit: only one format goes to standard output, the others need "
						    "FORMAT:FILE");
	for (size_t i = 0; i < job->emit.n; i++) {
		const char *file;
		char name[60];
		struct oom_emitted out;
		struct oom_plan plan = oom_plan_default();
		struct oom_error err = {{0}};

		format_of(job->emit.items[i], name, sizeof(name), &file);
		if (is_patch(name) && !job->reading)
			return oom_complain(OOM_EXIT_USAGE, "--emit patch: against what? --from names the file");
		if (is_patch(name))
			continue;
		for (size_t k = 0; (f = oom_emit_format_at(k)) != NULL; k++)
			if (oom_same_word(f->name, name))
				break;
		if (f)
			continue;
		if (!oom_emit(name, &plan, NULL, &out, &err))
			oom_emitted_release(&out);
		return oom_complain(OOM_EXIT_USAGE, "--emit: %s", err.text);
	}
	return 0;
}

/* What the format cannot say: told, and with --strict a failure. */
static int tell_unsaid(const struct oom_job *job, const char *name, const struct oom_emitted *out)
{
	for (size_t i = 0; i < out->n_unsaid; i++)
		oom_complain(0, "%s: %s cannot say %s", job->strict ? "error" : "warning", name,
			     out->unsaid[i]);
	return job->strict && out->n_unsaid ?
		       oom_complain(OOM_EXIT_INPUT, "%s: nothing was written (--strict)", name) : 0;
}

static int emit_one(const struct oom_job *job, const struct oom_plan *plan, const struct oom_gpu *gpu,
		    const char *word)
{
	const char *named = job->named ? job->named : job->model;
	char model[512];
	const struct oom_emit_run run = {
		.model = named ? oom_model_called(named, model, sizeof(model)) : NULL, .gpu = gpu,
		.config = job->model && strcmp(job->model, "-") ? job->model : NULL, .reading = job->reading};
	struct oom_plan files = job->plan;      /* as they stand, on this card */
	struct oom_error err = {{0}};
	struct oom_emitted out;
	const char *file;
	char name[60];
	int code = 0;

	files.compute_capability = plan->compute_capability;
	(void)oom_plan_settle_on_card(&files);
	format_of(word, name, sizeof(name), &file);
	if (is_patch(name) ? oom_emit_patch(job->reading, &files, plan, &out, &err)
			   : oom_emit(name, plan, &run, &out, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	code = tell_unsaid(job, name, &out);
	if (!code)
		code = put(out.text, out.size, file, job->overwrite);
	oom_emitted_release(&out);
	return code;
}

int oom_emit_plan(const struct oom_job *job, const struct oom_plan *plan, const struct oom_gpu *gpu,
		  bool fits, int code)
{
	if (job->emit.n && !fits)
		return oom_complain(OOM_EXIT_DOES_NOT_FIT, "does not fit: nothing is written");
	for (size_t i = 0; i < job->emit.n; i++) {
		const int failed = emit_one(job, plan, gpu, job->emit.items[i]);

		if (failed)
			return failed;
	}
	return code;
}

/* ---- a machine ---- */

static const struct {
	const char *format;
	enum oom_box_yaml form;
	const char *head;
	const char *tail[2];    /* the line with which what is not about the machine begins */
} tasks[] = {
	{"skypilot", OOM_YAML_SKYPILOT, "name: train\n", {"\nenvs:", "\nrun:"}},
	{"dstack", OOM_YAML_DSTACK, "type: task\nname: train\n", {"\nenv:", "\ncommands:"}},
};

/* Comments, the machine, the command. */
static void put_task(FILE *to, size_t task, const struct oom_emitted *text, const struct oom_offers *offers,
		     const struct oom_box *box, bool spot)
{
	const char *p = text->text, *tail = NULL;

	while (*p == '#') {
		const size_t n = strcspn(p, "\n") + 1;

		if (!strstr(p, "the card:") || strstr(p, "the card:") > p + n)
			fprintf(to, "%.*s", (int)n, p);
		p += n;
	}
	fputs(tasks[task].head, to);
	oom_box_yaml(to, offers, box, tasks[task].form, spot);
	for (size_t i = 0; i < 2 && !tail; i++)
		tail = strstr(p, tasks[task].tail[i]);
	fputs(tail ? tail + 1 : "", to);
}

static int emit_task(const struct oom_job *job, size_t task, const struct oom_offers *offers,
		     const struct oom_box *box, bool spot, const char *file)
{
	const struct oom_gpu *gpu = &offers->gpus.items[box->offer->gpu];
	const char *named = job->named ? job->named : job->model;
	char model[512], *text = NULL;
	const struct oom_emit_run run = {.model = oom_model_called(named, model, sizeof(model)), .gpu = gpu,
					 .reading = job->reading};
	struct oom_error err = {{0}};
	struct oom_emitted out;
	size_t size = 0;
	FILE *to;
	int code;

	if (oom_emit(tasks[task].format, &box->plan->plan, &run, &out, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	code = tell_unsaid(job, tasks[task].format, &out);
	to = code ? NULL : open_memstream(&text, &size);
	if (to) {
		put_task(to, task, &out, offers, box, spot);
		code = fclose(to) ? oom_complain(OOM_EXIT_INPUT, "out of host memory") :
				    put(text, size, file, job->overwrite);
		free(text);
	}
	oom_emitted_release(&out);
	return code;
}

int oom_emit_box(const struct oom_job *job, const struct oom_offers *offers, const struct oom_box *box,
		 bool spot, int code)
{
	const struct oom_gpu *gpu = &offers->gpus.items[box->offer->gpu];

	for (size_t i = 0; i < job->emit.n; i++) {
		const char *file;
		char name[60];
		size_t task = 0;
		int failed;

		format_of(job->emit.items[i], name, sizeof(name), &file);
		while (task < sizeof(tasks) / sizeof(tasks[0]) && !oom_same_word(tasks[task].format, name))
			task++;
		failed = task < sizeof(tasks) / sizeof(tasks[0]) ?
				 emit_task(job, task, offers, box, spot, file) :
				 emit_one(job, &box->plan->plan, gpu, job->emit.items[i]);
		if (failed)
			return failed;
	}
	return code;
}
