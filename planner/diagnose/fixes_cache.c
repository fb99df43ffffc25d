/* What a server's message about its KV cache says in numbers: which length fits, how much is missing for the one that was
 * asked for, and which of what could give that much can. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

static const double GIB = 1073741824.0;

static bool has_sizes(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_FREE] && c->asked_tokens && oom_shortage(c);
}

/* The length that would fit were all of the cache as long as the context. */
static double by_length(const struct oom_crash *c)
{
	return (double)c->bytes[OOM_CRASH_FREE] / (double)c->bytes[OOM_CRASH_TRIED] * (double)c->asked_tokens;
}

/* A part of it is there whatever the length (states of Mamba's or linear attention's layers, padded to the pages of the
 * others): what the server says would fit is far below the share of the length that the bytes are. */
static bool keeps_states(const struct oom_crash *c)
{
	return has_sizes(c) && c->advised_tokens && (double)c->advised_tokens < by_length(c) / 2;
}

/* A length that nobody starts a server for: a sixteenth of what was asked for, by a judgement. */
static bool is_useless(const struct oom_crash *c)
{
	return keeps_states(c) && c->advised_tokens < c->asked_tokens / 16;
}

/* Bytes of the one card that the text shows; 0: none, or several. */
static double card_of(const struct oom_crash *c)
{
	return c->smi.total ? (double)c->smi.total : c->card_named * GIB;
}

/* What the weights leave of the share, by the model's name and the run's own bits, where the message has no number; negative:
 * they do not fit it; 0: it is not known. */
static double beside_weights(const struct oom_crash *c, double *weights, double *given)
{
	const double card = c->smi.total ? (double)c->smi.total : (c->card_said > 0 ? c->card_said : c->card_named) * GIB,
		     share = oom_told(c, "gpu_memory_utilization") > 0 ? oom_told(c, "gpu_memory_utilization") : 0.9;

	if (c->known[OOM_CRASH_TRIED] || !c->parameters || card <= 0 || !oom_whole_share(c) || strcmp(oom_whole_share(c), "gpu_memory_utilization") || ((c->set & OOM_SET(OOM_LEVER_QUANT)) && !c->weight_bits))
		return 0;
	*weights = (double)c->parameters * (c->weight_bits ? c->weight_bits : 16) / 8 / oom_weight_cards(c);
	*given = share * card;
	/* a trial run that takes as much as the weights is none: somebody else is there, or the name is not the model's */
	return *given - *weights < *weights ? *given - *weights : 0;
}

bool oom_cache_beside_weights(const struct oom_crash *c)
{
	double weights, given;

	return beside_weights(c, &weights, &given) > 0;
}

/* The share of the card that would hold what is missing; 0: the card's size is not said, or no share gives it. */
static double share_for(const struct oom_crash *c, const char *share)
{
	/* vLLM's default: 0.9, 0.92 since 0.19 (vllm/config/cache.py) */
	const double told = oom_told(c, share) > 0 ? oom_told(c, share) : 0.9, total = card_of(c);
	const double next = total > 0 ? ceil(100 * (told + (double)oom_shortage(c) / total) + 0.5) / 100 : 0;

	return next <= 0.97 ? next : 0;
}

static void of_length(const struct oom_crash *c, struct oom_crash_answer *a)
{
	char own[200];

	snprintf(own, sizeof(own), "max_model_len %" PRIu64 " or less: what the message itself says would fit", c->advised_tokens);
	oom_fix_add(a, "", own);
}

/* For the length that was asked for: what gives the bytes that are missing. */
static void of_bytes(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double need = (double)c->bytes[OOM_CRASH_TRIED], left = (double)c->bytes[OOM_CRASH_FREE];
	const char *const share = oom_whole_share(c);
	const double next = share ? share_for(c, share) : 0;
	char own[240];

	if (!share || strcmp(share, "gpu_memory_utilization"))
		return;
	if (next > 0)
		snprintf(own, sizeof(own), "gpu_memory_utilization %.2f, if nobody else uses the card: %" PRIu64 " tokens lack %.2f GiB", next, c->asked_tokens, (need - left) / GIB);
	else
		snprintf(own, sizeof(own), "gpu_memory_utilization higher (0.90 to 0.95) if nobody else uses the card: %" PRIu64 " tokens lack %.2f GiB", c->asked_tokens, (need - left) / GIB);
	if (next > 0 || (!card_of(c) && oom_told(c, share) < 0.95))
		oom_fix_add(a, "", own);
	if (!(c->set & OOM_SET(OOM_LEVER_KV)) && need / 2 <= left && !keeps_states(c)) {
		snprintf(own, sizeof(own), "kv_cache_dtype=\"fp8\" for all %" PRIu64 " tokens: half of %.2f GiB is %.2f, and %.2f are left", c->asked_tokens, need / GIB, need / 2 / GIB, left / GIB);
		oom_fix_add(a, "", own);
	}
}

bool oom_cache_has_sizes(const struct oom_crash *c)
{
	return has_sizes(c) && c->advised_tokens && oom_whole_share(c) && !strcmp(oom_whole_share(c), "gpu_memory_utilization");
}

void oom_fixes_of_cache(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char own[290];

	if (cause != OOM_CAUSE_KV_CACHE)
		return;
	if (is_useless(c)) {
		snprintf(own, sizeof(own), "room for the missing %.2f GiB on each card: gpu_memory_utilization higher if nobody else uses it, fewer or smaller captured graphs (max_num_seqs and cudagraph_capture_sizes lower, or enforce_eager=True); kv_cache_dtype=\"fp8\" for the layers with attention",
			 (double)oom_shortage(c) / GIB);
		oom_fix_add(a, "", own);
	} else {
		if (c->advised_tokens)
			of_length(c, a);
		if (has_sizes(c))
			of_bytes(c, a);
	}
	if (c->advised_share > 0 && c->advised_share < 1) {
		snprintf(own, sizeof(own), "--mem-fraction-static above %.3g: what the message itself says the weights take, if nobody else uses the card; else more GPUs (--tp)", c->advised_share);
		oom_fix_add(a, "", own);
	}
}

void oom_observe_cache(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	double weights, given;
	char *out;

	if (cause != OOM_CAUSE_KV_CACHE)
		return;
	if (beside_weights(c, &weights, &given) > 0 && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "of the share of %.1f GiB the weights take %.1f, by the model's name: the trial run of the longest context takes the %.1f that are left before the cache is made", given / GIB,
			 weights / GIB, (given - weights) / GIB);
	if (c->two_ways && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "a lower share leaves the cache nothing, a higher one runs out of memory beside it: no share is right, what both hold has to be less");
	if (!has_sizes(c) || !(out = oom_evidence_slot(a)))
		return;
	if (keeps_states(c))
		snprintf(out, sizeof(a->evidence[0]), "%" PRIu64 " tokens lack %.2f GiB; %" PRIu64 " would fit, not %.0f: a part of this cache (the states of layers without attention) is there whatever the length",
			 c->asked_tokens, (double)oom_shortage(c) / GIB, c->advised_tokens, by_length(c));
	else
		snprintf(out, sizeof(a->evidence[0]), "%" PRIu64 " tokens of context take %.1f KiB each; what is left holds about %.0f of them", c->asked_tokens,
			 (double)c->bytes[OOM_CRASH_TRIED] / (double)c->asked_tokens / 1024, by_length(c));
}
