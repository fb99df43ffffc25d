/* oomplan estimate --runs: a CSV in, a CSV out; the output appears whole or not at all. */
#include "cli.h"
#include "oomplan/runs.h"
#include "out.h"
#include "term.h"

/* Beside the CSV, wherever that goes. */
static void errors(const struct oom_runs_report *rep)
{
	if (rep->n_errors)
		fprintf(stderr, "%-24s %-11s %5s %8s %8s  %s\n", "group", "quantity", "runs", "median",
			"p95", "too low by more than 5 %");
	for (size_t i = 0; i < rep->n_errors; i++) {
		const struct oom_run_error *e = &rep->error[i];

		fprintf(stderr, "%-24s %-11s %5zu %6.2f %% %6.2f %%  %.1f %%\n", oom_shown(e->group),
			oom_measure_str(e->measure), e->n, 100 * e->median, 100 * e->p95, 100 * e->under);
	}
}

int oom_estimate_runs(struct oom_job *job)
{
	struct oom_runs_report rep;
	struct oom_error err = {{0}};
	struct oom_out out;
	enum oom_status st = oom_out_open(&out, job->output, &err);

	if (!st) {
		st = oom_runs_price(job->runs, job->models_dir, out.file, &rep, &err);
		if (st)
			oom_out_discard(&out);
		else
			st = oom_out_close(&out, &err);
	}
	if (st)
		return oom_failed(st, &err);
	if (*rep.unknown_columns && !job->quiet)
		oom_complain(0, "carried through, not used: %s", rep.unknown_columns);
	if (!job->quiet)
		oom_complain(0, "%zu row%s, %zu not priced, %zu with an approximated structure",
			     rep.rows, rep.rows == 1 ? "" : "s", rep.failed, rep.warned);
	if (!job->quiet)
		errors(&rep);
	if (rep.failed == rep.rows)
		return oom_complain(OOM_EXIT_INPUT, "no row has a price: %s", rep.first.text);
	return OOM_EXIT_FITS;
}
