/* A tape that was unrolled is the tape that recording every layer makes: the same rows, events, units and parameters,
 * in the same order, for every model type under plans that take every path through a family.  What cannot be told apart
 * is refused, and then recorded; how often that is so is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "step/program.h"
#include "tape/unroll.h"
#include "knobs.h"

/* knobs apart by blanks */
static const char *const plans[] = {
	"precision=bf16 micro-batch=2 seq-len=64",
	"precision=amp-fp16 attn=eager padding-mask=true micro-batch=2 seq-len=96 images=1",
	"precision=amp-bf16 grad-ckpt=full micro-batch=2 seq-len=96 loss=sliced images=1",
	"precision=bf16 attn=eager grad-ckpt=full lora-r=8 lora-targets=all-linear micro-batch=1",
	"precision=bf16 qlora=true lora-r=8 kbit-prepare=true micro-batch=2 attn=flash",
	"precision=fp32 loss=fused micro-batch=1 seq-len=640",
	"precision=amp-bf16 grad-ckpt=selective micro-batch=2 seq-len=96 lora-r=8 lora-targets=all-linear images=1",
	"precision=bf16 loss=chunked-nll micro-batch=2 seq-len=640 keep-outputs=true",
};
enum { PLANS = sizeof(plans) / sizeof(plans[0]) };

static struct oom_plan plan_of(const char *words, bool image)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	if (image)
		p.seq_len = 0;
	return p;
}

static bool same_row(const struct oom_row *a, const struct oom_row *b)
{
	return a->width == b->width && a->name == b->name && a->scope == b->scope && a->mono == b->mono &&
	       a->mult == b->mult && a->dt == b->dt && a->cat == b->cat && a->born == b->born &&
	       a->backward == b->backward && a->share == b->share && a->stream == b->stream;
}

static bool same_param(const struct oom_param *a, const struct oom_param *b)
{
	return a->elems == b->elems && a->name == b->name && a->flags == b->flags && a->rows == b->rows &&
	       a->cols == b->cols && a->mid == b->mid && a->count == b->count && a->dt == b->dt &&
	       a->trainable == b->trainable && a->in_layer == b->in_layer && a->unit == b->unit && a->grad == b->grad;
}

/* The first thing that differs; NULL: nothing. */
static const char *difference(const struct oom_tape *a, const struct oom_tape *b)
{
	static char text[200];

	if (a->n_rows != b->n_rows || a->n_params != b->n_params || a->n_units != b->n_units) {
		snprintf(text, sizeof(text), "%zu rows for %zu, %zu parameters for %zu, %zu layers for %zu", a->n_rows,
			 b->n_rows, a->n_params, b->n_params, a->n_units, b->n_units);
		return text;
	}
	for (size_t i = 0; i < a->n_rows; i++)
		if (!same_row(&a->rows[i], &b->rows[i])) {
			snprintf(text, sizeof(text), "row %zu: %s.%s for %s.%s", i, a->rows[i].scope, a->rows[i].name,
				 b->rows[i].scope, b->rows[i].name);
			return text;
		}
	for (int k = OOM_STREAM_FWD; k <= OOM_STREAM_BWD; k++)
		for (size_t i = 0; i < a->streams[k].n && i < b->streams[k].n; i++)
			if (a->streams[k].ev[i] != b->streams[k].ev[i]) {
				snprintf(text, sizeof(text), "stream %d, event %zu: %d for %d", k, i,
					 a->streams[k].ev[i], b->streams[k].ev[i]);
				return text;
			}
	if (a->streams[0].n != b->streams[0].n || a->streams[1].n != b->streams[1].n)
		return "a stream is shorter than the other";
	for (size_t i = 0; i < a->n_units; i++)
		if (a->units[i].param0 != b->units[i].param0 || a->units[i].param1 != b->units[i].param1 ||
		    a->units[i].mult != b->units[i].mult)
			return "a layer's parameters";
	for (size_t i = 0; i < a->n_params; i++)
		if (!same_param(&a->params[i], &b->params[i])) {
			snprintf(text, sizeof(text), "parameter %zu: %s", i, b->params[i].name);
			return text;
		}
	return NULL;
}

struct tapes {
	struct oom_tape brief, full, unrolled;
	size_t repeated, unrolled_n;    /* tapes with a repeated layer; those of them that were unrolled */
};

static int compare(struct tapes *t, const char *type, const struct oom_model *m, size_t plan)
{
	struct oom_plan p = plan_of(plans[plan], oom_model_task(m) == OOM_TASK_IMAGE_CLS);
	struct oom_error err;
	const char *differs;
	enum oom_status st;

	if (oom_record(&t->brief, m, &p, false, &err) || oom_record(&t->full, m, &p, true, &err))
		return 0;
	oom_tape_release(&t->unrolled);
	st = oom_unroll(&t->brief, &t->unrolled);
	assert_true(st == OOM_OK || st == OOM_ERR_LIMIT);
	t->repeated += t->brief.n_reps > 0;
	t->unrolled_n += !st && t->brief.n_reps > 0;
	if (st)
		return 0;
	differs = difference(&t->unrolled, &t->full);
	if (differs)
		print_error("%s, plan %zu: %s\n", type, plan, differs);
	return differs != NULL;
}

static int compare_type(struct tapes *t, const char *type)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err;
	char json[200];
	int n = 0;

	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", type);
	if (!oom_keys_parse(&keys, json, strlen(json), type, &err) && !oom_model_new(&m, &keys, &err))
		for (size_t i = 0; i < PLANS; i++)
			n += compare(t, type, m, i);
	oom_model_free(m);
	oom_keys_release(&keys);
	return n;
}

static void unrolled_is_recorded(void **state)
{
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/model_types.jsonl", "r");
	struct tapes *t = calloc(1, sizeof(*t));
	char *line = NULL;
	size_t cap = 0;
	int n = 0;

	(void)state;
	assert_non_null(f);
	assert_non_null(t);
	while (getline(&line, &cap, f) > 0) {
		line[strcspn(line, "\t")] = 0;
		n += compare_type(t, line);
	}
	free(line);
	fclose(f);
	print_message("%zu of %zu tapes with a repeated layer unrolled\n", t->unrolled_n, t->repeated);
	assert_int_equal(n, 0);
	/* the others: models with a frozen one beside them, and towers that were not run; most of what is asked
	 * for must not cost a recording */
	assert_true(t->unrolled_n * 10 > t->repeated * 7);
	oom_tape_release(&t->brief);
	oom_tape_release(&t->full);
	oom_tape_release(&t->unrolled);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(unrolled_is_recorded)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
