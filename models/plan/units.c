/* Numbers and byte sizes to and from words. */
#include "oomplan/units.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"

/* ---- locales ---- */

struct oom_locale oom_locale_enter(void)
{
	/* of this thread alone: setlocale would change every thread's */
	const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);

	return (struct oom_locale){plain, plain ? uselocale(plain) : NULL};
}

void oom_locale_leave(struct oom_locale l)
{
	if (!l.plain)
		return;
	uselocale((locale_t)l.before);
	freelocale((locale_t)l.plain);
}

double oom_strtod(const char *text, char **end)
{
	const struct oom_locale l = oom_locale_enter();
	const double v = strtod(text, end);

	oom_locale_leave(l);
	return v;
}

const char *oom_write_version(int64_t v, char *buf, size_t size)
{
	if (v)
		snprintf(buf, size, "%lld.%lld", (long long)v / 1000, (long long)v % 1000);
	else
		snprintf(buf, size, "newest");
	return buf;
}

const char *oom_write_real(double v, char *buf, size_t size)
{
	const struct oom_locale l = oom_locale_enter();

	for (int digits = 6; digits <= 17; digits++) {
		snprintf(buf, size, "%.*g", digits, v);
		if (strtod(buf, NULL) == v)     /* exact on purpose */
			break;
	}
	oom_locale_leave(l);
	return buf;
}

/* ---- counts ---- */

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Moves over k, M, G, Ki, Mi or Gi; what they stand for, or 1. */
static int64_t unit(const char **at)
{
	static const char letters[] = "kMG";
	const char *which = **at == 'K' ? letters : **at ? strchr(letters, **at) : NULL;
	int64_t each, v = 1;

	if (!which)
		return 1;
	each = (*at)[1] == 'i' ? 1024 : 1000;
	for (const char *l = letters; l <= which; l++)
		v *= each;
	*at += each == 1024 ? 2 : 1;
	return v;
}

/* "1e3", "0x10", " 4", "+4", "1.5M": no counts, but it is plain what they mean.  False: not. */
static bool meant(const char *text, int64_t *count)
{
	char *end;
	double v = oom_strtod(text, &end);
	const char *at = end;

	if (end == text)
		return false;
	v *= (double)unit(&at);
	at += strspn(at, " ");
	*count = fabs(v) < 9e18 ? (int64_t)v : 0;
	return !*at && *count && (double)*count == v;
}

enum oom_status oom_parse_count(const char *text, int64_t *count, struct oom_error *err)
{
	const char *at = text + (*text == '-');
	uint64_t n = 0;
	bool large = false;
	int64_t times, other;

	for (; digit(*at); at++)
		large |= __builtin_mul_overflow(n, 10, &n) ||
			 __builtin_add_overflow(n, (uint64_t)(*at - '0'), &n);
	if (!digit(*text) && !(*text == '-' && digit(text[1])))
		times = 0;
	else
		times = unit(&at);
	if (!times || *at) {
		if (meant(text, &other))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "\"%.60s\" is not a plain whole number; write %lld",
					     text, (long long)other);
		return oom_error_set(err, OOM_ERR_INVALID, "\"%.60s\" is not a whole number", text);
	}
	large |= __builtin_mul_overflow(n, (uint64_t)times, &n) || n > INT64_MAX;
	if (large)
		return oom_error_set(err, OOM_ERR_INVALID, "%.60s is too large", text);
	*count = *text == '-' ? -(int64_t)n : (int64_t)n;
	return OOM_OK;
}

/* ---- real numbers and sizes ---- */

/* The length of a real number at the start of the text, 0 where there is none. */
static size_t real_length(const char *text, bool exponent)
{
	const char *at = text + (*text == '-');
	size_t digits = 0;

	for (; digit(*at); at++)
		digits++;
	for (at += *at == '.'; digit(*at); at++)
		digits++;
	if (!digits)
		return 0;
	if (exponent && (*at == 'e' || *at == 'E')) {
		const char *power = at + 1 + (at[1] == '-' || at[1] == '+');

		if (digit(*power))
			for (at = power; digit(*at);)
				at++;
	}
	return (size_t)(at - text);
}

enum oom_status oom_parse_real(const char *text, double *real, struct oom_error *err)
{
	const size_t n = real_length(text, true);
	const double v = n && !text[n] ? oom_strtod(text, NULL) : NAN;

	if (!isfinite(v))
		return oom_error_set(err, OOM_ERR_INVALID, "\"%.60s\" is not a number", text);
	*real = v;
	return OOM_OK;
}

static const struct {
	const char *word;
	double bytes;
} units[] = {
	{"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0},
	{"GiB", 1073741824.0}, {"TiB", 1099511627776.0}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"Ki", 1024.0},
	{"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
};
static const double LEAST_BARE = 1048576, MOST = 1e18;

enum oom_status oom_parse_bytes(const char *text, uint64_t *bytes, struct oom_error *err)
{
	const size_t n = *text == '-' ? 0 : real_length(text, false);
	const double v = n ? oom_strtod(text, NULL) : 0;
	const char *at = text + n + strspn(text + n, " ");

	for (size_t i = 0; n && i < sizeof(units) / sizeof(units[0]); i++)
		if (oom_same_word(at, units[i].word) && v * units[i].bytes < MOST) {
			*bytes = (uint64_t)llround(v * units[i].bytes);
			return OOM_OK;
		}
	if (n && !*at && v >= LEAST_BARE && v < MOST) {
		*bytes = (uint64_t)llround(v);
		return OOM_OK;
	}
	/* nobody means so few bytes: cards are spoken of in GiB, nvidia-smi prints MiB */
	if (n && !*at && v > 0 && v < LEAST_BARE)
		return oom_error_set(err, OOM_ERR_INVALID, "%.60s bytes? write %.60s%s", text, text,
				     v < 2048 ? "GiB" : "MiB");
	return oom_error_set(err, OOM_ERR_INVALID,
			     "\"%.60s\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB",
			     text);
}

/* ---- for people ---- */

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
