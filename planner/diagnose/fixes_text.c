/* What the text's own numbers, parts and words ask for, before what helps everybody: whatever ran, what is seen in it, one
 * request that is larger than the rest. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* Images went through the model, or in a training are so large that one request is, or have a limit that the run was told. */
static bool sees_at_work(const struct oom_crash *c, enum oom_crash_work work)
{
	const bool large = oom_dwarfs_the_rest(c) || oom_told_first(c, OOM_ABOUT_PIXELS) ||
			   /* who has an option for it sees at the size that images have */
			   (oom_lever_own(c, OOM_LEVER_PIXELS) && c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TRIED] > c->bytes[OOM_CRASH_TOTAL] / 16);

	/* of a batch of one and adapters most of what is left are the tokens of its images */
	const bool one = oom_lever_own(c, OOM_LEVER_PIXELS) && (c->set & OOM_SET(OOM_LEVER_BATCH)) && (c->set & OOM_SET(OOM_LEVER_ADAPTER)) && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30;

	/* no numbers, and a batch of one: what is left are the tokens of its images */
	const bool silent = oom_lever_own(c, OOM_LEVER_PIXELS) && (c->set & OOM_SET(OOM_LEVER_BATCH)) && !c->known[OOM_CRASH_TRIED];

	if (work == OOM_WORK_LOADING || work == OOM_WORK_SAVING || work == OOM_WORK_UNKNOWN || oom_lever_own(c, OOM_LEVER_TILE))
		return false;
	return c->phase == OOM_CRASH_FORWARD || c->phase == OOM_CRASH_INFERENCE || c->phase == OOM_CRASH_EVAL || c->part == OOM_PART_WARMUP ||
	       (c->phase == OOM_CRASH_TRAIN_STEP && (large || one || silent) && !oom_weights_too_large(c, work));
}

/* PyTorch's own attention was called, and asked for its scores in one piece: none of its fused kernels took the call. */
static bool falls_back(const struct oom_crash *c)
{
	return c->part == OOM_PART_SCORES && oom_told(c, "sdpa") > 0 && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30 && oom_runtime_is(c, OOM_RUNTIME_TORCH);
}

