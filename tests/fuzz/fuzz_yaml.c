/* Any bytes as a YAML file of settings: a bounded tree or a refusal with a place; whatever is read is
 * recognised or not, never a crash. */
#include "doors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return through(doc_read_yaml, data, size);
}
