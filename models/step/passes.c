/* The passes, in the order in which they are applied: what a layer keeps is moved before shards come
 * and go beside it, and holdings are placed once they have been divided. */
#include "step/pass.h"

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

void oom_apply_passes(struct oom_schedule *s, const struct oom_plan *p)
{
	for (size_t i = 0; oom_pass_at(i); i++)
		if (oom_pass_at(i)->holdings && oom_pass_at(i)->applies(p))
			oom_pass_at(i)->holdings(s, p);
}
