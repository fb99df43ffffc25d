/* One regression of a calibration: stage.c fits it, stages.c says which there are. */
#ifndef OOM_CALIBRATE_STAGE_H
#define OOM_CALIBRATE_STAGE_H

#include "parts.h"

enum { SCALES = (1u << OOM_SCALES) - 1 };

/* One regression: the runs that measured what it needs, and its columns. */
struct stage {
	struct oom_calibration *c;
	struct oom_calibration_row **row;
	size_t n;
	enum oom_measure at;
	bool base;              /* the one that shows the scales */
	bool even;              /* W is one size for all runs */
	unsigned column[OOM_TERMS];     /* a bit for every term in it */
	size_t columns;
	double *x, *y, *residual;
	bool *outlier;
	double usual[OOM_TERMS];        /* of bytes: what is predicted on average; NAN: unknown */
	size_t *spent;                  /* columns fitted for each measure */
};

/* Fits of these terms what can be told apart; the others stand at their default. */
enum oom_status oom_stage_fit(struct stage *s, unsigned terms, struct oom_error *err);

#endif
