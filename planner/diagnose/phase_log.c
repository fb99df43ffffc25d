/* What a log says around a message: names of scripts, lines and their verbs, what failed by its name. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool script_char(char ch)
{
	return ch != ' ' && ch != '\n' && ch != '"' && ch != '\'' && ch != '(' && ch != ':' &&
	       ch != '\t';
}

/* Its own letters; those of a folder where they are all of its name: "/inference/app.py", not "/train-my-bike/app.py". */
static bool by_script_name(struct oom_crash *c, const char *from, const char *to)
{
	const char *name = to;

	while (name > from && name[-1] != '/' && name[-1] != '\\')
		name--;
	if (oom_phase_by_word(c, oom_phase_of_script, name, to, 0.6))
		return true;
	for (const char *stop = name; stop > from;) {
		const char *p = --stop;

		while (p > from && p[-1] != '/' && p[-1] != '\\' && p[-1] != '-' && p[-1] != '_' && p[-1] != '.')
			p--;
		if ((p == from || p[-1] == '/' || p[-1] == '\\') && oom_phase_by_word(c, oom_phase_of_script, p, stop, 0.6))
			return true;
		while (p > from && p[-1] != '/' && p[-1] != '\\')
			p--;
		stop = p;
	}
	return false;
}

/* A name ending in .py, .sh, .out or .log. */
bool oom_phase_by_script(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const ends[] = {".py", ".sh", ".out", ".log", ".ipynb"};

	for (size_t i = 0; i < COUNT(ends); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, ends[i])); p++) {
			const char *from = p;

			while (from > begin && p - from < 120 && script_char(from[-1]))
				from--;
			/* "[launch.py:434:": where a log's line was printed, not what was run */
			if ((from < p && *from == '[') ||
			    oom_text_find(from, p, "site-packages") ||
			    oom_text_find(from, p, "dist-packages") ||
			    oom_text_find(from, p, "/lib/python"))
				continue;
			if (by_script_name(c, from, p + strlen(ends[i])))
				return true;
		}
	return false;
}

/* The script that ran is one of training, by its name. */
bool oom_phase_script_trains(const struct oom_crash *c, const char *begin, const char *end)
{
	struct oom_crash said = *c;

	return oom_phase_by_script(&said, begin, end) && said.phase == OOM_CRASH_TRAIN_STEP;
}

/* Words of a log's lines, from the message's own line backwards: what a run said last is what it
 * was doing.  Where none speaks, those behind it, as of progress bars that are printed late. */
bool oom_phase_by_nearest(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *stop = oom_line_end(at, end);
	unsigned done = 0;              /* phases that a line called over */
	bool steps = false;             /* a program that infers counted some */

	for (const char *to = stop; to > begin;) {
		const char *const from = oom_line_begin(begin, to);
		bool over = false;
		const enum oom_crash_phase verb = oom_line_phase(from, to, &over);

		if (over)
			done |= 1u << verb;
		/* a bar of its own that no word of loading names: what was loaded before it is there */
		if (oom_text_find(from, to, "it/s]") && !oom_text_find(from, to, "oad") && !oom_text_find(from, to, "etching")) {
			done |= 1u << OOM_CRASH_LOAD;
			steps |= oom_program_of(c)->activity == OOM_ACTIVITY_INFERS;
		}
		/* a bar that has reached its end is of what is over */
		if (!over && (oom_phase_by_word(c, oom_phase_of_words, from, to, 0.6) ||
			      (verb != OOM_CRASH_UNKNOWN && oom_phase_settle(c, verb, 0.6, "what the log says it is doing"))) &&
		    !(done & 1u << c->phase) && !(c->phase == OOM_CRASH_LOAD && oom_text_find(from, to, "100%")))
			return true;
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
		to = from > begin ? from - 1 : begin;
	}
	return (steps && oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.6, "a program that infers counts steps")) ||
	       oom_phase_by_word(c, oom_phase_of_words, stop, end, 0.6);
}

static bool running_bar(const char *line, const char *end)
{
	return (oom_text_find(line, end, "%|") || oom_text_find(line, end, "it/s") || oom_text_find(line, end, "s/it") ||
		oom_text_find(line, end, "examples/s")) && !oom_text_find(line, end, "100%");
}

/* A progress bar that was cut short, on the message's own line or right above it. */
bool oom_phase_by_bar(struct oom_crash *c, const char *begin, const char *line, const char *stop)
{
	const char *const above = line > begin ? oom_line_begin(begin, line - 1) : line;

	return (running_bar(line, stop) && oom_phase_by_word(c, oom_phase_of_words, line, stop, 0.65)) ||
	       (above < line && running_bar(above, line) && oom_phase_by_word(c, oom_phase_of_words, above, line, 0.65));
}
