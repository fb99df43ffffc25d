/* Why it ran out: what its words say (cause_rules.c), then what its numbers say (cause_numbers.c), ranked by
 * confidence.
 *
 * Playbook M3 (host memory), M15, M16, M17; wordings as in message.c. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

static const struct oom_cause_info infos[OOM_CAUSES] = {
	{"too_large", "what is resident and the request together exceed the memory", 1, "playbook M2, M4"},
	{"fragmentation", "enough is reserved but in pieces too small for the request", 4, "playbook M8"},
	{"other_process", "another process (or a zombie) holds the card", 0, "playbook M2"},
	{"host_ram", "the host's memory ran out, not the GPU's: do not shrink the model for the card", 0, "playbook M3"},
	{"shm", "shared memory of the data loader ran out", 0, "playbook M3"},
	{"eval_logits", "evaluation piles logits up on the GPU", 0, "playbook M15"},
	{"longest_batch", "the longest batch is larger than those before", 6, "playbook M16"},
	{"step_2", "optimizer state appears at the first step: what follows does not fit", 7, "playbook M17"},
	{"leak", "allocated memory rises from step to step", 0, "playbook M20"},
	{"kv_cache_budget", "the serving engine has no room left for its KV cache", 0, "vLLM documentation"},
	{"memory_fraction_cap", "a cap set in the program is the limit, not the card", 0, "c10/cuda/CUDACachingAllocator.cpp"},
	{"watermark_cap", "the MPS watermark is the limit", 0, "aten/src/ATen/mps/MPSAllocator.mm"},
	{"wrong_capacity_reported", "the numbers contradict one another: the driver reports a wrong capacity", 0, "playbook M2"},
	{"buffer_limit", "one buffer is larger than the device allows for one, whatever is free", 0,
	 "MTLDevice.maxBufferLength, CL_DEVICE_MAX_MEM_ALLOC_SIZE"},
	{"not_oom", "not an out-of-memory error", 0, "playbook M2"},
	{"unknown", "the text does not say", 0, "playbook M2"},
};

const struct oom_cause_info *oom_cause_info(enum oom_cause cause)
{
	return &infos[cause];
}

const char *oom_crash_number_str(enum oom_crash_number n)
{
	static const char *const words[OOM_CRASH_NUMBERS] = {
		"tried_bytes", "total_bytes", "free_bytes", "process_bytes", "allocated_bytes", "reserved_total_bytes",
		"reserved_unallocated_bytes", "private_pool_bytes", "allowed_bytes", "other_bytes"};

	return words[n];
}

void oom_cause_say(struct oom_crash *c, enum oom_cause cause, double confidence, const char *evidence)
{
	size_t i = c->n_causes;

	for (size_t j = 0; j < c->n_causes; j++)
		if (c->cause[j].cause == cause)
			return;
	if (i == OOM_CRASH_CAUSES)
		return;
	c->n_causes++;
	for (; i > 0 && c->cause[i - 1].confidence < confidence; i--)
		c->cause[i] = c->cause[i - 1];
	c->cause[i] = (struct oom_verdict){.cause = cause, .confidence = confidence};
	snprintf(c->cause[i].evidence, sizeof(c->cause[i].evidence), "%s", evidence);
}

/* ---- words ---- */

static bool has_word(const struct oom_cause_rule *r, const char *begin, const char *at, const char *end)
{
	const char *const line = oom_line_begin(begin, at), *const stop = oom_line_end(at, end);
	const char *const next = stop < end ? oom_line_end(stop + 1, end) : stop;

	switch (r->where) {
	case OOM_PLACE_LINE:
		return oom_text_find(line, stop, r->word) != NULL;
	case OOM_PLACE_ROUND:
		return oom_text_find(line > begin ? oom_line_begin(begin, line - 1) : line, next, r->word) != NULL;
	case OOM_PLACE_NEXT:
		return oom_text_find(line, next, r->word) != NULL;
	case OOM_PLACE_NEAR:
		return oom_text_find(at - begin > 600 ? at - 600 : begin, stop, r->word) != NULL;
	case OOM_PLACE_BEHIND:
		return oom_text_find(line, end, r->word) != NULL;
	case OOM_PLACE_TEXT:
		return oom_text_find(begin, end, r->word) != NULL;
	default:
		return true;
	}
}

