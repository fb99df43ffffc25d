/* What a request is by its size alone: the log gives the length, the batch and the model's family, and their product with the
 * words of its vocabulary is what was asked for. */
#include <math.h>

#include "tables.h"

/* Sizes are printed with two decimals: of 256 MiB and more that is a two-thousandth. */
static bool equals(double bytes, double product)
{
	return product >= 268435456 && fabs(bytes / product - 1) < 0.0015;
}

double oom_logits_rows(const struct oom_crash *c, unsigned *each)
{
	const struct oom_crash_told *const length = oom_told_first(c, OOM_ABOUT_LENGTH), *const batch = oom_told_first(c, OOM_ABOUT_BATCH);
	const double tried = (double)c->bytes[OOM_CRASH_TRIED], words = (double)c->vocabulary;

	if (!length || !c->vocabulary || !c->known[OOM_CRASH_TRIED])
		return 0;
	/* all of the batch before a part of it: two rows of 4 bytes are as large as four of 2 */
	for (double rows = batch && batch->value > 1 && batch->value < 1024 ? batch->value : 1; rows >= 1; rows--)
		for (*each = 4; *each >= 2; *each -= 2)
			if (equals(tried, length->value * rows * words * *each))
				return length->value * rows;
	return 0;
}

/* In a training, as much at once as is held in all: the weights once more, in one piece. */
bool oom_copies_all(const struct oom_crash *c)
{
	const double tried = (double)c->bytes[OOM_CRASH_TRIED], held = (double)c->bytes[OOM_CRASH_ALLOCATED];

	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_ALLOCATED] && tried >= (double)((uint64_t)2 << 30) && held >= tried && held < 1.02 * tried &&
	       c->part == OOM_PART_UNKNOWN && oom_runtime_is(c, OOM_RUNTIME_TORCH) && !c->stepped;
}

/* Adapters have next to no gradients and states, and a model of fewer bits has no copy of so many. */
static bool trains_whole(const struct oom_crash *c)
{
	return c->trains && c->parameters && !(c->set & (OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_QUANT))) && oom_runtime_is(c, OOM_RUNTIME_TORCH);
}

/* Names round: Llama 2's "7B" are 6.74 billion parameters, Qwen 2.5's 7.62 (their cards on the Hugging Face hub). */
static bool rounds_to(double bytes, double product)
{
	return bytes > 0.95 * product && bytes < 1.1 * product;
}

unsigned oom_copy_of_parameters(const struct oom_crash *c, unsigned *each)
{
	const double tried = (double)c->bytes[OOM_CRASH_TRIED], parameters = (double)c->parameters;
	const bool shown = c->part != OOM_PART_UNKNOWN && c->part != OOM_PART_STATES && c->part != OOM_PART_BUCKET;

	if (!trains_whole(c) || !c->known[OOM_CRASH_TRIED] || tried < (double)((uint64_t)1 << 30) || shown || c->stepped || c->phase == OOM_CRASH_FORWARD ||
	    c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_EVAL)
		return 0;
	for (*each = 2; *each <= 4; *each += 2)
		if (rounds_to(tried, parameters * *each))
			return 1;
	/* DeepSpeed divides fp32 weights and states among ranks, not 16-bit weights before stage 3 */
	*each = 4;
	return c->splits && c->cards > 1 && rounds_to(tried, parameters * *each / c->cards) ? c->cards : 0;
}

void oom_part_by_size(struct oom_crash *c)
{
	unsigned each;

	/* who embeds makes no logits */
	if (c->part == OOM_PART_UNKNOWN && c->trains && c->language && oom_lever_of(c, OOM_LEVER_LOGITS) && oom_runtime_is(c, OOM_RUNTIME_TORCH) && oom_logits_rows(c, &each) > 0)
		c->part = OOM_PART_LOGITS;
}
