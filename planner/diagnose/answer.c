/* What happened, in one sentence; what the numbers say besides; what would settle it. What to do about it is
 * fixes.c's. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* ---- the sentence ---- */

static const char *const during[OOM_CRASH_PHASES] = {
	[OOM_CRASH_UNKNOWN] = "",
	[OOM_CRASH_FORWARD] = " in the forward pass",
	[OOM_CRASH_BACKWARD] = " in the backward pass",
	[OOM_CRASH_OPTIMIZER] = " in the optimizer's step",
	[OOM_CRASH_TRAIN_STEP] = " in a training step",
	[OOM_CRASH_EVAL] = " during evaluation",
	[OOM_CRASH_INFERENCE] = " during inference",
	[OOM_CRASH_LOAD] = " while weights were loaded",
	[OOM_CRASH_TO_DEVICE] = " while a model or batch was moved to the device",
	[OOM_CRASH_INIT] = " while it was set up, before any work",
	[OOM_CRASH_COMPILE] = " while the program was compiled",
	[OOM_CRASH_DATA] = " while data was prepared",
	[OOM_CRASH_COLLECTIVE] = " in a collective operation",
	[OOM_CRASH_TEST] = " in a test",
	[OOM_CRASH_SAVE] = " while a checkpoint was saved",
};

static size_t put(char *out, size_t n, size_t size, const char *format, const char *a, const char *b)
{
	if (n < size)
		n += (size_t)snprintf(out + n, size - n, format, a, b);
	return n < size ? n : size - 1;
}

/* As printed; a count of bytes with its GiB, and a shape with its bytes. */
static const char *printed(const struct oom_crash *c, enum oom_crash_number k, char *buf, size_t size)
{
	const char *const text = c->text[k];
	const double gib = (double)c->bytes[k] / 1073741824.0;

	if (!c->known[k] || !*text)
		return NULL;
	if ((!strpbrk(text, "KMGT") || strstr(text, "kB") || strchr(text, '[')) && c->bytes[k] >= 1 << 20) {
		const char *const from = strstr(text, "rss:") ? strstr(text, "rss:") + 4 : text;

		snprintf(buf, size, gib >= 1 ? "%.2f GiB (%s)" : "%.1f MiB (%s)", gib >= 1 ? gib : gib * 1024, from);
		return buf;
	}
	if (!text[strspn(text, "0123456789")]) {
		snprintf(buf, size, "%s bytes", text);
		return buf;
	}
	return text;
}

/* Only numbers that the text gives. */
static size_t numbers(const struct oom_crash *c, char *out, size_t n, size_t size)
{
	char text[4][64];
	const char *tried = printed(c, OOM_CRASH_TRIED, text[0], sizeof(text[0])),
		   *total = printed(c, OOM_CRASH_TOTAL, text[1], sizeof(text[1])),
		   *left = printed(c, OOM_CRASH_FREE, text[2], sizeof(text[2])),
		   *held = printed(c, OOM_CRASH_ALLOCATED, text[3], sizeof(text[3])), *colon = ": ";

	if (tried) {
		n = put(out, n, size, oom_format_is(c, OOM_FORMAT_PROGRAM) ? "%sall of it takes %s" : "%s%s more were asked for",
			colon, tried);
		colon = ", ";
	}
	if (left && total)
		n = put(out, n, size, tried ? " and %s of %s were free" : ": %s of %s were free", left, total);
	else if (left)
		n = put(out, n, size, "%s%s were free", tried ? " and " : colon, left);
	else if (total)
		n = put(out, n, size, "%sthe limit is %s", colon, total);
	if (held)
		n = put(out, n, size, "%s%s were allocated already", tried || left || total ? "; " : ": ", held);
	return n;
}

