/* One figure of a training's log: what its name is about, its number, and where that goes.
 *
 * What a name is about is in its words: "step: 12", "'loss': 2.1", "iteration 12/ 1000", "memory: 45.2GiB",
 * "MA 11.76 GB". */
#include "run_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static char lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

bool oom_run_name_char(char c)
{
	return (lower(c) >= 'a' && lower(c) <= 'z') || c == '_' || c == '/' || c == '.';
}

bool oom_run_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool ends_in(const char *name, size_t n, const char *word)
{
	const size_t w = strlen(word);

	if (n < w)
		return false;
	for (size_t i = 0; i < w; i++)
		if (lower(name[n - w + i]) != word[i])
			return false;
	/* the whole name, or its last word */
	return n == w || name[n - w - 1] == '_' || name[n - w - 1] == '/' || name[n - w - 1] == '.';
}

static bool holds(const char *name, size_t n, const char *word)
{
	const size_t w = strlen(word);

	for (size_t i = 0; i + w <= n; i++) {
		size_t k = 0;

		while (k < w && lower(name[i + k]) == word[k])
			k++;
		if (k == w)
			return true;
	}
	return false;
}

/* "include/alloc.h:103": where a line was printed. */
static bool of_file(const char *name, size_t n)
{
	static const char *const ends[] = {".h", ".c", ".cc", ".cpp", ".hpp", ".cu", ".py", ".rs", ".go", ".ts", ".mm"};
	const size_t back = n < 4 ? n : 4;

	if (!memchr(name + n - back, '.', back))
		return false;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && !memcmp(name + n - strlen(ends[i]), ends[i], strlen(ends[i])))
			return true;
	return false;
}

enum oom_run_about oom_run_about(const char *name, size_t n)
{
	static const char *const steps[] = {"step", "iter", "iteration", "steps"};
	static const char *const tokens[] = {"seq_len", "seqlen", "seq_length", "sequence_length", "max_length"};

	if (n < 2 || n > 40 || of_file(name, n))
		return OOM_RUN_NOTHING;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (ends_in(name, n, steps[i]) && !holds(name, n, "max") && !holds(name, n, "best") && !holds(name, n, "total") && !holds(name, n, "save") &&
		    !holds(name, n, "warmup") && !holds(name, n, "eval") && !holds(name, n, "logging") && !holds(name, n, "per_") && !holds(name, n,
		    "inference") && !holds(name, n, "accumulation"))
			return OOM_RUN_STEP;
	if (ends_in(name, n, "loss"))
		return OOM_RUN_LOSS;
	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		if (ends_in(name, n, tokens[i]) && !holds(name, n, "max_s"))
			return OOM_RUN_TOKENS;
	if (n == 2 && name[0] == 'M' && name[1] == 'A')
		return OOM_RUN_MEMORY;
	/* a peak never falls: what is held now is followed where both are printed */
	if ((holds(name, n, "mem") || holds(name, n, "alloc") || holds(name, n, "reserved") ||
	     holds(name, n, "vram")) &&
	    !holds(name, n, "total") && !holds(name, n, "free") && !holds(name, n, "limit"))
		return OOM_RUN_MEMORY;
	return OOM_RUN_NOTHING;
}

/* ---- one figure ---- */

void oom_run_put_step(struct oom_run_reader *r, int64_t step, int64_t of)
{
	if (step < 0 || step > (int64_t)1 << 40)
		return;
	if (r->run.first_step < 0)
		r->run.first_step = step;
	if (step != r->run.last_step && r->run.resumed)
		r->run.steps_since_resume++;
	r->run.last_step = step;
	r->stepped = true;
	r->run.in_evaluation = false;
	if (of > 0)
		r->run.of_steps = of;
}

void oom_run_put_loss(struct oom_run_reader *r, double loss)
{
	if (!r->run.has_loss)
		r->run.first_loss = loss;
	r->run.has_loss = true;
	r->run.last_loss = loss;
}

/* "allocated_gib", "mem_mb": the unit where numbers stand alone; 0: the name has none.  As in messages, 1024
 * times 1024, which is what training scripts divide by. */
