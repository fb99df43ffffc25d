/* What a shell script would run, as far as can be said without running it.
 *
 * Literal assignments, arrays, parameters with defaults, whole-number arithmetic and tests of these
 * are followed; a branch whose condition is not known is read as if it were taken, a loop is read
 * once with its first value, a function where it is defined.  Commands are never run: what they
 * print is unknown.  Everything is bounded: depth, words, and the text they make. */
#ifndef OOM_FRAMEWORKS_SHELL_H
#define OOM_FRAMEWORKS_SHELL_H

#include <stdbool.h>
#include <stddef.h>

#include "oomplan/status.h"

enum oom_shell_known {
	OOM_SHELL_KNOWN,
	OOM_SHELL_UNSET,        /* nothing but a parameter that nobody set: "$1"; empty in tests */
	OOM_SHELL_UNKNOWN       /* part of it is: the text has it as written, "$(date)" */
};
struct oom_shell_word {
	const char *text;
	enum oom_shell_known known;
	unsigned line;
};
/* A simple command: assignments in front as "NAME=value", then words. */
struct oom_shell_command {
	const struct oom_shell_word *words;
	size_t n_assignments, n;        /* n counts the assignments too */
	unsigned line;
};
/* A variable as the script leaves it. */
struct oom_shell_variable {
	const char *name;
	struct oom_shell_word value;    /* of an array: its words joined by blanks */
};
/* A file that the script writes from a here document or with echo. */
struct oom_shell_file {
	const char *name, *text;
	unsigned line;
};

struct oom_shell;

/* Reads a script of `size` bytes; OOM_ERR_PARSE (`name` and the line begin the text), OOM_ERR_LIMIT
 * or OOM_ERR_MEMORY.  oom_shell_free gives it back. */
enum oom_status oom_shell_read(const char *text, size_t size, const char *name,
			       struct oom_shell **shell, struct oom_error *err);
/* The same of a script that is called with words, "$1" and so on, until it shifts them. */
enum oom_status oom_shell_read_called(const char *text, size_t size, const char *name, const char *const *words,
				      size_t n_words, struct oom_shell **shell, struct oom_error *err);
void oom_shell_free(struct oom_shell *shell);

/* In the order of the script; NULL past the end. */
const struct oom_shell_command *oom_shell_command_at(const struct oom_shell *shell, size_t i);
const struct oom_shell_variable *oom_shell_variable_at(const struct oom_shell *shell, size_t i);
const struct oom_shell_file *oom_shell_file_at(const struct oom_shell *shell, size_t i);
/* Options of "#SBATCH --nodes=4" lines as words, "--nodes=4"; NULL past the end. */
const struct oom_shell_word *oom_shell_directive_at(const struct oom_shell *shell, size_t i);

#endif
