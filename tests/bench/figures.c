#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "figures.h"

static struct {
	char name[80];
	const char *unit;
	double value, aim;
} kept[100];
static size_t n_kept;

void give_up(const char *what, const char *why)
{
	fprintf(stderr, "bench: %s: %s\n", what, why);
	exit(1);
}

static double seconds(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double now(void)
{
	return seconds(CLOCK_MONOTONIC);
}

double cpu_now(void)
{
	return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(values[0]), by_value);
	return values[n / 2];
}

/* ---- processes ---- */

/* Runs once more, to be seen. */
static void show(char *const argv[])
{
	const pid_t pid = fork();

	if (!pid) {
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

struct cost timed(char *const argv[], const char *out)
{
	struct cost c = {0};
	struct rusage u;
	int status = 0;
	double start;
	pid_t pid;

	fflush(stdout);                 /* children must not inherit unwritten lines */
	start = now();
	pid = fork();
	if (!pid) {
		if (!freopen(out ? out : "/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &u) < 0)
		give_up(argv[0], strerror(errno));
	c.wall = now() - start;
	/* 1 is an answer too: it does not fit */
	if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
		show(argv);
		give_up(argv[0], "failed; nothing was timed");
	}
	c.cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
	c.rss_kib = u.ru_maxrss;
	return c;
}

struct cost timed_median(char *const argv[], const char *out, int runs)
{
	double wall[64], cpu[64];
	struct cost c = {0};

	if (runs > 64)
		runs = 64;
	for (int i = 0; i < runs; i++) {
		const struct cost one = timed(argv, out);

		wall[i] = one.wall;
		cpu[i] = one.cpu;
		c.rss_kib = one.rss_kib > c.rss_kib ? one.rss_kib : c.rss_kib;
	}
	c.wall = median(wall, runs);
	c.cpu = median(cpu, runs);
	return c;
}

/* ---- figures ---- */

void figure(const char *name, double value, const char *unit, double aim)
{
	printf("%-48s %12.3f %s", name, value, unit);
	if (aim > 0)
		printf(" (aim: %g)", aim);
	putchar('\n');
	fflush(stdout);
	if (n_kept == sizeof(kept) / sizeof(kept[0]))
		give_up(name, "more figures than there is room for");
	snprintf(kept[n_kept].name, sizeof(kept[0].name), "%s", name);
	kept[n_kept].unit = unit;
	kept[n_kept].value = value;
	kept[n_kept++].aim = aim;
}

void figures_write(const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f)
		give_up(path, strerror(errno));
	fprintf(f, "{\"schema\": \"oomplan-bench/1\",\n \"figures\": [");
	for (size_t i = 0; i < n_kept; i++)
		fprintf(f, "%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"aim\": %g}",
			i ? "," : "", kept[i].name, kept[i].value, kept[i].unit, kept[i].aim);
	fprintf(f, "\n]}\n");
	if (fclose(f))
		give_up(path, strerror(errno));
}
