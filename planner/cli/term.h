/* What standard output is: a terminal or not, how wide, whether it takes colour and Unicode.
 *
 * Nothing is asked of the system before the first question; answers are kept. */
#ifndef OOM_CLI_TERM_H
#define OOM_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "oomplan/choices.h"

#define OOM_COLOR_MODES(X) \
	X(OOM_COLOR_AUTO, "auto", "on a terminal, unless NO_COLOR is set") \
	X(OOM_COLOR_ALWAYS, "always", "in pipes and files too") \
	X(OOM_COLOR_NEVER, "never", "no colour")
enum oom_color_mode { OOM_COLOR_MODES(OOM_WORD_ID) };
enum oom_paint { OOM_PLAIN, OOM_GOOD, OOM_BAD, OOM_BOLD, OOM_DIM };

/* --color; before the first use. */
void oom_term_set_color(enum oom_color_mode mode);
bool oom_term_is_tty(void);
/* auto: a terminal that is not "dumb", and NO_COLOR unset or empty (no-color.org). */
bool oom_term_color(void);
/* LC_ALL, LC_CTYPE, LANG: the first that is set names UTF-8. */
bool oom_term_unicode(void);
/* Columns: COLUMNS, else what the terminal says, else 80; within 20..1000. */
int oom_term_width(void);

/* The sequence that starts a paint ("" without colour); OOM_PLAIN ends it. */
const char *oom_paint(enum oom_paint paint);

/* A bar of `part` of `whole` over `width` columns, in eighths of a column with Unicode, '#' else.
 * Writes the UTF-8 text into buf (3 * width + 1 bytes always suffice) and returns it; "" when whole
 * is 0. */
const char *oom_bar(uint64_t part, uint64_t whole, int width, bool unicode, char *buf, size_t size);

/* Puts '?' in the place of what could steer a terminal: control characters (C0, DEL, C1 as UTF-8 or
 * as single bytes) of names that come from logs, configurations, price lists. */
void oom_scrub(char *text);
/* A scrubbed copy, good until the eighth call from here; cut at 500 bytes. */
const char *oom_shown(const char *text);

/* Columns the text takes: combining marks 0, East Asian wide 2, control characters 0; a byte that
 * is no UTF-8 takes 1. */
size_t oom_display_width(const char *text);
/* Words of text broken at width; lines after the first begin with `indent` blanks.  `column` is
 * where the first line stands.  Ends with a newline, never with blanks. */
void oom_wrap(FILE *out, const char *text, int column, int indent, int width);

#endif
