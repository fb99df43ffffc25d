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
static const char further[] = "further than was tried: ";

/* Words with the run's own numbers in them. */
static void add(const struct oom_crash *c, struct oom_crash_answer *a, const char *prefix, enum oom_lever l)
{
	const size_t before = a->n_fix;
	char buf[300];

	if (c->tried & OOM_SET(l))
		return;
	oom_fix_add(a, prefix, oom_told_words(c, l, oom_fix_words(c, l), buf, sizeof(buf)));
	if (a->n_fix > before && !a->rung)
		a->rung = rung_of(l);
}

void oom_fix_lever(const struct oom_crash *c, struct oom_crash_answer *a, const char *condition, enum oom_lever lever)
{
	add(c, a, condition, lever);
}

/* A crash as answers are looked for: what was at work, why it died, and what follows from both. */
struct asked {
	const struct oom_crash *c;
	enum oom_crash_work work;
	enum oom_cause cause;
	const enum oom_lever *levers;   /* in their order; NULL: the text does not say what ran */
	bool of_memory;                 /* there was not enough of it, or nobody knows */
};

/* Images went through the model, or in a training are so large that one request is, or have a limit that the run was told. */
static bool sees_at_work(const struct oom_crash *c, enum oom_crash_work work)
{
	const bool large = oom_dwarfs_the_rest(c) || oom_told_first(c, OOM_ABOUT_PIXELS);

	if (work == OOM_WORK_LOADING || work == OOM_WORK_SAVING || work == OOM_WORK_UNKNOWN || oom_lever_own(c, OOM_LEVER_TILE))
		return false;
	return c->phase == OOM_CRASH_FORWARD || c->phase == OOM_CRASH_INFERENCE || c->phase == OOM_CRASH_EVAL || c->part == OOM_PART_WARMUP ||
	       (c->phase == OOM_CRASH_TRAIN_STEP && large && !oom_weights_too_large(c, work));
}

/* What stands in the way whatever ran: models that stay, another card than was meant, a card of its own. */
static void fix_before_all(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool of_memory = q->of_memory;

	if ((of_memory || q->cause == OOM_CAUSE_KV_CACHE || q->cause == OOM_CAUSE_OTHER_PROCESS) && c->several)
		add(c, a, "", OOM_LEVER_UNLOAD);
	if (oom_other_card(c))
		oom_fix_add(a, "", "the card that was meant: CUDA counts the fastest first, nvidia-smi by the bus (CUDA_DEVICE_ORDER=PCI_BUS_ID makes them one), CUDA_VISIBLE_DEVICES chooses before the program starts");
	if (of_memory && c->part == OOM_PART_CONTEXT)
		oom_fix_add(a, "", "a card of its own for each rank: torch.cuda.set_device(local_rank) before init_process_group(), and CUDA_VISIBLE_DEVICES without cards that others use (nvidia-smi)");
	if (of_memory && c->moved_whole)
		oom_fix_add(a, "", "leave out .to(\"cuda\") before enable_model_cpu_offload(): it puts every part on the card at once; the offload moves each part there when it runs");
	if (of_memory && c->mapped && q->work == OOM_WORK_INFERENCE)
		oom_fix_add(a, "", "fewer layers on the card that refused: max_memory={0: \"40GiB\", 1: ...} beside device_map, which fills cards with weights and leaves no room for what runs there");
	if (q->cause == OOM_CAUSE_TOO_LARGE && oom_crash_of_card(c) && q->work == OOM_WORK_TRAINING && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TOTAL] < (uint64_t)5 << 28)
		oom_fix_add(a, "", "another card, or the CPU (device=\"cpu\"): one of about 1 GB has next to no room beside the CUDA context");
}

