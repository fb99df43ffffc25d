/* Price lists with their traps, and what is said of each offer: card, fabric, age of its price, storage, egress. */
#include "offers_case.h"

/* Header and traps of SkyPilot's v9 catalogues: 8.0 counts, a repr in quotes, a TPU row, an
 * accelerator without a machine. */
static void test_skypilot(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "nebius.csv",
		  "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
		  "gpu-h100_8,H100-80GB,8.0,128,1600,23.60,eu-north1,\"{'Gpus': [{'Name': 'H100'}]}\",10.00\n"
		  "gpu-h100_8,H100-80GB,8.0,128,1600,22.00,eu-north1,\"{'Gpus': [{'Name': 'H100'}]}\",0.00\n"
		  "cpu-8,,,8,32,0.20,eu-north1,,\n"
		  ",L4,1,,,0.7,us-central1,,0.2\n"
		  ",tpu-v6e-1,1,,,2.7,us-central1,,0.5\n"
		  "odd,H1000,8,1,1,700.0,x,,\n"
		  "slice,A10,0.33,6,55,0.454,x,,\n", OOM_OK, &err);
	assert_int_equal(o.n, 1);
	assert_string_equal(o.items[0].provider, "nebius");
	assert_int_equal(o.items[0].gpu_count, 8);
	assert_true(o.items[0].ondemand_usd_h == 22.00);        /* two zones: the cheaper */
	assert_true(o.items[0].spot_usd_h == 10.00);            /* 0.00 is no price */
	assert_int_equal(o.no_gpu, 2);
	assert_int_equal(o.shares, 2);
	assert_string_equal(o.share[0], "0.33 x A10 (slice)");
	assert_string_equal(o.share[1], "1 x L4, no machine");
	assert_int_equal(o.unknown_gpu, 1);
	assert_string_equal(o.unknown[0], "H1000");
	assert_int_equal(o.bad_price, 1);
	oom_offers_release(&o);
}

/* As SkyPilot's catalogues of 2026 are (skypilot-org/skypilot-catalog v8): Google's cards in rows of their own, vast's
 * shortened names and memory of all cards together, names that state form and memory, JSON in double quotes. */
