/* The weights of a model that was loaded or run, beside the card: what none of its batches has a part in. */
#include <stdio.h>
#include <string.h>

#include "shown.h"
#include "tables.h"

#define GIB 1073741824.0

/* What lies on the card is all of them, not its share. */
static bool undivided(const struct oom_crash *c, double one)
{
	const double held = (double)c->bytes[OOM_CRASH_ALLOCATED] / GIB;
	const unsigned cards = oom_weight_cards(c);

	return cards > 1 && held > 0.8 * one * cards && held > 1.3 * one;
}

/* Of what the card holds, in the run's own bits and as its share among the cards. */
static void needs_of(const struct oom_pricing *p, const struct oom_eval *e, uint64_t in_4, char *out, size_t size)
{
	const struct oom_crash *const c = p->crash;
	const bool serves = oom_program_of(c)->activity == OOM_ACTIVITY_SERVES;
	const double card = (double)c->bytes[OOM_CRASH_TOTAL] / GIB, half = (double)e->total_params * 2 / GIB, one = (double)p->out->used_bytes / GIB,
		     held = (double)c->bytes[OOM_CRASH_ALLOCATED] / GIB;
	const unsigned cards = oom_weight_cards(c);
	int n;

	if (c->weight_bits)
		n = snprintf(out, size, "its %.2f B parameters alone are %.1f GiB in the %u bits that this run keeps them in (%.1f in 16)", (double)e->total_params / 1e9, one * cards, c->weight_bits, half);
	else
		n = snprintf(out, size, "its %.2f B parameters alone are %.1f GiB in 16 bits, %.1f in fp32%s, and %.1f in 4 (bitsandbytes)", (double)e->total_params / 1e9, half, 2 * half,
			     serves ? "" : " (as from_pretrained loads them without a dtype before transformers 5)", (double)in_4 / GIB);
	if (n > 0 && (size_t)n < size && cards > 1)
		n += snprintf(out + n, size - (size_t)n, ", %.1f on each of %u cards", one, cards);
	if (n <= 0 || (size_t)n >= size)
		return;
	if (undivided(c, one))
		snprintf(out + n, size - (size_t)n, "; the card holds %.2f already: they were not divided", held);
	else if (c->weight_bits || cards > 1)
		snprintf(out + n, size - (size_t)n, "; the card has %.2f%s", card, one > card ? ", which do not hold them" : one > 0.85 * card ? ", which leave little beside them" : "");
	else
		snprintf(out + n, size - (size_t)n, "; the card has %.2f, %s", card,
			 half > card ? "which hold not even 16 bits" : half > 0.9 * card ? "which leave next to nothing beside 16 bits" : 2 * half > card ? "which hold 16 bits and not 32" : "which hold either");
}

void oom_priced_weights(struct oom_pricing *p, const struct oom_eval *e, uint64_t in_4)
{
	struct oom_priced *const out = p->out;
	const double card = (double)p->crash->bytes[OOM_CRASH_TOTAL] / GIB, half = (double)e->total_params * 2 / GIB;
	const char *const named = p->shown->named;
	const unsigned bits = p->crash->weight_bits;
	const double one = (bits == 4 ? (double)in_4 / GIB : bits ? half * bits / 16 : half) / oom_weight_cards(p->crash);

	const bool serves = oom_program_of(p->crash)->activity == OOM_ACTIVITY_SERVES;

	/* a copy of fewer bits is smaller than its name's parameters say, and a small part of the card explains nothing */
	if (oom_name_is_quantised(named, named + strlen(named)) || one * oom_weight_cards(p->crash) < card / 3)
		return;
	/* somebody speaks of fewer bits, and more is held than they take */
	if ((double)p->crash->bytes[OOM_CRASH_ALLOCATED] > (p->crash->weight_bits ? 1.5 * one : 0.8 * half) * GIB)
		out->unset |= OOM_SET(OOM_LEVER_QUANT);
	out->capacity_bytes = p->crash->bytes[OOM_CRASH_TOTAL];
	out->used_bytes = (uint64_t)(one * GIB);
	snprintf(out->model, sizeof(out->model), "%.63s", p->shown->model);
	snprintf(out->given, sizeof(out->given), "%.80s%s%.64s%s", named, strcmp(named, p->shown->model) ? p->shown->alike ? " (taken to have the shape of " : " (" : "",
		 strcmp(named, p->shown->model) ? p->shown->model : "", strcmp(named, p->shown->model) ? ")" : "");
	needs_of(p, e, in_4, out->needs, sizeof(out->needs));
	if (oom_weight_cards(p->crash) > 1 && undivided(p->crash, one))
		snprintf(out->change[out->n_changes++], sizeof(out->change[0]),
			 "first find out why one card holds all of it: divided among %u it is %.1f GiB on each (the log names ranks and world size; two processes may have started on one card)", oom_weight_cards(p->crash), one);
	/* what a server needs beside its weights no share of the card gives it */
	for (size_t i = 0; serves && one > 0.85 * card && i < 2; i++) {
		const char *const words = oom_lever_of(p->crash, i ? OOM_LEVER_SPREAD : OOM_LEVER_QUANT);

		if (words && !(i && oom_weight_cards(p->crash) > 1))
			snprintf(out->change[out->n_changes++], sizeof(out->change[0]), "%.250s", words);
	}
	if (out->n_changes)
		snprintf(out->changed, sizeof(out->changed), "the weights%s are %.0f %% of the card", oom_weight_cards(p->crash) > 1 ? ", divided," : "", 100 * one / card);
}
