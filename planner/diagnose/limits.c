/* Limits of the host's memory that a text shows with their values: what a pod, a container or a job was given. And whether
 * a server was told to decode speculatively. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* A key and its value behind it, within so many bytes: "limits:", then "memory: 500Mi". */
static const struct {
	const char *head;       /* stands before the key; NULL: none */
	const char *key;
	const char *called;
} keys[] = {
	{"limits", "memory", "resources.limits.memory"},
	{NULL, "mem_limit", "mem_limit"},
	{"docker run", "--memory", "--memory"},
	{"docker run", " -m", "-m"},
	{NULL, "--mem-per-cpu", "--mem-per-cpu"},
	{NULL, "--mem", "--mem"},
	{NULL, "MemoryMax", "MemoryMax"},
};
enum { REACH = 160 };

/* "500Mi", "16G", "8gb": digits and the letter of a unit; its length, 0 for none. */
static size_t quantity(const char *p, const char *end)
{
	size_t n = 0, digits;

	while (p + n < end && (isdigit((unsigned char)p[n]) || (n && p[n] == '.')))
		n++;
	digits = n;
	while (p + n < end && n < digits + 2 && isalpha((unsigned char)p[n]))
		n++;
	return digits && n > digits && strchr("kKmMgGtT", p[digits]) && !(p + n < end && isalnum((unsigned char)p[n])) ? n : 0;
}

static bool value_of(struct oom_crash *c, const char *p, const char *end, const char *called)
{
	size_t n;

	for (int i = 0; i < 5 && p < end && strchr(" =:\"'", *p); i++)
		p++;
	n = quantity(p, end);
	if (!n || n >= 16)
		return false;
	snprintf(c->memory_limit, sizeof(c->memory_limit), "%s %.*s", called, (int)n, p);
	return true;
}

void oom_decode_limit(struct oom_crash *c, const char *begin, const char *end)
{
	*c->memory_limit = 0;
	c->drafts = oom_text_find(begin, end, "--speculative") || oom_text_find(begin, end, "num_speculative_tokens") || oom_text_find(begin, end, "speculative_config={") || oom_text_find(begin, end, "--spec-");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, keys[i].key)); p++) {
			const char *const near = p - begin > REACH ? p - REACH : begin;
			const char *const head = keys[i].head ? oom_text_last(near, p, keys[i].head) : near;

			/* what is asked for ("requests:") is another number */
			if (head && !oom_text_find(head, p, "requests") && value_of(c, p + strlen(keys[i].key), end, keys[i].called))
				return;
		}
}
