/* Any bytes as a pickle: plain data or refused, never a crash of ours. */
#include <stddef.h>
#include <stdint.h>

#include "diagnose/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_pickle p = {0};

	if (!oom_pickle_parse(&p, data, size, NULL))
		oom_pickle_release(&p);
	return 0;
}
