/* The line of a shell script that trains.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_LAUNCH_LINE_H
#define OOM_FRAMEWORKS_LAUNCH_LINE_H

#include "arguments.h"
#include "shell.h"

/* A command's words, its assignments in front; the caller's to free, NULL: out of memory.  A comment among continued
 * lines, or a blank behind a backslash, ends a command for the shell; options that stand alone behind it are what its
 * writer took for the rest of it.  *cut: where the shell stops, 0: nowhere. */
struct args_word *launch_words(const struct oom_shell *sh, size_t at, size_t *n, uint32_t *cut);
/* The launch line: what starts a program that trains, by its name, else any; of these the one with the most
 * options, of equals the first; else options that stand alone.  SIZE_MAX: there is none. */
size_t launch_line(const struct oom_shell *sh, struct oom_error *err, enum oom_status *st);
/* Other commands that train: names of options in which they differ from that one, as a map ARGS_OTHERS; false: full. */
bool launch_others(struct doc *doc, struct doc_node *root, const struct oom_shell *sh, size_t at);

#endif
