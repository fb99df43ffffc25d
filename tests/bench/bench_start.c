/* Cold processes, as a user meets them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "figures.h"

enum { RUNS = 21 };

/* A catalogue of SkyPilot's size: 50,000 offers of eight cards. */
static void write_offers(FILE *f)
{
	static const char *const cards[] = {"T4",   "L4",   "A10G", "A100", "A100-80GB",
					    "H100", "L40S", "V100"};

	fputs("InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,"
	      "SpotPrice\n",
	      f);
	for (int i = 0; i < 50000; i++)
		fprintf(f, "m%d,%s,%d.0,16,400,%.3f,r%d,,\n", i % 1000, cards[i / 7 % 8], 1 << i % 4,
			0.5 + i * 7919 % 10007 / 1000.0, i);
}

/* A training log of a gigabyte that ends in a crash. */
static void write_log(FILE *f)
{
	for (int i = 0; i < 11000000; i++)
		fprintf(f, "{'loss': %.4f, 'grad_norm': 1.03125, 'learning_rate': 1.99e-05, 'epoch': %.2f, "
			   "'step': %d}\n",
			2.5 - i / 1e7, i / 1e6, i);
	fputs("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB. GPU 0 has a total "
	      "capacity of 14.56 GiB of which 1.00 GiB is free. Of the allocated memory 12.10 GiB is "
	      "allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n",
	      f);
}

/* Runs a command over a file that is written first; {} in the arguments is its path. */
static struct cost over(char **argv, const char *ending, void (*write)(FILE *), int runs)
{
	char path[64];
	struct cost c;
	FILE *f;
	int fd;

	snprintf(path, sizeof(path), "/tmp/oomplan-bench-XXXXXX%s", ending);
	fd = mkstemps(path, (int)strlen(ending));
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		give_up(path, strerror(errno));
	write(f);
	if (fclose(f))
		give_up(path, strerror(errno));
	for (char **a = argv; *a; a++)
		if (!strcmp(*a, "{}"))
			*a = path;
	c = timed_median(argv, NULL, runs);
	unlink(path);
	return c;
}

void bench_start(char *oomplan)
{
	static char model[] = "Llama-3.1-8B";
	char *const nothing[] = {"true", NULL};
	char *const help[] = {oomplan, "--version", NULL};
	char *const job[] = {oomplan, "--model", model, "--gpu", "A100-40G", NULL};
	char *const shipped[] = {oomplan,	"box",	"--model", model, "--grad-ckpt", "full",
				 "--precision", "bf16", NULL};
	char *many[] = {oomplan,       "box",  "--model",      model,	  "--grad-ckpt", "full",
			"--precision", "bf16", "--only-boxes", "--boxes", "{}",		 NULL};
	char *log[] = {oomplan, "diagnose", "{}", NULL};
	struct cost c;

	figure("a process that does nothing", 1e3 * timed_median(nothing, NULL, RUNS).wall, "ms", 0);
	figure("start-up (--version)", 1e3 * timed_median(help, NULL, RUNS).wall, "ms", 2);
	c = timed_median(job, NULL, RUNS);
	figure("main job, cold", 1e3 * c.wall, "ms", 5);
	figure("main job, memory", (double)c.rss_kib, "KiB", 8192);
	figure("box, the shipped list", 1e3 * timed_median(shipped, NULL, 5).wall, "ms", 100);
	c = over(many, ".csv", write_offers, 5);
	figure("box, 50,000 offers", 1e3 * c.wall, "ms", 1000);
	figure("box, 50,000 offers, memory", (double)c.rss_kib, "KiB", 0);
	c = over(log, ".log", write_log, 1);
	figure("diagnose, a log of 1.1 GB", c.wall, "s", 3);
	figure("diagnose, a log of 1.1 GB, memory", (double)c.rss_kib, "KiB", 65536);
}
