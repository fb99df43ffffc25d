/* Where in the run a crash happened.
 *
 * Five tiers, from what a text says to what it only suggests: messages that belong to one phase;
 * the frames of the traceback the message ends; words of the log around it (progress bars, script
 * names); and, where a bare message was pasted, a guess from its numbers, which is called one.
 *
 * A frame rule is a word and the phase it speaks for; a table is ordered by how much a word says.
 * An optimizer frame stands inside a training step, a recomputed forward inside a backward, a
 * forward inside an evaluation: the outer, rarer word wins over the common one. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

static const char *const names[OOM_CRASH_PHASES] = {
	"unknown", "forward", "backward", "optimizer", "train_step", "eval", "inference", "load", "to_device", "init", "compile",
	"data", "collective", "test", "save"};

const char *oom_crash_phase_str(enum oom_crash_phase p)
{
	return names[p];
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct oom_phase_rule *meets(const struct oom_phase_rule *rule, const char *from,
					  const char *to)
{
	for (; rule->word; rule++)
		if (oom_text_find(from, to, rule->word))
			return rule;
	return NULL;
}

static bool by_word(struct oom_crash *c, const struct oom_phase_rule *rules, const char *from,
		    const char *to, double confidence)
{
	const struct oom_phase_rule *rule = meets(rules, from, to);
	char why[80];

	if (!rule)
		return false;
	if (rule->phase == OOM_CRASH_UNKNOWN)
		return oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
	snprintf(why, sizeof(why), "\"%s\"", rule->word);
	return oom_phase_settle(c, rule->phase, confidence, why);
}

/* ---- scripts ---- */

static bool script_char(char ch)
{
	return ch != ' ' && ch != '\n' && ch != '"' && ch != '\'' && ch != '(' && ch != ':' &&
	       ch != '\t';
}

/* A name ending in .py, .sh, .out or .log: its own letters, and its folder's. */
static bool by_script(struct oom_crash *c, const char *begin, const char *end)
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
			if (by_word(c, oom_phase_of_script, from, p + strlen(ends[i]), 0.6))
				return true;
		}
	return false;
}

/* The script that ran is one of training, by its name. */
static bool script_trains(const struct oom_crash *c, const char *begin, const char *end)
{
	struct oom_crash said = *c;

	return by_script(&said, begin, end) && said.phase == OOM_CRASH_TRAIN_STEP;
}

/* ---- the traceback ---- */

/* A traceback with nothing but the program's own top level: the failing statement made or moved
 * a tensor itself. XLA hides its frames, and such a statement runs a whole program. */
static bool top_level(const struct oom_crash *c, const struct oom_span *s)
{
	size_t frames = 0;

	if (oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE))
		return false;
	for (const char *p = s->from; (p = oom_text_find(p, s->to, "File \"")); p++) {
		if (!oom_text_find(p, oom_line_end(p, s->to), "in <module>"))
			return false;
		frames++;
	}
	return frames == 1 && oom_text_find(s->from, s->to, "Traceback (most recent call last)");
}

/* The function of the innermost frame, where frames are Python's own. */
static bool innermost_is(const struct oom_span *s, const char *name)
{
	const char *p = oom_text_last(s->from, s->to, "File \""), *stop = p ? oom_line_end(p, s->to) : NULL;

	p = p ? oom_text_find(p, stop, ", in ") : NULL;
	return p && stop - p >= 5 + (ptrdiff_t)strlen(name) && !memcmp(p + 5, name, strlen(name));
}

/* Training keeps the outputs of all layers for the backward pass, and gradients besides: a model
 * inside its forward pass that holds less than half a GiB, on a card whose rest others hold, keeps
 * none.  A guess of that half GiB: the small image models people train on such cards hold more. */
static bool keeps_nothing(const struct oom_crash *c)
{
	const uint64_t held = c->bytes[OOM_CRASH_RESERVED_TOTAL], total = c->bytes[OOM_CRASH_TOTAL];

	return c->known[OOM_CRASH_RESERVED_TOTAL] && c->known[OOM_CRASH_TOTAL] && held &&
	       held < (uint64_t)512 << 20 && held < total / 4;
}

