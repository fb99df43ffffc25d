/* Which levers are left out of an answer: what the run has set already, and what would change nothing for this crash. */
#include <string.h>

#include "tables.h"

/* A server that takes a share of the card when it starts, and makes its cache of it. */
bool oom_takes_share(const struct oom_crash *c)
{
	return oom_program_of(c)->activity == OOM_ACTIVITY_SERVES && oom_lever_of(c, OOM_LEVER_GRAPHS) && oom_lever_own(c, OOM_LEVER_ROOM);
}

/* More is held than the share that the server was given: it is not the cache, which fits into what the weights leave. */
bool oom_beyond_share(const struct oom_crash *c)
{
	static const char *const shares[] = {"gpu_memory_utilization", "mem_fraction_static"};
	double share = 0;

	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]) && share <= 0; i++)
		share = oom_told(c, shares[i]);
	/* nobody gives it all of the card: by default it is nine tenths or less (vLLM's CacheConfig, SGLang's server_args.py) */
	if (share <= 0 && oom_takes_share(c) && c->known[OOM_CRASH_TOTAL] && (c->phase == OOM_CRASH_LOAD || c->phase == OOM_CRASH_UNKNOWN) &&
	    (double)c->bytes[OOM_CRASH_ALLOCATED] > 0.97 * (double)c->bytes[OOM_CRASH_TOTAL])
		return true;
	/* captured graphs keep theirs outside of it */
	return share > 0 && c->part != OOM_PART_GRAPHS && c->known[OOM_CRASH_TOTAL] && (double)c->bytes[OOM_CRASH_ALLOCATED] > 1.1 * share * (double)c->bytes[OOM_CRASH_TOTAL];
}

bool oom_other_card(const struct oom_crash *c)
{
	return c->card_said > 0 && oom_runtime_is(c, OOM_RUNTIME_CARD) && c->known[OOM_CRASH_TOTAL] && c->card_said * 1e9 > 2.2 * (double)c->bytes[OOM_CRASH_TOTAL];
}

/* They free weights, states or what is kept for the backward pass: beside one tensor that is larger than the card
 * they change nothing. */
static bool spares_the_rest(enum oom_lever l)
{
	return l == OOM_LEVER_OPTIMIZER || l == OOM_LEVER_SHARD || l == OOM_LEVER_LOAD || l == OOM_LEVER_QUANT || l == OOM_LEVER_PRECISION || l == OOM_LEVER_OFFLOAD ||
	       l == OOM_LEVER_SPREAD || l == OOM_LEVER_RECOMPUTE || l == OOM_LEVER_ROOM;
}

/* Most of the card is this process's own. */
bool oom_mostly_own(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_ALLOCATED] &&
	       c->bytes[OOM_CRASH_ALLOCATED] > c->bytes[OOM_CRASH_TOTAL] / 4 * 3;
}

bool oom_overcommitted(const struct oom_crash *c)
{
	return oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_ALLOCATED] && (double)c->bytes[OOM_CRASH_ALLOCATED] > 1.1 * (double)c->bytes[OOM_CRASH_TOTAL];
}

bool oom_several_cards(const struct oom_crash *c)
{
	return c->rank >= 0 || c->sharded || c->splits || c->cards > 1 || c->gpu_index > 0;
}

/* What is neither free nor PyTorch's would have been enough, but for a context and its libraries (a judgement: 0.75 GiB). */
bool oom_others_perhaps(const struct oom_crash *c)
{
	bool listed;
	const uint64_t away = oom_card_outside(c, &listed), context = (uint64_t)3 << 28;

	return !listed && oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_FREE] && (c->known[OOM_CRASH_ALLOCATED] || c->known[OOM_CRASH_PROCESS]) &&
	       oom_shortage(c) && away > c->bytes[OOM_CRASH_TOTAL] / 8 && away > context + oom_shortage(c) && !oom_alone_too_large(c);
}

/* A 512th of the card, by a judgement: whatever the process is about needs more. */
bool oom_full_of_unknown(const struct oom_crash *c)
{
	return oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_FREE] && c->known[OOM_CRASH_TRIED] && !c->known[OOM_CRASH_ALLOCATED] && !c->known[OOM_CRASH_PROCESS] &&
	       !c->n_processes && c->bytes[OOM_CRASH_TRIED] < c->bytes[OOM_CRASH_TOTAL] / 512 && c->bytes[OOM_CRASH_FREE] < c->bytes[OOM_CRASH_TOTAL] / 256;
}

static bool work_trains(const struct oom_crash *c)
{
	return oom_crash_work(c) == OOM_WORK_TRAINING;
}

/* A server's trial run that is as small as it gets, by a judgement: what a layer makes of 1024 tokens, 8192 wide and four
 * times that inside, is 64 MiB in 16 bits. */
bool oom_few_tokens(const struct oom_crash *c)
{
	return c->prefill_tokens && c->prefill_tokens <= 1024;
}

