/* Options: one row type for the knobs of a plan and for the other options of a command.
 *
 * The table of knobs is the only list of knobs.  Command-line options, --help, completion, the manual page,
 * sweep axes, CSV columns, runs files and the search's axes all come from it: a knob called "micro-batch"
 * is the option --micro-batch, the axis micro-batch and the column micro_batch. */
#ifndef OOMPLAN_OPTION_H
#define OOMPLAN_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/choices.h"
#include "oomplan/plan.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One word that a knob or an option accepts. */
struct oom_choice {
	const char *name;
	const char *summary;    /* for help; without a full stop */
	const char *setting;    /* what training frameworks write for it, joined by blanks */
	const char *source;     /* where the behaviour was read */
	enum oom_class cls;
};
/* The i-th word of a list; NULL past the end. */
typedef const struct oom_choice *oom_choice_fn(size_t i);

/* Defines such a function from a list of choices.h. */
#define OOM_CHOICE_ROW(id, word, summary, setting, source, cls) \
	{word, summary, setting, source, cls},
#define OOM_CHOICE_LIST(storage, name, list) \
	storage const struct oom_choice *name(size_t i) \
	{ \
		static const struct oom_choice rows[] = {list(OOM_CHOICE_ROW)}; \
\
		return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL; \
	}
/* Defines one from a command's list X(ENUM, "word", "sentence"). */
#define OOM_WORD_ROW(id, word, summary) {word, summary, "", "", OOM_EXACT},
#define OOM_WORD_LIST(storage, name, list) \
	storage const struct oom_choice *name(size_t i) \
	{ \
		static const struct oom_choice rows[] = {list(OOM_WORD_ROW)}; \
\
		return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL; \
	}

/* What a row reads.  The value of a command's option is stored in its `target`, that of a knob in its field
 * of the plan. */
enum oom_option_kind {
	OOM_OPTION_FLAG,        /* true or false; a bool, in a plan an int64_t */
	OOM_OPTION_CHOICE,      /* the index of a word; an int, in a plan an int64_t */
	OOM_OPTION_COUNT,       /* an int64_t within min..max: 8, 8k = 8000, 8Ki = 8192 */
	OOM_OPTION_REAL,        /* a double within min..max */
	OOM_OPTION_VERSION,     /* int64_t, OOM_VERSION(major, minor) within min..max; 0: newest */
	OOM_OPTION_SIZE,        /* struct oom_size: 24GiB */
	OOM_OPTION_TEXT,        /* const char *, not empty */
	OOM_OPTION_NAMES,       /* names joined by + or commas: char[OOM_NAMES_SIZE], joined by + */
	OOM_OPTION_LIST,        /* several words, of `choice` if there is one; commands only */
	/* Options of training scripts, which store nothing; without a metavar they are flags. */
	OOM_OPTION_IDLE,        /* has no effect on memory */
	OOM_OPTION_ABSENT       /* affects memory and is not modelled: refused unless it is off */
};

struct oom_size {
	uint64_t bytes;
	const char *text;       /* as the user wrote it */
};

/* The meaning of a framework's word. */
struct oom_alias_word {
	const char *word;
	const char *from;       /* applies only while the knob has this value; NULL: always */
	/* the knob's own word, then settings of other knobs, separated by blanks: "fsdp1 zero=3"; "" sets
	 * nothing */
	const char *to;
};
/* A framework's name for an option. */
struct oom_alias {
	const char *name;       /* NULL ends a list */
	bool flag;              /* true if no value follows */
	const struct oom_alias_word *words;     /* ends with a NULL word; NULL: the row's own words apply */
	const char *note;       /* what the user is told; NULL: nothing */
	/* an older name, or one that a command also has an option by: accepted with the option's own words
	 * and not listed in help */
	bool older;
};

/* What shell completion offers as a value. */
enum oom_hint { OOM_HINT_NONE, OOM_HINT_FILE, OOM_HINT_DIR, OOM_HINT_MODEL, OOM_HINT_GPU };

struct oom_option {
	const char *name;       /* words joined by '-'; NULL ends a table of a command */
	char letter;            /* 0: none */
	enum oom_option_kind kind;
	void *target;           /* of a command's option; NULL: the value is not stored */
	/* where the value is stored: for a knob within struct oom_plan, for a command's option within the
	 * struct that the command's options fill (the target is computed from it) */
	size_t offset;
	const char *metavar;    /* "N", "WORD", "NAMES"; NULL for flags */
	const char *summary;    /* a sentence for help, without capital letter and full stop */
	oom_choice_fn *choice;  /* CHOICE, LIST */
	double min, max;        /* COUNT, REAL: inclusive */
	double def;             /* the default of a knob: a number, or the index of a choice */
	const char *unset;      /* the default of a command's option in words; NULL: none */
	bool percent;           /* REAL: 5% is accepted for 0.05 */
	bool machine;           /* of a knob: `box` takes its value from the offered machine */
	bool automatic;         /* COUNT: the word "auto" is OOM_COUNT_AUTO */
	enum oom_hint hint;
	const struct oom_alias *aliases;        /* NULL: none */
	const struct oom_alias_word *also;      /* of a knob: words that set others with it; NULL: none */
	const char *note;       /* IDLE, ABSENT: what the user is told; NULL: the usual sentence */
	/* of a knob: its name in runs files, CSV and JSON; how a training script sets it (an argument of
	 * Hugging Face's, an environment variable); the source of both */
	const char *column, *setting, *source;
};