static void test_catalogues(void **state)
{
	static const struct {
		const char *file, *text, *instance, *card;
		uint32_t count;
		double usd;
	} rows[] = {
		{"gcp.csv", "a2-highgpu-8g,,,96,680,z,r,5.9,,2.9\n,A100,8.0,,,z,r,23.5,\"{'Gpus': [{'Name': 'A100', 'MemoryInfo': "
			    "{'SizeInMiB': 40960}}]}\",9.4\n", "a2-highgpu-8g", "A100-SXM4-40GB", 8, 29.4},
		{"vast.csv", "2x-RTX_4060_Ti-32-65536,RTX4060,2,32,64,z,r,0.25,\"{'Gpus': [{'Name': 'RTX4060', 'MemoryInfo': "
			     "{'SizeInMiB': 32760}}]}\",0.00\n", "2x-RTX_4060_Ti-32-65536", "RTX-4060-Ti-16GB", 2, 0.25},
		{"vast.csv", "1x-H100_NVL-32-65536,H100,1,32,64,z,r,2.08,\"{'Gpus': [{'Name': 'H100', 'MemoryInfo': "
			     "{'SizeInMiB': 95830}}]}\",\n", "1x-H100_NVL-32-65536", "H100-NVL-94GB", 1, 2.08},
		{"gcp.csv", "n1-standard-8,,,8,30,z,r,0.4,,0.1\n,P100,1.0,,,z,r,1.5,P100,0.4\n", "n1-standard-8", "P100-PCIE-16GB", 1, 1.9},
		{"hyperstack.csv", "n3,A100-80G-PCIe-NVLink,8,32,64,z,r,11.2,,\n", "n3", "A100-PCIE-80GB", 8, 11.2},
		/* sky/catalog/data_fetchers/fetch_azure.py @0089fca: one name and no memory for what its families have */
		{"azure.csv", "Standard_NC40ads_H100_v5,H100,1,40,320,z,r,6.98,H100,\n", "Standard_NC40ads_H100_v5", "H100-NVL-94GB", 1, 6.98},
		{"azure.csv", "Standard_ND48s_H100_v5,H100,4,48,950,z,r,49,H100,\n", "Standard_ND48s_H100_v5", "H100-SXM5-80GB", 4, 49},
		{"azure.csv", "Standard_NC48ads_A100_v4,A100-80GB,2,48,440,z,r,7.3,A100-80GB,\n", "Standard_NC48ads_A100_v4",
		 "A100-PCIE-80GB", 2, 7.3},
		{"azure.csv", "Standard_NC128ds_xl_RTXPRO6000BSE_v6,RTXPRO6000,1,128,512,z,r,4,RTXPRO6000,\n",
		 "Standard_NC128ds_xl_RTXPRO6000BSE_v6", "RTX-PRO-6000-Blackwell-Server", 1, 4},
		{"aws.csv", "g7e.2xlarge,RTXPRO6000,1,8,64,z,r,3.4,RTXPRO6000,\n", "g7e.2xlarge", "RTX-PRO-6000-Blackwell-Server", 1, 3.4},
		{"spheron.csv", "h,H100_SXM5,1.0,32,64,z,r,2.9,\"{\"\"Gpus\"\": [{\"\"MemoryInfo\"\": {\"\"SizeInMiB\"\": "
				"81920}}]}\",\n", "h", "H100-SXM5-80GB", 1, 2.9},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_offers o = {0};
		struct oom_error err = {{0}};
		char text[600];

		snprintf(text, sizeof(text), "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,AvailabilityZone,Region,Price,"
					     "GpuInfo,SpotPrice\n%s", rows[i].text);
		read_text(&o, rows[i].file, text, OOM_OK, &err);
		assert_int_equal(o.n, 1);
		assert_string_equal(o.items[0].instance, rows[i].instance);
		assert_string_equal(o.gpus.items[o.items[0].gpu].name, rows[i].card);
		assert_int_equal(o.items[0].gpu_count, rows[i].count);
		assert_true(o.items[0].ondemand_usd_h > rows[i].usd - 1e-9 && o.items[0].ondemand_usd_h < rows[i].usd + 1e-9);
		oom_offers_release(&o);
	}
}

/* gpuhunt: a row for each price; sizes tell the A100s apart; GB, not GiB. */
static void test_gpuhunt(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "runpod.csv",
		  "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,provider_data\n"
		  "a,US,1.6,16,125,1,A100,80,False,500,nvidia,,x86,{}\n"
		  "a,US,0.9,16,125,1,A100,80,True,500,nvidia,,x86,{}\n"
		  "b,US,1.0,16,125,1,A100,40,False,,nvidia,,x86,{}\n", OOM_OK, &err);
	assert_int_equal(o.n, 2);
	assert_true(o.gpus.items[o.items[0].gpu].memory_gb == 80);
	assert_true(o.items[0].ondemand_usd_h == 1.6 && o.items[0].spot_usd_h == 0.9);
	assert_true(o.gpus.items[o.items[1].gpu].memory_gb == 40);
	assert_true(isnan(o.items[1].disk_gib));
	oom_offers_release(&o);
}

/* `dstack offer --json` (print_offers_json) and gpuhunt's items: MiB there, GB here; a row that
 * is neither is counted. */
