/* CSV fields as RFC 4180 quotes them.  Lines end in LF, not CRLF: what Unix tools read, and what
 * our own reader and every spreadsheet accept. */
#ifndef OOM_CLI_CSVOUT_H
#define OOM_CLI_CSVOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Start with {.out = file}. */
struct oom_csv {
	FILE *out;
	bool filled;            /* the line has a field */
};

/* Quoted only where needed: comma, quote, line break, blanks at the ends. */
void oom_csv_text(struct oom_csv *c, const char *value);
void oom_csv_uint(struct oom_csv *c, uint64_t value);
/* A line of names, NULL-terminated. */
void oom_csv_head(struct oom_csv *c, const char *const *names);
void oom_csv_end(struct oom_csv *c);

#endif
