/* The gate: set-ups in, verdicts out. */
#include <stdlib.h>
#include <string.h>

#include "check_tables.h"
#include "oomplan/runs.h"
#include "page.h"
#include "term.h"

int oom_check_usage(const struct oom_job *job)
{
	const char *file;
	int printed = 0;

	if (job->report.n && !job->check)
		return oom_complain(OOM_EXIT_USAGE, "--report is the table of --check, which is not there");
	if (job->check && (job->json || job->csv || job->emit.n))
		return oom_complain(OOM_EXIT_USAGE,
				    "--check prints verdicts alone: for tables --report md, junit or json");
	for (size_t i = 0; i < job->report.n; i++) {
		if (!check_format(job->report.items[i], &file))
			return oom_complain(OOM_EXIT_USAGE,
					    "--report: \"%s\" is none of: md, junit, json, text (with :FILE "
					    "into a file)",
					    oom_shown(job->report.items[i]));
		if (file && !*file)
			return oom_complain(OOM_EXIT_USAGE, "--report %s: no file behind the colon",
					    oom_shown(job->report.items[i]));
		printed += !file;
	}
	if (printed > 1)
		return oom_complain(OOM_EXIT_USAGE, "--report: only one table goes to standard output, the "
						    "others need FORMAT:FILE");
	return 0;
}

/* ---- rows ---- */

static enum oom_status add(struct oom_check *c, const char *name, const char *text,
			   struct oom_check_row **row, struct oom_error *err)
{
	if (c->n == OOM_CHECK_MOST)
		return oom_error_set(err, OOM_ERR_LIMIT, "--check: more than %d set-ups", OOM_CHECK_MOST);
	if (c->n == c->cap) {
		struct oom_check_row *more =
			realloc(c->row, (2 * c->cap + 16) * sizeof(*more));

		if (!more)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		c->row = more;
		c->cap = 2 * c->cap + 16;
	}
	*row = &c->row[c->n];
	**row = (struct oom_check_row){.name = strdup(name), .text = strdup(text)};
	if (!(*row)->name || !(*row)->text) {
		free((*row)->name);
		free((*row)->text);
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	c->n++;
	return OOM_OK;
}

enum oom_status oom_check_add_failed(struct oom_check *c, const char *name, const char *why,
				     struct oom_error *err)
{
	struct oom_check_row *row;
	const enum oom_status st = add(c, name, why, &row, err);

	if (!st)
		row->failed = true;
	return st;
}

/* What has to be known beside the bytes of training. */
static void remark(const struct oom_judged *j, uint64_t capacity, char *text, size_t size)
{
	struct oom_compat_rule r;
	char share[80];
	size_t n = 0;

	*text = 0;
	if (!j->eval_fits)
		n += (size_t)snprintf(text, size, "evaluation (batch %lld) %s %s",
				      (long long)j->plan.eval_batch,
				      j->plan.evaluates == OOM_EVALUATES_YES ? "needs" : "would need",
				      oom_used_of(share, j->eval_used_bytes, capacity));
	if (j->fits_gpu && !j->fits && n < size)
		n += (size_t)snprintf(text + n, size - n, "%sfits the GPU, not the host", n ? "; " : "");
	for (size_t i = 0; n < size && oom_compat_next(&j->broken, &i) && oom_compat_rule_at(i, &r); i++)
		if (r.verdict == OOM_REFUSED || r.verdict == OOM_BECOMES_OTHER)
			n += (size_t)snprintf(text + n, size - n, "%s%s: %s", n ? "; " : "",
					      r.verdict == OOM_REFUSED ? "refused" : "becomes another run",
					      r.happens);
}

enum oom_status oom_check_add(struct oom_check *c, struct oom_evaluator *ev, const char *name,
			      const struct oom_question *q, struct oom_error *err)
{
	struct oom_error why = {{0}};
	struct oom_check_row *row;
	struct oom_judged j;
	char text[600];
	enum oom_status st = oom_answer_as_asked(ev, q, &j, &why);

	if (st == OOM_ERR_MEMORY || st == OOM_ERR_INTERNAL)
		return oom_error_set(err, st, "%s", why.text);
	if (st)
		return oom_check_add_failed(c, name, why.text, err);
	remark(&j, q->capacity_bytes, text, sizeof(text));
	st = add(c, name, text, &row, err);
	if (st)
		return st;
	row->fits = j.fits;
	row->used_bytes = j.eval.used_bytes;
	row->capacity_bytes = q->capacity_bytes;
	return OOM_OK;
}

void oom_check_release(struct oom_check *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->row[i].name);
		free(c->row[i].text);
	}
	free(c->row);
	c->row = NULL;
	c->n = c->cap = 0;
}

