/* What an out-of-memory message says, where it happened, and why.
 *
 * Numbers are decoded, never guessed: one that the text does not give is absent.  Causes are
 * ranked, each with the evidence it rests on. */
#ifndef OOMPLAN_DIAGNOSE_H
#define OOMPLAN_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers a message may hold, in bytes; printed with two decimals, so good to 0.005 of the
 * printed unit. */
enum oom_crash_number {
	OOM_CRASH_TRIED, OOM_CRASH_TOTAL, OOM_CRASH_FREE, OOM_CRASH_PROCESS, OOM_CRASH_ALLOCATED,
	OOM_CRASH_RESERVED_TOTAL, OOM_CRASH_RESERVED_UNALLOCATED, OOM_CRASH_PRIVATE_POOL,
	OOM_CRASH_ALLOWED, OOM_CRASH_OTHER, OOM_CRASH_NUMBERS
};
/* "tried_bytes", "total_bytes", ... */
OOM_API const char *oom_crash_number_str(enum oom_crash_number number);

enum oom_crash_phase {
	OOM_CRASH_UNKNOWN, OOM_CRASH_FORWARD, OOM_CRASH_BACKWARD, OOM_CRASH_OPTIMIZER,
	OOM_CRASH_TRAIN_STEP, OOM_CRASH_EVAL,
	OOM_CRASH_INFERENCE, OOM_CRASH_LOAD, OOM_CRASH_TO_DEVICE, OOM_CRASH_INIT, OOM_CRASH_COMPILE,
	OOM_CRASH_DATA,
	OOM_CRASH_COLLECTIVE, OOM_CRASH_TEST, OOM_CRASH_SAVE, OOM_CRASH_PHASES
};
OOM_API const char *oom_crash_phase_str(enum oom_crash_phase phase);

enum oom_cause {
	OOM_CAUSE_TOO_LARGE, OOM_CAUSE_FRAGMENTATION, OOM_CAUSE_OTHER_PROCESS, OOM_CAUSE_HOST_RAM,
	OOM_CAUSE_SHM, OOM_CAUSE_EVAL_LOGITS, OOM_CAUSE_LONGEST_BATCH, OOM_CAUSE_STEP_2,
	OOM_CAUSE_LEAK, OOM_CAUSE_KV_CACHE, OOM_CAUSE_FRACTION_CAP, OOM_CAUSE_WATERMARK_CAP,
	OOM_CAUSE_WRONG_CAPACITY, OOM_CAUSE_BUFFER_LIMIT, OOM_CAUSE_NOT_OOM, OOM_CAUSE_UNKNOWN, OOM_CAUSES
};
/* What each cause means: one row each. */
struct oom_cause_info {
	const char *name;       /* "too_large" */
	const char *meaning;
	int rung;               /* of the ladder; 0: none of them */
	const char *source;     /* playbook entry */
};
OOM_API const struct oom_cause_info *oom_cause_info(enum oom_cause cause);

struct oom_verdict {
	enum oom_cause cause;
	double confidence;      /* 0..1 */
	char evidence[160];
};

/* What was going on, by phase and program: only a training has a training's fixes. */
enum oom_crash_work {
	OOM_WORK_UNKNOWN, OOM_WORK_TRAINING, OOM_WORK_EVAL, OOM_WORK_INFERENCE, OOM_WORK_LOADING,
	OOM_WORK_SAVING, OOM_WORK_SETUP, OOM_WORK_SERVER_SETUP, OOM_WORK_COMPILING, OOM_WORK_DATA,
	OOM_WORK_COLLECTIVE, OOM_WORK_TESTING, OOM_WORKS
};

/* What the refused request was for, where the code before the message or the runtime says it. */
enum oom_crash_part {
	OOM_PART_UNKNOWN, OOM_PART_LOGITS, OOM_PART_SCORES, OOM_PART_KV, OOM_PART_SCRATCH, OOM_PART_WEIGHTS,
	OOM_PART_STATES, OOM_PART_GATHERED, OOM_PART_IMAGE, OOM_PART_LOSS, OOM_PART_TRACE, OOM_PARTS
};

