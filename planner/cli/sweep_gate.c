/* A sweep under --check: every cell judged as asked. */
#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "sweep_out.h"

struct gate {
	struct oom_check check;
	struct oom_sweep *sweep;
	struct oom_evaluator *ev;
	enum oom_status st;
	struct oom_error *err;
};

static void judge_cell(void *ctx, const struct oom_sweep_cell *cell)
{
	struct gate *g = ctx;
	struct oom_question q = oom_question_default();
	char name[600] = "set-up", value[200];
	const char *axis;
	uint64_t n;
	size_t at = 0;

	for (size_t i = 0; at < sizeof(name) && oom_sweep_axis_at(g->sweep, i, &axis, &n); i++)
		at += (size_t)snprintf(name + at, sizeof(name) - at, "%s%s=%s", at ? " " : "", axis,
				       oom_sweep_value_text(g->sweep, i, cell->at[i], value, sizeof(value)));
	if (g->st)
		return;
	q.model = cell->model;
	q.plan = *cell->plan;
	q.gpu = cell->gpu;
	q.capacity_bytes = cell->capacity_bytes;
	q.host_ram_bytes = g->check.job->host_ram.bytes;
	if (!cell->ok || !q.capacity_bytes)
		g->st = oom_check_add_failed(&g->check, name,
					     cell->ok ? "on which GPU? --gpu NAME" : cell->error, g->err);
	else
		g->st = oom_check_add(&g->check, g->ev, name, &q, g->err);
}

int oom_sweep_gate(const struct oom_job *job, struct oom_sweep *s, const struct oom_sweep_options *o)
{
	struct oom_error err = {{0}};
	struct gate g = {.check = {.job = job}, .sweep = s, .ev = oom_evaluator_new(), .err = &err};
	enum oom_status st = OOM_OK;

	if (!g.ev)
		st = oom_error_set(&err, OOM_ERR_MEMORY, "out of host memory");
	else if (oom_sweep_cells(s) > OOM_CHECK_MOST)
		st = oom_error_set(&err, OOM_ERR_LIMIT, "--check: more than %d set-ups", OOM_CHECK_MOST);
	if (!st)
		st = oom_sweep_each(s, o, judge_cell, &g, &err);
	oom_evaluator_free(g.ev);
	if (!st && !g.st)
		return oom_check_end(&g.check);
	oom_check_release(&g.check);
	return oom_complain(oom_sweep_code(st ? st : g.st), "%s", err.text);
}
