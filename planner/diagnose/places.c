/* Calls that undo what was asked for just before. */
#include <string.h>

#include "tables.h"

/* "from_pretrained(..., device_map="auto").cuda()": accelerate has laid the layers over the cards, and the call lays all of
 * them on the first. */
static bool map_undone(const char *begin, const char *end)
{
	static const char map[] = "device_map=";
	static const char *const moves[] = {").cuda()", ").to(\"cuda", ").to('cuda", ").to(device"};

	for (const char *p = begin; (p = oom_text_find(p, end, map)); p++) {
		const char *const stop = oom_text_find(p, end - p > 300 ? p + 300 : end, "\n\n"), *const to = stop ? stop : end - p > 300 ? p + 300 : end;

		for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
			const char *const q = oom_text_find(p, to, moves[i]);

			/* of the same statement */
			if (q && !oom_text_find(p, q, "= ") && !oom_text_find(p, q, "(\n"))
				return true;
		}
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
