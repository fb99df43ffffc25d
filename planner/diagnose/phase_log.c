/* What a log says around a message: names of scripts, lines and their verbs, what failed by its name. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool script_char(char ch)
{
	return ch != ' ' && ch != '\n' && ch != '"' && ch != '\'' && ch != '(' && ch != ':' &&
	       ch != '\t';
}

/* The first rule whose word is in the name; what was trained trains no more: "SuperGluePretrainedNetwork". An "observer" is no
 * server. */
static bool by_letters(struct oom_crash *c, const char *from, const char *to)
{
	for (const struct oom_phase_rule *r = oom_phase_of_script; r->word; r++) {
		const struct oom_phase_rule one[] = {*r, {NULL, OOM_CRASH_UNKNOWN}};
		const char *const p = oom_text_find(from, to, r->word), *const after = p ? p + strlen(r->word) : NULL;

		if (p && !(to - after >= 2 && !memcmp(after, "ed", 2)) && !(p - from >= 2 && !memcmp(p - 2, "obse", 4)))
			return oom_phase_by_word(c, one, from, to, 0.6);
	}
	return false;
}

/* Its own letters; those of a folder where they are all of its name: "/inference/app.py", not "/train-my-bike/app.py". */
static bool by_script_name(struct oom_crash *c, const char *from, const char *to)
{
	const char *name = to;

	while (name > from && name[-1] != '/' && name[-1] != '\\')
		name--;
	if (by_letters(c, name, to))
		return true;
	for (const char *stop = name; stop > from;) {
		const char *p = --stop;

		while (p > from && p[-1] != '/' && p[-1] != '\\' && p[-1] != '-' && p[-1] != '_' && p[-1] != '.')
			p--;
		if ((p == from || p[-1] == '/' || p[-1] == '\\') && by_letters(c, p, stop))
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

static bool blank(char ch)
{
	return ch == ' ' || ch == '\t';
}

/* Behind a prompt, a quote and variables that are set: "$ CUDA_VISIBLE_DEVICES=0 swift". */
static const char *command_of(const char *line, const char *stop)
{
	const char *p = line;

	while (p < stop && strchr("$>%#!` \t", *p))
		p++;
	for (;;) {
		const char *q = p;

		while (q < stop && ((*q >= 'A' && *q <= 'Z') || (*q >= '0' && *q <= '9') || *q == '_'))
			q++;
		if (q == p || q == stop || *q != '=')
			return p;
		while (q < stop && !blank(*q))
			q++;
		while (q < stop && blank(*q))
			q++;
		p = q;
	}
}

static const char *word_end(const char *p, const char *stop)
{
	while (p < stop && !blank(*p) && *p != '`' && *p != '\\')
		p++;
	return p;
}

/* The second word, where the third is an option, a file or a setting, or there is none: prose has words there. */
static bool by_subcommand(struct oom_crash *c, const char *p, const char *stop)
{
	const char *const program = word_end(p, stop), *verb = program, *end, *next;

	while (verb < stop && blank(*verb))
		verb++;
	end = next = word_end(verb, stop);
	while (next < stop && blank(*next))
		next++;
	if (program == p || end == verb || (next < stop && *next != '-' && *next != '\\' && *next != '`' && !memchr(next, '=', (size_t)(word_end(next, stop) - next)) && !memchr(next, '/', (size_t)(word_end(next, stop) - next))))
		return false;
	for (const struct oom_phase_rule *r = oom_phase_of_command; r->word; r++)
		if ((size_t)(end - verb) == strlen(r->word) && !memcmp(verb, r->word, strlen(r->word)))
			return oom_phase_by_word(c, r, verb, end, 0.6);
	return false;
}

static bool by_module(struct oom_crash *c, const char *p, const char *stop)
{
	const char *const m = oom_text_find(p, stop, " -m "), *const name = m ? m + 4 : NULL, *const end = name ? word_end(name, stop) : NULL;
	const char *last = end;

	if (!name || !oom_text_find(p, m, "python"))
		return false;
	while (last > name && last[-1] != '.')
		last--;
	return oom_phase_by_word(c, oom_phase_of_script, last, end, 0.6) || oom_phase_by_word(c, oom_phase_of_command, last, end, 0.6);
}

bool oom_phase_by_command(struct oom_crash *c, const char *begin, const char *end)
{
	for (const char *line = begin; line < end;) {
		const char *const stop = oom_line_end(line, end), *const p = command_of(line, stop);

		if (by_module(c, p, stop) || by_subcommand(c, p, stop))
			return true;
		line = stop < end ? stop + 1 : end;
	}
	return false;
}

/* The script that ran is one of training, by its name. */
bool oom_phase_script_trains(const struct oom_crash *c, const char *begin, const char *end)
{
	struct oom_crash said = *c;

	return oom_phase_by_script(&said, begin, end) && said.phase == OOM_CRASH_TRAIN_STEP;
}

/* Code that somebody shows goes on behind the line that loads: which of its calls failed it does not say. */
static bool goes_on(const char *from, const char *to, const char *end)
{
	static const char *const loads[] = {".from_pretrained(", ".from_preset(", "load_checkpoint(", " torch.load("},
				 *const calls[] = {".quantize(", ".generate(", "oneshot(", ".train(", ".fit(", ".chat(", ".encode(", ".predict(", "= model(", "= pipe(", "= pipeline(", "(**inputs"};
	/* a comment above the line: "# Load model" */
	bool load = *from == '#';

	for (size_t i = 0; i < COUNT(loads); i++)
		load |= oom_text_find(from, to, loads[i]) != NULL;
	for (size_t i = 0; load && i < COUNT(calls); i++)
		if (oom_text_find(to, end, calls[i]))
			return true;
	return false;
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
		enum oom_crash_phase verb = oom_line_phase(from, to, &over);

		/* images and files that are worked through on a card, not data that are made ready for it */
		if (verb == OOM_CRASH_DATA && !oom_runtime_is(c, OOM_RUNTIME_HOST) && !oom_text_find(from, to, "preproc") && !oom_text_find(from, to, "Preproc") &&
		    !oom_text_find(from, to, "oken") && !oom_text_find(from, to, "ataset"))
			verb = OOM_CRASH_INFERENCE;
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
		    !(done & 1u << c->phase) && !(c->phase == OOM_CRASH_LOAD && goes_on(from, to, end)) && !(c->phase == OOM_CRASH_LOAD && oom_text_find(from, to, "100%")))
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

/* "step: 1310/2000000", "Iteration 4900": a log's own count, and not the third of a setup. */
static bool counts_steps(const char *begin, const char *end)
{
	static const char *const words[] = {"tep ", "tep: ", "teration ", "teration: "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *const q = p + strlen(words[i]);

			/* "max_step 500" is an option */
			if (p > begin && (p - 1 == begin || !strchr("_-", p[-2])) && q < end && *q >= '1' && *q <= '9' && strtod(q, NULL) >= 10)
				return true;
		}
	return false;
}

/* "loss:1.54", "train_loss = 0.3": a number, not "focal loss". */
static bool prints_loss(const char *from, const char *end)
{
	for (const char *p = from; (p = oom_text_find(p, end, "loss")); p++) {
		const char *q = p + strlen("loss");

		while (q < end && strchr(": =", *q))
			q++;
		if (q < end && isdigit((unsigned char)*q))
			return true;
	}
	return false;
}

/* "epoch:2 loss:1.54", "Epoch: [0][511/1736]": a second or third epoch, or hundreds of batches of one. */
static bool counts_epochs(const char *begin, const char *end)
{
	for (const char *p = begin; (p = oom_text_find(p, end, "poch")); p++) {
		const char *q = p + strlen("poch"), *inner;
		const bool bracket = oom_text_find(q, q + 3 < end ? q + 3 : end, "[") != NULL;

		/* "max_epoch: 100", "--epoch 100" are options */
		if (p - 1 > begin && strchr("_-", p[-2]))
			continue;
		while (q < end && strchr(": [", *q))
			q++;
		inner = bracket ? oom_text_find(q, oom_line_end(q, end), "][") : NULL;
		if (inner && strtod(inner + 2, NULL) >= 200)
			return true;
		if (!bracket && q < end && isdigit((unsigned char)*q) && strtod(q, NULL) >= 2 && prints_loss(q, oom_line_end(q, end)))
			return true;
	}
	return false;
}

/* " 3237/16700 [3:34:12<": a bar of many steps that is past its second; what is read or made ready has other words before it. */
static bool past_second_step(const char *begin, const char *end)
{
	for (const char *p = begin; (p = oom_text_find(p, end, " [")); p++) {
		const char *const line = oom_line_begin(begin, p), *slash = p, *from;

		while (slash > line && slash[-1] >= '0' && slash[-1] <= '9')
			slash--;
		from = slash > line && slash[-1] == '/' ? slash - 1 : NULL;
		while (from && from > line && from[-1] >= '0' && from[-1] <= '9')
			from--;
		if (from && strtod(from, NULL) >= 2 && strtod(slash, NULL) >= 50 && !oom_text_find(line, p, "oad") && !oom_text_find(line, p, "Map") && !oom_text_find(line, p, "oken"))
			return true;
	}
	return counts_steps(begin, end) || counts_epochs(begin, end);
}

/* A progress bar that was cut short, on the message's own line or right above it. */
bool oom_phase_by_bar(struct oom_crash *c, const char *begin, const char *line, const char *stop)
{
	const char *const above = line > begin ? oom_line_begin(begin, line - 1) : line;

	return (running_bar(line, stop) && oom_phase_by_word(c, oom_phase_of_words, line, stop, 0.65)) ||
	       (above < line && running_bar(above, line) && oom_phase_by_word(c, oom_phase_of_words, above, line, 0.65));
}

void oom_phase_of_weights(struct oom_crash *c, const char *begin, const char *end)
{
	c->stepped = c->trains && (past_second_step(begin, end) || oom_people_stepped(begin, end));
	/* what quantises has loaded its model */
	if ((c->phase == OOM_CRASH_UNKNOWN || (c->phase == OOM_CRASH_LOAD && c->phase_confidence <= 0.65)) && !c->traceback && !strstr(c->phase_evidence, "from_pretrained") &&
	    oom_dialect_is(c, OOM_DIALECT_QUANTISES) &&
	    (oom_text_find(begin, end, "uantizing") || oom_text_find(begin, end, "uantization") || oom_text_find(begin, end, "alibration")))
		oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.5, "a model is being quantised");
	if (c->phase == OOM_CRASH_INFERENCE && c->phase_confidence <= 0.6 && !c->traceback && (c->language || !c->parameters || c->trains) && oom_weights_too_large(c, OOM_WORK_INFERENCE))
		oom_phase_settle(c, OOM_CRASH_LOAD, 0.6, "weights that are larger than the card");
}