/* True when a row met. */
static bool by_rules(struct oom_crash *c, const struct oom_cause_rule *r, const char *begin, const char *at,
		     const char *end)
{
	const unsigned runtime = oom_runtime_named(c->framework)->traits, wording = oom_format_of(c)->traits;
	bool met = false;

	for (; r->evidence; r++) {
		if ((r->format && strncmp(c->format, r->format, strlen(r->format))) ||
		    (r->runtime && !(r->runtime & runtime)) || (r->wording && !(r->wording & wording)) ||
		    !has_word(r, begin, at, end))
			continue;
		oom_cause_say(c, r->cause, r->confidence, r->evidence);
		c->pinned |= r->pinned;
		c->unified |= r->unified;
		met = true;
		if (!r->more)
			break;
	}
	return met;
}

/* ---- what is short ---- */

/* Less is free than a server was told to take: a desktop and a context take their gigabyte, more belongs to
 * somebody. */
static void of_share(struct oom_crash *c)
{
	const uint64_t total = c->bytes[OOM_CRASH_TOTAL], left = c->bytes[OOM_CRASH_FREE];

	oom_cause_say(c, OOM_CAUSE_KV_CACHE, 0.6, "less is free than gpu_memory_utilization asks for");
	if (total > left + (uint64_t)2 * 1073741824)
		oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.8, "the card was in use before the engine started");
}

/* A single request beyond any host is a wrong size, not a full memory. */
static void of_host(struct oom_crash *c)
{
	if (c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] > (uint64_t)2 << 40)
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.9, "the request alone is larger than any host's memory");
	else
		oom_cause_say(c, OOM_CAUSE_HOST_RAM, 0.9, "the host's allocator or kernel refused or killed");
}

static bool more_than_free(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_FREE] && c->bytes[OOM_CRASH_TRIED] > c->bytes[OOM_CRASH_FREE];
}

/* What the compiler laid out for all of the program: next to nothing is not what fills a device. Guesses of what is
 * next to nothing and of what is much. */
static bool by_program_total(struct oom_crash *c)
{
	const double mib = 1048576;
	const char *after;
	uint64_t total;
	char why[120];

	if (!*c->program_total ||
	    !oom_number_at(c->program_total, c->program_total + strlen(c->program_total), false, &total, &after))
		return false;
	if ((double)total < 256 * mib) {
		snprintf(why, sizeof(why), "the whole program takes %.0f MiB: arrays that are kept, or other programs, hold the device", (double)total / mib);
		oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.55, why);
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.4, "one request could not be met");
		return true;
	}
	if ((double)total < 2048 * mib)
		return false;
	if (c->card_named > 0 && (double)total > c->card_named * 1073741824)
		snprintf(why, sizeof(why), "the program takes %.2f GiB at once; the card that the text names has %.0f GB", (double)total / mib / 1024, c->card_named);
	else
		snprintf(why, sizeof(why), "the program takes %.2f GiB at once; the text does not say what the device has", (double)total / mib / 1024);
	oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.6, why);
	return true;
}

/* XLA says what was free where its allocator had a size. */
/* The largest card in data/gpus.csv, MI355X, has 288 GiB. */
static bool beyond_cards(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && !c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TRIED] > (uint64_t)300 << 30;
}

static void of_executable(struct oom_crash *c)
{
	const uint64_t left = c->bytes[OOM_CRASH_FREE], tried = c->bytes[OOM_CRASH_TRIED];

	if (c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_TOTAL]) {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, tried > c->bytes[OOM_CRASH_TOTAL] ? 0.9 : 0.75,
			      "the compiler says what the program needs and what the device has");
	} else if (!c->known[OOM_CRASH_FREE] && by_program_total(c)) {
		return;
	} else if (beyond_cards(c)) {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.8, "one request of more than any card has");
	} else if (!c->known[OOM_CRASH_FREE]) {
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text does not say how much there was");
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.45, "one request could not be met");
	} else if (c->known[OOM_CRASH_TRIED] && left >= tried) {
		oom_cause_say(c, OOM_CAUSE_FRAGMENTATION, 0.6, "as much is free as was asked for, but not in one piece");
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.4, "one request could not be met");
	} else {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.7, "less is free than was asked for");
	}
}