/* Nothing of it was at work. */
bool oom_lever_pointless(const struct oom_crash *c, enum oom_cause cause, enum oom_lever l)
{
	if (cause == OOM_CAUSE_TOO_LARGE && ((oom_alone_too_large(c) && (spares_the_rest(l) || (l == OOM_LEVER_LOGITS && c->part != OOM_PART_LOGITS))) ||
	    (l == OOM_LEVER_OTHERS && oom_mostly_own(c))))
		return true;
	/* said with the number that is missing (fixes_cache.c) */
	if (cause == OOM_CAUSE_KV_CACHE && l == OOM_LEVER_KV && oom_cache_has_sizes(c))
		return true;
	/* pictures at full size are large: a 256th of the card, by a judgement, is none, and where that was missing weights fill it */
	if (l == OOM_LEVER_TILE && c->part == OOM_PART_UNKNOWN && oom_mostly_own(c) && c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] < c->bytes[OOM_CRASH_TOTAL] / 256)
		return true;
	/* one process has nobody to share with */
	if (l == OOM_LEVER_SHARD && c->one_process && !c->sharded)
		return true;
	/* a device map puts layers where no training step reaches them */
	if (l == OOM_LEVER_OFFLOAD && !oom_lever_own(c, l) && (c->trains || oom_program_of(c)->activity == OOM_ACTIVITY_TRAINS) &&
	    (oom_crash_work(c) == OOM_WORK_LOADING || oom_crash_work(c) == OOM_WORK_SETUP))
		return true;
	/* adapters have next to no states, and a base of 4 bits has little to shard */
	if (l == OOM_LEVER_SHARD && (c->set & OOM_SET(OOM_LEVER_ADAPTER)) && ((c->set & OOM_SET(OOM_LEVER_QUANT)) || oom_told(c, "load_in_8bit") > 0) && work_trains(c))
		return true;
	if (l == OOM_LEVER_OPTIMIZER && (c->set & OOM_SET(OOM_LEVER_ADAPTER)))
		return true;
	if (l == OOM_LEVER_PRECISION && oom_format_is(c, OOM_FORMAT_NO_AMP) && !oom_lever_own(c, l))
		return true;
	/* no model is there yet */
	if (c->part == OOM_PART_CONTEXT && spares_the_rest(l))
		return true;
	/* the trial run comes before the cache that the share is for */
	if (l == OOM_LEVER_ROOM && c->part == OOM_PART_WARMUP)
		return true;
	/* the host's memory is the same memory */
	if (l == OOM_LEVER_OFFLOAD && oom_runtime_is(c, OOM_RUNTIME_WATERMARK))
		return true;
	/* a model that moves is no batch, and a batch no model */
	if (c->part == OOM_PART_INPUT && (l == OOM_LEVER_LOAD || l == OOM_LEVER_QUANT || l == OOM_LEVER_OFFLOAD))
		return true;
	if (l == OOM_LEVER_PLACE && c->part == OOM_PART_WEIGHTS)
		return true;
	if (c->part == OOM_PART_FIXED && (l == OOM_LEVER_REQUESTS || l == OOM_LEVER_CONTEXT))
		return true;
	/* what is joined is as large as all inputs together, whatever the batch */
	if (c->part == OOM_PART_JOINED && oom_runtime_is(c, OOM_RUNTIME_GRAPH) && (l == OOM_LEVER_REQUESTS || l == OOM_LEVER_QUANT || l == OOM_LEVER_OFFLOAD || l == OOM_LEVER_CONTEXT))
		return true;
	/* activations of so few tokens are some ten MiB: no fewer make room */
	if (oom_few_tokens(c) && (l == OOM_LEVER_REQUESTS || l == OOM_LEVER_CONTEXT || l == OOM_LEVER_KV))
		return true;
	/* images of one size have no longest */
	if (l == OOM_LEVER_LONGEST && cause != OOM_CAUSE_LONGEST_BATCH && !c->language && !oom_lever_own(c, l) && c->task != OOM_TASK_AUDIO)
		return true;
	/* no linear layers of a language model to put them on */
	if (l == OOM_LEVER_ADAPTER && !c->language && !c->parameters && !oom_lever_own(c, l))
		return true;
	/* what was said of the states on the host, with their size */
	if (cause == OOM_CAUSE_HOST_RAM && (l == OOM_LEVER_LOAD_HOST || l == OOM_LEVER_HOST) && oom_states_exceed_host(c))
		return true;
	/* page-locked memory is no second copy of weights */
	if (l == OOM_LEVER_LOAD_HOST && c->pinned)
		return true;
	/* who has no vocabulary has no logits to speak of */
	if (l == OOM_LEVER_LOGITS && !c->language && oom_lever_of(c, l) && strstr(oom_lever_of(c, l), "logits"))
		return true;
	return (l == OOM_LEVER_LOGITS && (!oom_lever_own(c, OOM_LEVER_LOGITS) || (!c->language && oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE)))) ||
	       /* frames show what ran, and it was no decoder of images */
	       (l == OOM_LEVER_TILE && (c->traceback || c->part == OOM_PART_SAMPLER || c->part == OOM_PART_NODE || c->part == OOM_PART_ENCODED) && c->part != OOM_PART_IMAGE);
}

/* The run has it already; a quantised cache can still be made shorter, and tiles smaller. */
bool oom_lever_is_set(const struct oom_crash *c, enum oom_lever l)
{
	/* samples that calibrate are many, whatever their batch */
	if (l == OOM_LEVER_REQUESTS && oom_dialect_is(c, OOM_DIALECT_QUANTISES))
		return false;
	/* one input at a time */
	if ((l == OOM_LEVER_REQUESTS || (l == OOM_LEVER_EVAL_BATCH && !c->trains)) && (c->set & OOM_SET(OOM_LEVER_BATCH)) && !oom_takes_share(c))
		return true;
	return l != OOM_LEVER_KV && !(l == OOM_LEVER_TILE && c->part == OOM_PART_IMAGE) && (c->set & OOM_SET(l)) != 0;
}
