/* Names of modules, and regular expressions over their paths, as training frameworks take them.
 *
 * A text without any of \ * ? | ( ) [ ] { } ^ $ is a list of names joined by +; any other one is a
 * regular expression as Python's re reads it (of back references and conditionals nothing, nor of
 * look-behind). */
#ifndef OOM_PATTERN_H
#define OOM_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "oomplan/status.h"

/* Whether the text is a regular expression rather than a list of names. */
bool oom_is_pattern(const char *text);
/* OOM_ERR_INVALID, with what is wrong and where, unless re.compile would take it. */
enum oom_status oom_pattern_check(const char *pattern, struct oom_error *err);
/* re.search and re.fullmatch.  A pattern that backtracks without end matches nothing. */
bool oom_pattern_search(const char *pattern, const char *text);
bool oom_pattern_matches(const char *pattern, const char *text);
/* Whether one of the names is the path or its end behind a dot: how PEFT reads target_modules, by a
 * list or by one expression for the whole path. */
bool oom_targets_name(const char *targets, const char *path);
/* Whether one of the names, or the expression, is found anywhere in the path, as re.search finds it;
 * only that a name's number is a whole one. */
bool oom_names_touch(const char *names, const char *path);
/* Whether the text speaks of layers by number, so that equal layers may fare differently. */
bool oom_names_count(const char *names);

#endif
