/* Any bytes as a crash log: decoded or not, never a crash of ours. */
#include <stddef.h>
#include <stdint.h>

#include "oomplan/diagnose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_crash c;

	oom_crash_decode((const char *)data, size, &c);
	return 0;
}
