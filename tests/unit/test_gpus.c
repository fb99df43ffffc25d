/* The GPU table walked, and the spellings people use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/gpu.h"

static void every_row_has_a_source(void **state)
{
	struct oom_gpus g = {0};
	struct oom_gpu found;

	(void)state;
	assert_int_equal(oom_gpus_load(&g, NULL), OOM_OK);
	assert_true(g.n > 150);
	for (size_t i = 0; i < g.n; i++) {
		struct oom_error err = {{0}};

		if (!*g.items[i].source || !*g.items[i].checked || !g.items[i].capacity_bytes)
			fail_msg("%s: no source, date or capacity", g.items[i].name);
		if (oom_gpu_find(&g, g.items[i].name, &found, NULL, &err))
			fail_msg("%s does not find itself: %s", g.items[i].name, err.text);
	}
	oom_gpus_release(&g);
}

/* Without a rate a step is priced at 10 Tflop/s: only cards of before Volta, which have no units for 16 bit, may lack it. */
static void every_card_since_volta_has_a_rate(void **state)
{
	struct oom_gpus g = {0};

	(void)state;
	assert_int_equal(oom_gpus_load(&g, NULL), OOM_OK);
	for (size_t i = 0; i < g.n; i++) {
		const struct oom_gpu *c = &g.items[i];
		const bool old = c->compute_capability > 0 && c->compute_capability < 7;

		if (!old && !(c->bf16_tflops > 0 || c->fp16_tflops > 0))
			fail_msg("%s: no rate in 16 bit", c->name);
	}
	oom_gpus_release(&g);
}

static void spellings(void **state)
{
	static const char *const same[][2] = {
		{"a100-sxm4-40gb", "A100-SXM4-40GB"}, {"RTX 4090", "RTX-4090"}, {"4090", "RTX-4090"},
		{"NVIDIA GeForce RTX 4090", "RTX-4090"}, {"rtx_4090", "RTX-4090"},
		/* a name and its size, as shops and consoles write them */
		{"RTX 4090 24GB", "RTX-4090"}, {"T4 16GB", "T4"}, {"V100-32G", "V100-SXM2-32GB"}, {"3090-24g", "RTX-3090"},
		{"NVIDIA A40 48 GiB", "A40"}, {"H200-141G", "H200-SXM5-141GB"},
		/* one name for two sizes; names that clouds list (SkyPilot's accelerators.csv, gpuhunt's constraints.py) */
		{"H20", "H20"}, {"H20-3e", "H20-141GB"}, {"H20 141GB", "H20-141GB"}, {"MI308X", "MI308X"}, {"L20", "L20"},
		{"RTX4090D", "RTX-4090-D"}, {"GTX1660S", "GTX-1660-SUPER"}, {"RTX PRO 5000 72GB", "RTX-PRO-5000-Blackwell-72GB"},
	};
	static const char *const wrong[][2] = {
		{"T4 24GB", "T4 has 16 GB"}, {"24GB", "is a size, not a card: --gpu-memory"},
		{"24 GiB", "is a size, not a card"}, {"rtx 4091 24GB", "did you mean"},
	};
	struct oom_gpus g = {0};
	struct oom_gpu found;
	struct oom_error err = {{0}};
	char note[256];

	(void)state;
	assert_int_equal(oom_gpus_load(&g, NULL), OOM_OK);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		if (oom_gpu_find(&g, same[i][0], &found, note, &err))
			fail_msg("%s: %s", same[i][0], err.text);
		assert_string_equal(found.name, same[i][1]);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(oom_gpu_find(&g, wrong[i][0], &found, note, &err), OOM_ERR_UNKNOWN);
		if (!strstr(err.text, wrong[i][1]))
			fail_msg("%s: %s", wrong[i][0], err.text);
	}
	/* of the cards of that size, the smaller capacity */
	assert_int_equal(oom_gpu_find(&g, "V100-16G", &found, note, &err), OOM_OK);
	assert_true(found.memory_gb == 16 && strstr(note, "V100-SXM2-16GB"));
	/* one memory size, two cards: the smaller capacity, and it says so */
	assert_int_equal(oom_gpu_find(&g, "A100-40G", &found, note, &err), OOM_OK);
	assert_non_null(strstr(note, "PCIE"));
	/* different sizes: refused with the candidates */
	assert_int_equal(oom_gpu_find(&g, "a100", &found, note, &err), OOM_ERR_UNKNOWN);
	assert_non_null(strstr(err.text, "80"));
	assert_int_equal(oom_gpu_find(&g, "rtx 4091", &found, note, &err), OOM_ERR_UNKNOWN);
	assert_non_null(strstr(err.text, "4090"));
	oom_gpus_release(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_has_a_source), cmocka_unit_test(every_card_since_volta_has_a_rate),
					   cmocka_unit_test(spellings)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
