/* The option engine: rows in, values out.
 *
 * A command's options are its own rows followed by every knob of the knob table (oomplan/plan.h),
 * appended by the engine: help, completion and the manual page walk the same rows.  Accepted forms:
 * --name value, --name=value, -x value, -xvalue, flags --flag and --no-flag, letters of flags
 * joined (-qh); "--" ends the options.  An option given twice keeps its last value, a list keeps
 * them all. */
#ifndef OOM_CLI_OPTIONS_H
#define OOM_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"
#include "oomplan/status.h"

enum { OOM_LIST_MAX = 64 };

/* Words in the order given.  They point into argv or into a row's choices. */
struct oom_list {
	const char *items[OOM_LIST_MAX];
	size_t n;
};

enum oom_option_kind {
	OOM_OPTION_FLAG,        /* bool */
	OOM_OPTION_TEXT,        /* const char * */
	OOM_OPTION_CHOICE,      /* int: index into choices */
	OOM_OPTION_COUNT,       /* int64_t within min..max; 2k = 2000, 2Ki = 2048 */
	OOM_OPTION_REAL,        /* double within min..max; 5% = 0.05 */
	OOM_OPTION_LIST,        /* struct oom_list; with choices, "a,b" is taken apart */
};

/* What a shell offers as a value. */
enum oom_hint { OOM_HINT_NONE, OOM_HINT_FILE, OOM_HINT_DIR, OOM_HINT_MODEL, OOM_HINT_GPU };

struct oom_option {
	const char *name;               /* words joined by '-'; NULL ends a table */
	char letter;                    /* 0: none */
	enum oom_option_kind kind;
	void *target;                   /* of the kind's type; NULL: nothing is stored */
	const char *metavar;            /* NULL for flags */
	const char *summary;            /* a sentence for help, without capital and full stop */
	const char *def;                /* default in words, for help; NULL: none to tell */
	const char *const *choices;     /* CHOICE, LIST: NULL-terminated */
	double min, max;                /* COUNT, REAL: inclusive */
	enum oom_hint hint;
};

/* All a command line can set. */
struct oom_options {
	const struct oom_option *own;   /* ends with a NULL name; may be NULL */
	struct oom_plan *plan;          /* receives the knobs; NULL: the command has none */
	struct oom_list *words;         /* receives what is no option */
	const struct oom_option *stop;  /* parsing ends, successfully, at this row (--help) */
};

/* Reads argc arguments (argv[0] is the first argument, not the program).  OOM_ERR_UNKNOWN: no such
 * option, with the nearest; OOM_ERR_INVALID: value missing, out of range, or no word of the list;
 * OOM_ERR_LIMIT: list full.  Options before the failing one have been stored. */
enum oom_status oom_options_parse(const struct oom_options *set, int argc, char *const *argv,
				  struct oom_error *err);

/* Is `word` one of a NULL-terminated list?  Its index, or -1; '-' and '_' alike. */
int oom_word_index(const char *word, const char *const *words);
/* "a, b, c" into buf, cut where it does not fit. */
const char *oom_words_join(const char *const *words, char *buf, size_t size);
/* OOM_ERR_INVALID with `what: "word" is none of: a, b (did you mean "a"?)`. */
enum oom_status oom_word_unknown(const char *what, const char *word, const char *const *words,
				 struct oom_error *err);

#endif
