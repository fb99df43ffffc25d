/* What people say was going on: their own words around a message, line by line, and what failed by its name. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool any(const char *const *words, size_t n, const char *from, const char *to)
{
	for (size_t i = 0; i < n; i++)
		if (oom_text_find(from, to, words[i]))
			return true;
	return false;
}

/* Not of a program: no code, no frame, no warning of a library, no entry of a logger. */
static bool is_prose(const char *line, const char *stop)
{
	static const char *const marks[] = {
	    "Warning", "WARN", "INFO", "ERROR", "File \"", "site-packages", "://", "Tried to allocate", "--"};

	return stop - line > 8 && stop - line < 1000 && *line != '\t' && memcmp(line, "    ", 4) &&
	       !any(marks, COUNT(marks), line, stop);
}

static bool by_sentence(struct oom_crash *c, const char *line, const char *stop, double confidence)
{
	const char *from, *to;
	const enum oom_crash_phase phase = oom_phase_of_sentence(line, stop, &from, &to);
	char why[80];

	/* what serves is tested, and evaluates nothing */
	if (phase == OOM_CRASH_UNKNOWN || (phase == OOM_CRASH_EVAL && oom_runtime_is(c, OOM_RUNTIME_LAYERED)))
		return false;
	snprintf(why, sizeof(why), "the words \"%.*s\"", (int)(to - from < 40 ? to - from : 40), from);
	return oom_phase_settle(c, phase, confidence, why);
}

/* Behind a message that a title quotes: "\"CUDA out of memory. Tried to allocate 1.48 GiB\" when trying to validate". */
static const char *behind_quoted(const char *line, const char *stop)
{
	const char *const quoted = oom_text_find(line, stop, "Tried to allocate"), *const end = quoted ? oom_text_find(quoted, stop, "\" ") : NULL;

	return end ? end + 1 : line;
}

static bool by_line(struct oom_crash *c, const char *line, const char *stop, bool title)
{
	if (title)
		line = behind_quoted(line, stop);
	return is_prose(line, stop) && (oom_complains(line, stop) || title) && by_sentence(c, line, stop, 0.6);
}

static bool part_of_training(enum oom_crash_phase phase)
{
	return phase == OOM_CRASH_FORWARD || phase == OOM_CRASH_BACKWARD || phase == OOM_CRASH_OPTIMIZER ||
	       phase == OOM_CRASH_EVAL || phase == OOM_CRASH_SAVE;
}

/* "After training, ...", "after training is finished": it is over by then, whatever came next. */
static bool comes_after(const char *line, const char *stop)
{
	static const char word[] = "fter training", *const over[] = {",", ".", ";", " is ", " was ", " finish", " complet", " end", " has "};
	const char *const p = oom_text_find(line, stop, word), *const after = p ? p + strlen(word) : NULL;

	for (size_t i = 0; after && i < COUNT(over); i++)
		if ((size_t)(stop - after) >= strlen(over[i]) && !memcmp(after, over[i], strlen(over[i])))
			return true;
	return false;
}

/* Whether a line is all there is to hear: who says that he trains may say more elsewhere. */
static bool hear(struct oom_crash *c, struct oom_crash *trains, const char *from, const char *to, bool title)
{
	struct oom_crash said = *c;
	const bool spoke = by_line(&said, from, to, title);

	if ((!spoke || said.phase == OOM_CRASH_TRAIN_STEP) && is_prose(from, to) && oom_complains(from, to) && comes_after(from, to)) {
		trains->phase = OOM_CRASH_UNKNOWN;
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
		return true;
	}
	if (!spoke || (trains->phase && !part_of_training(said.phase)))
		return false;
	*(said.phase == OOM_CRASH_TRAIN_STEP ? trains : c) = said;
	return said.phase != OOM_CRASH_TRAIN_STEP;
}

/* The first word of [from, to) that names a part of a run, but for what is said to be over: "after the training, in the
 * evaluation step, it occurs". */