/* One tensor that is larger than the card, padding, pictures, a notebook: what is seen whatever part asked. */
static void fix_what_is_seen(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_crash_work work = q->work;
	const enum oom_cause cause = q->cause;
	const bool of_memory = q->of_memory;

	/* one tensor larger than the card: nothing but that tensor helps; of a convolution its part says so */
	if (cause == OOM_CAUSE_TOO_LARGE && oom_alone_too_large(c) && (c->part != OOM_PART_MAPS || work == OOM_WORK_TRAINING))
		add(c, a, "", c->phase == OOM_CRASH_TO_DEVICE && c->part != OOM_PART_INPUT ? OOM_LEVER_WIDE : c->part == OOM_PART_LOSS ? OOM_LEVER_SHAPES : OOM_LEVER_LIMIT);
	if (of_memory && c->padding >= 2)
		oom_fix_add(a, "", "lay that array out with a long dimension last (a transpose or reshape before it): its last dimension is filled up to 128, and most of it is padding");
	/* of what draws, only attention keeps a matrix of every pixel against every other */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_INFERENCE && oom_alone_too_large(c) && c->part == OOM_PART_UNKNOWN && oom_lever_own(c, OOM_LEVER_TILE) && oom_lever_own(c, OOM_LEVER_SCORES) &&
	    !oom_lever_is_set(c, OOM_LEVER_SCORES))
		add(c, a, "", OOM_LEVER_SCORES);
	/* the largest batch of a model that sees is one of images */
	if (of_memory && c->sees && c->part == OOM_PART_WARMUP)
		add(c, a, "", OOM_LEVER_PIXELS);
	/* a notebook keeps what was made before */
	if (of_memory && c->notebook && (work == OOM_WORK_LOADING || work == OOM_WORK_SETUP) && oom_mostly_own(c))
		add(c, a, "", OOM_LEVER_RESTART);
}

/* One request that is far larger than the others. */
static void fix_one_request(const struct asked *q, enum oom_lever part, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_crash_work work = q->work;
	const enum oom_cause cause = q->cause;

	/* nothing shows what asked: an input far longer or larger than the others */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_INFERENCE && !part && c->part == OOM_PART_UNKNOWN && oom_one_is_large(c) && !oom_takes_share(c) && !c->language &&
	    /* frames of those two show how a program is run, not what is in it */
	    (!c->traceback || oom_runtime_is(c, OOM_RUNTIME_GRAPH | OOM_RUNTIME_EXECUTABLE)) && !oom_alone_too_large(c))
		add(c, a, "", OOM_LEVER_CONTEXT);
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && oom_dwarfs_the_rest(c)) {
		if (oom_lever_pointless(c, cause, OOM_LEVER_LONGEST) && oom_own_script(c) && !part)
			oom_fix_add(a, "", "look at that one request first: a sample far larger than the others, or a matrix of all against all");
		else
			add(c, a, "", OOM_LEVER_LONGEST);
	}
}

