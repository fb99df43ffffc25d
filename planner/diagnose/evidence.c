/* What an answer points at: the message's own numbers beside each other, what they leave to others, what the model's size or a
 * shape says, and what is set already. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

char *oom_evidence_slot(struct oom_crash_answer *a)
{
	return a->n_evidence < OOM_ANSWER_EVIDENCE ? a->evidence[a->n_evidence++] : NULL;
}

/* Too little to blame others for, too much to keep silent about: an eighth of the card, and a GiB. */
static void outside(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, total = (double)c->bytes[OOM_CRASH_TOTAL];
	bool listed;
	const double away = (double)oom_card_outside(c, &listed);
	char *out;

	if (cause != OOM_CAUSE_TOO_LARGE || listed || !oom_runtime_is(c, OOM_RUNTIME_CARD) || away < gib || away < total / 8)
		return;
	if ((out = oom_evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB of the card are neither free nor PyTorch's: its context and libraries, or other "
			 "programs (nvidia-smi)", away / gib);
}

static uint64_t smallest(const struct oom_crash *c)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < c->n_processes; i++)
		least = c->process[i].bytes < least ? c->process[i].bytes : least;
	return least;
}

/* How many of the processes listed hold the same, and no more than a context and its libraries (under 1 GiB); 0: fewer than two. */
static size_t small_equals(const struct oom_crash *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n_processes; i++)
		n += c->process[i].bytes == smallest(c);
	return n > 1 && smallest(c) < (uint64_t)1 << 30 ? n : 0;
}

