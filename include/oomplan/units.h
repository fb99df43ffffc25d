/* Byte sizes in words.  Inside, everything is bytes; GiB exists only where people read. */
#ifndef OOMPLAN_UNITS_H
#define OOMPLAN_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "23.65GiB", "24GB" (10^9), "80000MiB", "1024" (bytes), spaces allowed before the unit.
 * OOM_ERR_INVALID else. */
OOM_API enum oom_status oom_parse_bytes(const char *text, uint64_t *bytes, struct oom_error *err);
/* "23.65 GiB", "512 B", "8.13 MiB": two decimals, binary units.  Returns buf. */
OOM_API const char *oom_format_bytes(uint64_t bytes, char *buf, size_t size);
/* "8.03 B", "124.4 M": counts in decimal. */
OOM_API const char *oom_format_count(uint64_t n, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
