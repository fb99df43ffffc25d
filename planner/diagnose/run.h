/* What a log says about its run, line by line. */
#ifndef OOM_RUN_H
#define OOM_RUN_H

#include "parts.h"

/* The figures so far, and what is needed to go on: sums of a least-squares line. */
struct oom_run_reader {
	struct oom_crash_run run;
	double n, x, y, xx, yy, xy;     /* of (step, memory), from the first sample on */
	double x0, y0;
	uint64_t read;                  /* bytes looked at */
	uint64_t lines;
	bool evaluating;
	bool stepped;                   /* the line that is read has counted a step */
	int columns, step_column, loss_column, memory_column;   /* of a CSV log; -1: none */
	char memory_name[48];           /* that column's */
};
void oom_run_init(struct oom_run_reader *r);
/* [from, to): whole lines, or a last one without its end. */
void oom_run_lines(struct oom_run_reader *r, const char *from, const char *to);
/* The figures with their slope. */
void oom_run_close(const struct oom_run_reader *r, struct oom_crash_run *out);
/* Causes and evidence that only the run gives. */
void oom_run_causes(struct oom_crash *c, const struct oom_crash_log *log);

#endif
