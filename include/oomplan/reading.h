/* What a training framework's own files say: axolotl's YAML, a DeepSpeed JSON, accelerate's
 * YAML, ... in the knobs of a plan.
 *
 * A reading holds one entry per key that stands in the files and one per default that a framework
 * takes for an absent key, and the knobs that follow.  Nothing is guessed in silence: a key that
 * bears on memory and was not understood is an entry of its own kind, with a sentence. */
#ifndef OOMPLAN_READING_H
#define OOMPLAN_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_setting_kind {
	OOM_SETTING_USED,       /* a knob follows from it, or it is what the framework does anyway */
	OOM_SETTING_IDLE,       /* no effect on memory */
	OOM_SETTING_DEFAULT,    /* in no file: what the framework takes */
	/* understood, bears on memory, and no knob says it yet */
	OOM_SETTING_UNMODELLED,
	OOM_SETTING_UNREADABLE, /* the key is known, its value is not: a placeholder, another word */
	OOM_SETTING_UNKNOWN     /* no such key of the framework is known */
};

/* All texts belong to the reading; "" where there is none, never NULL. */
struct oom_setting {
	const char *key;        /* as the file spells it, levels joined by dots */
	const char *value;      /* as the file spells it */
	const char *knob;       /* "micro-batch"; several joined by blanks */
	const char *knob_value; /* of the first knob */
	const char *file;
	uint32_t line, column;  /* 1-based; 0: unknown */
	const char *source;     /* where the framework's code says so */
	const char *note;       /* a sentence for the user */
	enum oom_setting_kind kind;
};

/* One knob, as `oomplan list knobs` spells it, or one of: model, objective, method, packing,
 * base-bits, eval-batch. */
struct oom_reading_knob {
	const char *name, *value;
	const struct oom_setting *from; /* the entry that decided; NULL: it follows from several */
	bool from_file;                 /* false: a default */
	bool open;                      /* a guess that the files leave open; `why` says what */
	const char *why;                /* "" where there is nothing to say */
};

struct oom_reading;

/* Reads files ("-": standard input) that together describe one run, and those they point to.
 * framework: a name of oom_framework_name(), or NULL: each file is recognised by its keys.
 * OOM_ERR_IO, OOM_ERR_PARSE (file:line:column), OOM_ERR_UNKNOWN: no framework's file,
 * OOM_ERR_LIMIT: too many files, OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_reading_new(struct oom_reading **out, const char *const *files,
					size_t n, const char *framework, struct oom_error *err);
/* The same of files and of a command line word by word as a shell hands it over ("accelerate", "launch",
 * "train.py", "--bf16"); one word with blanks in it is read as a line of a shell.  n_words 0: none. */
OOM_API enum oom_status oom_reading_of_run(struct oom_reading **out, const char *const *files,
					   size_t n, const char *const *words, size_t n_words,
					   const char *framework, struct oom_error *err);
/* Accepts NULL. */
OOM_API void oom_reading_free(struct oom_reading *reading);

/* NULL past the end: files' keys in their order, then defaults. */
OOM_API const struct oom_setting *oom_reading_setting(const struct oom_reading *reading, size_t i);
/* NULL past the end. */
OOM_API const struct oom_reading_knob *oom_reading_knob_at(const struct oom_reading *reading,
							   size_t i);
/* The value of a knob, or NULL. */
OOM_API const char *oom_reading_value(const struct oom_reading *reading, const char *knob);
/* The i-th file that was read and its framework; NULL past the end. */
OOM_API const char *oom_reading_file(const struct oom_reading *reading, size_t i,
				     const char **framework);

/* Sets the knobs that were read, and whether bf16 is meant where the card has it (precision_by_card).  `tell` (with `data`) is handed a sentence for all that the price
 * then leaves out: words no knob has yet, keys not modelled, not readable or unknown. */
OOM_API void oom_reading_apply(const struct oom_reading *reading, struct oom_plan *plan,
			       void (*tell)(void *data, const char *text), void *data);

/* A file's key for a knob, if one of its entries set it alone and as it stands: "micro_batch_size";
 * NULL: none. */
OOM_API const struct oom_setting *oom_reading_key_of(const struct oom_reading *reading,
						     const char *knob);

/* How a file says another value of a knob. */
struct oom_key_change {
	const char *file, *key; /* file "": the key stands in none yet */
	const char *was;        /* the file's word now; "": absent */
	char word[200];         /* the word for the new value */
};
/* False where no key says that knob alone, or has no word for the value. */
OOM_API bool oom_reading_change(const struct oom_reading *reading, const char *knob, const char *value,
				struct oom_key_change *out);

/* Names of frameworks; NULL past the end. */
OOM_API const char *oom_framework_name(size_t i, const char **summary);

#ifdef __cplusplus
}
#endif

#endif
