/* Calls that undo what was asked for just before. */
#include <string.h>

#include "tables.h"

/* Where the call ends whose argument is at p, behind its bracket; NULL: not within `end`. */
static const char *call_end(const char *p, const char *end)
{
	int open = 1;

	for (; p < end && open; p++)
		open += (*p == '(') - (*p == ')');
	return open ? NULL : p;
}

/* "from_pretrained(..., device_map="auto").cuda()": accelerate has laid the layers over the cards, and the call lays all of
 * them on the first.  A map of one card, or of the host, is no such thing. */
static bool map_undone(const char *begin, const char *end)
{
	static const char *const maps[] = {"device_map=\"auto", "device_map='auto", "device_map=\"balanced", "device_map='balanced", "device_map=\"sequential", "device_map='sequential"},
				 *const moves[] = {".cuda()", ".to(\"cuda", ".to('cuda", ".to(device"};

	for (size_t m = 0; m < sizeof(maps) / sizeof(maps[0]); m++)
		for (const char *p = begin; (p = oom_text_find(p, end, maps[m])); p++) {
			const char *const stop = call_end(p, end - p > 300 ? p + 300 : end);

			for (size_t i = 0; stop && i < sizeof(moves) / sizeof(moves[0]); i++)
				if ((size_t)(end - stop) >= strlen(moves[i]) && !memcmp(stop, moves[i], strlen(moves[i])))
					return true;
		}
	return false;
}

/* sentence-transformers' encode(convert_to_tensor=True) keeps every vector on the card until all are there, convert_to_numpy,
 * its default, moves each batch's to the host (sentence_transformers/SentenceTransformer.py). */
static bool keeps_vectors(const char *begin, const char *end)
{
	return oom_text_find(begin, end, "convert_to_tensor=True") && oom_text_find(begin, end, "encode(");
}

void oom_decode_places(struct oom_crash *c, const char *begin, const char *end)
{
	c->map_undone = map_undone(begin, end);
	c->keeps_vectors = keeps_vectors(begin, end);
}
