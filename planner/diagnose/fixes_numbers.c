/* What the message's own numbers, the run's own options and the model's size say would do: fixes that need no
 * words of a program's list, and which of the list's are pointless beside them. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

static const double GIB = 1073741824.0;

/* How far the option goes that words begin with: "-ngl", "max_model_len"; 0: they begin with none. */
static size_t option(const char *text)
{
	const size_t n = strcspn(text, " =(,;:");

	return n > 2 && (*text == '-' || memchr(text, '_', n)) ? n : 0;
}

/* "--fp8_base" of words that begin with it. */
static bool names_option(const char *fix, const char *text)
{
	const size_t n = option(text);

	for (const char *p = fix; n && (p = strstr(p, "--")) != NULL; p += 2)
		if (!strncmp(p, text, n) && option(p) == n)
			return true;
	return false;
}

/* The first call of a long name in these words: "enable_model_cpu_offload("; its length, 0 for none. */
static size_t call(const char *text, const char **at)
{
	for (const char *p = text; (p = strchr(p, '(')) != NULL; p++) {
		const char *q = p;

		while (q > text && (isalnum((unsigned char)q[-1]) || q[-1] == '_'))
			q--;
		if (p - q >= 12) {
			*at = q;
			return (size_t)(p + 1 - q);
		}
	}
	return 0;
}

/* What another line calls already. */
static bool calls_again(const char *fix, const char *text)
{
	const char *name, *other;
	const size_t n = call(text, &name);

	return n && call(fix, &other) == n && !memcmp(name, other, n);
}

void oom_fix_add(struct oom_crash_answer *a, const char *prefix, const char *text)
{
	if (!text)
		return;
	for (size_t i = 0; i < a->n_fix; i++) {
		if (strstr(a->fix[i], text))
			return;
		/* the same with more behind it */
		if (!*prefix && !strncmp(text, a->fix[i], strlen(a->fix[i]))) {
			snprintf(a->fix[i], sizeof(a->fix[0]), "%s", text);
			return;
		}
		/* another that begins with the same thing to do */
		if (!*prefix && strcspn(text, ",;:") > 12 && strcspn(text, ",;:") == strcspn(a->fix[i], ",;:") && !strncmp(text, a->fix[i], strcspn(text, ",;:")))
			return;
		if (!*prefix && calls_again(a->fix[i], text))
			return;
		/* an option that stands in the middle of another line already */
		if (!*prefix && *text == '-' && names_option(a->fix[i], text))
			return;
		/* one more word about the same option */
		if (!*prefix && option(text) && option(text) == option(a->fix[i]) && !strncmp(text, a->fix[i], option(text)))
			return;
	}
	if (a->n_fix < OOM_ANSWER_FIXES)
		snprintf(a->fix[a->n_fix++], sizeof(a->fix[0]), "%s%s", prefix, text);
}

bool oom_alone_too_large(const struct oom_crash *c)
{
	/* where the card is not said: the largest of 2025 have 288 GB (NVIDIA B300, AMD MI355X) */
	return c->known[OOM_CRASH_TRIED] && !oom_format_is(c, OOM_FORMAT_PROGRAM) &&
	       (c->known[OOM_CRASH_TOTAL] ? c->bytes[OOM_CRASH_TRIED] > c->bytes[OOM_CRASH_TOTAL] :
					    c->bytes[OOM_CRASH_TRIED] > UINT64_C(288000000000) && oom_runtime_is(c, OOM_RUNTIME_TORCH));
}

bool oom_dwarfs_the_rest(const struct oom_crash *c)
{
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED];

	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_ALLOCATED] && tried >= (uint64_t)1 << 30 &&
	       tried > c->bytes[OOM_CRASH_ALLOCATED] && !oom_alone_too_large(c);
}

/* What cudaMalloc could not give: PyTorch has returned its idle segments before it says so (release_cached_blocks in
 * c10/cuda/CUDACachingAllocator.cpp). */
uint64_t oom_shortage(const struct oom_crash *c)
{
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED], left = c->bytes[OOM_CRASH_FREE];

	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_FREE] && tried > left ? tried - left : 0;
}

/* ZeRO or FSDP divides them over as many cards as the text says. */
static bool divided(const struct oom_crash *c)
{
	return c->splits && c->cards > 1;
}

/* Full training with AdamW in mixed precision: weights and gradients of 2 bytes, an fp32 copy and two moments
 * (rung M1 of the playbook); adapters and inference: the weights. */
