/* Steps, losses and memory in the lines of a training's log, whoever printed them: the Trainer's
 * dictionaries, progress bars, Megatron's and DeepSpeed's reports, torchtitan's, key=value, JSON lines
 * and CSV.
 *
 * A line is a row of names and numbers: "step: 12", "'loss': 2.1", "iteration 12/ 1000", "memory: 45.2GiB",
 * "MA 11.76 GB".  What a name is about is in its words. */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum about { NOTHING, STEP, LOSS, MEMORY, TOKENS };
enum { MOST_COLUMNS = 64, LONG_LINE = 4000 };

static char lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

static bool name_char(char c)
{
	return (lower(c) >= 'a' && lower(c) <= 'z') || c == '_' || c == '/' || c == '.';
}

static bool digit(char c)
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

static enum about about(const char *name, size_t n)
{
	static const char *const steps[] = {"step", "iter", "iteration", "steps"};
	static const char *const tokens[] = {"seq_len", "seqlen", "seq_length", "sequence_length", "max_length"};

	if (n < 2 || n > 40 || of_file(name, n))
		return NOTHING;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (ends_in(name, n, steps[i]) && !holds(name, n, "max") && !holds(name, n, "per_") && !holds(name, n, "inference") && !holds(name, n, "accumulation"))
			return STEP;
	if (ends_in(name, n, "loss"))
		return LOSS;
	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		if (ends_in(name, n, tokens[i]) && !holds(name, n, "max_s"))
			return TOKENS;
	if (n == 2 && name[0] == 'M' && name[1] == 'A')
		return MEMORY;
	/* a peak never falls: what is held now is followed where both are printed */
	if ((holds(name, n, "mem") || holds(name, n, "alloc") || holds(name, n, "reserved") ||
	     holds(name, n, "vram")) &&
	    !holds(name, n, "total") && !holds(name, n, "free") && !holds(name, n, "limit"))
		return MEMORY;
	return NOTHING;
}

/* ---- one figure ---- */

static void put_step(struct oom_run_reader *r, int64_t step, int64_t of)
{
	if (step < 0 || step > (int64_t)1 << 40)
		return;
	if (r->run.first_step < 0)
		r->run.first_step = step;
	if (step != r->run.last_step && r->run.resumed)
		r->run.steps_since_resume++;
	r->run.last_step = step;
	if (of > 0)
		r->run.of_steps = of;
}

static void put_loss(struct oom_run_reader *r, double loss)
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

static void put_memory(struct oom_run_reader *r, const char *name, size_t n, double value, bool bytes)
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
static const char *number(const char *p, const char *end, double *value, bool *bytes)
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
	       (digit(p[n]) || p[n] == '.' || (n && (p[n] == 'e' || p[n] == 'E')) ||
		(p[n] == '-' && n && lower(p[n - 1]) == 'e') || (p[n] == '+' && n))) {
		text[n] = p[n];
		n++;
	}
	text[n] = 0;
	if (!n || !digit(text[0]))
		return NULL;
	*value = strtod(text, NULL);
	return p + n;
}

/* ---- one line ---- */

/* Behind a name: "': 2.1", " = 3", ": 4", " 5/ 100" */
static const char *value_of(const char *p, const char *end)
{
	for (int n = 0; p < end && n < 16; n++, p++) {
		if (digit(*p))
			return p;
		if (*p != ' ' && *p != ':' && *p != '=' && *p != '"' && *p != '\'' && *p != '|')
			return NULL;
	}
	return p < end && digit(*p) ? p : NULL;
}

static void figure(struct oom_run_reader *r, const char *name, size_t n, const char *p, const char *end)
{
	const enum about what = about(name, n);
	const char *after;
	double v;
	bool bytes;

	/* "the allocated memory 9.2 GiB" is a sentence, "memory: 9.2 GiB" a figure */
	if (what == MEMORY && n > 2 && !memchr(p, ':', end - p > 3 ? 3 : (size_t)(end - p)) &&
	    !memchr(p, '=', end - p > 3 ? 3 : (size_t)(end - p)))
		return;
	if (!what || !(p = value_of(p, end)) || !(after = number(p, end, &v, &bytes)))
		return;
	if (what == STEP && !bytes && v < 1e12) {
		int64_t of = 0;

		while (after < end && *after == ' ')
			after++;
		if (after + 1 < end && *after == '/')
			of = strtoll(after + 1 + (after[1] == ' '), NULL, 10);
		put_step(r, (int64_t)v, of);
	} else if (what == LOSS && !bytes) {
		put_loss(r, v);
	} else if (what == MEMORY) {
		put_memory(r, name, n, v, bytes);
	} else if (what == TOKENS && v < 1e9 && (int64_t)v > r->run.longest) {
		r->run.longest = (int64_t)v;
		r->run.longest_step = r->run.last_step;
	}
}

