/* A sorted set in lists of blocks of about a size: what is seldom asked of it. */
#include "step/free_set.h"

#include <string.h>

int32_t oom_free_last(const struct oom_free_set *set, const struct oom_ablock *blocks, unsigned pool)
{
	unsigned word = OOM_BIN_WORDS * (pool + 1) - 1;
	int32_t b;

	while (!set->word[word])
		if (word-- == OOM_BIN_WORDS * pool)
			return -1;
	b = set->bin[64 * word + 63 - (unsigned)__builtin_clzll(set->word[word])].first;
	while (blocks[b].more >= 0)
		b = blocks[b].more;
	return b;
}

void oom_free_clear(struct oom_free_set *set)
{
	memset(set->word, 0, sizeof(set->word));
}
