/* Pictures: who fills the card in each phase, and where in a grid a model fits. */
#ifndef OOM_CLI_PLOT_H
#define OOM_CLI_PLOT_H

#include "cli.h"
#include "oomplan/sweep.h"

/* The anatomy of every phase as stacked bars against the capacity; to the terminal in
 * characters. */
void oom_plot_svg(FILE *out, const struct oom_target *t, const struct oom_judged *j,
		  const struct oom_anatomy *a);
void oom_plot_text(FILE *out, const struct oom_target *t, const struct oom_eval *e,
		   const struct oom_anatomy *a);

/* A grid of two axes, each cell fitting, tight (less than a tenth of the card free), not fitting or
 * impossible.  x, y: names of axes of s; every other axis has one value.  path: an SVG file,
 * NULL for characters on standard output. */
enum oom_status oom_heatmap(struct oom_sweep *s, const struct oom_sweep_options *o, const char *x,
			    const char *y, const char *path, struct oom_error *err);

#endif
