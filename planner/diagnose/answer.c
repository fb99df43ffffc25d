/* What happened, and what to do about it: one table of cause x work -> levers, in the words of the
 * program that ran.
 *
 * The work is what was going on: training, inference, loading, ... A training's levers are never offered
 * for work that trains nothing. Order of the levers: what costs nothing first, what changes results
 * last (playbook M1, M4). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define BIT(x) (1u << (x))

/* ---- the work ---- */

enum oom_crash_work oom_crash_work(const struct oom_crash *c)
{
	const enum oom_activity does = oom_program_of(c)->activity;
	const bool infers = does == OOM_ACTIVITY_INFERS || does == OOM_ACTIVITY_SERVES;

	switch (c->phase) {
	case OOM_CRASH_FORWARD:
		/* a model runs forward in either; without a word of a training nobody knows */
		return infers ? OOM_WORK_INFERENCE : c->trains ? OOM_WORK_TRAINING : OOM_WORK_UNKNOWN;
	case OOM_CRASH_BACKWARD:
	case OOM_CRASH_OPTIMIZER:
	case OOM_CRASH_TRAIN_STEP:
		return OOM_WORK_TRAINING;
	case OOM_CRASH_EVAL:
		return OOM_WORK_EVAL;
	case OOM_CRASH_INFERENCE:
		return OOM_WORK_INFERENCE;
	case OOM_CRASH_LOAD:
	case OOM_CRASH_TO_DEVICE:
		return OOM_WORK_LOADING;
	case OOM_CRASH_INIT:
		return infers ? OOM_WORK_SERVER_SETUP : OOM_WORK_SETUP;
	case OOM_CRASH_COMPILE:
		return OOM_WORK_COMPILING;
	case OOM_CRASH_DATA:
		return OOM_WORK_DATA;
	case OOM_CRASH_COLLECTIVE:
		return OOM_WORK_COLLECTIVE;
	case OOM_CRASH_TEST:
		return OOM_WORK_TESTING;
	case OOM_CRASH_SAVE:
		return OOM_WORK_SAVING;
	default:
		break;
	}
	return infers			      ? OOM_WORK_INFERENCE :
	       does == OOM_ACTIVITY_TESTS     ? OOM_WORK_TESTING :
	       does == OOM_ACTIVITY_TRAINS    ? OOM_WORK_TRAINING :
						OOM_WORK_UNKNOWN;
}

const char *oom_crash_work_str(enum oom_crash_work work)
{
	static const char *const words[OOM_WORKS] = {
		"unknown", "training", "eval", "inference", "loading", "saving", "setup", "server_setup",
		"compiling", "data", "collective", "testing"};

	return words[work];
}

/* ---- the table ---- */

#define ANY 0xffffffffu
#define TRAINING BIT(OOM_WORK_TRAINING)
#define INFERENCE BIT(OOM_WORK_INFERENCE)
#define EVAL BIT(OOM_WORK_EVAL)
#define LOADING BIT(OOM_WORK_LOADING)
#define SAVING BIT(OOM_WORK_SAVING)
#define SETUP BIT(OOM_WORK_SETUP)
#define SERVER_SETUP BIT(OOM_WORK_SERVER_SETUP)
#define DATA BIT(OOM_WORK_DATA)
#define COMPILING BIT(OOM_WORK_COMPILING)
#define COLLECTIVE BIT(OOM_WORK_COLLECTIVE)
#define TESTING BIT(OOM_WORK_TESTING)
#define UNKNOWN BIT(OOM_WORK_UNKNOWN)
#define CAUSE(name) BIT(OOM_CAUSE_##name)
#define DO(...) {__VA_ARGS__}
#define V(name) OOM_LEVER_##name

