/* The text of a log as it is read: without what a terminal, a box or a narrow page made of it. */
#include <string.h>

#include "parts.h"

/* How often a letter stands in English and in logs, roughly: 0 is rare. */
static const uint8_t often[256] = {
	[' '] = 9, ['e'] = 9, ['t'] = 8, ['a'] = 8, ['o'] = 8, ['i'] = 8, ['n'] = 8, ['r'] = 8, ['s'] = 8,
	['l'] = 7, ['m'] = 7, ['d'] = 7, ['c'] = 7, ['u'] = 6, ['p'] = 6, ['y'] = 5, ['g'] = 5, ['f'] = 5, ['h'] = 5,
	['_'] = 5, ['.'] = 5, ['/'] = 5, ['b'] = 4, ['v'] = 4, ['w'] = 4, ['k'] = 4, ['0'] = 6, ['1'] = 6, ['2'] = 5,
	[':'] = 4, ['-'] = 4, ['"'] = 4, ['('] = 4, [')'] = 4, ['\n'] = 5, ['='] = 3, [','] = 4, ['3'] = 4, ['4'] = 4,
	['5'] = 4, ['6'] = 4, ['7'] = 4, ['8'] = 4, ['9'] = 4, ['x'] = 3, ['B'] = 3, ['G'] = 3, ['M'] = 3, ['i' - 32] = 2};

/* memchr() looks for the letter of the needle that is met least: where the first one is a blank, every word of
 * the text would be compared. */
const char *oom_text_find(const char *begin, const char *end, const char *needle)
{
	const size_t n = strlen(needle);
	size_t k = 0;

	if (!begin || end - begin < (ptrdiff_t)n)
		return NULL;
	for (size_t i = 1; i < n; i++)
		if (often[(unsigned char)needle[i]] < often[(unsigned char)needle[k]])
			k = i;
	for (const char *p = begin + k, *const last = end - (n - k); p <= last; p++) {
		p = memchr(p, needle[k], (size_t)(last - p) + 1);
		if (!p)
			return NULL;
		if (!memcmp(p - k, needle, n))
			return p - k;
	}
	return NULL;
}

const char *oom_line_begin(const char *begin, const char *at)
{
	while (at > begin && at[-1] != '\n')
		at--;
	return at;
}

const char *oom_line_end(const char *at, const char *end)
{
	const char *stop = memchr(at, '\n', (size_t)(end - at));

	return stop ? stop : end;
}

/* Bytes of the escape sequence at p (ECMA-48, 5.4: CSI to its final byte; OSC to BEL or ST); one
 * that does not end is the ESC alone. */
static size_t escape(const char *p, const char *end)
{
	const char *q = p + 1;

	if (q < end && *q == '[') {
		for (q++; q < end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x40;)
			q++;
		return q < end && (unsigned char)*q < 0x7f ? (size_t)(q + 1 - p) : (size_t)(q - p);
	}
	if (q < end && *q == ']')
		for (q++; q < end && *q != '\n'; q++) {
			if (*q == '\a')
				return (size_t)(q + 1 - p);
			if (*q == '\033')
				return (size_t)(q - p) + (q + 1 < end && q[1] == '\\' ? 2 : 0);
		}
	return 1;
}

/* "\\n" and "\\\"" of a traceback that stands in a string of a JSON log. */
static size_t quoted(const char *p, const char *end, char *meant)
{
	if (end - p < 2 || *p != '\\' || (p[1] != 'n' && p[1] != '"'))
		return 0;
	*meant = p[1] == 'n' ? '\n' : '"';
	return 2;
}

/* PyTorch's sentence in small letters, as somebody typed it: the words that numbers are read by get their own again. */
static void capitals(char *text, char *end)
{
	static const char *const words[] = {"CUDA out of memory. Tried", "(GPU ", " GiB", " MiB", "PyTorch"};
	static const char *const small[] = {"cuda out of memory. tried", "(gpu ", " gib", " mib", "pytorch"};

	for (char *p = text; (p = (char *)(uintptr_t)oom_text_find(p, end, small[0]));) {
		char *const stop = (char *)(uintptr_t)oom_line_end(p, end);

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			for (char *q = p; (q = (char *)(uintptr_t)oom_text_find(q, stop, small[i])); q++)
				memcpy(q, words[i], strlen(words[i]));
		p = stop;
	}
}

size_t oom_text_clean(char *text, size_t size, size_t *at)
{
	const char *const end = text + size, *const mark = text + *at;
	const bool json = oom_text_find(text, end, "\\n  File \\\"") || oom_text_find(text, end, "\nFile \\\"") ||
			  oom_text_find(text, end, "\n  File \\\"");
	char *out = text;

	for (const char *p = text; p < end;) {
		const unsigned char c = (unsigned char)*p;
		char meant = 0;
		const size_t in_json = json ? quoted(p, end, &meant) : 0, n = in_json ? in_json : c == 033 ? escape(p, end) : 1;

		if (mark >= p && mark < p + n)
			*at = (size_t)(out - text);
		/* a bare return is a progress bar's new line */
		if (in_json)
			*out++ = meant;
		else if (c == '\r' && !(p + 1 < end && p[1] == '\n'))
			*out++ = '\n';
		else if (c >= 0x20 || c == '\n' || c == '\t')
			*out++ = *p;
		p += n;
	}
	*out = 0;
	capitals(text, out);
	return (size_t)(out - text);
}

/* U+2500..U+257F: the frames of Rich and of tables */
static bool box(const char *p, const char *end)
{
	return end - p >= 3 && (unsigned char)p[0] == 0xe2 &&
	       ((unsigned char)p[1] == 0x94 || (unsigned char)p[1] == 0x95);
}

/* What two lines begin with, to the last blank, colon or bracket in it: "[rank0]: ". */
static size_t common_prefix(const char *a, const char *a_end, const char *b, const char *end)
{
	size_t n = 0, words = 0;

	for (; a + n < a_end && b + n < end && a[n] == b[n] && a[n] != '\n'; n++)
		if (a[n] == ' ' || a[n] == ':' || a[n] == ']' || a[n] == '|')
			words = n + 1;
	return words;
}

static size_t flatten(const char *begin, const char *at, const char *end, char *out, size_t room, bool joint)
{
	const char *const line = oom_line_begin(begin, at);
	size_t n = 0;
	bool blank = false;

	for (const char *p = at; p < end && n + 1 < room;) {
		if (*p == '\n') {
			p++;
			p += common_prefix(line, at, p, end);
			blank |= joint;
		} else if (*p == ' ' || *p == '\t') {
			p++;
			blank = true;
		} else if (box(p, end)) {
			p += 3;
			blank = true;
		} else {
			if (blank && n && n + 2 < room)
				out[n++] = ' ';
			blank = false;
			out[n++] = *p++;
		}
	}
	out[n] = 0;
	return n;
}

size_t oom_text_flatten(const char *begin, const char *at, const char *end, char *out, size_t room)
{
	return flatten(begin, at, end, out, room, true);
}

size_t oom_text_flatten_tight(const char *begin, const char *at, const char *end, char *out, size_t room)
{
	return flatten(begin, at, end, out, room, false);
}
