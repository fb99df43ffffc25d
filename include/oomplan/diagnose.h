/* What an out-of-memory message says, where it happened, and why.
 *
 * Numbers are decoded, never guessed: a number that the text does not give is absent.  Causes are ranked,
 * each with its evidence. */
#ifndef OOMPLAN_DIAGNOSE_H
#define OOMPLAN_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that a message may give, in bytes.  They are printed with two decimals, so they are exact to
 * 0.005 of the printed unit. */
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
/* "the forward pass", ...  Static. */
OOM_API const char *oom_crash_phase_str(enum oom_crash_phase phase);

enum oom_cause {
	OOM_CAUSE_TOO_LARGE, OOM_CAUSE_FRAGMENTATION, OOM_CAUSE_OTHER_PROCESS, OOM_CAUSE_HOST_RAM,
	OOM_CAUSE_SHM, OOM_CAUSE_EVAL_LOGITS, OOM_CAUSE_LONGEST_BATCH, OOM_CAUSE_STEP_2,
	OOM_CAUSE_LEAK, OOM_CAUSE_KV_CACHE, OOM_CAUSE_FRACTION_CAP, OOM_CAUSE_WATERMARK_CAP,
	OOM_CAUSE_WRONG_CAPACITY, OOM_CAUSE_BUFFER_LIMIT, OOM_CAUSE_NOT_OOM, OOM_CAUSE_UNKNOWN, OOM_CAUSES
};
/* What a cause means. */
struct oom_cause_info {
	const char *name;       /* "too_large" */
	const char *meaning;
	int rung;               /* the rung of the ladder that helps; 0: none */
	const char *source;     /* the entry of the playbook */
};
OOM_API const struct oom_cause_info *oom_cause_info(enum oom_cause cause);

struct oom_verdict {
	enum oom_cause cause;
	double confidence;      /* 0..1 */
	char evidence[160];
};

/* What was going on, by phase and program.  Only a training run has the fixes of a training run. */
enum oom_crash_work {
	OOM_WORK_UNKNOWN, OOM_WORK_TRAINING, OOM_WORK_EVAL, OOM_WORK_INFERENCE, OOM_WORK_LOADING,
	OOM_WORK_SAVING, OOM_WORK_SETUP, OOM_WORK_SERVER_SETUP, OOM_WORK_COMPILING, OOM_WORK_DATA,
	OOM_WORK_COLLECTIVE, OOM_WORK_TESTING, OOM_WORKS
};

/* What the refused request was for, if the code above the message or the runtime says so. */
enum oom_crash_part {
	OOM_PART_UNKNOWN, OOM_PART_LOGITS, OOM_PART_SCORES, OOM_PART_KV, OOM_PART_SCRATCH, OOM_PART_WEIGHTS,
	OOM_PART_STATES, OOM_PART_GATHERED, OOM_PART_BUCKET, OOM_PART_IMAGE, OOM_PART_LOSS, OOM_PART_TRACE, OOM_PART_SAMPLER, OOM_PART_NODE, OOM_PART_RESTORED,
	OOM_PART_WARMUP, OOM_PART_ENGINE, OOM_PART_GRAPHS, OOM_PART_SCALED, OOM_PART_PAIRS, OOM_PART_EDGES, OOM_PART_MAPS, OOM_PART_TEMPORARIES, OOM_PART_RAYS, OOM_PART_JOINED, OOM_PART_POINTS,
	OOM_PART_INPUT, OOM_PART_ENCODED, OOM_PART_FIXED, OOM_PART_MERGED, OOM_PART_CONTEXT, OOM_PART_EXCHANGED, OOM_PARTS
};

/* What a model works on, by the words around the message; those that are rarer stand first. */
enum oom_crash_task {
	OOM_TASK_UNKNOWN, OOM_TASK_ATOMS, OOM_TASK_GRAPHS, OOM_TASK_AGENTS, OOM_TASK_AUDIO, OOM_TASK_VOLUMES, OOM_TASK_VIDEO, OOM_TASK_POINTS,
	OOM_TASK_IMAGES, OOM_TASKS
};

