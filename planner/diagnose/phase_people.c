/* Words and counts that people write around a message, where nothing else spoke: the weakest sign of what ran. */
#include <stdio.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
enum { WORD = 24 };

/* What is said of a program as a whole, or by people alone, beside what names of functions say (identifier.c). */
static const struct {
	const char *word; /* in lower case; its beginning */
	enum oom_crash_phase phase;
} spoken[] = {
	{"start", OOM_CRASH_INIT},
	{"launch", OOM_CRASH_INIT},
	{"boot", OOM_CRASH_INIT},
	{"merg", OOM_CRASH_LOAD},
	{"resum", OOM_CRASH_LOAD},
	{"restor", OOM_CRASH_LOAD},
	{"testing", OOM_CRASH_EVAL},
	{"tuning", OOM_CRASH_TRAIN_STEP},
	{"tunning", OOM_CRASH_TRAIN_STEP},
	{"fine-tun", OOM_CRASH_TRAIN_STEP},
	{"finetun", OOM_CRASH_TRAIN_STEP},
	{"pretrain", OOM_CRASH_TRAIN_STEP},
	{"requests", OOM_CRASH_INFERENCE},
	{"quantiz", OOM_CRASH_LOAD},
	{"embedding", OOM_CRASH_INFERENCE},
	{"indexing", OOM_CRASH_INFERENCE},
	{"encoding", OOM_CRASH_INFERENCE},
	{"rerank", OOM_CRASH_INFERENCE},
	{"synthes", OOM_CRASH_INFERENCE},
	{"preprocess", OOM_CRASH_DATA},
	/* things, not what is done with them */
	{"dataset", OOM_CRASH_UNKNOWN},
	{"dataloader", OOM_CRASH_UNKNOWN},
	{"collat", OOM_CRASH_UNKNOWN},
	{"attention", OOM_CRASH_UNKNOWN},
	{"logits", OOM_CRASH_UNKNOWN},
	{"loss", OOM_CRASH_UNKNOWN},
};

enum oom_crash_phase oom_phase_of_spoken(const char *p, const char *end)
{
	char word[WORD];
	size_t n = 0;

	for (const char *q = p; q < end && n + 1 < WORD; q++)
		word[n++] = (char)((*q >= 'A' && *q <= 'Z') ? *q - 'A' + 'a' : *q);
	word[n] = 0;
	for (size_t i = 0; i < COUNT(spoken); i++)
		if (!strncmp(word, spoken[i].word, strlen(spoken[i].word)))
			return spoken[i].phase;
	return oom_identifier_phase(p, end);
}

/* "training does not meet this question", "training is fine": it is named because it is not what failed. */
bool oom_phase_is_spared(const char *p, const char *end)
{
	static const char *const words[] = {"not meet", "n't meet", "not have this", "n't have this", "works", "is fine", "went fine", "was fine", "runs fine", "no problem", "is ok", "is OK", "without any", "without problem", "without issue",
					    "finished", "completed", "successful", "is normal", "was normal", "is good"};
	/* what stands behind these is something else that works */
	static const char *const turns[] = {" where ", " while ", " but ", " whereas ", " although "};
	const char *stop = oom_sentence_end(p, end - p > 70 ? p + 70 : end, 1);

	for (size_t i = 0; i < COUNT(turns); i++) {
		const char *const turn = oom_text_find(p, stop, turns[i]);

		stop = turn ? turn : stop;
	}
	for (size_t i = 0; i < COUNT(words); i++)
		if (oom_text_find(p, stop, words[i]))
			return true;
	return false;
}

/* Anywhere in the text, but for warnings: they speak of what may happen elsewhere. */
static bool by_words(struct oom_crash *c, const char *begin, const char *end)
{
	for (const struct oom_phase_rule *rule = oom_phase_of_prose; rule->word; rule++)
		for (const char *p = begin; (p = oom_text_find(p, end, rule->word)); p++) {
			const struct oom_phase_rule one[] = {*rule, {NULL, OOM_CRASH_UNKNOWN}};
			const char *const line = oom_line_begin(begin, p);

			if (!oom_text_find(line, p, "WARN") && !oom_text_find(line, p, "Warning") && !(rule->phase == OOM_CRASH_TRAIN_STEP && oom_phase_is_spared(p, end)))
				return oom_phase_by_word(c, one, p, end, 0.5);
		}
	return false;
}

