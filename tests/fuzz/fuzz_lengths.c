/* Any bytes as a file of lengths: counted, or refused with a reason; what is counted is sorted and
 * adds up, and its report is made of numbers. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "lengths/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_error err = {{0}};
	struct oom_lengths l;
	struct oom_lengths_report r;
	uint64_t total = 0;
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

	if (!f)
		return 0;
	if (oom_lengths_from(&l, f, "fuzz", size % 3 ? NULL : "length", &err)) {
		if (!err.text[0])
			abort();
	} else {
		for (size_t i = 0; i < l.n; i++) {
			if (i && l.items[i - 1].tokens >= l.items[i].tokens)
				abort();
			total += l.items[i].count;
		}
		r = oom_lengths_report(&l, 1 + (double)(size % 64), 1 + (double)l.total);
		if (total != l.total || r.p50 > r.longest || !(r.mean_batch_tokens <= r.longest))
			abort();
		for (int i = 0; i < OOM_BATCHINGS; i++)
			if (!(r.batching[i].padding_share >= 0 && r.batching[i].padding_share <= 1))
				abort();
		oom_lengths_release(&l);
	}
	fclose(f);
	return 0;
}