/* The host's memory, or the part of it that processes share. */
static size_t of_host(const struct oom_crash *c, enum oom_cause cause, const char *when, char *out, size_t size)
{
	const bool named = *oom_program_of(c)->name;
	const char *const who = oom_program_of(c)->title;
	size_t n;

	if (cause == OOM_CAUSE_SHM)
		return put(out, 0, size, named ? "Shared memory (/dev/shm) ran out%s, not the GPU's (%s)" :
						 "Shared memory (/dev/shm) ran out%s, not the GPU's", when, who);
	n = put(out, 0, size, named ? "The host's memory ran out%s, not the GPU's (%s)" : "The host's memory ran out%s, not the GPU's", when, who);
	if (c->known[OOM_CRASH_TRIED] || !c->known[OOM_CRASH_TOTAL] || !c->known[OOM_CRASH_ALLOCATED])
		return numbers(c, out, n, size);
	return put(out, n, size, ": %s of %s were in use", c->text[OOM_CRASH_ALLOCATED], c->text[OOM_CRASH_TOTAL]);
}

/* How it ran out, behind who and when; NULL: device or host memory, plainly. */
static const char *const ran_out[OOM_CAUSES] = {
	[OOM_CAUSE_KV_CACHE] = "%s has too little room for its KV cache%s",
	[OOM_CAUSE_OTHER_PROCESS] = "%s found the memory taken by others%s",
	[OOM_CAUSE_BUFFER_LIMIT] = "%s asked for one buffer larger than the device allows, however much is free%s",
	[OOM_CAUSE_FRACTION_CAP] = "%s met a limit that was set, not the end of the memory%s",
	[OOM_CAUSE_WATERMARK_CAP] = "%s met a limit that was set, not the end of the memory%s",
	[OOM_CAUSE_FRAGMENTATION] = "%s had enough memory, but in pieces too small%s",
};
static const char in_pieces_perhaps[] = "%s ran out of device memory, perhaps only for want of one piece that is large enough%s";

/* Of the device's memory, with what the cause says about its numbers. */
static size_t of_device(const struct oom_crash *c, enum oom_cause cause, const char *when, char *out, size_t size)
{
	char text[3][64];
	const char *const tried = printed(c, OOM_CRASH_TRIED, text[0], sizeof(text[0])),
		   *const most = printed(c, OOM_CRASH_ALLOWED, text[1], sizeof(text[1])),
		   *const left = printed(c, OOM_CRASH_FREE, text[2], sizeof(text[2]));
	const char *const plain = oom_runtime_is(c, OOM_RUNTIME_HOST) ? "%s ran out of host memory%s" : "%s ran out of device memory%s";
	/* others hold some of it, this process most */
	const bool shared = cause == OOM_CAUSE_OTHER_PROCESS && c->known[OOM_CRASH_TOTAL] &&
			    c->bytes[OOM_CRASH_ALLOCATED] > c->bytes[OOM_CRASH_TOTAL] / 2;
	const bool perhaps = cause == OOM_CAUSE_FRAGMENTATION && c->cause[0].confidence < 0.65;
	size_t n = put(out, 0, size, shared ? "%s ran out of device memory, part of which others hold%s" : perhaps ? in_pieces_perhaps :
				     ran_out[cause] ? ran_out[cause] : plain, oom_program_of(c)->title, when);

	if (cause == OOM_CAUSE_KV_CACHE && tried && left)
		return put(out, n, size, ": %s are needed, %s are left", tried, left);
	if (cause == OOM_CAUSE_BUFFER_LIMIT) {
		n = tried ? put(out, n, size, ": %s%s", tried, "") : n;
		return most ? put(out, n, size, "%s at most %s", tried ? "," : ":", most) : n;
	}
	n = numbers(c, out, n, size);
	if (most && (cause == OOM_CAUSE_FRACTION_CAP || cause == OOM_CAUSE_WATERMARK_CAP))
		n = put(out, n, size, "; %s are allowed%s", most, "");
	return n;
}

/* A name keeps its small letter, as llama.cpp does; a phrase does not. */
static void capital(char *out, const char *who)
{
	if (*out >= 'a' && *out <= 'z' && strchr(who, ' '))
		out[0] = (char)(out[0] - 'a' + 'A');
}

/* Half of it is a guess. */
static bool is_guess(const struct oom_crash *c)
{
	return c->phase != OOM_CRASH_UNKNOWN && c->phase_confidence <= 0.5;
}

