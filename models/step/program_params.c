/* A structure's parameters: bytes as the plan stores them, sums over all of them, what optimizers keep of them. */
#include <string.h>

#include "families/model.h"
#include "ops/ops.h"
#include "step/objectives.h"
#include "step/program.h"
#include "tape/round.h"

uint64_t oom_param_bytes(const struct oom_param *q, const struct oom_plan *p, uint64_t *rounded)
{
	uint64_t bytes = q->elems * oom_dtype_bytes((enum oom_dtype)q->dt),
		 block[OOM_QUANTISED_BLOCKS];
	size_t n;

	*rounded = oom_block(bytes);
	if (!(q->flags & OOM_P_QUANTISED))
		return bytes;
	n = oom_quantised_blocks(p, q, block);
	bytes = *rounded = 0;
	for (size_t i = 0; i < n; i++) {
		bytes += block[i];
		*rounded += oom_block(block[i]);
	}
	return bytes;
}

bool oom_param_whole(const struct oom_param *q, const struct oom_plan *p)
{
	return (q->flags & OOM_P_QUANTISED) && oom_quantised_whole(p);
}

/* A quantised parameter's codes, the first of its blocks. */
static uint64_t codes_of(const struct oom_param *q, const struct oom_plan *p)
{
	uint64_t block[OOM_QUANTISED_BLOCKS];

	oom_quantised_blocks(p, q, block);
	return oom_block(block[0]);
}

static void stays_whole(struct program *g, const struct oom_param *q, const struct oom_plan *p, uint64_t bytes, uint64_t rounded)
{
	if (oom_param_whole(q, p)) {
		g->whole_bytes += bytes * q->count;
		g->whole_rounded += rounded * q->count;
		g->whole_elems += q->elems * q->count;
	} else if (q->flags & OOM_P_QUANTISED) {
		g->whole_rounded += (rounded - codes_of(q, p)) * q->count;
	}
}

/* More than any machine holds; sums and products of so many with their bytes fit in 64 bits. */
#define MOST_PARAMS ((double)((uint64_t)1 << 50))

enum oom_status oom_program_bound(const struct oom_tape *t, struct oom_error *err)
{
	double n = 0;

	for (size_t i = 0; i < t->n_params; i++)
		n += (double)t->params[i].elems * t->params[i].count;
	if (n <= MOST_PARAMS)
		return OOM_OK;
	oom_error_set(err, OOM_ERR_INVALID,
		      "%.3g parameters, more than 2^50: the config gives a size or a number of layers "
		      "that no model has", n);
	if (err)
		oom_read_explain(&t->arch->rd, OOM_SUSPECT_LARGE, err);
	return OOM_ERR_INVALID;
}

void oom_program_sum(struct program *g, const struct oom_plan *p)
{
	const struct oom_tape *t = &g->tape;
	uint64_t routed = 0, root = 0, own = 0;
	uint32_t unit = 0;

	g->total = g->trainable = g->active = g->param_bytes = g->param_rounded = g->whole_bytes = g->whole_rounded = g->whole_elems = g->grad_bytes =
		g->layer = g->largest = g->trained_rounded = g->trained_wide = g->trained_tensors = 0;
	g->adapted = false;
	memset(g->summed, 0, sizeof(g->summed));
	memset(&g->shards, 0, sizeof(g->shards));
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *q = &t->params[i];
		uint64_t rounded, bytes;

		bytes = oom_param_bytes(q, p, &rounded);
		g->total += q->elems * q->count;
		g->param_bytes += bytes * q->count;
		g->param_rounded += rounded * q->count;
		stays_whole(g, q, p, bytes, rounded);
		g->adapted |= (q->flags & OOM_P_LORA) != 0;
		if (q->flags & OOM_P_EXPERT)
			routed += q->elems * q->count;
		/* a layer's parameters stand together; the largest layer counts */
		own = q->unit == unit ? own + q->elems : q->elems;
		unit = q->unit;
		if (unit && own > g->layer)
			g->layer = own;
		if (q->flags & (OOM_P_EMBEDDING | OOM_P_HEAD))
			root += q->elems * q->count;
		if (!q->trainable)
			continue;
		g->trainable += q->elems * q->count;
		g->trained_rounded += rounded * q->count;
		g->trained_wide += oom_block(q->elems * 4) * q->count;
		if (q->grad >= 0) {
			g->grad_bytes += bytes * q->count;
			g->trained_tensors += q->count;
		}
		g->largest = rounded > g->largest ? rounded : g->largest;
	}
	if (!g->layer)
		/* no repeated block: all of it is one unit */
		g->layer = g->total - root;
	if (routed && t->arch->n_experts && t->arch->top_k)
		g->active = g->total - routed +
			    (uint64_t)((double)routed * (double)t->arch->top_k /
				       (double)t->arch->n_experts);
}

const struct oom_state_sums *oom_state_sums(struct program *g, int64_t optimizer, bool master)
{
	struct oom_state_sums *sums = &g->state[optimizer][master];
	const uint64_t bit = (uint64_t)1 << optimizer;

	const struct oom_stepped all = {.p = g->tape.params,
					.n = g->tape.n_params,
					.master = master,
					.groups = oom_two_groups(&g->key),
					.sum_buffers = g->key.sum_buffers};

	if (!(g->summed[master] & bit) && oom_optimizer_sums(oom_optimizer_at((size_t)optimizer), all, sums))
		return NULL;
	g->summed[master] |= bit;
	return sums;
}
