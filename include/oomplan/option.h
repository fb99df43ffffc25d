/* Options: one row type for the knobs of a plan and for what a command takes besides.
 *
 * The table of knobs is the only list of them.  Command-line options, --help, completion, the man
 * page, sweep axes, CSV columns, runs files and the search's axes are all read from it: a knob
 * called "micro-batch" is the option --micro-batch, the axis micro-batch and the column
 * micro_batch. */
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

/* One legal word. */
struct oom_choice {
	const char *name;
	const char *summary;    /* for help; ends without a full stop */
	const char *setting;    /* what training frameworks write for it, joined by blanks */
	const char *source;     /* where the behaviour was read */
	enum oom_class cls;
};
/* The i-th word of a list; NULL past the end. */
typedef const struct oom_choice *oom_choice_fn(size_t i);

/* A function of that type from a list of choices.h. */
#define OOM_CHOICE_ROW(id, word, summary, setting, source, cls) \
	{word, summary, setting, source, cls},
#define OOM_CHOICE_LIST(storage, name, list) \
	storage const struct oom_choice *name(size_t i) \
	{ \
		static const struct oom_choice rows[] = {list(OOM_CHOICE_ROW)}; \
\
		return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL; \
	}
/* The same from a list X(ENUM, "word", "sentence") of a command. */
#define OOM_WORD_ROW(id, word, summary) {word, summary, "", "", OOM_EXACT},
#define OOM_WORD_LIST(storage, name, list) \
	storage const struct oom_choice *name(size_t i) \
	{ \
		static const struct oom_choice rows[] = {list(OOM_WORD_ROW)}; \
\
		return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL; \
	}

/* What a row reads and where it goes: into `target` of a command's option, into the field of the
 * plan of a knob. */
enum oom_option_kind {
	OOM_OPTION_FLAG,        /* true or false: bool; of a plan int64_t */
	OOM_OPTION_CHOICE,      /* the index of a word: int; of a plan int64_t */
	OOM_OPTION_COUNT,       /* int64_t within min..max: 8, 8k = 8000, 8Ki = 8192 */
	OOM_OPTION_REAL,        /* double within min..max */
	OOM_OPTION_VERSION,     /* int64_t, OOM_VERSION(major, minor) within min..max; 0: newest */
	OOM_OPTION_SIZE,        /* struct oom_size: 24GiB */
	OOM_OPTION_TEXT,        /* const char *, not empty */
	OOM_OPTION_NAMES,       /* names joined by + or commas: char[OOM_NAMES_SIZE], joined by + */
	OOM_OPTION_LIST,        /* words, or where there are choices several of them; of commands */
	/* of training scripts: a flag where there is no metavar; nothing is stored */
	OOM_OPTION_IDLE,        /* without effect on memory */
	OOM_OPTION_ABSENT       /* bears on memory and is not modelled: refused unless it is off */
};

struct oom_size {
	uint64_t bytes;
	const char *text;       /* as it was written */
};

/* What a framework's word means. */
struct oom_alias_word {
	const char *word;
	const char *from;       /* only while the knob has this value; NULL: whatever it has */
	/* the knob's own word, and settings of other knobs, divided by blanks: "fsdp1 zero=3"; "":
	 * nothing is set */
	const char *to;
};
/* What a framework calls an option. */
struct oom_alias {
	const char *name;       /* NULL ends a list */
	bool flag;              /* true where no value follows */
	const struct oom_alias_word *words;     /* ends with a NULL word; NULL: the row's own words */
	const char *note;       /* what is told to who writes it; NULL: nothing */
	/* an older name of a command's option that is a knob's today, or a name that a command has an
	 * option of its own by: taken with the option's own words, and not told to anybody */
	bool older;
};

/* What a shell offers as a value. */
enum oom_hint { OOM_HINT_NONE, OOM_HINT_FILE, OOM_HINT_DIR, OOM_HINT_MODEL, OOM_HINT_GPU };

