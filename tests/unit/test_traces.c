/* Real out-of-memory messages against what they say: every number, phase and cause of the visible
 * traces.
 *
 *     test_traces FOLDER      (index.csv beside NNN.txt; exit 77 where it is absent)
 *
 * Numbers must be exact to the printed rounding, and absent where the text does not give them.
 * Phases are judged where the text itself gives evidence; causes where somebody established them
 * or the numbers force them. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input/csv_rows.h"
#include "oomplan/diagnose.h"

struct tally {
	const char *folder;
	int rows, wrong_numbers, phases, right_phases, told, right_told, causes, right_causes,
		formats, exceptions, verbose;
	int said[11], meant[11];        /* by tenths of confidence: how often, and how often right */
};

/* A cell may hold several words, "?" for what is not scored, or be missing. */
static bool accepts(const char *cell, const char *got)
{
	const size_t n = strlen(got);

	if (!cell || !strcmp(cell, "?"))
		return true;
	for (const char *p = cell;; p++) {
		const char *const end = strchr(p, '|');
		const size_t k = end ? (size_t)(end - p) : strlen(p);

		if (k == n && !memcmp(p, got, n))
			return true;
		if (!end)
			return false;
		p = end;
	}
}

static int wrong_number(const struct oom_csv_row *row, const struct oom_crash *c,
			enum oom_crash_number n)
{
	const char *want = oom_csv_cell(row, oom_crash_number_str(n));
	char got[32] = "";

	if (c->known[n])
		snprintf(got, sizeof(got), "%" PRIu64, c->bytes[n]);
	if (accepts(want, got))
		return 0;
	printf("%s %s: wanted \"%s\", got \"%s\"\n", oom_csv_cell(row, "file"),
	       oom_crash_number_str(n), want, got);
	return 1;
}

/* As printed, with the words of the table. */
static int wrong_texts(const struct oom_csv_row *row, const struct oom_crash *c)
{
	static const struct {
		const char *column;
		enum oom_crash_number n;
	} texts[] = {{"tried_text", OOM_CRASH_TRIED},	      {"total_text", OOM_CRASH_TOTAL},
		     {"free_text", OOM_CRASH_FREE},	      {"process_text", OOM_CRASH_PROCESS},
		     {"allocated_text", OOM_CRASH_ALLOCATED}, {"other_text", OOM_CRASH_OTHER}};
	int wrong = 0;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!accepts(oom_csv_cell(row, texts[i].column), c->text[texts[i].n])) {
			printf("%s %s: wanted \"%s\", got \"%s\"\n", oom_csv_cell(row, "file"),
			       texts[i].column, oom_csv_cell(row, texts[i].column),
			       c->text[texts[i].n]);
			wrong++;
		}
	return wrong;
}

static int wrong_word(const struct oom_csv_row *row, const char *column, const char *got)
{
	if (accepts(oom_csv_cell(row, column), got))
		return 0;
	printf("%s %s: wanted \"%s\", got \"%s\"\n", oom_csv_cell(row, "file"), column,
	       oom_csv_cell(row, column), got);
	return 1;
}

static void others(const struct oom_crash *c, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; i < c->n_processes && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%" PRId64 ":%" PRIu64, i ? ";" : "",
				      c->process[i].pid, c->process[i].bytes);
}

/* Of a text that is cut anywhere, each number is the whole text's or absent.  Texts of one PyTorch
 * message only: of several, the last one that is left counts. */
static int wrong_when_cut(const char *path, const struct oom_crash *whole)
{
	static char text[16 << 10];
	FILE *f = fopen(path, "rb");
	const size_t size = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	struct oom_crash c;
	const char *ask;
	int wrong = 0;

	if (f)
		fclose(f);
	text[size] = 0;
	ask = strstr(text, "Tried to allocate");
	if (!ask || strstr(ask + 1, "Tried to allocate") || strncmp(whole->framework, "torch", 5))
		return 0;
	/* every seventh byte: a number with its unit is seven to ten bytes long */
	for (size_t cut = (size_t)(ask - text); cut < size; cut += 7) {
		if (!oom_crash_decode(text, cut, &c) || c.line != whole->line)
			continue;
		for (int n = 0; n < OOM_CRASH_NUMBERS; n++)
			if (c.known[n] && (!whole->known[n] || c.bytes[n] != whole->bytes[n])) {
				printf("%s cut at %zu: %s is another\n", path, cut,
				       oom_crash_number_str((enum oom_crash_number)n));
				wrong++;
			}
	}
	return wrong;
}

