/* Names of functions: of the frames of a traceback, of what XLA compiled, of Ray's workers. What a name says is
 * identifier.c's. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool name_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '_';
}

static const char *name_end(const char *p, const char *end)
{
	while (p < end && (name_char(*p) || *p == '.'))
		p++;
	return p;
}

static bool by_name(struct oom_crash *c, const char *name, const char *stop, double confidence)
{
	const enum oom_crash_phase phase = oom_identifier_phase(name, stop);
	char why[80];

	if (phase == OOM_CRASH_UNKNOWN)
		return false;
	snprintf(why, sizeof(why), "the function \"%.*s\"",
		 (int)(stop - name < 48 ? stop - name : 48), name);
	return oom_phase_settle(c, phase, confidence, why);
}

/* XLA names what it compiled after the function: "executable_name='jit_train_step'",
 * "jit(train_step)" */
bool oom_phase_by_executable(struct oom_crash *c, const char *line, const char *end)
{
	static const char *const marks[] = {"executable_name='", "jit(", "pjit(", "pmap(", "jit_"};

	if (!oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE))
		return false;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *p = oom_text_find(line, end, marks[i]);

		if (p && by_name(c, p + strlen(marks[i]), name_end(p + strlen(marks[i]), end), 0.8))
			return true;
	}
	return false;
}

/* Behind the number of Rich's frames: "x.py:12 in NAME". */
static const char *numbered(const char *line, const char *stop)
{
	const char *p = oom_text_find(line, stop, ".py:");

	if (!p)
		return NULL;
	for (p += 4; p < stop && *p >= '0' && *p <= '9';)
		p++;
	return stop - p > 4 && !memcmp(p, " in ", 4) && name_char(p[4]) ? p + 4 : NULL;
}

/* What a frame's function is called: "..., in NAME", "x.py in NAME(", "a.py:12 NAME",
 * "Class.method". */
static const char *function_of(const char *line, const char *stop)
{
	static const char *const marks[] = {", in ", ".py in ", "-> ", "::"};
	const char *const name = numbered(line, stop);

	if (name)
		return name;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *p = oom_text_find(line, stop, marks[i]);

		if (p && p + strlen(marks[i]) < stop && name_char(p[strlen(marks[i])]))
			return p + strlen(marks[i]);
	}
	return NULL;
}

/* What an indented line of code calls first: "    pool = make.initialize_allocator(": the innermost frame of all,
 * where the one it stands for is no Python. */
static const char *called_in(const char *line, const char *stop)
{
	const char *open = memchr(line, '(', (size_t)(stop - line)), *p = open;

	if (!open || stop - line < 4 || memcmp(line, "    ", 4) || oom_text_find(line, open, "^"))
		return NULL;
	while (p > line && (name_char(p[-1]) || p[-1] == '.'))
		p--;
	return p < open && letter(*p) ? p : NULL;
}

/* The name of a frame's Python file, behind the last slash; NULL where there is none. */
static const char *file_of(const char *line, const char *stop)
{
	const char *const dot = oom_text_find(line, stop, ".py"), *p = dot;

	while (p && p > line && p[-1] != '/' && p[-1] != '\\')
		p--;
	return p && p > line ? p : NULL;
}

/* Frames from the innermost outwards: the first whose name says more than that it computes. A
 * frame's file speaks where its function does not: ".../_instantiate.py", ".../pin_memory.py". */