#define OOM_CRASH_CAUSES 4
#define OOM_CRASH_PROCESSES 8
/* An option of the run, as its text spells it. */
struct oom_crash_told {
	char name[56];
	double value;
	uint8_t row;                            /* of the table of options */
};
#define OOM_CRASH_TOLD 24
struct oom_crash {
	bool known[OOM_CRASH_NUMBERS];
	uint64_t bytes[OOM_CRASH_NUMBERS];
	char text[OOM_CRASH_NUMBERS][40];       /* the numbers as printed */
	int64_t gpu_index, rank;                /* -1: absent */
	struct {
		int64_t pid;
		uint64_t bytes;
	} process[OOM_CRASH_PROCESSES];         /* every "Process N has ..." */
	size_t n_processes;
	char framework[16], format[32], exception[80];
	char program[24];                       /* "vllm", "trainer", ...; "": not recognised */
	enum oom_crash_part part;
	enum oom_crash_phase phase;
	char phase_evidence[120];
	double phase_confidence;                /* 0.5..1; 0: the phase is unknown */
	bool traceback;                         /* stack frames precede the message */
	bool trains;                            /* the text says that a training run was going on */
	struct oom_verdict cause[OOM_CRASH_CAUSES];
	size_t n_causes;
	uint64_t line;                          /* the line on which the message begins */
	double advised_share;                   /* the share of the card that the server says it needs; 0: it does not say */
	uint64_t prefill_tokens;                /* so many did not fit a server's trial run, by its message; 0: it does not say */
	uint64_t advised_tokens;                /* the length that the server says would fit; 0: none */
	uint64_t asked_tokens;                  /* the one that it was asked for, by the same message; 0: it does not say */
	bool two_ways;                          /* one share of the card leaves the cache nothing, a higher one runs out of memory */
	/* from a block of nvidia-smi's in the text: the fullest card and its largest process; pid 0: none */
	struct {
		uint64_t used, total;
		int64_t pid;
		uint64_t process_bytes;
		char name[40];
	} smi;
	double padding;                         /* how many times as large a TPU's tiles make that buffer; 0: not said */
	char largest[160];                      /* the largest buffer in XLA's list, or "" */
	/* what a server's log says its budget consists of, and how the program went on after the refusal, as printed;
	 * or "" */
	char budget[230], went_on[96];
	/* "folder/file.py:12, in function: code", the innermost line that lies in no installed package; or "" */
	char own_line[200];
	char line_name[48];                     /* a setting that this line's code names, "args.crop_size"; or "" */
	char program_total[140];                /* what XLA says its program needs, in parts, or "" */
	uint64_t host_states;                   /* the number of parameters whose states are on the host; 0: none */
	uint64_t set;                           /* bits of the fixes that the run's options already apply */
	uint64_t given[64];                     /* a bit or two for each of its options with its value (given.c) */
	uint64_t tried;                         /* bits of those that the text says were tried without success */
	struct oom_crash_told told[OOM_CRASH_TOLD];
	size_t n_told;
	uint64_t layers, layer_bytes;           /* what llama.cpp put on the card, and what one takes there; 0: unknown */
	uint64_t asked_layers, cache_layer_bytes; /* how many it was to put there, and what one takes of the cache; 0: unknown */
	uint64_t device_free;                   /* on the one device, before it loaded; 0: unknown */
	bool keeps_vectors;                     /* embeddings of all inputs stay on the card */
	bool map_undone;                        /* its code lays a model over the cards, and then all of it on the first */
	int64_t first_dimension;                /* of the shape of three and more that was refused; 0: none is given */
	bool text_array;                        /* NumPy's of text, each entry as wide as the longest */
	bool pairs;                             /* that shape is square: everything of so many against everything */
	bool wide;                              /* its numbers have 8 bytes, where NumPy's default was taken */
	bool kernel;                            /* that shape is one of a convolution's weights */
	int64_t matrix[2];                      /* of a shape of two; 0: none is given */
	int64_t image[2];                       /* height and width, where that shape is one of images; 0: it is not */
	bool mapped;                            /* accelerate's device_map lays its layers over several cards */
	bool moved_whole;                       /* its code moves a pipeline to the card before it offloads it in parts */
	bool offloads;                          /* an optimizer's states lie in host memory */
	bool sees;                              /* images or video go into the model */
	bool language;                          /* the code has a vocabulary or tokens */
	enum oom_crash_task task;
	bool second_stage;                      /* ZeRO divides states and gradients, not the weights */
	bool one_process;                       /* it was started on one card, by its own words */
	bool splits;                            /* ZeRO or FSDP divides the states among ranks, whatever its stage */
	bool zero;                              /* it is DeepSpeed that divides them */
	bool sharded;                           /* ranks hold parts: FSDP, DeepSpeed, several processes */
	char off[48];                           /* the run's own option that would recompute and is off; "": none is told */
	bool disks;                             /* ZeRO keeps states or weights on disks */
	bool wsl;                               /* Linux under Windows, whose memory is a part of it */
	bool rolls;                             /* a step trains on what the model generates in it (PPO, GRPO) */
	bool engine_loads;                      /* frames of such an engine's own */
	bool engine;                            /* an engine that serves has a share of the trainer's card */
	uint64_t trained, of_parameters;        /* as the log counts those that are trained, and all; 0: it does not */
	unsigned weight_bits;                   /* in which the run keeps its weights, by its options; 0: they do not say */
	uint64_t parameters;                    /* of the model, by its name; 0: unknown */
	bool by_shape;                          /* that number follows from the shape that options give, not from a name */
	bool grew;                              /* somebody watched the host's memory fill from step to step, or epoch to epoch */
	char helped[48];                        /* an option with which, or without which, the text says it runs; "": none */
	bool helped_without;
	bool pretrains;                         /* by its own words: no adapters */
	bool sub_groups;                        /* ZeRO-3's step over one sub group of its parameters */
	uint64_t host_used, host_total;         /* of the host's memory, as DeepSpeed's log prints them; 0: it does not */
	bool drafts;                            /* a server that decodes speculatively, by its options */
	char memory_limit[48];                  /* of the host's, as the text gives it: "resources.limits.memory 500Mi"; "": it does not */
	double card_named;                      /* GB of the one card of the catalogue that it names; 0: none, or several */
	double card_said;                       /* GB of the smallest card that people speak of; 0: none */
	unsigned cards;                         /* that a training is divided over, as the text says; 0: it does not */
	uint64_t vocabulary;                    /* of its family, by its name; 0: unknown */
	bool windows;                           /* the paths in the text are those of Windows */
	/* all cards of its size that its caller knows are older than Ampere; the decoder leaves it false */
	bool before_bf16;
	/* the run that its text gives is priced beside it (oomplan/priced.h), so that no size by a name is; the decoder
	 * leaves it false */
	bool priced;
	/* bits of those levers that free less than is missing, by that price; and it names a change that fits. The decoder leaves
	 * both empty */
	uint64_t idle;
	bool answered, states_over;             /* and its weights and states alone exceed the card */
	bool old_card;                          /* the cards that the text names are all older than Ampere */
	bool several;                           /* models are loaded one after the other, or beside one another */
	bool stepped;                           /* a training's bar has counted two steps and more: what it holds throughout fits */
	bool notebook;                          /* the code ran in a notebook's cells */
	bool amd;                               /* words of AMD's runtime stand in the text */
	bool unified;                           /* the host and the card share the memory that ran out */
	bool pinned;                            /* pinned (page-locked) host memory was refused */
	uint64_t ooms, retries;                 /* from a memory_summary() table */
	int strength;                           /* of the evidence: 3 allocator's message, 2 kill line, 1 hint */
};