/* A forward pass inside it is training's, whatever the library of the model also does. */
static bool in_training(const struct oom_span *s)
{
	const struct oom_phase_rule *const rule = meets(oom_phase_of_driver, s->from, s->to);

	return rule && (rule->phase == OOM_CRASH_TRAIN_STEP || rule->phase == OOM_CRASH_FORWARD) &&
	       meets(oom_phase_of_forward, s->from, s->to);
}

/* A program that somebody shows, not the frames of one: its lines are what it does in turn. */
static bool is_script(const struct oom_crash *c, const struct oom_span *s)
{
	return !c->traceback && (oom_text_find(s->from, s->to, "\nimport ") || oom_text_find(s->from, s->to, "\nfrom ") ||
				 !strncmp(s->from, "import ", 7) || !strncmp(s->from, "from ", 5));
}

static bool by_frames(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	char buf[32 << 10];
	struct oom_span s;

	if (!oom_traceback(begin, at, end, &s) || is_script(c, &s))
		return false;
	oom_traceback_inside_closure(&s);
	s = oom_traceback_executed(&s, buf, sizeof(buf));
	if ((!oom_text_find(s.from, s.to, "torchinductor_") &&
	     by_word(c, oom_phase_of_compiling, s.from, s.to, 0.9)) ||
	    by_word(c, oom_phase_of_frame, s.from, s.to, 0.9))
		return true;
	if (innermost_is(&s, "__init__") || innermost_is(&s, "init\n") || innermost_is(&s, "reset_parameters"))
		/* a program that only infers loads the model that it makes */
		return oom_phase_settle(c, oom_program_of(c)->activity == OOM_ACTIVITY_INFERS ? OOM_CRASH_LOAD : OOM_CRASH_INIT, 0.7,
					"the innermost frame makes a module");
	if (!meets(oom_phase_of_forward, s.from, s.to) &&
	    by_word(c, oom_phase_of_placing, s.from, s.to, 0.8))
		return true;
	if (keeps_nothing(c) && !script_trains(c, begin, end) && meets(oom_phase_of_forward, s.from, s.to) &&
	    !meets(oom_phase_of_driver, s.from, s.to))
		return oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.55,
			      "a forward pass that holds too little to be training");
	if (!in_training(&s) && by_word(c, oom_phase_of_inferring, s.from, s.to, 0.7))
		return true;
	if (by_word(c, oom_phase_of_forward, s.from, s.to, 0.85)) {
		struct oom_crash outer = *c;

		/* an evaluation in the middle of a training */
		if (in_training(&s) && oom_phase_by_deeper(c, s.from, s.to))
			return true;

		/* named after what the forward pass was part of */
		if (!in_training(&s) && oom_phase_by_functions(&outer, s.from, s.to) &&
		    (outer.phase == OOM_CRASH_INFERENCE || outer.phase == OOM_CRASH_EVAL ||
		     outer.phase == OOM_CRASH_LOAD || outer.phase == OOM_CRASH_INIT))
			*c = outer;
		return true;
	}
	/* inside a training's loop, what stands deeper than the loop and is no step */
	if (oom_phase_by_functions(c, s.from, s.to) && c->phase == OOM_CRASH_INIT)
		return true;
	if (by_word(c, oom_phase_of_driver, s.from, s.to, 0.8) || oom_phase_by_functions(c, s.from, s.to))
		return true;
	return top_level(c, &s) &&
	       oom_phase_settle(c, OOM_CRASH_TO_DEVICE, 0.6,
		      "a single frame at top level: the statement itself makes the tensor");
}

/* Frames of Python, or of IPython's and Rich's boxes: "File "x.py", line 1", "x.py in f(",
 * "x.py:1, in f". */