double oom_weights_bytes(const struct oom_crash *c, enum oom_crash_work work, double *each)
{
	const bool full = (work == OOM_WORK_TRAINING || (c->trains && work == OOM_WORK_LOADING)) &&
			  !(c->set & (OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_OPTIMIZER)));
	const double cards = oom_told(c, "tensor_parallel_size");

	*each = full && work == OOM_WORK_TRAINING ? 16 : oom_told(c, "load_in_8bit") > 0 ? 1 : oom_told(c, "whole_dtype") > 0 ? 4 : 2;
	if (divided(c) && work == OOM_WORK_TRAINING)
		/* stage 2 leaves every rank its weights of 2 bytes */
		return (double)c->parameters * (c->second_stage ? 2 + (*each - 2) / c->cards : *each / c->cards);
	return (double)c->parameters * *each / (cards > 1 ? cards : 1);
}

/* Of the card: what the message reports, else what people call it by, "two 80GB GPUs", of a training whose text gives no
 * message's numbers; 0: neither. Such a name is binary and rounded up, so that what exceeds it exceeds the card. */
double oom_card_bytes(const struct oom_crash *c, enum oom_crash_work work)
{
	if (c->known[OOM_CRASH_TOTAL])
		return (double)c->bytes[OOM_CRASH_TOTAL];
	return work == OOM_WORK_TRAINING && c->trains && !c->known[OOM_CRASH_TRIED] ? c->card_said * GIB : 0;
}

/* An optimizer with states of 8 bits: weights and gradients of 2 bytes, two moments of 1. */
bool oom_small_states_fit(const struct oom_crash *c)
{
	return (double)c->parameters * 6 < 0.9 * oom_card_bytes(c, OOM_WORK_TRAINING) * (divided(c) ? c->cards : 1);
}

/* Weights that are kept in 16 bits alone have no fp32 copy, and gradients and moments of 16 bits: half as much. */
bool oom_states_surely(const struct oom_crash *c, enum oom_crash_work work)
{
	double each;

	return oom_weights_bytes(c, work, &each) / 2 > oom_card_bytes(c, work);
}

/* A rank of several that is at a step holds less than the weights in 16 bits, which its card would hold: they are divided,
 * whether the text says so or not. */
static bool divided_by_what_is_held(const struct oom_crash *c, enum oom_crash_work work)
{
	const double weights = 2 * (double)c->parameters;

	return work == OOM_WORK_TRAINING && c->rank >= 0 && c->known[OOM_CRASH_ALLOCATED] && weights < (double)c->bytes[OOM_CRASH_TOTAL] && (double)c->bytes[OOM_CRASH_ALLOCATED] < 0.97 * weights;
}

bool oom_weights_too_large(const struct oom_crash *c, enum oom_crash_work work)
{
	const double total = oom_card_bytes(c, work);
	double each;

	/* of what ranks divide among them the text seldom says how many they are */
	return c->parameters && total > 0 && !divided_by_what_is_held(c, work) && !(c->stepped && work == OOM_WORK_TRAINING) && oom_runtime_is(c, OOM_RUNTIME_TORCH) && !(c->set & OOM_SET(OOM_LEVER_QUANT)) &&
	       (!c->splits || (divided(c) && !c->offloads)) && oom_weights_bytes(c, work, &each) > total;
}

double oom_states_share(const struct oom_crash *c, enum oom_crash_work work)
{
	const double total = oom_card_bytes(c, work);
	double each, need;

	if (work != OOM_WORK_TRAINING || !c->parameters || total <= 0 || !oom_runtime_is(c, OOM_RUNTIME_TORCH) || (c->set & OOM_SET(OOM_LEVER_QUANT)) || c->offloads || (c->splits && !divided(c)))
		return 0;
	need = oom_weights_bytes(c, work, &each);
	/* on one card: they fit, it is full, and next to nothing more was held */
	if (!divided(c))
		return each > 4 && !c->stepped && need <= total && need > 0.85 * total && (double)c->bytes[OOM_CRASH_ALLOCATED] > 0.9 * need ? need : 0;
	/* half of a card, by a judgement, is what is worth to be looked at first */
	return each > 4 && need > total / 2 && need <= total ? need : 0;
}

/* What the allocator has and does not use is more than was asked for; where segments can expand, with what is free. */
bool oom_stranded_enough(const struct oom_crash *c)
{
	const uint64_t idle = c->bytes[OOM_CRASH_RESERVED_UNALLOCATED],
		       joined = !oom_format_is(c, OOM_FORMAT_OLD) && !c->windows && c->known[OOM_CRASH_FREE] ? idle + c->bytes[OOM_CRASH_FREE] : idle;

	return c->known[OOM_CRASH_TRIED] && joined > c->bytes[OOM_CRASH_TRIED] && idle > c->bytes[OOM_CRASH_TOTAL] / 32 &&
	       !oom_alone_too_large(c) && !oom_overcommitted(c) && c->part != OOM_PART_ENGINE;
}

/* A whole layer is as large as its share of what was loaded: so many more must stay on the host. The option is the
 * first word of those about it. */