static enum oom_crash_phase first_named(const char *from, const char *to, const char **word, const char **stop)
{
	for (const char *p = from, *q; p < to; p = q + 1) {
		const char *const near = p - from > 10 ? p - 10 : from;
		enum oom_crash_phase phase;

		for (q = p; q < to && *q != ' ' && *q != ',' && *q != '.' && *q != '\n'; q++)
			;
		phase = q - p > 3 ? oom_phase_of_spoken(p, q) : OOM_CRASH_UNKNOWN;
		if (phase == OOM_CRASH_UNKNOWN || phase == OOM_CRASH_INIT || phase == OOM_CRASH_DATA || oom_text_find(near, p, "fter "))
			continue;
		*word = p;
		*stop = q;
		return phase;
	}
	return OOM_CRASH_UNKNOWN;
}

/* "Training is fine, but it occurs in the evaluation step": of what stands before "but" people say that it works. */
bool oom_phase_by_contrast(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const praise[] = {" OK", " ok", " fine", " works", " worked", " success", "Success", "no issue", "no problem", "without any issue", "without any problem",
					       "without any error", "without issue", "without problem", "without error"},
				 *const blame[] = {"occur", "happen"};

	for (const char *p = begin; (p = oom_text_find(p, end, " but ")); p++) {
		const char *const from = oom_sentence_begin(begin, p), *const to = oom_sentence_end(p, end, 1), *word, *stop;
		enum oom_crash_phase before, phase;
		char why[80];

		if (to - from > 500 || oom_text_find(from, to, "File \"") || !any(praise, COUNT(praise), from, p) || any(praise, COUNT(praise), p, to) ||
		    !(oom_complains(p, to) || any(blame, COUNT(blame), p, to)))
			continue;
		before = first_named(from, p, &word, &stop);
		phase = first_named(p + 5, to, &word, &stop);
		if (before == OOM_CRASH_UNKNOWN || phase == OOM_CRASH_UNKNOWN || phase == before)
			continue;
		snprintf(why, sizeof(why), "the words \"%.*s\", behind what is said to work", (int)(stop - word < 24 ? stop - word : 24), word);
		return oom_phase_settle(c, phase, 0.65, why);
	}
	return false;
}

/* The first line, which is a title as a rule; from the message's line backwards; then behind it. */
bool oom_phase_by_prose(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *const stop = oom_line_end(at, end);
	struct oom_crash trains = *c;

	trains.phase = OOM_CRASH_UNKNOWN;
	if (hear(c, &trains, begin, oom_line_end(begin, end), true))
		return true;
	for (const char *to = stop; to > begin;) {
		const char *const from = oom_line_begin(begin, to);

		if (hear(c, &trains, from, to, false))
			return true;
		to = from > begin ? from - 1 : begin;
	}
	for (const char *p = stop; p < end;) {
		const char *const to = oom_line_end(p + 1, end);

		if (hear(c, &trains, p + 1, to, false))
			return true;
		p = to;
	}
	return trains.phase && oom_phase_settle(c, trains.phase, trains.phase_confidence, trains.phase_evidence);
}

/* On the message's line, before it: "generation error: ", "Evaluation failed: ", what failed by its name; "Error
 * processing or transcribing FILE: ", by the verb. */
bool oom_phase_by_failure(struct oom_crash *c, const char *line, const char *at)
{
	static const char *const ends[] = {" error", " failed", " failure", " crashed"};
	char why[80];

	for (size_t i = 0; i < COUNT(ends); i++) {
		const char *const stop = oom_text_last(line, at, ends[i]), *p = stop;
		enum oom_crash_phase phase;

		while (p && p > line &&
		       ((p[-1] >= 'a' && p[-1] <= 'z') || (p[-1] >= 'A' && p[-1] <= 'Z') || p[-1] == '_'))
			p--;
		phase = p && stop - p > 3 ? oom_identifier_phase(p, stop) : OOM_CRASH_UNKNOWN;
		if (phase == OOM_CRASH_UNKNOWN)
			continue;
		snprintf(why, sizeof(why), "\"%.*s\"", (int)(stop - p < 40 ? stop - p : 40), p);
		return oom_phase_settle(c, phase, 0.7, why);
	}
	return by_sentence(c, line, at, 0.65);
}
