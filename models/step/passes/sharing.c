/* What the sharded engines' passes have in common. */
#include "step/passes/sharing.h"

#include "step/program.h"

struct oom_unit_sums oom_sum_unit(const struct oom_rewrite *w, uint32_t unit, bool wide)
{
	struct oom_unit_sums sums = {0, 0, 0};

	for (size_t i = 0; i < w->from->n_params; i++) {
		const struct oom_param *p = &w->from->params[i];
		/* what stands for several layers outside of them is there several times */
		const uint64_t n = unit ? 1 : p->count;
		uint64_t rounded;

		if (p->unit != unit || oom_param_whole(p, w->plan))
			continue;
		sums.bytes += oom_param_bytes(p, w->plan, &rounded) * n;
		if (!p->trainable || p->grad < 0)
			continue;
		sums.trained += p->elems * n;
		sums.grads += p->elems * n * (wide ? 4 : oom_dtype_bytes((enum oom_dtype)p->dt));
	}
	return sums;
}

uint64_t oom_shared_grads(const struct oom_rewrite *w, uint32_t unit)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < w->from->n_params; i++) {
		const struct oom_param *p = &w->from->params[i];

		if (p->unit == unit && p->trainable && p->grad >= 0 && p->edges > 1)
			sum += p->elems * oom_dtype_bytes((enum oom_dtype)p->dt);
	}
	return sum;
}

/* The mark of a gradient that waits, beside its layer. */
#define WAITS ((uint32_t)1 << 31)

void oom_grad_waits(struct oom_rewrite *w, int32_t row)
{
	const bool home = w->unit >= 0 && w->unit_of_grad[row] == (uint32_t)w->unit + 1;

	/* of a weight that several layers share: whole only when the last has been through */
	w->unit_of_grad[row] = (home ? w->unit_of_grad[row] : 0) | WAITS;
}

void oom_free_waiting(struct oom_rewrite *w, uint32_t unit)
{
	for (size_t row = 0; row < w->from->n_rows; row++) {
		if (!(w->unit_of_grad[row] & WAITS) ||
		    (unit && (w->unit_of_grad[row] & ~WAITS) != unit))
			continue;
		oom_rewrite_event(w, (int32_t)row,
				  unit || w->from->rows[row].mult == 1 ? OOM_EV_FREE :
									 OOM_EV_FREE_ALL);
		w->unit_of_grad[row] &= ~WAITS;
	}
}
