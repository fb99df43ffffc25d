/* A report for a person: on a terminal its lines are folded at words to the terminal's width. */
#ifndef OOM_CLI_PAGE_H
#define OOM_CLI_PAGE_H

#include <stdbool.h>
#include <stdio.h>

/* Standard output is a terminal, or COLUMNS says how wide a page is. */
bool oom_page_folds(void);

struct oom_page {
	FILE *text;                     /* what was printed so far; NULL: it went out as it was */
	int out;                        /* standard output meanwhile */
};
/* From here on what is printed is kept, where standard output is a terminal or COLUMNS says a width; else
 * nothing is done: pipes and files get whole lines. */
void oom_page_begin(struct oom_page *page);
/* Prints it, folded: what is left of a line stands under it, two columns further in. */
void oom_page_end(struct oom_page *page);

/* One line without its end, folded to so many columns.  Colours take none; commands stay whole. */
void oom_fold_line(FILE *out, const char *line, int width);

#endif
