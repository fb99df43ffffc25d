/* Tables say what estimate says: sweeps and runs files of the same plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"
#include "oomplan/runs.h"
#include "oomplan/sweep.h"

/* The plan as a table of one column of cards: the text, which is the caller's to free; NULL: words say why. */
static char *table_of(const struct subject *s, const struct oom_plan *p, const char *cards,
		      const char *columns, char *words, size_t size)
{
	const struct oom_sweep_options options = {.threads = 1};
	struct oom_sweep *sweep = oom_sweep_new(p);
	struct oom_error err = {""};
	char axis[200], *text = NULL;
	size_t length;
	uint64_t rows;
	FILE *out = open_memstream(&text, &length);
	enum oom_status st = sweep && out ? OOM_OK : OOM_ERR_MEMORY;

	snprintf(axis, sizeof(axis), "model=%s", s->path);
	st = st ? st : oom_sweep_axis(sweep, axis, &err);
	snprintf(axis, sizeof(axis), "gpu=%s", cards);
	st = st ? st : oom_sweep_axis(sweep, axis, &err);
	st = st ? st : oom_sweep_columns(sweep, columns, &err);
	st = st ? st : oom_sweep_run(sweep, &options, out, &rows, &err);
	if (out)
		fclose(out);
	oom_sweep_free(sweep);
	if (!st)
		return text;
	snprintf(words, size, "sweep: %.300s", err.text);
	free(text);
	return NULL;
}

/* The row behind `line`, which moves on to it. */
static enum finding row_says(const char **line, const struct oom_judged *truth, char *words, size_t size)
{
	unsigned long long used, evaluation;
	int fits, n;

	*line = strchr(*line, '\n');
	n = *line ? sscanf(++*line, "%d,%llu,%llu", &fits, &used, &evaluation) : 0;
	if (n == 3 && evaluation != truth->eval.peak[OOM_PHASE_EVAL]) {
		snprintf(words, size, "sweep: an evaluation of %llu bytes, estimate %llu", evaluation,
			 (unsigned long long)truth->eval.peak[OOM_PHASE_EVAL]);
		return BROKEN;
	}
	if (n >= 2)
		return agree_same("sweep", used, fits, truth, words, size);
	snprintf(words, size, "sweep: %.300s", *line ? *line : "no row");
	return BROKEN;
}

enum finding agree_swept(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_question o = agree_asked(s, q);
	struct oom_judged truth;
	enum finding found;
	const char *line;
	char *text;

	if (!agree_estimate(s, &o, &truth))
		return SILENT;
	line = text = table_of(s, &o.plan, q->gpu->name, q->luck % 2 ? "fits,used_bytes,eval_fwd_peak_bytes" : "fits,used_bytes",
			       words, size);
	found = text ? row_says(&line, &truth, words, size) : BROKEN;
	free(text);
	return found;
}

/* What files leave to the card is asked of each card of a table, be it a cheap one or one of verdicts. */
enum finding agree_swept_by_card(const struct subject *s, const struct question *q, char *words, size_t size)
{
	static const int64_t halves[] = {OOM_BF16, OOM_AMP_BF16, OOM_BF16_AMP};
	static const char *const cards[] = {"RTX-4090", "T4", "A10G", "V100-SXM2-32GB"};
	const struct oom_question o = agree_asked(s, q);
	struct oom_gpus table = {0};
	struct oom_plan p = o.plan;
	enum finding found = HOLDS;
	const char *line, *cheap;
	char *text, *cheap_text, word[32] = "", is[OOM_VALUE_SIZE];

	p.precision = halves[q->luck % 3];
	p.precision_by_card = 1;
	line = text = table_of(s, &p, "RTX-4090,T4,A10G,V100-SXM2-32GB", "fits,used_bytes", words, size);
	cheap = cheap_text = table_of(s, &p, "RTX-4090,T4,A10G,V100-SXM2-32GB", "precision", words, size);
	if (!text || !cheap || oom_gpus_load(&table, NULL))
		found = BROKEN;
	for (size_t i = 0; i < 4 && found == HOLDS; i++) {
		struct oom_question here = o;
		struct oom_judged truth;
		struct oom_gpu card;

		here.plan = p;
		here.gpu = oom_gpu_find(&table, cards[i], &card, NULL, NULL) ? NULL : &card;
		if (!agree_estimate(s, &here, &truth)) {
			found = SILENT;
			break;
		}
		found = row_says(&line, &truth, words, size);
		cheap = strchr(cheap, '\n');
		oom_plan_get(&here.plan, oom_knob_find("precision"), is, sizeof(is));
		if (found == HOLDS && (!cheap || sscanf(++cheap, "%31s", word) != 1 || strcmp(word, is))) {
			snprintf(words, size, "sweep: %s on %s, estimate %s", word, cards[i], is);
			found = BROKEN;
		}
	}
	oom_gpus_release(&table);
	free(text);
	free(cheap_text);
	return found;
}

/* The cell under a column's name; "" without one. */
static const char *cell(const char *table, const char *column)
{
	static char text[400];
	const char *row = strchr(table, '\n'), *at = strstr(table, column);

	text[0] = 0;
	if (!row || !at || at > row)
		return text;
	row++;
	for (const char *c = table; row && c < at; c++)
		if (*c == ',' && (row = strchr(row, ',')) != NULL)
			row++;
	if (row)
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(row, ",\n"), row);
	return text;
}

/* A column for every knob that was set. */
static bool write_run(FILE *to, const struct subject *s, const struct question *q)
{
	fputs("model", to);
	for (size_t i = 0; i < q->n; i++)
		fprintf(to, ",%s", q->set[i].knob->column);
	fprintf(to, "\n%s", s->path);
	for (size_t i = 0; i < q->n; i++)
		fprintf(to, ",%s", q->set[i].word);
	fputc('\n', to);
	return !fflush(to);
}

/* The plan as a runs file of one row, on no card: on one a row is a run that was made there, which knows of no
 * margin. */
enum finding agree_listed(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_question o = agree_asked(s, q);
	char path[] = "/tmp/oomplan-property-XXXXXX.csv", *text = NULL;
	const int fd = mkstemps(path, 4);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "w"), *out;
	struct oom_runs_report report;
	struct oom_error err = {""};
	struct oom_judged truth;
	enum finding found = SILENT;
	size_t length;

	o.gpu = NULL;
	out = open_memstream(&text, &length);
	if (in && out && agree_estimate(s, &o, &truth) && write_run(in, s, q)) {
		const bool read = !oom_runs_price(path, NULL, out, &report, &err) && !fflush(out);

		found = read && strtoull(cell(text, "pred_used_bytes"), NULL, 10) == truth.eval.used_bytes ? HOLDS :
													   BROKEN;
		if (found == BROKEN)
			snprintf(words, size, "a runs file says %.20s bytes used, estimate %llu; %s",
				 read ? cell(text, "pred_used_bytes") : "",
				 (unsigned long long)truth.eval.used_bytes, err.text);
	}
	if (in)
		fclose(in);
	if (out)
		fclose(out);
	free(text);
	unlink(path);
	return found;
}
