/* Whether a knob stands in a list of names with blanks between them; NULL is no list. */
#ifndef OOM_TESTS_AMONG_H
#define OOM_TESTS_AMONG_H

#include <stdbool.h>
#include <string.h>

static inline bool among(const char *list, const char *knob)
{
	const size_t n = strlen(knob);

	for (const char *p = list; p && (p = strstr(p, knob)) != NULL; p += n)
		if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' '))
			return true;
	return false;
}

#endif
