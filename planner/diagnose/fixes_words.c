/* The words of a lever for this crash: the program's, but where its message's era or a full card asks for others. */
#include <string.h>

#include "allocator_variable.h"
#include "tables.h"

/* By the era that the message's wording shows: PyTorch's own words name its variable by one name, before 2.9 by the old one. */
static const char *of_era(const struct oom_crash *c, enum oom_lever l)
{
	if (l != OOM_LEVER_FRAGMENT || oom_lever_own(c, l) || !oom_format_is(c, OOM_FORMAT_SENTENCE))
		return NULL;
	if (strstr(c->format, "-2.9"))
		return OOM_ALLOCATOR_VARIABLE_2_9 "=" OOM_EXPANDABLE;
	return strstr(c->format, "-2.1") || strstr(c->format, "-2.2") ? OOM_ALLOCATOR_EXPANDABLE : NULL;
}

/* A server's words offer what is free as its share: of a card that is full there is none.  And PyTorch before 1.4 has no
 * settings of its allocator. */
const char *oom_fix_words(const struct oom_crash *c, enum oom_lever l)
{
	if (l == OOM_LEVER_SPLIT && oom_format_is(c, OOM_FORMAT_NO_AMP))
		return "torch.cuda.empty_cache() between phases; this PyTorch has no settings of its allocator, newer ones have (" OOM_ALLOCATOR_VARIABLE ")";
	if (l == OOM_LEVER_OTHERS && oom_takes_share(c) && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_FREE] < c->bytes[OOM_CRASH_TOTAL] / 10)
		return oom_lever_in("torch", "torch", l);
	return of_era(c, l) ? of_era(c, l) : oom_lever_of(c, l);
}