static double unit_of(const char *name, size_t n)
{
	static const struct {
		const char *word;
		double bytes;
	} units[] = {{"bytes", 1}, {"kib", 1024.0}, {"kb", 1024.0}, {"mib", 1048576.0}, {"mb", 1048576.0},
		     {"gib", 1073741824.0}, {"gb", 1073741824.0}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (ends_in(name, n, units[i].word))
			return units[i].bytes;
	return 0;
}

void oom_run_put_memory(struct oom_run_reader *r, const char *name, size_t n, double value, bool bytes)
{
	struct oom_crash_run *const run = &r->run;
	const double unit = bytes ? 0 : unit_of(name, n);
	double x, y;

	if (unit > 0) {
		value *= unit;
		bytes = true;
	}
	/* longer names are cut: about() takes forty letters */
	n = n < sizeof(run->memory_key) ? n : sizeof(run->memory_key) - 1;
	if (!(value > 0) || value > 1e18)
		return;
	if (!run->memory_samples) {
		memcpy(run->memory_key, name, n);
		run->memory_key[n] = 0;
		run->memory_in_bytes = bytes;
		run->memory_first = value;
		r->y0 = value;
		r->x0 = run->last_step >= 0 ? (double)run->last_step : (double)r->lines;
	} else if (strlen(run->memory_key) != n || memcmp(run->memory_key, name, n) ||
		   run->memory_in_bytes != bytes) {
		return;
	}
	run->memory_samples++;
	run->memory_last = value;
	x = (run->last_step >= 0 ? (double)run->last_step : (double)r->lines) - r->x0;
	y = value - r->y0;
	r->n++;
	r->x += x;
	r->y += y;
	r->xx += x * x;
	r->yy += y * y;
	r->xy += x * y;
}

/* A number with or without a unit of memory. */
const char *oom_run_number(const char *p, const char *end, double *value, bool *bytes)
{
	char text[32];
	const char *after;
	uint64_t whole;
	size_t n = 0;

	*bytes = oom_number_at(p, end, false, &whole, &after);
	if (*bytes) {
		*value = (double)whole;
		return after;
	}
	while (p + n < end && n + 1 < sizeof(text) &&
	       (oom_run_digit(p[n]) || p[n] == '.' || (n && (p[n] == 'e' || p[n] == 'E')) ||
		(p[n] == '-' && n && lower(p[n - 1]) == 'e') || (p[n] == '+' && n))) {
		text[n] = p[n];
		n++;
	}
	text[n] = 0;
	if (!n || !oom_run_digit(text[0]))
		return NULL;
	*value = strtod(text, NULL);
	return p + n;
}

const char *oom_run_value_of(const char *p, const char *end)
{
	for (int n = 0; p < end && n < 16; n++, p++) {
		if (oom_run_digit(*p))
			return p;
		if (*p != ' ' && *p != ':' && *p != '=' && *p != '"' && *p != '\'' && *p != '|')
			return NULL;
	}
	return p < end && oom_run_digit(*p) ? p : NULL;
}

void oom_run_figure(struct oom_run_reader *r, const char *name, size_t n, const char *p, const char *end)
{
	const enum oom_run_about what = oom_run_about(name, n);
	const char *after;
	double v;
	bool bytes;

	/* "the allocated memory 9.2 GiB" is a sentence, "memory: 9.2 GiB" a figure, and so is "mem 9.2 GiB" beside a step */
	if (what == OOM_RUN_MEMORY && n > 2 && !r->stepped && !memchr(p, ':', end - p > 3 ? 3 : (size_t)(end - p)) &&
	    !memchr(p, '=', end - p > 3 ? 3 : (size_t)(end - p)))
		return;
	if (!what || !(p = oom_run_value_of(p, end)) || !(after = oom_run_number(p, end, &v, &bytes)))
		return;
	/* "memory: 500Mi": a quantity of a Kubernetes manifest, which asks and holds nothing */
	if (what == OOM_RUN_MEMORY && !bytes && end - after > 1 && strchr("KMGT", *after) && after[1] == 'i')
		return;
	if (what == OOM_RUN_STEP && !bytes && v < 1e12) {
		int64_t of = 0;

		while (after < end && *after == ' ')
			after++;
		if (after + 1 < end && *after == '/')
			of = strtoll(after + 1 + (after[1] == ' '), NULL, 10);
		oom_run_put_step(r, (int64_t)v, of);
	} else if (what == OOM_RUN_LOSS && !bytes) {
		oom_run_put_loss(r, v);
	} else if (what == OOM_RUN_MEMORY) {
		oom_run_put_memory(r, name, n, v, bytes);
	} else if (what == OOM_RUN_TOKENS && v < 1e9 && (int64_t)v > r->run.longest && r->run.last_step >= 0) {
		/* before the first step it is a limit that was set, not a batch */
		r->run.longest_before = r->run.longest;
		r->run.longest = (int64_t)v;
		r->run.longest_step = r->run.last_step;
	}
}

