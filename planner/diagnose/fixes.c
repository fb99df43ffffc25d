/* What to change, in the words of the program that ran: the levers of fixes_order.c, but for what is set or pointless,
 * with the run's own numbers in them. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* Where the table names nothing that the program has: what it says in words of its own. */
static const enum oom_lever of_its_own[] = {OOM_LEVER_PLACE, OOM_LEVER_LOAD, OOM_LEVER_BATCH, OOM_LEVER_CONTEXT};

/* The rung of the ladder that a lever is (rungs.c). */
static int rung_of(enum oom_lever l)
{
	static const int rungs[OOM_LEVERS] = {
		[OOM_LEVER_BATCH] = 1, [OOM_LEVER_PRECISION] = 2, [OOM_LEVER_RECOMPUTE] = 3, [OOM_LEVER_FRAGMENT] = 4, [OOM_LEVER_SCORES] = 5,
		[OOM_LEVER_LENGTH] = 6, [OOM_LEVER_OPTIMIZER] = 7, [OOM_LEVER_SHARD] = 8, [OOM_LEVER_ADAPTER] = 10};

	return rungs[l];
}

/* Before what was tried without success: it may still help, but stands behind all that was not. */
const char oom_further[] = "further than was tried: ";

/* Words with the run's own numbers in them. */
static void add(const struct oom_crash *c, struct oom_crash_answer *a, const char *prefix, enum oom_lever l)
{
	const size_t before = a->n_fix;
	char buf[300];

	if ((c->tried | c->idle) & OOM_SET(l))
		return;
	oom_fix_add(a, prefix, oom_told_words(c, l, oom_fix_words(c, l), buf, sizeof(buf)));
	if (a->n_fix > before && !a->rung)
		a->rung = rung_of(l);
}

void oom_fix_lever(const struct oom_crash *c, struct oom_crash_answer *a, const char *condition, enum oom_lever lever)
{
	add(c, a, condition, lever);
}

/* Its model was read long ago; what comes from step to step is data. */
static bool after_steps(const struct oom_asked *q)
{
	return q->cause == OOM_CAUSE_HOST_RAM && q->work == OOM_WORK_TRAINING && (q->c->stepped || q->c->grew);
}

/* On what condition a lever of the host's memory helps where nobody named the part. */
static const char *if_it_was(const struct oom_asked *q, enum oom_lever l)
{
	const bool loads = q->work == OOM_WORK_UNKNOWN || q->work == OOM_WORK_TRAINING || q->work == OOM_WORK_EVAL;

	return q->cause != OOM_CAUSE_HOST_RAM			       ? "" :
	       l == OOM_LEVER_WORKERS && q->work != OOM_WORK_DATA && !after_steps(q) ? "if data was being prepared: " :
	       l == OOM_LEVER_LOAD_HOST && loads			       ? "if a model was being loaded: " :
									 "";
}

bool oom_after_steps(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	return cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && c->stepped && c->language && !c->rolls && oom_runtime_is(c, OOM_RUNTIME_TORCH) &&
	       (c->phase == OOM_CRASH_FORWARD || c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_TRAIN_STEP) && !oom_lever_is_set(c, OOM_LEVER_LONGEST);
}

enum { ENOUGH = 4, BESIDE_AN_ANSWER = 2 };

/* The levers of q, but for what divides a training among cards: last where the text shows one card alone, among the first
 * where the run divides something already. */
static void in_order(const struct oom_asked *q, enum oom_lever out[OOM_MAX_LEVERS])
{
	size_t n = 0, at = OOM_MAX_LEVERS, to;

	memset(out, 0, OOM_MAX_LEVERS * sizeof(*out));
	for (; q->levers && n < OOM_MAX_LEVERS && q->levers[n]; n++) {
		out[n] = q->levers[n];
		at = out[n] == OOM_LEVER_SHARD ? n : at;
	}
	/* the run's own option is off: nothing is cheaper to change, beside the batch */
	for (size_t i = 2; *q->c->off && q->work == OOM_WORK_TRAINING && i < n; i++)
		if (out[i] == OOM_LEVER_RECOMPUTE) {
			memmove(out + 2, out + 1, (i - 1) * sizeof(*out));
			out[1] = OOM_LEVER_RECOMPUTE;
			at += at && at < i;
		}
	if (q->work != OOM_WORK_TRAINING || !at || at == OOM_MAX_LEVERS || oom_swaps_blocks(q->c))
		return;
	to = !oom_several_cards(q->c) ? n - 1 : q->c->splits && at > 2 ? 2 : at;
	if (to > at)
		memmove(out + at, out + at + 1, (to - at) * sizeof(*out));
	else
		memmove(out + to + 1, out + to, (at - to) * sizeof(*out));
	out[to] = OOM_LEVER_SHARD;
}

