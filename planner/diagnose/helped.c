/* What the text itself says would do: "without --vllm_enable_sleep it runs", "if run with --no-load-optim, it is ok". An
 * option of the run's own that somebody tried with success is worth more than advice in general. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool any(const char *const *words, const char *from, const char *to)
{
	for (; *words; words++)
		if (oom_text_find(from, to, *words))
			return true;
	return false;
}

static bool of_option(char ch)
{
	return isalnum((unsigned char)ch) || ch == '_' || ch == '-';
}

/* "--name", n its length with the dashes; a batch and a length have answers of their own. */
static const char *option_in(const char *from, const char *to, size_t *n)
{
	for (const char *p = from; (p = oom_text_find(p, to, "--")); p++) {
		const char *end = p + 2;
		enum oom_told_about about;

		while (end < to && of_option(*end))
			end++;
		about = end - p > 6 ? oom_told_about_name(p + 2, (size_t)(end - p) - 2) : OOM_ABOUT_BATCH;
		if ((p == from || !of_option(p[-1])) && isalpha((unsigned char)p[2]) && (about == OOM_ABOUT_ELSE || about == OOM_ABOUTS) && end - p < 48) {
			*n = (size_t)(end - p);
			return p;
		}
	}
	return NULL;
}

/* Right behind the option, in the same breath. */
static bool runs(const char *from, const char *to)
{
	static const char *const well[] = {"it is ok", "it is OK", "it's ok", "it works", "it runs", "works fine", "runs fine", "no OOM", "no oom", "is fine",
					   "\xe6\xad\xa3\xe5\xb8\xb8" /* normally */, "\xe5\xb0\xb1\xe4\xb8\x8d\xe4\xbc\x9a" /* then it does not */, NULL},
				 *const not[] = {"still", "n't", " not ", "\xe4\xbb\x8d", "\xe8\xbf\x98\xe6\x98\xaf", NULL};

	return any(well, from, to) && !any(not, from, to);
}

void oom_decode_helped(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const without[] = {"ithout ", "emoving ", "emove ", "emoved ", "isabling ", "isable ", "\xe5\x8e\xbb\xe6\x8e\x89" /* left out */, "\xe5\x85\xb3\xe6\x8e\x89", "\xe5\x85\xb3\xe9\x97\xad"},
				 *const with[] = {"with ", "adding ", "setting ", "\xe5\x8a\xa0\xe4\xb8\x8a" /* added */};

	*c->helped = 0;
	c->helped_without = false;
	for (size_t i = 0; i < COUNT(without) + COUNT(with); i++) {
		const bool out = i < COUNT(without);
		const char *const word = out ? without[i] : with[i - COUNT(without)];

		for (const char *p = begin; (p = oom_text_find(p, end, word)); p++) {
			/* as far as a line goes: a sentence ends at the point of a version, too */
			const char *const line = oom_line_end(p, end), *const near = line - p > 60 ? p + 60 : line, *at;
			size_t n;

			at = option_in(p, near, &n);
			/* "if it keeps --x it dies, left out it runs": the option stands before, in the same line */
			if (!at && out)
				at = option_in(oom_line_begin(begin, p), p, &n);
			if (!at || !runs(p, line - p > 120 ? p + 120 : line))
				continue;
			snprintf(c->helped, sizeof(c->helped), "%.*s", (int)n, at);
			c->helped_without = out;
			return;
		}
	}
}

void oom_fix_helped(const struct oom_crash *c, struct oom_crash_answer *a)
{
	char own[160];

	if (!*c->helped)
		return;
	snprintf(own, sizeof(own), c->helped_without ? "leave out %s: the text itself says that it runs without" : "%s: the text itself says that it runs with it", c->helped);
	oom_fix_add(a, "", own);
}
