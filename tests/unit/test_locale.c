/* A program that embeds the library may run in a locale with a decimal comma: no number that is read
 * or written may notice.  Needs the localedef program and the sources of de_DE; skipped without. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "oomplan/oomplan.h"

static char place[] = "/tmp/oomplan-locale-XXXXXX";

static int make_locale(void **state)
{
	char command[200];

	(void)state;
	if (!mkdtemp(place))
		return -1;
	snprintf(command, sizeof(command),
		 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", place);
	if (system(command))
		fprintf(stderr, "no locale with a decimal comma can be made\n");
	return setenv("LOCPATH", place, 1);
}

static int remove_locale(void **state)
{
	char command[60];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", place);
	return system(command);
}

/* Everything that reads or writes numbers, in one text; %a knows no comma but the C library's. */
struct all {
	double reals[12];
	uint64_t sizes[12];
	char texts[3][OOM_CALIBRATION_TEXT];
};

static void options(struct all *a)
{
	struct oom_plan p = oom_plan_default();
	char buf[40];

	assert_int_equal(oom_parse_real("2.5e-1", &a->reals[0], NULL), OOM_OK);
	assert_int_not_equal(oom_parse_real("2,5", &a->reals[1], NULL), OOM_OK);
	assert_int_equal(oom_parse_bytes("23.65GiB", &a->sizes[0], NULL), OOM_OK);
	assert_int_equal(oom_plan_set(&p, oom_knob_find("margin"), "2.5%", NULL), OOM_OK);
	assert_int_equal(oom_plan_set(&p, oom_knob_find("moe-imbalance"), "1.75", NULL), OOM_OK);
	a->reals[2] = p.margin;
	a->reals[3] = p.moe_imbalance;
	strcpy(a->texts[0], oom_plan_get(&p, oom_knob_find("margin"), buf, sizeof(buf)));
	strcat(a->texts[0], oom_write_real(0.1 + 0.2, buf, sizeof(buf)));
}

static void tables(struct all *a)
{
	struct oom_lengths lengths;
	struct oom_gpus gpus = {0};
	struct oom_gpu gpu;

	assert_int_equal(oom_gpus_load(&gpus, NULL), OOM_OK);
	assert_int_equal(oom_gpu_find(&gpus, "RTX-4090", &gpu, NULL, NULL), OOM_OK);
	a->reals[4] = gpu.compute_capability;
	a->reals[5] = gpu.bandwidth_gb_s;
	oom_gpus_release(&gpus);
	assert_int_equal(oom_lengths_read(&lengths, "lognormal:512:0.5", NULL, NULL), OOM_OK);
	a->reals[6] = lengths.mean;
	oom_lengths_release(&lengths);
}

static void files(struct all *a)
{
	static const char message[] =
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has "
		"a total capacity of 23.65 GiB of which 1.25 GiB is free.";
	struct oom_calibration c, back;
	struct oom_crash crash;

	assert_int_equal(oom_calibration_default(&c, NULL), OOM_OK);
	oom_calibration_write(&c, a->texts[1]);
	assert_int_equal(oom_calibration_parse(&back, a->texts[1], strlen(a->texts[1]), "it", NULL),
			 OOM_OK);
	assert_true(oom_crash_decode(message, strlen(message), &crash));
	a->sizes[1] = crash.bytes[OOM_CRASH_TRIED];
	a->sizes[2] = crash.bytes[OOM_CRASH_TOTAL];
	a->sizes[3] = crash.bytes[OOM_CRASH_FREE];
}

static void sweep(struct all *a)
{
	const struct oom_plan base = oom_plan_default();
	const struct oom_sweep_options o = {.threads = 2};
	struct oom_sweep *s = oom_sweep_new(&base);
	FILE *out = fmemopen(a->texts[2], sizeof(a->texts[2]), "w");
	uint64_t rows;

	assert_int_equal(oom_sweep_axis(s, "model=GPT-2", NULL), OOM_OK);
	assert_int_equal(oom_sweep_axis(s, "gpu=RTX-4090", NULL), OOM_OK);
	assert_int_equal(oom_sweep_axis(s, "lora-dropout=0.05,12.5%", NULL), OOM_OK);
	assert_int_equal(oom_sweep_axis(s, "lora-r=8", NULL), OOM_OK);
	assert_int_equal(oom_sweep_where(s, "used_bytes<23.5GiB", NULL), OOM_OK);
	assert_int_equal(oom_sweep_columns(s, "lora-dropout,used_bytes,seconds_per_sample", NULL),
			 OOM_OK);
	assert_int_equal(oom_sweep_run(s, &o, out, &rows, NULL), OOM_OK);
	assert_int_equal(rows, 2);
	fclose(out);
	oom_sweep_free(s);
}

static struct all *everything(void)
{
	struct all *a = calloc(1, sizeof(*a));

	options(a);
	tables(a);
	files(a);
	sweep(a);
	return a;
}

static void a_comma_changes_nothing(void **state)
{
	struct all *plain, *comma;
	char buf[20];

	(void)state;
	setlocale(LC_ALL, "C");
	plain = everything();
	if (!setlocale(LC_ALL, "de_DE.UTF-8") || *localeconv()->decimal_point != ',') {
		free(plain);
		skip();
	}
	snprintf(buf, sizeof(buf), "%.1f", 0.5);
	assert_string_equal(buf, "0,5");        /* the locale is one that could do harm */
	comma = everything();
	for (size_t i = 0; i < sizeof(plain->texts) / sizeof(plain->texts[0]); i++)
		assert_string_equal(comma->texts[i], plain->texts[i]);
	assert_memory_equal(comma->reals, plain->reals, sizeof(plain->reals));
	assert_memory_equal(comma->sizes, plain->sizes, sizeof(plain->sizes));
	snprintf(buf, sizeof(buf), "%.1f", 0.5);
	assert_string_equal(buf, "0,5");        /* and is the program's again */
	assert_true(plain->reals[4] > 8.85 && plain->reals[4] < 8.95);
	free(plain);
	free(comma);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_comma_changes_nothing)};

	return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
