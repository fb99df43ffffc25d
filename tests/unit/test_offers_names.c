/* Which card a price list means by a name, its memory, its machine and its provider. */
#include "offers_case.h"

#define ANY OOM_FORM_UNSAID
#define PCIE OOM_FORM_PCIE
#define SXM OOM_FORM_SXM

/* What gpuhunt's constraints.py (@3584151) and SkyPilot's catalogues call cards, and the cards that they mean: by the
 * memory that a list states, by what eight in a machine are, slices by their parent, boards of two dies as two. */
static void test_names(void **state)
{
	static const struct {
		const char *name;
		double memory;
		enum oom_offer_form form;
		const char *card;               /* NULL: none */
		int each;
	} rows[] = {
		{"A10", 24, ANY, "A10", 1}, {"A10G", 24, ANY, "A10G", 1},
		{"H100", 80, ANY, "H100-PCIE-80GB", 1}, {"H100", 80, SXM, "H100-SXM5-80GB", 1},
		{"H100", 80, PCIE, "H100-PCIE-80GB", 1}, {"A100", 80, ANY, "A100-PCIE-80GB", 1},
		{"A100-80GB", 0, ANY, "A100-PCIE-80GB", 1}, {"A100", 80, SXM, "A100-SXM4-80GB", 1},
		{"A100", 40, ANY, "A100-PCIE-40GB", 1}, {"A100_80G_SXM4", 80, SXM, "A100-SXM4-80GB", 1},
		{"L40S", 48, SXM, "L40S", 1}, {"V100", 32, ANY, "V100-PCIE-32GB", 1},
		{"H100-MEGA-80GB", 0, ANY, "H100-SXM5-80GB", 1}, {"H100NVL", 94, ANY, "H100-NVL-94GB", 1},
		{"V100", 16, SXM, "V100-SXM2-16GB", 1}, {"V100", 32, SXM, "V100-SXM2-32GB", 1}, {"V100", 0, SXM, NULL, 1},
		{"RTX2060", 6, ANY, "RTX-2060", 1}, {"RTX2060", 12, ANY, "RTX-2060-12GB", 1},
		{"RTX3050", 6, ANY, "RTX-3050-6GB", 1}, {"RTX3060", 8, ANY, "RTX-3060-8GB", 1},
		{"RTX4060Ti", 16, ANY, "RTX-4060-Ti-16GB", 1}, {"RTX4060Ti", 8, ANY, "RTX-4060-Ti-8GB", 1},
		{"RTX5060Ti", 8, ANY, "RTX-5060-Ti-8GB", 1}, {"RTX_4090", 0, ANY, "RTX-4090", 1},
		{"RTX4090", 48, ANY, NULL, 1},    /* a modified card: the list says so by its size */
		{"GB200", 186, ANY, "GB200", 1}, {"GB300", 0, ANY, "GB300", 1}, {"B300", 270, SXM, "B300-SXM-288GB", 1},
		{"MI300X", 192, SXM, "MI300X", 1}, {"MI250", 128, ANY, "MI250X (one GCD)", 2},
		{"Gaudi", 32, SXM, "Gaudi", 1}, {"Gaudi3", 128, SXM, "Gaudi3", 1},
		{"A100-MIG-1g.5gb", 0, ANY, "A100-SXM4-40GB MIG 1g.5gb", 1},
		{"nvidia-a100-80gb-mig-2g.20gb", 0, ANY, "A100-SXM4-80GB MIG 2g.20gb", 1},
		{"H100-80GB-MIG-3g.40gb", 0, ANY, "H100-SXM5-80GB MIG 3g.40gb", 1},
		{"Intel Gaudi2", 0, ANY, "Gaudi2", 1}, {"AMD Instinct MI210", 0, ANY, "MI210", 1},
		{"GB300 NVL72", 0, ANY, "GB300", 1}, {"NVIDIA H100 NVL", 0, ANY, "H100-NVL-94GB", 1},
		{"RTX PRO 6000 Blackwell Server Edition", 0, ANY, "RTX-PRO-6000-Blackwell-Server", 1},
		{"Intel Data Center GPU Max 1550", 128, ANY, "Max-1550", 1},
		{"RTXPRO6000-SE", 0, ANY, "RTX-PRO-6000-Blackwell-Server", 1}, {"RTXPRO6000MQ", 0, ANY, "RTX-PRO-6000-Blackwell-MaxQ", 1},
		{"RTX4070TiS", 0, ANY, "RTX-4070-Ti-SUPER", 1}, {"RTX4080S", 16, ANY, "RTX-4080-SUPER", 1},
		{"mig-1g.10gb", 0, ANY, NULL, 1}, {"n300", 24, ANY, NULL, 1}, {"", 0, ANY, NULL, 1},
	};
	struct oom_error err = {{0}};
	struct oom_offer_words words = {0};
	struct oom_gpus gpus = {0};

	(void)state;
	assert_int_equal(oom_gpus_load(&gpus, &err), OOM_OK);
	assert_int_equal(oom_offer_words_make(&gpus, &words, &err), OOM_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int each = 1;
		const int32_t at = oom_offer_card(&gpus, &words, rows[i].name, rows[i].memory, rows[i].form, &each);
		const char *got = at < 0 ? NULL : gpus.items[at].name;

		if (!got != !rows[i].card || (got && (strcmp(got, rows[i].card) || each != rows[i].each)))
			fail_msg("%s of %g GB: %s x %d, not %s x %d", rows[i].name, rows[i].memory,
				 got ? got : "none", each, rows[i].card ? rows[i].card : "none", rows[i].each);
	}
	oom_offer_words_release(&words);
	oom_gpus_release(&gpus);
}

