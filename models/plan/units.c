/* Byte sizes to and from words. */
#include "oomplan/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static const struct {
	const char *word;
	double bytes;
} units[] = {
	{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0},
	{"GiB", 1073741824.0}, {"TiB", 1099511627776.0}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"Ki", 1024.0},
	{"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
};

enum oom_status oom_parse_bytes(const char *text, uint64_t *bytes, struct oom_error *err)
{
	char *end;
	const double v = strtod(text, &end);

	if (end != text && v >= 0) {
		while (*end == ' ')
			end++;
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			if (!strcasecmp(end, units[i].word) && v * units[i].bytes < 1e18) {
				*bytes = (uint64_t)llround(v * units[i].bytes);
				return OOM_OK;
			}
	}
	return oom_error_set(err, OOM_ERR_INVALID,
			     "\"%s\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB",
			     text);
}

const char *oom_format_bytes(uint64_t b, char *buf, size_t size)
{
	if (b >= (uint64_t)1 << 30)
		snprintf(buf, size, "%.2f GiB", (double)b / 1073741824.0);
	else if (b >= (uint64_t)1 << 20)
		snprintf(buf, size, "%.2f MiB", (double)b / 1048576.0);
	else if (b >= 1024)
		snprintf(buf, size, "%.2f KiB", (double)b / 1024.0);
	else
		snprintf(buf, size, "%llu B", (unsigned long long)b);
	return buf;
}

const char *oom_format_count(uint64_t n, char *buf, size_t size)
{
	if (n >= 1000000000)
		snprintf(buf, size, "%.2f B", (double)n / 1e9);
	else if (n >= 1000000)
		snprintf(buf, size, "%.1f M", (double)n / 1e6);
	else
		snprintf(buf, size, "%llu", (unsigned long long)n);
	return buf;
}
