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
	/* a task manager's figure: "my ram gets to 100%" */
	{"100%", false, &of_host}, {"100 %", false, &of_host},
	/* a kill writes over the line of a bar: "Killedg in batch 12" */
	{"\nKilled", false, &of_kill}, {"Killed", false, &of_kill},
	{"ompletely exhausted", false, &of_device}, {"emory is exhausted", false, &of_device}, {"RAM is exhausted", false, &of_host}, {"emory usage grows", false, &of_device},
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

/* RAM that is said to be full, in a text that says how it ended. */
static bool is_full(const char *begin, const char *p, const char *end)
{
	static const char *const names[] = {" ram ", " RAM ", "# ram", "# RAM", " Ram "}, *const ends[] = {"crash", "freez", "kill", "Kill", "hang", "close", "restart"};
	const char *const line = oom_line_begin(begin, p), *const from = p - line > 30 ? p - 30 : line;
	bool of_ram = false;

	for (size_t i = 0; i < COUNT(names); i++)
		of_ram |= oom_text_find(from, p, names[i]) != NULL;
	for (size_t i = 0; of_ram && i < COUNT(ends); i++)
		if (oom_text_find(begin, end, ends[i]))
			return true;
	return false;
}

/* A bar that a kill cut short: "77%|####Killed". */
static bool ends_bar(const char *begin, const char *p, const char *end)
{
	static const char word[] = "Killed", block[] = "\xe2\x96";
	const char *const line = oom_line_begin(begin, p);

	const char *after = p + strlen(word);

	/* in somebody's sentence: "the error message is "97%| 29/30 [00:35]Killed."" */
	while (after < end && strchr(".\"'`", *after))
		after++;
	if (p == line || (after < end && *after != '\n' && *after != '\r') || !oom_text_find(line, p, "%|"))
		return false;
	return p[-1] == '#' || p[-1] == ']' || p[-1] == ' ' || (p - line > 2 && !memcmp(p - 3, block, 2));
}

static const char *said_of(size_t row, const char *begin, const char *end)
{
	const size_t n = strlen(rows[row].word);

	for (const char *p = begin; (p = oom_text_find(p, end, rows[row].word)); p++) {
		if (rows[row].whole && ((p > begin && letter(p[-1])) || (p + n < end && letter(p[n]) && !(p[n] == '.' && (p + n + 1 == end || isspace((unsigned char)p[n + 1]))))))
			continue;
		if (rows[row].word[0] == '1') {
			if (is_full(begin, p, end))
				return p;
			continue;
		}
		if (rows[row].trigger == &of_kill ? (rows[row].word[0] == '\n' ? counts_on(p + n, end) : ends_bar(begin, p, end)) : !averted(begin, p, end))
			return p;
	}
	return NULL;
}

/* "The OOM was for CPU RAM": whose memory it was, on the message's line or one of the two behind it. Where both are
 * named, and one is said to be enough, the other is meant. */
bool oom_speaks_of_host(const char *begin, const char *at, const char *end)
{
	static const char *const host[] = {"CPU RAM", "CPU memory", "cpu memory", "system RAM", "ystem memory", "host RAM", "ost memory", "OOM (host)", "CPU OOM", "RAM OOM"},
				 *const spared[] = {"enough", "plenty", "sufficient", "normal", "not CPU", "no CPU"};
	static const char *const titles[] = {"CPU RAM", "RAM usage", "system RAM", "host RAM", "CPU memory", "RAM out of memory"}, *const cards[] = {"CUDA", "cuda", "GPU mem", "gpu mem", "VRAM usage"};
	const char *line = oom_line_begin(begin, at), *const first = oom_line_end(begin, end);
	bool of_card = false;

	/* a thread's title says whose memory it is about, where nothing else names the card's */
	for (size_t i = 0; i < COUNT(cards); i++)
		of_card |= oom_text_find(begin, end, cards[i]) != NULL;
	for (size_t i = 0; !of_card && i < COUNT(titles); i++)
		if (oom_text_find(begin, first, titles[i]))
			return true;
	for (int n = 0; n < 3 && line < end; n++) {
		const char *const stop = oom_line_end(line, end);

		for (size_t i = 0; i < COUNT(host); i++) {
			const char *const p = oom_text_find(line, stop, host[i]), *const from = p ? oom_sentence_begin(begin, p) : NULL, *const to = p ? oom_sentence_end(p, stop, 1) : NULL;
			bool fine = false;

			for (size_t k = 0; p && k < COUNT(spared); k++)
				fine |= oom_text_find(p - from > 60 ? p - 60 : from, to - p > 40 ? p + 40 : to, spared[k]) != NULL;
			if (p && !fine)
				return true;
		}
		line = stop < end ? stop + 1 : end;
	}
	return false;
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