bool oom_no_device_has(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] > (uint64_t)16 << 40;
}

/* A card's pool is larger: TensorFlow takes nearly all of a card that nobody else uses. A guess. */
static const uint64_t POOL = UINT64_C(512) << 20;

/* Of no runtime in particular. */
static void of_request(struct oom_crash *c)
{
	if (oom_no_device_has(c)) {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.8,
			      "no card has as much: a size that went below zero, or a shape gone wrong");
	} else if (c->known[OOM_CRASH_ALLOWED]) {
		oom_cause_say(c, OOM_CAUSE_FRACTION_CAP, 0.7, "the message names the limit that was set");
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.5, "the request could not be met");
	} else if (c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_FREE] && c->bytes[OOM_CRASH_FREE] / 2 > c->bytes[OOM_CRASH_TRIED]) {
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "far more is free than was asked for: the driver refused, or the free memory is in pieces");
	} else if (oom_format_is(c, OOM_FORMAT_BARE)) {
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text gives no numbers");
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.4, "a library found no memory");
	} else if (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->known[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_TOTAL] < POOL) {
		oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.8,
			      "the pool takes what is free when the program starts, and that was next to nothing: others, or a cap, hold the card");
	} else if (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->phase == OOM_CRASH_INIT) {
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text does not say how much there was");
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.45, "one request could not be met");
	} else {
		const bool told = c->n_causes && c->cause[0].confidence >= 0.5;

		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, told ? 0.4 : c->known[OOM_CRASH_TRIED] ? 0.75 : 0.7,
			      !c->known[OOM_CRASH_TRIED] ? "the text gives no sizes" :
			      more_than_free(c)		 ? "the request exceeds what was free; the text does not say how much there is" :
							   "one request was refused; the text does not say how much was free");
	}
}

/* A loop of one's own: the statement before the message joins what the model said, "preds = torch.cat(...)". */
static bool joins_outputs(const char *begin, const char *at)
{
	static const char *const joins[] = {"torch.cat(", "torch.stack(", "torch.vstack(", ".append(", ".extend("};
	static const char *const outputs[] = {"pred", "logit", "output", "prob", "embed", "feat", "score"};
	const char *line = oom_line_begin(begin, at), *to = line;

	for (int n = 0; n < 3 && to > begin; n++) {
		const char *const from = oom_line_begin(begin, to - 1);
		bool joined = false, said = false;

		for (size_t i = 0; i < sizeof(joins) / sizeof(joins[0]); i++)
			joined |= oom_text_find(from, to, joins[i]) != NULL;
		for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++)
			said |= oom_text_find(from, to, outputs[i]) != NULL;
		if (joined && said)
			return true;
		if (!oom_text_find(from, to, "^^") && !oom_text_find(from, to, "~~"))
			break;
		to = from;
	}
	return false;
}

/* Outputs pile up where batches are joined; a forward pass of an evaluation is as large as its
 * batch. */
static void evaluation(struct oom_crash *c, const char *begin, const char *at)
{
	static const char *const joins[] = {"nested_concat", "preds_host", "pad_and_concatenate",
					    "nested_gather", "all_preds",  "all_logits",
					    "distributed_concat"};

	static const char *const modules[] = {", in forward", " in forward(", ".forward("};

	for (size_t i = 0; i < sizeof(joins) / sizeof(joins[0]); i++)
		if (oom_text_find(begin, at, joins[i])) {
			oom_cause_say(c, OOM_CAUSE_EVAL_LOGITS, 0.85, "outputs of the batches are joined");
			return;
		}
	if (joins_outputs(begin, at)) {
		oom_cause_say(c, OOM_CAUSE_EVAL_LOGITS, 0.8, "the line that failed keeps the outputs of the batches");
		return;
	}
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (oom_text_find(begin, at, modules[i])) {
			oom_cause_say(c, OOM_CAUSE_EVAL_LOGITS, 0.45,
			    "the crash is in a forward pass of the evaluation");
			return;
		}
	/* one request whose kind is known is no pile of outputs */
	if (oom_part_of(c)->noun && c->part != OOM_PART_LOGITS && c->part != OOM_PART_LOSS && c->part != OOM_PART_JOINED) {
		oom_cause_say(c, OOM_CAUSE_EVAL_LOGITS, 0.45, "the crash is in the evaluation loop");
		return;
	}
	/* frames show the loop; words may be of any program that evaluates */
	oom_cause_say(c, OOM_CAUSE_EVAL_LOGITS, c->phase_confidence >= 0.7 ? 0.65 : 0.45, "the crash is in the evaluation loop");
}

