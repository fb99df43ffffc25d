/* Numbers with their units, and the words they stand before or behind.
 *
 * PyTorch prints two decimals with binary units, also where old versions label them MB and GB. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

static const struct {
	const char *name;
	double bytes;
} units[] = {{"bytes", 1},     {"byte", 1},	    {"Bytes", 1},	    {"KiB", 1024},
	     {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776}, {"kB", 1024},
	     {"KB", 1024},     {"MB", 1048576},	    {"GB", 1073741824},	    {"TB", 1099511627776},
	     {"K", 1024},      {"M", 1048576},	    {"G", 1073741824},	    {"T", 1099511627776},
	     {"B", 1}};

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Digits at p without their separators, into out; bytes read.  A comma before three digits and no
 * fourth stands between thousands, before one or two it is the decimal comma of a locale; any
 * other ends the number. */
static size_t digits_at(const char *p, const char *end, char *out, size_t size)
{
	size_t n = 0, used = 0;

	for (; p + n < end && used + 1 < size; n++) {
		size_t group = 0;

		if (digit(p[n]) || (p[n] == '.' && n)) {
			out[used++] = p[n];
			continue;
		}
		if (p[n] != ',' || !n)
			break;
		while (group < 4 && p + n + 1 + group < end && digit(p[n + 1 + group]))
			group++;
		if (group == 1 || group == 2)
			out[used++] = '.';
		else if (group != 3)
			break;
	}
	out[used] = 0;
	return n;
}

bool oom_number_at(const char *p, const char *end, bool bare, uint64_t *bytes, const char **after)
{
	char digits[40];
	const char *stop;
	size_t n;
	double v;

	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	/* who quotes it may set it in bold */
	if (end - p > 2 && p[0] == '*' && p[1] == '*')
		p += 2;
	n = digits_at(p, end, digits, sizeof(digits));
	if (!n)
		return false;
	v = strtod(digits, NULL);
	stop = p += n;
	if (p < end && *p == ' ')
		p++;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		const size_t u = strlen(units[i].name);

		if (end - p < (ptrdiff_t)u || memcmp(p, units[i].name, u) ||
		    (end - p > (ptrdiff_t)u && letter(p[u])))
			continue;
		v *= units[i].bytes;
		if (!(v >= 0 && v < 18446744073709549568.0))
			return false;
		*bytes = (uint64_t)(v + 0.5);
		*after = p + u;
		return true;
	}
	if (!bare || !(v < 18446744073709549568.0))
		return false;
	*bytes = (uint64_t)(v + 0.5);
	*after = stop[-1] == '.' ? stop - 1 : stop;     /* the end of the sentence */
	return true;
}

void oom_number_put(struct oom_crash *c, enum oom_crash_number k, uint64_t bytes, const char *from,
		const char *to)
{
	size_t n = 0;

	if (c->known[k])
		return;                         /* the first word counts */
	c->known[k] = true;
	c->bytes[k] = bytes;
	for (const char *p = from; p < to && n < sizeof(c->text[k]) - 1; p++)
		if (*p != '\n' && *p != '\r' && (n || *p != ' '))
			c->text[k][n++] = *p;
	c->text[k][n] = 0;
}

/* "word 1.00 GiB" */
const char *oom_number_follows(struct oom_crash *c, enum oom_crash_number k, const char *begin,
			   const char *end, const char *word, bool bare)
{
	const char *p = oom_text_find(begin, end, word), *after;
	uint64_t v;

	if (!p)
		return NULL;
	p += strlen(word);
	if (!oom_number_at(p, end, bare, &v, &after))
		return NULL;
	p = oom_text_find(p, after, "**") ? oom_text_find(p, after, "**") + 2 : p;
	oom_number_put(c, k, v, p, after);
	return after;
}

/* "1.00 GiB word": the number ends where word begins */
void oom_number_precedes(struct oom_crash *c, enum oom_crash_number k, const char *begin,
		     const char *end, const char *word)
{
	const char *w = oom_text_find(begin, end, word);

	if (!w)
		return;
	for (const char *p = w; p > begin && w - p < 24;) {
		const char *after;
		uint64_t v;

		p--;
		if (p > begin && (digit(p[-1]) || ((p[-1] == '.' || p[-1] == ',') &&
				     p - 1 > begin && digit(p[-2]))))
			continue;
		if (digit(*p) && oom_number_at(p, w, false, &v, &after) && after == w) {
			oom_number_put(c, k, v, p, after);
			return;
		}
	}
}

/* "(GPU 0;", "(GPU  0;", "GPU 0 has", "(NPU 2;", "device:GPU:0" */
void oom_gpu_index(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const words[] = {"(GPU ",	   "GPU ", "(NPU ",
					    "device:GPU:", "GPU:", "device ordinal ",
					    "on device "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && c->gpu_index < 0; i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *d = p + strlen(words[i]);

			d += d < end && *d == ' ';
			if (d < end && *d >= '0' && *d <= '9') {
				c->gpu_index = strtol(d, NULL, 10);
				break;
			}
		}
}
