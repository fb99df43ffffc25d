/* Any bytes as a memory snapshot: summed up, or refused with a reason; what is summed up adds
 * up. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "oomplan/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_error err = {{0}};
	struct oom_snapshot s;
	uint64_t sum = 0;

	(void)oom_snapshot_is(data, size);
	if (oom_snapshot_parse(&s, data, size, "fuzz", &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	for (int h = 0; h < OOM_HELD_KINDS; h++)
		sum += s.held[h];
	if (sum != s.peak_bytes || s.n_frames > OOM_SNAPSHOT_FRAMES || s.peak_event > s.n_events)
		abort();
	return 0;
}
