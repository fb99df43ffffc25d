/* The smallest change of the run's own files that would have fitted, as a patch of them. */
#include <stdlib.h>
#include <string.h>

#include "diagnose.h"
#include "oomplan/emit.h"
#include "oomplan/option.h"

/* The axes of the search whose change needs a knob that no key of the files says ("--loss fused" of unsaid). */
static unsigned beyond(const struct oom_search *s, const struct oom_emitted *e)
{
	unsigned axes = 0;

	for (size_t i = 0; i < e->n_unsaid; i++)
		for (size_t k = 0; k < s->n_reasons; k++) {
			const struct oom_reason *const r = &s->reason[k];
			const size_t n = strcspn(e->unsaid[i] + 2, " ");

			for (size_t o = 0; oom_knob_at(o); o++) {
				const struct oom_option *const knob = oom_knob_at(o);

				if (strlen(knob->name) != n || strncmp(knob->name, e->unsaid[i] + 2, n))
					continue;
				if (!r->built || !oom_plan_alike(&s->best.plan, &r->without, knob))
					axes |= 1u << r->axis;
			}
		}
	return axes;
}

/* Searches; holds what no key says; searches again.  Each round holds one axis more at least. */
bool oom_patch_find(const struct oom_job *job, const struct oom_target *t, const struct oom_comparison *m,
		    struct oom_patch *out)
{
	struct oom_question q = t->q;
	struct oom_error err = {{0}};
	unsigned more;

	memset(out, 0, sizeof(*out));
	if (!job->reading || !m->searched || m->asked.fits_gpu)
		return false;
	q.capacity_bytes = m->capacity_bytes;
	q.objective = OOM_OBJECTIVE_FEWEST_CHANGES;
	for (;;) {
		oom_emitted_release(&out->diff);
		out->diff = (struct oom_emitted){.text = NULL};
		if (oom_answer_search(NULL, &q, &out->search, &err) || !out->search.found ||
		    oom_emit_patch(job->reading, &m->asked.plan, &out->search.best.plan, &out->diff, &err))
			return false;
		if (!out->diff.n_unsaid)
			return true;
		more = beyond(&out->search, &out->diff) & ~q.hold;
		if (!more)
			return false;
		q.hold |= more;
	}
}

void oom_patch_text(const struct oom_comparison *m, const struct oom_patch *p, bool found)
{
	if (!found) {
		printf("no change that these files can say makes it fit %s with the same effective batch\n", oom_gib(m->capacity_bytes));
		return;
	}
	printf("the smallest change of these files that would have fitted: %s used of %s\n%s",
	       oom_gib(p->search.best.used_bytes), oom_gib(m->capacity_bytes), p->diff.text);
}
