/* The run that a crash's text itself gives, priced: the command, the file or the calls that somebody pasted beside the
 * message, the model and the card that they name.
 *
 * What is missing is the framework's default, and said to be.  Nothing is priced where no text says what trained, or
 * where the model's configuration is not there.  Sizes are in bytes. */
#ifndef OOMPLAN_PRICED_H
#define OOMPLAN_PRICED_H

#include "oomplan/compare.h"
#include "oomplan/diagnose.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OOM_PRICED_CHANGES 8
#define OOM_PRICED_NOTES 4
struct oom_priced {
	char given[400];                /* who read it, from which lines: the model and what the text sets */
	char assumed[400];              /* what it leaves open, and what was taken; or "" */
	char note[OOM_PRICED_NOTES][240]; /* what bears on memory and is not in the price */
	size_t n_notes;
	char needs[400];                /* how much it needs, of what, and what of it is in the way */
	char request[300];              /* which tensor was refused, or "" */
	char explains[400];             /* where the price and the crash contradict each other: what would explain it; or "" */
	/* the smallest change that fits, in the framework's words; 0: none was looked for or found */
	char change[OOM_PRICED_CHANGES][300];
	size_t n_changes;
	char changed[300];              /* what it needs then, or that nothing fits */
	char key[OOM_PRICED_CHANGES][64]; /* of each change, the key that it sets, or "" */
	char model[64];                 /* the configuration that it was priced with */
	/* for the crash that is answered, see oom_priced_settle: who ran by its keys, "": as decoded; the levers that the run
	 * has pulled, and that it has not */
	char program[24];
	uint64_t set, unset;
	uint64_t idle;                  /* the levers that free less than is missing */
	bool trains;                    /* a step was priced; false: weights alone */
	uint64_t used_bytes, capacity_bytes;    /* capacity 0: unknown */
	uint64_t missing_bytes;         /* what it held at the crash and the price has not, which a change has to leave free as well */
	uint64_t changed_bytes;         /* 0: nothing was found */
	bool fits;
	bool states_over;               /* weights, gradients and states alone exceed the card */
};
/* OOM_ERR_UNKNOWN: the text gives no run that can be priced, *err says what is missing. */
OOM_API enum oom_status oom_crash_price(const struct oom_crash_text *text, const struct oom_crash *crash, struct oom_priced *out,
					struct oom_error *err);

/* What the keys of the text say better than the words around the message, whether or not they could be priced: into the crash,
 * before it is answered. */
OOM_API void oom_priced_settle(const struct oom_priced *priced, struct oom_crash *crash);
/* The same of a plan as it is given beside the text: what it does already is no advice.  Of what it leaves at its default
 * the text has the word: a traceback may show scores that a default plan does not have. */
OOM_API void oom_crash_of_plan(struct oom_crash *crash, const struct oom_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