#define OOM_CRASH_CAUSES 4
#define OOM_CRASH_PROCESSES 8
struct oom_crash {
	bool known[OOM_CRASH_NUMBERS];
	uint64_t bytes[OOM_CRASH_NUMBERS];
	char text[OOM_CRASH_NUMBERS][40];       /* as printed */
	int64_t gpu_index, rank;                /* -1: absent */
	struct {
		int64_t pid;
		uint64_t bytes;
	} process[OOM_CRASH_PROCESSES];         /* every "Process N has ..." */
	size_t n_processes;
	char framework[16], format[32], exception[80];
	char program[24];                       /* "vllm", "trainer"; "": none shows */
	enum oom_crash_part part;
	enum oom_crash_phase phase;
	char phase_evidence[120];
	double phase_confidence;                /* 0.5..1; 0: the text does not tell, unknown */
	bool traceback;                         /* frames stand before the message */
	bool trains;                            /* the text says that a training ran, whatever its part */
	struct oom_verdict cause[OOM_CRASH_CAUSES];
	size_t n_causes;
	uint64_t line;                          /* on which the message begins */
	uint64_t advised_tokens;                /* the length that a server says would fit; 0: none */
	/* an nvidia-smi block in the text: the fullest card and its largest process; pid 0: none */
	struct {
		uint64_t used, total;
		int64_t pid;
		uint64_t process_bytes;
		char name[40];
	} smi;
	char largest[160];                      /* the largest buffer that XLA lists; "": none */
	char program_total[140];                /* what XLA says its program needs, in parts; "": nothing */
	uint64_t host_states;                   /* parameters whose states lie on the host; 0: none */
	uint64_t set;                           /* levers that the run's options pulled already: a bit each */
	bool pinned;                            /* page-locked host memory was refused */
	uint64_t ooms, retries;                 /* of a memory_summary() table */
	int strength;                           /* 3 allocator message, 2 kill line, 1 hint */
};

/* Decodes one text (a message, a traceback): the last and strongest message in it.  False when
 * it holds none. */
OOM_API bool oom_crash_decode(const char *text, size_t size, struct oom_crash *out);

/* PyTorch on a card that has a memory of its own: its allocator takes segments, and total is the card's. */
OOM_API bool oom_crash_of_card(const struct oom_crash *crash);
OOM_API enum oom_crash_work oom_crash_work(const struct oom_crash *crash);
/* "training", "server_setup", ... */
OOM_API const char *oom_crash_work_str(enum oom_crash_work work);
/* The programs that are recognised: "vllm"; NULL behind the last. */
OOM_API const char *oom_crash_program(size_t index);

/* The answer to a decoded crash, in the words of the program that ran. */
#define OOM_ANSWER_FIXES 6
#define OOM_ANSWER_EVIDENCE 4
struct oom_crash_answer {
	const char *title;                      /* who ran: "vLLM" */
	char happened[400];                     /* one sentence */
	char evidence[OOM_ANSWER_EVIDENCE][200]; /* what the numbers say besides */
	size_t n_evidence;
	char fix[OOM_ANSWER_FIXES][300];        /* what to change, the cheapest first */
	size_t n_fix;
	/* what would settle it where the text does not say; NULL: it says */
	const char *settle;
	bool training;                          /* the ladder of `oomplan plan` applies */
};
OOM_API void oom_crash_answer(const struct oom_crash *crash, struct oom_crash_answer *out);
/* The first thing to change if it was this cause; "" when there is none. */
OOM_API const char *oom_crash_fix(const struct oom_crash *crash, enum oom_cause cause, char *buf,
				  size_t size);

/* What a log says about the run before the message that counts.  Of a log beyond 16 MiB, a part of
 * every MiB is read for it, and all of what stands right before the message. */
struct oom_crash_run {
	uint64_t samples;                       /* lines with a step, a loss or a size */
	int64_t first_step, last_step;          /* -1: none */
	int64_t of_steps;                       /* "12/1000"; 0: not said */
	bool has_loss;
	double first_loss, last_loss;
	/* a figure of memory that is printed again and again */
	char memory_key[24];                    /* "" where there is none */
	uint64_t memory_samples;
	double memory_first, memory_last;       /* bytes, or as printed where no unit is */
	double memory_slope;                    /* a step, or a line where steps are not said */
	double memory_fit;                      /* -1..1: correlation with the step */
	bool memory_in_bytes;
	int64_t longest, longest_step;          /* tokens of the longest batch named; 0: none */
	uint64_t evaluations, savings;          /* begun before it */
	bool resumed;
	uint64_t steps_since_resume;
};

struct oom_crash_log {
	uint64_t messages, lines;               /* allocator messages; lines read */
	bool rising;                            /* one process's allocated rose over four messages */
	uint64_t ranks;                         /* that died, by the messages' ranks; 0: none named */
	int64_t first_rank;                     /* -1: none */
	uint64_t first_rank_line;
	bool ranks_differ;                      /* by more than a twentieth in what they asked for */
	struct oom_crash_run run;
};
typedef void (*oom_crash_fn)(void *ctx, const struct oom_crash *crash);
/* Streams a log ("-": standard input) of any size.  each (may be NULL) gets every message; last the
 * strongest last one. OOM_ERR_UNKNOWN when nothing in it speaks of memory. */
OOM_API enum oom_status oom_crash_read(const char *path, oom_crash_fn each, void *ctx,
				       struct oom_crash *last, struct oom_crash_log *log,
				       struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