enum { MAX_LEVERS = 6 };
/* The first row that meets both. */
static const struct {
	unsigned causes, works;
	unsigned phases;        /* 0: any */
	enum oom_lever levers[MAX_LEVERS];
} rows[] = {
	{CAUSE(NOT_OOM), ANY, 0, DO(V(READ))},
	{CAUSE(SHM), ANY, 0, DO(V(SHM), V(WORKERS))},
	{CAUSE(HOST_RAM), DATA, 0, DO(V(WORKERS), V(HOST))},
	{CAUSE(HOST_RAM), LOADING | SETUP | SERVER_SETUP, 0, DO(V(LOAD_HOST), V(HOST))},
	{CAUSE(HOST_RAM), SAVING, 0, DO(V(SAVE), V(HOST))},
	{CAUSE(HOST_RAM), TRAINING | EVAL, 0, DO(V(HOST), V(WORKERS))},
	{CAUSE(HOST_RAM), INFERENCE, 0, DO(V(HOST), V(LOAD_HOST))},
	{CAUSE(HOST_RAM), ANY, 0, DO(V(HOST), V(WORKERS), V(LOAD_HOST))},
	{CAUSE(EVAL_LOGITS), ANY, 0, DO(V(EVAL), V(EVAL_BATCH))},
	{CAUSE(LONGEST_BATCH), ANY, 0, DO(V(LONGEST), V(BATCH), V(RECOMPUTE))},
	{CAUSE(STEP_2), ANY, 0, DO(V(OPTIMIZER), V(SHARD), V(PRECISION), V(ADAPTER))},
	{CAUSE(LEAK), ANY, 0, DO(V(LEAK))},
	{CAUSE(KV_CACHE), ANY, 0, DO(V(KV), V(CONTEXT), V(QUANT), V(SPREAD))},
	{CAUSE(WRONG_CAPACITY), ANY, 0, DO(V(CAPACITY))},
	{CAUSE(WATERMARK_CAP), ANY, 0, DO(V(WATERMARK), V(QUANT))},
	{CAUSE(BUFFER_LIMIT), LOADING, BIT(OOM_CRASH_LOAD), DO(V(LOAD), V(QUANT), V(LIMIT))},
	{CAUSE(BUFFER_LIMIT), ANY, 0, DO(V(LIMIT))},
	{CAUSE(FRACTION_CAP), INFERENCE | SERVER_SETUP, 0, DO(V(CAP), V(REQUESTS))},
	{CAUSE(FRACTION_CAP), TRAINING, 0, DO(V(CAP), V(BATCH))},
	{CAUSE(FRACTION_CAP), ANY, 0, DO(V(CAP))},
	{CAUSE(OTHER_PROCESS), SERVER_SETUP | INFERENCE, 0, DO(V(OTHERS), V(ROOM))},
	{CAUSE(OTHER_PROCESS), ANY, 0, DO(V(OTHERS))},
	{CAUSE(FRAGMENTATION), TRAINING, 0, DO(V(FRAGMENT), V(BATCH), V(LONGEST))},
	{CAUSE(FRAGMENTATION), INFERENCE | SERVER_SETUP, 0, DO(V(FRAGMENT), V(REQUESTS), V(CONTEXT))},
	{CAUSE(FRAGMENTATION), LOADING, 0, DO(V(FRAGMENT), V(LOAD))},
	{CAUSE(FRAGMENTATION), ANY, 0, DO(V(FRAGMENT))},
	/* too much, or nobody knows why */
	{ANY, TRAINING, BIT(OOM_CRASH_OPTIMIZER), DO(V(OPTIMIZER), V(SHARD), V(BATCH), V(ADAPTER))},
	{ANY, TRAINING, 0, DO(V(BATCH), V(RECOMPUTE), V(PRECISION), V(LOGITS), V(OPTIMIZER), V(SHARD))},
	{ANY, INFERENCE, 0, DO(V(REQUESTS), V(CONTEXT), V(ROOM), V(TILE), V(QUANT), V(OFFLOAD))},
	{ANY, EVAL, 0, DO(V(EVAL_BATCH), V(EVAL))},
	{ANY, LOADING, 0, DO(V(LOAD), V(QUANT), V(OFFLOAD), V(SPREAD))},
	{ANY, SAVING, 0, DO(V(SAVE))},
	{ANY, SERVER_SETUP, 0, DO(V(ROOM), V(REQUESTS), V(GRAPHS), V(CONTEXT), V(SPREAD), V(QUANT))},
	{ANY, SETUP, 0, DO(V(OTHERS), V(SHARD), V(QUANT), V(OFFLOAD))},
	{CAUSE(UNKNOWN), DATA, 0, DO(V(WORKERS), V(SHM), V(HOST))},
	{ANY, DATA, 0, DO(V(WORKERS), V(PINNED))},
	{ANY, COMPILING, 0, DO(V(COMPILE))},
	{ANY, COLLECTIVE, 0, DO(V(COLLECTIVE), V(OTHERS))},
	{ANY, TESTING, 0, DO(V(TESTS), V(OTHERS))},
};

/* Programs that draw or speak rather than serve have their own order: weights wait on the host, the
 * decoder works in tiles. */
static const enum oom_lever of_pictures[MAX_LEVERS] = DO(V(OFFLOAD), V(TILE), V(CONTEXT), V(REQUESTS), V(QUANT), V(ROOM));
static const enum oom_lever of_layers[MAX_LEVERS] = DO(V(KV), V(OFFLOAD), V(REQUESTS), V(QUANT), V(SPREAD), V(OTHERS));
static const enum oom_lever of_servers[MAX_LEVERS] = DO(V(ROOM), V(REQUESTS), V(CONTEXT), V(QUANT), V(SPREAD));