/* Three thousand names, four of a kind that differ in memory and form: each is found again, and no other. */
static void test_seen(void **state)
{
	struct oom_offer_seen seen = {0};
	struct oom_offer_name n;

	(void)state;
	for (int32_t i = 0; i < 12000; i++) {
		n = (struct oom_offer_name){.gpu_mem = i % 2 ? 80 : 0, .form = i & 2 ? OOM_FORM_SXM : OOM_FORM_PCIE, .gpu = i};
		snprintf(n.name, sizeof(n.name), "XPU-%d", i / 4);
		assert_null(oom_offer_seen(&seen, &n));
		assert_true(oom_offer_see(&seen, &n));
	}
	for (int32_t i = 0; i < 12000; i++) {
		n = (struct oom_offer_name){.gpu_mem = i % 2 ? 80 : 0, .form = i & 2 ? OOM_FORM_SXM : OOM_FORM_PCIE};
		snprintf(n.name, sizeof(n.name), "XPU-%d", i / 4);
		assert_non_null(oom_offer_seen(&seen, &n));
		assert_int_equal(oom_offer_seen(&seen, &n)->gpu, i);
	}
	free(seen.rows);
}

/* The form that the machine's name says, or that its provider has alone; what nobody says is counted. */
static void test_forms(void **state)
{
	static const char *const cards[] = {"H100-SXM5-80GB", "H100-PCIE-80GB", "A100-SXM4-80GB", "A100-PCIE-80GB",
					    "A100-PCIE-80GB", "A100-SXM4-80GB", "L40S"};
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "list.csv",
		  "provider,instance,gpu,gpu_count,gpu_memory_mib,ondemand_usd_h\n"
		  "p,a_gpu_1x_a100_sxm4,A100,1,81920,2\n"
		  "p,b_a100_pcie,A100-80GB,8,81920,2\n"
		  "p,c,A100,4,81920,2\n"
		  "p,d,A100,8,81920,2\n"
		  "p,e,L40S,8,49152,2\n"
		  "p,NVIDIA H100 80GB HBM3,H100,1,81920,2\n"
		  "p,NVIDIA H100 PCIe,H100,1,81920,2\n",
		  OOM_OK, &err);
	assert_int_equal(o.n, 7);
	for (size_t i = 0; i < o.n; i++)
		assert_string_equal(o.gpus.items[o.items[i].gpu].name, cards[i]);
	assert_int_equal(o.unsaid_form, 2);
	oom_offers_release(&o);
	/* a modified card is none of the table; the one that is named so is the nearest */
	read_text(&o, "list.csv", "provider,instance,gpu,gpu_count,gpu_memory_mib,ondemand_usd_h\nvast,a,RTX4090,1,49140,1\n",
		  OOM_OK, &err);
	assert_int_equal(o.n, 0);
	assert_string_equal(o.nearest[0], "RTX-4090");
	oom_offers_release(&o);
	/* a2-ultragpu-1g (data/boxes.csv) */
	read_text(&o, "list.csv", "provider,instance,gpu,gpu_count,ondemand_usd_h\ngcp,a,A100-80GB,1,5\n", OOM_OK, &err);
	assert_string_equal(o.gpus.items[o.items[0].gpu].name, "A100-SXM4-80GB");
	assert_int_equal(o.unsaid_form, 0);
	oom_offers_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_seen),
		cmocka_unit_test(test_forms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
