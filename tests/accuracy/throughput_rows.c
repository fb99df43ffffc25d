/* Published rows, read and priced. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "throughput.h"
#include "oomplan/ladder.h"

struct rows all;

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%.*s", (int)size - 1, from);
}

/* "model_type=llama;hidden_size=4096;depths=[3,4]": a config.json. */
static void config_of(const char *shape, char *json, size_t size)
{
	size_t n = (size_t)snprintf(json, size, "{");

	while (*shape && n < size) {
		const size_t key = strcspn(shape, "="), len = strcspn(shape, ";");
		const char *value = shape + key + 1;
		const int width = (int)(len - key - 1);
		const bool bare = *value == '[' || strspn(value, "-.0123456789") == (size_t)width ||
				  !strncmp(value, "true", 4) || !strncmp(value, "false", 5);

		n += (size_t)snprintf(json + n, size - n, "%s\"%.*s\": %s%.*s%s", n > 1 ? ", " : "",
				      (int)key, shape, bare ? "" : "\"", width, value,
				      bare ? "" : "\"");
		shape += len + (shape[len] == ';');
	}
	if (n < size)
		snprintf(json + n, size - n, "}");
}

/* "gpus=8 zero=3 ...": what this build has no knob for is an error. */
static enum oom_status knobs_of(const char *text, struct oom_plan *p, struct oom_error *err)
{
	char word[300], *value;
	enum oom_status st = OOM_OK;

	while (*text && !st) {
		const size_t len = strcspn(text, " ");

		copy(word, len + 1 < sizeof(word) ? len + 1 : sizeof(word), text);
		value = strchr(word, '=');
		if (!value)
			return OOM_ERR_INVALID;
		*value++ = 0;
		st = !oom_knob_find(word) ? OOM_ERR_UNKNOWN :
					    oom_plan_set(p, oom_knob_find(word), value, err);
		text += len + (text[len] == ' ');
	}
	return st;
}

static bool price(struct row *r, const char *shape, const char *knobs, struct oom_error *err)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	char json[1500], note[300];
	bool fine;

	config_of(shape, json, sizeof(json));
	r->plan = oom_plan_default();
	fine = ev && !oom_keys_parse(&keys, json, strlen(json), "shape", err) &&
	       !oom_model_new(&m, &keys, err) && !knobs_of(knobs, &r->plan, err) &&
	       !oom_gpu_find(&all.gpus, r->card, &r->gpu, NULL, err);
	if (fine) {
		r->plan.compute_capability = r->gpu.compute_capability;
		oom_plan_settle_for(&r->plan, m, note);
		fine = !oom_evaluate(ev, m, &r->plan, OOM_EVAL_FAST, &r->eval, err);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return fine;
}

enum oom_status take(void *ctx, const struct oom_csv_row *csv, struct oom_error *err)
{
	struct row *r = &all.rows[all.n];
	struct oom_error why = {{0}};

	(void)ctx;
	if (all.n == MAX_ROWS)
		return oom_error_set(err, OOM_ERR_LIMIT, "more than %d rows", MAX_ROWS);
	memset(r, 0, sizeof(*r));
	copy(r->id, sizeof(r->id), oom_csv_cell(csv, "id"));
	copy(r->source, sizeof(r->source), oom_csv_cell(csv, "source"));
	copy(r->model, sizeof(r->model), oom_csv_cell(csv, "model"));
	copy(r->engine, sizeof(r->engine), oom_csv_cell(csv, "engine"));
	copy(r->card, sizeof(r->card), oom_csv_cell(csv, "gpu"));
	/* owner/name: pages of one repository are one source */
	r->source[strcspn(r->source, " ")] = 0;
	r->complete = !strcmp(oom_csv_cell(csv, "complete"), "yes");
	r->published = strtod(oom_csv_cell(csv, "tokens_per_s_total"), NULL);
	if (!price(r, oom_csv_cell(csv, "shape"), oom_csv_cell(csv, "knobs"), &why)) {
		all.refused++;
		printf("not priced: %s: %s\n", r->id, why.text);
		return OOM_OK;
	}
	r->params = (double)r->eval.total_params;
	for (size_t i = 0; i < all.n_cls; i++)
		if (!strcmp(all.cls[i].name, oom_card_class(&r->gpu)->name))
			r->cls = i;
	all.n++;
	return OOM_OK;
}

void predict(struct row *r)
{
	const struct oom_step_time t = oom_step_time_as(&all.cls[r->cls], &r->plan, &r->eval, &r->gpu);
	/* of images the table says how many */
	const double tokens = t.samples_per_s * (double)(r->plan.seq_len > 0 ? r->plan.seq_len : 1);

	r->predicted = tokens;
	r->low = tokens * t.total_s / t.high_s;
	r->high = tokens * t.total_s / t.low_s;
}

double off(const struct row *r)
{
	return fabs(log(r->predicted / r->published));
}

/* Where the time of a row goes, in percent of the published time. */
void print_parts(const struct row *r)
{
	const struct oom_step_time t = oom_step_time_as(&all.cls[r->cls], &r->plan, &r->eval, &r->gpu);

	printf("%-9s %5.2f %-26s %-17s", r->id, r->predicted / r->published, r->model, r->card);
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++)
		if (t.part_s[i] > 0.005 * t.total_s)
			printf(" %s %.0f", oom_time_part_str((enum oom_time_part)i),
			       100 * t.part_s[i] / t.total_s * r->published / r->predicted);
	printf("\n");
}
