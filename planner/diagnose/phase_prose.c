/* What people say was going on: their own words around a message, "OOM when saving", "fails at the diarization
 * step", and what failed by its name. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || upper(c);
}

static bool ends_phrase(char ch)
{
	return ch == '\n' || ch == '.' || ch == ',' || ch == ';' || ch == ':' || ch == '(' || ch == ')' ||
	       ch == '?' || ch == '!';
}

/* What is over, and what comes next: "when it has finished the epoch and does the validation". */
static bool is_over(const char *p, const char *stop)
{
	static const char *const words[] = {"finish", "after", "complet", "done"};

	for (size_t i = 0; i < COUNT(words); i++)
		if ((size_t)(stop - p) >= strlen(words[i]) && !memcmp(p, words[i], strlen(words[i])))
			return true;
	return false;
}

/* What was said is left for what comes next. */
static bool goes_on(const char *p, const char *end)
{
	static const char *const verbs[] = {" proceeds to", " reaches", " reached", " gets to", " got to", " comes to", " goes to", " enters", " switches to", " moves to", " went into"};

	for (size_t i = 0; i < COUNT(verbs); i++)
		if ((size_t)(end - p) > strlen(verbs[i]) && !memcmp(p, verbs[i], strlen(verbs[i])))
			return true;
	return false;
}

/* Who saves memory writes no file, and an adapter is read beside a model that is there. */
static bool of_else(enum oom_crash_phase phase, const char *p, const char *end)
{
	const char *const rest = end - p > 24 ? p + 24 : end;

	if (phase == OOM_CRASH_LOAD)
		return oom_text_find(p, rest, "lora") || oom_text_find(p, rest, "LoRA");
	return phase == OOM_CRASH_SAVE &&
	       (oom_text_find(p, rest, "emory") || oom_text_find(p, rest, "RAM") || oom_text_find(p, rest, "ram "));
}

/* A tokenizer is trained, and data are loaded, before the model is. */
static bool of_data(enum oom_crash_phase phase, const char *p, const char *end)
{
	const char *const rest = end - p > 24 ? p + 24 : end;

	return (phase == OOM_CRASH_LOAD && oom_text_find(p, rest, " data")) ||
	       (phase == OOM_CRASH_TRAIN_STEP && oom_text_find(p, rest, "okenizer"));
}

/* "when starting the training": what is started says more than that it starts. */
static enum oom_crash_phase of_started(const char *p, const char *end, const char **from, const char **to)
{
	for (int n = 0; n < 3 && p < end && !ends_phrase(*p); n++) {
		const char *stop;
		enum oom_crash_phase phase;

		while (p < end && *p == ' ')
			p++;
		for (stop = p; stop < end && *stop != ' ' && !ends_phrase(*stop); stop++)
			;
		phase = oom_phase_of_spoken(p, stop);
		if (phase == OOM_CRASH_TRAIN_STEP || phase == OOM_CRASH_EVAL || phase == OOM_CRASH_INFERENCE) {
			*from = p;
			*to = stop;
			return phase;
		}
		p = stop;
	}
	return OOM_CRASH_INIT;
}

/* Words that say nothing of it: "when i try to run the fine tuning". */
static bool is_small(const char *p, const char *stop)
{
	static const char *const words[] = {"i", "I", "it", "we", "you", "the", "a", "my", "to", "try", "trying", "run", "running", "do", "doing"};

	for (size_t i = 0; i < COUNT(words); i++)
		if ((size_t)(stop - p) == strlen(words[i]) && !memcmp(p, words[i], (size_t)(stop - p)))
			return true;
	return false;
}

/* The first of so many words that speaks; *from and *to: that one. */
static enum oom_crash_phase of_phrase(const char *p, const char *end, int most, const char **from, const char **to)
{
	bool over = false;

