/* The words of a lever for this crash: the program's, but where its message's era or a full card asks for others. */
#include <string.h>

#include "ladder/allocator_variable.h"
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

/* Not what always runs in parts: its words say no other way. */
static bool saves_alone(const struct oom_crash *c)
{
	return c->part != OOM_PART_GATHERED && oom_lever_of(c, OOM_LEVER_SAVE_ALONE);
}

/* What a cause that is none of memory asks for, and messages that are of one part. */
enum oom_lever oom_fix_instead(const struct oom_crash *c, enum oom_cause cause, enum oom_lever lever)
{
	const enum oom_lever read = oom_format_of(c)->read;

	if (lever == OOM_LEVER_READ && read)
		return read;
	if (lever == OOM_LEVER_FRAGMENT && (c->windows || oom_format_is(c, OOM_FORMAT_OLD)) && !oom_lever_own(c, lever))
		return OOM_LEVER_SPLIT;
	/* sharded already: what is left is to make less of it */
	if (lever == OOM_LEVER_LOAD && c->trains && (c->set & OOM_SET(OOM_LEVER_SHARD)))
		return c->set & OOM_SET(OOM_LEVER_QUANT) ? OOM_LEVER_MORE : OOM_LEVER_QUANT;
	/* a training's loader says in its words what else there is to do */
	if (lever == OOM_LEVER_LOAD && (c->set & OOM_SET(OOM_LEVER_QUANT)) && !(c->trains && oom_lever_own(c, lever) && oom_lever_own(c, OOM_LEVER_SHARD)))
		return OOM_LEVER_LOAD_SMALL;
	/* the transformer that draws: whole parts on the card in turns are too large as well */
	if (lever == OOM_LEVER_OFFLOAD && cause == OOM_CAUSE_TOO_LARGE && !c->trains && oom_weights_too_large(c, oom_crash_work(c)) && oom_lever_own(c, OOM_LEVER_OFFLOAD_LAYERS))
		return OOM_LEVER_OFFLOAD_LAYERS;
	if (lever == OOM_LEVER_SAVE && cause == OOM_CAUSE_HOST_RAM && !oom_lever_own(c, lever))
		return OOM_LEVER_SAVE_HOST;
	/* nothing is gathered where one process saves */
	if (lever == OOM_LEVER_SAVE && cause != OOM_CAUSE_HOST_RAM && !c->sharded && saves_alone(c))
		return OOM_LEVER_SAVE_ALONE;
	/* an evaluation has its own batch */
	if (lever == OOM_LEVER_REQUESTS && c->phase == OOM_CRASH_EVAL)
		return OOM_LEVER_EVAL_BATCH;
	if (lever == OOM_LEVER_TILE && (c->set & OOM_SET(OOM_LEVER_TILE)) && c->part == OOM_PART_IMAGE)
		return OOM_LEVER_TILE_SMALL;
	/* its cache is as large as the share that it was given */
	if (lever == OOM_LEVER_KV && cause != OOM_CAUSE_KV_CACHE && oom_takes_share(c))
		return OOM_LEVER_ROOM;
	if ((lever == OOM_LEVER_HOST || lever == OOM_LEVER_LOAD_HOST) && c->windows && !c->wsl && oom_runtime_is(c, OOM_RUNTIME_LAYERED) && c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] < (uint64_t)1 << 30)
		return OOM_LEVER_PAGEFILE;
	if (lever == OOM_LEVER_HOST && c->windows && !c->wsl && !oom_lever_own(c, lever))
		return OOM_LEVER_PAGEFILE;
	/* what is left of a cache that is quantised already */
	if (lever == OOM_LEVER_KV && (c->set & OOM_SET(OOM_LEVER_KV)))
		return OOM_LEVER_CONTEXT;
	return lever == OOM_LEVER_HOST && c->pinned ? OOM_LEVER_PINNED : lever;
}
