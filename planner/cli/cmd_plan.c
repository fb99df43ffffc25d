/* oomplan plan: fits or not, and the ladder until it does. */
#include <string.h>

#include "cli.h"

static int allowed(const char *words, unsigned *allow)
{
	static const struct {
		const char *word;
		unsigned bits;
	} known[] = {{"seq-len", OOM_ALLOW_SEQ_LEN}, {"lora", OOM_ALLOW_LORA}, {"science", OOM_ALLOW_SCIENCE}};

	while (words && *words) {
		const size_t n = strcspn(words, ",");
		bool found = false;

		for (int i = 0; i < 3; i++)
			if (strlen(known[i].word) == n && !strncmp(known[i].word, words, n)) {
				*allow |= known[i].bits;
				found = true;
			}
		if (!found)
			return oom_complain(OOM_EXIT_USAGE, "--allow %.*s: expected seq-len, lora or science", (int)n, words);
		words += n + (words[n] == ',');
	}
	return 0;
}

static void csv(const struct oom_ladder *l)
{
	static const char *const outcomes[] = {"not_needed", "taken", "no_help", "not_applicable", "offered"};

	printf("rung,name,class,outcome,before_bytes,after_bytes,fits\n");
	for (int i = 0; i < OOM_RUNGS; i++)
		printf("%d,\"%s\",%s,%s,%llu,%llu,%d\n", i + 1, oom_rung_at((size_t)i)->name, oom_class_str(oom_rung_at((size_t)i)->cls),
		       outcomes[l->rung[i].outcome], (unsigned long long)l->rung[i].before_bytes,
		       (unsigned long long)l->rung[i].after_bytes, l->rung[i].fits);
}

int oom_cmd_plan(struct oom_job *job)
{
	struct oom_evaluator *ev;
	struct oom_error err = {{0}};
	struct oom_target t;
	struct oom_ladder l;
	unsigned allow = 0;
	int code = allowed(job->allow, &allow);

	if (!code)
		code = oom_target_open(job, &t, true);
	if (code)
		return code;
	ev = oom_evaluator_new();
	if (!ev || oom_ladder_walk(ev, t.model, &job->plan, t.capacity, allow, &l, &err) ||
	    oom_evaluate(ev, t.model, &l.start, OOM_EVAL_BUCKETS, &l.start_eval, &err) ||
	    oom_evaluate(ev, t.model, &l.plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &l.eval, &err)) {
		code = oom_complain(OOM_EXIT_INPUT, "%s", ev ? err.text : "out of host memory");
	} else {
		if (job->json)
			oom_json_plan(&t, &l);
		else if (job->csv)
			csv(&l);
		else
			oom_report_plan(job, &t, &l);
		code = l.fits ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT;
	}
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}