/* Others that the message lists, where what they hold would have been enough. */
static void listed_others(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, missing = (double)c->bytes[OOM_CRASH_TRIED] - (double)c->bytes[OOM_CRASH_FREE];
	bool listed;
	const double away = (double)oom_card_outside(c, &listed);
	char *out;

	if (cause != OOM_CAUSE_TOO_LARGE || !listed || !c->known[OOM_CRASH_TRIED] || away < missing || away < gib / 4)
		return;
	if (small_equals(c) && (out = oom_evidence_slot(a))) {
		snprintf(out, sizeof(a->evidence[0]), "%zu processes hold %.0f MiB each, as much as a CUDA context: %s", small_equals(c), (double)smallest(c) / 1048576,
			 c->trains || oom_several_cards(c) ? "ranks of this run that opened this card, too (torch.cuda.set_device(local_rank) first keeps them off it)" : "they opened the card and hold nothing else there");
		return;
	}
	if ((out = oom_evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB of the card are held by the other processes listed, more than the %.2f GiB that "
			 "were missing: nvidia-smi shows whose they are", away / gib, missing > 0 ? missing / gib : 0);
}

/* Weights and states that fit, and leave little. */
static void shares(const struct oom_crash *c, double need, double total, char *out, size_t size)
{
	const double gib = 1073741824.0;
	char among[60] = "";

	if (c->splits)
		snprintf(among, sizeof(among), " among %u cards%s", c->cards, c->second_stage ? " but for the weights" : "");
	snprintf(out, size, "%.3g B parameters, by the model's name, x 16 bytes (weights, gradients, AdamW's states)%s = %.1f GiB of this one's %.2f, whatever the batch: %.1f GiB are left for all else",
		 (double)c->parameters / 1e9, among, need / gib, total / gib, (total - need) / gib);
}

/* What the model's size, by its name, says of the card or of the host. */
static void weights(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, parameters = (double)c->parameters, total = oom_card_bytes(c, work),
		     ranks = oom_told(c, "nproc_per_node");
	double each, need;
	char *out, copies[60] = "";

	if (cause == OOM_CAUSE_HOST_RAM && !c->parameters && ranks > 1 && work == OOM_WORK_LOADING && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.0f processes on the node each read all of the model, unless one reads for all", ranks);
	if (!c->parameters || c->priced)
		return;
	need = oom_weights_bytes(c, work, &each);
	if (ranks > 1)
		snprintf(copies, sizeof(copies), ", for each of %.0f processes on the node", ranks);
	if (cause == OOM_CAUSE_HOST_RAM && c->offloads && c->disks && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, are %.1f GiB in 16 bits and %.1f GiB in fp32, which host memory holds while they are read; their states are on disks",
			 parameters / 1e9, parameters * 2 / gib, parameters * 4 / gib);
	else if (cause == OOM_CAUSE_HOST_RAM && c->offloads && !(c->set & OOM_SET(OOM_LEVER_ADAPTER)) && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, x 12 bytes (fp32 weights and Adam's two moments, offloaded) = %.1f GiB "
			 "in host memory, gradients and what is pinned beside them", parameters / 1e9, parameters * 12 / gib);
	else if (cause == OOM_CAUSE_HOST_RAM && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, are %.1f GiB in 16 bits and %.1f GiB in fp32%s",
			 parameters / 1e9, parameters * 2 / gib, parameters * 4 / gib, copies);
	else if (oom_weights_too_large(c, work) && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's %s, x %.0f bytes (%s) = %.1f GiB a card: its %.2f GiB do "
			 "not hold them, whatever the batch%s; divided, they fill %.0f such cards", parameters / 1e9, c->by_shape ? "shape" : "name", each,
			 each > 4 ? "weights, gradients, AdamW's states" : each > 2 ? "weights in 32 bits" : each < 2 ? "weights in 8 bits" : "weights in 16 bits", need / gib, total / gib, each <= 4 ? "" : oom_states_surely(c, work) ? ", if all are trained" : " (in 16 bits alone half of it)",
			 ceil(parameters * each / total));
	else if ((need = oom_states_share(c, work)) > 0 && (out = oom_evidence_slot(a)))
		shares(c, need, total, out, sizeof(a->evidence[0]));
}

/* Frozen weights stand in the way of the gradients all the same: autograd keeps the inputs of every layer behind the first
 * adapter (docs.pytorch.org/docs/stable/notes/autograd.html, "Locally disabling gradient computation"). */
static void of_adapters(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	const bool steps = c->phase == OOM_CRASH_FORWARD || c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_TRAIN_STEP;
	char *const out = cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && steps && !c->traceback && (c->set & OOM_SET(OOM_LEVER_ADAPTER)) && oom_runtime_is(c, OOM_RUNTIME_TORCH) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "adapters save gradients and optimizer states, not activations: a step keeps as many as full training does, and a pass under no_grad keeps none");
}

/* "already set: gradient checkpointing, a batch of one" */
static void already(uint64_t set, struct oom_crash_answer *a)
{
	const size_t size = sizeof(a->evidence[0]);
	char *out = oom_setting_called(set, 0) ? oom_evidence_slot(a) : NULL;
	size_t n;

	if (!out)
		return;
	n = (size_t)snprintf(out, size, "set already, so not advised again: ");
	for (size_t i = 0; oom_setting_called(set, i) && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", oom_setting_called(set, i));
}

static double outside_cache(const struct oom_crash *c)
{
	return (double)c->bytes[OOM_CRASH_TOTAL] - (double)c->bytes[OOM_CRASH_FREE] - (double)c->bytes[OOM_CRASH_RESERVED_TOTAL];
}

static void tried_in_vain(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const size_t size = sizeof(a->evidence[0]);
	char *out = oom_tried_called(c->tried, 0) ? oom_evidence_slot(a) : NULL;
	size_t n;

	if (!out)
		return;
	n = (size_t)snprintf(out, size, "tried without success, by the text: ");
	for (size_t i = 0; oom_tried_called(c->tried, i) && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", oom_tried_called(c->tried, i));
}

/* "147.7 MiB", "1.20 GiB" */
static const char *sized(uint64_t bytes, char *buf, size_t size)
{
	const double mib = (double)bytes / 1048576;

	snprintf(buf, size, mib < 1024 ? "%.1f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
	return buf;
}

/* What it was short of, and what the request is beside what the process holds and the card has. */
static void of_request(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, total = (double)c->bytes[OOM_CRASH_TOTAL], tried = (double)c->bytes[OOM_CRASH_TRIED],
		     held = (double)c->bytes[OOM_CRASH_ALLOCATED];
	const bool most = c->known[OOM_CRASH_ALLOCATED] && total > 0 && held <= total && held > 0.5 * total;
	const uint64_t missing = oom_shortage(c);
	const size_t size = sizeof(a->evidence[0]);
	char buf[24], share[100] = "", *out;
	size_t n;

	if (!oom_alone_too_large(c) && (cause != OOM_CAUSE_TOO_LARGE || (!missing && !most && !oom_dwarfs_the_rest(c))))
		return;
	if (!(out = oom_evidence_slot(a)))
		return;
	if (oom_alone_too_large(c) && total <= 0) {
		snprintf(out, size, "no card holds %.0f GiB (the largest of 2025 have 288 GB): a batch, a length, a matrix of length x length or a count out of proportion", tried / gib);
		return;
	}
	if (oom_alone_too_large(c)) {
		snprintf(out, size, "the one tensor asked for is %.1f times what there is: a batch, a length, a matrix of length x length or a count "
			 "out of proportion (of such a matrix not even a length %.1f times shorter fits)", tried / total, sqrt(tried / total));
		return;
	}
	if (oom_overcommitted(c)) {
		snprintf(out, size, "%.2f GiB are held where the card has %.2f: %.1f times as much; what is held has to shrink to %.0f %% of it to fit", held / gib, total / gib, held / total,
			 floor(100 * total / held));
		return;
	}
	if (oom_dwarfs_the_rest(c) && held < gib / 16) {
		snprintf(out, size, "nothing to speak of was held before it: the first large tensor alone did not find room");
		return;
	}
	if (oom_dwarfs_the_rest(c)) {
		snprintf(out, size, "this one request is larger than all that the process held (%.2f GiB): one batch or input far longer or larger "
			 "than those before it", held / gib);
		return;
	}
	if (most)
		snprintf(share, sizeof(share), "%.0f %% of the memory are this process's own tensors, no other process's", 100 * held / total);
	if (!missing)
		snprintf(out, size, "%s", share);
	else if (most && tried < total / 64 && held > 0.75 * total)
		snprintf(out, size, "short by %s; %s: the request is small, the sum of what came before it fills the card", sized(missing, buf, sizeof(buf)), share);
	else
		snprintf(out, size, "short by %s%s%s", sized(missing, buf, sizeof(buf)), *share ? "; " : "", share);
	n = strlen(out);
	/* one large request; of a small one it is the sum that counts */
	if (missing && tried >= gib && tried > total / 32 && c->bytes[OOM_CRASH_FREE] > tried / 10 && n < size)
		snprintf(out + n, size - n, "; of %.0f %% of its size it would have fitted", floor(100 * (double)c->bytes[OOM_CRASH_FREE] / tried));
}

/* What a server's trial run or a TPU's tiles say by themselves. */
static void by_counts(const struct oom_crash *c, struct oom_crash_answer *a)
{
	char *out;

	if (oom_few_tokens(c) && (out = oom_evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%" PRIu64 " tokens at once need next to nothing: it is the weights, or somebody else, that fill the card", c->prefill_tokens);
	/* BufferAssignment puts a program's temporaries into one allocation (xla/service/buffer_assignment.cc, "preallocated-temp") */
	if (oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE) && !oom_format_is(c, OOM_FORMAT_PROGRAM) && c->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30 && !*c->largest && !*c->program_total &&
	    c->phase != OOM_CRASH_LOAD && c->phase != OOM_CRASH_TO_DEVICE && (out = oom_evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "XLA takes all temporaries of a compiled program in one piece: %.2f GiB need not be one array, it may be what the program needs beside its inputs",
			 (double)c->bytes[OOM_CRASH_TRIED] / 1073741824);
	if (c->padding >= 2 && (out = oom_evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.0f times the bytes of that buffer are padding: a TPU lays the last two dimensions out in tiles of 8 x 128", c->padding);
}

/* The likeliest cause's own evidence, what asked, and the line of the user's that led to it. */
static void what_asked(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (*c->cause[0].evidence && cause != OOM_CAUSE_NOT_OOM && (out = oom_evidence_slot(a)))
		snprintf(out, size, "%s", c->cause[0].evidence);
	if (oom_part_of(c)->noun && (out = oom_evidence_slot(a)))
		snprintf(out, size, "it was asked for by %s", oom_part_of(c)->noun);
	if (*c->own_line && cause != OOM_CAUSE_NOT_OOM && cause != OOM_CAUSE_OTHER_PROCESS && (out = oom_evidence_slot(a)))
		snprintf(out, size, "the line that led to it: %s", c->own_line);
}

static void beyond_host(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double tried = (double)c->bytes[OOM_CRASH_TRIED], left = (double)c->bytes[OOM_CRASH_FREE];
	char *out;

	if (cause == OOM_CAUSE_HOST_RAM && c->known[OOM_CRASH_FREE] && left * 2 < tried && !oom_format_is(c, OOM_FORMAT_ONE_ARRAY) &&
	    c->bytes[OOM_CRASH_FREE] && (out = oom_evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.1f times what there is: a smaller context or batch does not make up for it, a smaller or quantised model might",
			 tried / left);
}

/* A bar has counted steps before it: what lies there throughout fits, and what differs is the batch. */
static void after_steps(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	char *const out = cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_TRAINING && c->stepped && c->phase != OOM_CRASH_OPTIMIZER && oom_runtime_is(c, OOM_RUNTIME_TORCH) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "steps went through before it: weights, gradients and states fit; this batch was larger (its longest sample), or something is kept from step to step");
}

/* What lies on a device beside PyTorch's tensors: a Mac's other buffers, a small card's context. */
static void beside_tensors(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, total = (double)c->bytes[OOM_CRASH_TOTAL];
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && c->bytes[OOM_CRASH_OTHER] > c->bytes[OOM_CRASH_ALLOCATED] &&
	    (out = oom_evidence_slot(a)))
		snprintf(out, size, "%.2f GiB of it are other allocations of this process on Metal, not PyTorch's tensors: "
			 "buffers of kernels and of other libraries", (double)c->bytes[OOM_CRASH_OTHER] / gib);
	if (oom_crash_of_card(c) && c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_RESERVED_TOTAL] && c->known[OOM_CRASH_FREE] && total < 4 * gib &&
	    outside_cache(c) > (double)(c->bytes[OOM_CRASH_TOTAL] / 4) && (out = oom_evidence_slot(a)))
		snprintf(out, size, "%.2f of the card's %.2f GiB are neither free nor in PyTorch's cache: the CUDA context takes some 0.3 to 0.5 GiB, the rest are "
			 "other programs, such as a desktop", outside_cache(c) / gib, total / gib);
}

/* Whether what is reserved and idle could be had by settings of the allocator. */
static void idle(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, tried = (double)c->bytes[OOM_CRASH_TRIED], stranded = (double)c->bytes[OOM_CRASH_RESERVED_UNALLOCATED];
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (cause == OOM_CAUSE_TOO_LARGE && c->known[OOM_CRASH_RESERVED_UNALLOCATED] && stranded + (double)c->bytes[OOM_CRASH_FREE] < tried &&
	    (out = oom_evidence_slot(a)))
		snprintf(out, size, "only %.2f GiB are reserved and unallocated: allocator settings (expandable_segments) will not "
			 "make room for it", stranded / gib);
	if (cause == OOM_CAUSE_FRAGMENTATION && c->bytes[OOM_CRASH_PRIVATE_POOL] > c->bytes[OOM_CRASH_TRIED] &&
	    (out = oom_evidence_slot(a)))
		snprintf(out, size, "%.2f GiB lie in the private pools of CUDA graphs: what is idle there cannot be used by others",
			 (double)c->bytes[OOM_CRASH_PRIVATE_POOL] / gib);
}

static void smi(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0;
	const size_t size = sizeof(a->evidence[0]);
	char *const out = c->smi.total ? oom_evidence_slot(a) : NULL;
	int n;

	if (!out)
		return;
	n = snprintf(out, size, "nvidia-smi in the log: %.2f of %.2f GiB in use", (double)c->smi.used / gib, (double)c->smi.total / gib);
	if (c->smi.pid > 0 && n > 0 && (size_t)n < size)
		snprintf(out + n, size - (size_t)n, ", %.2f GiB by process %" PRId64 " (%s)", (double)c->smi.process_bytes / gib, c->smi.pid, c->smi.name);
}

/* What the log itself says beside the message. */
static void from_log(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	smi(c, a);
	if (*c->budget && (out = oom_evidence_slot(a)))
		snprintf(out, size, "%s", c->budget);
	if (*c->went_on && (out = oom_evidence_slot(a)))
		snprintf(out, size, "the log goes on behind it (\"%s\"): this refusal alone need not be what ended it", c->went_on);
	if (*c->program_total && (out = oom_evidence_slot(a)))
		snprintf(out, size, "what the compiler laid out for the program: %s", c->program_total);
	if (*c->largest && (out = oom_evidence_slot(a)))
		snprintf(out, size, "the largest buffer of the program: %s", c->largest);
}

static void in_host(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, tried = (double)c->bytes[OOM_CRASH_TRIED];
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (cause != OOM_CAUSE_HOST_RAM)
		return;
	if (oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && c->known[OOM_CRASH_TRIED] && tried < gib / 4 && (out = oom_evidence_slot(a)))
		snprintf(out, size, "the array itself is small: the host is full of what was kept before it (frames, batches, results in lists)");
	if (c->host_states && c->host_states < (uint64_t)1 << 44 && (out = oom_evidence_slot(a)))
		snprintf(out, size, "%" PRIu64 " parameters x 12 bytes (fp32 weights and Adam's two moments) = %.1f GB of states a rank "
			 "makes in host memory", c->host_states, (double)c->host_states * 12 / 1e9);
}

/* People speak of larger cards than the one that was full. */
static void another_card(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, total = (double)c->bytes[OOM_CRASH_TOTAL];
	char *const out = oom_other_card(c) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "the text speaks of cards of %.0f GB, the message of one of %.2f GiB: another card than was meant, or a slice of one (MIG)", c->card_said, total / gib);
}

void oom_observe(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, uint64_t set, struct oom_crash_answer *a)
{
	what_asked(c, cause, a);
	weights(c, work, cause, a);
	oom_observe_facts(c, work, cause, a);
	oom_observe_shape(c, a);
	oom_observe_cache(c, cause, a);
	by_counts(c, a);
	another_card(c, a);
	of_request(c, cause, a);
	after_steps(c, work, cause, a);
	oom_observe_parameters(c, work, a);
	outside(c, cause, a);
	listed_others(c, cause, a);
	beyond_host(c, cause, a);
	beside_tensors(c, a);
	of_adapters(c, work, cause, a);
	already(set, a);
	tried_in_vain(c, a);
	idle(c, cause, a);
	from_log(c, a);
	in_host(c, cause, a);
}
