/* What people say that they tried, and that it did not help: "even after reducing the batch size", "I tried
 * max_split_size_mb, same error". Advice to try it once more is worth less than what has not been tried. */
#include <ctype.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define TWO(a, b) (OOM_SET(OOM_LEVER_##a) | OOM_SET(OOM_LEVER_##b))

/* What they call it; of one name the row that stands first is told. */
static const struct {
	const char *word;
	uint64_t levers;
	const char *called;
} rows[] = {
	{"atch size", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"atch_size", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"atch-size", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"atchsize", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"samples_per_gpu", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"max_num_seqs", OOM_SET(OOM_LEVER_REQUESTS), "fewer sequences at once"},
	{"max-num-seqs", OOM_SET(OOM_LEVER_REQUESTS), "fewer sequences at once"},
	{"mage size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"img size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"img_size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"nput size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"crop size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"roi_size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"roi size", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"atch_size to", TWO(BATCH, REQUESTS), "a smaller batch"},
	{"esolution", TWO(LENGTH, CONTEXT), "smaller inputs"},
	{"max_length", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"max_seq", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"max_model_len", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"max-model-len", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"cutoff_len", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"equence length", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"ontext length", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"ontext size", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"num_ctx", TWO(LENGTH, CONTEXT), "a shorter length"},
	{"max_split_size", TWO(FRAGMENT, SPLIT), "allocator settings"},
	{"expandable_segments", TWO(FRAGMENT, SPLIT), "allocator settings"},
	{"ALLOC_CONF", TWO(FRAGMENT, SPLIT), "allocator settings"},
	{"radient checkpoint", OOM_SET(OOM_LEVER_RECOMPUTE), "gradient checkpointing"},
	{"radient_checkpoint", OOM_SET(OOM_LEVER_RECOMPUTE), "gradient checkpointing"},
	{"num_worker", OOM_SET(OOM_LEVER_WORKERS), "fewer workers"},
	{"num-worker", OOM_SET(OOM_LEVER_WORKERS), "fewer workers"},
	{"n_workers", OOM_SET(OOM_LEVER_WORKERS), "fewer workers"},
	{"umber of workers", OOM_SET(OOM_LEVER_WORKERS), "fewer workers"},
	{"shm", OOM_SET(OOM_LEVER_SHM), "more shared memory"},
	{"hared memory", OOM_SET(OOM_LEVER_SHM), "more shared memory"},
	{"\xe5\x85\xb1\xe4\xba\xab\xe5\x86\x85\xe5\xad\x98", OOM_SET(OOM_LEVER_SHM), "more shared memory"},
	{"gpu_memory_utilization", TWO(ROOM, KV), "another share of the card"},
	{"gpu-memory-utilization", TWO(ROOM, KV), "another share of the card"},
	{"mem-fraction-static", TWO(ROOM, KV), "another share of the card"},
	{"mem_fraction_static", TWO(ROOM, KV), "another share of the card"},
	{"enforce_eager", OOM_SET(OOM_LEVER_GRAPHS), "no CUDA graphs"},
	{"enforce-eager", OOM_SET(OOM_LEVER_GRAPHS), "no CUDA graphs"},
	{"alf precision", OOM_SET(OOM_LEVER_PRECISION), "16 bits"},
	{"ixed precision", OOM_SET(OOM_LEVER_PRECISION), "16 bits"},
	{"lowvram", OOM_SET(OOM_LEVER_OFFLOAD), "weights on the host"},
	{"cpu_offload", OOM_SET(OOM_LEVER_OFFLOAD), "weights on the host"},
	{"tiled", OOM_SET(OOM_LEVER_TILE), "a tiled decoder"},
	{"tiling", OOM_SET(OOM_LEVER_TILE), "a tiled decoder"},
};

static bool any(const char *const *words, const char *from, const char *to)
{
	for (; *words; words++)
		if (oom_text_find(from, to, *words))
			return true;
	return false;
}