/* The levers of this work and cause in their order, less those that the run has already: these are returned. */
static uint64_t fix_by_levers(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool told = q->cause == OOM_CAUSE_HOST_RAM && (oom_format_of(c)->limit || (*c->memory_limit && !oom_format_is(c, OOM_FORMAT_ONE_ARRAY | OOM_FORMAT_RAISED)));
	/* an allocator without settings: what is emptied fills again with the next step */
	const enum oom_lever part = q->work == OOM_WORK_TRAINING ? oom_part_of(c)->trains :
				    q->work == OOM_WORK_EVAL || q->work == OOM_WORK_INFERENCE ? oom_part_of(c)->runs : OOM_LEVER_NONE;
	const enum oom_lever of_what = part && !oom_lever_is_set(c, part) && !oom_lever_pointless(c, q->cause, part) ? oom_fix_instead(c, q->cause, part) : OOM_LEVER_NONE;
	const bool perhaps = c->cause[0].confidence < 0.65;
	enum oom_lever levers[OOM_MAX_LEVERS];
	const bool behind = oom_format_is(c, OOM_FORMAT_NO_AMP) && q->levers && q->levers[1] && !oom_lever_own(c, OOM_LEVER_FRAGMENT);
	uint64_t told_already = 0;

	in_order(q, levers);
	/* the request is as long as the run's own limit says, and no batch is smaller than one */
	if (q->cause == OOM_CAUSE_TOO_LARGE && q->work == OOM_WORK_TRAINING && c->part == OOM_PART_LOGITS && oom_lever_is_set(c, OOM_LEVER_BATCH) && oom_told_first(c, OOM_ABOUT_LENGTH))
		add(c, a, "", OOM_LEVER_LENGTH);
	/* of a batch of one what is left is how long it is */
	if (oom_after_steps(c, q->work, q->cause) && oom_lever_is_set(c, OOM_LEVER_BATCH))
		add(c, a, "", OOM_LEVER_LONGEST);
	for (size_t i = 0; i < OOM_MAX_LEVERS && levers[i]; i++) {
		const enum oom_lever l = levers[i];

		if (oom_lever_is_set(c, l))
			told_already |= OOM_SET(l);
		/* an answer of more than four levers names those that nothing in the text asks for */
		if (a->n_fix >= (c->answered ? BESIDE_AN_ANSWER : ENOUGH))
			continue;
		/* one array is no second copy of the weights; of the limit, all is said above */
		if (oom_lever_is_set(c, l) || oom_lever_pointless(c, q->cause, l) || (l == OOM_LEVER_LOAD_HOST && oom_host_array(c) && q->work != OOM_WORK_LOADING) || ((l == OOM_LEVER_HOST || (l == OOM_LEVER_WORKERS && q->work != OOM_WORK_DATA)) && oom_host_array_huge(c)) ||
		    (told && l == OOM_LEVER_HOST && !oom_lever_own(c, l)))
			continue;
		/* one piece that large was asked for by what the frames show: smaller, it needs none; where pieces are only perhaps
		 * the reason that comes first */
		if (l == OOM_LEVER_FRAGMENT && perhaps && of_what)
			add(c, a, "", of_what);
		if (!(behind && l == OOM_LEVER_FRAGMENT))
			add(c, a, if_it_was(q, l), oom_fix_instead(c, q->cause, l));
		if (l == OOM_LEVER_FRAGMENT && of_what)
			add(c, a, "", of_what);
		if (l == OOM_LEVER_BATCH && oom_after_steps(c, q->work, q->cause))
			add(c, a, "", OOM_LEVER_LONGEST);
	}
	if (behind && q->cause == OOM_CAUSE_FRAGMENTATION)
		add(c, a, "", oom_fix_instead(c, q->cause, OOM_LEVER_FRAGMENT));
	return told_already;
}

bool oom_perhaps_leaks(const struct oom_asked *q)
{
	for (size_t i = 1; q->of_memory && i < q->c->n_causes; i++)
		if (q->c->cause[i].cause == OOM_CAUSE_LEAK && q->c->cause[i].confidence >= 0.5)
			return true;
	return false;
}

