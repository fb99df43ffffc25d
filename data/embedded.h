/* Files of data/ carried inside the binary. */
#ifndef OOM_DATA_EMBEDDED_H
#define OOM_DATA_EMBEDDED_H

#include <stddef.h>

struct oom_embedded {
	const char *name;
	const unsigned char *bytes;
	size_t size;
};

/* The file of that name, or NULL. */
const struct oom_embedded *oom_embedded_find(const char *name);

#endif
