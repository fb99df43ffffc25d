/* Arrays that grow by doubling. */
#ifndef OOM_ROOM_H
#define OOM_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Makes room for `need` elements of `size` bytes in *p, which has room for *cap; an empty array begins with
 * `first`.  False if memory is short: nothing has changed then. */
static inline bool oom_room(void **p, size_t *cap, size_t first, size_t need, size_t size)
{
	size_t want = *cap ? *cap : first;
	void *q;

	if (need <= *cap)
		return true;
	while (want < need)
		want *= 2;
	q = realloc(*p, want * size);
	if (!q)
		return false;
	*p = q;
	*cap = want;
	return true;
}

#endif
