/* The word that a file gets for an optimizer is one that its framework takes today. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "frameworks/framework.h"
#include "frameworks/parts.h"
#include "oomplan/option.h"

/* class OptimizerNames, huggingface/transformers src/transformers/training_args.py at 00349ae8 (transformers 5);
 * adamw_hf is not among them. */
static const char *const names[] = {
	"adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_apex_fused", "adafactor",
	"adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "sgd", "adagrad", "adamw_bnb_8bit",
	"adamw_8bit", "ademamix_8bit", "lion_8bit", "lion_32bit", "paged_adamw_32bit", "paged_adamw_8bit",
	"paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb",
	"rmsprop_bnb_8bit", "rmsprop_bnb_32bit", "galore_adamw", "galore_adamw_8bit", "galore_adafactor",
	"galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "lomo", "adalomo",
	"grokadamw", "schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd", "apollo_adamw",
	"apollo_adamw_layerwise", "stable_adamw", NULL};
/* class CustomSupportedOptimizers, axolotl src/axolotl/utils/schemas/enums.py. */
static const char *const axolotls_own[] = {"optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8",
					   "adopt_adamw", "came_pytorch", "muon", "dion", NULL};

static bool is_among(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(word, *list))
			return true;
	return false;
}

/* How many optimizers have a word; every one of them is taken, and is read as that optimizer or its like. */
static size_t taken(const char *framework, const char *key, const char *const *own)
{
	const struct framework *fw = framework_find(framework);
	const struct oom_option *k = oom_knob_find("optimizer");
	bool idle;
	const struct fw_row *row = framework_row(fw, key, &idle);
	size_t n = 0;

	assert_non_null(row);
	for (size_t i = 0; k->choice(i); i++) {
		char buf[80];
		const char *word = row_word(row, k->choice(i)->name, buf, sizeof(buf));

		if (!word)
			continue;
		if (!is_among(word, names) && !is_among(word, own))
			fail_msg("%s of %s: \"%s\" for %s is no word of its", key, framework, word, k->choice(i)->name);
		n++;
	}
	return n;
}

static void test_words(void **state)
{
	static const char *const none[] = {NULL};

	(void)state;
	assert_in_range(taken("hf-trainer", "optim", none), 15, 40);
	assert_in_range(taken("axolotl", "optimizer", axolotls_own), 15, 40);
}

/* Those that the ladder and the search turn to. */
static void test_smaller_ones(void **state)
{
	static const struct {
		const char *ours, *word;
	} rows[] = {{"adamw", "adamw_torch"},		{"adamw-fused", "adamw_torch_fused"},
		    {"adamw-8bit-embfp32", "adamw_bnb_8bit"}, {"adamw-8bit", "adamw_8bit"},
		    {"paged-adamw-8bit", "paged_adamw_8bit"}, {"adamw-torchao-8bit", "adamw_torch_8bit"},
		    {"adamw-loop", NULL},		{"soap", NULL}};
	bool idle;
	const struct fw_row *row = framework_row(framework_find("hf-trainer"), "optim", &idle);
	char buf[80];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *word = row_word(row, rows[i].ours, buf, sizeof(buf));

		if (!rows[i].word)
			assert_null(word);
		else
			assert_string_equal(word, rows[i].word);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_smaller_ones)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
