/* Parameter counts of config.json files in the forms that people write: keys left out, old spellings,
 * composites whose sub configs are absent, empty or say one thing.
 *
 *     forms_accuracy FORMS.tsv MOST_SILENT
 *
 * tests/tools/config_forms.py had transformers count them on the meta device.  A count is exact, or the
 * answer says that something is approximated, or the file is refused: what is wrong and says nothing is
 * silent, and more than MOST_SILENT of those fail. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oomplan/model.h"

enum outcome { EXACT, ANNOUNCED, REFUSED, SILENT, OUTCOMES };

struct form {
	const char *task, *config;
	uint64_t total, trained;
};

/* Cuts a line at its tabs; false: it is not a form. */
static bool cut(char *line, struct form *f)
{
	char *field[4], *at = NULL;
	int n = 0;

	line[strcspn(line, "\n")] = 0;
	for (char *w = strtok_r(line, "\t", &at); w && n < 4; w = strtok_r(NULL, "\t", &at))
		field[n++] = w;
	if (n < 4)
		return false;
	f->task = field[0];
	f->total = strtoull(field[1], NULL, 10);
	f->trained = strtoull(field[2], NULL, 10);
	f->config = field[3];
	return f->total > 0;
}

static enum outcome judge(const struct form *f)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	enum outcome o = REFUSED;
	struct oom_eval e = {0};

	p.micro_batch = 1;
	p.seq_len = !strcmp(f->task, "image-cls") ? 0 : 16;
	if (ev && !oom_keys_parse(&keys, f->config, strlen(f->config), "form", &err) &&
	    !oom_model_new(&m, &keys, &err) &&
	    !oom_plan_set(&p, oom_knob_find("task"), f->task, &err) &&
	    !oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err)) {
		const bool said = *oom_model_warning(m) || e.warning[0];

		o = e.total_params == f->total && e.trainable_params == f->trained ? EXACT :
		    said							    ? ANNOUNCED :
										      SILENT;
	}
	if (o == SILENT)
		printf("silent: %s %s: %llu (trained %llu), counted %llu (%llu)\n", f->task,
		       f->config, (unsigned long long)e.total_params,
		       (unsigned long long)e.trainable_params, (unsigned long long)f->total,
		       (unsigned long long)f->trained);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return o;
}

int main(int argc, char **argv)
{
	FILE *in = argc == 3 ? fopen(argv[1], "r") : NULL;
	size_t n[OUTCOMES] = {0}, cap = 0;
	char *line = NULL;
	bool fine;

	while (in && getline(&line, &cap, in) > 0) {
		struct form f;

		if (cut(line, &f))
			n[judge(&f)]++;
	}
	printf("%zu exact, %zu announced, %zu refused, %zu silently wrong\n", n[EXACT],
	       n[ANNOUNCED], n[REFUSED], n[SILENT]);
	fine = n[EXACT] > 1000 && n[SILENT] <= strtoull(argc == 3 ? argv[2] : "0", NULL, 10);
	free(line);
	if (in)
		fclose(in);
	return !fine;
}
