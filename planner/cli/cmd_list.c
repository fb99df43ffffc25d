/* oomplan list: what the tables hold. */
#include <string.h>

#include <math.h>

#include "oomplan/engine.h"
#include "oomplan/generations.h"
#include "commands.h"
#include "oomplan/box.h"
#include "oomplan/sweep.h"
#include "page.h"
#include "table.h"
#include "term.h"

static void models(void)
{
	char name[80];

	for (size_t i = 0; oom_bundled_model(i, name, sizeof(name)); i++)
		puts(name);
}

/* Prints and releases; on a page the last column is wrapped, in a pipe lines stay whole. */
static int show(struct oom_table *t)
{
	const bool done = oom_table_print(t, stdout, oom_page_folds() ? oom_term_width() : 0);

	oom_table_release(t);
	return done ? OOM_EXIT_FITS : oom_complain(OOM_EXIT_INPUT, "out of host memory");
}

/* Names with a blank after each semicolon, where a line may break. */
static const char *apart(const char *names, char *out, size_t size)
{
	size_t n = 0;

	for (; *names && n + 2 < size; names++) {
		out[n++] = *names;
		if (*names == ';' && names[1] != ' ')
			out[n++] = ' ';
	}
	out[n] = 0;
	return out;
}

static int gpus(void)
{
	static const char *const columns[] = {"name", ">capacity", "known from", "aliases", NULL};
	struct oom_gpus gpus = {0};
	struct oom_error err = {{0}};
	struct oom_table t;
	char names[2 * sizeof(gpus.items->aliases)];

	if (oom_gpus_load(&gpus, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	oom_table_init(&t, columns);
	for (size_t i = 0; i < gpus.n; i++) {
		char size[32];

		oom_table_cell(&t, gpus.items[i].name);
		oom_table_cell(&t,
			       oom_format_bytes(gpus.items[i].capacity_bytes, size, sizeof(size)));
		oom_table_cell(&t, oom_capacity_kind_str(gpus.items[i].capacity_kind));
		oom_table_cell(&t, apart(gpus.items[i].aliases, names, sizeof(names)));
	}
	oom_gpus_release(&gpus);
	return show(&t);
}

static void families(void)
{
	for (size_t i = 0; oom_family_at(i); i++) {
		const struct oom_family_info *f = oom_family_at(i);

		printf("%s: %s\n  types:", f->name, f->summary);
		for (size_t j = 0; f->types[j].name; j++)
			printf(" %s", f->types[j].name);
		printf("\n  source: %s\n", f->source);
	}
}

static void choices(const char *knob)
{
	const struct oom_option *k = oom_knob_find(knob);

	for (size_t i = 0; k->choice(i); i++)
		printf("%-22s %-8s %s\n%32s%s\n", k->choice(i)->name,
		       oom_class_str(k->choice(i)->cls), k->choice(i)->summary, "",
		       k->choice(i)->source);
}

static void engines(void)
{
	const struct oom_option *k = oom_knob_find("engine");

	for (size_t i = 0; k->choice(i) && oom_engine_at(i); i++)
		printf("%-11s %s [%s]\n%12skeeps: %s\n%12sbuffers: %s\n%12ssource: %s\n",
		       k->choice(i)->name, k->choice(i)->summary, oom_class_str(k->choice(i)->cls),
		       "", oom_engine_at(i)->keeps, "", oom_engine_at(i)->buffers, "",
		       oom_engine_at(i)->source);
}

static void rungs(void)
{
	for (size_t i = 0; oom_rung_at(i); i++) {
		const struct oom_rung *r = oom_rung_at(i);

		printf("%2d  %s [%s]\n      costs: %s\n      set: %s\n      source: %s\n",
		       r->number, r->name, oom_class_str(r->cls), r->cost, r->setting, r->source);
	}
}

static int knobs(void)
{
	static const char *const columns[] = {"option", "column", "summary", NULL};
	struct oom_table t;

	oom_table_init(&t, columns);
	for (size_t i = 0; oom_knob_at(i); i++) {
		oom_table_cell(&t, oom_knob_at(i)->name);
		oom_table_cell(&t, oom_knob_at(i)->column);
		oom_table_cell(&t, oom_knob_at(i)->summary);
	}
	return show(&t);
}

static void generations(void)
{
	const struct oom_generation *g;
	char version[40];

	for (size_t i = 0; (g = oom_generation_at(i)) != NULL; i++) {
		printf("%s before %s%s%s: %s %s is %s\n      %s\n      source: %s\n", g->library,
		       oom_write_version(g->before, version, sizeof(version)), g->engine ? ", engine " : "",
		       g->engine ? g->engine : "", g->knob, g->from, g->to, g->summary, g->source);
	}
}

static int boxes(void)
{
	static const char *const heads[] = {"provider", "instance", "region",	"gpus", "host GiB",
					    "$/h",	"spot $/h", "price of", NULL};
	struct oom_offers offers = {0};
	struct oom_error err = {{0}};
	struct oom_table t;
	char text[96];

	if (oom_offers_load(&offers, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	oom_table_init(&t, heads);
	for (size_t i = 0; i < offers.n; i++) {
		const struct oom_offer *o = &offers.items[i];

		oom_table_cell(&t, o->provider);
		oom_table_cell(&t, o->instance);
		oom_table_cell(&t, o->region);
		snprintf(text, sizeof(text), "%u x %s", o->gpu_count,
			 offers.gpus.items[o->gpu].name);
		oom_table_cell(&t, text);
		snprintf(text, sizeof(text), "%.0f", o->host_ram_gib);
		oom_table_cell(&t, isnan(o->host_ram_gib) ? "?" : text);
		snprintf(text, sizeof(text), "%.2f", o->ondemand_usd_h);
		oom_table_cell(&t, isnan(o->ondemand_usd_h) ? "?" : text);
		snprintf(text, sizeof(text), "%.2f", o->spot_usd_h);
		oom_table_cell(&t, isnan(o->spot_usd_h) ? "?" : text);
		oom_table_cell(&t, o->price_date);
	}
	oom_offers_release(&offers);
	return show(&t);
}

static void columns(void)
{
	for (size_t i = 0; oom_sweep_column_at(i); i++)
		puts(oom_sweep_column_at(i));
	for (size_t i = 0; oom_knob_at(i); i++)
		puts(oom_knob_at(i)->column);
}

/* What can be listed: a name, and a function that prints it and returns an exit code. */
#define PRINTS(name, call) static int list_##name(void) { call; return OOM_EXIT_FITS; }
PRINTS(models, models())
PRINTS(families, families())
PRINTS(optimizers, choices("optimizer"))
PRINTS(adapters, choices("peft-type"))
PRINTS(bases, choices("base-weights"))
PRINTS(rungs, rungs())
PRINTS(engines, engines())
PRINTS(generations, generations())
PRINTS(columns, columns())

static const struct {
	const char *name;
	int (*print)(void);
} lists[] = {
	{"models", list_models},
	{"gpus", gpus},
	{"boxes", boxes},
	{"families", list_families},
	{"optimizers", list_optimizers},
	{"adapters", list_adapters},
	{"bases", list_bases},
	{"rungs", list_rungs},
	{"knobs", knobs},
	{"engines", list_engines},
	{"generations", list_generations},
	{"columns", list_columns},
};

static const char *list_word(size_t i)
{
	return i < sizeof(lists) / sizeof(lists[0]) ? lists[i].name : NULL;
}

static int run(struct oom_job *job)
{
	struct oom_page page;
	size_t i = 0;
	int code;

	while (list_word(i) && strcmp(list_word(i), job->words.items[0]))
		i++;
	if (!list_word(i))
		return OOM_EXIT_USAGE;
	oom_page_begin(&page);
	code = lists[i].print();
	oom_page_end(&page);
	return code;
}

static const struct oom_option options[] = {OOM_OPTIONS_COMMON, OOM_OPTIONS_END};
const struct oom_command oom_command_list = {
	.name = "list",
	.summary =
		"what the tables hold: models, gpus, boxes, optimizers, adapters, bases, rungs, families, knobs, engines, generations, columns",
	.synopsis = "WHAT",
	.options = options,
	.words = "WHAT",
	.min_words = 1,
	.max_words = 1,
	.word = list_word,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
