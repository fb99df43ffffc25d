/* A sorted set in runs of at most OOM_FREE_RUN entries. */
#include "step/free_set.h"

#include <stdlib.h>
#include <string.h>

/* Without a branch: where it falls cannot be guessed. */
static inline bool below(const struct oom_free_entry *e, uint64_t size, uint64_t addr)
{
	return (e->size < size) | ((e->size == size) & (e->addr < addr));
}

/* How many of n entries in order are below (size, addr). */
static inline uint32_t count_below(const struct oom_free_entry *e, uint32_t n, uint64_t size,
				   uint64_t addr)
{
	const struct oom_free_entry *at = e;

	while (n > 1) {
		const uint32_t half = n / 2;

		at = below(&at[half - 1], size, addr) ? at + half : at;
		n -= half;
	}
	return (uint32_t)(at - e) + (n && below(at, size, addr));
}

/* The first run whose last entry is not below. */
static inline size_t run_for(const struct oom_free_set *set, uint64_t size, uint64_t addr)
{
	size_t k = 0, n = set->n;

	while (n > 1) {
		const size_t half = n / 2;
		const struct oom_free_run *run = set->run[k + half - 1];

		k += below(&run->e[run->n - 1], size, addr) ? half : 0;
		n -= half;
	}
	return k;
}

struct oom_free_place oom_free_find(const struct oom_free_set *set, uint64_t size, uint64_t addr)
{
	struct oom_free_place p = {run_for(set, size, addr), 0};

	if (p.run == set->n)                    /* it is empty */
		return p;
	p.at = count_below(set->run[p.run]->e, set->run[p.run]->n, size, addr);
	if (p.at == set->run[p.run]->n)
		p = (struct oom_free_place){set->n, 0};
	return p;
}

struct oom_free_place oom_free_find_near(const struct oom_free_set *set, struct oom_free_place guess,
					 uint64_t size, uint64_t addr)
{
	const struct oom_free_entry *at, *before;

	if (guess.run >= set->n || guess.at >= set->run[guess.run]->n)
		return oom_free_find(set, size, addr);
	at = &set->run[guess.run]->e[guess.at];
	before = guess.at ? at - 1 : NULL;
	if (!before && guess.run)
		before = &set->run[guess.run - 1]->e[set->run[guess.run - 1]->n - 1];
	return !below(at, size, addr) && (!before || below(before, size, addr)) ?
		       guess :
		       oom_free_find(set, size, addr);
}

/* An empty run at this place of the list; false: out of memory. */
static bool open_run(struct oom_free_set *set, size_t at)
{
	struct oom_free_run *run;

	if (set->n == set->used) {
		if (set->used == set->cap) {
			const size_t cap = set->cap ? set->cap * 2 : 8;
			struct oom_free_run **q = realloc(set->run, cap * sizeof(*q));

			if (!q)
				return false;
			set->run = q;
			set->cap = cap;
		}
		run = malloc(sizeof(*run));
		if (!run)
			return false;
		set->run[set->used++] = run;
	}
	run = set->run[set->n];
	run->n = 0;
	memmove(set->run + at + 1, set->run + at, (set->n - at) * sizeof(*set->run));
	set->run[at] = run;
	set->n++;
	return true;
}

bool oom_free_insert(struct oom_free_set *set, struct oom_free_entry e, struct oom_free_place *at)
{
	struct oom_free_place p = oom_free_find_near(set, *at, e.size, e.addr);
	struct oom_free_run *run;

	if (p.run == set->n) {                  /* above all */
		if (!set->n && !open_run(set, 0))
			return false;
		p.run = set->n - 1;
		p.at = set->run[p.run]->n;
	}
	run = set->run[p.run];
	if (run->n == OOM_FREE_RUN) {
		if (!open_run(set, p.run + 1))
			return false;
		memcpy(set->run[p.run + 1]->e, run->e + OOM_FREE_RUN / 2,
		       OOM_FREE_RUN / 2 * sizeof(e));
		run->n = set->run[p.run + 1]->n = OOM_FREE_RUN / 2;
		if (p.at > run->n) {
			p.at -= run->n;
			run = set->run[++p.run];
		}
	}
	memmove(run->e + p.at + 1, run->e + p.at, (run->n - p.at) * sizeof(e));
	run->e[p.at] = e;
	run->n++;
	*at = p;
	return true;
}

void oom_free_remove(struct oom_free_set *set, struct oom_free_place p)
{
	struct oom_free_run *run = set->run[p.run];

	memmove(run->e + p.at, run->e + p.at + 1, (run->n - p.at - 1) * sizeof(run->e[0]));
	if (--run->n)
		return;
	set->n--;
	memmove(set->run + p.run, set->run + p.run + 1, (set->n - p.run) * sizeof(*set->run));
	set->run[set->n] = run;                 /* its memory waits for another */
}

bool oom_free_replace(struct oom_free_set *set, struct oom_free_place *at, struct oom_free_entry e)
{
	struct oom_free_run *run = set->run[at->run];
	struct oom_free_entry *old = &run->e[at->at], *first = &run->e[0], *last = &run->e[run->n - 1];

	/* mostly it lies between the same neighbours; else in the same run: what is between moves by one */
	if (old > first && old < last && below(old - 1, e.size, e.addr) && !below(old + 1, e.size, e.addr)) {
		*old = e;
		return true;
	}
	if ((at->run && !below(first, e.size, e.addr)) ||
	    (at->run + 1 < set->n && below(last, e.size, e.addr))) {
		oom_free_remove(set, *at);
		return oom_free_insert(set, e, at);
	}
	if (below(old, e.size, e.addr)) {
		for (; old < last && below(old + 1, e.size, e.addr); old++)
			*old = old[1];
	} else {
		for (; old > first && !below(old - 1, e.size, e.addr); old--)
			*old = old[-1];
	}
	*old = e;
	at->at = (uint32_t)(old - first);
	return true;
}

struct oom_free_place oom_free_next(const struct oom_free_set *set, struct oom_free_place p)
{
	if (++p.at == set->run[p.run]->n) {
		p.run++;
		p.at = 0;
	}
	return p;
}

void oom_free_clear(struct oom_free_set *set)
{
	set->n = 0;
}

void oom_free_release(struct oom_free_set *set)
{
	for (size_t i = 0; i < set->used; i++)
		free(set->run[i]);
	free(set->run);
	memset(set, 0, sizeof(*set));
}
