/* What is known of a wording and of a runtime: one row each.  Who asks reads a column; nobody compares a
 * name. */
#ifndef OOM_DIAGNOSE_TABLES_H
#define OOM_DIAGNOSE_TABLES_H

#include "answer.h"

enum oom_format_trait {
	/* raised by the program: the frames before it are its own.  Of the host's formats; those of devices
	 * always are. */
	OOM_FORMAT_RAISED = 1u << 0,
	/* printed by somebody else (kernel, scheduler, orchestrator): a class before it is another story */
	OOM_FORMAT_FOREIGN = 1u << 1,
	/* a library's status code: it found no memory, and says neither how much it wanted nor had */
	OOM_FORMAT_BARE = 1u << 2,
	/* cudaHostAlloc answers with the code of cudaMalloc */
	OOM_FORMAT_MAY_BE_PINNED = 1u << 3,
	/* PyTorch's sentence with its numbers */
	OOM_FORMAT_SENTENCE = 1u << 4,
	/* the driver's pools: the same sentence with its own order */
	OOM_FORMAT_ASYNC = 1u << 5,
	/* the frames are on the line before the message */
	OOM_FORMAT_NAMED_ON_LINE = 1u << 6,
	/* one array, whose shape or size the message gives */
	OOM_FORMAT_ONE_ARRAY = 1u << 7,
	/* Ray's table of the largest workers stands behind it */
	OOM_FORMAT_LISTS_WORKERS = 1u << 8,
	/* the words decide whether Slurm or the kernel printed it */
	OOM_FORMAT_KERNEL_OR_SLURM = 1u << 9,
	/* a server asks for a share of the card and finds less free */
	OOM_FORMAT_SHARE = 1u << 10,
	/* its own advice speaks of batches and limits: words behind it say nothing about the run */
	OOM_FORMAT_ADVISES = 1u << 11,
	/* part of a list whose head was cut off: what it is about may stand above */
	OOM_FORMAT_LIST = 1u << 12,
	/* what was asked for is all of a compiled program, not one array */
	OOM_FORMAT_PROGRAM = 1u << 13,
	/* a table of what is held, without a message */
	OOM_FORMAT_TABLE = 1u << 14,
	/* of a PyTorch before 2.1, which has no expandable segments */
	OOM_FORMAT_OLD = 1u << 15,
	/* the operation that ran is named on the message's line */
	OOM_FORMAT_NODE = 1u << 16,
	/* of a PyTorch before 1.6, which has no autocast */
	OOM_FORMAT_NO_AMP = 1u << 17,
	/* raised by a handler of signals: the frames are where the program happened to be, nothing that led to it */
	OOM_FORMAT_ANYWHERE = 1u << 18,
	/* a server's budget leaves nothing for its cache */
	OOM_FORMAT_BUDGET = 1u << 19,
};
enum { OOM_FORMAT_LEVERS = 4 };
struct oom_format {
	const char *name;       /* a format begins with it; the longest such row counts */
	unsigned traits;
	enum oom_lever read;    /* instead of "read the error itself"; 0: none */
	/* Who set the limit that was met, and what it is called there; NULL: nobody. */
	const char *limit;
	const char *settle;     /* what would settle it; NULL: nothing of its own */
	/* What ran out, behind "who", where it is neither bytes of the device nor of the host; NULL: bytes. */
	const char *ran_out_of;
	/* What to change first, whatever its cause; 0: what the cause asks for. */
	enum oom_lever first[OOM_MAX_LEVERS];
	const char *share;      /* the option that set the share of the card; NULL: none */
};
/* Never NULL. */
const struct oom_format *oom_format_of(const struct oom_crash *c);

