/* oomplan estimate --runs: a CSV in, a CSV out; the output appears whole or not at all. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "oomplan/runs.h"

int oom_estimate_runs(struct oom_job *job)
{
	struct oom_runs_report rep;
	struct oom_error err = {{0}};
	char temp[600] = "";
	FILE *out = stdout;
	enum oom_status st;

	if (job->output) {
		if (snprintf(temp, sizeof(temp), "%s.part", job->output) >= (int)sizeof(temp))
			return oom_complain(OOM_EXIT_USAGE, "--output: name too long");
		out = fopen(temp, "wb");
		if (!out)
			return oom_complain(OOM_EXIT_INPUT, "%s: %s", temp, strerror(errno));
	}
	st = oom_runs_price(job->runs, job->models_dir, out, &rep, &err);
	if (job->output) {
		bool bad = fflush(out) || ferror(out) || fsync(fileno(out));

		bad |= fclose(out) != 0;
		if (!st && bad)
			st = oom_error_set(&err, OOM_ERR_IO, "%s: %s", temp, strerror(errno));
		if (st || rename(temp, job->output)) {
			if (!st)
				st = oom_error_set(&err, OOM_ERR_IO, "%s: %s", job->output, strerror(errno));
			unlink(temp);
		}
	}
	if (st)
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	if (*rep.unknown_columns && !job->quiet)
		oom_complain(0, "carried through, not used: %s", rep.unknown_columns);
	if (!job->quiet)
		oom_complain(0, "%zu rows, %zu not priced, %zu with an approximated structure", rep.rows, rep.failed, rep.warned);
	return OOM_EXIT_FITS;
}