static const char *told_words_of(const struct oom_crash *c, enum oom_lever l, char *buf, size_t size)
{
	return oom_told_words(c, l, oom_fix_words(c, l), buf, size);
}

/* Others hold the card, and this process a part of it: beside them it may still fit. */
static void fix_beside_others(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool trains = q->work == OOM_WORK_TRAINING || (q->work == OOM_WORK_SETUP && c->part == OOM_PART_STATES), runs = q->work == OOM_WORK_INFERENCE || q->work == OOM_WORK_EVAL;
	const enum oom_lever part = trains ? oom_part_of(c)->trains : oom_part_of(c)->runs,
			     own = part == OOM_LEVER_MAPS && oom_lever_own(c, OOM_LEVER_TILE) ? OOM_LEVER_TILE : part, l = own ? own : trains ? OOM_LEVER_BATCH : q->work == OOM_WORK_EVAL ? OOM_LEVER_EVAL_BATCH : OOM_LEVER_REQUESTS;
	char buf[300];

	/* a checkpoint goes to the card that wrote it, whichever rank reads it */
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && strstr(c->phase_evidence, "torch.load") && oom_several_cards(c)) {
		char first[sizeof(a->fix[0])];

		snprintf(first, sizeof(first), "torch.load(map_location=\"cpu\"): without it every rank reads the checkpoint to the card that wrote it, and the others there are ranks of this run");
		if (a->n_fix == OOM_ANSWER_FIXES)
			a->n_fix--;
		memmove(a->fix[1], a->fix[0], a->n_fix++ * sizeof(a->fix[0]));
		memcpy(a->fix[0], first, sizeof(first));
	}
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && oom_ranks_share_card(c)) {
		a->n_fix = 0;
		oom_fix_add(a, "", "one process for each card, each on its own: --num_processes or --nproc_per_node no more than there are cards, and torch.cuda.set_device(local_rank) (device_map={\"\": local_rank}) before anything is loaded");
		return;
	}
	/* weights that every rank reads to the first card look like others' there, and so do contexts that ranks make there */
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && c->gpu_index <= 0 && (q->work == OOM_WORK_LOADING ? c->trains || oom_several_cards(c) : (trains || c->trains) && c->n_processes > 2))
		oom_fix_add(a, "if the others are ranks of this run: ", "each on its own card (device_map={\"\": local_rank}, or torch.cuda.set_device(local_rank) before it loads)");
	/* TRL 0.14 and 0.15 put the engine on the card behind those that train (vllm_device of GRPOConfig) */
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && c->engine && c->rank >= 0 && oom_program_of(c)->activity == OOM_ACTIVITY_TRAINS)
		oom_fix_add(a, "if the other is a rank of this run: ", "one training process fewer than cards (accelerate launch --num_processes), so that the engine has a card of its own");
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && c->part == OOM_PART_MERGED)
		add(c, a, "or without the card: ", OOM_LEVER_MERGE);
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && (trains || runs) && !(trains && oom_weights_too_large(c, q->work) && oom_states_surely(c, q->work)) && !oom_takes_share(c) && c->known[OOM_CRASH_TOTAL] && !oom_lever_is_set(c, l) &&
	    (c->bytes[OOM_CRASH_ALLOCATED] >= c->bytes[OOM_CRASH_TOTAL] / 8 || (part && c->bytes[OOM_CRASH_TRIED] >= c->bytes[OOM_CRASH_TOTAL] / 8)))
		oom_fix_add(a, c->tried & OOM_SET(l) ? "to fit beside them, further than was tried: " : "to fit beside them: ", told_words_of(c, l, buf, sizeof(buf)));
	/* most of the card is this process's own */
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && a->n_fix == 2 && !strncmp(a->fix[1], "to fit beside", strlen("to fit beside")) && c->bytes[OOM_CRASH_ALLOCATED] > c->bytes[OOM_CRASH_TOTAL] / 2) {
		memcpy(buf, a->fix[0], sizeof(a->fix[0]) < sizeof(buf) ? sizeof(a->fix[0]) : sizeof(buf));
		memmove(a->fix[0], a->fix[1], sizeof(a->fix[0]));
		snprintf(a->fix[1], sizeof(a->fix[1]), "%s", buf);
	}
}

