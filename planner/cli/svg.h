/* A few SVG elements: text is escaped, numbers have one decimal, nothing else is needed to open
 * the file. */
#ifndef OOM_CLI_SVG_H
#define OOM_CLI_SVG_H

#include <stdio.h>

#include "oomplan/status.h"

/* The colour of words; they get a white seam, to be read across lines. */
#define OOM_SVG_INK "#222222"

enum oom_anchor { OOM_ANCHOR_START, OOM_ANCHOR_MIDDLE, OOM_ANCHOR_END };

/* title is what a reader is told by a screen reader or a tooltip. */
void oom_svg_begin(FILE *out, double width, double height, const char *title);
void oom_svg_end(FILE *out);
/* tip: shown when pointed at; or NULL. */
void oom_svg_rect(FILE *out, double x, double y, double w, double h, const char *fill,
		  const char *tip);
/* dash: "4 3", or NULL for a plain line. */
void oom_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *stroke,
		  const char *dash);
void oom_svg_text(FILE *out, double x, double y, double size, enum oom_anchor anchor, const char *fill,
		  const char *fmt, ...) OOM_PRINTF(7, 8);
/* Words that run upwards and end at x, y: where a row of them has no room side by side. */
void oom_svg_text_up(FILE *out, double x, double y, double size, const char *fill, const char *fmt, ...)
	OOM_PRINTF(6, 7);

#endif
