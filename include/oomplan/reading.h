/* What the files of training frameworks (axolotl's YAML, a DeepSpeed JSON, accelerate's YAML, ...) say in the
 * knobs of a plan.
 *
 * A reading has one entry for each key in the files, one for each default that a framework uses for an
 * absent key, and the knobs that follow.  Nothing is guessed silently: a key that affects memory and was not
 * understood is an entry of a kind of its own, with a sentence. */
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
	OOM_SETTING_USED,       /* a knob follows from it, or it says what the framework does anyway */
	OOM_SETTING_IDLE,       /* it has no effect on memory */
	OOM_SETTING_DEFAULT,    /* it is in no file: the framework's default */
	/* it is understood and affects memory, but no knob expresses it yet */
	OOM_SETTING_UNMODELLED,
	OOM_SETTING_UNREADABLE, /* the key is known but its value is not: a placeholder, another word */
	OOM_SETTING_UNKNOWN     /* the framework is not known to have such a key */
};

/* All texts belong to the reading.  They are never NULL, but may be "". */
struct oom_setting {
	const char *key;        /* as the file spells it, with levels joined by dots */
	const char *value;      /* as the file spells it */
	const char *knob;       /* "micro-batch"; several joined by blanks */
	const char *knob_value; /* of the first knob */
	const char *file;
	uint32_t line, column;  /* 1-based; 0: unknown */
	const char *source;     /* where the framework's code shows it */
	const char *note;       /* a sentence for the user */
	enum oom_setting_kind kind;
};

/* A knob as `oomplan list knobs` spells it, or one of model, objective, method, packing, base-bits and
 * eval-batch. */
struct oom_reading_knob {
	const char *name, *value;
	const struct oom_setting *from; /* the entry it follows from; NULL: from several */
	bool from_file;                 /* false: a default */
	bool open;                      /* a guess, because the files leave it open; see why */
	const char *why;                /* what is left open, or "" */
};

struct oom_reading;

/* Reads the files ("-": standard input) that together describe one run, and the files they refer to.
 * framework is a name of oom_framework_name(), or NULL: each file is then recognised by its keys.
 * OOM_ERR_IO; OOM_ERR_PARSE, with file:line:column; OOM_ERR_UNKNOWN: it is no framework's file;
 * OOM_ERR_LIMIT: too many files; OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_reading_new(struct oom_reading **out, const char *const *files,
					size_t n, const char *framework, struct oom_error *err);
/* The same for files and a command line, whose words are those that a shell passes on ("accelerate",
 * "launch", "train.py", "--bf16").  A single word with blanks is read as a line of shell.  n_words may be
 * 0.  It fails with the same statuses. */
OOM_API enum oom_status oom_reading_of_run(struct oom_reading **out, const char *const *files,
					   size_t n, const char *const *words, size_t n_words,
					   const char *framework, struct oom_error *err);
/* The same for a run whose libraries are known besides: versions, which may be NULL, is a plan whose transformers and
 * torch are OOM_VERSION, or 0 where the version is not known, and whose gpus and engine are the run's where no file says
 * them.  A default that is another in these versions is theirs.  It fails with the same statuses, and oom_reading_free()
 * frees what it hands out. */
OOM_API enum oom_status oom_reading_of_dated(struct oom_reading **out, const char *const *files,
					     size_t n, const char *const *words, size_t n_words,
					     const char *framework, const struct oom_plan *versions,
					     struct oom_error *err);
/* Frees the reading, which may be NULL. */
OOM_API void oom_reading_free(struct oom_reading *reading);

/* The i-th entry: the keys of the files in their order, then defaults.  NULL past the end. */
OOM_API const struct oom_setting *oom_reading_setting(const struct oom_reading *reading, size_t i);
/* The i-th knob; NULL past the end. */
OOM_API const struct oom_reading_knob *oom_reading_knob_at(const struct oom_reading *reading,
							   size_t i);
/* The value of a knob, or NULL. */
OOM_API const char *oom_reading_value(const struct oom_reading *reading, const char *knob);
/* The card that the files ask a cluster for, as oom_gpu_find() takes it; NULL: none. */
/* The text of a config.json that the files' own arguments amount to, where they name no model but describe one
 * (Megatron-LM).  Owned by the reading.  *why is what was taken for granted, or NULL.  NULL: they
 * do not, and *why says what is missing, or is NULL. */
OOM_API const char *oom_reading_config(const struct oom_reading *reading, const char **why);
OOM_API const char *oom_reading_card(const struct oom_reading *reading);
/* The i-th file that was read, and its framework; NULL past the end. */
OOM_API const char *oom_reading_file(const struct oom_reading *reading, size_t i,
				     const char **framework);

/* Sets the knobs that were read, and whether bf16 is meant only for cards that have it (precision_by_card).
 * tell is called, with data, with a sentence for everything that the price then leaves out: words that no
 * knob has, and keys that are not modelled, not readable or unknown. */
OOM_API void oom_reading_apply(const struct oom_reading *reading, struct oom_plan *plan,
			       void (*tell)(void *data, const char *text), void *data);

/* The file's key for a knob, such as "micro_batch_size", if one entry alone sets the knob and does so with
 * its own value; otherwise NULL. */
OOM_API const struct oom_setting *oom_reading_key_of(const struct oom_reading *reading,
						     const char *knob);

/* How a file would express another value of a knob. */
struct oom_key_change {
	const char *file, *key; /* file "": no file has the key yet */
	const char *was;        /* the file's present word, or "" */
	char word[200];         /* the word for the new value */
};
/* False if no key alone expresses the knob, or if the key has no word for the value. */
OOM_API bool oom_reading_change(const struct oom_reading *reading, const char *knob, const char *value,
				struct oom_key_change *out);

/* The framework that trains, of those whose files were read; NULL: launchers' and engines' files alone. */
OOM_API const char *oom_reading_framework(const struct oom_reading *reading);
/* The name of the i-th framework, and in *summary a sentence about it; NULL past the end. */
OOM_API const char *oom_framework_name(size_t i, const char **summary);
/* What struct oom_plan's framework is for the framework of this name; 0: there is none, or no name. */
OOM_API int64_t oom_framework_number(const char *name);

#ifdef __cplusplus
}
#endif

#endif