/* A message without numbers beside an nvidia-smi table of a full card: before this process did any
 * work, it was others' who filled it. */
static void smi_says(struct oom_crash *c)
{
	const bool early = c->phase == OOM_CRASH_INIT || c->phase == OOM_CRASH_TO_DEVICE ||
			   c->phase == OOM_CRASH_LOAD;

	if (c->known[OOM_CRASH_TOTAL] || oom_runtime_is(c, OOM_RUNTIME_HOST) || !c->smi.total ||
	    (double)c->smi.used < 0.9 * (double)c->smi.total)
		return;
	/* once it works, it is as a rule itself what fills it */
	oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, early ? 0.7 : c->phase == OOM_CRASH_UNKNOWN ? 0.55 : 0.4, "nvidia-smi shows the card full");
}

/* Where the part of the run tells, before the numbers do. */
static void of_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	smi_says(c);
	if (c->phase == OOM_CRASH_EVAL)
		/* who writes that it ran out shows the code behind those words */
		evaluation(c, begin, oom_format_is(c, OOM_FORMAT_BARE) && !c->traceback ? end : at);
	if (oom_text_find(begin, end, "skipping update") ||
	    oom_text_find(begin, end, "skipping batch") || c->ooms > 1)
		oom_cause_say(c, OOM_CAUSE_LONGEST_BATCH, 0.75,
			      "training recovered from it and went on: only some batches do not fit");
	oom_causes_of_growth(c, begin, at, end);
	if (c->phase == OOM_CRASH_OPTIMIZER)
		oom_cause_say(c, OOM_CAUSE_STEP_2, 0.4, "the optimizer's state is made in the first step");
}

static void decode_causes(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const unsigned runtime = oom_runtime_named(c->framework)->traits;

	c->n_causes = 0;
	if (by_rules(c, oom_causes_named, begin, at, end))
		return;
	if (oom_format_is(c, OOM_FORMAT_TABLE)) {
		oom_causes_of_summary(c, at, end);
		return;
	}
	if (oom_format_is(c, OOM_FORMAT_SHARE)) {
		of_share(c);
		return;
	}
	if (runtime & OOM_RUNTIME_HOST) {
		of_host(c);
		return;
	}
	of_phase(c, begin, at, end);
	if (runtime & OOM_RUNTIME_WATERMARK)
		oom_causes_of_watermark(c);
	else if ((runtime & OOM_RUNTIME_CARD) && c->known[OOM_CRASH_TRIED])
		oom_causes_of_card(c);
	else if (oom_no_device_has(c))
		of_request(c);
	else if (by_rules(c, oom_causes_open, begin, at, end))
		return;
	else if (runtime & OOM_RUNTIME_EXECUTABLE)
		of_executable(c);
	else
		of_request(c);
}

/* Batches of many sizes leave pieces behind, and the largest of them may be what did not fit. */
static void of_lengths(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const said[] = {"ariable length", "ariable-length", "arying length", "ifferent length", "arying size", "ariable size", "ifferent image size", "ariable input",
					   "arying input", "ynamic shape", "ynamic batch", "length varies", "lengths vary", "sizes vary", "size varies"};
	bool vary = false;

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]) && !vary; i++)
		vary = oom_text_find(begin, end, said[i]) != NULL;
	if (vary && c->n_causes && c->cause[0].cause == OOM_CAUSE_FRAGMENTATION)
		oom_cause_say(c, OOM_CAUSE_LONGEST_BATCH, 0.5, "the text says that batches differ in size: the largest leave the pieces behind");
}

/* Below even odds nothing is called the cause. */
void oom_decode_causes(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	decode_causes(c, begin, at, end);
	of_lengths(c, begin, end);
	if (!c->n_causes || c->cause[0].confidence < 0.5)
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "no cause is likelier than not");
}