static void test_json(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "list.json",
		  "{\"total\":1,\"offers\":[{\"backend\":\"aws\",\"region\":\"us\",\"instance_type\":\"g\",\"resources\":{\"cpus\":4,"
		  "\"memory_mib\":16384,\"spot\":true,\"gpus\":[{\"name\":\"T4\",\"memory_mib\":16384},{\"name\":\"T4\",\"memory_mib\":16384}]},"
		  "\"price\":0.5},7,{\"instance_name\":\"x\",\"gpu_name\":\"H1000\",\"gpu_count\":1},"
		  "{\"instance_name\":\"y\",\"provider\":\"lambda\",\"gpu_name\":\"A100\",\"gpu_memory\":80,\"gpu_count\":1,\"price\":\"$2\"}]}",
		  OOM_OK, &err);
	assert_int_equal(o.n, 2);
	assert_string_equal(o.items[0].provider, "aws");
	assert_int_equal(o.items[0].gpu_count, 2);
	assert_true(o.items[0].host_ram_gib == 16 && o.items[0].spot_usd_h == 0.5 &&
		    isnan(o.items[0].ondemand_usd_h));
	assert_true(o.gpus.items[o.items[1].gpu].memory_gb == 80 &&
		    isnan(o.items[1].ondemand_usd_h));
	assert_int_equal(o.malformed, 1);
	assert_int_equal(o.unknown_gpu, 1);
	assert_int_equal(o.bad_number, 1);
	oom_offers_release(&o);
	/* models/instances.py: 100 GiB is what it asks for where nobody names a disk, another size is one */
	read_text(&o, "disk.json",
		  "[{\"backend\":\"aws\",\"region\":\"a\",\"price\":1,\"instance\":{\"name\":\"g\",\"resources\":{\"gpus\":[{\"name\":\"T4\","
		  "\"memory_mib\":16384}],\"disk\":{\"size_mib\":102400}}}},"
		  "{\"backend\":\"aws\",\"region\":\"b\",\"price\":1,\"instance\":{\"name\":\"g\",\"resources\":{\"gpus\":[{\"name\":\"T4\","
		  "\"memory_mib\":16384}],\"disk\":{\"size_mib\":51200}}}}]", OOM_OK, &err);
	assert_int_equal(o.n, 2);
	assert_true(isnan(o.items[0].disk_gib) && o.items[1].disk_gib == 50);
	oom_offers_release(&o);
	read_text(&o, "open.json", "[{\"instance_name\":\"x\"", OOM_ERR_PARSE, &err);
	read_text(&o, "null.json", "[null,{\"backend\":null,\"resources\":5}]", OOM_OK, &err);
	assert_int_equal(o.malformed, 1);       /* an offer without a card, and a null */
	assert_int_equal(o.no_gpu, 1);
	oom_offers_release(&o);
	read_text(&o, "none.json", "{\"a\":1}", OOM_ERR_INVALID, &err);
	oom_offers_release(&o);
}

