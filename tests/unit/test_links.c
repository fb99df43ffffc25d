/* Links between cards and machines, and what a collective over them takes: hand calculations on what data sheets state. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "card.h"
#include "oomplan/steptime.h"
#include "step/time/collectives.h"

static void links(void **state)
{
	static const struct {
		const char *interconnect;
		double capability, gb_s;        /* what a ring reaches, one way */
	} rows[] = {
		/* half of what is stated for both directions, 0.77 of it */
		{"NVLink4 900 GB/s", 9, 450 * 0.77},
		{"NVLink4+NVSwitch 900 GB/s", 9, 450 * 0.77},
		{"NVLink2 300 GB/s", 7, 150 * 0.77},
		{"NVLink bridge 600 GB/s, PCIe 5.0", 8, 300 * 0.77},
		{"Infinity Fabric 896 GB/s", 0, 448 * 0.77},
		/* 21 of 24 ports stay inside */
		{"24x100 GbE RoCE, 525 GB/s in a server", 0, 262.5 * 0.77},
		{"NVLink", 8, 300 * 0.77},
		{"NVLink+NVSwitch", 7, 150 * 0.77},
		/* PCIe: 12.5 GB/s in generation 3, twice as much in each later one; 0.45 of it */
		{"PCIe 3.0", 7.5, 12.5 * 0.45},
		{"PCIe 4.0", 8.6, 25 * 0.45},
		{"PCIe 4.0 x8", 8.6, 12.5 * 0.45},
		{"PCIe 5.0", 9, 50 * 0.45},
		{"", 8, 25 * 0.45},
		{"", 7, 12.5 * 0.45},
		/* slower than PCIe, which is there anyway */
		{"NVLink 9 GB/s", 8, 25 * 0.45},
		{" GB/s", 8, 25 * 0.45},
		{"PCIe 77777777777777", 8, 25 * 0.45},
	};
	const struct oom_plan p = oom_plan_default();

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct oom_gpu g = card(rows[i].interconnect, rows[i].capability);
		struct oom_speed s;

		oom_speed_of(&g, &p, &s);
		if (fabs(s.link / (rows[i].gb_s * 1e9) - 1) > 1e-9)
			fail_msg("%s: %g bytes per second, not %g GB/s", rows[i].interconnect, s.link,
				 rows[i].gb_s);
	}
}

/* A ring over nodes: the adapters of all GPUs of a node together, up to the link. */
static void rings(void **state)
{
	struct oom_speed s = {.link = 300e9, .network = 20e9, .nvlink = true};
	const struct oom_peers within = {8, 8}, across = {16, 8}, one_each = {4, 1}, alone = {1, 1};

	(void)state;
	assert_true(oom_ring_speed(&s, within) == 300e9);
	assert_true(oom_ring_speed(&s, across) == 160e9);
	assert_true(oom_ring_speed(&s, one_each) == 20e9);
	s.network = 100e9;
	assert_true(oom_ring_speed(&s, across) == 300e9);
	assert_true(oom_ring_seconds(&s, alone, 1e12, 100) == 0);
	assert_true(oom_exchange_seconds(&s, alone, 1e12, 100) == 0);
	/* 300 GB over 300 GB/s; no call, no latency */
	assert_true(fabs(oom_ring_seconds(&s, within, 300e9, 0) - 1) < 1e-12);
	/* every other rank of 16 is on the other node: half over the network, half over the link */
	assert_true(fabs(oom_exchange_seconds(&s, across, 300e9, 0) - (1.5 + 0.5)) < 1e-12);
	/* each call costs something, more over several nodes */
	assert_true(oom_ring_seconds(&s, across, 0, 10) > oom_ring_seconds(&s, within, 0, 10));
}

static void networks(void **state)
{
	struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_speed s;

	(void)state;
	p.gpus = 16;
	p.nodes = 2;
	/* 3200 Gbit/s a machine = 400 GB/s = 50 GB/s for each of 8 GPUs, three quarters of it */
	g.network_gbps = 3200;
	oom_speed_of(&g, &p, &s);
	assert_true(fabs(s.network / 37.5e9 - 1) < 1e-9);
	g.network_gbps = 100;
	oom_speed_of(&g, &p, &s);
	assert_true(fabs(s.network / (100.0 / 8 / 8 * 0.75e9) - 1) < 1e-9);
	/* the plan's own comes before its card's, and serves without one */
	p.network_gbps = 800;
	oom_speed_of(&g, &p, &s);
	assert_true(fabs(s.network / (800.0 / 8 / 8 * 0.75e9) - 1) < 1e-9);
	oom_speed_of(NULL, &p, &s);
	assert_true(fabs(s.network / (800.0 / 8 / 8 * 0.75e9) - 1) < 1e-9);
}

/* Trays of four cards that NVLink joins: 72 are as one machine, more are several. */
static void domains(void **state)
{
	struct oom_gpu gb200 = card("NVLink5 1800 GB/s", 10);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double alone, joined;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = p.tp = 64;
	p.nodes = 16;
	e.work.tensor_bytes = 1e12;
	e.work.tensor_calls = 1000;
	alone = oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR];
	gb200.nvlink_domain = 72;
	joined = oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR];
	/* 900 GB/s of NVLink one way, and 50 of four adapters each */
	assert_true(alone > 4 * joined);
	p.nodes = 1;
	assert_true(fabs(oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR] - joined) < 1e-12);
	p.gpus = p.tp = 144;
	p.nodes = 36;
	assert_true(oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR] > joined);
}

/* 8 copies of a token over 4 machines meet 4 (1 - 0.75^8) = 3.6 of them, of which three quarters are others:
 * 2.7 leave instead of 6, and all 8 travel inside. */
static void tokens_go_once_to_a_machine(void **state)
{
	const struct oom_gpu h100 = card("NVLink4 900 GB/s", 9);
	const struct oom_plan p = oom_plan_default();
	const struct oom_peers over = {32, 8}, within = {8, 8};
	const double once = 4 * (1 - pow(0.75, 8));
	struct oom_speed s;

	(void)state;
	oom_speed_of(&h100, &p, &s);
	/* 1 GB a copy */
	assert_true(fabs(oom_exchange_once_seconds(&s, over, 8e9, 0, 8) -
			 (once * 0.75 * 1e9 / (s.network / 0.75 * 0.87) + 8e9 / s.link)) < 1e-9);
	assert_true(oom_exchange_once_seconds(&s, over, 8e9, 0, 8) < oom_exchange_seconds(&s, over, 8e9, 0));
	assert_true(fabs(oom_exchange_once_seconds(&s, within, 8e9, 10, 8) -
			 oom_exchange_seconds(&s, within, 8e9, 10)) < 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links),   cmocka_unit_test(rings), cmocka_unit_test(networks),
		cmocka_unit_test(domains), cmocka_unit_test(tokens_go_once_to_a_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