static const char *when_of(const struct oom_crash *c, char *buf, size_t size)
{
	const char *const when = c->part == OOM_PART_TRACE ? " while the model was traced for export" : during[c->phase];

	if (!is_guess(c) || c->part == OOM_PART_TRACE)
		return when;
	snprintf(buf, size, ", probably%s", when);
	return buf;
}

static void sentence(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char text[2][64];
	char supposed[80];
	const char *who = oom_program_of(c)->title, *when = when_of(c, supposed, sizeof(supposed)),
		   *tried = printed(c, OOM_CRASH_TRIED, text[0], sizeof(text[0])),
		   *left = printed(c, OOM_CRASH_FREE, text[1], sizeof(text[1]));
	char *const out = a->happened;
	const size_t size = sizeof(a->happened);
	size_t n;

	if (oom_format_of(c)->ran_out_of) {
		n = put(out, 0, size, "%s %s", who, oom_format_of(c)->ran_out_of);
		put(out, n, size, "%s%s", ".", "");
		capital(out, who);
		return;
	}
	if (oom_format_of(c)->share && tried && left) {
		n = put(out, 0, size, "%s was told to take more of the card than is free%s", who, when);
		put(out, n, size, ": %s are asked for, %s are free.", tried, left);
		return;
	}
	if (cause == OOM_CAUSE_NOT_OOM)
		n = put(out, 0, size, "This is no shortage of memory: %s%s", c->cause[0].evidence, "");
	else if (cause == OOM_CAUSE_HOST_RAM || cause == OOM_CAUSE_SHM)
		n = of_host(c, cause, when, out, size);
	else
		n = of_device(c, cause, when, out, size);
	put(out, n, size, ".%s%s", "", "");
	capital(out, who);
}

/* ---- what the numbers say besides ---- */

