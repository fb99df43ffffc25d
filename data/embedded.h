/* Files of data/ carried inside the binary. */
#ifndef OOM_DATA_EMBEDDED_H
#define OOM_DATA_EMBEDDED_H

#include <stddef.h>

/* A NUL follows the bytes; size does not count it. */
struct oom_embedded {
	const char *name;       /* without folders */
	const unsigned char *bytes;
	size_t size;
};

/* The file of that name, or NULL. */
const struct oom_embedded *oom_embedded_find(const char *name);
/* All of them; NULL past the end. */
const struct oom_embedded *oom_embedded_at(size_t i);

#endif
