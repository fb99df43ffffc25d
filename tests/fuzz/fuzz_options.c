/* Any arguments: the input's lines are argv.  A plan that was accepted must read back as itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/rules.h"
#include "options.h"

static struct {
	bool flag;
	const char *text;
	int choice;
	int64_t count;
	double real;
	struct oom_size size;
	struct oom_list list, words, idle;
	size_t told;
} t;
#define WORDS(X) X(ONE, "one", "") X(TWO, "two-three", "") X(FOUR, "four", "")
OOM_WORD_LIST(static, words, WORDS)
static const struct oom_option rows[] = {
	{.name = "flag", .letter = 'f', .kind = OOM_OPTION_FLAG, .target = &t.flag},
	{.name = "text", .letter = 't', .kind = OOM_OPTION_TEXT, .target = &t.text,
	 .metavar = "TEXT"},
	{.name = "choice", .letter = 'c', .kind = OOM_OPTION_CHOICE, .target = &t.choice,
	 .metavar = "WORD", .choice = words},
	{.name = "count", .letter = 'n', .kind = OOM_OPTION_COUNT, .target = &t.count,
	 .metavar = "N", .min = -9e18, .max = 9e18},
	{.name = "real", .letter = 'r', .kind = OOM_OPTION_REAL, .target = &t.real,
	 .metavar = "P", .min = -1, .max = 1},
	{.name = "size", .kind = OOM_OPTION_SIZE, .target = &t.size, .metavar = "SIZE"},
	{.name = "list", .letter = 'l', .kind = OOM_OPTION_LIST, .target = &t.list,
	 .metavar = "WORDS", .choice = words},
	{.name = NULL},
};

static void hear(const char *text)
{
	t.told += strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_plan plan = oom_plan_default();
	const struct oom_options set = {
		.own = rows, .plan = &plan, .words = &t.words, .idle = &t.idle, .tell = hear};
	struct oom_error err = {{0}};
	char *copy = malloc(size + 1), *argv[256];
	int argc = 0;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = 0;
	for (char *p = copy; p && argc < 256;) {
		argv[argc++] = p;
		p = strchr(p, '\n');
		if (p)
			*p++ = 0;
	}
	memset(&t, 0, sizeof(t));
	if (oom_options_parse(&set, argc, argv, &err) && !*err.text)
		abort();        /* every failure says something */
	for (size_t i = 0; oom_knob_at(i); i++) {
		char value[160];

		oom_plan_get(&plan, oom_knob_at(i), value, sizeof(value));
		if (oom_plan_set(&plan, oom_knob_at(i), value, &err))
			abort();
	}
	if (oom_plan_check(&plan, &err) && strlen(err.text) < 20)
		abort();
	if (t.choice < 0 || t.choice > 2 || t.list.n > OOM_LIST_MAX || t.words.n > OOM_LIST_MAX ||
	    t.idle.n > OOM_LIST_MAX || t.real < -1 || t.real > 1)
		abort();
	free(copy);
	return 0;
}
