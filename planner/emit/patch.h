/* Between the two halves of a patch: lines that change, and lines that are new.  Private to planner/emit. */
#ifndef OOM_EMIT_PATCH_H
#define OOM_EMIT_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/emit.h"
#include "oomplan/option.h"
#include "oomplan/reading.h"

struct emit_target;
struct fw_part;

enum { PATCH_LINES = 2 };

/* Line `line` of a file says key: was; it is to say `word`. */
struct patch_change {
	const char *file;
	uint32_t line;
	const char *key, *was;
	/* no change of that line: `word` is a whole line, put below it or above it */
	bool added, above;
	char word[1000];
	char name[80];          /* of the variable that holds the value, where the key only refers to it */
};

/* Where the key's value stands in the line: [*from, *to); false: it does not. */
bool patch_locate(const char *line, size_t n, const struct patch_change *c, size_t *from, size_t *to);
/* The file has the line that c names, with the value in it or a reference to a variable that holds it: c is of the line
 * where the value itself stands. */
bool patch_finds(struct patch_change *c);
/* Below a line of a command that goes on with an option, and does not end between one and its value, or within its list. */
bool patch_goes_on(const char *line, size_t n);
/* A YAML entry that stands whole on one line at the outermost level, and is no list's. */
bool patch_whole_entry(const char *line, size_t n);
/* A string, not a number or a word of the language: it stands in quotes where strings do. */
bool patch_is_text(const char *word);
/* The knob's new value on a line of its own, where the files say nothing of the knob yet, and below it what that key
 * needs besides: how many changes of out[PATCH_LINES] that is; 0: none of them has a key for it, or no place where
 * such a line can safely stand. */
size_t patch_add(const struct oom_reading *r, const char *knob, const char *value, struct patch_change *out);

/* The new word of a key that stands in the part's file; false: it does not, or its line is not plain. */
bool patch_fill_in(const struct oom_reading *r, const struct fw_part *p, const char *key, const char *word,
		   struct patch_change *out);
/* Is it an entry of this part?  A command and what launches it have one file. */
bool patch_is_of(const struct oom_reading *r, const struct fw_part *p, const struct oom_setting *s);
/* The line of a text, from 1 on, and its length; NULL: it has not so many. */
const char *patch_line(const char *text, uint32_t line, size_t *n);
/* The keys in which the format of one of the files says two plans differently: how many changes of out[room] lead from
 * one to the other; 0: none does, or not where lines can safely stand; SIZE_MAX: out of host memory.  A change without a
 * line is a command's.  *format: which one that is. */
size_t patch_keys(const struct oom_reading *r, const struct oom_plan *from, const struct oom_plan *to,
		  struct patch_change *out, size_t room, const struct emit_target **format);
/* Knobs that no key says on its own: together they may be several keys, or an export above a script's command.
 * *lines: how many changes of out[room] that is.  A knob that takes no part in it is named in *said as unsaid.  OOM_ERR_MEMORY. */
enum oom_status patch_together(const struct oom_reading *r, const struct oom_plan *from, const struct oom_plan *to,
			       const struct oom_option *const *knob, size_t n, struct patch_change *out, size_t room,
			       size_t *lines, struct oom_emitted *said);

#endif