static bool has_frames(const char *begin, const char *end)
{
	/* the last: a path that a narrow page broke */
	if (oom_text_find(begin, end, "File \"") || oom_text_find(begin, end, ".py in ") ||
	    oom_text_find(begin, end, "\", line "))
		return true;
	for (const char *p = begin; (p = oom_text_find(p, end, ".py:")); p++) {
		const char *q = p + 4;

		while (q < end && *q >= '0' && *q <= '9')
			q++;
		q += q < end && *q == ',';
		if (q > p + 4 && end - q > 4 && !memcmp(q, " in ", 4))
			return true;
	}
	return false;
}

/* Kill lines end no traceback of their own: the frames before them are somebody else's. */
static bool ends_traceback(const struct oom_crash *c)
{
	return oom_format_is(c, OOM_FORMAT_RAISED) || !oom_runtime_is(c, OOM_RUNTIME_HOST) ||
	       oom_format_is(c, OOM_FORMAT_ONE_ARRAY);
}

/* TensorFlow's node is on the line after the message, in double brackets; others that follow only
 * receive its result. */
static bool by_node(struct oom_crash *c, const char *from, const char *end)
{
	const char *node = oom_runtime_is(c, OOM_RUNTIME_GRAPH) ? oom_text_find(from, end, "[[") : NULL,
		   *stop = node ? oom_text_find(node, end, "]]") : NULL;

	/* a cluster compiled as one is of no part */
	return stop && !oom_text_find(node, stop, "xla_run") &&
	       by_word(c, oom_phase_of_line, node, stop + 2, 0.85);
}

/* Words of a log's lines, from the message's own line backwards: what a run said last is what it
 * was doing.  Where none speaks, those behind it, as of progress bars that are printed late. */
static bool by_nearest(struct oom_crash *c, const char *begin, const char *at, const char *end)
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
		if (!over && (by_word(c, oom_phase_of_words, from, to, 0.6) ||
			      (verb != OOM_CRASH_UNKNOWN && oom_phase_settle(c, verb, 0.6, "what the log says it is doing"))) &&
		    !(done & 1u << c->phase) && !(c->phase == OOM_CRASH_LOAD && oom_text_find(from, to, "100%")))
			return true;
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
		to = from > begin ? from - 1 : begin;
	}
	return (steps && oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.6, "a program that infers counts steps")) ||
	       by_word(c, oom_phase_of_words, stop, end, 0.6);
}

/* Where several layers report one refusal, the function that asked stands on a line next to it. */
static bool by_requester(struct oom_crash *c, const char *begin, const char *line, const char *end)
{
	const char *const stop = end - line > 700 ? line + 700 : end;

	return oom_runtime_is(c, OOM_RUNTIME_LAYERED) &&
	       (by_word(c, oom_phase_of_requester, line, stop, 0.85) ||
		(line > begin && by_word(c, oom_phase_of_requester, oom_line_begin(begin, line - 1), line, 0.8)));
}

/* A forward pass is one of training unless the log says what it is part of. */
static void around_forward(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	struct oom_crash said = *c;

	if ((oom_phase_by_workers(&said, at, end) || by_nearest(&said, begin, at, end)) &&
	    (said.phase == OOM_CRASH_INFERENCE || said.phase == OOM_CRASH_EVAL))
		oom_phase_settle(c, said.phase, said.phase_confidence, said.phase_evidence);
}

/* On the message's line, before it: "generation error: ", "Evaluation failed: ", what failed by its name. */
static bool by_failure(struct oom_crash *c, const char *line, const char *at)
{
	static const char *const ends[] = {" error", " failed", " failure", " crashed"};
	char why[80];

	for (size_t i = 0; i < COUNT(ends); i++) {
		const char *const stop = oom_text_last(line, at, ends[i]), *p = stop;
		enum oom_crash_phase phase;

		while (p && p > line && ((p[-1] >= 'a' && p[-1] <= 'z') || (p[-1] >= 'A' && p[-1] <= 'Z') || p[-1] == '_'))
			p--;
		phase = p && stop - p > 3 ? oom_identifier_phase(p, stop) : OOM_CRASH_UNKNOWN;
		if (phase == OOM_CRASH_UNKNOWN)
			continue;
		snprintf(why, sizeof(why), "\"%.*s\"", (int)(stop - p < 40 ? stop - p : 40), p);
		return oom_phase_settle(c, phase, 0.7, why);
	}
	return false;
}

