/* The causes that only the run before a crash shows: memory that rises from step to step, a death in the second
 * step, the longest batch. */
#include <stdio.h>

#include "run.h"

static void say(struct oom_crash *c, enum oom_cause cause, double confidence, const char *evidence)
{
	size_t i = 0, last;

	while (i < c->n_causes && c->cause[i].cause != cause)
		i++;
	if (i < c->n_causes && c->cause[i].confidence >= confidence)
		return;
	/* a better ground for a cause that is there, or one more */
	if (i == c->n_causes)
		c->n_causes += c->n_causes < OOM_CRASH_CAUSES;
	last = i < c->n_causes ? i : c->n_causes - 1;
	for (; last > 0 && c->cause[last - 1].confidence < confidence; last--)
		c->cause[last] = c->cause[last - 1];
	c->cause[last] = (struct oom_verdict){.cause = cause, .confidence = confidence};
	snprintf(c->cause[last].evidence, sizeof(c->cause[0].evidence), "%s", evidence);
}

static bool trains(const struct oom_crash *c)
{
	return oom_crash_work(c) == OOM_WORK_TRAINING && c->n_causes &&
	       (c->cause[0].cause == OOM_CAUSE_TOO_LARGE || c->cause[0].cause == OOM_CAUSE_UNKNOWN);
}

/* A line through at least a dozen samples that explains nine tenths of their spread, or half as many on a line, and a rise
 * of a twentieth: guesses; memory that only warms up rises at once and stays. */
static bool leaks(const struct oom_crash_run *run)
{
	/* as even as a line is, what little it rises is kept as well: a warm-up bends */
	if (run->memory_samples >= 12 && run->memory_fit > 0.995 && run->memory_slope > 0 && run->memory_last > 1.02 * run->memory_first)
		return true;
	return ((run->memory_samples >= 12 && run->memory_fit > 0.95) || (run->memory_samples >= 6 && run->memory_fit > 0.98)) && run->memory_slope > 0 &&
	       run->memory_last > 1.05 * run->memory_first;
}

static void from_figures(struct oom_crash *c, const struct oom_crash_log *log)
{
	const struct oom_crash_run *const run = &log->run;
	const bool own = c->n_causes && c->cause[0].cause != OOM_CAUSE_NOT_OOM &&
			 c->cause[0].cause != OOM_CAUSE_OTHER_PROCESS;
	char why[160];

	if (own && leaks(run)) {
		if (run->memory_in_bytes)
			snprintf(why, sizeof(why), "\"%s\" rose from %.2f to %.2f GiB, by %.2f MiB a step", run->memory_key,
				 run->memory_first / 1073741824, run->memory_last / 1073741824,
				 run->memory_slope / 1048576);
		else
			snprintf(why, sizeof(why), "\"%s\" rose from %.4g to %.4g, by %.3g a step", run->memory_key,
				 run->memory_first, run->memory_last, run->memory_slope);
		say(c, c->cause[0].cause == OOM_CAUSE_HOST_RAM ? OOM_CAUSE_HOST_RAM : OOM_CAUSE_LEAK, 0.9, why);
		return;
	}
	if (own && log->rising)
		say(c, OOM_CAUSE_LEAK, 0.5, "allocated rose over the last four messages");
	if (!trains(c) || run->last_step < 0)
		return;
	/* a quarter more than any before it: in a run that went well so far no coincidence */
	if (run->longest_before > 0 && run->longest_step == run->last_step && run->longest > run->longest_before + run->longest_before / 4) {
		snprintf(why, sizeof(why), "the batch of step %lld has %lld tokens, the longest before it %lld", (long long)run->last_step,
			 (long long)run->longest, (long long)run->longest_before);
		say(c, OOM_CAUSE_LONGEST_BATCH, 0.9, why);
		return;
	}
	/* "gradient_accumulation_steps=1" counts none: a step that was made has a loss, or a number of all beside it */
	if (run->last_step == 1 && (run->has_loss || run->of_steps || run->memory_samples) && c->phase != OOM_CRASH_OPTIMIZER)
		say(c, OOM_CAUSE_STEP_2, 0.6,
		    "one step went through: the optimizer's state, made at its end, is what is new in the "
		    "second");
	else if (run->last_step - run->first_step >= 20 && !run->evaluations && !run->savings) {
		snprintf(why, sizeof(why), "steps %lld to %lld went through: this batch may have been the longest so far",
			 (long long)run->first_step, (long long)run->last_step);
		say(c, OOM_CAUSE_LONGEST_BATCH, 0.45, why);
	}
}

/* A forward pass that no frame calls an evaluation's, while the log says that one is going on. */
static void evaluates(struct oom_crash *c, const struct oom_crash_run *run)
{
	if (!run->in_evaluation || (c->phase != OOM_CRASH_FORWARD && c->phase != OOM_CRASH_UNKNOWN) || !c->n_causes ||
	    c->cause[0].cause == OOM_CAUSE_NOT_OOM || !(c->trains || run->has_loss))
		return;
	c->phase = OOM_CRASH_EVAL;
	c->phase_confidence = 0.8;
	snprintf(c->phase_evidence, sizeof(c->phase_evidence), "%s", run->evaluations == 1 ? "the log, which began its first evaluation and counted no step since" :
								       "the log, which began an evaluation and counted no step since");
}

void oom_run_causes(struct oom_crash *c, const struct oom_crash_log *log)
{
	const struct oom_crash_run *const run = &log->run;

	evaluates(c, run);
	if (c->phase == OOM_CRASH_UNKNOWN && run->has_loss && run->last_step >= 0 &&
	    oom_crash_work(c) == OOM_WORK_UNKNOWN && c->n_causes && c->cause[0].cause != OOM_CAUSE_NOT_OOM)
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.6, "the log counts steps and prints their losses");
	from_figures(c, log);
}
