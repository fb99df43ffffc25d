/* oomplan list: what the tables hold. */
#include <string.h>

#include "cli.h"

static void models(void)
{
	char name[80];

	for (size_t i = 0; oom_bundled_model(i, name, sizeof(name)); i++)
		puts(name);
}

static int gpus(void)
{
	struct oom_gpus table = {0};
	struct oom_error err = {{0}};

	if (oom_gpus_load(&table, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	printf("%-34s %10s  %-11s %s\n", "name", "capacity", "known from", "aliases");
	for (size_t i = 0; i < table.n; i++) {
		char size[32];

		printf("%-34s %10s  %-11s %s\n", table.items[i].name,
		       oom_format_bytes(table.items[i].capacity_bytes, size, sizeof(size)),
		       oom_capacity_kind_str(table.items[i].capacity_kind), table.items[i].aliases);
	}
	oom_gpus_release(&table);
	return 0;
}

static void families(void)
{
	for (size_t i = 0; oom_family_at(i); i++) {
		const struct oom_family_info *f = oom_family_at(i);

		printf("%s: %s\n  types:", f->name, f->summary);
		for (size_t j = 0; f->types[j]; j++)
			printf(" %s", f->types[j]);
		printf("\n  source: %s\n", f->source);
	}
}

static void choices(const char *knob)
{
	const struct oom_knob *k = oom_knob_find(knob);

	for (size_t i = 0; k->choice(i); i++)
		printf("%-22s %-8s %s\n%32s%s\n", k->choice(i)->name, oom_class_str(k->choice(i)->cls), k->choice(i)->summary, "",
		       k->choice(i)->source);
}

static void rungs(void)
{
	for (size_t i = 0; oom_rung_at(i); i++) {
		const struct oom_rung *r = oom_rung_at(i);

		printf("%2d  %s [%s]\n      costs: %s\n      set: %s\n      source: %s\n", r->number, r->name, oom_class_str(r->cls),
		       r->cost, r->setting, r->source);
	}
}

static void knobs(void)
{
	for (size_t i = 0; oom_knob_at(i); i++)
		printf("%-22s %-22s %s\n", oom_knob_at(i)->name, oom_knob_at(i)->column, oom_knob_at(i)->summary);
}

int oom_cmd_list(struct oom_job *job)
{
	static const char *const what[] = {"models", "gpus", "families", "optimizers", "rungs", "knobs", "engines", NULL};
	const char *word = job->n_words ? job->words[0] : "", *near;
	size_t i = 0;

	while (what[i] && strcmp(what[i], word))
		i++;
	switch (i) {
	case 0: models(); break;
	case 1: return gpus();
	case 2: families(); break;
	case 3: choices("optimizer"); break;
	case 4: rungs(); break;
	case 5: knobs(); break;
	case 6: choices("engine"); break;
	default:
		near = *word ? oom_nearest(word, what) : NULL;
		return oom_complain(OOM_EXIT_USAGE, "list what? models, gpus, families, optimizers, rungs, knobs or engines%s%s%s",
				    near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
	}
	return OOM_EXIT_FITS;
}