static void layers(const struct oom_crash *c, const char *offload, struct oom_crash_answer *a)
{
	const double each = (double)c->layer_bytes;
	double left;
	char own[160];

	/* of weights it is a part of them that was refused: how much did not fit is not said */
	if (!c->known[OOM_CRASH_TRIED] || each <= 0 || !offload || c->part == OOM_PART_WEIGHTS)
		return;
	left = (double)c->layers - ceil((double)c->bytes[OOM_CRASH_TRIED] / each) - 1;
	if (left < 0)
		return;
	snprintf(own, sizeof(own), "%.*s %.0f or lower: each of the %" PRIu64 " layers on the card takes about %.0f MiB",
		 (int)strcspn(offload, " "), offload, left, c->layers, each / 1048576);
	oom_fix_add(a, "", own);
}

/* vLLM takes its share of the whole card: what others hold has to be left out of it. */
static void beside_others(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double total = (double)c->bytes[OOM_CRASH_TOTAL];
	bool listed;
	const double away = (double)oom_card_outside(c, &listed), rest = total > 0 ? (total - away) / total : 0;
	const char *const share = oom_whole_share(c);
	const double told = share ? oom_told(c, share) : 0;
	char own[160];

	if (!share || cause != OOM_CAUSE_OTHER_PROCESS || !oom_crash_of_card(c) || rest < 0.1 || rest > 0.9 || (told > 0 && told < rest) ||
	    /* there is no cache yet that a smaller share would make smaller */
	    c->phase == OOM_CRASH_LOAD)
		return;
	oom_fix_lever(c, a, "", OOM_LEVER_OTHERS);
	/* and a hundredth or two for what is no tensor */
	snprintf(own, sizeof(own), "%s %.2f or less: others hold %.2f of %.2f GiB, and the share is one of the whole card", share, (double)(int)(100 * rest - 2) / 100, away / GIB, total / GIB);
	oom_fix_add(a, "", own);
}

/* What inference does without costs nothing that was learnt: the run's own options, whose names its owner knows, stand
 * before advice in general. */
void oom_fixes_told_first(struct oom_crash_answer *a)
{
	size_t to = 0;

	for (size_t i = 0; i < a->n_fix; i++) {
		char one[sizeof(a->fix[0])];

		if ((!strstr(a->fix[i], " -> ") && !strstr(a->fix[i], " the line's ")) || !strncmp(a->fix[i], oom_further, strlen(oom_further)))
			continue;
		memcpy(one, a->fix[i], sizeof(one));
		memmove(a->fix[to + 1], a->fix[to], (i - to) * sizeof(a->fix[0]));
		memcpy(a->fix[to++], one, sizeof(one));
	}
}

/* The share that a server was given holds less than the weights in 16 bits, which the card holds: with a tenth of it for the
 * rest, a judgement. */
static void of_share(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const char *const share = oom_whole_share(c);
	const double total = (double)c->bytes[OOM_CRASH_TOTAL], told = share ? oom_told(c, share) : 0, need = (double)c->parameters * 2;
	char own[200];

	if ((cause != OOM_CAUSE_TOO_LARGE && cause != OOM_CAUSE_KV_CACHE) || told <= 0 || told >= 0.95 || need <= 0 || total <= 0 || oom_told(c, "tensor_parallel_size") > 1 || (c->set & OOM_SET(OOM_LEVER_QUANT)) ||
	    need < told * total || need > 0.92 * total)
		return;
	snprintf(own, sizeof(own), "%s 0.95, not %.3g: the weights are %.1f GiB in 16 bits, and that share is %.1f of %.2f", share, told, need / GIB, told * total / GIB, total / GIB);
	oom_fix_add(a, "", own);
}

void oom_fixes_of_numbers(const struct oom_crash *c, enum oom_cause cause, const char *offload, struct oom_crash_answer *a)
{
	const double left = (double)c->bytes[OOM_CRASH_FREE], total = (double)c->bytes[OOM_CRASH_TOTAL];
	const char *const share = oom_format_of(c)->share;
	char own[160];

	oom_fixes_of_cache(c, cause, a);
	/* in hundredths, rounded down */
	if (share && total > 0 && left < total && left / total >= 0.1) {
		snprintf(own, sizeof(own), "%s %.2f or less: %.2f of %.2f GiB are free", share,
			 (double)(int)(100 * left / total) / 100, left / GIB, total / GIB);
		oom_fix_add(a, "", own);
	}
	beside_others(c, cause, a);
	of_share(c, cause, a);
	if (c->image[0]) {
		snprintf(own, sizeof(own), "smaller images: scaled from %" PRId64 " x %" PRId64 " to %" PRId64 " x %" PRId64 " they, and all maps made of them, take a quarter",
			 c->image[0], c->image[1], c->image[0] / 2, c->image[1] / 2);
		oom_fix_add(a, "", own);
	}
	if (cause == OOM_CAUSE_TOO_LARGE) {
		oom_fixes_of_layers(c, offload, a);
		layers(c, offload, a);
	}
}
