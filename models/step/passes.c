/* The passes, in the order in which they are applied: what a layer keeps is moved before shards come
 * and go beside it, and holdings are placed once they have been divided. */
#include "step/pass.h"

#include <assert.h>

#define PASS(name) extern const struct oom_pass oom_pass_##name;
#include "step/pass_list.h"
#undef PASS

static const struct oom_pass *const table[] = {
#define PASS(name) &oom_pass_##name,
#include "step/pass_list.h"
#undef PASS
};

const struct oom_pass *oom_pass_at(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? table[i] : NULL;
}

enum { N_PASSES = sizeof(table) / sizeof(table[0]), SHAPES = (1 << OOM_SHAPE_BITS) - 1 };
/* the last pass rewrites no stream: of its bits none is ever set */
static_assert((N_PASSES - 1) * OOM_SHAPE_BITS <= 64 - 1, "oom_shape_of has 64 bits");

uint64_t oom_shape_of(const struct oom_plan *p)
{
	uint64_t shape = 0;

	for (size_t i = 0; i < N_PASSES; i++)
		if (table[i]->hooks && table[i]->applies(p))
			shape |= (uint64_t)(table[i]->shape ? table[i]->shape(p) & SHAPES : 1) << OOM_SHAPE_BITS * i;
	return shape;
}

void oom_apply_passes(struct oom_schedule *s, const struct oom_plan *p)
{
	for (size_t i = 0; i < N_PASSES; i++)
		if (table[i]->holdings && table[i]->applies(p))
			table[i]->holdings(s, p);
}