/* Who speaks of it did it: not a log, not a message's own advice, not advice of somebody else's. */
static bool is_done(const char *from, const char *to)
{
	static const char *const verbs[] = {"tried", "Tried", "trying", "educed", "educing", "educe the", "ecreas", "owered", "owering", "hanged", "hanging", "I change", "hange the", "djust", "inimiz", "even with", "Even with", "even when",
					    "even if", "even after", "Even after", "Even if", "already", "set ", "etting", "ncreas", "nlarg", "sing ",
					    "\xe5\xb0\x9d\xe8\xaf\x95" /* tried */, "\xe8\xae\xbe\xe7\xbd\xae" /* set */, "\xe8\xae\xbe\xe4\xb8\xba", "\xe8\xb0\x83\xe5\xb0\x8f", "\xe9\x99\x8d\xe4\xbd\x8e",
					    "\xe5\x87\x8f\xe5\xb0\x8f", "\xe6\x94\xb9" /* changed */, NULL},
				 *const others[] = {"you can", "You can", "ould you", "you could", "You could", "you should", "You should", "lease ", "Try ", "try setting", "uggest", "ecommend", "onsider", "Tried to allocate",
						    "File \"", "WARN", "Warning", "INFO", "://", "How ", "how ", "hould I", "an I ", NULL};

	return any(verbs, from, to) && !any(others, from, to);
}

/* And it failed all the same, in that sentence or right behind it; it did not help only for a while. */
static bool in_vain(const char *from, const char *to, const char *next)
{
	static const char *const fails[] = {"still", "Still", "same error", "same issue", "same problem", "same result", "n't help", "not help", "n't work", "not work", "n't solve", "not solve", "n't fix", "not fix", "n't change", "no luck",
					    "no effect", "no use", "useless", "persist", "n vain", "no avail", "no success", "not success", "without success", "no difference", "n't make",
					    "\xe4\xbb\x8d" /* still */, "\xe8\xbf\x98\xe6\x98\xaf", "\xe4\xbe\x9d\xe7\x84\xb6", "\xe6\xb2\xa1\xe7\x94\xa8" /* of no use */, "\xe6\x97\xa0\xe6\x95\x88", NULL},
				 *const even[] = {"even with", "Even with", "even when", "even if", "even after", "Even after", "Even if", NULL},
				 *const helps[] = {"it works", "works fine", "worked", "solved", "can be solved", "fixes", "no problem", "unless", "but it runs", NULL};

	if (any(helps, from, to))
		return false;
	return any(even, from, to) || any(fails, from, next);
}

/* "What I tried:" and the points below it, up to the next paragraph. */
static bool in_list(const char *begin, const char *line)
{
	static const char *const heads[] = {"tried", "Tried", "\xe5\xb0\x9d\xe8\xaf\x95", NULL};

	for (int n = 0; n < 12 && line > begin; n++) {
		const char *const above = oom_line_begin(begin, line - 1), *const stop = line - 1;
		const char *p = above;

		while (p < stop && isspace((unsigned char)*p))
			p++;
		if (stop - above > 4 && (stop[-1] == ':' || !memcmp(stop - 3, "\xef\xbc\x9a", 3)) && any(heads, above, stop))
			return true;
		/* a point begins with a sign or a number; what stands between two is of one */
		if (p < stop && !strchr("-*+(", *p) && !isdigit((unsigned char)*p) && (unsigned char)*p < 0x80 && n > 1)
			return false;
		line = above;
	}
	return false;
}

static bool of_row(const char *begin, const char *end, const char *word)
{
	for (const char *p = begin; (p = oom_text_find(p, end, word)); p++) {
		const char *const from = oom_sentence_begin(begin, p), *const to = oom_sentence_end(p, end, 1),
				  *const next = to + 90 < end ? to + 90 : end, *const line = oom_line_begin(begin, p);

		/* the allocator's own advice */
		if (oom_text_find(line, p, "Tried to allocate"))
			continue;
		/* a setting in a file or a call stands in no sentence */
		if (p == begin || to - from < 16 || to - from > 600)
			continue;
		/* a question asks what would be, unless it says what was */
		if (to < end && (*to == '?' || to[-1] == '?') && !oom_text_find(from, to, "tried") && !oom_text_find(from, to, "educed"))
			continue;
		if (is_done(from, to) && in_vain(from, to, next))
			return true;
		if (in_list(begin, line) && !oom_text_find(line, oom_line_end(p, end), "works"))
			return true;
	}
	return false;
}

uint64_t oom_tried(const char *begin, const char *end)
{
	uint64_t tried = 0;

	for (size_t i = 0; i < COUNT(rows); i++)
		if ((tried & rows[i].levers) != rows[i].levers && of_row(begin, end, rows[i].word))
			tried |= rows[i].levers;
	return tried;
}

const char *oom_tried_called(uint64_t levers, size_t n)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		bool told = (levers & rows[i].levers) != rows[i].levers;

		for (size_t k = 0; k < i && !told; k++)
			told = (levers & rows[k].levers) == rows[k].levers && (rows[k].levers & rows[i].levers) == rows[i].levers;
		if (!told && !n--)
			return rows[i].called;
	}
	return NULL;
}