/* What the text's own numbers and parts ask for, before what helps everybody.  Returns what the run has already. */
static uint64_t fix_this_text(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_crash_work work = q->work;
	const enum oom_cause cause = q->cause;
	const bool of_memory = q->of_memory;
	const enum oom_lever part = work == OOM_WORK_TRAINING ? oom_part_of(c)->trains : oom_part_of(c)->runs;
	const bool engine = work == OOM_WORK_TRAINING && c->engine && oom_lever_own(c, OOM_LEVER_ROOM);
	/* an evaluation's forward pass, where nothing was joined yet */
	const bool of_part = of_memory || (cause == OOM_CAUSE_EVAL_LOGITS && c->cause[0].confidence < 0.8);
	uint64_t told_already = 0;

	fix_before_all(q, a);
	oom_fixes_of_numbers(c, cause, oom_lever_of(c, OOM_LEVER_OFFLOAD), a);
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && c->bytes[OOM_CRASH_OTHER] > c->bytes[OOM_CRASH_ALLOCATED])
		add(c, a, "", OOM_LEVER_RESTART);
	if (of_memory || cause == OOM_CAUSE_HOST_RAM)
		oom_fix_add(a, "", oom_told_cost(c, cause == OOM_CAUSE_HOST_RAM));
	fix_what_is_seen(q, a);
	if (of_part && work != OOM_WORK_UNKNOWN && part && oom_lever_is_set(c, part))
		told_already |= OOM_SET(part);
	else if (of_part && work != OOM_WORK_UNKNOWN && part && (c->part != OOM_PART_BUCKET || oom_lever_own(c, part)))
		add(c, a, "", oom_fix_instead(c, cause, part));
	/* a graph's buffers hold the scores, where attention keeps them */
	if (of_memory && c->part == OOM_PART_SCRATCH && !oom_lever_is_set(c, OOM_LEVER_SCORES) && oom_lever_own(c, OOM_LEVER_SCORES))
		add(c, a, "", OOM_LEVER_SCORES);
	/* not the first card, and little was asked of it: what lies on the others can be more */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_LAYERED) && c->gpu_index > 0 && c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] < (uint64_t)1 << 30)
		add(c, a, "", OOM_LEVER_SPREAD);
	if (of_memory && c->sees && sees_at_work(c, work))
		add(c, a, "", OOM_LEVER_PIXELS);
	fix_one_request(q, part, a);
	if (of_memory && engine)
		add(c, a, "", OOM_LEVER_ROOM);
	if (cause == OOM_CAUSE_HOST_RAM)
		oom_fixes_host(c, a);
	/* a limit that somebody set: of the host's memory, or of a pool */
	if (cause == OOM_CAUSE_HOST_RAM || cause == OOM_CAUSE_KV_CACHE)
		oom_fix_add(a, "", oom_format_of(c)->limit);
	return told_already;
}

/* On what condition a lever of the host's memory helps where nobody named the part. */
static const char *if_it_was(const struct asked *q, enum oom_lever l)
{
	const bool loads = q->work == OOM_WORK_UNKNOWN || q->work == OOM_WORK_TRAINING || q->work == OOM_WORK_EVAL;

	return q->cause != OOM_CAUSE_HOST_RAM			       ? "" :
	       l == OOM_LEVER_WORKERS && q->work != OOM_WORK_DATA ? "if data was being prepared: " :
	       l == OOM_LEVER_LOAD_HOST && loads			       ? "if a model was being loaded: " :
									 "";
}

/* The levers of this work and cause in their order, less those that the run has already: these are returned. */
static uint64_t fix_by_levers(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool told = q->cause == OOM_CAUSE_HOST_RAM && oom_format_of(c)->limit;
	/* an allocator without settings: what is emptied fills again with the next step */
	const enum oom_lever part = q->work == OOM_WORK_TRAINING ? oom_part_of(c)->trains :
				    q->work == OOM_WORK_EVAL || q->work == OOM_WORK_INFERENCE ? oom_part_of(c)->runs : OOM_LEVER_NONE;
	const bool behind = oom_format_is(c, OOM_FORMAT_NO_AMP) && q->levers && q->levers[1] && !oom_lever_own(c, OOM_LEVER_FRAGMENT);
	uint64_t told_already = 0;

	for (size_t i = 0; q->levers && i < OOM_MAX_LEVERS && q->levers[i]; i++) {
		const enum oom_lever l = q->levers[i];

		if (oom_lever_is_set(c, l))
			told_already |= OOM_SET(l);
		/* one array is no second copy of the weights; of the limit, all is said above */
		if (oom_lever_is_set(c, l) || oom_lever_pointless(c, q->cause, l) || (l == OOM_LEVER_LOAD_HOST && oom_host_array(c)) || (l == OOM_LEVER_HOST && oom_host_array_huge(c)) ||
		    (told && l == OOM_LEVER_HOST && !oom_lever_own(c, l)))
			continue;
		if (!(behind && l == OOM_LEVER_FRAGMENT))
			add(c, a, if_it_was(q, l), oom_fix_instead(c, q->cause, l));
		/* one piece that large was asked for by what the frames show: smaller, it needs none */
		if (l == OOM_LEVER_FRAGMENT && part && !oom_lever_is_set(c, part) && !oom_lever_pointless(c, q->cause, part))
			add(c, a, "", oom_fix_instead(c, q->cause, part));
	}
	if (behind && q->cause == OOM_CAUSE_FRAGMENTATION)
		add(c, a, "", oom_fix_instead(c, q->cause, OOM_LEVER_FRAGMENT));
	return told_already;
}