/* Decodes a text (a message, a traceback), that is, the last of the strongest messages in it.  False if it
 * contains none. */
OOM_API bool oom_crash_decode(const char *text, size_t size, struct oom_crash *out);

/* True if PyTorch ran on a card with a memory of its own, whose allocator reserves segments; `total` is then
 * the card's. */
OOM_API bool oom_crash_of_card(const struct oom_crash *crash);
OOM_API enum oom_crash_work oom_crash_work(const struct oom_crash *crash);
/* "training", "server_setup", ... */
OOM_API const char *oom_crash_work_str(enum oom_crash_work work);
/* The i-th program that is recognised, such as "vllm"; NULL past the end. */
OOM_API const char *oom_crash_program(size_t index);

/* The answer to a decoded crash, in the terms of the program that ran. */
#define OOM_ANSWER_FIXES 6
#define OOM_ANSWER_EVIDENCE 6
struct oom_crash_answer {
	const char *title;                      /* the program that ran, such as "vLLM" */
	char happened[400];                     /* one sentence */
	char evidence[OOM_ANSWER_EVIDENCE][240]; /* what else the numbers say */
	size_t n_evidence;
	char fix[OOM_ANSWER_FIXES][300];        /* what to change, the cheapest first */
	size_t n_fix;
	/* what would settle the question if the text does not; otherwise NULL */
	const char *settle;
	bool training;                          /* the ladder of `oomplan plan` applies */
	int rung;                               /* of that ladder, of the first thing to change that has one; 0: none */
};
OOM_API void oom_crash_answer(const struct oom_crash *crash, struct oom_crash_answer *out);
/* Writes the first thing to change for this cause into buf, or "" if there is none.  Returns buf. */
OOM_API const char *oom_crash_fix(const struct oom_crash *crash, enum oom_cause cause, char *buf,
				  size_t size);

