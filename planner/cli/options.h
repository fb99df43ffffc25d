/* The command line: arguments in, values out.
 *
 * A command's options are its own rows followed by every knob (oomplan/option.h), appended by the
 * engine: help, completion and the manual page walk the same rows.  Accepted forms: --name value,
 * --name=value, -x value, -xvalue, flags --flag and --no-flag, letters of flags joined (-qh); "--"
 * ends the options.  An option given twice keeps its last value, a list keeps them all.
 *
 * Where there are knobs, what training frameworks call them is accepted too, as their command lines
 * have it: switches may be followed by True or False, module names by more of them. */
#ifndef OOM_CLI_OPTIONS_H
#define OOM_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/option.h"
#include "oomplan/status.h"

enum { OOM_LIST_MAX = 64 };

/* Words in the order given.  They point into argv or are names of a row's choices. */
struct oom_list {
	const char *items[OOM_LIST_MAX];
	size_t n;
};

/* All a command line can set. */
struct oom_options {
	const struct oom_option *own;   /* ends with a NULL name; may be NULL */
	struct oom_plan *plan;          /* receives the knobs; NULL: the command has none */
	struct oom_list *words;         /* receives what is no option */
	const struct oom_option *stop;  /* parsing ends, successfully, at this row (--help) */
	/* receives names of options that have no effect on memory; or NULL */
	struct oom_list *idle;
	/* receives the names of the knobs that were set, the first OOM_LIST_MAX; or NULL */
	struct oom_list *knobs;
	/* is handed what has to be said about an option, "--bf16: ..."; or NULL */
	void (*tell)(const char *text);
};

/* Reads argc arguments (argv[0] is the first argument, not the program).  OOM_ERR_UNKNOWN: no such
 * option, with the nearest; OOM_ERR_INVALID: value missing, out of range, or no word of the list;
 * OOM_ERR_LIMIT: list full.  Options before the failing one have been stored. */
enum oom_status oom_options_parse(const struct oom_options *set, int argc, char *const *argv,
				  struct oom_error *err);

/* Is `word` one of a NULL-terminated list?  Its index, or -1; '-' and '_' alike. */
int oom_word_index(const char *word, const char *const *words);
/* OOM_ERR_INVALID with `what: "word" is none of: a, b (did you mean "a"?)`. */
enum oom_status oom_word_unknown(const char *what, const char *word, const char *const *words,
				 struct oom_error *err);

#endif
