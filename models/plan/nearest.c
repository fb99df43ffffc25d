/* "Did you mean": the nearest word by edit distance. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"

enum { MAX = 64 };

/* Levenshtein distance, letters compared without case; words beyond MAX are cut. */
static int distance(const char *a, const char *b)
{
	int row[MAX + 1], n = (int)strnlen(a, MAX), m = (int)strnlen(b, MAX);

	for (int j = 0; j <= m; j++)
		row[j] = j;
	for (int i = 1; i <= n; i++) {
		int diag = row[0];

		row[0] = i;
		for (int j = 1; j <= m; j++) {
			const int same = tolower((unsigned char)a[i - 1]) ==
					 tolower((unsigned char)b[j - 1]);
			int best = diag + !same;

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diag = row[j];
			row[j] = best;
		}
	}
	return row[m];
}

/* "used_gib", "used_bytes": what stands before the first hyphen or underscore is the same. */
static bool same_beginning(const char *a, const char *b)
{
	const size_t n = strcspn(a, "-_");

	return a[n] && n == strcspn(b, "-_") && b[n] && !strncmp(a, b, n);
}

static const char *nearest(const char *word, const char *const *words, int best)
{
	const char *near = NULL;

	for (size_t i = 0; words[i]; i++) {
		int d = distance(word, words[i]);

		if (d > 1 && strlen(word) >= 3 && strstr(words[i], word))
			d = 1;
		if (d > 2 && same_beginning(word, words[i]))
			d = d > 4 ? d - 2 : 2;
		if (d < best) {
			best = d;
			near = words[i];
		}
	}
	return near;
}

const char *oom_nearest(const char *word, const char *const *words)
{
	/* farther than half the word is no suggestion */
	return nearest(word, words, (int)strnlen(word, MAX) / 2 + 2);
}

const char *oom_nearest_within(const char *word, const char *const *words, int most)
{
	return nearest(word, words, most + 1);
}

const char *oom_words_join(const char *const *words, char *buf, size_t size)
{
	static const char cut[] = ", ...";
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; words[i]; i++) {
		/* what follows must leave room to say that the list goes on */
		const size_t most = size - used - (words[i + 1] ? sizeof(cut) - 1 : 0);
		const int n = snprintf(buf + used, most, "%s%s", i ? ", " : "", words[i]);

		if (n < 0 || (size_t)n >= most) {
			memcpy(buf + used, cut, sizeof(cut));
			break;
		}
		used += (size_t)n;
	}
	return buf;
}
