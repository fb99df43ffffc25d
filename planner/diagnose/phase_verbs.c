/* What lines of a log say is going on: the verb they begin with. */
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
enum { WORD = 24 };

static bool upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || upper(c);
}

static const char *first_word(const char *p, const char *end)
{
	while (p < end && (letter(*p) || (*p >= '0' && *p <= '9') || *p == '_' || *p == '.'))
		p++;
	return p;
}

/* Present participles say what is going on, past ones that it is over. */
static const struct {
	const char *word; /* in lower case; its beginning */
	enum oom_crash_phase phase;
	bool over;
} verbs[] = {
	{"load", OOM_CRASH_LOAD, false},
	{"loading", OOM_CRASH_LOAD, false},
	{"loaded", OOM_CRASH_LOAD, true},
	{"downloading", OOM_CRASH_LOAD, false},
	{"downloaded", OOM_CRASH_LOAD, true},
	{"quantizing", OOM_CRASH_LOAD, false},
	{"dequantizing", OOM_CRASH_LOAD, false},
	{"offloading", OOM_CRASH_LOAD, false},
	{"offloaded", OOM_CRASH_LOAD, true},
	{"saving", OOM_CRASH_SAVE, false},
	{"saved", OOM_CRASH_SAVE, true},
	{"checkpointing", OOM_CRASH_SAVE, false},
	{"evaluating", OOM_CRASH_EVAL, false},
	{"validating", OOM_CRASH_EVAL, false},
	/* heads of counters: "Evaluation  [2750/5000]", "Test:  [ 10/313]", "Testing DataLoader 0:" */
	{"evaluation", OOM_CRASH_EVAL, false},
	{"validation", OOM_CRASH_EVAL, false},
	{"test", OOM_CRASH_EVAL, false},
	{"testing", OOM_CRASH_EVAL, false},
	{"val", OOM_CRASH_EVAL, false},
	{"inference", OOM_CRASH_INFERENCE, false},
	{"rendering", OOM_CRASH_INFERENCE, false},
	{"upscaling", OOM_CRASH_INFERENCE, false},
	{"extracting", OOM_CRASH_INFERENCE, false},
	{"embedding", OOM_CRASH_INFERENCE, false},
	{"encoding", OOM_CRASH_INFERENCE, false},
	{"fetching", OOM_CRASH_LOAD, false},
	{"resuming", OOM_CRASH_LOAD, false},
	{"restoring", OOM_CRASH_LOAD, false},
	{"calibrating", OOM_CRASH_INFERENCE, false},
	{"initializing", OOM_CRASH_INIT, false},
	{"initialising", OOM_CRASH_INIT, false},
	{"initialized", OOM_CRASH_INIT, true},
	{"capturing", OOM_CRASH_INIT, false},
	{"capture", OOM_CRASH_INIT, false},
	{"captured", OOM_CRASH_INIT, true},
	{"warming", OOM_CRASH_INIT, false},
	{"profiling", OOM_CRASH_INIT, false},
	{"compiling", OOM_CRASH_COMPILE, false},
	{"compiled", OOM_CRASH_COMPILE, true},
	{"autotuning", OOM_CRASH_COMPILE, false},
	{"building", OOM_CRASH_COMPILE, false},
	{"generating", OOM_CRASH_INFERENCE, false},
	{"sampling", OOM_CRASH_INFERENCE, false},
	{"denoising", OOM_CRASH_INFERENCE, false},
	{"transcribing", OOM_CRASH_INFERENCE, false},
	{"decoding", OOM_CRASH_INFERENCE, false},
	{"inferencing", OOM_CRASH_INFERENCE, false},
	{"generate", OOM_CRASH_INFERENCE, false},
	{"predicting", OOM_CRASH_INFERENCE, false},
	{"prefilling", OOM_CRASH_INFERENCE, false},
	{"processing", OOM_CRASH_DATA, false},
	{"processed", OOM_CRASH_DATA, true},
	{"tokenizing", OOM_CRASH_DATA, false},
	{"tokenized", OOM_CRASH_DATA, true},
	{"preprocessing", OOM_CRASH_DATA, false},
	{"training", OOM_CRASH_TRAIN_STEP, false},
};

/* Behind what loggers put before a message: times, levels in brackets, "file.py:12]", "srv  load_model:". */
static const char *message_of(const char *line, const char *end)
{
	const char *p = line;

	for (const char *q = line; q < end && q - line < 160; q++)
		if ((*q == ']' || *q == ':') && q + 1 < end && q[1] == ' ')
			p = q + 1;
	while (p < end && !letter(*p) && *p != '"')
		p++;
	return p;
}