/* dstack says which offers can be taken (core/models/instances.py InstanceAvailability): three words mean yes. */
static void test_availability(void **state)
{
	static const struct {
		const char *word;
		size_t n;
	} cases[] = {{"available", 1}, {"unknown", 1}, {"idle", 1}, {"not_available", 0}, {"no_quota", 0}, {"busy", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_offers o = {0};
		struct oom_error err = {{0}};
		char text[400];

		snprintf(text, sizeof(text),
			 "[{\"backend\":\"aws\",\"region\":\"a\",\"price\":1,\"availability\":\"%s\",\"instance\":{\"name\":\"g\","
			 "\"resources\":{\"gpus\":[{\"name\":\"T4\",\"memory_mib\":16384}]}}}]", cases[i].word);
		read_text(&o, "had.json", text, OOM_OK, &err);
		assert_int_equal(o.n, cases[i].n);
		assert_int_equal(o.unavailable, 1 - cases[i].n);
		oom_offers_release(&o);
	}
}

/* Accelerators that are no GPUs, other currencies, several kinds in one machine, an unknown disk. */
static void test_others(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "hotaisle.csv",
		  "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,provider_data\n"
		  "a,x,2,8,64,1,v5litepod-1,0,False,,google,,x86,{}\n"
		  "b,x,2,8,64,1,n300,24,False,,tenstorrent,,x86,{}\n"
		  "c,x,2,8,64,4,MI250,128,True,,amd,,x86,{}\n",
		  OOM_OK, &err);
	assert_int_equal(o.no_gpu, 2);
	assert_int_equal(o.n, 1);
	assert_int_equal(o.items[0].gpu_count, 8);
	assert_true(o.items[0].host_ram_gib == 64 && isnan(o.items[0].ondemand_usd_h) && o.items[0].spot_usd_h == 2);
	oom_offers_release(&o);
	read_text(&o, "own.csv",
		  "provider,instance,gpu,gpu_count,ondemand_usd_h,currency\np,a,T4,1,2,EUR\np,b,T4,1,$2/h,USD\n", OOM_OK, &err);
	assert_int_equal(o.n, 2);
	assert_true(isnan(o.items[0].ondemand_usd_h) && o.items[1].ondemand_usd_h == 2);
	assert_int_equal(o.bad_price, 1);
	oom_offers_release(&o);
	read_text(&o, "offers.json",
		  "{\"offers\":[{\"backend\":\"gcp\",\"region\":\"r\",\"price\":1,\"instance\":{\"name\":\"m\",\"resources\":{\"cpus\":4,"
		  "\"memory_mib\":4096,\"gpus\":[{\"name\":\"T4\",\"memory_mib\":16384,\"vendor\":\"nvidia\"},{\"name\":\"L4\",\"memory_mib\":24576}]}}},"
		  "{\"backend\":\"gcp\",\"region\":\"r\",\"price\":1,\"instance\":{\"name\":\"t\",\"resources\":{\"cpus\":4,\"memory_mib\":4096,"
		  "\"gpus\":[{\"name\":\"v6e-8\",\"memory_mib\":0,\"vendor\":\"google\"}]}}},"
		  "{\"backend\":\"aws\",\"region\":\"r\",\"price\":1,\"instance\":{\"name\":\"g\",\"resources\":{\"cpus\":4,\"memory_mib\":4096,"
		  "\"gpus\":[{\"name\":\"T4\",\"memory_mib\":16384,\"vendor\":\"nvidia\"}],\"spot\":true,\"disk\":{\"size_mib\":0}}}}],\"total_offers\":3}",
		  OOM_OK, &err);
	assert_int_equal(o.malformed, 1);
	assert_int_equal(o.no_gpu, 1);
	assert_int_equal(o.n, 1);
	assert_true(isnan(o.items[0].disk_gib) && o.items[0].spot_usd_h == 1);
	oom_offers_release(&o);
}

static void test_malformed(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "x.csv", "name,price\na,1\n", OOM_ERR_INVALID, &err);
	assert_non_null(strstr(err.text, "gpu_count"));
	read_text(&o, "y.csv",
		  "provider,instance,gpu,gpu_count,ondemand_usd_h,host_ram_gib\np,i,T4,many,12 "
		  "EUR,-3\n",
		  OOM_OK, &err);
	assert_int_equal(o.n, 0);
	assert_int_equal(o.shares, 1);          /* no usable count */
	assert_true(o.bad_number >= 2);
	oom_offers_release(&o);
	assert_int_equal(oom_price_age_days("sometime"), -1);
	assert_true(oom_price_age_days("2020") > 365);
}

/* SkyPilot's lists say a card's memory in GpuInfo: MiB, in shadeform's GB; names as lists of today write them. */
static void test_stated_memory(void **state)
{
	static const struct {
		const char *instance, *card;
	} want[] = {{"a", "A100-SXM4-80GB"}, {"b", "A100-SXM4-40GB"},  {"c", "V100-PCIE-16GB"},
		    {"d", "A100-PCIE-40GB"}, {"e", "RTX-PRO-6000-Blackwell-WS"}, {"f", "Gaudi"},
		    {"g", "B300-SXM-288GB"}};
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "sky.csv",
		  "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
		  "a,A100,8.0,96,960,16,x,\"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 81920}}]}\",\n"
		  "b,A100,8.0,96,960,11,x,\"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40}}]}\",\n"
		  "c,V100,1.0,8,30,2,x,\"{'Gpus': [{'Name': 'V100', 'MemoryInfo': {'SizeInMiB': 16}}]}\",\n"
		  "d,A100,1,8,90,3,x,,\n"
		  "e,RTXPRO6000-WK,1.0,64,251,1.4,x,,\n"
		  "f,Gaudi HL-205,8,96,768,13,x,,\n"
		  "g,B300,8.0,224,1890,62,x,\"{'Gpus': [{'Name': 'B300', 'MemoryInfo': {'SizeInMiB': 275456}}]}\",\n",
		  OOM_OK, &err);
	assert_int_equal(o.n, 7);
	for (size_t i = 0; i < o.n; i++) {
		assert_string_equal(o.items[i].instance, want[i].instance);
		assert_string_equal(o.gpus.items[o.items[i].gpu].name, want[i].card);
	}
	oom_offers_release(&o);
}

