/* One look at every option of a command, its own rows and the knobs alike: what help, the manual
 * page and the completion scripts print. */
#ifndef OOM_CLI_VIEW_H
#define OOM_CLI_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"

struct oom_view {
	const char *name, *summary;
	const char *metavar;            /* NULL: a flag */
	const char *setting, *source;   /* knobs: how a script sets it, where read */
	const struct oom_option *row;
	const struct oom_alias *alias;  /* the name is this one; NULL: the row's own */
	bool knob;                      /* the row is a knob's, not the command's own */
	bool foreign;                   /* nor a knob's: no knob stands for it */
	char letter;
	bool on;                        /* a flag that is set unless --no-NAME is given */
	enum oom_hint hint;
	char def[64];                   /* default in words; "" when there is none to tell */
	char range[64];                 /* "1 to 8"; "" when there is none */
	char as[80];                    /* of an alias: its summary */
};

/* The i-th option; false past the end. */
bool oom_view_at(const struct oom_option *own, bool knobs, size_t i, struct oom_view *v);
/* The i-th of its aliases, as an option of its own; false past the end. */
bool oom_view_alias(const struct oom_view *v, size_t i, struct oom_view *alias);
/* The i-th option of training scripts that no knob stands for; false past the end. */
bool oom_view_foreign(size_t i, struct oom_view *v);
/* "--one, --two" into buf, the aliases; "" where there are none. */
const char *oom_view_aliases(const struct oom_view *v, char *buf, size_t size);
/* The i-th legal word, NULL past the end or when any value is legal; *summary may be NULL. */
const char *oom_view_choice(const struct oom_view *v, size_t i, const char **summary);
/* "one, two, three" into buf; "" without choices. */
const char *oom_view_choices(const struct oom_view *v, char *buf, size_t size);

#endif
