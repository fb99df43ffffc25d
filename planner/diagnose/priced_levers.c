/* Levers that the price of the run says are too little: beside a change that fits, what frees less than is missing is no
 * advice; and where the run fits, its weights and states are not what is in the way. */
#include "shown.h"
#include "tables.h"

#define B(name) (1u << OOM_BUCKET_##name)

/* What a lever can free at most: a share of these. */
static const struct {
	enum oom_lever lever;
	unsigned buckets;
	double share;
} rows[] = {
	{OOM_LEVER_SHARD, B(PARAMS) | B(BUFFERS) | B(GRADS) | B(OPT) | B(AMP), 1},
	{OOM_LEVER_OPTIMIZER, B(OPT) | B(TEMP), 1},
	/* a frozen base is loaded in 16 bits, and has no copies of another type */
	{OOM_LEVER_ADAPTER, B(PARAMS), 0.5},
	{OOM_LEVER_ADAPTER, B(GRADS) | B(OPT) | B(TEMP) | B(AMP), 1},
	{OOM_LEVER_QUANT, B(PARAMS), 0.875},
	{OOM_LEVER_RECOMPUTE, B(SAVED), 1},
	{OOM_LEVER_PRECISION, B(PARAMS) | B(GRADS) | B(OPT) | B(SAVED) | B(LOGITS), 0.5},
	{OOM_LEVER_LOGITS, B(LOGITS), 1},
};
static const enum oom_lever levers[] = {OOM_LEVER_SHARD, OOM_LEVER_OPTIMIZER, OOM_LEVER_ADAPTER, OOM_LEVER_QUANT, OOM_LEVER_RECOMPUTE, OOM_LEVER_PRECISION, OOM_LEVER_LOGITS};

static double frees(const struct oom_eval *e, enum oom_lever l)
{
	double sum = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (unsigned b = 0; rows[i].lever == l && b < OOM_BUCKETS; b++)
			sum += rows[i].buckets & 1u << b ? rows[i].share * (double)e->bucket[b] : 0;
	return sum;
}

uint64_t oom_priced_idle(struct oom_pricing *p)
{
	struct oom_priced *const out = p->out;
	const struct oom_eval *const e = &p->m.asked.eval;
	const double used = (double)out->used_bytes, card = (double)out->capacity_bytes;
	/* a tenth of a card that nobody names, by a judgement */
	const double least = !out->capacity_bytes ? used / 10 : out->n_changes && out->changed_bytes && used > card ? used - card : 0;
	uint64_t idle = 0;

	out->states_over = out->capacity_bytes && frees(e, OOM_LEVER_SHARD) > card;

	/* what died was larger than what is priced, and nobody knows of what */
	if (out->missing_bytes)
		return 0;
	for (size_t i = 0; i < sizeof(levers) / sizeof(levers[0]); i++)
		if (frees(e, levers[i]) < least)
			idle |= OOM_SET(levers[i]);
	/* they do not fit whatever else is changed: what makes them less is no detour */
	if (out->states_over)
		idle &= ~(OOM_SET(OOM_LEVER_SHARD) | OOM_SET(OOM_LEVER_ADAPTER));
	if (out->capacity_bytes && used < 0.9 * card)
		idle |= OOM_SET(OOM_LEVER_SHARD) | OOM_SET(OOM_LEVER_OPTIMIZER) | OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_QUANT);
	return idle;
}
