/* The memory of replays: made by the first, kept from one to the next. */
#include <stdlib.h>
#include <string.h>

#include "step/playing.h"

void oom_player_release(struct oom_player *p)
{
	if (!p)
		return;
	oom_replay_release(&p->allocator);
	free(p->row);
	free(p->grad);
	free(p->parts);
	free(p->moved);
	free(p->units);
	free(p->late);
	free(p->gathered);
	free(p->call);
	free(p->slot);
	memset(p, 0, sizeof(*p));
}

void oom_player_begin(struct oom_player *p, const struct oom_plan *plan, uint64_t limit)
{
	const struct oom_alloc_rules rules = {.expandable = plan->allocator == OOM_ALLOC_EXPANDABLE,
					      .down = plan->segments_down,
					      .max_split = (uint64_t)plan->max_split << 20,
					      .limit = limit};

	oom_replay_clear(&p->allocator, &rules);
	p->workspaces = 0;
}

enum oom_status oom_player_end(const struct oom_player *p, struct oom_replay_result *out)
{
	if (p->allocator.given_up)
		return OOM_ERR_LIMIT;
	if (p->allocator.failed && !p->allocator.died)
		return OOM_ERR_MEMORY;
	*out = (struct oom_replay_result){.reserved = p->allocator.peak,
					  .held = p->allocator.streams ? 0 : p->allocator.most,
					  .retries = p->allocator.retries,
					  .died = p->allocator.died};
	return OOM_OK;
}

int32_t *oom_player_slots(struct oom_player *p, size_t n)
{
	if (n > p->cap_slot) {
		int32_t *q = realloc(p->slot, n * sizeof(*q));

		if (!q)
			return NULL;
		p->slot = q;
		p->cap_slot = n;
	}
	for (size_t i = 0; i < n; i++)
		p->slot[i] = -1;
	return p->slot;
}

bool oom_player_holds(struct oom_player *p, const struct oom_tape *t)
{
	int32_t *b, *m;
	struct oom_played *a;
	struct oom_param *q;
	struct oom_wrapped *w;

	if (t->n_rows > p->cap) {
		a = realloc(p->row, t->n_rows * sizeof(*a));
		p->row = a ? a : p->row;
		b = realloc(p->grad, t->n_rows * sizeof(*b));
		p->grad = b ? b : p->grad;
		if (!a || !b)
			return false;
		p->cap = t->n_rows;
	}
	if (t->n_params > p->cap_parts) {
		q = realloc(p->parts, t->n_params * sizeof(*q));
		p->parts = q ? q : p->parts;
		m = realloc(p->moved, t->n_params * sizeof(*m));
		p->moved = m ? m : p->moved;
		if (!q || !m)
			return false;
		p->cap_parts = t->n_params;
	}
	if (t->n_params + OOM_LATE_BESIDE > p->cap_late) {
		b = realloc(p->late, (t->n_params + OOM_LATE_BESIDE) * sizeof(*b));
		if (!b)
			return false;
		p->late = b;
		p->cap_late = t->n_params + OOM_LATE_BESIDE;
	}
	if (t->n_units + 1 > p->cap_units) {
		w = realloc(p->units, (t->n_units + 1) * sizeof(*w));
		if (!w)
			return false;
		p->units = w;
		p->cap_units = t->n_units + 1;
	}
	for (size_t i = 0; i < t->n_rows; i++)
		p->grad[i] = -1;
	return true;
}
