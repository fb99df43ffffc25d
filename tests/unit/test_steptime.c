/* The links of the roofline: hand calculations on round numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/steptime.h"

/* DDP over 8 GPUs, 8 GB of gradients: a ring moves 2 x 8 x 7/8 = 14 GB over each link, half of it
 * hidden. */
static double comm_s(const char *interconnect, double capability, int nodes, double gbps)
{
	struct oom_plan p = oom_plan_default();
	struct oom_gpu g;
	struct oom_eval e;

	memset(&g, 0, sizeof(g));
	memset(&e, 0, sizeof(e));
	snprintf(g.interconnect, sizeof(g.interconnect), "%s", interconnect);
	g.compute_capability = capability;
	g.network_gbps = gbps;
	g.bandwidth_gb_s = 2000;
	g.bf16_tflops = 300;
	e.grad_bytes = 8000000000;
	p.gpus = 8;
	p.nodes = nodes;
	return oom_step_time(&p, &e, &g).comm_s;
}

static void links(void **state)
{
	static const struct {
		const char *interconnect;
		double capability;
		int nodes;
		double gbps, gb_s;      /* what is reached, one way */
	} rows[] = {
		{"NVLink4 900 GB/s", 9, 1, 0, 450 * 0.7},
		{"NVLink4+NVSwitch 900 GB/s", 9, 1, 3200, 450 * 0.7},
		{"NVLink2 300 GB/s", 7, 1, 0, 150 * 0.7},
		{"NVLink bridge 600 GB/s, PCIe 5.0", 8, 1, 0, 300 * 0.7},
		{"Infinity Fabric 896 GB/s", 0, 1, 0, 448 * 0.7},
		{"NVLink", 8, 1, 0, 300 * 0.7},
		{"NVLink+NVSwitch", 7, 1, 0, 150 * 0.7},
		{"PCIe 4.0", 8.6, 1, 0, 20 * 0.7},
		{"", 8, 1, 0, 20 * 0.7},
		/* slower than PCIe, which is there anyway */
		{"NVLink 9 GB/s", 8, 1, 0, 20 * 0.7},
		{" GB/s", 8, 1, 0, 20 * 0.7},
		/* between nodes: 3200 Gbit/s = 400 GB/s; 100 Gbit/s; unknown */
		{"NVLink4 900 GB/s", 9, 2, 3200, 400 * 0.7},
		{"NVLink4 900 GB/s", 9, 2, 100, 12.5 * 0.7},
		{"NVLink4 900 GB/s", 9, 2, 0, 12.5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const double want = 0.5 * 14 / rows[i].gb_s,
			     got = comm_s(rows[i].interconnect, rows[i].capability, rows[i].nodes,
					  rows[i].gbps);

		if (fabs(got / want - 1) > 1e-9)
			fail_msg("%s over %d nodes: %g s, not %g", rows[i].interconnect,
				 rows[i].nodes, got, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(links)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
