/* What to change where the text does not say what ran: first what helps whatever it was, then what each kind of work has
 * that the text leaves open. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* What was asked for is known, what ran is not. */
static void of_part(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const struct oom_part *const part = oom_part_of(c);

	if (part->trains && part->trains == part->runs && !(c->set & OOM_SET(part->trains))) {
		oom_fix_lever(c, a, "", part->trains);
		return;
	}
	if (part->trains && !(c->set & OOM_SET(part->trains)))
		oom_fix_lever(c, a, "if it was training: ", part->trains);
	if (part->runs && !(c->set & OOM_SET(part->runs)) && !c->trains)
		oom_fix_lever(c, a, "if it was not training: ", part->runs);
}

/* One request of a size that no batch grows to by itself: larger than all the rest, or a quarter of the card. */
bool oom_one_is_large(const struct oom_crash *c)
{
	return oom_alone_too_large(c) || oom_dwarfs_the_rest(c) ||
	       /* where the card is not said: more than half of most */
	       (!c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_TRIED] && !oom_format_is(c, OOM_FORMAT_PROGRAM) && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)8 << 30) ||
	       (c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30 &&
		c->bytes[OOM_CRASH_TRIED] > c->bytes[OOM_CRASH_TOTAL] / 4);
}

/* Code that computes stands above the message: no weights are being loaded. */
static bool computes(const struct oom_crash *c)
{
	return c->phase == OOM_CRASH_FORWARD || c->trains || c->traceback || *c->own_line || *c->program_total || *c->largest || c->first_dimension ||
	       (c->part != OOM_PART_UNKNOWN && c->part != OOM_PART_WEIGHTS && c->part != OOM_PART_RESTORED);
}

/* Not what the run has already. */
static void open_lever(const struct oom_crash *c, struct oom_crash_answer *a, const char *condition, enum oom_lever l)
{
	if (!(c->set & OOM_SET(l)))
		oom_fix_lever(c, a, condition, l);
}

/* A runtime or library whose words for less at once differ in a training: both are said, unless it has one for both. */
static bool says_both(const struct oom_crash *c)
{
	return !oom_lever_own(c, OOM_LEVER_LESS) && (oom_lever_own(c, OOM_LEVER_BATCH) || oom_lever_own(c, OOM_LEVER_REQUESTS));
}

/* What keeps less for the backward pass, in one line. */
static void of_training(const struct oom_crash *c, struct oom_crash_answer *a)
{
	struct oom_crash_answer two = {0};
	char both[2 * sizeof(a->fix[0]) + 2];

	open_lever(c, &two, "", OOM_LEVER_RECOMPUTE);
	if (!oom_format_is(c, OOM_FORMAT_NO_AMP))
		open_lever(c, &two, "", OOM_LEVER_PRECISION);
	snprintf(both, sizeof(both), two.n_fix > 1 ? "%s; %s" : "%s", two.fix[0], two.fix[1]);
	if (two.n_fix)
		oom_fix_add(a, c->trains ? "" : "if it was training: ", strlen(both) < 270 ? both : two.fix[0]);
}

void oom_fixes_open(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const bool large = (cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_BUFFER_LIMIT) && oom_one_is_large(c);
	const bool of_part_alone = oom_part_of(c)->trains || oom_part_of(c)->runs;

	/* with less at once it was tried already */
	if (cause == OOM_CAUSE_UNKNOWN && (c->tried & OOM_SET(OOM_LEVER_BATCH)))
		open_lever(c, a, "", OOM_LEVER_OTHERS);
	if (c->sees)
		oom_fix_lever(c, a, "", OOM_LEVER_PIXELS);
	of_part(c, a);
	/* what is held beyond the card are weights more often than a batch */
	if (oom_overcommitted(c) && !computes(c) && !of_part_alone)
		oom_fix_add(a, "", "less of what lies there throughout, not of the batch alone: a smaller model or its weights in 16 bits, or quantised to 8 or 4; data and images kept on the host");
	/* nothing was held before: no batch grew, a model is too large for the card */
	if (large && !of_part_alone && c->known[OOM_CRASH_ALLOCATED] && c->bytes[OOM_CRASH_ALLOCATED] < (uint64_t)1 << 26)
		open_lever(c, a, "", OOM_LEVER_QUANT);
	else if (large && !of_part_alone)
		oom_fix_add(a, "", "look at that one request first: an input far longer or larger than the others, or a matrix of all against all "
				   "(attention that keeps its scores, distances of all pairs)");
	/* a library that draws or generates, with another's words for a training: it seldom trains */
	if (says_both(c) && !c->trains && oom_program_of(c)->trains_with) {
		open_lever(c, a, "if it was not training: ", OOM_LEVER_REQUESTS);
		open_lever(c, a, "if it was not training: ", OOM_LEVER_OFFLOAD);
	}
	if (says_both(c))
		open_lever(c, a, c->trains ? "" : "if it was training: ", OOM_LEVER_BATCH);
	else
		oom_fix_lever(c, a, "", OOM_LEVER_LESS);
	/* a message that was cut before it says whose the card is */
	if (cause == OOM_CAUSE_TOO_LARGE && oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_FREE] && !c->known[OOM_CRASH_ALLOCATED] && !c->known[OOM_CRASH_PROCESS] && !c->n_processes)
		oom_fix_lever(c, a, "if this program has less than the rest of the card: ", OOM_LEVER_OTHERS);
	/* on a Mac it seldom trains */
	if (!c->trains && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && !says_both(c))
		open_lever(c, a, "if it was not training: ", OOM_LEVER_NO_GRAD);
	if (!oom_alone_too_large(c))
		of_training(c, a);
	if (!c->trains && says_both(c))
		open_lever(c, a, "if it was not training: ", OOM_LEVER_REQUESTS);
	if (!c->trains && !oom_alone_too_large(c) && !says_both(c))
		open_lever(c, a, "if it was not training: ", OOM_LEVER_NO_GRAD);
	if (oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && !oom_lever_is_set(c, OOM_LEVER_WATERMARK))
		oom_fix_lever(c, a, "", OOM_LEVER_WATERMARK);
	if (!oom_alone_too_large(c) && !computes(c) && !large && !oom_overcommitted(c))
		open_lever(c, a, "if the model was being loaded: ", says_both(c) ? OOM_LEVER_LOAD : OOM_LEVER_QUANT);
	if (cause == OOM_CAUSE_UNKNOWN)
		open_lever(c, a, "in any case: ", OOM_LEVER_OTHERS);
}