/* Pieces that would be enough, were they one: behind what helps surely. */
static void fix_by_pieces(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;

	if (q->cause != OOM_CAUSE_TOO_LARGE || oom_format_is(c, OOM_FORMAT_NO_AMP) || !oom_stranded_enough(c) || oom_lever_is_set(c, OOM_LEVER_FRAGMENT))
		return;
	if (a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	add(c, a, q->levers ? "" : "in any case: ", oom_fix_instead(c, q->cause, OOM_LEVER_FRAGMENT));
}

/* Programs that the message lists hold several times what was missing: without them it fits, for this once. */
static void fix_by_others(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED], left = c->bytes[OOM_CRASH_FREE];
	bool listed;
	const uint64_t away = oom_card_outside(c, &listed);

	if (q->cause != OOM_CAUSE_TOO_LARGE || !listed || !c->known[OOM_CRASH_FREE] || tried < left || away < 4 * (tried - left) || away < (uint64_t)1 << 29 ||
	    c->trains || c->rank >= 0 || oom_several_cards(c))
		return;
	if (a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	oom_fix_add(a, "", "end the other programs on the card (nvidia-smi shows whose they are): what they hold is several times what was missing");
}

/* A last place is made for what is worth more than the last of the levers. */
static void fix_behind(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool of_memory = q->of_memory;

	/* not the first card: what lies on the others can be more */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_LAYERED) && c->gpu_index > 0 && a->n_fix) {
		if (a->n_fix == OOM_ANSWER_FIXES)
			a->n_fix--;
		add(c, a, "", OOM_LEVER_SPREAD);
	}
	fix_by_others(q, a);
	if (q->levers)
		fix_by_pieces(q, a);
}

/* The run was told a length that is more than most data needs. A guess: fine-tuning's defaults end at 2048. */
static bool long_by_its_own(const struct oom_crash *c)
{
	const struct oom_crash_told *const t = oom_told_first(c, OOM_ABOUT_LENGTH);

	return t && t->value >= 4096;
}

/* Weights, gradients and states do not fit, or the request is a copy of them. */
static bool of_states_alone(const struct oom_asked *q)
{
	unsigned each;

	return oom_copy_of_parameters(q->c, &each) || (oom_weights_too_large(q->c, q->work) && oom_states_surely(q->c, q->work));
}

/* What remains when the batch cannot be halved, and who else may lie there. */
static void fix_what_remains(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_cause cause = q->cause;
	const bool of_memory = q->of_memory;
	const enum oom_crash_work work = q->work;
	const enum oom_lever *levers = q->levers;

	/* every rank holds its part, and it is too large */
	if (of_memory && (c->set & OOM_SET(OOM_LEVER_SHARD)) && (work == OOM_WORK_LOADING || work == OOM_WORK_SETUP || c->phase == OOM_CRASH_OPTIMIZER ||
							 (work == OOM_WORK_TRAINING && oom_weights_too_large(c, work))))
		add(c, a, "", OOM_LEVER_MORE);
	/* nothing left to halve: what remains changes what is learnt, where samples are any of it */
	if (work == OOM_WORK_TRAINING && c->phase != OOM_CRASH_OPTIMIZER && !of_states_alone(q) && ((of_memory && (oom_lever_is_set(c, OOM_LEVER_BATCH) || oom_alone_too_large(c) || long_by_its_own(c))) ||
					  (cause == OOM_CAUSE_FRAGMENTATION && (oom_lever_is_set(c, OOM_LEVER_BATCH) || c->stepped || long_by_its_own(c)) && oom_told_first(c, OOM_ABOUT_LENGTH))))
		add(c, a, "", OOM_LEVER_LENGTH);
	if (of_memory && work == OOM_WORK_TRAINING && !oom_alone_too_large(c) && !oom_lever_is_set(c, OOM_LEVER_QUANT)) {
		if (oom_lever_is_set(c, OOM_LEVER_ADAPTER))
			add(c, a, "", OOM_LEVER_QUANT);
		else if (oom_lever_is_set(c, OOM_LEVER_BATCH) && (c->language || oom_lever_own(c, OOM_LEVER_ADAPTER)))
			add(c, a, "", OOM_LEVER_ADAPTER);
	}
	/* most of it is no tensor: buffers that Metal's kernels and their caches keep */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && c->bytes[OOM_CRASH_OTHER] > c->bytes[OOM_CRASH_ALLOCATED])
		add(c, a, "", OOM_LEVER_RESTART);
	/* unified memory: the limit is a share of it */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && !oom_lever_is_set(c, OOM_LEVER_WATERMARK) && a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && !oom_lever_is_set(c, OOM_LEVER_WATERMARK) && levers)
		add(c, a, "", OOM_LEVER_WATERMARK);
	if (cause == OOM_CAUSE_UNKNOWN && work != OOM_WORK_UNKNOWN && !oom_plenty(c) && !oom_runtime_is(c, OOM_RUNTIME_HOST))
		add(c, a, "if it has no more than usual: ", OOM_LEVER_OTHERS);
}

