/* How many of a card a word asks for: "8xA100-80G", "A100:8", "2x8xH100". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/gpu.h"

static void counts(void **state)
{
	static const struct {
		const char *word, *name;        /* NULL: no count in it */
		int64_t gpus, nodes;
	} cases[] = {
		{"8xA100-80G", "A100-80G", 8, 1},
		{"8 x A100-80G", "A100-80G", 8, 1},
		{"8XA100", "A100", 8, 1},
		{"8*A100", "A100", 8, 1},
		{"A100-80G:8", "A100-80G", 8, 1},
		{"A100-80G x8", "A100-80G", 8, 1},
		{"A100 X4", "A100", 4, 1},
		{"1xA10", "A10", 1, 1},
		{"2x8xH100", "H100", 16, 2},
		{"2 x 8 x H100", "H100", 16, 2},
		{"2xH100:8", "H100", 16, 2},
		{"99999xH100", "H100", 99999, 1},
		/* names with numbers in them */
		{"RTX 3090", NULL, 0, 1},
		{"RTX3090", NULL, 0, 1},
		{"A100", NULL, 0, 1},
		{"MI300X", NULL, 0, 1},
		{"4090", NULL, 0, 1},
		{"2xRTX 3090", "RTX 3090", 2, 1},
		{"2xMI300X", "MI300X", 2, 1},
		{"RTX 3090 x2", "RTX 3090", 2, 1},
		{"RTX-PRO-6000:2", "RTX-PRO-6000", 2, 1},
		/* what is no count */
		{"", NULL, 0, 1},
		{"x", NULL, 0, 1},
		{"8x", NULL, 8, 1},
		{"0xA100", NULL, 0, 1},
		{"A100:0", NULL, 0, 1},
		{":8", NULL, 8, 1},
		{"A100:", NULL, 0, 1},
		{"A100:many", NULL, 0, 1},
		{"999999xA100", NULL, 0, 1},
		{"A100:999999", NULL, 0, 1},
		{"-2xA100", NULL, 0, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_gpu_count c = {.name = "?"};

		if (oom_gpu_counted(cases[i].word, &c) != (cases[i].name != NULL))
			fail_msg("%s: %lld of \"%s\"", cases[i].word, (long long)c.gpus, c.name);
		if (!cases[i].name)
			continue;
		assert_string_equal(c.name, cases[i].name);
		assert_int_equal(c.gpus, cases[i].gpus);
		assert_int_equal(c.nodes, cases[i].nodes);
	}
}

static void a_name_that_is_too_long(void **state)
{
	struct oom_gpu_count c;
	char word[200];

	(void)state;
	memset(word, 'A', sizeof(word) - 1);
	word[sizeof(word) - 1] = 0;
	memcpy(word, "8x", 2);
	assert_false(oom_gpu_counted(word, &c));
	word[2 + sizeof(c.name) - 1] = 0;
	assert_true(oom_gpu_counted(word, &c));
	assert_int_equal(strlen(c.name), sizeof(c.name) - 1);
}

