/* The batch that a log prints or that people write of, and whether a batch of one was tried and failed as well: then no
 * smaller one is left, whatever the command says. */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* The sentence that p stands in, up to the end of the next: "I set the batch size to 1. It still fails." */
const char *oom_sentence_end(const char *p, const char *end, int n)
{
	for (; p < end && *p != '\n'; p++)
		if ((*p == '.' || *p == '!' || *p == '?' || *p == ';') && (p + 1 == end || isspace((unsigned char)p[1])) && !--n)
			break;
	return p;
}

const char *oom_sentence_begin(const char *begin, const char *p)
{
	while (p > begin && p[-1] != '\n' && !(isspace((unsigned char)p[-1]) && p - 1 > begin && strchr(".!?;", p[-2])))
		p--;
	return p;
}

static bool any(const char *const *words, const char *from, const char *to)
{
	for (; *words; words++)
		if (oom_text_find(from, to, *words))
			return true;
	return false;
}

/* The next word or number behind blanks and signs, in lower case; its end. */
static const char *next_word(const char *p, const char *stop, char *word, size_t size)
{
	size_t n = 0;

	while (p < stop && !isalnum((unsigned char)*p))
		p++;
	while (p < stop && isalnum((unsigned char)*p)) {
		if (n + 1 < size)
			word[n++] = (char)tolower((unsigned char)*p);
		p++;
	}
	word[n] = 0;
	return p;
}

/* "batch size from 8 to 4, 2 and even 1", "batch_size=1", "batch of one": only words that lead from the name to its
 * value, and other values, stand before it; a count of cards is none. */
static bool is_of_one(const char *p, const char *stop)
{
	static const char *const leads[] = {"size", "sizes", "batchsize", "of", "to", "is", "from", "even", "down", "at", "as", "low", "just", "only", "and", "or", "then",
					    "per", "gpu", "device", "set", "was", "equal", "equals"},
				 *const cards[] = {"gpu", "gpus", "card", "cards", "node", "nodes", "epoch", "epochs", "step", "steps", "x"};
	char word[16], after[16];

	for (int n = 0; n < 12; n++) {
		const bool fraction = p < stop && *p == '.';
		bool leading = false;

		/* "(config.py)" */
		if (stop - p > 2 && p[0] == ' ' && p[1] == '(' && memchr(p, ')', (size_t)(stop - p)))
			p = memchr(p, ')', (size_t)(stop - p));

		p = next_word(p, stop, word, sizeof(word));
		if (!*word || fraction)
			return false;
		if (!strcmp(word, "1") || !strcmp(word, "one")) {
			next_word(p, stop, after, sizeof(after));
			for (size_t i = 0; i < COUNT(cards); i++)
				if (!strcmp(after, cards[i]))
					return false;
			return !(p + 1 < stop && *p == '.' && isdigit((unsigned char)p[1]));
		}
		for (size_t i = 0; i < COUNT(leads); i++)
			leading |= !strcmp(word, leads[i]);
		if (!leading && strspn(word, "0123456789") != strlen(word))
			return false;
	}
	return false;
}

/* "It works with batch size 1 but not with 2": what failed had more. */
static bool helped_by(const char *from, const char *to)
{
	static const char *const helped[] = {"work", "fine", "solve", "fixed", " fits", "succe", "no problem", "only with", "only use", "unless", NULL},
				 *const denied[] = {"n't work", "not work", "n't solve", "not solve", "n't fix", "never work", "n't fit", "not fit", "stops work", "n't help", NULL};

	return any(helped, from, to) && !any(denied, from, to);
}

bool oom_batch_helped(const char *begin, const char *p, const char *end)
{
	const char *const from = oom_sentence_begin(begin, p), *const to = oom_sentence_end(p, end, 1);

	return !oom_text_find(from, to, "--") && helped_by(from, to);
}

/* Who says so complains of it: "even with batch_size=1", "reduced the batch to 1", "batch size 1 fails as well"; not who
 * is told to try it, and not whom it helped. */
static bool fails_of_one(const char *begin, const char *p, const char *end)
{
	static const char *const persists[] = {"even ", "Even ", "still", "Still", "as well", " too", "also ", "educed", "ecreased", "owered", "inimized", "tried", "already",
					       "no matter", "No matter", "egardless", "fails", "doesn't help", "not help", "OOM", "out of memory", "\xe8\xbf\x98\xe6\x98\xaf" /* still */, "\xe4\xbb\x8d", NULL},
				 *const again[] = {"still", "Still", "same error", "same problem", "same issue", "no luck", "No luck", NULL},
				 *const advice[] = {"you can", "You can", "ould you", "you could", "You could", "you should", "You should", "lease ", "Try ", "uggest", "ecommend", "onsider", NULL},
				 *const denied[] = {"n't work", "not work", "n't solve", "not solve", "n't fit", "not fit", NULL};
	const char *const from = oom_sentence_begin(begin, p), *const to = oom_sentence_end(p, end, 1), *const next = oom_sentence_end(p, end, 2);

	if (any(advice, from, to) || helped_by(from, to))
		return false;
	return any(persists, from, to) || any(denied, from, to) || any(again, to, next);
}

