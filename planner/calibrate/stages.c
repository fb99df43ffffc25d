/* The stages of a calibration: scales from the first figure that enough runs measured, then what the figures above it
 * show besides (stage.c has the equations). */
#include <stdlib.h>

#include "stage.h"

static bool shows(const struct stage *s, const struct oom_calibration_row *r)
{
	if (!(r->measured[s->at] > 0))
		return false;
	if (s->base)
		return true;
	return r->measured[OOM_MEASURE_ALLOCATED] > 0 ||
	       (s->at == OOM_MEASURE_USED && r->measured[OOM_MEASURE_RESERVED] > 0);
}

static bool gather(struct stage *s, struct oom_calibration_row *rows, size_t n)
{
	s->n = 0;
	for (size_t i = 0; i < n; i++)
		if (shows(s, &rows[i]))
			s->row[s->n++] = &rows[i];
	return s->n >= OOM_FEWEST;
}

/* Fragmentation is inside the scales: it adds nothing to them. */
static void absorbed(struct oom_calibration *c, enum oom_measure base)
{
	struct oom_overhead *t = &c->term[OOM_TERM_FRAGMENTATION];

	*t = (struct oom_overhead){.value = 1, .def = 1, .state = OOM_TERM_COLLINEAR,
				   .with = SCALES, .from = base};
	for (int k = 0; k < OOM_TERMS; k++)
		c->cov[k][OOM_TERM_FRAGMENTATION] = c->cov[OOM_TERM_FRAGMENTATION][k] = 0;
}

static enum oom_status stages(struct stage *s, struct oom_calibration_row *rows, size_t n,
			      struct oom_error *err)
{
	const unsigned bytes = 1u << OOM_TERM_CONTEXT | 1u << OOM_TERM_NCCL;
	enum oom_measure base = OOM_MEASURE_ALLOCATED;
	enum oom_status st;

	s->base = true;
	for (;; base++) {
		s->at = base;
		if (gather(s, rows, n))
			break;
		if (base == OOM_MEASURE_USED)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "too few measurements (%zu): three of the same figure "
					     "(allocated, reserved or nvidia-smi) are needed",
					     n);
	}
	st = oom_stage_fit(s, base == OOM_MEASURE_USED ? SCALES | bytes : SCALES, err);
	s->base = false;
	if (!st && base != OOM_MEASURE_ALLOCATED)
		absorbed(s->c, base);
	s->at = OOM_MEASURE_RESERVED;
	if (!st && base == OOM_MEASURE_ALLOCATED && gather(s, rows, n))
		st = oom_stage_fit(s, 1u << OOM_TERM_FRAGMENTATION, err);
	s->at = OOM_MEASURE_USED;
	if (!st && base != OOM_MEASURE_USED && gather(s, rows, n))
		st = oom_stage_fit(s, bytes, err);
	return st;
}

enum oom_status oom_calibration_stages(struct oom_calibration *c, struct oom_calibration_row *rows,
				       size_t n, size_t spent[OOM_MEASURES], struct oom_error *err)
{
	struct stage s = {.c = c, .spent = spent};
	/* x, y and the residuals */
	double *room = calloc(n + 1, (OOM_TERMS + 2) * sizeof(*room));
	enum oom_status st = OOM_ERR_MEMORY;

	s.row = calloc(n + 1, sizeof(struct oom_calibration_row *));
	s.outlier = calloc(n + 1, sizeof(*s.outlier));
	if (!room || !s.row || !s.outlier) {
		oom_error_set(err, st, "out of host memory");
	} else {
		s.x = room;
		s.y = room + n * OOM_TERMS;
		s.residual = s.y + n;
		st = stages(&s, rows, n, err);
	}
	free(s.outlier);
	free(s.row);
	free(room);
	return st;
}