/* What stands in the way whatever ran: models that stay, another card than was meant, a card of its own. */
static void fix_before_all(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const bool of_memory = q->of_memory;

	if ((of_memory || q->cause == OOM_CAUSE_KV_CACHE || q->cause == OOM_CAUSE_OTHER_PROCESS) && c->several)
		oom_fix_lever(c, a, "", OOM_LEVER_UNLOAD);
	/* MPSHeapAllocatorImpl::init_allocator in aten/src/ATen/mps/MPSAllocator.mm; a limit that was lifted is none in the message */
	if (oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && (c->set & OOM_SET(OOM_LEVER_WATERMARK)) && c->known[OOM_CRASH_TOTAL])
		oom_fix_add(a, "", "export the variable in the shell, before Python starts: it is read once, when the allocator is made, and the limit in the message is the one that held");
	if ((of_memory || (q->cause == OOM_CAUSE_KV_CACHE && c->two_ways)) && c->drafts && oom_program_of(c)->activity == OOM_ACTIVITY_SERVES)
		oom_fix_add(a, "", "without speculative decoding, or with a small draft model of its own: the draft's weights, cache and graphs lie on the card beside the model's");
	if (oom_other_card(c))
		oom_fix_add(a, "", "the card that was meant: CUDA counts the fastest first, nvidia-smi by the bus (CUDA_DEVICE_ORDER=PCI_BUS_ID makes them one), CUDA_VISIBLE_DEVICES chooses before the program starts");
	if (of_memory && c->part == OOM_PART_CONTEXT)
		oom_fix_add(a, "", "a card of its own for each rank: torch.cuda.set_device(local_rank) before init_process_group(), and CUDA_VISIBLE_DEVICES without cards that others use (nvidia-smi)");
	if (of_memory && oom_full_of_unknown(c) && q->work != OOM_WORK_TRAINING)
		oom_fix_lever(c, a, "the text does not say who fills the card: ", OOM_LEVER_OTHERS);
	if (of_memory && oom_others_perhaps(c) && c->bytes[OOM_CRASH_ALLOCATED] < c->bytes[OOM_CRASH_TOTAL] / 4)
		oom_fix_lever(c, a, "most of the card is not this program's: ", OOM_LEVER_OTHERS);
	/* who watched it grow in a script that infers: graphs that nobody goes back through */
	if (q->work == OOM_WORK_INFERENCE && oom_own_script(c) && oom_runtime_is(c, OOM_RUNTIME_TORCH) && oom_perhaps_leaks(q) && c->bytes[OOM_CRASH_TRIED] < c->bytes[OOM_CRASH_ALLOCATED] / 8) {
		oom_fix_lever(c, a, "", OOM_LEVER_NO_GRAD);
		oom_fix_lever(c, a, "", OOM_LEVER_LEAK);
	}
	/* aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: less_than_sm80_mem_efficient_dtypes; on AMD the check of flash
	 * attention's hardware there asks for that variable */
	if (falls_back(c) && (c->old_card || c->before_bf16))
		oom_fix_add(a, "", "torch.float16 as the model's type: before Ampere PyTorch's fused attention takes that and float32 alone, of another type it makes the whole matrix of scores, which no offload makes smaller");
	else if (falls_back(c) && (c->amd || !strcmp(c->framework, "torch-rocm")))
		oom_fix_add(a, "", "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 before it starts: without it PyTorch has no fused attention for many Radeon cards, and makes the whole matrix of scores");
	if (of_memory && c->keeps_vectors && q->work != OOM_WORK_TRAINING)
		oom_fix_add(a, "", "encode() without convert_to_tensor=True: with it the vectors of all inputs stay on the card until the last is made, as NumPy arrays each batch's go to the host; many millions in parts, each saved");
	if (of_memory && c->map_undone)
		oom_fix_add(a, "", "leave out the .cuda() or .to() behind from_pretrained: device_map has laid the layers over the cards, and that call lays all of them on the first; move the inputs alone");
	if (of_memory && c->moved_whole)
		oom_fix_add(a, "", "leave out .to(\"cuda\") before enable_model_cpu_offload(): it puts every part on the card at once; the offload moves each part there when it runs");
	if (of_memory && c->mapped && q->work == OOM_WORK_INFERENCE)
		oom_fix_add(a, "", "fewer layers on the card that refused: max_memory={0: \"40GiB\", 1: ...} beside device_map, which fills cards with weights and leaves no room for what runs there");
	if (q->cause == OOM_CAUSE_TOO_LARGE && oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TOTAL] < (uint64_t)5 << 28)
		oom_fix_add(a, "", "another card, or the CPU (device=\"cpu\"): one of about 1 GB has next to no room beside the CUDA context");
}

/* Programs that make pictures have options for their attention and their decoder, which alone make tensors that large. */
static bool draws(const struct oom_crash *c, enum oom_crash_work work)
{
	return work == OOM_WORK_INFERENCE && oom_lever_own(c, OOM_LEVER_TILE) && oom_lever_own(c, OOM_LEVER_CONTEXT) && oom_program_of(c)->activity == OOM_ACTIVITY_INFERS;
}