/* A value that was read from text. */
struct oom_value {
	int64_t whole;          /* FLAG, CHOICE, LIST (one word's index), COUNT, VERSION, SIZE (bytes) */
	double real;            /* REAL */
	const char *text;       /* TEXT, SIZE: the text itself */
	char names[OOM_NAMES_SIZE];     /* NAMES */
};
/* Reads `text` as the row's kind requires.  The text of OOM_ERR_INVALID begins with `shown`, the option as
 * the user wrote it, and names the range, or the allowed words and the nearest of them. */
OOM_API enum oom_status oom_option_read(const struct oom_option *option, const char *shown,
					const char *text, struct oom_value *value,
					struct oom_error *err);

/* The i-th knob, in the order of help; NULL past the end. */
OOM_API const struct oom_option *oom_knob_at(size_t i);
/* The knob of exactly this name, as our own tables spell it; NULL if there is none. */
OOM_API const struct oom_option *oom_knob_named(const char *name);
/* Finds a knob by name ('-' and '_' are the same), by column, or by an alias that has the knob's own words.
 * NULL if there is none. */
OOM_API const struct oom_option *oom_knob_find(const char *name);
/* The i-th option of training scripts that no knob stands for (IDLE or ABSENT); NULL past the end. */
OOM_API const struct oom_option *oom_foreign_at(size_t i);

/* True if the row has this name.  *alias becomes the alias that matched, or NULL for the row's own name. */
OOM_API bool oom_option_goes_by(const struct oom_option *option, const char *name,
				const struct oom_alias **alias);

/* Stores a value that was read for the knob in the plan. */
OOM_API void oom_plan_store(struct oom_plan *plan, const struct oom_option *knob,
			    const struct oom_value *value);
/* Sets one knob from text, as oom_option_read reads it.  On OOM_ERR_INVALID the plan is as it was. */
OOM_API enum oom_status oom_plan_set(struct oom_plan *plan, const struct oom_option *knob,
				     const char *text, struct oom_error *err);
/* The same through an alias, whose words may set other knobs as well.  An error's text begins with
 * `shown`. */
OOM_API enum oom_status oom_plan_set_as(struct oom_plan *plan, const struct oom_option *knob,
					const struct oom_alias *alias, const char *shown,
					const char *text, struct oom_error *err);
/* Writes the knob's value in the form that oom_plan_set reads.  Returns buf. */
OOM_API const char *oom_plan_get(const struct oom_plan *plan, const struct oom_option *knob,
				 char *buf, size_t size);
/* Would oom_plan_get write the knob's value alike for both? */
OOM_API bool oom_plan_alike(const struct oom_plan *a, const struct oom_plan *b, const struct oom_option *knob);
/* The integer field of a COUNT, CHOICE or FLAG knob. */
OOM_API int64_t *oom_plan_field(struct oom_plan *plan, const struct oom_option *knob);
/* Writes the knobs in which `to` differs from `from` as options, "--a=b --no-c", cut to size.  Returns
 * buf. */
OOM_API const char *oom_plan_options(const struct oom_plan *from, const struct oom_plan *to,
				     char *buf, size_t size);

/* The words for a class: "exact", "numerics", "placement" or "changes the science". */
OOM_API const char *oom_class_str(enum oom_class cls);

/* True if two words are the same, ignoring case and the difference between '-' and '_'. */
OOM_API bool oom_same_word(const char *a, const char *b);
/* The index of a word in the list, by its own name or otherwise by a framework's; -1 if there is none. */
OOM_API int oom_choice_find(oom_choice_fn *choice, const char *word);
/* The word of `words` (NULL-terminated) that is nearest to `word` by edit distance, or NULL if none is
 * near. */
OOM_API const char *oom_nearest(const char *word, const char *const *words);
/* The same, but NULL if it is more than `most` edits away. */
OOM_API const char *oom_nearest_within(const char *word, const char *const *words, int most);
/* Joins words (NULL-terminated) by commas in buf, of at least 8 bytes; a list that is too long ends in "...".
 * Returns buf. */
OOM_API const char *oom_words_join(const char *const *words, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