/* "Capture cuda graph end", "Graph capturing finished" */
static bool ended(const char *p, const char *end)
{
	static const char *const ends[] = {" end", " finished", " done", " complete"};
	const char *const stop = end - p > 60 ? p + 60 : end;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (oom_text_find(p, stop, ends[i]))
			return true;
	return false;
}

/* "gradient checkpointing", "activation checkpoints": what is recomputed, nothing that is written. */
static bool recomputes(const char *from, const char *at, const char *to)
{
	return (to - at > 11 && !memcmp(at + 8, "ing", 3)) || oom_text_find(from, at, "radient") || oom_text_find(from, at, "ctivation");
}

/* "Writing checkpoint", "Dumping checkpoint": what makes one. */
static bool writes_checkpoint(const char *word, const char *p, const char *end)
{
	static const char *const writes[] = {"writ", "dump", "sav", "stor", "export", "creat", "mak", "tak", "gather", "consolidat", "serializ", "flush", "upload", "push", "produc"};
	const size_t n = strlen(word);

	const char *const at = n < 5 || strcmp(word + n - 3, "ing") ? NULL : oom_text_find(p, end - p > 40 ? p + 40 : end, "heckpoint");

	if (!at || recomputes(p, at, end))
		return false;
	for (size_t i = 0; i < COUNT(writes); i++)
		if (!strncmp(word, writes[i], strlen(writes[i])))
			return true;
	return false;
}

/* "Attempting to resume", "going to load": what somebody sets out to do, as its participle. */
static void to_verb(char *word, const char **p, const char *end)
{
	static const char *const sets_out[] = {"attempting", "trying", "going", "about", "preparing", "starting", "beginning"};
	const char *from = *p;
	char stem[WORD];
	size_t n = 0;

	if (end - from < 6 || memcmp(from, " to ", 4))
		return;
	for (from += 4; from < end && letter(*from) && n + 1 < WORD; from++)
		stem[n++] = (char)(upper(*from) ? *from - 'A' + 'a' : *from);
	n -= n > 0 && stem[n - 1] == 'e';
	for (size_t i = 0; n > 2 && i < COUNT(sets_out); i++)
		for (size_t k = 0; !strcmp(word, sets_out[i]) && k < COUNT(verbs); k++)
			if (!verbs[k].over && !strncmp(verbs[k].word, stem, n) && !strcmp(verbs[k].word + n, "ing")) {
				strcpy(word, verbs[k].word);
				*p = from;
				return;
			}
}

enum oom_crash_phase oom_line_phase(const char *line, const char *end, bool *over)
{
	const char *const starts[] = {line, message_of(line, end)};
	char word[WORD];

	for (size_t k = 0; k < 2; k++) {
		const char *p = starts[k];
		size_t n = 0;

		while (p < end && !letter(*p) && p - starts[k] < 8)
			p++;
		for (; p < end && letter(*p) && n + 1 < WORD; p++)
			word[n++] = (char)(upper(*p) ? *p - 'A' + 'a' : *p);
		word[n] = 0;
		to_verb(word, &p, end);
		/* a word that goes on is an identifier */
		if (p < end && (*p == '_' || *p == '(' || *p == '='))
			continue;
		for (size_t i = 0; n && i < sizeof(verbs) / sizeof(verbs[0]); i++)
			if (!strcmp(word, verbs[i].word) && !(verbs[i].phase == OOM_CRASH_EVAL &&
							      oom_text_find(p, end - p > 8 ? p + 8 : end, "oss"))) {
				/* a logger that is named after it goes on: "llama_model_loader: loaded meta data"
				 */
				*over =
				    (verbs[i].over &&
				     !(k && oom_identifier_phase(line, first_word(line, end)) == verbs[i].phase)) ||
				    ended(p, end);
				/* an engine is built by a compiler, a model is made */
				return verbs[i].phase == OOM_CRASH_COMPILE && oom_text_find(p, end, " model")
					   ? OOM_CRASH_INIT
					   : verbs[i].phase;
			}
		if (writes_checkpoint(word, p, end)) {
			*over = ended(p, end);
			return OOM_CRASH_SAVE;
		}
	}
	return OOM_CRASH_UNKNOWN;
}
