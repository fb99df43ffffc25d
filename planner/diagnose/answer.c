/* What happened, in one sentence; what would settle it. What the numbers say besides is evidence.c's, what to do about it
 * fixes.c's. */
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
	if (strchr(text, '[') && c->bytes[k] < 1 << 20) {
		snprintf(buf, size, "%.1f KiB (%s)", (double)c->bytes[k] / 1024, text);
		return buf;
	}
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
	const bool calibrates = c->phase == OOM_CRASH_INFERENCE && oom_dialect_is(c, OOM_DIALECT_QUANTISES);
	const char *const when = c->part == OOM_PART_TRACE ? " while the model was traced for export" : calibrates ? " while samples ran through it for calibration" : during[c->phase];

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

/* ---- what would settle it ---- */

static const char *settles(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	if (cause == OOM_CAUSE_NOT_OOM)
		return NULL;
	if (oom_format_of(c)->settle)
		return oom_format_of(c)->settle;
	if (cause == OOM_CAUSE_LEAK && c->cause[0].confidence < 0.65 && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return "torch.cuda.memory_allocated() printed at the end of each epoch: if it rises, something is kept; if only max_memory_allocated() or memory_reserved() "
		       "does, a later batch was larger (other sizes of input), and a smaller batch or a fixed size helps";
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
	oom_observe(c, work, cause, oom_fixes(c, work, cause, a), a);
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
