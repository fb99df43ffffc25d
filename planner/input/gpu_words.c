/* Words for cards, out of the catalogue's names: the first part of a name that has a digit and does not say a size.
 *
 *   V100-SXM2-32GB  V100        RTX-2080-Ti  2080        TITAN-RTX  none
 *
 * A word that cards of both generations share ("6000": Quadro RTX 6000 and RTX 6000 Ada) is taken for the newer one's. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "embedded.h"
#include "gpu_words.h"

/* The catalogue's first columns, as its header names them. */
enum column { NAME, ALIASES, VENDOR, ARCHITECTURE, CAPABILITY, MEMORY, COLUMNS };

struct cell {
	const char *at, *end;
};

/* The first COLUMNS cells of a line; a quoted one loses its quotes. */
static void cells_of(const char *line, const char *end, struct cell out[COLUMNS])
{
	for (int i = 0; i < COLUMNS; i++) {
		const bool quoted = line < end && *line == '"';
		const char *stop = quoted ? memchr(line + 1, '"', (size_t)(end - line - 1)) : memchr(line, ',', (size_t)(end - line));

		stop = stop ? stop : end;
		out[i] = (struct cell){line + quoted, stop};
		line = stop + quoted < end ? stop + quoted : end;
		line += line < end && *line == ',';
	}
}

static struct cell part_with_digit(struct cell name)
{
	for (const char *p = name.at, *to; p < name.end; p = to + 1) {
		bool digit = false;

		for (to = p; to < name.end && isalnum((unsigned char)*to); to++)
			digit |= isdigit((unsigned char)*to) != 0;
		if (digit)
			return (struct cell){p, to};
	}
	return (struct cell){name.end, name.end};
}

static bool has_alias(struct cell list, const char *word)
{
	const size_t n = strlen(word);

	for (const char *p = list.at; p < list.end;) {
		const char *to = memchr(p, ';', (size_t)(list.end - p));

		to = to ? to : list.end;
		if ((size_t)(to - p) == n && !memcmp(p, word, n))
			return true;
		p = to + 1;
	}
	return false;
}

/* Of the cards of one word: their one size, or that they have several. */
enum { SEVERAL = 1 << 16 };

static void size_of(struct oom_gpu_word *w, struct cell name, struct cell after, unsigned gb)
{
	const bool ti = name.end - after.end >= 3 && !memcmp(after.end, "-Ti", 3);
	unsigned *const own = ti ? &w->gb_ti : &w->gb;

	/* who has a laptop's card says so */
	for (const char *p = name.at; name.end - p >= 6; p++)
		if (!memcmp(p, "Laptop", 6))
			return;
	*own = *own && *own != gb ? SEVERAL : gb;
}

size_t oom_gpu_words(struct oom_gpu_word out[OOM_GPU_WORDS])
{
	const struct oom_embedded *const f = oom_embedded_find("gpus.csv");
	const char *line = (const char *)f->bytes, *const end = line + f->size;
	size_t n = 0;

	for (const char *stop; line < end; line = stop + 1) {
		struct cell cell[COLUMNS], word;
		struct oom_gpu_word w = {.before_bf16 = true};
		double capability;
		size_t i = 0;

		stop = memchr(line, '\n', (size_t)(end - line));
		stop = stop ? stop : end;
		cells_of(line, stop, cell);
		word = part_with_digit(cell[NAME]);
		if (word.at == word.end || (size_t)(word.end - word.at) >= sizeof(w.word))
			continue;
		memcpy(w.word, word.at, (size_t)(word.end - word.at));
		/* other makers write no such number */
		capability = isdigit((unsigned char)*cell[CAPABILITY].at) ? strtod(cell[CAPABILITY].at, NULL) : 0;
		w.before_bf16 = capability > 0 && capability < 8;
		w.alone = isalpha((unsigned char)w.word[0]) || has_alias(cell[ALIASES], w.word);
		while (i < n && strcmp(out[i].word, w.word) != 0)
			i++;
		if (i == n && n < OOM_GPU_WORDS)
			out[n++] = w;
		else if (i < n) {
			out[i].before_bf16 &= w.before_bf16;
			out[i].alone |= w.alone;
		}
		if (i < n)
			size_of(&out[i], cell[NAME], word, (unsigned)strtoul(cell[MEMORY].at, NULL, 10));
	}
	for (size_t i = 0; i < n; i++) {
		out[i].gb = out[i].gb == SEVERAL ? 0 : out[i].gb;
		out[i].gb_ti = out[i].gb_ti == SEVERAL ? 0 : out[i].gb_ti;
	}
	return n;
}
