/* What a text itself says is special: in which part it fails and which works, the card, the limit and the share it names, a model
 * whose size its name gives. Texts of our own in the form of public threads (named per row); the expectations are what the
 * thread settled, or the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define OLD(tried, total, held, free, reserved) "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " free \
						" free; " reserved " reserved in total by PyTorch)\n"

/* What stands behind "but" is what fails, where something before it works. */
static void test_contrast(void **state)
{
	static const struct {
		const char *after, *text;
		enum oom_crash_phase phase;
	} rows[] = {
		{"paTRICK-swk/D3DP#9", "training evaluation CUDA out of memory\nwhen I am training on one card:\n" OLD("21.40 GiB", "23.70 GiB", "1.60 GiB", "20.10 GiB", "1.90 GiB")
				       "The training is all fine, but after training and in the evaluation part it occurs again.\n", OOM_CRASH_EVAL},
		{"JamesQFreeman/LoRA-ViT#6", "I can do a forward pass through my model with no issues, but trying to train it crashes with\n"
					     OLD("1.40 GiB", "15.78 GiB", "13.30 GiB", "1.20 GiB", "13.40 GiB"), OOM_CRASH_TRAIN_STEP},
		/* both work: the words alone decide, as before */
		{"own", "Training works, but evaluation works too.\n" OLD("1.40 GiB", "15.78 GiB", "13.30 GiB", "1.20 GiB", "13.40 GiB"), OOM_CRASH_TRAIN_STEP},
	};
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_crash c;

		assert_true(oom_crash_decode(rows[i].text, strlen(rows[i].text), &c));
		if (c.phase != rows[i].phase) {
			print_error("%s: %s, by %s\n", rows[i].after, oom_crash_phase_str(c.phase), c.phase_evidence);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_contrast)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
