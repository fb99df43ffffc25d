/* oomplan estimate: exactly the configuration given. */
#include "cli.h"

static void csv(const struct oom_eval *e)
{
	printf("phase,peak_bytes,end_bytes\n");
	for (int i = 0; i < OOM_PHASES; i++)
		printf("%s,%llu,%llu\n", oom_phase_column((enum oom_phase)i), (unsigned long long)e->peak[i],
		       (unsigned long long)e->end[i]);
}

int oom_cmd_estimate(struct oom_job *job)
{
	struct oom_evaluator *ev;
	struct oom_error err = {{0}};
	struct oom_target t;
	struct oom_eval e;
	bool fits;
	int code;

	if (job->runs)
		return oom_estimate_runs(job);
	code = oom_target_open(job, &t, false);
	if (code)
		return code;
	ev = oom_evaluator_new();
	if (!ev || oom_evaluate(ev, t.model, &job->plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e, &err)) {
		code = oom_complain(OOM_EXIT_INPUT, "%s", ev ? err.text : "out of host memory");
	} else {
		fits = !t.capacity || e.used_bytes <= oom_budget(t.capacity, &job->plan);
		if (job->json)
			oom_json_estimate(&t, &job->plan, &e, fits);
		else if (job->csv)
			csv(&e);
		else
			oom_report_estimate(job, &t, &job->plan, &e, fits);
		code = fits ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT;
	}
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}