enum oom_runtime_trait {
	OOM_RUNTIME_HOST = 1u << 0,     /* host memory: kernels, schedulers, the C and Python allocators */
	OOM_RUNTIME_CARD = 1u << 1,     /* PyTorch's sentence about a card with a memory of its own */
	OOM_RUNTIME_TORCH = 1u << 2,    /* PyTorch on any device */
	OOM_RUNTIME_WATERMARK = 1u << 3, /* a share of unified memory is the limit: MPS */
	OOM_RUNTIME_EXECUTABLE = 1u << 4, /* XLA: programs are named after their function */
	OOM_RUNTIME_GRAPH = 1u << 5,    /* TensorFlow: operations are named nodes */
	OOM_RUNTIME_SILENT = 1u << 6,   /* its message never says how much there was */
	OOM_RUNTIME_WORDY = 1u << 7,    /* the message goes on over lines that a page may break */
	OOM_RUNTIME_LAYERED = 1u << 8,  /* several layers report one refusal: ggml */
	OOM_RUNTIME_NOBODYS = 1u << 9,  /* words that any program prints: the text may show whose they are */
	OOM_RUNTIME_NO_TENSORS = 1u << 11, /* simulations, renderers: a statement of theirs makes no tensor, it runs a program */
	OOM_RUNTIME_LIBRARIES = 1u << 12, /* libraries take work space of their own, which its counters do not have: MIOpen */
	OOM_RUNTIME_EITHER_XLA = 1u << 10, /* a TPU's compiler: PyTorch/XLA's, or JAX's where the text shows that */
};
struct oom_runtime {
	const char *framework;
	unsigned traits;
	uint64_t one_buffer;    /* from this size on the driver may refuse one allocation, whatever is free; 0: never */
	uint64_t card_step;     /* cards hold a multiple of it, but for some MiB; 0: not known */
	struct oom_program as;  /* what it is called where no program shows */
};
/* Never NULL: of an unknown one nothing is known. */
const struct oom_runtime *oom_runtime_named(const char *framework);
static inline bool oom_runtime_is(const struct oom_crash *c, unsigned traits)
{
	return (oom_runtime_named(c->framework)->traits & traits) != 0;
}
static inline bool oom_format_is(const struct oom_crash *c, unsigned traits)
{
	return (oom_format_of(c)->traits & traits) != 0;
}

/* ---- what it was asked for ---- */

struct oom_part {
	const char *noun;       /* NULL: not known */
	enum oom_lever trains, runs;    /* the first thing to change in a training, and elsewhere; 0: none */
};
/* Never NULL. */
const struct oom_part *oom_part_of(const struct oom_crash *c);
/* Fills c->part; c->traceback is known. */
void oom_decode_part(struct oom_crash *c, const char *begin, const char *at, const char *end);

/* ---- causes that words give ---- */

enum oom_place {
	OOM_PLACE_ANY,          /* no word is asked for */
	OOM_PLACE_LINE,         /* the message's line */
	OOM_PLACE_ROUND,        /* the line, that before and that behind it */
	OOM_PLACE_NEXT,         /* the line and the one behind it */
	OOM_PLACE_NEAR,         /* 600 bytes before it, to the end of its line */
	OOM_PLACE_BEHIND,       /* from the message on */
	OOM_PLACE_TEXT,         /* the whole excerpt */
};
/* The first row that meets is the cause; with .more, the next one that does is another. */
struct oom_cause_rule {
	const char *format;     /* its beginning; NULL: any */
	unsigned runtime;       /* traits, any of them; 0: any */
	const char *word;
	enum oom_place where;
	enum oom_cause cause;
	double confidence;
	const char *evidence;
	bool more;
	bool pinned;            /* page-locked memory */
	bool unified;           /* one memory of the host's and the card's */
	unsigned wording;       /* of the format, any of these traits; 0: any */
};
/* Each ends with a NULL evidence. Of messages that name their cause; of those that leave it open, when no
 * number told. */
extern const struct oom_cause_rule oom_causes_named[], oom_causes_open[];

/* phase_log.c: the name of a script says what it is for, not how far it came: weights that are larger than the card were
 * never all there; who quantises has them all. The settings are known. */
void oom_phase_of_weights(struct oom_crash *c, const char *begin, const char *end);
/* cause_numbers.c: what PyTorch's numbers about a card, and about a Mac's memory, say. */
void oom_causes_of_card(struct oom_crash *c);
void oom_causes_of_watermark(struct oom_crash *c);
/* cause_growth.c: what grows from step to step. */
void oom_causes_of_growth(struct oom_crash *c, const char *begin, const char *at, const char *end);
/* Bytes of the card that are neither free nor this process's, as far as its numbers say; *listed: the message names
 * who holds them. */
uint64_t oom_card_outside(const struct oom_crash *c, bool *listed);
/* A request beyond any device: a size that was computed wrongly. */
bool oom_no_device_has(const struct oom_crash *c);
/* Adds a cause, ordered by confidence; one that is there already stays as it is. */
void oom_cause_say(struct oom_crash *c, enum oom_cause cause, double confidence, const char *evidence);

#endif
