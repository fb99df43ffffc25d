/* Names of optimizers stand in three places: each optimizer's own words for optim= (models/step/optimizers.c), what
 * frameworks' readers make of words, and what their writers put.  Here they are held against each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/framework.h"
#include "frameworks/parts.h"
#include "step/optimizers.h"

/* Whose words they are: TrainingArguments' optim, and what axolotl takes besides (its utils/schemas/enums.py
 * CustomSupportedOptimizers). */
static const struct {
	const char *framework, *key;
} readers[] = {{"hf-trainer", "optim"}, {"axolotl", "optimizer"}, {"trl", "optim"}, {"llamafactory", "optim"}};

static const char *read_as(const char *framework, const char *key, const char *word, char *buf, size_t size)
{
	bool idle;
	const struct fw_row *row = framework_row(framework_find(framework), key, &idle);

	assert_non_null(row);
	word = row_value(row, word, buf, size);
	/* "=": whatever it is, as it stands */
	return word && strcmp(word, "=") ? word : NULL;
}

/* Words that are two optimizers', or whose update alone differs: what they are read as. */
static const struct {
	const char *word, *as;
} shared[] = {{"adam", "adamw"}, {"galore_adamw_layerwise", "galore"}, {"adalomo", "lomo"}};

static bool is_shared(const char *word, const char *name)
{
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
		if (!strcmp(shared[i].word, word))
			return !strcmp(shared[i].as, name);
	return false;
}

static void test_words(void **state)
{
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; oom_optimizer_choice(i); i++) {
		const struct oom_choice *o = oom_optimizer_choice(i);

		for (const char *w = o->setting; *w; w += strspn(w, " ")) {
			char word[64], buf[64];
			bool found = false;

			snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, " "), w);
			w += strlen(word);
			for (size_t r = 0; r < sizeof(readers) / sizeof(readers[0]); r++) {
				const char *as = read_as(readers[r].framework, readers[r].key, word, buf, sizeof(buf));

				if (as && strcmp(as, o->name) && !is_shared(word, as))
					fail_msg("%s: %s is %s, to optimizers.c it is %s", readers[r].framework, word, as, o->name);
				found |= as != NULL;
			}
			if (!found && !is_shared(word, o->name))
				fail_msg("%s of %s: no framework reads it", word, o->name);
			n++;
		}
	}
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