static const char *lever(const struct oom_crash *c, enum oom_lever l)
{
	return oom_lever_in(oom_program_dialect(c, oom_crash_work(c) == OOM_WORK_TRAINING), oom_runtime_named(c->framework)->as.dialect, l);
}

/* In words of its own, not everybody's. */
static bool has_own(const struct oom_crash *c, enum oom_lever l)
{
	return lever(c, l) && lever(c, l) != oom_lever_in("torch", "torch", l);
}

static const enum oom_lever *order(const struct oom_crash *c, enum oom_crash_work work,
				   enum oom_cause cause)
{
	const struct oom_program *const p = oom_program_of(c);
	const bool short_of = cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_UNKNOWN;
	const bool runs = work == OOM_WORK_INFERENCE || work == OOM_WORK_SERVER_SETUP;

	if (short_of && runs && has_own(c, OOM_LEVER_TILE))
		return of_pictures;
	if (short_of && runs && !lever(c, OOM_LEVER_GRAPHS) && has_own(c, OOM_LEVER_KV))
		return of_layers;
	if (short_of && work == OOM_WORK_INFERENCE && p->activity == OOM_ACTIVITY_SERVES)
		return of_servers;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((rows[i].causes & BIT(cause)) && (rows[i].works & BIT(work)) &&
		    (!rows[i].phases || rows[i].phases & BIT(c->phase)))
			return rows[i].levers;
	return NULL;
}

/* What a cause that is none of memory asks for, and messages that are of one part. */
static enum oom_lever instead(const struct oom_crash *c, enum oom_lever lever)
{
	const enum oom_lever read = oom_format_of(c)->read;

	if (lever == OOM_LEVER_READ && read)
		return read;
	return lever == OOM_LEVER_HOST && c->pinned ? OOM_LEVER_PINNED : lever;
}

static void add(struct oom_crash_answer *a, const char *prefix, const char *text)
{
	if (!text || a->n_fix == OOM_ANSWER_FIXES)
		return;
	for (size_t i = 0; i < a->n_fix; i++)
		if (strstr(a->fix[i], text))
			return;
	snprintf(a->fix[a->n_fix++], sizeof(a->fix[0]), "%s%s", prefix, text);
}

static bool alone_too_large(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_TOTAL] && !oom_format_is(c, OOM_FORMAT_PROGRAM) &&
	       c->bytes[OOM_CRASH_TRIED] > c->bytes[OOM_CRASH_TOTAL];
}

/* Refused though more than the request is said to be free: a smaller one need not fare better. */
static bool plenty(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_FREE] && c->bytes[OOM_CRASH_FREE] / 2 > c->bytes[OOM_CRASH_TRIED];
}

/* One array, not the sum of many, took the host's memory. */
static bool big_array(const struct oom_crash *c)
{
	return oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && c->known[OOM_CRASH_TRIED] &&
	       c->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30;
}

static void fixes(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause,
		  struct oom_crash_answer *a)
{
	const enum oom_lever *levers = order(c, work, cause);
	const enum oom_lever part = work == OOM_WORK_TRAINING ? oom_part_of(c)->trains : oom_part_of(c)->runs;
	const bool of_memory = cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_UNKNOWN || cause == OOM_CAUSE_BUFFER_LIMIT;
	char own[120];

