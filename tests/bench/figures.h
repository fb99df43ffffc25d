/* What benchmarks share: a process timed, a figure said and kept for a file of them. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

/* A process, from fork to exit. */
struct cost {
	double wall, cpu;               /* seconds */
	long rss_kib;
};

/* Seconds, of a clock that only goes on. */
double now(void);
/* CPU seconds of this process. */
double cpu_now(void);
/* Sorts and returns the middle one. */
double median(double *values, int n);

/* Runs a command with its output in the file `out` (NULL: nowhere).  A command that fails is no figure:
 * its words are shown and the benchmark ends with status 1. */
struct cost timed(char *const argv[], const char *out);
/* Of so many runs the median wall and CPU time, and the largest memory. */
struct cost timed_median(char *const argv[], const char *out, int runs);

/* Prints a figure and keeps it.  Less is better, but of a unit "... per s".  aim: 0 for none. */
void figure(const char *name, double value, const char *unit, double aim);
/* Writes what was kept as JSON: {"schema": "oomplan-bench/1", "figures": [{"name", "value", "unit",
 * "aim"}]}. */
void figures_write(const char *path);
/* Ends with status 1 and these words. */
_Noreturn void give_up(const char *what, const char *why);

/* The parts, in files of their names. */
void bench_start(char *oomplan);        /* cold processes: the main job, boxes, a log */
void bench_estimate(void);              /* evaluations and ladders a second */
void bench_search(void);
void bench_sweep(char *oomplan, const char *folder);

#endif