/* Nothing has been said yet: what the program has at all, or the first thing to try. */
static void fix_at_least(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_cause cause = q->cause;
	const enum oom_crash_work work = q->work;
	const enum oom_lever *levers = q->levers;

	/* all that is left is less than what was priced */
	if (c->answered)
		return;
	/* a program that has no such thing */
	for (size_t i = 0; levers && !a->n_fix && i < sizeof(of_its_own) / sizeof(of_its_own[0]); i++)
		if (oom_lever_own(c, of_its_own[i]))
			add(c, a, "", of_its_own[i]);
	if (levers && !a->n_fix)
		add(c, a, "", work != OOM_WORK_TRAINING ? OOM_LEVER_OTHERS : oom_lever_is_set(c, OOM_LEVER_BATCH) ? OOM_LEVER_LENGTH : OOM_LEVER_BATCH);
	if (!levers) {
		oom_fixes_open(c, cause, a);
		fix_by_pieces(q, a);
	}
}

/* Last, what was tried: some more of it, unless there is no more. */
static void fix_further(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;

	if (q->cause == OOM_CAUSE_SHM && (c->tried & OOM_SET(OOM_LEVER_SHM)))
		oom_fix_add(a, "", "neither helped, so look for another bus error: a file that is mapped (LMDB, memmap, Arrow, safetensors) and shorter than its index says, or on a disk that is full or "
			    "fails; read its samples one by one without the loader");
	for (size_t i = 0; q->levers && i < OOM_MAX_LEVERS && q->levers[i]; i++)
		if ((c->tried & OOM_SET(q->levers[i])) && !oom_lever_is_set(c, q->levers[i]) && !oom_lever_pointless(c, q->cause, q->levers[i]))
			/* not by the numbers that failed */
			oom_fix_add(a, oom_further, oom_fix_words(c, oom_fix_instead(c, q->cause, q->levers[i])));
}

uint64_t oom_fixes(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	const struct oom_asked q = {c, work, cause, oom_levers(c, work, cause),
				cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_UNKNOWN || cause == OOM_CAUSE_BUFFER_LIMIT};
	uint64_t told_already;

	if (q.of_memory && oom_no_device_has(c)) {
		oom_fix_add(a, "", "no device has as much: look for the shape or count it was computed from (a negative or overflowing size, a wrong type, a "
			   "corrupt input or file); smaller batches do not help");
		return 0;
	}
	told_already = oom_fixes_of_text(&q, a);
	told_already |= fix_by_levers(&q, a);
	/* levers that follow from them are not named: that they are seen is said */
	if (q.of_memory && work == OOM_WORK_TRAINING)
		told_already |= c->set & (OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_QUANT));
	if (cause == OOM_CAUSE_HOST_RAM && !c->unified)
		oom_fixes_host_behind(c, a);
	if (oom_perhaps_leaks(&q))
		add(c, a, "", OOM_LEVER_LEAK);
	fix_beside_others(&q, a);
	fix_behind(&q, a);
	fix_what_remains(&q, a);
	fix_further(&q, a);
	fix_at_least(&q, a);
	if (oom_host_grew(c, work, cause))
		oom_fix_add(a, "", oom_who_grows);
	/* Windows reports that nothing is free of any card in use */
	if (q.of_memory && oom_others_perhaps(c) && c->bytes[OOM_CRASH_FREE] && c->bytes[OOM_CRASH_ALLOCATED] >= c->bytes[OOM_CRASH_TOTAL] / 4)
		oom_fix_add(a, "if another program holds what is not this one's: ", oom_fix_words(c, OOM_LEVER_OTHERS));
	if (work == OOM_WORK_INFERENCE && oom_own_script(c) && !oom_runtime_is(c, OOM_RUNTIME_LAYERED))
		oom_fixes_told_first(a);
	oom_fixes_on_device(c, a);
	return told_already;
}