	for (int n = 0; n < most && p < end; n++) {
		const char *stop;
		enum oom_crash_phase phase;

		while (p < end && (*p == ' ' || *p == '`' || *p == '*' || *p == '"' || *p == '\''))
			p++;
		/* a name with dots is one word */
		for (stop = p; stop < end && *stop != ' ' &&
			       (!ends_phrase(*stop) || (*stop == '.' && stop + 1 < end && letter(stop[1])));
		     stop++)
			;
		phase = oom_phase_of_spoken(p, stop);
		if (of_else(phase, stop, end))
			phase = OOM_CRASH_UNKNOWN;
		if (is_small(p, stop))
			most++;
		/* "when training proceeds to the second validation" */
		if (phase == OOM_CRASH_TRAIN_STEP && goes_on(stop, end)) {
			most += 4;
			p = stop;
			continue;
		}
		if (phase != OOM_CRASH_UNKNOWN && !over) {
			*from = p;
			*to = stop;
			if (phase == OOM_CRASH_INIT)
				return of_started(stop, end, from, to);
			return of_data(phase, stop, end) ? OOM_CRASH_DATA : phase;
		}
		/* as many words again */
		if (is_over(p, stop) && !over) {
			over = true;
			most += n + 4;
		} else if (phase != OOM_CRASH_UNKNOWN) {
			over = false;
		}
		if (stop < end && ends_phrase(*stop))
			break;
		p = stop;
	}
	return OOM_CRASH_UNKNOWN;
}

static bool any(const char *const *words, size_t n, const char *from, const char *to)
{
	for (size_t i = 0; i < n; i++)
		if (oom_text_find(from, to, words[i]))
			return true;
	return false;
}

static bool complains(const char *from, const char *to)
{
	static const char *const words[] = {"OOM",  "emory", "rror", "crash", "Crash", "kill",
					    "Kill", "fail",  "Fail", "VRAM",  "vram",  "oom"};

	return any(words, COUNT(words), from, to);
}

/* "It works fine when training, but ..." */
static bool praises(const char *from, const char *to)
{
	static const char *const words[] = {"work", " fine", "success", "no problem", "no issue", "can be "};

	return any(words, COUNT(words), from, to) && !complains(from, to);
}

/* Words behind which stands what was being done, and within how many. */
struct connective {
	const char *word;
	int most;
};
static const struct connective told[] = {
	{"hen ", 5}, {"hile ", 5}, {"uring ", 5}, {" at the ", 3}, {" at ", 2}, {"ail to ", 1},
	{"ails to ", 1}, {"ailed to ", 1}, {"nable to ", 1}, {"an't ", 2}, {"annot ", 2}, {"ould not ", 2},
	{"ouldn't ", 2}, {"OOM in ", 3}, {"OOM on ", 3}, {"OOM for ", 3}, {"memory in ", 3}, {"memory on ", 3},
	{"rror in ", 3}, {"rror on ", 3}, {"OOM ", 1}, {"memory ", 1}, {"rror ", 3}, {"xceeded in ", 1},
};
/* what somebody set out to do: it may be over */
static const struct connective meant[] = {{"ry to ", 2}, {"rying to ", 2}, {"ried to ", 2}, {" to ", 1}};

/* The part of a sentence that stands before p; what stands before a "but" is another. */
static const char *clause_of(const char *line, const char *p)
{
	const char *q = p, *but;

	while (q > line && !ends_phrase(q[-1]))
		q--;
	but = oom_text_last(q, p, " but ");
	return but ? but + 5 : q;
}

/* "Validation fails with": the word before. */
static enum oom_crash_phase of_subject(const char *line, const char *stop, const char **from, const char **to)
{
	static const char *const verbs_of_failing[] = {" fails",   " Fails",	" failed",
						       " crashes", " dies",	" gets killed",
						       " OOMs",	   " runs out", " goes out of"};

	for (size_t i = 0; i < COUNT(verbs_of_failing); i++) {
		const char *const end = oom_text_find(line, stop, verbs_of_failing[i]), *p = end;

		while (p && p > line && (letter(p[-1]) || p[-1] == '_'))
			p--;
		if (p && oom_phase_of_spoken(p, end) != OOM_CRASH_UNKNOWN) {
			*from = p;
			*to = end;
			return oom_phase_of_spoken(p, end);
		}
	}
	return OOM_CRASH_UNKNOWN;
}

