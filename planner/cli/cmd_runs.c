/* oomplan estimate --runs: a CSV in, a CSV out; the output appears whole or not at all. */
#include "cli.h"
#include "oomplan/runs.h"
#include "out.h"

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
		oom_complain(0, "%zu rows, %zu not priced, %zu with an approximated structure",
			     rep.rows, rep.failed, rep.warned);
	return OOM_EXIT_FITS;
}
