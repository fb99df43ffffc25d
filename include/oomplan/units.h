/* Numbers and sizes as text.  Inside the library all sizes are bytes; GiB appears only in what people read.
 *
 * Options, axes, conditions and files have one grammar, and a locale with a decimal comma does not change
 * it:
 *   count   digits, after a minus sign if the range has negative numbers, and then k, M or G (1000, 10^6,
 *           10^9) or Ki, Mi or Gi (1024, 2^20, 2^30): 8, 8k, 8Ki
 *   real    digits, optionally with a decimal point and an exponent: 0.02, 5e-2
 *   size    a real without an exponent, and a unit: 24GiB, 23.65 GB; bytes from 2^20 on need no unit
 * Blanks around them, plus signs, hexadecimal digits, inf and nan are refused. */
#ifndef OOMPLAN_UNITS_H
#define OOMPLAN_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a count.  OOM_ERR_INVALID: it is not a count (the text suggests what was probably meant), or it does
 * not fit an int64_t. */
OOM_API enum oom_status oom_parse_count(const char *text, int64_t *count, struct oom_error *err);
/* Reads a real.  OOM_ERR_INVALID: it is not one. */
OOM_API enum oom_status oom_parse_real(const char *text, double *real, struct oom_error *err);
/* Reads a size: "23.65GiB", "24GB" (10^9 bytes each), "80000MiB"; there may be blanks before the unit.
 * OOM_ERR_INVALID: it is not a size. */
OOM_API enum oom_status oom_parse_bytes(const char *text, uint64_t *bytes, struct oom_error *err);

/* Between these two calls the calling thread reads and writes numbers as in the C locale, whatever the
 * program's locale is.  Other threads are not affected.  If memory is short, nothing changes. */
struct oom_locale {
	void *plain, *before;
};
OOM_API struct oom_locale oom_locale_enter(void);
OOM_API void oom_locale_leave(struct oom_locale locale);
/* strtod in the C locale. */
OOM_API double oom_strtod(const char *text, char **end);
/* Writes the shortest text that reads back as the same number, in the C locale.  Returns buf. */
OOM_API const char *oom_write_real(double real, char *buf, size_t size);
/* Writes OOM_VERSION(4, 45) as "4.45" and 0 as "newest".  Returns buf. */
OOM_API const char *oom_write_version(int64_t version, char *buf, size_t size);

/* Writes a size with two decimals and binary units: "23.65 GiB", "512 B", "8.13 MiB".  Returns buf. */
OOM_API const char *oom_format_bytes(uint64_t bytes, char *buf, size_t size);
/* Writes a count with decimal units: "8.03 B", "124.4 M".  Returns buf. */
OOM_API const char *oom_format_count(uint64_t n, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
