/* The ledger of four layers less that of three, against a list of tensors. */
#include "saved_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/model.h"
#include "oomplan/option.h"

enum { SIZES_MAX = 400, BLOCK = 512 };
/* How many more tensors of a size there are in four layers than in three, and one that has it. */
struct tally {
	size_t n;
	struct {
		uint64_t bytes;
		long more;
		const char *scope, *name;
	} size[SIZES_MAX];
	long sign;
};

static void count(void *ctx, const struct oom_ledger_row *r)
{
	struct tally *t = ctx;
	size_t i = 0;

	if (!r->held)
		return;
	while (i < t->n && t->size[i].bytes != r->bytes)
		i++;
	if (i == t->n) {
		assert_true(t->n < SIZES_MAX);
		t->size[t->n].bytes = r->bytes;
		t->size[t->n].more = 0;
		t->n++;
	}
	t->size[i].more += t->sign * (long)r->held;
	if (t->sign > 0) {
		t->size[i].scope = r->scope;
		t->size[i].name = r->name;
	}
}

static bool set_plan(struct oom_plan *p, const struct saved_layer *row, struct oom_error *err)
{
	char copy[200], *save = NULL;

	*p = oom_plan_default();
	p->task = row->task;
	p->micro_batch = B;
	p->seq_len = row->task == OOM_TASK_IMAGE_CLS ? 0 : S;
	p->num_labels = row->task == OOM_TASK_IMAGE_CLS ? 2 : 0;
	snprintf(copy, sizeof(copy), "%s", row->plan);
	for (char *w = strtok_r(copy, ";", &save); w; w = strtok_r(NULL, ";", &save)) {
		char *value = strchr(w, '=');

		*value++ = '\0';
		if (oom_plan_set(p, oom_knob_find(w), value, err))
			return false;
	}
	return true;
}

/* Tensors of this block's size in the list. */
static long listed(const struct saved_layer *row, uint64_t bytes, bool say)
{
	long n = 0;

	for (const struct kept *k = row->kept; k->what; k++)
		if ((k->elems * k->each + BLOCK - 1) / BLOCK * BLOCK == bytes) {
			n++;
			if (say)
				print_error("    listed: %s\n", k->what);
		}
	return n;
}

static int compare(const struct saved_layer *row, const struct tally *t)
{
	long sum = 0, all = 0, bad = 0;

	for (const struct kept *k = row->kept; k->what; k++)
		all++;
	for (size_t i = 0; i < t->n; i++) {
		const long want = listed(row, t->size[i].bytes, false);

		sum += want;
		if (want == t->size[i].more)
			continue;
		if (!bad++)
			print_error("%s, %s, %s:\n", row->type, row->plan, row->keys);
		print_error("  %ld of %llu bytes (%s, %s), measured %ld\n", t->size[i].more,
			    (unsigned long long)t->size[i].bytes, t->size[i].scope ? t->size[i].scope : "-",
			    t->size[i].name ? t->size[i].name : "-", want);
		listed(row, t->size[i].bytes, true);
	}
	if (sum != all)
		print_error("%s%s, %s: %ld tensors have sizes that nothing here has\n", bad++ ? "  also " : "", row->type,
			    row->plan, all - sum);
	return bad != 0;
}

static int check(const struct saved_layer *row)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct tally t = {.sign = -1};
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_plan p;
	char json[1600];
	int bad;

	assert_non_null(ev);
	snprintf(json, sizeof(json), "{\"model_type\":\"%s\"%s%s}", row->type, *row->keys ? "," : "", row->keys);
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err) ||
	    !set_plan(&p, row, &err))
		fail_msg("%s: %s", json, err.text);
	for (p.num_layers = L; p.num_layers <= L + 1; p.num_layers++) {
		if (oom_ledger_each(ev, m, &p, count, &t, &err))
			fail_msg("%s: %s", json, err.text);
		t.sign = 1;
	}
	bad = compare(row, &t);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return bad;
}

void saved_check(const struct saved_layer *rows, size_t n)
{
	int bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += check(&rows[i]);
	assert_int_equal(bad, 0);
}