static enum oom_status check(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct tally *t = ctx;
	struct oom_crash_log log;
	struct oom_crash c;
	char path[512], text[200];
	const char *basis = oom_csv_cell(row, "cause_basis"), *also = oom_csv_cell(row, "cause_ok"),
		   *told = oom_csv_cell(row, "phase_basis");

	snprintf(path, sizeof(path), "%s/%s", t->folder, oom_csv_cell(row, "file"));
	t->rows++;
	if (oom_crash_read(path, NULL, NULL, &c, &log, err)) {
		printf("%s: %s\n", path, err->text);
		t->wrong_numbers++;
		return OOM_OK;
	}
	for (int n = 0; n < OOM_CRASH_NUMBERS; n++)
		t->wrong_numbers += wrong_number(row, &c, (enum oom_crash_number)n);
	/* a table without formats was rendered again: its words are not the text's own */
	if (oom_csv_cell(row, "format"))
		t->wrong_numbers += wrong_texts(row, &c);
	t->wrong_numbers += wrong_when_cut(path, &c);
	if (oom_csv_cell(row, "format"))
		t->wrong_numbers += wrong_word(row, "traceback", c.traceback ? "yes" : "no");
	snprintf(text, sizeof(text), "%" PRId64, c.gpu_index);
	t->wrong_numbers += wrong_word(row, "gpu_index", c.gpu_index < 0 ? "" : text);
	snprintf(text, sizeof(text), "%" PRId64, c.rank);
	t->wrong_numbers += wrong_word(row, "rank", c.rank < 0 ? "" : text);
	others(&c, text, sizeof(text));
	t->wrong_numbers += wrong_word(row, "other_processes", text);
	t->wrong_numbers += wrong_word(row, "framework", c.framework);
	t->formats += !wrong_word(row, "format", c.format);
	t->exceptions += !wrong_word(row, "exception", c.exception);
	if (strcmp(oom_csv_cell(row, "phase"), "unknown") && (!told || accepts(told, "text"))) {
		const bool right = !wrong_word(row, "phase", oom_crash_phase_str(c.phase));

		t->phases++;
		t->right_phases += right;
		t->told += c.phase_confidence >= 0.5;
		t->right_told += right && c.phase_confidence >= 0.5;
	}
	/* judged where somebody established it or the text forces it; where readers may differ, with what
	 * they may say */
	if (!strcmp(basis, "thread") || !strcmp(basis, "trace") || also) {
		const char *const got = oom_cause_info(c.cause[0].cause)->name;
		const bool right = (also && *also && accepts(also, got)) || !wrong_word(row, "cause", got);
		const int bin = (int)(c.cause[0].confidence * 10 + 1e-6);

		t->causes++;
		t->right_causes += right;
		t->said[bin]++;
		t->meant[bin] += right;
	}
	return OOM_OK;
}

/* answers.csv, where there is one: who ran, what was going on, and words that one of the first two fixes
 * must hold. */
static enum oom_status check_answer(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct tally *t = ctx;
	const char *fix = oom_csv_cell(row, "fix");
	struct oom_crash_answer a;
	struct oom_crash_log log;
	struct oom_crash c;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", t->folder, oom_csv_cell(row, "file"));
	if (oom_crash_read(path, NULL, NULL, &c, &log, err)) {
		t->wrong_numbers++;
		return OOM_OK;
	}
	oom_crash_answer(&c, &a);
	t->wrong_numbers += wrong_word(row, "program", c.program);
	t->wrong_numbers += wrong_word(row, "work", oom_crash_work_str(oom_crash_work(&c)));
	if (!strstr(a.fix[0], fix) && !strstr(a.fix[1], fix)) {
		printf("%s: wanted a fix of \"%s\", got \"%s\", \"%s\"\n", path, fix, a.fix[0], a.fix[1]);
		t->wrong_numbers++;
	}
	return OOM_OK;
}

/* What is called certain to some degree is right at least as often, within one text of it, and of what is said at
 * 80 % and more at most three in a hundred are wrong; nothing is said below even odds. */
static bool unreliable(const struct tally *t)
{
	int sure = 0, wrong = 0;

	for (int i = 0; i <= 10; i++) {
		if (i < 5 && t->said[i])
			return true;
		if (10 * (t->meant[i] + 1) < i * t->said[i])
			return true;
		sure += i >= 8 ? t->said[i] : 0;
		wrong += i >= 8 ? t->said[i] - t->meant[i] : 0;
	}
	return wrong * 100 > sure * 3;
}

int main(int argc, char **argv)
{
	struct tally t = {.folder = argc > 1 ? argv[1] : "."};
	struct oom_error err = {{0}};
	char index[512];

	snprintf(index, sizeof(index), "%s/index.csv", t.folder);
	if (access(index, R_OK)) {
		printf("skipped: no traces at %s\n", t.folder);
		return 77;
	}
	if (oom_csv_read(index, check, &t, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	snprintf(index, sizeof(index), "%s/answers.csv", t.folder);
	if (!access(index, R_OK) && oom_csv_read(index, check_answer, &t, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	printf("%d traces: %d numbers or names wrong; phase %d of %d (%d of %d where the text "
	       "tells it), cause %d of %d, format %d, "
	       "exception %d\n",
	       t.rows, t.wrong_numbers, t.right_phases, t.phases, t.right_told, t.told,
	       t.right_causes, t.causes, t.formats, t.exceptions);
	for (int i = 0; i <= 10; i++)
		if (t.said[i])
			printf("said %d %%: right %d of %d\n", i * 10, t.meant[i], t.said[i]);
	if (unreliable(&t))
		return 1;
	/* causes: 90 %.  Phases: 95 % where the text tells, and seven in ten of all: those of bare
	 * messages were told by their posters in words outside the text. */
	return t.wrong_numbers || t.right_causes * 10 < t.causes * 9 ||
	       t.right_told * 100 < t.told * 95 || t.right_phases * 10 < t.phases * 7;
}
