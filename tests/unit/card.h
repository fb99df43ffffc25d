/* A card as tests of step times make one up: 300 TFLOP/s, 2 TB/s, without a limit of power. */
#ifndef OOM_TESTS_CARD_H
#define OOM_TESTS_CARD_H

#include <stdio.h>
#include <string.h>

#include "oomplan/gpu.h"

static struct oom_gpu card(const char *interconnect, double capability)
{
	struct oom_gpu g;

	memset(&g, 0, sizeof(g));
	snprintf(g.interconnect, sizeof(g.interconnect), "%s", interconnect);
	g.compute_capability = capability;
	g.bandwidth_gb_s = 2000;
	g.bf16_tflops = g.fp16_tflops = 300;
	g.tdp_w = 1e6;                  /* power is no limit */
	return g;
}

#endif