/* Every card of the table is found by its own name, by each of its aliases, and counted. */
static void every_card(void **state)
{
	struct oom_gpus gpus = {0};
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_gpus_load(&gpus, &err), OOM_OK);
	assert_true(gpus.n > 50);
	for (size_t i = 0; i < gpus.n; i++) {
		const struct oom_gpu *g = &gpus.items[i];
		struct oom_gpu_count c;
		struct oom_gpu found;
		char word[80], list[sizeof(g->aliases)], *at = NULL;

		if (oom_gpu_find(&gpus, g->name, &found, NULL, &err) || strcmp(found.name, g->name))
			fail_msg("%s is found as %s (%s)", g->name, found.name, err.text);
		snprintf(word, sizeof(word), "4x%s", g->name);
		if (!oom_gpu_counted(word, &c) || strcmp(c.name, g->name) || c.gpus != 4)
			fail_msg("%s: %lld of \"%s\"", word, (long long)c.gpus, c.name);
		if (oom_gpu_counted(g->name, &c))
			fail_msg("%s is taken for %lld of \"%s\"", g->name, (long long)c.gpus, c.name);
		memcpy(list, g->aliases, sizeof(list));
		for (char *a = strtok_r(list, ";", &at); a; a = strtok_r(NULL, ";", &at)) {
			if (oom_gpu_counted(a, &c))
				fail_msg("%s is taken for %lld of \"%s\"", a, (long long)c.gpus, c.name);
			if (!oom_gpu_may_be(&gpus, a, g->name))
				fail_msg("%s is not found by its alias %s", g->name, a);
		}
		/* what is known of it is plausible, and says where it comes from */
		assert_true(*g->vendor && *g->source && strlen(g->checked) >= 4);
		assert_true(g->memory_gb >= 2 && g->memory_gb < 1000);
		/* marketed gigabytes are 10^9 or 2^30 bytes, of which the driver and ECC take some; of memory that is the
		 * host's as well (so much of it is that slow nowhere else) the firmware says how much is the GPU's */
		if (g->memory_gb > 90 && g->bandwidth_gb_s < 300)
			continue;
		if ((double)g->capacity_bytes < 0.92e9 * g->memory_gb || (double)g->capacity_bytes > 1.0738e9 * g->memory_gb)
			fail_msg("%s: %.3f GB of %g", g->name, (double)g->capacity_bytes / 1e9, g->memory_gb);
		assert_true(g->bandwidth_gb_s == 0 || (g->bandwidth_gb_s > 50 && g->bandwidth_gb_s < 50000));
	}
	oom_gpus_release(&gpus);
}

/* Slices as torch (torch.cuda.get_device_name), Kubernetes' labels and resources, and people write them. */
static void slices(void **state)
{
	static const struct {
		const char *word, *name;        /* NULL: unknown */
		bool noted;                     /* several cards have it */
	} cases[] = {
		{"NVIDIA H100 80GB HBM3 MIG 3g.40gb", "H100-SXM5-80GB MIG 3g.40gb", false},
		{"NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "H100-SXM5-80GB MIG 3g.40gb", false},
		{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100-SXM4-80GB MIG 1g.10gb", false},
		{"NVIDIA H200 MIG 1g.18gb", "H200-SXM5-141GB MIG 1g.18gb", false},
		{"H100 3G.40GB", "H100-SXM5-80GB MIG 3g.40gb", false},
		{"A100-80GB-MIG-3g.40gb", "A100-SXM4-80GB MIG 3g.40gb", false},
		{"nvidia.com/mig-1g.23gb", "B200-SXM-180GB MIG 1g.23gb", false},
		{"1g.23gb+me", "B200-SXM-180GB MIG 1g.23gb", false},
		{"3g.40gb", "A100-SXM4-80GB MIG 3g.40gb", true},
		{"A100-MIG-1g.10gb", "A100-SXM4-80GB MIG 1g.10gb", true},
		{"A100 MIG 5g.33gb", NULL, false},
		{"T4 MIG 1g.10gb", NULL, false},
		{"1g.10gbx", NULL, false},
		{"g.10gb", NULL, false},
	};
	struct oom_gpus gpus = {NULL, 0};
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_gpus_load(&gpus, &err), OOM_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char note[256] = "";
		struct oom_gpu g = {.name = "none"};
		const bool found = oom_gpu_find(&gpus, cases[i].word, &g, note, &err) == OOM_OK;

		if (found != (cases[i].name != NULL) || (found && strcmp(g.name, cases[i].name)) ||
		    cases[i].noted != (*note != 0))
			fail_msg("%s is %s (%s%s)", cases[i].word, g.name, note, err.text);
	}
	oom_gpus_release(&gpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(a_name_that_is_too_long),
		cmocka_unit_test(every_card),
		cmocka_unit_test(slices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