/* One tensor that is larger than the card, padding, pictures, a notebook: what is seen whatever part asked. */
static void fix_what_is_seen(const struct oom_asked *q, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_crash_work work = q->work;
	const enum oom_cause cause = q->cause;
	const bool of_memory = q->of_memory;

	const struct oom_crash_told *const batch = oom_told_first(c, OOM_ABOUT_BATCH);

	/* of a batch that was told, a part is smaller by as much: where one sample of it fits */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && oom_alone_too_large(c) && batch && batch->value > 1 && c->known[OOM_CRASH_TOTAL] &&
	    (double)c->bytes[OOM_CRASH_TRIED] / batch->value < (double)c->bytes[OOM_CRASH_TOTAL])
		oom_fix_lever(c, a, "", OOM_LEVER_BATCH);
	/* one tensor larger than the card: nothing but that tensor helps; of a convolution its part says so */
	if (cause == OOM_CAUSE_TOO_LARGE && oom_alone_too_large(c) && (c->part != OOM_PART_MAPS || work == OOM_WORK_TRAINING) && !draws(c, work))
		oom_fix_lever(c, a, "", c->phase == OOM_CRASH_TO_DEVICE && c->part != OOM_PART_INPUT ? OOM_LEVER_WIDE : c->part == OOM_PART_LOSS ? OOM_LEVER_SHAPES : OOM_LEVER_LIMIT);
	if (of_memory && c->padding >= 2)
		oom_fix_add(a, "", "lay that array out with a long dimension last (a transpose or reshape before it): its last dimension is filled up to 128, and most of it is padding");
	/* of what draws, only attention keeps a matrix of every pixel against every other */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_INFERENCE && oom_alone_too_large(c) && c->part == OOM_PART_UNKNOWN && oom_lever_own(c, OOM_LEVER_TILE) && oom_lever_own(c, OOM_LEVER_SCORES) &&
	    !oom_lever_is_set(c, OOM_LEVER_SCORES))
		oom_fix_lever(c, a, "", OOM_LEVER_SCORES);
	/* the largest batch of a model that sees is one of images */
	if (of_memory && c->sees && c->part == OOM_PART_WARMUP)
		oom_fix_lever(c, a, "", OOM_LEVER_PIXELS);
	/* a notebook keeps what was made before */
	if (of_memory && c->notebook && (work == OOM_WORK_LOADING || work == OOM_WORK_SETUP) && oom_mostly_own(c) && !((double)c->parameters * 4 > (double)c->bytes[OOM_CRASH_TOTAL]))
		oom_fix_lever(c, a, "", OOM_LEVER_RESTART);
}

/* One request that is far larger than the others. */
static void fix_one_request(const struct oom_asked *q, enum oom_lever part, struct oom_crash_answer *a)
{
	const struct oom_crash *c = q->c;
	const enum oom_crash_work work = q->work;
	const enum oom_cause cause = q->cause;

	/* nothing shows what asked: an input far longer or larger than the others */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_INFERENCE && !part && c->part == OOM_PART_UNKNOWN && oom_one_is_large(c) && !oom_takes_share(c) && !c->language && !oom_dialect_is(c, OOM_DIALECT_QUANTISES) &&
	    /* frames of those two show how a program is run, not what is in it */
	    (!c->traceback || oom_runtime_is(c, OOM_RUNTIME_GRAPH | OOM_RUNTIME_EXECUTABLE)) && !oom_alone_too_large(c))
		oom_fix_lever(c, a, "", OOM_LEVER_CONTEXT);
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && oom_dwarfs_the_rest(c)) {
		if (oom_lever_pointless(c, cause, OOM_LEVER_LONGEST) && oom_own_script(c) && !part)
			oom_fix_add(a, "", "look at that one request first: a sample far larger than the others, or a matrix of all against all");
		else
			oom_fix_lever(c, a, "", OOM_LEVER_LONGEST);
	}
}

/* Its words name a number of the run's own. */
static bool names_own(const struct oom_crash *c, enum oom_lever l)
{
	char buf[300];
	const char *const words = oom_told_words(c, l, oom_fix_words(c, l), buf, sizeof(buf));

	return words && strstr(words, " -> ");
}

/* Where somebody else killed it: the limit in the text's own words, else what it is called where that is printed.  A pool of
 * the card has its own: the host's says nothing of it. */