struct oom_option {
	const char *name;       /* words joined by '-'; NULL ends a table of a command */
	char letter;            /* 0: none */
	enum oom_option_kind kind;
	void *target;           /* of a command's option; NULL: nothing is stored */
	/* of its value: of a knob in struct oom_plan; of a command's option in what the command's
	 * options fill, from which its target follows */
	size_t offset;
	const char *metavar;    /* "N", "WORD", "NAMES"; NULL for flags */
	const char *summary;    /* a sentence for help, without capital and full stop */
	oom_choice_fn *choice;  /* CHOICE, LIST */
	double min, max;        /* COUNT, REAL: inclusive */
	double def;             /* of a knob: the number, or the index of the choice */
	const char *unset;      /* of a command's option: the default in words; NULL: none to tell */
	bool percent;           /* REAL: 5% is 0.05 */
	bool machine;           /* of a knob: an offer of machines decides it */
	bool automatic;         /* COUNT: the word "auto" is OOM_COUNT_AUTO */
	enum oom_hint hint;
	const struct oom_alias *aliases;        /* NULL: none */
	const char *note;       /* IDLE, ABSENT: what is told to who writes it; NULL: the usual */
	/* of a knob: its name in runs files, CSV and JSON; how a training script sets it (HF
	 * argument, environment variable); where it was read */
	const char *column, *setting, *source;
};

/* What a text means for a row. */
struct oom_value {
	int64_t whole;          /* FLAG, CHOICE, LIST (one word's index), COUNT, VERSION, SIZE (bytes) */
	double real;            /* REAL */
	const char *text;       /* TEXT, SIZE: the text given */
	char names[OOM_NAMES_SIZE];     /* NAMES */
};
/* Reads `text` as the row's kind says.  OOM_ERR_INVALID begins with `shown`, the option as the user
 * wrote it, and names the range or the allowed words and the nearest one. */
OOM_API enum oom_status oom_option_read(const struct oom_option *option, const char *shown,
					const char *text, struct oom_value *value,
					struct oom_error *err);

/* The knob table, in the order of help; NULL past the end. */
OOM_API const struct oom_option *oom_knob_at(size_t i);
/* By name, '-' and '_' alike, by column or by an alias that has the knob's own words; NULL if there
 * is none. */
OOM_API const struct oom_option *oom_knob_find(const char *name);
/* Options of training scripts that no knob stands for, IDLE or ABSENT; NULL past the end. */
OOM_API const struct oom_option *oom_foreign_at(size_t i);

/* Whether the row goes by this name; *alias: by which alias, NULL where it is its own. */
OOM_API bool oom_option_goes_by(const struct oom_option *option, const char *name,
				const struct oom_alias **alias);

/* Puts a value that was read for the knob into the plan. */
OOM_API void oom_plan_store(struct oom_plan *plan, const struct oom_option *knob,
			    const struct oom_value *value);
/* Sets one knob from text, as oom_option_read reads it. */
OOM_API enum oom_status oom_plan_set(struct oom_plan *plan, const struct oom_option *knob,
				     const char *text, struct oom_error *err);
/* The same by an alias, whose words may set other knobs too.  `shown` begins a failure's text. */
OOM_API enum oom_status oom_plan_set_as(struct oom_plan *plan, const struct oom_option *knob,
					const struct oom_alias *alias, const char *shown,
					const char *text, struct oom_error *err);
/* Writes the knob's value as oom_plan_set would read it; returns buf. */
OOM_API const char *oom_plan_get(const struct oom_plan *plan, const struct oom_option *knob,
				 char *buf, size_t size);
/* The integer behind a COUNT, CHOICE or FLAG knob. */
OOM_API int64_t *oom_plan_field(struct oom_plan *plan, const struct oom_option *knob);
/* The knobs in which `to` differs from `from`, as options: "--a=b --no-c", cut to size; returns
 * buf. */
OOM_API const char *oom_plan_options(const struct oom_plan *from, const struct oom_plan *to,
				     char *buf, size_t size);

/* Words for a class: "exact", "numerics", "placement", "changes the science". */
OOM_API const char *oom_class_str(enum oom_class cls);

/* Whether two words are the same: '-' and '_' alike, without case. */
OOM_API bool oom_same_word(const char *a, const char *b);
/* The index of a word of the list, by its own name or else by a framework's; -1: none. */
OOM_API int oom_choice_find(oom_choice_fn *choice, const char *word);
/* The word of `words` (NULL-terminated) nearest to `word` by edit distance, or NULL when none is
 * near. */
OOM_API const char *oom_nearest(const char *word, const char *const *words);
/* The same, NULL when it is more than `most` edits away. */
OOM_API const char *oom_nearest_within(const char *word, const char *const *words, int most);

#ifdef __cplusplus
}
#endif

#endif
