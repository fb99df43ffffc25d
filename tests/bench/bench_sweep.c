/* How fast a sweep of 15 columns that take no replay is written, against `cat` copying the same
 * bytes to the same place; and smaller ones with the verdict, and with the bytes behind it, which
 * do.  Prints, asserts nothing.  bench_sweep OOMPLAN FOLDER [all]: with the third, 10^8 rows to
 * /dev/null as well. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COLUMNS "model,gpu,micro-batch,seq-len,grad-accum,optimizer,used_bytes_estimated,capacity_bytes,overall_peak_bytes," \
		"peak_phase,after_load_bytes,floor_bytes,total_params,trainable_params,error"

struct cost {
	double wall, cpu;
	long rss_kib;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* out: standard output, or NULL. */
static struct cost process(char *const argv[], const char *out)
{
	const double start = now();
	struct cost c = {0};
	struct rusage u;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if ((out && !freopen(out, "w", stdout)) || !freopen("/dev/null", "w", stderr))
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	wait4(pid, &status, 0, &u);
	c.wall = now() - start;
	c.cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
	c.rss_kib = u.ru_maxrss;
	if (status)
		printf("%s: status %d\n", argv[0], status);
	return c;
}

static struct cost best(char *const argv[], const char *out)
{
	struct cost b = process(argv, out);

	for (int i = 0; i < 4; i++) {
		const struct cost c = process(argv, out);

		b.wall = c.wall < b.wall ? c.wall : b.wall;
		b.cpu = c.cpu < b.cpu ? c.cpu : b.cpu;
		b.rss_kib = c.rss_kib > b.rss_kib ? c.rss_kib : b.rss_kib;
	}
	return b;
}

static void report(const char *what, double rows, struct cost c)
{
	printf("%-26s %6.2f M rows/s wall, %6.2f M rows/s a core of CPU time, %ld KiB (aims: 2 M "
	       "on 2 cores, 32768 KiB)\n",
	       what, rows / c.wall / 1e6, rows / c.cpu / 1e6, c.rss_kib);
}

int main(int argc, char **argv)
{
	/* 504 lengths x 64 batches x 4 accumulations x 4 optimizers x 2 cards */
	const double rows = 505.0 * 64 * 4 * 4 * 2;
	char table[1024], copy[1024];
	char *program = argc > 1 ? argv[1] : "oomplan";
	char *sweep[] = {program,     "sweep",
			 "--model",   "Llama-3.1-8B",
			 "--gpu",     "A100-80G",
			 "--gpu",     "H100-80G",
			 "--axis",    "seq-len=64..4096+8",
			 "--axis",    "micro-batch=1..64",
			 "--axis",    "grad-accum=1,2,4,8",
			 "--axis",    "optimizer=adamw,adamw-8bit,sgd,lion",
			 "--columns", COLUMNS,
			 "-q",	      "-o",
			 table,	      NULL};
	char *piped[] = {program,     "sweep",
			 "--model",   "Llama-3.1-8B",
			 "--gpu",     "A100-80G",
			 "--gpu",     "H100-80G",
			 "--axis",    "seq-len=64..4096+8",
			 "--axis",    "micro-batch=1..64",
			 "--axis",    "grad-accum=1,2,4,8",
			 "--axis",    "optimizer=adamw,adamw-8bit,sgd,lion",
			 "--columns", COLUMNS,
			 "-q",	      NULL};
	char *cat[] = {"cat", table, NULL};
	char *large[] = {program,     "sweep",
			 "--model",   "Llama-3.1-8B",
			 "--gpu",     "A100-80G",
			 "--axis",    "seq-len=1..10000",
			 "--axis",    "micro-batch=1..10000",
			 "--columns", "micro-batch,seq-len,used_bytes_estimated",
			 "-q",	      "-o",
			 "/dev/null", NULL};
	char *verdicts[] = {program,	 "sweep",
			    "--model",	 "Llama-3.1-8B",
			    "--gpu",	 "@all",
			    "--axis",	 "seq-len=512..4096+512",
			    "--axis",	 "micro-batch=1..8",
			    "--columns", "gpu,fits",
			    "-q",	 "-o",
			    "/dev/null", NULL};
	char *bytes[] = {program,     "sweep",
			 "--model",   "Llama-3.1-8B",
			 "--axis",    "seq-len=512..4096+512",
			 "--axis",    "micro-batch=1..8",
			 "--columns", "seq-len,used_bytes",
			 "-q",	      "-o",
			 "/dev/null", NULL};
	struct cost written, through, copied;
	struct stat st;

	snprintf(table, sizeof(table), "%s/bench_sweep.csv", argc > 2 ? argv[2] : ".");
	snprintf(copy, sizeof(copy), "%s/bench_sweep.copy", argc > 2 ? argv[2] : ".");
	setvbuf(stdout, NULL, _IONBF, 0);
	written = best(sweep, NULL);
	through = best(piped, copy);
	copied = best(cat, copy);
	if (stat(table, &st))
		return 1;
	printf("%.0f rows, 15 columns, %.0f MB\n", rows, (double)st.st_size / 1e6);
	report("sweep -o FILE (synced)", rows, written);
	report("sweep >FILE", rows, through);
	printf("%-26s %6.0f MB/s wall; the sweep has %.2f of its speed, %.2f without the sync "
	       "(aim: 0.33)\n",
	       "cat FILE >COPY", (double)st.st_size / copied.wall / 1e6, copied.wall / written.wall,
	       copied.wall / through.wall);
	unlink(table);
	unlink(copy);
	printf("fits: %.2f ms for 64 plans on every card; used_bytes: %.2f ms for the 64 plans\n",
	       1e3 * process(verdicts, NULL).wall, 1e3 * process(bytes, NULL).wall);
	if (argc > 3) {
		const struct cost c = process(large, NULL);

		report("10^8 rows to /dev/null", 1e8, c);
	}
	return 0;
}