	if (cause == OOM_CAUSE_KV_CACHE && c->advised_tokens) {
		snprintf(own, sizeof(own), "max_model_len %" PRIu64 " or less: what the message itself says would fit",
			 c->advised_tokens);
		add(a, "", own);
	}
	/* one tensor larger than the card: nothing but that tensor helps */
	if (cause == OOM_CAUSE_TOO_LARGE && alone_too_large(c))
		add(a, "", lever(c, OOM_LEVER_LIMIT));
	if (cause == OOM_CAUSE_UNKNOWN && plenty(c)) {
		add(a, "first: ", lever(c, OOM_LEVER_OTHERS));
		add(a, "", lever(c, OOM_LEVER_CAP));
	}
	if (of_memory && part)
		add(a, "", lever(c, part));
	if (cause == OOM_CAUSE_HOST_RAM && big_array(c))
		add(a, "", lever(c, OOM_LEVER_ARRAY));
	if (cause == OOM_CAUSE_HOST_RAM)
		add(a, "", oom_format_of(c)->limit);
	for (size_t i = 0; levers && i < MAX_LEVERS && levers[i]; i++) {
		const bool told = cause == OOM_CAUSE_HOST_RAM && oom_format_of(c)->limit;

		/* who has no vocabulary has no logits to speak of */
		if (levers[i] == OOM_LEVER_LOGITS && !has_own(c, OOM_LEVER_LOGITS))
			continue;

		/* of the limit, all is said above; of parts that nobody named, on a condition */
		if (!told || levers[i] != OOM_LEVER_HOST)
			add(a,
			    cause != OOM_CAUSE_HOST_RAM || work != OOM_WORK_UNKNOWN ? "" :
			    levers[i] == OOM_LEVER_WORKERS ? "if a DataLoader was running: " :
			    levers[i] == OOM_LEVER_LOAD_HOST ? "if a model was being loaded: " :
								"",
			    lever(c, instead(c, levers[i])));
	}
	/* unified memory: the limit is a share of it */
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK) && a->n_fix == OOM_ANSWER_FIXES)
		a->n_fix--;
	if (of_memory && oom_runtime_is(c, OOM_RUNTIME_WATERMARK))
		add(a, "", lever(c, OOM_LEVER_WATERMARK));
	if (cause == OOM_CAUSE_UNKNOWN && work != OOM_WORK_UNKNOWN)
		add(a, "if it has no more than usual: ", lever(c, OOM_LEVER_OTHERS));
	/* a program that has no such thing */
	if (levers && !a->n_fix)
		add(a, "", lever(c, work == OOM_WORK_TRAINING ? OOM_LEVER_BATCH : OOM_LEVER_OTHERS));
	if (levers)
		return;
	/* the text does not say what ran: the first thing to try for each, named as such */
	add(a, "if it was training: ", lever(c, OOM_LEVER_BATCH));
	if (c->phase == OOM_CRASH_FORWARD)
		add(a, "if it was training: ", lever(c, OOM_LEVER_RECOMPUTE));
	add(a, "if it was generating or serving: ", lever(c, OOM_LEVER_REQUESTS));
	if (c->phase == OOM_CRASH_FORWARD)
		add(a, "if it was not training: ", lever(c, OOM_LEVER_NO_GRAD));
	else
		add(a, "if the model was being loaded: ", lever(c, OOM_LEVER_LOAD));
	if (cause == OOM_CAUSE_UNKNOWN)
		add(a, "in any case: ", lever(c, OOM_LEVER_OTHERS));
}

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

static void sentence(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char text[3][64];
	const char *who = oom_program_of(c)->title, *when = during[c->phase],
		   *tried = printed(c, OOM_CRASH_TRIED, text[0], sizeof(text[0])),
		   *most = printed(c, OOM_CRASH_ALLOWED, text[1], sizeof(text[1])),
		   *left = printed(c, OOM_CRASH_FREE, text[2], sizeof(text[2]));
	char *const out = a->happened;
	const size_t size = sizeof(a->happened);
	size_t n = 0;

	if (oom_format_of(c)->ran_out_of) {
		n = put(out, n, size, "%s %s", who, oom_format_of(c)->ran_out_of);
		put(out, n, size, "%s.%s", when, "");
		return;
	}
	switch (cause) {
	case OOM_CAUSE_NOT_OOM:
		n = put(out, n, size, "This is no shortage of memory: %s%s", c->cause[0].evidence, "");
		break;
	case OOM_CAUSE_HOST_RAM:
		n = put(out, n, size, *oom_program_of(c)->name ? "The host's memory ran out, not the GPU's%s (%s)" :
								 "The host's memory ran out, not the GPU's%s", when, who);
		if (tried || !c->known[OOM_CRASH_TOTAL] || !c->known[OOM_CRASH_ALLOCATED])
			n = numbers(c, out, n, size);
		else
			n = put(out, n, size, ": %s of %s were in use", c->text[OOM_CRASH_ALLOCATED],
				c->text[OOM_CRASH_TOTAL]);
		break;
	case OOM_CAUSE_SHM:
		n = put(out, n, size, *oom_program_of(c)->name ? "Shared memory (/dev/shm)%s ran out, not the GPU's (%s)" :
								 "Shared memory (/dev/shm)%s ran out, not the GPU's", when, who);
		break;
	case OOM_CAUSE_KV_CACHE:
		n = put(out, n, size, "%s has too little room for its KV cache%s", who, when);
		if (tried && left)
			n = put(out, n, size, ": %s are needed, %s are left", tried, left);
		else
			n = numbers(c, out, n, size);
		break;
	case OOM_CAUSE_OTHER_PROCESS:
		n = put(out, n, size, "%s found the memory taken by others%s", who, when);
		n = numbers(c, out, n, size);
		break;
	case OOM_CAUSE_BUFFER_LIMIT:
		n = put(out, n, size, "%s asked for one buffer larger than the device allows, however much is free%s", who, when);
		if (tried)
			n = put(out, n, size, ": %s%s", tried, "");
		if (most)
			n = put(out, n, size, "%s at most %s", tried ? "," : ":", most);
		break;
	case OOM_CAUSE_FRACTION_CAP:
	case OOM_CAUSE_WATERMARK_CAP:
		n = put(out, n, size, "%s met a limit that was set, not the end of the memory%s", who, when);
		n = numbers(c, out, n, size);
		if (most)
			n = put(out, n, size, "; %s are allowed%s", most, "");
		break;
	case OOM_CAUSE_FRAGMENTATION:
		n = put(out, n, size, "%s had enough memory, but in pieces too small%s", who, when);
		n = numbers(c, out, n, size);
		break;
	default:
		n = put(out, n, size, oom_runtime_is(c, OOM_RUNTIME_HOST) ? "%s ran out of host memory%s" : "%s ran out of device memory%s",
			who, when);
		n = numbers(c, out, n, size);
		break;
	}
	put(out, n, size, ".%s%s", "", "");
	/* a name keeps its small letter, as llama.cpp does; a phrase does not */
	if (*out >= 'a' && *out <= 'z' && strchr(who, ' '))
		out[0] = (char)(out[0] - 'a' + 'A');
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

	if (cause != OOM_CAUSE_TOO_LARGE || !oom_runtime_is(c, OOM_RUNTIME_CARD) || away < gib || away < total / 8)
		return;
	if ((out = evidence_slot(a)) != NULL)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB of the card are neither free nor PyTorch's: its context and libraries, or other "
			 "programs (nvidia-smi)", away / gib);
}