static void of_limit(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char own[240];

	if (cause == OOM_CAUSE_HOST_RAM && *c->memory_limit && !oom_format_is(c, OOM_FORMAT_ONE_ARRAY | OOM_FORMAT_RAISED)) {
		snprintf(own, sizeof(own), "raise the limit that the text gives, %s: what is beyond it is refused or ends the process, however much the machine has", c->memory_limit);
		oom_fix_add(a, "", own);
		return;
	}
	oom_fix_add(a, "", oom_format_of(c)->limit);
}

/* What the text's own numbers and parts ask for, before what helps everybody.  Returns what the run has already. */
uint64_t oom_fixes_of_text(const struct oom_asked *q, struct oom_crash_answer *a)
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
	if (of_memory && c->matrix[0] && oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->phase == OOM_CRASH_OPTIMIZER)
		oom_fix_add(a, "", "a smaller layer of that shape: pool or stride before inputs are flattened, fewer units, or fewer words of an embedding");
	oom_fixes_of_facts(c, cause, a);
	oom_fixes_of_numbers(c, cause, oom_lever_of(c, OOM_LEVER_OFFLOAD), a);
	if (of_memory || cause == OOM_CAUSE_HOST_RAM)
		oom_fix_add(a, "", oom_told_cost(c, cause == OOM_CAUSE_HOST_RAM));
	fix_what_is_seen(q, a);
	/* not the first card, and little was asked of it: what lies on the others can be more */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_LAYERED) && c->gpu_index > 0 && c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] < (uint64_t)1 << 30)
		oom_fix_lever(c, a, "", OOM_LEVER_SPREAD);
	/* a graph's buffers of that size hold the scores: half the batch is not enough */
	if (of_memory && c->part == OOM_PART_SCRATCH && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)16 << 30 && !oom_lever_is_set(c, OOM_LEVER_SCORES) && oom_lever_own(c, OOM_LEVER_SCORES) &&
	    (!names_own(c, OOM_LEVER_SCRATCH) || c->bytes[OOM_CRASH_TRIED] >= (uint64_t)64 << 30))
		oom_fix_lever(c, a, "", OOM_LEVER_SCORES);
	if (of_part && work != OOM_WORK_UNKNOWN && part && oom_lever_is_set(c, part))
		told_already |= OOM_SET(part);
	else if (of_part && work != OOM_WORK_UNKNOWN && part && (c->part != OOM_PART_BUCKET || oom_lever_own(c, part)))
		oom_fix_lever(c, a, "", oom_fix_instead(c, cause, part));
	/* a graph's buffers hold the scores, where attention keeps them */
	if (of_memory && c->part == OOM_PART_SCRATCH && !oom_lever_is_set(c, OOM_LEVER_SCORES) && oom_lever_own(c, OOM_LEVER_SCORES))
		oom_fix_lever(c, a, "", OOM_LEVER_SCORES);
	/* the run's own option is off: nothing is cheaper */
	if (of_memory && work == OOM_WORK_TRAINING && *c->off && c->sees && oom_lever_is_set(c, OOM_LEVER_BATCH))
		oom_fix_lever(c, a, "", OOM_LEVER_RECOMPUTE);
	if (of_memory && c->sees && sees_at_work(c, work))
		oom_fix_lever(c, a, "", OOM_LEVER_PIXELS);
	fix_one_request(q, part, a);
	if (of_memory && engine)
		oom_fix_lever(c, a, "", OOM_LEVER_ROOM);
	if (cause == OOM_CAUSE_HOST_RAM && c->unified)
		oom_fix_add(a, "", "free the one memory that both use: close the desktop and other programs (tegrastats, free -m); swap does not help the card's part");
	else if (cause == OOM_CAUSE_HOST_RAM)
		oom_fixes_host(c, a);
	/* of what grows, a higher limit only puts it off */
	if (oom_host_grew(c, work, cause))
		oom_fix_lever(c, a, "", OOM_LEVER_WORKERS);
	/* a limit that somebody set: of the host's memory, or of a pool */
	if (cause == OOM_CAUSE_HOST_RAM || cause == OOM_CAUSE_KV_CACHE)
		of_limit(c, cause, a);
	return told_already;
}
