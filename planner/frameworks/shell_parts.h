/* What the parts of the shell reader share: memory, variables, words being made. */
#ifndef OOM_FRAMEWORKS_SHELL_PARTS_H
#define OOM_FRAMEWORKS_SHELL_PARTS_H

#include <stdint.h>

#include "shell.h"

enum {
	SHELL_TEXT_MAX = 4 << 20,       /* bytes of a script */
	SHELL_MEMORY_MAX = 64 << 20,    /* bytes that all words and files of it may take */
	SHELL_DEPTH_MAX = 40            /* blocks, quotes and parameters within each other */
};

struct words {
	struct oom_shell_word *items;
	size_t n, room;
};
struct variable {
	const char *name;
	struct words value;
	bool array;
};

struct oom_shell {
	struct chunk *memory;
	size_t used;
	const char *file;               /* for messages */
	struct oom_error *err;          /* while it reads */
	enum oom_status status;         /* the first failure ends everything */
	int depth;
	struct variable *variables;
	size_t n_variables, variables_room;
	struct oom_shell_variable *shown;       /* n_variables of them, once it was read */
	struct oom_shell_command *commands;
	size_t n_commands, commands_room;
	struct oom_shell_file *files;
	size_t n_files, files_room;
	struct words directives;
	size_t n_words;                 /* that it was called with; 0 once they were shifted */
};

/* Where a text is read. */
struct cursor {
	const char *p, *end;
	unsigned line;
	bool fixed;                     /* text made by the script: its lines are not counted */
};

/* What a command leaves behind for "&&", "||" and "if": 1, 0, or not known. */
enum { FAILS, SUCCEEDS, NOBODY_KNOWS = -1 };

struct heredoc {
	const char *end;
	bool expand;
	const char *to;                 /* the file its command writes; NULL: none */
	const char *name;               /* the variable its command reads; NULL: none */
	bool run;                       /* its command is a shell */
	bool read;                      /* whether its command is read at all */
};

struct script {
	struct oom_shell *sh;
	struct cursor c;
	struct heredoc heredocs[8];
	size_t n_heredocs;
};

/* A word being made: its text, whether it has begun, what it is made of. */
struct builder {
	struct words *out;
	char *text;
	size_t n, room;
	bool open, literal, unset, unknown;
	unsigned line;
};

/* shell_memory.c.  NULL once anything has failed. */
void *shell_alloc(struct oom_shell *sh, size_t size);
/* Room for one more of `size` bytes in an array. */
bool shell_grow(struct oom_shell *sh, void *array, size_t n, size_t *room, size_t size);
char *shell_copy(struct oom_shell *sh, const char *text, size_t n);
void shell_fail(struct oom_shell *sh, enum oom_status status, unsigned line, const char *text);
void shell_push(struct oom_shell *sh, struct words *w, struct oom_shell_word word);
/* "$1" and those behind it; none: they are nobody's from now on. */
void shell_set_words(struct oom_shell *sh, const char *const *words, size_t n);
struct variable *shell_variable(struct oom_shell *sh, const char *name, size_t n, bool make);

/* shell_words.c.  A word ends before a blank or an operator; false: there was none. */
bool shell_word(struct oom_shell *sh, struct cursor *c, struct words *out);
/* All of the text as between double quotes, one word. */
struct oom_shell_word shell_quoted(struct oom_shell *sh, const char *text, size_t n, unsigned line);
/* Length of a variable's name at p, 0: none. */
size_t shell_name(const char *p, const char *end);

/* Pieces of a word being made. */
void word_end(struct oom_shell *sh, struct builder *b);
void word_letter(struct oom_shell *sh, struct builder *b, char ch);
/* A value: whole between quotes, at its blanks into several words otherwise. */
void word_value(struct oom_shell *sh, struct builder *b, const struct oom_shell_word *w, bool quoted);
/* What cannot be said, as it is written. */
void word_unknown(struct oom_shell *sh, struct builder *b, const char *from, size_t n, enum oom_shell_known known);
/* shell_parameters.c: "$NAME", "${..}", "$(..)", "$1", "$@", "$#"; `..` */
void word_parameter(struct oom_shell *sh, struct builder *b, struct cursor *c, bool quoted);
void word_backquotes(struct oom_shell *sh, struct builder *b, struct cursor *c);

/* The end of what opens just before p, brackets within it counted, strings passed over; NULL: it
 * never closes. */
const char *shell_closing(const char *p, const char *end, char open, char close);

/* shell_tests.c: 1 true, 0 false, -1 not known */
int shell_test(const struct oom_shell_word *w, size_t n, int depth);
bool shell_matches(const char *pattern, const char *text);
/* Does a variable's name say which process or node of the job this is? */
bool shell_is_rank(const char *name, size_t n);
/* Whole-number arithmetic; false: a name, an overflow, or no arithmetic. */
bool shell_arithmetic(const char *text, int64_t *result);

/* shell_lines.c */
bool shell_at_end(const struct script *s);
void shell_newline(struct script *s);
/* Blanks and comments; with lines: line ends, too. */
void shell_blanks(struct script *s, bool lines);
/* Whether this reserved word stands here. */
bool shell_at_word(const struct script *s, const char *word);
void shell_add_file(struct oom_shell *sh, const char *name, const char *text, unsigned line);

/* shell_assign.c: NAME=, NAME+= or NAME[..]= at p: its length with the sign, 0 where it is none. */
size_t shell_assignment(const char *p, const char *end, size_t *name, bool *append);
bool shell_assign(struct script *s, struct words *words, bool live);
/* shell_simple.c: what the command at the cursor, or the test between [[ and ]], leaves behind. */
int shell_simple(struct script *s, bool live);
int shell_brackets(struct script *s);
/* Words with blanks between them. */
const char *shell_joined(struct oom_shell *sh, const struct oom_shell_word *w, size_t n);

/* shell.c: a text that the script itself runs. */
void shell_run_text(struct oom_shell *sh, const char *text, unsigned line);

#endif