static void observe(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, total = (double)c->bytes[OOM_CRASH_TOTAL],
		     tried = (double)c->bytes[OOM_CRASH_TRIED],
		     held = (double)c->bytes[OOM_CRASH_ALLOCATED],
		     idle = (double)c->bytes[OOM_CRASH_RESERVED_UNALLOCATED];
	const size_t size = sizeof(a->evidence[0]);
	char *out;

	if (*c->cause[0].evidence && cause != OOM_CAUSE_NOT_OOM && (out = evidence_slot(a)))
		snprintf(out, size, "%s", c->cause[0].evidence);
	if (oom_part_of(c)->noun && (out = evidence_slot(a)))
		snprintf(out, size, "it was asked for by %s", oom_part_of(c)->noun);
	if (alone_too_large(c) && (out = evidence_slot(a)))
		snprintf(out, size, "the one tensor asked for is %.1f times what there is: a batch, length or attention matrix out of "
			 "proportion", tried / total);
	else if (cause == OOM_CAUSE_TOO_LARGE && c->known[OOM_CRASH_ALLOCATED] && total > 0 && held <= total &&
		 held > 0.5 * total && (out = evidence_slot(a)))
		snprintf(out, size, "%.0f %% of the memory are this process's own tensors, no other process's",
			 100 * held / total);
	outside(c, cause, a);
	if (cause == OOM_CAUSE_TOO_LARGE && c->known[OOM_CRASH_RESERVED_UNALLOCATED] && idle < tried &&
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
	if (*c->program_total && (out = evidence_slot(a)))
		snprintf(out, size, "what the compiler laid out for the program: %s", c->program_total);
	if (*c->largest && (out = evidence_slot(a)))
		snprintf(out, size, "the largest buffer of the program: %s", c->largest);
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
	if (work == OOM_WORK_UNKNOWN || c->phase == OOM_CRASH_UNKNOWN)
		return "the lines above the message, from \"Traceback (most recent call last)\" on, name the part of the program that asked";
	return NULL;
}

void oom_crash_answer(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const enum oom_cause cause = c->n_causes ? c->cause[0].cause : OOM_CAUSE_UNKNOWN;
	const enum oom_crash_work work = oom_crash_work(c);

	memset(a, 0, sizeof(*a));
	sentence(c, cause, a);
	observe(c, cause, a);
	fixes(c, work, cause, a);
	a->settle = settles(c, work, cause);
	a->training = work == OOM_WORK_TRAINING;
	a->title = oom_program_of(c)->title;
}

const char *oom_crash_fix(const struct oom_crash *c, enum oom_cause cause, char *buf, size_t size)
{
	struct oom_crash_answer a = {0};

	fixes(c, oom_crash_work(c), cause, &a);
	snprintf(buf, size, "%s", a.n_fix ? a.fix[0] : "");
	return buf;
}
