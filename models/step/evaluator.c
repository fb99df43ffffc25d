/* Evaluators: made empty, filled by what is asked (program.c, variant.c, reserved.c), released. */
#include <stdlib.h>
#include <string.h>

#include "step/program.h"

struct oom_evaluator *oom_evaluator_new(void)
{
	struct oom_evaluator *ev = malloc(sizeof(*ev));

	if (ev)
		memset(ev, 0, offsetof(struct oom_evaluator, player.allocator.free.bin));
	return ev;
}

bool oom_evaluator_starved(struct oom_evaluator *ev)
{
	const bool starved = ev->starved;

	ev->starved = false;
	return starved;
}

static void release_programs(struct program **slot, size_t n)
{
	for (size_t i = 0; i < n && slot[i]; i++) {
		oom_tape_release(&slot[i]->tape);
		for (int k = 0; k < OOM_VARIANTS && slot[i]->variant[k]; k++) {
			oom_variant_release(slot[i]->variant[k]);
			free(slot[i]->variant[k]);
		}
		free(slot[i]);
	}
}

void oom_evaluator_free(struct oom_evaluator *ev)
{
	if (!ev)
		return;
	release_programs(ev->slot, SLOTS);
	release_programs(ev->full, FULL_SLOTS);
	oom_player_release(&ev->player);
	free(ev->nodes);
	free(ev->ctx);
	free(ev->sums);
	free(ev->size);
	free(ev->comm);
	free(ev);
}
