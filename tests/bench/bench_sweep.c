/* Tables: one of 15 columns that take no replay, against `cat` copying the same bytes to the same place;
 * and smaller ones with verdicts, and with the bytes behind them, which do. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "figures.h"

enum { RUNS = 5 };
#define COLUMNS "model,gpu,micro-batch,seq-len,grad-accum,optimizer,used_bytes_estimated,capacity_bytes," \
		"overall_peak_bytes,peak_phase,after_load_bytes,floor_bytes,total_params,trainable_params,error"
/* 505 lengths x 64 batches x 4 accumulations x 4 optimizers x 2 cards */
#define ROWS (505.0 * 64 * 4 * 4 * 2)

static void rate(const char *what, struct cost c)
{
	char title[80];

	snprintf(title, sizeof(title), "%s, of CPU time", what);
	figure(title, ROWS / c.cpu / 1e6, "M rows per s", 4);
	snprintf(title, sizeof(title), "%s, wall", what);
	figure(title, ROWS / c.wall / 1e6, "M rows per s", 0);
}

/* The large table to a file and through a pipe's end, and its copy. */
static void large(char *oomplan, char *table, char *copy)
{
	char *sweep[] = {oomplan,  "sweep",
			 "--model", "Llama-3.1-8B",
			 "--gpu",   "A100-80G",
			 "--gpu",   "H100-80G",
			 "--axis",  "seq-len=64..4096+8",
			 "--axis",  "micro-batch=1..64",
			 "--axis",  "grad-accum=1,2,4,8",
			 "--axis",  "optimizer=adamw,adamw-8bit,sgd,lion",
			 "--columns", COLUMNS,
			 "-q",	    "-o",
			 table,	    NULL};
	char *cat[] = {"cat", table, NULL};
	const struct cost synced = timed_median(sweep, NULL, RUNS);
	struct cost through, copied;
	struct stat st;

	sweep[19] = NULL;               /* without -o */
	through = timed_median(sweep, copy, RUNS);
	copied = timed_median(cat, copy, RUNS);
	if (stat(table, &st))
		give_up(table, "is not there");
	rate("sweep -o FILE", synced);
	rate("sweep >FILE", through);
	figure("sweep >FILE, memory", (double)through.rss_kib, "KiB", 32768);
	figure("cat of the same table", (double)st.st_size / copied.wall / 1e6, "MB per s", 0);
}

void bench_sweep(char *oomplan, const char *folder)
{
	char table[1024], copy[1024];
	char *verdicts[] = {oomplan,  "sweep",	   "--model", "Llama-3.1-8B", "--gpu", "@all", "--axis",
			    "seq-len=512..4096+512", "--axis",	"micro-batch=1..8",
			    "--columns", "gpu,fits", "-q", "-o", "/dev/null", NULL};
	char *bytes[] = {oomplan, "sweep", "--model", "Llama-3.1-8B", "--axis", "seq-len=512..4096+512",
			 "--axis", "micro-batch=1..8", "--columns", "seq-len,used_bytes", "-q", "-o",
			 "/dev/null", NULL};

	snprintf(table, sizeof(table), "%s/bench_sweep.csv", folder);
	snprintf(copy, sizeof(copy), "%s/bench_sweep.copy", folder);
	large(oomplan, table, copy);
	unlink(table);
	unlink(copy);
	figure("sweep, verdicts of 64 plans on every card", 1e3 * timed_median(verdicts, NULL, RUNS).wall, "ms", 0);
	figure("sweep, bytes replayed for 64 plans", 1e3 * timed_median(bytes, NULL, RUNS).wall, "ms", 0);
}