/* Not the likeliest cause, but likely: what is kept from step to step. */
static bool of_memory_leaks(const struct asked *q)
{
	for (size_t i = 1; q->of_memory && i < q->c->n_causes; i++)
		if (q->c->cause[i].cause == OOM_CAUSE_LEAK && q->c->cause[i].confidence >= 0.5)
			return true;
	return false;
}

/* Others hold the card, and this process a part of it: beside them it may still fit. */
static void fix_beside_others(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool trains = q->work == OOM_WORK_TRAINING, runs = q->work == OOM_WORK_INFERENCE || q->work == OOM_WORK_EVAL;
	const enum oom_lever part = trains ? oom_part_of(c)->trains : oom_part_of(c)->runs,
			     l = part ? part : trains ? OOM_LEVER_BATCH : q->work == OOM_WORK_EVAL ? OOM_LEVER_EVAL_BATCH : OOM_LEVER_REQUESTS;

	if (q->cause == OOM_CAUSE_OTHER_PROCESS && c->part == OOM_PART_MERGED)
		add(c, a, "or without the card: ", OOM_LEVER_MERGE);
	if (q->cause == OOM_CAUSE_OTHER_PROCESS && (trains || runs) && !oom_takes_share(c) && c->known[OOM_CRASH_TOTAL] && !oom_lever_is_set(c, l) &&
	    c->bytes[OOM_CRASH_ALLOCATED] >= c->bytes[OOM_CRASH_TOTAL] / 8)
		add(c, a, "to fit beside them: ", l);
}

/* Pieces that would be enough, were they one: behind what helps surely. */
static void fix_by_pieces(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;

	if (q->cause != OOM_CAUSE_TOO_LARGE || !oom_stranded_enough(c) || oom_lever_is_set(c, OOM_LEVER_FRAGMENT))
		return;
	if (a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	add(c, a, q->levers ? "" : "in any case: ", oom_fix_instead(c, q->cause, OOM_LEVER_FRAGMENT));
}

/* A last place is made for what is worth more than the last of the levers. */
static void fix_behind(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool of_memory = q->of_memory;

	/* not the first card: what lies on the others can be more */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_LAYERED) && c->gpu_index > 0 && a->n_fix) {
		if (a->n_fix == OOM_ANSWER_FIXES)
			a->n_fix--;
		add(c, a, "", OOM_LEVER_SPREAD);
	}
	if (q->levers)
		fix_by_pieces(q, a);
}

/* The run was told a length that is more than most data needs. A guess: fine-tuning's defaults end at 2048. */
static bool long_by_its_own(const struct oom_crash *c)
{
	const struct oom_crash_told *const t = oom_told_first(c, OOM_ABOUT_LENGTH);

	return t && t->value >= 4096;
}