/* "  12/1000 [00:12<" */
static void bar(struct oom_run_reader *r, const char *from, const char *end)
{
	const char *open = memchr(from, '[', (size_t)(end - from)), *p, *slash;

	if (!open || open - from < 4 || !oom_text_find(open, end, "<"))
		return;
	for (p = open - 1; p > from && *p == ' '; p--)
		;
	while (p > from && digit(*p))
		p--;
	slash = p;
	if (*slash != '/')
		return;
	while (p > from && digit(p[-1]))
		p--;
	if (p < slash)
		put_step(r, strtoll(p, NULL, 10), strtoll(slash + 1, NULL, 10));
}

static void events(struct oom_run_reader *r, const char *from, const char *end)
{
	static const char *const evals[] = {"***** Running Evaluation", "Evaluating", "Running validation", "Validating", "Validation DataLoader"},
				 *const saves[] = {"Saving model checkpoint", "Saving checkpoint", "saving checkpoint"},
				 *const resumes[] = {"Resuming from", "esuming training", "Continuing training from checkpoint", "oaded checkpoint", "Loading states from", "resume_from_checkpoint"};
	bool evaluates = false;

	for (size_t i = 0; i < sizeof(evals) / sizeof(evals[0]); i++)
		evaluates |= oom_text_find(from, end, evals[i]) != NULL;
	r->run.evaluations += evaluates && !r->evaluating;
	r->evaluating = evaluates;
	for (size_t i = 0; i < sizeof(saves) / sizeof(saves[0]); i++)
		r->run.savings += oom_text_find(from, end, saves[i]) != NULL;
	for (size_t i = 0; i < sizeof(resumes) / sizeof(resumes[0]); i++)
		if (oom_text_find(from, end, resumes[i])) {
			r->run.resumed = true;
			r->run.steps_since_resume = 0;
		}
}

/* ---- CSV ---- */

static int cells(const char *from, const char *end)
{
	int n = 1;

	for (; from < end; from++)
		n += *from == ',';
	return n;
}

/* The first line names the columns. */
static void header(struct oom_run_reader *r, const char *from, const char *end)
{
	int column = 0;

	if (!memchr(from, ',', (size_t)(end - from)))
		return;
	for (const char *p = from; p < end; column++) {
		const char *stop = memchr(p, ',', (size_t)(end - p));
		const size_t n = (size_t)((stop ? stop : end) - p);

		for (size_t i = 0; i < n; i++)
			if (!name_char(p[i]))
				return;
		switch (about(p, n)) {
		case STEP:
			r->step_column = column;
			break;
		case LOSS:
			r->loss_column = column;
			break;
		case MEMORY:
			r->memory_column = column;
			snprintf(r->memory_name, sizeof(r->memory_name), "%.*s", (int)n, p);
			break;
		default:
			break;
		}
		p = stop ? stop + 1 : end;
	}
	if (r->step_column >= 0)
		r->columns = column;
}

static bool row(struct oom_run_reader *r, const char *from, const char *end)
{
	int column = 0;

	if (!r->columns || r->columns > MOST_COLUMNS || cells(from, end) != r->columns)
		return false;
	for (const char *p = from; p < end; column++) {
		const char *stop = memchr(p, ',', (size_t)(end - p));
		double v;
		bool bytes;

		stop = stop ? stop : end;
		if (number(p, stop, &v, &bytes)) {
			if (column == r->step_column && v < 1e12)
				put_step(r, (int64_t)v, 0);
			else if (column == r->loss_column)
				put_loss(r, v);
			else if (column == r->memory_column)
				put_memory(r, r->memory_name, strlen(r->memory_name), v, bytes);
		}
		p = stop + 1;
	}
	r->run.samples++;
	return true;
}

/* ---- lines ---- */

static void line(struct oom_run_reader *r, const char *from, const char *end)
{
	const int64_t step = r->run.last_step;
	const uint64_t memory = r->run.memory_samples;
	const double loss = r->run.last_loss;

	if (end - from > LONG_LINE)
		end = from + LONG_LINE;
	if (!r->lines++)
		header(r, from, end);
	if (row(r, from, end))
		return;
	bar(r, from, end);
	/* steps first: a line may name them behind its memory */
	for (int pass = 0; pass < 2; pass++)
		for (const char *p = from; p < end; p++) {
			const char *name = p;

			if (!name_char(*p))
				continue;
			while (p < end && name_char(*p))
				p++;
			/* few words have a number behind them, and looking for it is quick */
			if (value_of(p, end) && (about(name, (size_t)(p - name)) == STEP) == !pass)
				figure(r, name, (size_t)(p - name), p, end);
		}
	events(r, from, end);
	r->run.samples += step != r->run.last_step || memory != r->run.memory_samples ||
			  loss < r->run.last_loss || loss > r->run.last_loss;
}

void oom_run_init(struct oom_run_reader *r)
{
	memset(r, 0, sizeof(*r));
	r->run.first_step = r->run.last_step = -1;
	r->step_column = r->loss_column = r->memory_column = -1;
}

