/* Evaluations a second: what a sweep or a search does many of. */
#include <stdio.h>

#include "figures.h"
#include "oomplan/ladder.h"

/* Microseconds of one; batch and length differ every time. */
static double each(struct oom_evaluator *ev, const struct oom_model *model, struct oom_plan *p)
{
	const double start = cpu_now();
	struct oom_error err = {""};
	struct oom_eval e;
	int n = 0;

	/* asking for the time is a call of the system: as long as an estimate */
	for (; n % 1024 || cpu_now() - start < 0.3; n++) {
		p->micro_batch = 1 + n % 64;
		p->seq_len = 512 + 8 * (n % 97);
		if (oom_evaluate(ev, model, p, OOM_EVAL_FAST, &e, &err))
			give_up("estimate", err.text);
	}
	return 1e6 * (cpu_now() - start) / n;
}

/* The ways to lay a model out over GPUs. */
static void layouts(struct oom_evaluator *ev, const struct oom_model *model)
{
	static const struct {
		const char *name;
		int engine, zero, gpus, nodes, hybrid, tp, pp;
		double aim;
	} rows[] = {
		{"estimate, one GPU", OOM_ENGINE_HF, 0, 1, 1, 0, 1, 1, 1},
		{"estimate, DDP", OOM_ENGINE_HF, 0, 8, 1, 0, 1, 1, 3},
		{"estimate, ZeRO-3", OOM_ENGINE_DEEPSPEED, 3, 64, 8, 0, 1, 1, 3},
		{"estimate, FSDP1", OOM_ENGINE_FSDP1, 3, 64, 8, 0, 1, 1, 3},
		{"estimate, FSDP2 hybrid", OOM_ENGINE_FSDP2, 3, 64, 8, 1, 1, 1, 3},
		{"estimate, device map", OOM_ENGINE_DEVICE_MAP, 0, 8, 1, 0, 1, 1, 3},
		{"estimate, Megatron", OOM_ENGINE_MEGATRON, 1, 64, 8, 0, 8, 4, 3},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = oom_plan_default();

		p.engine = rows[i].engine;
		p.zero_stage = rows[i].zero;
		p.gpus = rows[i].gpus;
		p.nodes = rows[i].nodes;
		p.hybrid_shard = rows[i].hybrid;
		p.tp = rows[i].tp;
		p.pp = rows[i].pp;
		p.precision = OOM_BF16;
		figure(rows[i].name, each(ev, model, &p), "us", rows[i].aim);
	}
}

void bench_estimate(void)
{
	const struct oom_plan plan = oom_plan_default();
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_model *model = NULL;
	struct oom_keys keys = {0};
	struct oom_error err = {""};
	struct oom_ladder ladder;
	double start;
	int n = 0;

	if (!ev || oom_keys_read_model(&keys, "Llama-3.1-8B", &err) || oom_model_new(&model, &keys, &err))
		give_up("Llama-3.1-8B", err.text);
	layouts(ev, model);
	for (start = cpu_now(); cpu_now() - start < 0.5; n++)
		if (oom_ladder_climb(ev, model, &plan, NULL, (uint64_t)40 << 30, OOM_ALLOW_SCIENCE, &ladder,
				     &err))
			give_up("ladder", err.text);
	figure("ladder, a recorded model", 1e6 * (cpu_now() - start) / n, "us", 1000);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
}
