/* The terminal, and text measured in its columns.  The locale is read from the environment and
 * never set: numbers must keep the C locale's decimal point, and loading a locale costs more than a
 * whole plan. */
#include "term.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { UNASKED = -1 };

static enum oom_color_mode color_mode;

void oom_term_set_color(enum oom_color_mode mode)
{
	color_mode = mode;
}

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

bool oom_term_is_tty(void)
{
	static int tty = UNASKED;

	if (tty == UNASKED)
		tty = isatty(STDOUT_FILENO) == 1;
	return tty;
}

bool oom_term_color(void)
{
	const char *term = env("TERM");

	if (color_mode != OOM_COLOR_AUTO)
		return color_mode == OOM_COLOR_ALWAYS;
	return oom_term_is_tty() && !env("NO_COLOR") && !(term && !strcmp(term, "dumb"));
}

bool oom_term_unicode(void)
{
	const char *name = env("LC_ALL");

	if (!name)
		name = env("LC_CTYPE");
	if (!name)
		name = env("LANG");
	for (; name && *name; name++)
		if (!strncasecmp(name, "UTF-8", 5) || !strncasecmp(name, "UTF8", 4))
			return true;
	return false;
}

int oom_term_width(void)
{
	static int width = UNASKED;
	const char *columns = env("COLUMNS");
	struct winsize size;
	char *end;
	long n = 0;

	if (width != UNASKED)
		return width;
	if (columns) {
		n = strtol(columns, &end, 10);
		n = *end ? 0 : n;
	}
	if (n <= 0 && oom_term_is_tty() && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		n = size.ws_col;
	if (n <= 0)
		n = 80;
	width = n < 20 ? 20 : n > 1000 ? 1000 : (int)n;
	return width;
}

const char *oom_paint(enum oom_paint paint)
{
	static const char *const codes[] = {"\033[0m", "\033[1;32m", "\033[1;31m", "\033[1m",
					    "\033[2m"};

	return oom_term_color() ? codes[paint] : "";
}

const char *oom_bar(uint64_t part, uint64_t whole, int width, bool unicode, char *buf, size_t size)
{
	/* U+2588 full block, U+258F..U+2589 one to seven eighths */
	static const char *const eighths[] = {"",       "\u258f", "\u258e", "\u258d",
					      "\u258c", "\u258b", "\u258a", "\u2589"};
	size_t used = 0;
	double cells;
	int n;

	buf[0] = 0;
	if (!whole || width <= 0)
		return buf;
	cells = (double)part / (double)whole;
	cells = (cells > 1 ? 1 : cells) * width;
	n = unicode ? (int)(cells * 8 + 0.5) : (int)(cells + 0.5) * 8;
	if (!n && part)
		n = unicode ? 1 : 8;    /* something is never shown as nothing */
	for (; n > 0 && used + 4 < size + 1; n -= 8) {
		const char *cell = !unicode ? "#" : n >= 8 ? "\u2588" : eighths[n];
		const size_t len = strlen(cell);

		if (used + len >= size)
			break;
		memcpy(buf + used, cell, len + 1);
		used += len;
	}
	return buf;
}

/* One character of UTF-8; malformed bytes count as themselves. */
static uint32_t decode(const unsigned char **p)
{
	const unsigned char *s = *p;
	const int n = *s < 0xc2 ? 0 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : *s < 0xf5 ? 3 : 0;
	uint32_t c = n ? *s & (0x3fu >> n) : *s;

	*p = s + 1;
	for (int i = 1; i <= n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return '?';
		c = c << 6 | (s[i] & 0x3f);
	}
	*p = s + 1 + n;
	return c;
}

void oom_scrub(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p;) {
		const unsigned char *next = p;
		const uint32_t c = decode(&next);

		if (c < 0x20 || (c >= 0x7f && c < 0xa0))
			memset(p, '?', (size_t)(next - p));
		p += next - p;
	}
}

const char *oom_shown(const char *text)
{
	static char buf[8][500];
	static int i;

	i = (i + 1) % 8;
	snprintf(buf[i], sizeof(buf[i]), "%s", text);
	oom_scrub(buf[i]);
	return buf[i];
}

/* Blocks of Unicode's EastAsianWidth.txt (W and F) and of combining marks, rounded to whole blocks:
 * names of cards and models are what is measured here, not literature. */
static size_t char_width(uint32_t c)
{
	static const struct {
		uint32_t first, last;
		size_t width;
	} blocks[] = {
		{0x0000, 0x001f, 0},   {0x007f, 0x007f, 0},   {0x0300, 0x036f, 0},
		{0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},   {0x20d0, 0x20ff, 0},
		{0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
		{0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
		{0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f900, 0x1f9ff, 2},
		{0x20000, 0x3fffd, 2},
	};

	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
		if (c >= blocks[i].first && c <= blocks[i].last)
			return blocks[i].width;
	return 1;
}

static size_t width_of(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + len;
	size_t width = 0;

	while (p < end)
		width += char_width(decode(&p));
	return width;
}

size_t oom_display_width(const char *text)
{
	return width_of(text, strlen(text));
}

void oom_wrap(FILE *out, const char *text, int column, int indent, int width)
{
	int col = column;
	bool first = true;

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		const size_t len = strcspn(text, " ");
		const int w = (int)width_of(text, len);

		if (!first && col + 1 + w > width) {
			fprintf(out, "\n%*s", indent, "");
			col = indent;
		} else if (!first) {
			putc(' ', out);
			col++;
		}
		fwrite(text, 1, len, out);
		col += w;
		text += len;
		first = false;
	}
	putc('\n', out);
}
