/* The table of words, cell by cell: a program that has options of its own is not answered in everybody's words. What
 * a script's owner writes himself (the model of a DeepSpeed run, the optimizer of a Lightning module) is everybody's,
 * and is named here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "diagnose/tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define V(name) OOM_LEVER_##name
enum { MOST = 12 };

/* What everybody says of a lever is right for these programs: that part is its owner's code, or a library's beneath. */
static const struct {
	const char *program;
	enum oom_lever levers[MOST];
} everybodys[] = {
	{"colossalai", {V(BATCH), V(RECOMPUTE), V(PRECISION), V(OPTIMIZER), V(SHARD), V(LENGTH), V(ADAPTER), V(EVAL_BATCH), V(LOAD)}},
	{"deepspeed", {V(LENGTH), V(ADAPTER), V(EVAL_BATCH)}},
	{"megatron-deepspeed", {V(LOAD)}},
	{"torchtune", {V(EVAL_BATCH), V(LOAD)}},
	{"fairseq", {V(LOAD)}},
	{"spacy", {V(LOAD)}},
	{"nerfstudio", {V(EVAL_BATCH)}},
	{"gaussian-splatting", {V(EVAL_BATCH)}},
	{"document-ocr", {V(OFFLOAD), V(LOAD)}},
	{"segment-anything", {V(BATCH)}},
};

static bool is_everybodys(const char *program, enum oom_lever lever)
{
	for (size_t i = 0; i < COUNT(everybodys); i++)
		for (size_t k = 0; !strcmp(everybodys[i].program, program) && k < MOST; k++)
			if (everybodys[i].levers[k] == lever)
				return true;
	return false;
}

/* How many of those levers the program has no words of its own for; empty words say that it has no such thing. */
static int generic(const char *program, const char *dialect, const enum oom_lever *levers)
{
	int bad = 0;

	for (; *levers; levers++) {
		const char *const words = oom_lever_in(dialect, "torch", *levers);

		if (!words || words != oom_lever_in("torch", "torch", *levers) || is_everybodys(program, *levers))
			continue;
		print_error("%s: \"%s\" is everybody's\n", program, words);
		bad++;
	}
	return bad;
}

static void test_cells(void **state)
{
	static const enum oom_lever trains[] = {V(BATCH), V(RECOMPUTE), V(PRECISION), V(OPTIMIZER), V(SHARD), V(LENGTH), V(ADAPTER), V(EVAL_BATCH), V(LOAD), 0},
				    infers[] = {V(REQUESTS), V(CONTEXT), V(QUANT), V(OFFLOAD), V(LOAD), 0};
	const char *name;
	int bad = 0;

	(void)state;
	for (size_t i = 0; (name = oom_crash_program(i)) != NULL; i++) {
		struct oom_crash c = {.framework = "torch", .format = "cuda-2.5-OutOfMemoryError", .language = true};
		const struct oom_program *p;

		snprintf(c.program, sizeof(c.program), "%s", name);
		p = oom_program_of(&c);
		if (p->activity == OOM_ACTIVITY_TRAINS)
			bad += generic(name, oom_program_dialect(&c, true), trains);
		if (p->activity == OOM_ACTIVITY_INFERS || p->activity == OOM_ACTIVITY_SERVES)
			bad += generic(name, p->dialect, infers);
	}
	assert_int_equal(bad, 0);
}

/* A server's share of the card, its cache and its requests have names in every program that takes a share. */
static void test_servers(void **state)
{
	static const enum oom_lever levers[] = {V(REQUESTS), V(CONTEXT), V(KV), V(ROOM), V(GRAPHS), V(QUANT), V(SPREAD), V(LOAD), V(LOAD_HOST), V(HOST), 0};
	static const char *const servers[] = {"vllm", "sglang", "tgi", "trtllm", "lmdeploy"};
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < COUNT(servers); i++) {
		bad += generic(servers[i], servers[i], levers);
		for (const enum oom_lever *l = levers; *l; l++)
			assert_non_null(oom_lever_in(servers[i], "torch", *l));
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells), cmocka_unit_test(test_servers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
