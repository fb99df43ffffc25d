/* How fast: cold start of the main job against `true`, estimates and ladder walks a second.
 * Prints, asserts nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "oomplan/ladder.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median wall seconds of 21 runs; *rss_kib gets the largest peak. */
static double process(char *const argv[], long *rss_kib)
{
	double t[21];

	*rss_kib = 0;
	for (int i = 0; i < 21; i++) {
		const double start = now();
		struct rusage u;
		int status;
		pid_t pid = fork();

		if (!pid) {
			if (!freopen("/dev/null", "w", stdout) ||
			    !freopen("/dev/null", "w", stderr))
				_exit(126);
			execvp(argv[0], argv);
			_exit(127);
		}
		wait4(pid, &status, 0, &u);
		t[i] = now() - start;
		if (u.ru_maxrss > *rss_kib)
			*rss_kib = u.ru_maxrss;
	}
	qsort(t, 21, sizeof(t[0]), by_value);
	return t[10];
}

/* A catalogue of SkyPilot's size: 50,000 offers of eight cards. */
static bool write_offers(const char *path)
{
	static const char *const cards[] = {"T4",	 "L4",	 "A10G", "A100",
					    "A100-80GB", "H100", "L40S", "V100"};
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	fputs("InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,"
	      "SpotPrice\n",
	      f);
	for (int i = 0; i < 50000; i++)
		fprintf(f, "m%d,%s,%d.0,16,400,%.3f,r%d,,\n", i % 1000, cards[i / 7 % 8],
			1 << i % 4, 0.5 + i * 7919 % 10007 / 1000.0, i);
	return !fclose(f);
}

static void boxes(char *program, char *model)
{
	char list[] = "/tmp/oomplan-bench-XXXXXX.csv";
	char *const shipped[] = {program, "box",	 "--model", model, "--grad-ckpt",
				 "full",  "--precision", "bf16",    NULL};
	char *const many[] = {program,	      "box",	 "--model",	model,
			      "--grad-ckpt",  "full",	 "--precision", "bf16",
			      "--only-boxes", "--boxes", list,		NULL};
	const int fd = mkstemps(list, 4);
	long rss;
	double t = process(shipped, &rss);

	printf("box, shipped list:    %6.2f ms, %ld KiB (aim: 100 ms)\n", 1e3 * t, rss);
	if (fd < 0)
		return;
	close(fd);
	if (write_offers(list)) {
		t = process(many, &rss);
		printf("box, 50,000 offers:   %6.2f ms, %ld KiB (aim: 1000 ms)\n", 1e3 * t, rss);
	}
	unlink(list);
}

/* The slowest of the ways to lay a model out over GPUs. */
static void layouts(struct oom_evaluator *ev, const struct oom_model *model)
{
	static const struct {
		const char *name;
		int engine, zero, gpus, nodes, hybrid, tp, pp;
	} rows[] = {
		{"DDP", OOM_ENGINE_HF, 0, 8, 1, 0, 1, 1},
		{"ZeRO-3", OOM_ENGINE_DEEPSPEED, 3, 64, 8, 0, 1, 1},
		{"FSDP1", OOM_ENGINE_FSDP1, 3, 64, 8, 0, 1, 1},
		{"FSDP2 hybrid", OOM_ENGINE_FSDP2, 3, 64, 8, 1, 1, 1},
		{"device map", OOM_ENGINE_DEVICE_MAP, 0, 8, 1, 0, 1, 1},
		{"Megatron", OOM_ENGINE_MEGATRON, 1, 64, 8, 0, 8, 4},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;
		double t;
		int n = 0;

		p.engine = rows[i].engine;
		p.zero_stage = rows[i].zero;
		p.gpus = rows[i].gpus;
		p.nodes = rows[i].nodes;
		p.hybrid_shard = rows[i].hybrid;
		p.tp = rows[i].tp;
		p.pp = rows[i].pp;
		p.precision = OOM_BF16;
		for (t = now(); now() - t < 0.3; n++) {
			p.micro_batch = 1 + n % 64;
			p.seq_len = 512 + 8 * (n % 97);
			if (oom_evaluate(ev, model, &p, OOM_EVAL_FAST, &e, NULL))
				break;
		}
		printf("estimate, %-12s %5.2f us (aim: 3 us)\n", rows[i].name, 0.3e6 / n);
	}
}

int main(int argc, char **argv)
{
	char path[1024];
	char *const job[] = {
		argc > 1 ? argv[1] : "oomplan", "--model", path, "--gpu", "A100-40G", NULL};
	char *const nothing[] = {"true", NULL};
	struct oom_plan plan = oom_plan_default();
	struct oom_keys keys = {0};
	struct oom_model *model;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_ladder ladder;
	struct oom_eval e;
	double t, base;
	long rss;
	int n = 0;

	snprintf(path, sizeof(path), "%s/Llama-3.1-8B.json", argc > 2 ? argv[2] : "data/models");
	setvbuf(stdout, NULL, _IONBF, 0);       /* children must not inherit unwritten lines */
	base = process(nothing, &rss);
	printf("true:                 %6.2f ms, %ld KiB\n", 1e3 * base, rss);
	t = process(job, &rss);
	printf("oomplan, cold:        %6.2f ms, %ld KiB (aim: 5 ms, 8192 KiB)\n", 1e3 * t, rss);
	boxes(job[0], path);
	if (!ev || oom_keys_read(&keys, path, &err) || oom_model_new(&model, &keys, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	for (t = now(); now() - t < 1; n++) {
		plan.micro_batch = 1 + n % 64;
		plan.seq_len = 512 + 8 * (n % 97);
		if (oom_evaluate(ev, model, &plan, OOM_EVAL_FAST, &e, &err))
			return 1;
	}
	printf("estimate:             %6.2f us (aim: 2 us)\n", 1e6 / n);
	layouts(ev, model);
	plan = oom_plan_default();
	for (n = 0, t = now(); now() - t < 1; n++)
		if (oom_ladder_climb(ev, model, &plan, NULL, (uint64_t)40 << 30, OOM_ALLOW_SCIENCE,
				    &ladder, &err))
			return 1;
	printf("ladder:               %6.2f us (aim: 1000 us)\n", 1e6 / n);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	return 0;
}
