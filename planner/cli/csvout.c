/* CSV fields as RFC 4180 quotes them. */
#include "csvout.h"

#include <inttypes.h>
#include <string.h>

static void separate(struct oom_csv *c)
{
	if (c->filled)
		putc(',', c->out);
	c->filled = true;
}

void oom_csv_text(struct oom_csv *c, const char *value)
{
	const size_t len = strlen(value);

	separate(c);
	if (!value[strcspn(value, ",\"\r\n")] &&
	    (!len || (value[0] != ' ' && value[len - 1] != ' '))) {
		fputs(value, c->out);
		return;
	}
	putc('"', c->out);
	for (; *value; value++) {
		if (*value == '"')
			putc('"', c->out);
		putc(*value, c->out);
	}
	putc('"', c->out);
}

void oom_csv_uint(struct oom_csv *c, uint64_t value)
{
	separate(c);
	fprintf(c->out, "%" PRIu64, value);
}

void oom_csv_head(struct oom_csv *c, const char *const *names)
{
	for (; *names; names++)
		oom_csv_text(c, *names);
	oom_csv_end(c);
}

void oom_csv_end(struct oom_csv *c)
{
	putc('\n', c->out);
	c->filled = false;
}