/* Which machines train together, and which prices are old. */
static void test_fabrics(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	static const struct {
		const char *instance;
		bool clusters, stale;
		double storage, egress;         /* the list's, else its provider's; -1: nobody says */
	} want[] = {{"a", true, true, 0.08, 0.01}, {"e", true, false, 0.08, 0.09}, {"b", false, false, 0.2, 0},
		    {"c", true, false, 0.2, 0}, {"f", true, false, -1, -1}, {"g", false, false, -1, -1}, {"d", false, false, -1, -1}};

	(void)state;
	read_text(&o, "own.csv",
		  "provider,instance,gpu,gpu_count,network_gbps,ondemand_usd_h,price_date,egress_usd_gib\n"
		  "aws,a,A10G,1,10,1,2020-01-01,0.01\n"        /* a network that is named */
		  "aws,e,GB200,4,,40,2999,\n"                  /* a tray: NVLink joins 72 cards */
		  "lambda,b,H100-SXM5-80GB,1,,2,2999,\n"       /* none, and one card */
		  "lambda,c,H100-SXM5-80GB,8,,20,2999,\n"      /* eight that a cloud links */
		  "other,f,H100-SXM5-80GB,8,,20,2999,\n"       /* and one that has no row */
		  "vast,d,H100-SXM5-80GB,8,100,15,2999,\n"     /* let by private hosts */
		  "spheron,g,H100-SXM5-80GB,8,,15,2999,\n",    /* and by the clouds behind it */
		  OOM_OK, &err);
	assert_int_equal(o.n, 7);
	for (size_t i = 0; i < o.n; i++) {
		assert_string_equal(o.items[i].instance, want[i].instance);
		assert_int_equal(o.items[i].clusters, want[i].clusters);
		assert_int_equal(oom_offer_is_stale(&o.items[i]), want[i].stale);
		if (want[i].storage < 0)
			assert_true(isnan(o.items[i].storage_usd_gib_month) && isnan(o.items[i].egress_usd_gib));
		else
			assert_true(o.items[i].storage_usd_gib_month == want[i].storage &&
				    o.items[i].egress_usd_gib == want[i].egress);
	}
	oom_offers_release(&o);
}

/* Slices of cards train alone (NVIDIA/nccl#1716): one to a machine, and no machines together. */
static void test_slices(void **state)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};

	(void)state;
	read_text(&o, "own.csv",
		  "provider,instance,gpu,gpu_count,network_gbps,ondemand_usd_h\n"
		  "p,one,A100-SXM4-80GB MIG 3g.40gb,1,100,1\n"
		  "p,seven,H100-SXM5-80GB MIG 1g.10gb,7,100,3\n", OOM_OK, &err);
	assert_int_equal(o.n, 1);
	assert_string_equal(o.items[0].instance, "one");
	assert_false(o.items[0].clusters);
	assert_int_equal(o.shares, 1);
	assert_string_equal(o.share[0], "7 x H100-SXM5-80GB MIG 1g.10gb (seven)");
	oom_offers_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skypilot),
		cmocka_unit_test(test_catalogues),
		cmocka_unit_test(test_gpuhunt),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_availability),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_stated_memory),
		cmocka_unit_test(test_fabrics),
		cmocka_unit_test(test_slices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
