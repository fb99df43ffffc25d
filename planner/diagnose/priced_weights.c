/* The weights of a model that was loaded or run, beside the card: what none of its batches has a part in. */
#include <stdio.h>
#include <string.h>

#include "shown.h"
#include "tables.h"

#define GIB 1073741824.0

void oom_priced_weights(struct oom_pricing *p, const struct oom_eval *e, uint64_t in_4)
{
	struct oom_priced *const out = p->out;
	const double card = (double)p->crash->bytes[OOM_CRASH_TOTAL] / GIB, half = (double)e->total_params * 2 / GIB;
	const char *const named = p->shown->named;

	const bool serves = oom_program_of(p->crash)->activity == OOM_ACTIVITY_SERVES;

	/* a copy of fewer bits is smaller than its name's parameters say, and a small part of the card explains nothing */
	if (oom_name_is_quantised(named, named + strlen(named)) || half < card / 3)
		return;
	/* somebody speaks of fewer bits, and more is held than they take */
	if ((double)p->crash->bytes[OOM_CRASH_ALLOCATED] > 0.8 * half * GIB)
		out->unset |= OOM_SET(OOM_LEVER_QUANT);
	out->capacity_bytes = p->crash->bytes[OOM_CRASH_TOTAL];
	out->used_bytes = (uint64_t)(half * GIB);
	snprintf(out->model, sizeof(out->model), "%.63s", p->shown->model);
	snprintf(out->given, sizeof(out->given), "%.80s%s%.64s%s", named, strcmp(named, p->shown->model) ? p->shown->alike ? " (taken to have the shape of " : " (" : "",
		 strcmp(named, p->shown->model) ? p->shown->model : "", strcmp(named, p->shown->model) ? ")" : "");
	snprintf(out->needs, sizeof(out->needs), "its %.2f B parameters alone are %.1f GiB in 16 bits, %.1f in fp32%s, and %.1f in 4 (bitsandbytes); the card has %.2f, %s",
		 (double)e->total_params / 1e9, half, 2 * half, serves ? "" : " (as from_pretrained loads them without a dtype before transformers 5)", (double)in_4 / GIB, card,
		 half > card ? "which hold not even 16 bits" : half > 0.9 * card ? "which leave next to nothing beside 16 bits" : 2 * half > card ? "which hold 16 bits and not 32" : "which hold either");
	/* what a server needs beside its weights no share of the card gives it */
	for (size_t i = 0; serves && half > 0.85 * card && i < 2; i++) {
		const char *const words = oom_lever_of(p->crash, i ? OOM_LEVER_SPREAD : OOM_LEVER_QUANT);

		if (words)
			snprintf(out->change[out->n_changes++], sizeof(out->change[0]), "%.250s", words);
	}
	if (out->n_changes)
		snprintf(out->changed, sizeof(out->changed), "the weights are %.0f %% of the card", 100 * half / card);
}