bool oom_phase_by_functions(struct oom_crash *c, const char *begin, const char *at)
{
	struct oom_crash leaf = {0};
	const char *from = oom_line_begin(begin, at);
	const struct oom_phase_rule *const driver = oom_phase_meets(oom_phase_of_driver, begin, at);
	/* a head of a model that predicts, inside a training's loop, does not infer */
	const bool in_loop = driver && driver->phase == OOM_CRASH_TRAIN_STEP;
	bool innermost = true;

	for (int n = 0; from > begin && n < 120; n++) {
		const char *const stop = from - 1;
		const char *name;

		from = oom_line_begin(begin, stop);
		/* a compiled library's own, which says nothing of the program */
		if (oom_text_find(from, stop, ".pyx\""))
			continue;
		name = function_of(from, stop);
		if (!name && innermost && (name = called_in(from, stop)) != NULL) {
			innermost = false;
			if (by_name(c, name, name_end(name, stop), 0.65) && c->phase != OOM_CRASH_FORWARD &&
			    c->phase != OOM_CRASH_TRAIN_STEP && !(c->phase == OOM_CRASH_INFERENCE && in_loop))
				return true;
			continue;
		}
		if (!name)
			continue;
		innermost = false;
		/* what is drawn from a buffer of samples is data */
		if (by_name(c, name, name_end(name, stop), 0.7) && c->phase == OOM_CRASH_INFERENCE && oom_text_find(from, stop, "buffer"))
			return oom_phase_settle(c, OOM_CRASH_DATA, 0.7, "samples of a buffer");
		if (!by_name(c, name, name_end(name, stop), 0.7)) {
			const char *const file = file_of(from, stop);

			if (!file || !by_name(c, file, oom_text_find(file, stop, ".py"), 0.6))
				continue;
			/* "data/loader.py" loads no model */
			if (c->phase == OOM_CRASH_LOAD && oom_text_find(from, file, "data"))
				c->phase = OOM_CRASH_DATA;
		}
		if (c->phase != OOM_CRASH_FORWARD)
			/* a forward pass inside a training step is the forward pass */
			return c->phase == OOM_CRASH_TRAIN_STEP && leaf.phase ?
				       oom_phase_settle(c, leaf.phase, 0.7, leaf.phase_evidence) :
				       true;
		if (!leaf.phase)
			leaf = *c;
	}
	if (leaf.phase)
		return oom_phase_settle(c, leaf.phase, 0.7, leaf.phase_evidence);
	oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
	return false;
}

/* A frame whose function's name has a word that begins with verb and speaks for that phase. */
const char *oom_frame_of_verb(const char *from, const char *to, const char *verb, enum oom_crash_phase phase)
{
	for (const char *p = from; p < to;) {
		const char *const stop = oom_line_end(p, to), *const name = function_of(p, stop);
		const char *const end = name ? name_end(name, stop) : NULL;

		if (name && oom_identifier_has(name, end, verb) && oom_identifier_phase(name, end) == phase)
			return name;
		p = stop < to ? stop + 1 : stop;
	}
	return NULL;
}

bool oom_phase_by_deeper(struct oom_crash *c, const char *begin, const char *at)
{
	const char *from = oom_line_begin(begin, at);

	for (int n = 0; from > begin && n < 120; n++) {
		const char *const stop = from - 1;
		const char *name;
		enum oom_crash_phase phase;

		from = oom_line_begin(begin, stop);
		name = function_of(from, stop);
		phase = name ? oom_identifier_phase(name, name_end(name, stop)) : OOM_CRASH_UNKNOWN;
		if (phase == OOM_CRASH_EVAL || phase == OOM_CRASH_DATA || phase == OOM_CRASH_SAVE)
			return by_name(c, name, name_end(name, stop), 0.8);
		if (phase == OOM_CRASH_TRAIN_STEP)
			break;
	}
	return false;
}

/* "WorkerDict.actor_rollout_ref_update_actor": verl puts the roles of a worker before what it does */
static const char *method_of(const char *name, const char *stop)
{
	static const char *const roles[] = {"actor_rollout_ref_", "actor_rollout_"};

	for (const char *p = name; p < stop; p++)
		if (*p == '.')
			name = p + 1;
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if ((size_t)(stop - name) > strlen(roles[i]) && !memcmp(name, roles[i], strlen(roles[i])))
			return name + strlen(roles[i]);
	return name;
}

/* Ray names the method of the worker: in its table of the largest, "260.26 ray::WorkerDict.save_checkpoint", and before
 * the traceback that it passes on, "ray::FSDPPolicyWorkerBase.init_model() (pid=1, ...)". */
bool oom_phase_by_workers(struct oom_crash *c, const char *at, const char *end)
{
	const bool table = oom_format_is(c, OOM_FORMAT_LISTS_WORKERS);

	for (const char *p = at; (p = oom_text_find(p, end, "ray::"));) {
		const char *const stop = name_end(p += 5, end), *const name = method_of(p, stop);

		if (table && by_name(c, p, stop, 0.75))
			return true;
		if (!table && stop < end && *stop == '(' && name > p && by_name(c, name, stop, 0.75))
			return true;
	}
	return false;
}
