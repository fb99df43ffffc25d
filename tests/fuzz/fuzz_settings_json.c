/* Any bytes as a JSON file of settings. */
#include "doors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return through(doc_read_json, data, size);
}
