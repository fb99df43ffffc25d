/* A row of a runs file as a plan: knobs are columns, versions may stand in one, a length may be a data set's. */
#include "plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "oomplan/lengths.h"
#include "oomplan/rules.h"
#include "versions.h"

/* Another column before this one that says something else of the same knob: which of them held, nobody could
 * know. */
static enum oom_status said_before(const struct oom_csv_row *row, size_t now, const struct oom_option *k,
				   struct oom_error *err)
{
	for (size_t i = 0; i < now; i++)
		if (*row->cells[i] && oom_knob_find(row->names[i]) == k && strcmp(row->cells[i], row->cells[now]))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "the columns %.40s and %.40s say \"%.40s\" and \"%.40s\" of one knob",
					     row->names[i], row->names[now], row->cells[i], row->cells[now]);
	return OOM_OK;
}

static enum oom_status plan_of(const struct oom_csv_row *row, struct oom_plan *p,
			       struct oom_error *err)
{
	const char *framework = oom_csv_cell(row, "framework");

	/* columns of their own say more */
	if (framework && oom_run_versions(p, framework, err))
		return OOM_ERR_INVALID;
	for (size_t i = 0; i < row->n; i++) {
		const struct oom_option *k = oom_knob_find(row->names[i]);
		enum oom_status st;

		if (!k || !*row->cells[i])
			continue;
		st = said_before(row, i, k, err);
		if (!st)
			st = oom_plan_set(p, k, row->cells[i], err);
		if (st)
			return st;
	}
	oom_plan_settle(p);
	/* a table has a column for a knob that only some of its rows use */
	oom_plan_relax(p);
	return OOM_OK;
}

static bool filled(const char *cell)
{
	return cell && *cell;
}

/* In place of one length those of a data set: the longest batch of `steps` of them, or of an epoch, is what
 * a run peaks at.  seq_len is then where samples are cut. */
static enum oom_status take_lengths(const char *dir, const struct oom_csv_row *row, struct oom_plan *p,
				    struct oom_error *err)
{
	const char *word = oom_csv_cell(row, "lengths"), *cut = oom_csv_cell(row, "seq_len"),
		   *said = oom_csv_cell(row, "steps");
	const double b = (double)p->micro_batch;
	struct oom_lengths lengths = {0};
	double steps = 0;
	char path[512];
	struct stat at;
	int64_t longest;

	if (!filled(word))
		return OOM_OK;
	if (filled(said)) {
		char *end;

		steps = strtod(said, &end);
		if (*end || !(steps >= 1 && steps <= 1e12))
			return oom_error_set(err, OOM_ERR_INVALID, "steps: \"%.40s\" is no number from 1 on",
					     said);
	}
	snprintf(path, sizeof(path), "%s/%s", dir, word);
	if (access(path, R_OK) == 0)
		word = path;
	/* rows are read unasked: no device, pipe or standard input */
	if (!strcmp(word, "-") || (!stat(word, &at) && !S_ISREG(at.st_mode)))
		return oom_error_set(err, OOM_ERR_INVALID, "lengths: \"%.80s\" is no plain file", word);
	if (oom_lengths_read(&lengths, word, oom_csv_cell(row, "lengths_field"), err))
		return OOM_ERR_INVALID;
	if (!steps)
		steps = fmax((double)lengths.total / b, 1);
	longest = oom_lengths_report(&lengths, b, steps).batching[OOM_BATCH_LONGEST].worst_tokens;
	oom_lengths_release(&lengths);
	if (longest < 1)
		longest = 1;
	if (!filled(cut) || p->seq_len > longest)
		p->seq_len = longest;
	return OOM_OK;
}

enum oom_status oom_run_plan(const char *dir, const struct oom_csv_row *row, struct oom_plan *p,
			     struct oom_error *err)
{
	const enum oom_status st = plan_of(row, p, err);

	return st ? st : take_lengths(dir, row, p, err);
}