int oom_check_end(struct oom_check *c)
{
	size_t fitting = 0, failed = 0;
	bool printed = false;
	int code;

	for (size_t i = 0; i < c->n; i++) {
		fitting += c->row[i].fits;
		failed += c->row[i].failed;
	}
	code = failed || !c->n	? OOM_EXIT_INPUT :
	       fitting < c->n ? OOM_EXIT_DOES_NOT_FIT :
				OOM_EXIT_FITS;
	if (!c->n)
		oom_complain(0, "--check: there is no set-up to judge");
	for (size_t i = 0; i < c->job->report.n; i++) {
		const char *file;
		const struct check_format *f = check_format(c->job->report.items[i], &file);
		const int lost = check_write(f, file, c, fitting);

		printed |= !file;
		code = lost ? lost : code;
	}
	if (!printed) {
		struct oom_page page;

		oom_page_begin(&page);
		check_write_text(stdout, c, fitting);
		oom_page_end(&page);
	}
	oom_check_release(c);
	return code;
}

/* ---- one set-up ---- */

static void name_of(const struct oom_job *job, const struct oom_target *t, char *name, size_t size)
{
	size_t n = 0;

	*name = 0;
	for (size_t i = 0; i < job->from.n && n < size; i++)
		n += (size_t)snprintf(name + n, size - n, "%s%s", job->from.items[i],
				      i + 1 < job->from.n ? " " : ": ");
	if (n < size)
		snprintf(name + n, size - n, "%s on %s", job->model,
			 t->q.gpu ? t->gpu.name : job->gpu_memory.text);
}

int oom_check_one(struct oom_job *job)
{
	struct oom_check c = {.job = job};
	struct oom_error err = {{0}};
	struct oom_target t;
	enum oom_status st;
	char name[600];
	int code = oom_target_open(job, &t, true);

	if (code)
		return code;
	name_of(job, &t, name, sizeof(name));
	st = oom_check_add(&c, NULL, name, &t.q, &err);
	if (st) {
		oom_check_release(&c);
		code = oom_failed(st, &err);
	} else {
		code = oom_check_end(&c);
	}
	oom_target_close(&t);
	return code;
}

/* ---- a runs file ---- */

struct reading {
	struct oom_check check;
	struct oom_gpus gpus;
	struct oom_evaluator *ev;
};

static enum oom_status on_run(void *ctx, const struct oom_run *run, struct oom_error *err)
{
	struct reading *r = ctx;
	const struct oom_job *job = r->check.job;
	const char *gpu = run->gpu && *run->gpu ? run->gpu : job->gpu;
	struct oom_question q = oom_question_default();
	struct oom_error why = {{0}};
	struct oom_gpu card;
	char name[600];

	snprintf(name, sizeof(name), "%s:%zu %s%s%s", job->runs, run->line, run->name,
		 gpu ? " on " : "", gpu ? gpu : "");
	q.model = run->model;
	q.plan = *run->plan;
	q.host_ram_bytes = job->host_ram.bytes;
	if (*run->error)
		return oom_check_add_failed(&r->check, name, run->error, err);
	if (gpu) {
		if (oom_gpu_find(&r->gpus, gpu, &card, NULL, &why))
			return oom_check_add_failed(&r->check, name, why.text, err);
		q.gpu = &card;
		q.capacity_bytes = card.capacity_bytes;
	}
	if (run->gpu_memory && *run->gpu_memory) {
		if (oom_parse_bytes(run->gpu_memory, &q.capacity_bytes, &why))
			return oom_check_add_failed(&r->check, name, why.text, err);
	} else if (job->gpu_memory.text) {
		q.capacity_bytes = job->gpu_memory.bytes;
	}
	if (!q.capacity_bytes)
		return oom_check_add_failed(&r->check, name,
					    "on which GPU? a column gpu or gpu_memory, or --gpu NAME", err);
	oom_question_settle(&q);
	return oom_check_add(&r->check, r->ev, name, &q, err);
}

int oom_check_runs(struct oom_job *job)
{
	struct reading r = {.check = {.job = job}, .ev = oom_evaluator_new()};
	struct oom_error err = {{0}};
	enum oom_status st = r.ev ? oom_gpus_load(&r.gpus, &err) :
				    oom_error_set(&err, OOM_ERR_MEMORY, "out of host memory");
	int code;

	if (!st && job->gpus_file)
		st = oom_gpus_read(&r.gpus, job->gpus_file, &err);
	if (!st)
		st = oom_runs_each(job->runs, job->models_dir, on_run, &r, &err);
	if (st) {
		oom_check_release(&r.check);
		code = oom_failed(st, &err);
	} else {
		code = oom_check_end(&r.check);
	}
	oom_gpus_release(&r.gpus);
	oom_evaluator_free(r.ev);
	return code;
}
