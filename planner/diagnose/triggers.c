/* Whether one of the words that may open a message (words.c) stands at a place of a log, in the sense that is
 * meant, and how far a search may skip where none does. */
#include "parts.h"

static bool begins(const char *at, size_t left, const char *word)
{
	return left >= strlen(word) && !memcmp(at, word, strlen(word));
}

static bool ends(const char *begin, const char *at, const char *word)
{
	const size_t n = strlen(word);

	return (size_t)(at - begin) >= n && !memcmp(at - n, word, n);
}

static bool any_begins(const char *const *words, const char *at, size_t left)
{
	for (; words && *words; words++)
		if (begins(at, left, *words))
			return true;
	return false;
}

static bool any_ends(const char *const *words, const char *begin, const char *at)
{
	for (; words && *words; words++)
		if (ends(begin, at, *words))
			return true;
	return false;
}

static bool reaches(const char *word, int reach, const char *begin, const char *at, size_t left)
{
	const size_t span = (size_t)(reach < 0 ? -reach : reach);

	if (reach > 0)
		return oom_text_find(at, at + (left < span ? left : span), word) != NULL;
	return oom_text_find(reach && (size_t)(at - begin) > span ? at - span : begin, at, word) != NULL;
}

/* The shell's bare word: "Killed", "[1]  Killed", "Killed: 9". */
static bool stands_alone(const char *begin, const char *at, size_t n, size_t left)
{
	return !((at > begin && at[-1] != '\n' && at[-1] != ' ' && at[-1] != ']') ||
		 (left > n && at[n] != '\n' && at[n] != '\r' && at[n] != ' ' && at[n] != '"' && at[n] != '`' && at[n] != '\'' && !begins(at + n, left - n, ": 9")));
}

static bool followed_by(const char *value, const char *at, size_t left)
{
	size_t blanks = 0;

	while (blanks < left && (at[blanks] == ' ' || at[blanks] == '\t'))
		blanks++;
	return begins(at + blanks, left - blanks, value) &&
	       !(left - blanks > strlen(value) && at[blanks + strlen(value)] >= '0' && at[blanks + strlen(value)] <= '9');
}

/* The same words in another sense: n bytes at "at", left of them to the end. */
static bool other_meaning(const struct oom_trigger *t, const char *at, size_t left, size_t n, const char *begin)
{
	return any_begins(t->not_before, at + n, left - n) || any_ends(t->not_after, begin, at) ||
	       (t->alone && !stands_alone(begin, at, n, left)) ||
	       (t->value && !followed_by(t->value, at + n, left - n)) ||
	       (t->needs.word && !reaches(t->needs.word, t->needs.reach, begin, at, left)) ||
	       (t->unless.word && reaches(t->unless.word, t->unless.reach, begin, at, left));
}

/* Of the first four bytes: every needle has OOM_TRIGGER_MIN. */
static uint8_t first_hash(const char *needle)
{
	uint32_t four;

	memcpy(&four, needle, sizeof(four));
	return (uint8_t)(four * UINT32_C(0x9e3779b1) >> 24);
}

const struct oom_trigger *oom_trigger_at(const struct oom_trigger_index *index, const char *at,
					 size_t left, const char *begin)
{
	uint32_t head;

	if (left < OOM_TRIGGER_MIN)
		return NULL;
	memcpy(&head, at, sizeof(head));
	for (size_t i = index->first[first_hash(at)]; i; i = index->next[i]) {
		const struct oom_trigger *const t = &oom_triggers[i - 1];
		const size_t n = index->length[i];

		if (index->head[i] == head && left >= n && !memcmp(at, t->needle, n) &&
		    !other_meaning(t, at, left, n, begin))
			return t;
	}
	return NULL;
}

/* Wu and Manber's shifts (A fast algorithm for multi-pattern searching, 1994) over the first
 * OOM_TRIGGER_MIN bytes of every needle, by the three bytes a window ends in: how far its end
 * may move on; 0: a needle may begin here. */
void oom_trigger_index_init(struct oom_trigger_index *index)
{
	uint8_t *const shift = index->shift;

	memset(index, 0, sizeof(*index));
	memset(shift, OOM_TRIGGER_MIN - 2, sizeof(index->shift));
	/* from the last: a chain has the order of the table */
	for (size_t i = oom_n_triggers; i > 0; i--) {
		uint16_t *const first = &index->first[first_hash(oom_triggers[i - 1].needle)];

		index->next[i] = *first;
		memcpy(&index->head[i], oom_triggers[i - 1].needle, sizeof(index->head[i]));
		index->length[i] = (uint8_t)strlen(oom_triggers[i - 1].needle);
		*first = (uint16_t)i;
	}
	for (size_t i = 0; i < oom_n_triggers; i++)
		for (int j = 2; j < OOM_TRIGGER_MIN; j++) {
			uint8_t *s = &shift[oom_trigger_hash(oom_triggers[i].needle + j)];

			if (*s > OOM_TRIGGER_MIN - 1 - j)
				*s = (uint8_t)(OOM_TRIGGER_MIN - 1 - j);
		}
}
