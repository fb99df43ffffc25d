/* Limits of the host's memory that a text shows with their values: what a pod, a container or a job was given. And whether
 * a server was told to decode speculatively with a model that drafts, or is caught between two shares of its card. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* A key and its value behind it, within so many bytes: "limits:", then "memory: 500Mi". */
static const struct {
	const char *head;       /* stands before the key; NULL: none */
	const char *behind;     /* one of these follows the head, which is a key and no word of a sentence; NULL: anything */
	const char *key;
	const char *called;
} keys[] = {
	{"limits", ":.=\"'", "memory", "resources.limits.memory"},
	{NULL, NULL, "mem_limit", "mem_limit"},
	{"docker run", NULL, "--memory", "--memory"},
	{"docker run", NULL, " -m", "-m"},
	{NULL, NULL, "--mem-per-cpu", "--mem-per-cpu"},
	{NULL, NULL, "--mem", "--mem"},
	{NULL, NULL, "MemoryMax", "MemoryMax"},
	{NULL, NULL, "Memory Limit", "Memory Limit"},
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

	for (int i = 0; i < 5 && p < end && strchr(" =:\"'*", *p); i++)
		p++;
	n = quantity(p, end);
	if (!n || n >= 16)
		return false;
	snprintf(c->memory_limit, sizeof(c->memory_limit), "%s %.*s", called, (int)n, p);
	return true;
}

/* "I am using speculative decoding", unless it is said not to be. */
static bool says_so(const char *begin, const char *end)
{
	static const char *const word = "ing speculative decoding", *const denied[] = {"not ", "n't ", "ithout ", "isabl", "emov", "stop", "urn"};

	for (const char *p = begin; (p = oom_text_find(p, end, word)); p++) {
		const char *const from = oom_sentence_begin(p - begin > 20 ? p - 20 : begin, p);
		bool no = false;

		for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
			no |= oom_text_find(from, p, denied[i]) != NULL;
		if (!no)
			return true;
	}
	return false;
}

/* A draft that is looked up in the text has no weights (vllm/config/speculative.py "ngram", sglang server_args.py "NGRAM",
 * llama.cpp's --spec-type ngram-...). */
static bool drafts(const char *begin, const char *end)
{
	static const char *const told[] = {"--speculative", "num_speculative_tokens", "speculative_config={", "--spec-"},
				 *const looked_up[] = {"NGRAM", "\"ngram\"", "'ngram'", "[ngram]", "ngram-"};
	bool any = says_so(begin, end);

	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
		any |= oom_text_find(begin, end, told[i]) != NULL;
	for (size_t i = 0; any && i < sizeof(looked_up) / sizeof(looked_up[0]); i++)
		any = !oom_text_find(begin, end, looked_up[i]);
	return any;
}

/* What came of the first value stands before the second. */
static bool says_an_error(const char *from, const char *to)
{
	static const char *const words[] = {"ut of memory", "OOM", "utOfMemory", "ot enough", "o available", "cache", "rror", "fails", "crash"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(from, to, words[i]))
			return true;
	return false;
}

/* "Set to 0.85, it is out of memory; set to 0.84, it leaves nothing for the cache": two values of one share, two errors. */
static bool two_ways(const struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const refused[] = {"ut of memory", "OOM", "utOfMemory"};
	const char *last = NULL;
	bool full = false;
	double first = 0;

	if (!oom_format_is(c, OOM_FORMAT_BUDGET))
		return false;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		full |= oom_text_find(begin, end, refused[i]) != NULL;
	for (const char *p = begin; full && (p = oom_text_find(p, end, "0.")); p++) {
		const char *const from = oom_line_begin(begin, p), *const to = oom_line_end(p, end);
		const double v = p > begin && strchr(" =`", p[-1]) ? strtod(p, NULL) : 0;

		/* a share of the card: less than three tenths of it nobody gives a server */
		if (v < 0.3 || v >= 1 || !(oom_text_find(from, to, "fraction") || oom_text_find(from, to, "utilization")))
			continue;
		/* "0.9, 0.95 and 0.98 were tried" is one error of all */
		if (first > 0 && fabs(v - first) > 0.001 && says_an_error(last, p))
			return true;
		first = v;
		last = p;
	}
	return false;
}

void oom_decode_limit(struct oom_crash *c, const char *begin, const char *end)
{
	*c->memory_limit = 0;
	c->drafts = drafts(begin, end);
	c->two_ways = two_ways(c, begin, end);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, keys[i].key)); p++) {
			const char *const near = p - begin > REACH ? p - REACH : begin;
			const char *const head = keys[i].head ? oom_text_last(near, p, keys[i].head) : near;

			/* what is asked for ("requests:") is another number */
			if (head && keys[i].behind && !strchr(keys[i].behind, head[strlen(keys[i].head)]))
				continue;
			if (head && !oom_text_find(head, p, "requests") && value_of(c, p + strlen(keys[i].key), end, keys[i].called))
				return;
		}
}