void oom_run_lines(struct oom_run_reader *r, const char *from, const char *to)
{
	r->read += (uint64_t)(to - from);
	while (from < to) {
		const char *stop = memchr(from, '\n', (size_t)(to - from)), *back;

		/* a bar returns to its line's beginning */
		stop = stop ? stop : to;
		back = memchr(from, '\r', (size_t)(stop - from));
		stop = back ? back : stop;
		if (stop > from)
			line(r, from, stop);
		from = stop + 1;
	}
}

void oom_run_close(const struct oom_run_reader *r, struct oom_crash_run *out)
{
	const double vx = r->n * r->xx - r->x * r->x, vy = r->n * r->yy - r->y * r->y,
		     vxy = r->n * r->xy - r->x * r->y;

	*out = r->run;
	out->memory_slope = vx > 0 ? vxy / vx : 0;
	out->memory_fit = vx > 0 && vy > 0 ? vxy / sqrt(vx * vy) : 0;
}

/* ---- what follows ---- */

static void say(struct oom_crash *c, enum oom_cause cause, double confidence, const char *evidence)
{
	size_t i = 0, last;

	while (i < c->n_causes && c->cause[i].cause != cause)
		i++;
	if (i < c->n_causes && c->cause[i].confidence >= confidence)
		return;
	/* a better ground for a cause that is there, or one more */
	if (i == c->n_causes)
		c->n_causes += c->n_causes < OOM_CRASH_CAUSES;
	last = i < c->n_causes ? i : c->n_causes - 1;
	for (; last > 0 && c->cause[last - 1].confidence < confidence; last--)
		c->cause[last] = c->cause[last - 1];
	c->cause[last] = (struct oom_verdict){.cause = cause, .confidence = confidence};
	snprintf(c->cause[last].evidence, sizeof(c->cause[0].evidence), "%s", evidence);
}

static bool trains(const struct oom_crash *c)
{
	return oom_crash_work(c) == OOM_WORK_TRAINING && c->n_causes &&
	       (c->cause[0].cause == OOM_CAUSE_TOO_LARGE || c->cause[0].cause == OOM_CAUSE_UNKNOWN);
}

/* A line through at least a dozen samples that explains nine tenths of their spread, and a rise of a
 * twentieth: guesses; memory that only warms up rises at once and stays. */
static bool leaks(const struct oom_crash_run *run)
{
	return run->memory_samples >= 12 && run->memory_fit > 0.95 && run->memory_slope > 0 &&
	       run->memory_last > 1.05 * run->memory_first;
}

static void from_figures(struct oom_crash *c, const struct oom_crash_log *log)
{
	const struct oom_crash_run *const run = &log->run;
	const bool own = c->n_causes && c->cause[0].cause != OOM_CAUSE_NOT_OOM &&
			 c->cause[0].cause != OOM_CAUSE_OTHER_PROCESS;
	char why[160];

	if (own && leaks(run)) {
		if (run->memory_in_bytes)
			snprintf(why, sizeof(why), "\"%s\" rose from %.2f to %.2f GiB, by %.2f MiB a step", run->memory_key,
				 run->memory_first / 1073741824, run->memory_last / 1073741824,
				 run->memory_slope / 1048576);
		else
			snprintf(why, sizeof(why), "\"%s\" rose from %.4g to %.4g, by %.3g a step", run->memory_key,
				 run->memory_first, run->memory_last, run->memory_slope);
		say(c, c->cause[0].cause == OOM_CAUSE_HOST_RAM ? OOM_CAUSE_HOST_RAM : OOM_CAUSE_LEAK, 0.9, why);
		return;
	}
	if (own && log->rising)
		say(c, OOM_CAUSE_LEAK, 0.5, "allocated rose over the last four messages");
	if (!trains(c) || run->last_step < 0)
		return;
	if (run->last_step == 1 && c->phase != OOM_CRASH_OPTIMIZER)
		say(c, OOM_CAUSE_STEP_2, 0.6,
		    "one step went through: the optimizer's state, made at its end, is what is new in the "
		    "second");
	else if (run->last_step - run->first_step >= 20 && !run->evaluations && !run->savings) {
		snprintf(why, sizeof(why), "steps %lld to %lld went through: this batch may have been the longest so far",
			 (long long)run->first_step, (long long)run->last_step);
		say(c, OOM_CAUSE_LONGEST_BATCH, 0.45, why);
	}
}

void oom_run_causes(struct oom_crash *c, const struct oom_crash_log *log)
{
	const struct oom_crash_run *const run = &log->run;

	if (c->phase == OOM_CRASH_UNKNOWN && run->has_loss && run->last_step >= 0 &&
	    oom_crash_work(c) == OOM_WORK_UNKNOWN && c->n_causes && c->cause[0].cause != OOM_CAUSE_NOT_OOM)
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.6, "the log counts steps and prints their losses");
	from_figures(c, log);
}
