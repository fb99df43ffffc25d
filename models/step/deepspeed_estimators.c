/* DeepSpeed's own estimators, as published (deepspeed/runtime/zero/stage_1_and_2.py, stage3.py): held
 * beside ours, not used by it. */
#include "engines.h"

static double larger(double a, double b)
{
	return a > b ? a : b;
}

struct oom_ds_estimate oom_ds_estimate2(double n_params, double gpus_per_node, double nodes,
					bool offload)
{
	const double n = n_params, total = gpus_per_node * nodes, buffer = 1.5;

	if (offload)
		return (struct oom_ds_estimate){2 * n, n * larger(4 * total, 16) * buffer};
	/* 2 B of 16-bit weights; 18 B = 2 + 4 of gradients, 4 master, 8 Adam, divided */
	return (struct oom_ds_estimate){2 * n + 18 * n / total, n * 4 * gpus_per_node * buffer};
}

struct oom_ds_estimate oom_ds_estimate3(double n_params, double largest_layer, double gpus_per_node,
					double nodes, bool offload_optimizer, bool offload_params,
					bool zero_init)
{
	const double n = n_params, total = gpus_per_node * nodes, buffer = 1.5,
		     live = 4 * largest_layer;
	double gpu = live, cpu;

	if (offload_optimizer && offload_params) {
		cpu = n * 18 / nodes * buffer;
	} else if (offload_optimizer) {
		gpu += 2 * n / total;
		cpu = n * 16 / nodes * buffer;
	} else {
		gpu += 18 * n / total;
		cpu = (zero_init ? largest_layer : n) * 4 * gpus_per_node * buffer;
	}
	if (offload_optimizer && !zero_init)
		cpu = larger(n * 4 * gpus_per_node, n * (offload_params ? 18 : 16) / nodes) *
		      buffer;
	return (struct oom_ds_estimate){gpu, cpu};
}
