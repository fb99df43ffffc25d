/* Where a text holds no message at all: what people call the end of a run, "OOM" as a word of its own, memory that "runs
 * out". Looked for only once nothing else was found: in a log that holds a message such words are about anything. */
#include <ctype.h>
#include <string.h>

#include "tables.h"
#include "read_parts.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct oom_trigger of_device = {.needle = "OOM", .framework = "device", .format = "out-of-memory", .strength = 1},
				of_host = {.needle = "OOM", .framework = "host", .format = "host-alloc", .strength = 1},
				of_kill = {.needle = "Killed", .framework = "host", .format = "bare-killed", .strength = 1};

static const struct {
	const char *word;
	bool whole;             /* no letter stands beside it */
	const struct oom_trigger *trigger;
} rows[] = {
	{"out of host memory", false, &of_host}, {"out of CPU memory", false, &of_host}, {"out of system memory", false, &of_host}, {"out of RAM", false, &of_host},
	{"OOM (host)", false, &of_host}, {"CPU OOM", false, &of_host}, {"RAM OOM", false, &of_host},
	{"OOM", true, &of_device}, {"oom", true, &of_device}, {"Oom", true, &of_device}, {"OOMs", true, &of_device}, {"OOMed", true, &of_device}, {"OOM'd", false, &of_device},
	{"out of VRAM", false, &of_device}, {"out of vram", false, &of_device}, {"out of Vram", false, &of_device}, {"runs out of memory", false, &of_device},
	{"running out of memory", false, &of_device}, {"run out of memory", false, &of_device},
	/* who watched it grow */
	{"emory leak", false, &of_device}, {"emory usage increas", false, &of_device}, {"emory usage keeps", false, &of_device}, {"emory keeps increas", false, &of_device}, {"emory keeps grow", false, &of_device},
	/* a kill writes over the line of a bar: "Killedg in batch 12" */
	{"\nKilled", false, &of_kill},
};

static bool letter(char ch)
{
	return isalnum((unsigned char)ch) || ch == '_' || ch == '-' || ch == '.' || ch == '/';
}

/* What might happen, or what something is against: "to avoid OOM", "if it goes OOM", "OOM-safe". */
static bool averted(const char *begin, const char *p, const char *end)
{
	static const char *const before[] = {"avoid", "Avoid", "prevent", "Prevent", "handle", "ould ", "may ", "might ", "can ", "If ", "if ", "risk", "potential", "o reduce", "rotect", "nless "},
				 *const after[] = {" killer", " kill", " protection", " score", " handl", " recovery", " risk", " error handl"};
	const char *const line = oom_line_begin(begin, p), *const from = p - line > 40 ? p - 40 : line;

	for (size_t i = 0; i < COUNT(before); i++)
		if (oom_text_find(from, p, before[i]))
			return true;
	while (p < end && isalpha((unsigned char)*p))
		p++;
	for (size_t i = 0; i < COUNT(after); i++)
		if ((size_t)(end - p) >= strlen(after[i]) && !memcmp(p, after[i], strlen(after[i])))
			return true;
	return false;
}

/* What is left of the bar's line: letters of the word it wrote over, and its counts. */
static bool counts_on(const char *p, const char *end)
{
	const char *const stop = oom_line_end(p, end);

	if (p == stop || !islower((unsigned char)*p))
		return false;
	while (p < stop && !isdigit((unsigned char)*p))
		p++;
	return p < stop;
}

static const char *said_of(size_t row, const char *begin, const char *end)
{
	const size_t n = strlen(rows[row].word);

	for (const char *p = begin; (p = oom_text_find(p, end, rows[row].word)); p++) {
		if (rows[row].whole && ((p > begin && letter(p[-1])) || (p + n < end && letter(p[n]) && !(p[n] == '.' && (p + n + 1 == end || isspace((unsigned char)p[n + 1]))))))
			continue;
		if (rows[row].trigger == &of_kill ? counts_on(p + n, end) : !averted(begin, p, end))
			return p;
	}
	return NULL;
}

const struct oom_trigger *oom_said(const char *begin, const char *end, const char **at)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		*at = said_of(i, begin, end);
		if (*at) {
			*at += **at == '\n';
			return rows[i].trigger;
		}
	}
	return NULL;
}