/* "the evaluation loop started": a part of a training that begins, and fails. */
static enum oom_crash_phase of_beginning(const char *line, const char *stop, const char **from, const char **to)
{
	static const char *const verbs[] = {" loop started", " loop starts", " loop begins", " started", " starts", " begins", " began"};

	for (size_t i = 0; i < COUNT(verbs); i++) {
		const char *const end = oom_text_find(line, stop, verbs[i]), *p = end;
		enum oom_crash_phase phase;

		while (p && p > line && letter(p[-1]))
			p--;
		phase = p && p < end ? oom_phase_of_spoken(p, end) : OOM_CRASH_UNKNOWN;
		if (phase == OOM_CRASH_EVAL || phase == OOM_CRASH_SAVE) {
			*from = p;
			*to = end;
			return phase;
		}
	}
	return OOM_CRASH_UNKNOWN;
}

/* Of a sentence that names both, training is what went on, its evaluation or its saving what failed: "3 GB when training, then
 * 5 when it starts the validation"; otherwise what is said first. */
static bool says_more(enum oom_crash_phase phase, const char *p, enum oom_crash_phase best, const char *first)
{
	const bool part = phase == OOM_CRASH_EVAL || phase == OOM_CRASH_SAVE,
		   held = best == OOM_CRASH_EVAL || best == OOM_CRASH_SAVE;

	if (best == OOM_CRASH_TRAIN_STEP && part)
		return true;
	return !(phase == OOM_CRASH_TRAIN_STEP && held) && p < first;
}

/* The connective of a line whose words speak, and say most. */
static enum oom_crash_phase behind(const struct connective *words, size_t n, const char *line, const char *stop,
				   const char **from, const char **to)
{
	enum oom_crash_phase best = OOM_CRASH_UNKNOWN;
	const char *first = stop;

	for (size_t i = 0; i < n; i++)
		for (const char *p = line; (p = oom_text_find(p, stop, words[i].word)); p++) {
			const char *a, *b;
			const enum oom_crash_phase phase =
			    of_phrase(p + strlen(words[i].word), stop, words[i].most, &a, &b);

			if (phase == OOM_CRASH_UNKNOWN || !says_more(phase, p, best, first) || praises(clause_of(line, p), p))
				continue;
			best = phase;
			first = p;
			*from = a;
			*to = b;
		}
	return best;
}

static enum oom_crash_phase of_sentence(const char *line, const char *stop, const char **from, const char **to)
{
	enum oom_crash_phase phase = of_subject(line, stop, from, to);

	if (phase == OOM_CRASH_UNKNOWN)
		phase = of_beginning(line, stop, from, to);
	if (phase == OOM_CRASH_UNKNOWN)
		phase = behind(told, COUNT(told), line, stop, from, to);
	if (phase == OOM_CRASH_UNKNOWN)
		phase = behind(meant, COUNT(meant), line, stop, from, to);
	/* who set out to train may have come no further than to load */
	return phase == OOM_CRASH_TRAIN_STEP && behind(told, COUNT(told), line, stop, from, to) != phase
		   ? OOM_CRASH_UNKNOWN
		   : phase;
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
	const enum oom_crash_phase phase = of_sentence(line, stop, &from, &to);
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
	return is_prose(line, stop) && (complains(line, stop) || title) && by_sentence(c, line, stop, 0.6);
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

	if ((!spoke || said.phase == OOM_CRASH_TRAIN_STEP) && is_prose(from, to) && complains(from, to) && comes_after(from, to)) {
		trains->phase = OOM_CRASH_UNKNOWN;
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
		return true;
	}
	if (!spoke || (trains->phase && !part_of_training(said.phase)))
		return false;
	*(said.phase == OOM_CRASH_TRAIN_STEP ? trains : c) = said;
	return said.phase != OOM_CRASH_TRAIN_STEP;
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
