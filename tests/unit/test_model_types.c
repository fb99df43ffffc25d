/* What configs of a model type leave out, by the table of types, and the table itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "oomplan/config.h"

/* transformers 5.12.1: models/llama/configuration_llama.py, models/gpt2/configuration_gpt2.py, ...
 */
static void defaults_of_a_type(void **state)
{
	struct oom_error err = {{0}};
	struct oom_keys k = {0};

	(void)state;
	assert_int_equal(oom_keys_defaults(&k, "llama", &err), OOM_OK);
	assert_float_equal(oom_keys_find(&k, "defaults.intermediate_size")->number, 11008, 0);
	assert_int_equal(oom_keys_find(&k, "defaults.num_key_value_heads")->type, OOM_KEY_NULL);
	assert_int_equal(oom_keys_find(&k, "defaults.tie_word_embeddings")->type, OOM_KEY_BOOL);
	assert_string_equal(oom_keys_find(&k, "architectures.causal-lm")->string,
			    "LlamaForCausalLM");
	oom_keys_release(&k);
	assert_int_equal(oom_keys_defaults(&k, "gpt2", &err), OOM_OK);
	assert_string_equal(oom_keys_find(&k, "aliases.n_embd")->string, "hidden_size");
	assert_float_equal(oom_keys_find(&k, "defaults.n_embd")->number, 768, 0);
	oom_keys_release(&k);
	assert_int_equal(oom_keys_defaults(&k, "llava", &err), OOM_OK);
	assert_string_equal(oom_keys_find(&k, "sub_configs.vision_config")->string,
			    "clip_vision_model");
	assert_float_equal(oom_keys_find(&k, "defaults.vision_config.image_size")->number, 336, 0);
	oom_keys_release(&k);
	assert_int_equal(oom_keys_defaults(&k, "bart", &err), OOM_OK);
	assert_float_equal(oom_keys_find(&k, "defaults.num_labels")->number, 3, 0);
	oom_keys_release(&k);
}

static void unknown_types(void **state)
{
	static const char *const names[] = {"",   "llam",     "llama2x", "llama\t{",
					    "\n", "defaults", "{"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_keys k = {0};

		assert_int_equal(oom_keys_defaults(&k, names[i], &err), OOM_ERR_UNKNOWN);
		assert_non_null(strstr(err.text, names[i]));
		assert_null(k.arena);
	}
}

/* Every line of the table: sorted, parseable, aliases that lead to one name in one step, sub
 * configs that exist. */
static void the_table_holds_together(void **state)
{
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/model_types.jsonl", "r");
	char *line = malloc(1 << 16), last[128] = "";
	size_t n = 0;

	(void)state;
	assert_non_null(f);
	assert_non_null(line);
	while (fgets(line, 1 << 16, f)) {
		char *tab = strchr(line, '\t');
		struct oom_error err = {{0}};
		struct oom_keys k = {0}, sub = {0};

		assert_non_null(tab);
		*tab = 0;
		assert_true(strcmp(last, line) < 0);
		snprintf(last, sizeof(last), "%s", line);
		if (oom_keys_defaults(&k, line, &err))
			fail_msg("%s: %s", line, err.text);
		assert_non_null(oom_keys_find(&k, "defaults"));
		for (size_t i = 0; i < k.n; i++) {
			if (strncmp(k.items[i].path, "aliases.", 8) == 0) {
				char path[160];

				snprintf(path, sizeof(path), "aliases.%s", k.items[i].string);
				if (oom_keys_find(&k, path))
					fail_msg("%s: %s leads to another alias", line,
						 k.items[i].path);
			}
			if (strncmp(k.items[i].path, "sub_configs.", 12) == 0 &&
			    k.items[i].string[0]) {
				assert_int_equal(oom_keys_defaults(&sub, k.items[i].string, &err),
						 OOM_OK);
				oom_keys_release(&sub);
			}
		}
		oom_keys_release(&k);
		n++;
	}
	fclose(f);
	free(line);
	assert_true(n > 400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_of_a_type),
		cmocka_unit_test(unknown_types),
		cmocka_unit_test(the_table_holds_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