static bool tried_one(const char *begin, const char *end)
{
	static const char *const names[] = {"atch", "bs=", "bs 1", "BS=", "bsz"};

	for (size_t i = 0; i < COUNT(names); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, names[i])); p++) {
			const char *const line = oom_line_begin(begin, p), *const after = p + strcspn(names[i], "=1 ");

			/* "--bs", "patch", "jobs=1"; "catch" */
			if (p == begin || (*p != 'a' && isalnum((unsigned char)p[-1])) || (*p == 'a' && p[-1] != 'b' && p[-1] != 'B') ||
			    oom_text_find(line, oom_line_end(p, end), "File \"") || oom_text_find(line, p, "WARN") || oom_text_find(line, p, "Warning"))
				continue;
			if (is_of_one(after, oom_sentence_end(after, end, 1)) && fails_of_one(begin, p, end))
				return true;
		}
	return false;
}

/* "the batch size is one": as people write it, who have digits for every other. */
static bool is_one_in_words(const char *size, const char *stop)
{
	static const char *const leads[] = {"size is one", "size of one", "size was one", "size: one", "size = one"};
	const char *const from = size + strlen("atch ");

	for (size_t i = 0; i < COUNT(leads); i++) {
		const size_t n = strlen(leads[i]);

		if ((size_t)(stop - from) >= n && !memcmp(from, leads[i], n) && !((size_t)(stop - from) > n && isalpha((unsigned char)from[n])))
			return true;
	}
	return false;
}

/* "Instantaneous batch size per device = 8", "batch size: 16", "Training batch size is 188": a log's line, or what people
 * write; not that of all devices, and not an evaluation's. */
static void printed_batch(struct oom_crash *c, const char *line, const char *size, const char *stop)
{
	static const char *const others[] = {"alid", "eval", "Eval", "est ", "otal", "lobal", "ffective", "max", "Max"};
	const char *p = size;
	char number[16];
	size_t n;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (oom_text_find(line, size, others[i]))
			return;
	/* "for batch size greater than 3": that one runs */
	if (oom_text_find(size, stop - size > 32 ? size + 32 : stop, "er than ") || oom_text_find(size, stop - size > 32 ? size + 32 : stop, "more than ") || oom_text_find(size, stop - size > 32 ? size + 32 : stop, "above "))
		return;
	/* "batch size for T5 or BERT": a digit that a letter stands before is of a name */
	while (p < stop && p - size < 60 && (!isdigit((unsigned char)*p) || isalnum((unsigned char)p[-1])) && *p != '.' && *p != ',' && *p != ';' && *p != '\n')
		p++;
	for (n = 0; p + n < stop && n + 1 < sizeof(number) && isdigit((unsigned char)p[n]); n++)
		number[n] = p[n];
	number[n] = 0;
	if (is_one_in_words(size, stop))
		n = (size_t)snprintf(number, sizeof(number), "1");
	if (n && !(!strcmp(number, "1") && helped_by(oom_sentence_begin(line, size), oom_sentence_end(size, stop, 1))))
		oom_told_note(c, "batch size", "batch size", strlen("batch size"), number);
}

/* "warming up sampler with 1024 dummy requests": vLLM tries as many as it was allowed (gpu_model_runner.py). */
static void printed_requests(struct oom_crash *c, const char *begin, const char *end)
{
	const char *const at = oom_text_find(begin, end, " dummy requests"), *p = at;
	char number[16];

	while (p && p > begin && isdigit((unsigned char)p[-1]))
		p--;
	if (p == at || at - p >= (ptrdiff_t)sizeof(number))
		return;
	snprintf(number, sizeof(number), "%.*s", (int)(at - p), p);
	oom_told_note(c, "max_num_seqs", "max_num_seqs", strlen("max_num_seqs"), number);
}

void oom_told_printed(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const spelled[] = {"atch size", "atchsize\xe8", "atchsize \xe8", "atch_size\xe8", "atch_size \xe8", "atchsize to", "atch_size to", "atchsize of",
					      "atch_size of", "atchsize is", "atch_size is"};
	const struct oom_crash_told *t;

	/* the rest is people's: "batchsize" before a word or a sign of Chinese */
	for (size_t i = 0; i < sizeof(spelled) / sizeof(spelled[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, spelled[i])); p++)
			printed_batch(c, oom_line_begin(begin, p), p, oom_line_end(p, end));
	printed_requests(c, begin, end);
	if (tried_one(begin, end)) {
		c->set |= OOM_SET(OOM_LEVER_BATCH);
		oom_told_batch_of_one(c);
	}
	t = oom_told_first(c, OOM_ABOUT_BATCH);
	if (t && t->value <= 1)
		c->set |= OOM_SET(OOM_LEVER_BATCH);
}