static void decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *line = at, *stop = oom_line_end(at, end);

	c->traceback = has_frames(begin, end);
	while (line > begin && line[-1] != '\n')
		line--;
	for (const struct oom_phase_rule *r = oom_phase_of_format; r->word; r++)
		if (!strncmp(c->format, r->word, strlen(r->word))) {
			oom_phase_settle(c, r->phase, 0.9, "the message itself");
			return;
		}
	/* JAX names the executable at the message's end, which a page may have broken */
	if (oom_runtime_is(c, OOM_RUNTIME_WORDY))
		stop = end - stop > 200 ? stop + 200 : end;
	if (by_word(c, oom_phase_of_line, line, stop, 0.85) || by_requester(c, begin, line, end) || by_node(c, stop, end) ||
	    (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && !oom_text_find(line, end, "xla_run}}") &&
	     by_word(c, oom_phase_of_line, line, end, 0.8)))
		return;
	if (ends_traceback(c) && by_frames(c, begin, at, end)) {
		if (c->phase == OOM_CRASH_FORWARD)
			around_forward(c, begin, at, end);
		return;
	}
	if (by_failure(c, line, at))
		return;
	if (oom_phase_by_executable(c, oom_format_is(c, OOM_FORMAT_LIST) ? begin : line, end) || oom_phase_by_functions(c, begin, at) || oom_phase_by_workers(c, at, end) ||
	    by_nearest(c, begin, at, end) || by_script(c, begin, end) ||
	    by_word(c, oom_phase_of_prose, begin, oom_format_is(c, OOM_FORMAT_ADVISES) ? line : end, 0.5))
		return;
}

/* What else in the text speaks of a training: a loop around the forward pass, a loss behind it, a progress bar, the
 * name of the script. */
static bool trains(const struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const char *const losses[] = {"cross_entropy", "criterion(", "loss_fn", "compute_loss", "nn/modules/loss.py",
					     "/losses/", "/loss.py", "loss_func", "checkpoint.py"};
	char buf[32 << 10];
	struct oom_span s;
	struct oom_crash said = *c;

	if (oom_program_of(c)->activity == OOM_ACTIVITY_TRAINS)
		return true;
	if (ends_traceback(c) && oom_traceback(begin, at, end, &s)) {
		s = oom_traceback_executed(&s, buf, sizeof(buf));
		if (in_training(&s) || meets(oom_phase_of_driver, s.from, s.to))
			return true;
		for (size_t i = 0; i < COUNT(losses); i++)
			if (oom_text_find(s.from, s.to, losses[i]))
				return true;
	}
	if (by_nearest(&said, begin, at, end) && said.phase == OOM_CRASH_TRAIN_STEP)
		return true;
	return script_trains(c, begin, end);
}

/* A forward pass inside a program that trains nothing is inference; a whole model moved by one that
 * serves is its loading. */
static void of_program(struct oom_crash *c)
{
	const enum oom_activity does = oom_program_of(c)->activity;

	if (does == OOM_ACTIVITY_TESTS && *c->program && c->phase == OOM_CRASH_UNKNOWN)
		oom_phase_settle(c, OOM_CRASH_TEST, 0.6, "a test run");
	if (does != OOM_ACTIVITY_INFERS && does != OOM_ACTIVITY_SERVES)
		return;
	if (c->phase == OOM_CRASH_FORWARD)
		oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.85, "a forward pass of a program that only infers");
	else if (c->phase == OOM_CRASH_TO_DEVICE)
		oom_phase_settle(c, OOM_CRASH_LOAD, 0.75, "a program that serves moves its model");
	else if (c->phase == OOM_CRASH_TRAIN_STEP)
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
}

void oom_decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	decode_phase(c, begin, at, end);
	of_program(c);
	c->trains = c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_OPTIMIZER ||
		    c->phase == OOM_CRASH_TRAIN_STEP || trains(c, begin, at, end);
}
