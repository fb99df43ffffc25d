/* A calibration as text; file.c has the form, and reads it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/calibrate.h"
#include "oomplan/units.h"

static void add(char *text, const char *fmt, ...) OOM_PRINTF(2, 3);
static void add(char *text, const char *fmt, ...)
{
	const size_t used = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + used, OOM_CALIBRATION_TEXT - used, fmt, ap);
	va_end(ap);
}

void oom_calibration_write(const struct oom_calibration *c, char text[OOM_CALIBRATION_TEXT])
{
	const struct oom_locale locale = oom_locale_enter();

	*text = 0;
	add(text, "oomplan-calibration %d\n", OOM_CALIBRATION_VERSION);
	add(text, "# term, state, regression, value, standard error, its degrees of freedom, "
		  "default, with which terms\n");
	for (int k = 0; k < OOM_TERMS; k++) {
		const struct oom_overhead *t = &c->term[k];
		bool first = true;

		add(text, "term %s %s %s %.17g %.17g %.17g", oom_term_name((enum oom_term)k),
		    oom_term_state_str(t->state), oom_measure_str(t->from), t->value, t->se,
		    t->dof);
		if (isnan(t->def))
			add(text, " - ");
		else
			add(text, " %.17g ", t->def);
		for (int l = 0; l < OOM_TERMS; l++)
			if (t->with >> l & 1) {
				add(text, "%s%s", first ? "" : "+",
				    oom_term_name((enum oom_term)l));
				first = false;
			}
		add(text, "%s\n", first ? "-" : "");
	}
	for (int k = 0; k < OOM_TERMS; k++)
		for (int l = k; l < OOM_TERMS; l++)
			if (fabs(c->cov[k][l]) > 0)
				add(text, "cov %s %s %.17g\n", oom_term_name((enum oom_term)k),
				    oom_term_name((enum oom_term)l), c->cov[k][l]);
	add(text, "# spread of one run: share of the prediction, bytes, degrees of freedom, runs, "
		  "outliers\n");
	for (int m = 0; m < OOM_MEASURES; m++)
		add(text, "spread %s %.17g %.17g %.17g %zu %zu\n",
		    oom_measure_str((enum oom_measure)m), c->spread[m].share, c->spread[m].bytes,
		    c->spread[m].dof, c->spread[m].n, c->spread[m].n_outliers);
	add(text, "# runs beyond the noise: their share, from where, scale and shape, how many\n");
	add(text, "tail %.17g %.17g %.17g %.17g %zu\n", c->tail_share, c->tail_from, c->tail_scale,
	    c->tail_shape, c->n_tail);
	for (size_t i = 0; i < c->n_beyond; i++)
		add(text, "beyond %.17g\n", c->beyond[i]);
	add(text, "runs %zu\nend\n", c->n);
	oom_locale_leave(locale);
}