/* "at iteration 4900", "after 4900 iterations": whoever counts them trains, unless the program is one that infers or
 * simulates. */
static bool by_count(struct oom_crash *c, const char *begin, const char *end)
{
	if (!oom_does_either(oom_program_of(c)->activity) || !oom_runtime_is(c, OOM_RUNTIME_TORCH | OOM_RUNTIME_GRAPH))
		return false;
	for (const char *p = begin; (p = oom_text_find(p, end, "teration")); p++) {
		const char *q = p + strlen("teration"), *before = p - (p > begin);

		q += q < end && *q == 's';
		while (q < end && strchr(" :#=[", *q) && *q)
			q++;
		while (before > begin && (before[-1] == ' ' || before[-1] == '-' || (before[-1] >= 'a' && before[-1] <= 'z' && before - begin > 2 && before[-2] != ' ')))
			before--;
		if ((q < end && *q >= '0' && *q <= '9') || (before > begin && before[-1] >= '0' && before[-1] <= '9'))
			return oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.5, "iterations are counted");
	}
	return false;
}

bool oom_phase_by_people(struct oom_crash *c, const char *begin, const char *end)
{
	return by_words(c, begin, end) || by_count(c, begin, end);
}

/* What somebody says of when it fails: where an epoch ends the data of the evaluation come, and then a checkpoint. */
bool oom_phase_ends_epoch(const char *begin, const char *end)
{
	static const char *const words[] = {"end of epoch", "end of the epoch", "end of each epoch", "end of every epoch", "end of an epoch", "end of the first epoch", "after the first epoch",
					    "after first epoch", "After the first epoch", "After first epoch", "after one epoch", "after 1 epoch", "between epochs", "epoch 0 to 1", "epoch 1 to 2", "each epoch ends", "epoch is finished", "epoch finishes"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(begin, end, words[i]))
			return true;
	return false;
}

/* "after training for ~120+ steps", "after about 300 iterations": a number of them, and that they are over. */
static bool counts_passed(const char *begin, const char *end)
{
	static const char *const what[] = {" steps", " iterations", " iters", " batches"};

	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, what[i])); p++) {
			const char *const line = oom_line_begin(begin, p), *number = p;

			while (number > line && (number[-1] == '+' || number[-1] == 'k' || number[-1] == 'K'))
				number--;
			if (number == line || number[-1] < '0' || number[-1] > '9')
				continue;
			while (number > line && number[-1] >= '0' && number[-1] <= '9')
				number--;
			if ((p - number > 1 || *number > '2') && oom_text_find(number - line > 30 ? number - 30 : line, number, "fter "))
				return true;
		}
	return false;
}

bool oom_people_stepped(const char *begin, const char *end)
{
	static const char *const many[] = {"a few ", "few ", "some ", "several ", "hundreds of ", "many "}, *const what[] = {"steps", "iterations", "batches", "epoch"};
	char words[32];

	for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		for (size_t k = 0; k < sizeof(what) / sizeof(what[0]); k++) {
			snprintf(words, sizeof(words), "%s%s", many[i], what[k]);
			if (oom_text_find(begin, end, words))
				return true;
		}
	return counts_passed(begin, end) || oom_text_find(begin, end, "third step") || oom_text_find(begin, end, "fter running for") || oom_text_find(begin, end, "fter several hours") || oom_text_find(begin, end, "fter a few hours");
}

bool oom_bar_above(const char *from, const char *at)
{
	const char *const line = oom_line_begin(from, at), *const above = line > from ? oom_line_begin(from, line - 1) : line;

	return oom_text_find(above, line, "it/s") || oom_text_find(above, line, "s/it");
}
