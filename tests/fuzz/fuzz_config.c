/* Any bytes as a config.json: a status, never a crash; what is accepted is sorted, distinct and
 * findable. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};

	if (oom_keys_parse(&keys, (const char *)data, size, "fuzz", &err)) {
		if (keys.arena || !err.text[0])
			abort();
		return 0;
	}
	for (size_t i = 0; i < keys.n; i++) {
		if (oom_keys_find(&keys, keys.items[i].path) != &keys.items[i])
			abort();
		if (i && strcmp(keys.items[i - 1].path, keys.items[i].path) >= 0)
			abort();
		if ((keys.items[i].type == OOM_KEY_STRING) != (keys.items[i].string != NULL))
			abort();
	}
	(void)oom_keys_kind_hint(&keys);
	oom_keys_release(&keys);
	return 0;
}
