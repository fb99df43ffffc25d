/* Between the two halves of a patch: lines that change, and lines that are new.  Private to planner/emit. */
#ifndef OOM_EMIT_PATCH_H
#define OOM_EMIT_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/reading.h"

enum { PATCH_LINES = 2 };

/* Line `line` of a file says key: was; it is to say `word`. */
struct patch_change {
	const char *file;
	uint32_t line;
	const char *key, *was;
	/* no change of that line: `word` is a whole line, put below it or above it */
	bool added, above;
	char word[240];
	char name[80];          /* of the variable that holds the value, where the key only refers to it */
};

/* Where the key's value stands in the line: [*from, *to); false: it does not. */
bool patch_locate(const char *line, size_t n, const struct patch_change *c, size_t *from, size_t *to);
/* A string, not a number or a word of the language: it stands in quotes where strings do. */
bool patch_is_text(const char *word);
/* The knob's new value on a line of its own, where the files say nothing of the knob yet, and below it what that key
 * needs besides: how many changes of out[PATCH_LINES] that is; 0: none of them has a key for it, or no place where
 * such a line can safely stand. */
size_t patch_add(const struct oom_reading *r, const char *knob, const char *value, struct patch_change *out);

#endif
