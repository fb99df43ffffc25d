/* Numbers and byte sizes to and from words.  Inside, everything is bytes; GiB exists only where
 * people read.
 *
 * The grammar is one for options, axes, conditions and files, and a locale with a decimal comma
 * changes nothing:
 *   count   digits, a minus sign before them where the range has one, and k, M, G (1000, 10^6,
 *           10^9) or Ki, Mi, Gi (1024, 2^20, 2^30) behind them: 8, 8k, 8Ki
 *   real    digits with a decimal point and an exponent if need be: 0.02, 5e-2
 *   size    a real without exponent and a unit: 24GiB, 23.65 GB; bytes from 2^20 on need none
 * No blanks around them, no plus sign, no hexadecimal, neither inf nor nan. */
#ifndef OOMPLAN_UNITS_H
#define OOMPLAN_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* OOM_ERR_INVALID: no count, with the number that was probably meant; or beyond int64_t. */
OOM_API enum oom_status oom_parse_count(const char *text, int64_t *count, struct oom_error *err);
/* OOM_ERR_INVALID: no real number. */
OOM_API enum oom_status oom_parse_real(const char *text, double *real, struct oom_error *err);
/* "23.65GiB", "24GB" (10^9), "80000MiB", blanks allowed before the unit.  OOM_ERR_INVALID else. */
OOM_API enum oom_status oom_parse_bytes(const char *text, uint64_t *bytes, struct oom_error *err);

/* Between the two the calling thread writes and reads numbers as in the C locale, whatever the
 * program's is; no other thread notices.  Where there is no memory for it nothing changes. */
struct oom_locale {
	void *plain, *before;
};
OOM_API struct oom_locale oom_locale_enter(void);
OOM_API void oom_locale_leave(struct oom_locale locale);
/* strtod as in the C locale. */
OOM_API double oom_strtod(const char *text, char **end);
/* The shortest text that reads back as the number, as in the C locale; returns buf. */
OOM_API const char *oom_write_real(double real, char *buf, size_t size);
/* OOM_VERSION(4, 45) as "4.45", 0 as "newest"; returns buf. */
OOM_API const char *oom_write_version(int64_t version, char *buf, size_t size);

/* "23.65 GiB", "512 B", "8.13 MiB": two decimals, binary units.  Returns buf. */
OOM_API const char *oom_format_bytes(uint64_t bytes, char *buf, size_t size);
/* "8.03 B", "124.4 M": counts in decimal. */
OOM_API const char *oom_format_count(uint64_t n, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
