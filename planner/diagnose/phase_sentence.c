/* What a sentence says was going on: "OOM when saving", "fails at the diarization step". */
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
		/* "initializing the actor_rollout": the name of a part, not what it does */
		phase = memchr(p, '_', (size_t)(stop - p)) ? OOM_CRASH_UNKNOWN : oom_phase_of_spoken(p, stop);
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

bool oom_complains(const char *from, const char *to)
{
	static const char *const words[] = {"OOM",  "emory", "rror", "crash", "Crash", "kill",
					    "Kill", "fail",  "Fail", "VRAM",  "vram",  "oom"};

	return any(words, COUNT(words), from, to);
}

/* "It works fine when training, but ..." */
static bool praises(const char *from, const char *to)
{
	static const char *const words[] = {"work", " fine", "success", "no problem", "no issue", "can be "};

	return any(words, COUNT(words), from, to) && !oom_complains(from, to);
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

			if (phase == OOM_CRASH_UNKNOWN || !says_more(phase, p, best, first) || praises(clause_of(line, p), p) ||
			    (phase == OOM_CRASH_TRAIN_STEP && oom_phase_is_spared(b, stop)))
				continue;
			best = phase;
			first = p;
			*from = a;
			*to = b;
		}
	return best;
}

enum oom_crash_phase oom_phase_of_sentence(const char *line, const char *stop, const char **from, const char **to)
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
