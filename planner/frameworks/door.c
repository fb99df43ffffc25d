/* Which door a file goes through, and text made UTF-8 before it does. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "doc.h"
#include "input/config_json.h"

/* UTF-16 of one byte order into UTF-8; returns the new size.  out holds 3 bytes a unit. */
static size_t from_utf16(unsigned char *out, const unsigned char *in, size_t size, bool big)
{
	size_t n = 0;

	for (size_t i = 0; i + 1 < size; i += 2) {
		uint32_t u = big ? (uint32_t)in[i] << 8 | in[i + 1] : (uint32_t)in[i + 1] << 8 | in[i];

		if (u >= 0xd800 && u < 0xdc00 && i + 3 < size) {
			const uint32_t low = big ? (uint32_t)in[i + 2] << 8 | in[i + 3] :
						   (uint32_t)in[i + 3] << 8 | in[i + 2];

			if (low >= 0xdc00 && low < 0xe000) {
				u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
				i += 2;
			}
		}
		if (u < 0x80) {
			out[n++] = (unsigned char)u;
		} else if (u < 0x800) {
			out[n++] = (unsigned char)(0xc0 | u >> 6);
			out[n++] = (unsigned char)(0x80 | (u & 63));
		} else if (u < 0x10000) {
			out[n++] = (unsigned char)(0xe0 | u >> 12);
			out[n++] = (unsigned char)(0x80 | (u >> 6 & 63));
			out[n++] = (unsigned char)(0x80 | (u & 63));
		} else {
			out[n++] = (unsigned char)(0xf0 | u >> 18);
			out[n++] = (unsigned char)(0x80 | (u >> 12 & 63));
			out[n++] = (unsigned char)(0x80 | (u >> 6 & 63));
			out[n++] = (unsigned char)(0x80 | (u & 63));
		}
	}
	return n;
}

/* Takes a byte order mark off; text may be replaced. */
static enum oom_status normalise(char **text, size_t *size, const char *file,
				 struct oom_error *err)
{
	unsigned char *t = (unsigned char *)*text, *out;
	const bool little = *size >= 2 && t[0] == 0xff && t[1] == 0xfe,
		   big = *size >= 2 && t[0] == 0xfe && t[1] == 0xff;

	if (*size >= 3 && !memcmp(t, "\xef\xbb\xbf", 3)) {
		memmove(t, t + 3, *size - 3 + 1);
		*size -= 3;
		return OOM_OK;
	}
	if (!little && !big)
		return OOM_OK;
	out = malloc(*size / 2 * 3 + 1);
	if (!out)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
	*size = from_utf16(out, t + 2, *size - 2, big);
	out[*size] = 0;
	free(*text);
	*text = (char *)out;
	return OOM_OK;
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* By the name, else by the first character that is not blank. */
static bool is_json(const char *path, const char *text)
{
	if (ends_with(path, ".json"))
		return true;
	if (ends_with(path, ".yaml") || ends_with(path, ".yml"))
		return false;
	while (isspace((unsigned char)*text))
		text++;
	return *text == '{' && (text[1] == '"' || isspace((unsigned char)text[1]));
}

enum oom_status doc_read(struct doc *doc, const char *path, struct oom_error *err)
{
	const char *file = strcmp(path, "-") ? path : "standard input";
	char *text = NULL;
	size_t size = 0;
	enum oom_status st = oom_read_text(&text, &size, path, DOC_MAX_BYTES, err);

	if (!st)
		st = normalise(&text, &size, file, err);
	if (!st)
		st = is_json(path, text) ? doc_read_json(doc, text, size, file, err) :
					   doc_read_yaml(doc, text, size, file, err);
	free(text);
	return st;
}
