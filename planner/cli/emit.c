/* --emit FORMAT[:FILE]: the plan in a framework's own words. */
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
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

/* What the user called the model, where that is no file of ours. */
static const char *model_name(const struct oom_job *job)
{
	const char *read = job->reading ? oom_reading_value(job->reading, "model") : NULL;
	const char *name = read ? read : job->model ? job->model : "";
	const size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, ".json") ? NULL : strcmp(name, "-") ? name : NULL;
}

/* The one format that is made of the files that were read. */
static bool is_patch(const char *name)
{
	return oom_same_word(name, "patch");
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

int oom_emit_check(const struct oom_job *job)
{
	const struct oom_emit_format *f;

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

static int emit_one(const struct oom_job *job, const struct oom_plan *plan, const char *word)
{
	struct oom_error err = {{0}};
	struct oom_emitted out;
	const char *file;
	char name[60];
	int code = 0;

	format_of(word, name, sizeof(name), &file);
	if (is_patch(name) ? oom_emit_patch(job->reading, &job->plan, plan, &out, &err)
			   : oom_emit(name, plan, model_name(job), &out, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	for (size_t i = 0; i < out.n_unsaid; i++)
		oom_complain(0, "%s: %s cannot say %s", job->strict ? "error" : "warning", name,
			     out.unsaid[i]);
	if (job->strict && out.n_unsaid)
		code = oom_complain(OOM_EXIT_INPUT, "%s: nothing was written (--strict)", name);
	else
		code = put(out.text, out.size, file, job->overwrite);
	oom_emitted_release(&out);
	return code;
}

int oom_emit_plan(const struct oom_job *job, const struct oom_plan *plan, bool fits, int code)
{
	if (job->emit.n && !fits)
		return oom_complain(OOM_EXIT_DOES_NOT_FIT, "does not fit: nothing is written");
	for (size_t i = 0; i < job->emit.n; i++) {
		const int failed = emit_one(job, plan, job->emit.items[i]);

		if (failed)
			return failed;
	}
	return code;
}