static char *evidence_slot(struct oom_crash_answer *a)
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
	if ((out = evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB of the card are neither free nor PyTorch's: its context and libraries, or other "
			 "programs (nvidia-smi)", away / gib);
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
	if ((out = evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB of the card are held by the other processes listed, more than the %.2f GiB that "
			 "were missing: nvidia-smi shows whose they are", away / gib, missing > 0 ? missing / gib : 0);
}

/* What the model's size, by its name, says of the card or of the host. */
static void weights(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, parameters = (double)c->parameters, total = (double)c->bytes[OOM_CRASH_TOTAL],
		     ranks = oom_told(c, "nproc_per_node");
	double each, need;
	char *out, copies[60] = "";

	if (cause == OOM_CAUSE_HOST_RAM && !c->parameters && ranks > 1 && work == OOM_WORK_LOADING && (out = evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.0f processes on the node each read all of the model, unless one reads for all", ranks);
	if (!c->parameters)
		return;
	need = oom_weights_bytes(c, work, &each);
	if (ranks > 1)
		snprintf(copies, sizeof(copies), ", for each of %.0f processes on the node", ranks);
	if (cause == OOM_CAUSE_HOST_RAM && c->offloads && (out = evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, x 12 bytes (fp32 weights and Adam's two moments, offloaded) = %.1f GiB "
			 "in host memory, gradients and what is pinned beside them", parameters / 1e9, parameters * 12 / gib);
	else if (cause == OOM_CAUSE_HOST_RAM && (out = evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, are %.1f GiB in 16 bits and %.1f GiB in fp32%s",
			 parameters / 1e9, parameters * 2 / gib, parameters * 4 / gib, copies);
	else if (oom_weights_too_large(c, work) && (out = evidence_slot(a)))
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, x %.0f bytes (%s) = %.1f GiB a card: its %.2f GiB do "
			 "not hold them, whatever the batch", parameters / 1e9, each,
			 each > 2 ? "weights, gradients, AdamW's states" : "weights in 16 bits", need / gib, total / gib);
}

/* A shape that is printed: of TensorFlow's three and more dimensions the first is the batch, of an array of the host's as a
 * rule how many there are of something. */
static void first_dimension(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const bool graph = oom_runtime_is(c, OOM_RUNTIME_GRAPH), array = oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && oom_runtime_is(c, OOM_RUNTIME_HOST);
	char *const out = c->first_dimension && (graph || array) ? evidence_slot(a) : NULL;

	if (out && c->image[0])
		snprintf(out, sizeof(a->evidence[0]), "that shape is %" PRId64 " image%s of %" PRId64 " x %" PRId64 " pixels: scaled down or cropped before it goes in, "
			 "everything behind it is smaller", c->first_dimension, c->first_dimension == 1 ? "" : "s", c->image[0], c->image[1]);
	else if (out)
		snprintf(out, sizeof(a->evidence[0]), graph ? "the first number of that shape, %" PRId64 ", is as a rule the batch on this device (of a detector, all regions of its images)" :
				"the first number of that shape, %" PRId64 ", is as a rule a count (samples, steps, entries of a buffer): so many are held at once",
			 c->first_dimension);
}

/* "already set: gradient checkpointing, a batch of one" */
static void already(uint64_t set, struct oom_crash_answer *a)
{
	char *out = oom_setting_called(set, 0) ? evidence_slot(a) : NULL;
	size_t n = 0;

	if (!out)
		return;
	n = put(out, n, sizeof(a->evidence[0]), "%s%s", "set already, so not advised again: ", "");
	for (size_t i = 0; oom_setting_called(set, i); i++)
		n = put(out, n, sizeof(a->evidence[0]), "%s%s", i ? ", " : "", oom_setting_called(set, i));
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

	if (!oom_alone_too_large(c) && (cause != OOM_CAUSE_TOO_LARGE || (!missing && !most && !oom_dwarfs_the_rest(c))))
		return;
	if (!(out = evidence_slot(a)))
		return;
	if (oom_alone_too_large(c)) {
		snprintf(out, size, "the one tensor asked for is %.1f times what there is: a batch, a length, a matrix of length x length or a count "
			 "out of proportion (of such a matrix not even a length %.1f times shorter fits)", tried / total, sqrt(tried / total));
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
}

static void observe(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, uint64_t set, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, tried = (double)c->bytes[OOM_CRASH_TRIED],
		     idle = (double)c->bytes[OOM_CRASH_RESERVED_UNALLOCATED];
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (*c->cause[0].evidence && cause != OOM_CAUSE_NOT_OOM && (out = evidence_slot(a)))
		snprintf(out, size, "%s", c->cause[0].evidence);
	if (oom_part_of(c)->noun && (out = evidence_slot(a)))
		snprintf(out, size, "it was asked for by %s", oom_part_of(c)->noun);
	if (*c->own_line && cause != OOM_CAUSE_NOT_OOM && cause != OOM_CAUSE_OTHER_PROCESS && (out = evidence_slot(a)))
		snprintf(out, size, "the line that led to it: %s", c->own_line);
	weights(c, work, cause, a);
	first_dimension(c, a);
	of_request(c, cause, a);
	outside(c, cause, a);
	listed_others(c, cause, a);
	if (cause == OOM_CAUSE_HOST_RAM && c->known[OOM_CRASH_FREE] && (double)c->bytes[OOM_CRASH_FREE] * 2 < tried && !oom_format_is(c, OOM_FORMAT_ONE_ARRAY) &&
	    c->bytes[OOM_CRASH_FREE] && (out = evidence_slot(a)))
		snprintf(out, size, "%.1f times what there is: a smaller context or batch does not make up for it, a smaller or quantised model might",
			 tried / (double)c->bytes[OOM_CRASH_FREE]);
	if (oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && c->bytes[OOM_CRASH_OTHER] > c->bytes[OOM_CRASH_ALLOCATED] &&
	    (out = evidence_slot(a)))
		snprintf(out, size, "%.2f GiB of it are other allocations of this process on Metal, not PyTorch's tensors: "
			 "buffers of kernels and of other libraries", (double)c->bytes[OOM_CRASH_OTHER] / gib);
	already(set, a);
	if (cause == OOM_CAUSE_TOO_LARGE && c->known[OOM_CRASH_RESERVED_UNALLOCATED] &&
	    idle + (double)c->bytes[OOM_CRASH_FREE] < tried &&
	    (out = evidence_slot(a)))
		snprintf(out, size, "only %.2f GiB are reserved and unallocated: allocator settings (expandable_segments) will not "
			 "make room for it", idle / gib);
	if (cause == OOM_CAUSE_FRAGMENTATION && c->bytes[OOM_CRASH_PRIVATE_POOL] > c->bytes[OOM_CRASH_TRIED] &&
	    (out = evidence_slot(a)))
		snprintf(out, size, "%.2f GiB lie in the private pools of CUDA graphs: what is idle there cannot be used by others",
			 (double)c->bytes[OOM_CRASH_PRIVATE_POOL] / gib);
	if (c->smi.total && (out = evidence_slot(a))) {
		const int n = snprintf(out, size, "nvidia-smi in the log: %.2f of %.2f GiB in use", (double)c->smi.used / gib,
				       (double)c->smi.total / gib);

		if (c->smi.pid > 0 && n > 0 && (size_t)n < size)
			snprintf(out + n, size - (size_t)n, ", %.2f GiB by process %" PRId64 " (%s)",
				 (double)c->smi.process_bytes / gib, c->smi.pid, c->smi.name);
	}
	if (*c->budget && (out = evidence_slot(a)))
		snprintf(out, size, "%s", c->budget);
	if (*c->went_on && (out = evidence_slot(a)))
		snprintf(out, size, "the log goes on behind it (\"%s\"): this refusal alone need not be what ended it", c->went_on);
	if (*c->program_total && (out = evidence_slot(a)))
		snprintf(out, size, "what the compiler laid out for the program: %s", c->program_total);
	if (*c->largest && (out = evidence_slot(a)))
		snprintf(out, size, "the largest buffer of the program: %s", c->largest);
	if (cause == OOM_CAUSE_HOST_RAM && oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && c->known[OOM_CRASH_TRIED] &&
	    tried < gib / 4 && (out = evidence_slot(a)))
		snprintf(out, size, "the array itself is small: the host is full of what was kept before it (frames, batches, results in lists)");
	if (cause == OOM_CAUSE_HOST_RAM && c->host_states && c->host_states < (uint64_t)1 << 44 &&
	    (out = evidence_slot(a)))
		snprintf(out, size, "%" PRIu64 " parameters x 12 bytes (fp32 weights and Adam's two moments) = %.1f GB of states a rank "
			 "makes in host memory", c->host_states, (double)c->host_states * 12 / 1e9);
}

/* ---- what would settle it ---- */

static const char *settles(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	if (cause == OOM_CAUSE_NOT_OOM)
		return NULL;
	if (oom_format_of(c)->settle)
		return oom_format_of(c)->settle;
	if (cause == OOM_CAUSE_UNKNOWN && !c->known[OOM_CRASH_TOTAL])
		return "nvidia-smi (or the device's own tool) while it runs says how much there is and whether others hold it; the message gives no sizes";
	if (work == OOM_WORK_UNKNOWN || c->phase == OOM_CRASH_UNKNOWN || is_guess(c))
		return "the lines above the message, from \"Traceback (most recent call last)\" on, name the part of the program that asked";
	return NULL;
}

void oom_crash_answer(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const enum oom_cause cause = c->n_causes ? c->cause[0].cause : OOM_CAUSE_UNKNOWN;
	const enum oom_crash_work work = oom_crash_work(c);

	memset(a, 0, sizeof(*a));
	sentence(c, cause, a);
	observe(c, work, cause, oom_fixes(c, work, cause, a), a);
	a->settle = settles(c, work, cause);
	a->training = work == OOM_WORK_TRAINING;
	a->title = oom_program_of(c)->title;
}

const char *oom_crash_fix(const struct oom_crash *c, enum oom_cause cause, char *buf, size_t size)
{
	struct oom_crash_answer a = {0};

	oom_fixes(c, oom_crash_work(c), cause, &a);
	snprintf(buf, size, "%s", a.n_fix ? a.fix[0] : "");
	return buf;
}