/* What remains when the batch cannot be halved, and who else may lie there. */
static void fix_what_remains(const struct asked *q, struct oom_crash_answer *a)
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
	/* nothing left to halve: what remains changes what is learnt */
	if (work == OOM_WORK_TRAINING && ((of_memory && (oom_lever_is_set(c, OOM_LEVER_BATCH) || oom_alone_too_large(c) || long_by_its_own(c))) ||
					  (cause == OOM_CAUSE_FRAGMENTATION && oom_lever_is_set(c, OOM_LEVER_BATCH) && oom_told_first(c, OOM_ABOUT_LENGTH))))
		add(c, a, "", OOM_LEVER_LENGTH);
	if (of_memory && work == OOM_WORK_TRAINING && !oom_alone_too_large(c) && !oom_lever_is_set(c, OOM_LEVER_QUANT)) {
		if (oom_lever_is_set(c, OOM_LEVER_ADAPTER))
			add(c, a, "", OOM_LEVER_QUANT);
		else if (oom_lever_is_set(c, OOM_LEVER_BATCH) && (c->language || oom_lever_own(c, OOM_LEVER_ADAPTER)))
			add(c, a, "", OOM_LEVER_ADAPTER);
	}
	/* unified memory: the limit is a share of it */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && levers)
		add(c, a, "", OOM_LEVER_WATERMARK);
	if (cause == OOM_CAUSE_UNKNOWN && work != OOM_WORK_UNKNOWN && !oom_plenty(c))
		add(c, a, "if it has no more than usual: ", OOM_LEVER_OTHERS);
}

/* Nothing has been said yet: what the program has at all, or the first thing to try. */
static void fix_at_least(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_cause cause = q->cause;
	const enum oom_crash_work work = q->work;
	const enum oom_lever *levers = q->levers;

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
static void fix_further(const struct asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;

	if (q->cause == OOM_CAUSE_SHM && (c->tried & OOM_SET(OOM_LEVER_SHM)))
		oom_fix_add(a, "", "neither helped, so look for another bus error: a file that is mapped (LMDB, memmap, Arrow, safetensors) and shorter than its index says, or on a disk that is full or "
			    "fails; read its samples one by one without the loader");
	for (size_t i = 0; q->levers && i < OOM_MAX_LEVERS && q->levers[i]; i++)
		if ((c->tried & OOM_SET(q->levers[i])) && !oom_lever_is_set(c, q->levers[i]) && !oom_lever_pointless(c, q->cause, q->levers[i]))
			/* not by the numbers that failed */
			oom_fix_add(a, further, oom_fix_words(c, oom_fix_instead(c, q->cause, q->levers[i])));
}

/* What inference does without costs nothing that was learnt: the run's own options, whose names its owner knows, stand
 * before advice in general. */
static void put_told_first(struct oom_crash_answer *a)
{
	size_t to = 0;

	for (size_t i = 0; i < a->n_fix; i++) {
		char one[sizeof(a->fix[0])];

		if ((!strstr(a->fix[i], " -> ") && !strstr(a->fix[i], " the line's ")) || !strncmp(a->fix[i], further, strlen(further)))
			continue;
		memcpy(one, a->fix[i], sizeof(one));
		memmove(a->fix[to + 1], a->fix[to], (i - to) * sizeof(a->fix[0]));
		memcpy(a->fix[to++], one, sizeof(one));
	}
}

uint64_t oom_fixes(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	const struct asked q = {c, work, cause, oom_levers(c, work, cause),
				cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_UNKNOWN || cause == OOM_CAUSE_BUFFER_LIMIT};
	uint64_t told_already;

	if (q.of_memory && oom_no_device_has(c)) {
		oom_fix_add(a, "", "no device has as much: look for the shape or count it was computed from (a negative or overflowing size, a wrong type, a "
			   "corrupt input or file); smaller batches do not help");
		return 0;
	}
	told_already = fix_this_text(&q, a);
	told_already |= fix_by_levers(&q, a);
	if (cause == OOM_CAUSE_HOST_RAM)
		oom_fixes_host_behind(c, a);
	if (of_memory_leaks(&q))
		add(c, a, "", OOM_LEVER_LEAK);
	fix_beside_others(&q, a);
	fix_behind(&q, a);
	fix_what_remains(&q, a);
	fix_further(&q, a);
	fix_at_least(&q, a);
	if (work == OOM_WORK_INFERENCE && oom_own_script(c) && !oom_runtime_is(c, OOM_RUNTIME_LAYERED))
		put_told_first(a);
	return told_already;
}