/* What a log says about the run before the message that is explained.  In a log of more than 16 MiB only a
 * part of every MiB is read for this, and everything just before the message. */
struct oom_crash_run {
	uint64_t samples;                       /* lines with a step, a loss or a size */
	int64_t first_step, last_step;          /* -1: none */
	int64_t of_steps;                       /* the 1000 of "12/1000"; 0: unknown */
	bool has_loss;
	double first_loss, last_loss;
	/* a memory figure that the log prints repeatedly */
	char memory_key[24];                    /* its name, or "" if there is none */
	uint64_t memory_samples;
	double memory_first, memory_last;       /* in bytes, or as printed if there is no unit */
	double memory_slope;                    /* per step, or per line if there are no step numbers */
	double memory_fit;                      /* -1..1: correlation with the step */
	bool memory_in_bytes;
	int64_t longest, longest_step;          /* tokens of the longest batch, and its step; 0: none */
	int64_t longest_before;                 /* of the batches before that one; 0: none */
	bool in_evaluation;                     /* one began, and no step was counted since */
	uint64_t evaluations, savings;          /* how many began before the message */
	bool resumed;
	uint64_t steps_since_resume;
};

struct oom_crash_log {
	uint64_t messages, lines;               /* allocator messages; lines read */
	bool rising;                            /* a process's allocated bytes rose over four messages */
	uint64_t ranks;                         /* how many ranks died, by the messages; 0: none is named */
	int64_t first_rank;                     /* -1: none */
	uint64_t first_rank_line;
	uint64_t first_rank_tried;      /* bytes; 0: its message does not say */
	bool ranks_differ;                      /* their requests differ by more than 5 % */
	struct oom_crash_run run;
};
typedef void (*oom_crash_fn)(void *ctx, const struct oom_crash *crash);
/* Streams a log of any size ("-": standard input).  each, which may be NULL, is called with every message;
 * last receives the last of the strongest ones, and of ranks that die together the first.  OOM_ERR_UNKNOWN if nothing in the log is about memory. */
OOM_API enum oom_status oom_crash_read(const char *path, oom_crash_fn each, void *ctx,
				       struct oom_crash *last, struct oom_crash_log *log,
				       struct oom_error *err);

/* What is kept of a log for the run that it gives (oomplan/priced.h): its beginning, and what stands around the message that counts.  Fill it with
 * oom_crash_read_keeping. */
#define OOM_CRASH_KEPT (32 << 10)
struct oom_crash_text {
	char text[2][OOM_CRASH_KEPT];
	size_t size[2];
	uint64_t line[2];               /* the number of its first line */
};
/* oom_crash_read, which leaves in text what it kept, and fails as that does. */
OOM_API enum oom_status oom_crash_read_keeping(const char *path, oom_crash_fn each, void *ctx, struct oom_crash *last,
					       struct oom_crash_log *log, struct oom_crash_text *text, struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
