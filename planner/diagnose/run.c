/* Steps, losses and memory in the lines of a training's log, whoever printed them: the Trainer's
 * dictionaries, progress bars, Megatron's and DeepSpeed's reports, torchtitan's, key=value, JSON lines
 * and CSV.  A line is a row of names and numbers: run_figures.c. */
#include "run_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_COLUMNS = 64, LONG_LINE = 4000 };

/* What a bar counts stands before it: "Steps: ", "Epoch 3: ", or nothing, as the Trainer's; "Loading checkpoint shards: ",
 * "Map: " and others count something else. */
static bool counts_steps(const char *from, const char *to)
{
	static const char *const words[] = {"tep", "poch", "rain", "ter"};
	const char *colon = memchr(from, ':', (size_t)(to - from));

	if (!colon)
		return true;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(from, colon, words[i]))
			return true;
	return false;
}

/* "  12/1000 [00:12<" */
static void bar(struct oom_run_reader *r, const char *from, const char *end)
{
	const char *open = memchr(from, '[', (size_t)(end - from)), *p, *slash;

	if (!open || open - from < 4 || !oom_text_find(open, end, "<"))
		return;
	for (p = open - 1; p > from && *p == ' '; p--)
		;
	while (p > from && oom_run_digit(*p))
		p--;
	slash = p;
	if (*slash != '/')
		return;
	while (p > from && oom_run_digit(p[-1]))
		p--;
	if (p < slash && counts_steps(from, p))
		oom_run_put_step(r, strtoll(p, NULL, 10), strtoll(slash + 1, NULL, 10));
}

/* "Epoch: [0]  [1330/3696]  eta:", as the loops of detectors print it. */
static void bracket(struct oom_run_reader *r, const char *from, const char *end)
{
	const char *p = from, *stop;
	char *slash;
	int64_t step;

	if (end - from < 20 || !oom_text_find(from, from + 20, "poch: ["))
		return;
	p = memchr(p, '[', (size_t)(end - p));
	p = p ? memchr(p + 1, '[', (size_t)(end - p - 1)) : NULL;
	stop = p ? memchr(p, ']', (size_t)(end - p)) : NULL;
	if (!stop)
		return;
	for (p++; p < stop && *p == ' ';)
		p++;
	step = strtoll(p, &slash, 10);
	if (slash > p && slash < stop && *slash == '/')
		oom_run_put_step(r, step, strtoll(slash + 1, NULL, 10));
}

static void events(struct oom_run_reader *r, const char *from, const char *end)
{
	static const char *const evals[] = {"***** Running Evaluation", "Evaluating", "Running validation", "Validating", "Validation DataLoader"},
				 *const saves[] = {"Saving model checkpoint", "Saving checkpoint", "saving checkpoint"},
				 *const resumes[] = {"Resuming from", "esuming from checkpoint", "esuming training", "esumed training",
				     "Continuing training from checkpoint", "Continuing training from epoch", "Loading states from"};
	bool evaluates = false;

	for (size_t i = 0; i < sizeof(evals) / sizeof(evals[0]); i++)
		evaluates |= oom_text_find(from, end, evals[i]) != NULL;
	if (evaluates)
		r->run.in_evaluation = true;
	/* its result, or the steps after it */
	else if (oom_text_find(from, end, "eval_loss") || oom_text_find(from, end, "eval_runtime") || oom_text_find(from, end, "val_loss"))
		r->run.in_evaluation = false;
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
			if (!oom_run_name_char(p[i]))
				return;
		switch (oom_run_about(p, n)) {
		case OOM_RUN_STEP:
			r->step_column = column;
			break;
		case OOM_RUN_LOSS:
			r->loss_column = column;
			break;
		case OOM_RUN_MEMORY:
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
		if (oom_run_number(p, stop, &v, &bytes)) {
			if (column == r->step_column && v < 1e12)
				oom_run_put_step(r, (int64_t)v, 0);
			else if (column == r->loss_column)
				oom_run_put_loss(r, v);
			else if (column == r->memory_column)
				oom_run_put_memory(r, r->memory_name, strlen(r->memory_name), v, bytes);
		}
		p = stop + 1;
	}
	r->run.samples++;
	return true;
}

/* "--kv-cache-memory=13101000704" is an option that somebody gave, or is told to give: no figure of the run. */
static bool of_option(const char *from, const char *name)
{
	while (name > from && (oom_run_name_char(name[-1]) || name[-1] == '-')) {
		if (name - from > 1 && name[-1] == '-' && name[-2] == '-')
			return true;
		name--;
	}
	return false;
}

/* "Current Free GPU Memory: 9773.37 MB", "Required Model Memory": the words before it say what the memory is. */
static bool of_sentence(const char *from, const char *name)
{
	static const char *const not_held[] = {"ree ", "equired ", "emaining ", "otal ", "imit ", "vailable ", "vail "};
	const char *begin = name;

	while (begin > from && (begin[-1] == ' ' || oom_run_name_char(begin[-1])))
		begin--;
	for (size_t i = 0; i < sizeof(not_held) / sizeof(not_held[0]); i++)
		if (oom_text_find(begin, name, not_held[i]))
			return true;
	return false;
}

/* "Total steps = 60", "Gradient Accumulation steps = 4": how many there are, not how far it came. */
static bool of_total(const char *from, const char *name)
{
	static const char *const before[] = {"otal ", "ccumulation ", "max ", "Max "};

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		if ((size_t)(name - from) >= strlen(before[i]) && !memcmp(name - strlen(before[i]), before[i], strlen(before[i])))
			return true;
	return false;
}

/* ---- lines ---- */

static void line(struct oom_run_reader *r, const char *from, const char *end)
{
	const int64_t step = r->run.last_step;
	const uint64_t memory = r->run.memory_samples;
	const double loss = r->run.last_loss;

	r->stepped = false;
	if (end - from > LONG_LINE)
		end = from + LONG_LINE;
	if (!r->lines++)
		header(r, from, end);
	if (row(r, from, end))
		return;
	bar(r, from, end);
	bracket(r, from, end);
	/* steps first: a line may name them behind its memory */
	for (int pass = 0; pass < 2; pass++)
		for (const char *p = from; p < end; p++) {
			const char *name = p;
			enum oom_run_about what;

			if (!oom_run_name_char(*p))
				continue;
			while (p < end && oom_run_name_char(*p))
				p++;
			/* few words have a number behind them, and looking for it is quick */
			if (!oom_run_value_of(p, end) || of_option(from, name))
				continue;
			what = oom_run_about(name, (size_t)(p - name));
			if (what == OOM_RUN_STEP && of_total(from, name))
				continue;
			if ((what == OOM_RUN_STEP) == !pass && !(what == OOM_RUN_MEMORY && of_sentence(from, name)))
				oom_run_figure(r, name, (size_t)(p - name), p, end);
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
