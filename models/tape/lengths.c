/* What lengths and their products come to at a batch. */
#include "lengths.h"

#include <stdio.h>

#include "round.h"
#include "sums.h"
#include "tape.h"

/* ---- lengths ---- */

/* How many chunks of k, and `more` of them. */
static uint64_t chunks(uint64_t x, uint64_t k, int64_t more)
{
	const uint64_t n = oom_ceil_div(x, k), less = more < 0 ? (uint64_t)-more : 0;

	return more >= 0 ? n + (uint64_t)more : n > less ? n - less : 0;
}

/* x up to whole units, and `halves` half units more. */
static uint64_t padded(uint64_t x, uint64_t unit, int64_t halves)
{
	const uint64_t whole = oom_round_up(x, unit);
	const uint64_t part = unit * (uint64_t)(halves < 0 ? -halves : halves) / 2;

	return halves >= 0 ? whole + part : whole > part ? whole - part : 0;
}

/* Of b sequences of x tokens: the least power of two from their k-th part on, at most all. */
static uint64_t pow2_part(uint64_t x, uint64_t b, uint64_t k)
{
	uint64_t all, p = 1;

	if (__builtin_mul_overflow(x, b, &all) || all > (uint64_t)1 << 62)
		return UINT64_MAX;
	while (p < oom_ceil_div(all, k))
		p *= 2;
	return p < all ? p : all;
}

/* Of `all` tokens in chunks of k: the whole chunks that are done when the last whole one is under way. */
static uint64_t chunks_before(uint64_t all, uint64_t k)
{
	return all / k > 1 ? all / k - 1 : 0;
}

static uint64_t tokens_of(uint64_t b, uint64_t x, int64_t more)
{
	const uint64_t less = more < 0 ? (uint64_t)-more : 0;
	uint64_t all;

	x = more >= 0 ? x + (uint64_t)more : x > less ? x - less : 0;
	return __builtin_mul_overflow(x, b, &all) ? UINT64_MAX : all;
}

/* Into how many blocks of threads a sum over so many rows is divided where k would fill the card: four rows of threads
 * add each what they reach, 16 values or more and about 256 at most (setReduceConfig).  0: one block has it all. */
uint64_t oom_sum_parts(uint64_t rows, uint64_t k)
{
	enum { HEIGHT = 4, LEAST = 16, MOST = 256 };
	const uint64_t each = oom_ceil_div(rows, HEIGHT), finest = oom_ceil_div(each, LEAST),
		       coarsest = oom_ceil_div(each, MOST), n = k < finest ? k : finest, parts = n > coarsest ? n : coarsest;

	return each >= MOST && parts > 1 ? parts : 0;
}

#define AS_VALUE(name, value, vanishes, text) case LEN_##name: return value;
#define AS_VANISHES(name, value, vanishes, text) case LEN_##name: return vanishes;
#define AS_TEXT(name, value, vanishes, text) text,

static const char *const texts[] = {LENGTHS(AS_TEXT)};

static uint64_t value_of(const struct oom_var *v, uint64_t x, uint64_t b)
{
	const uint64_t k = v->k;
	const int64_t more = v->more;

	switch (v->op) {
	LENGTHS(AS_VALUE)
	}
	return 0;
}

static bool can_vanish(const struct oom_var *v)
{
	const uint64_t k = v->k;
	const int64_t more = v->more;

	switch (v->op) {
	LENGTHS(AS_VANISHES)
	}
	return true;
}

void oom_var_text(const struct oom_var *v, char *out, size_t size)
{
	static const char *const base[OOM_VAR_BASES] = {"b", "s", "t"};
	const char *p = texts[v->op];
	size_t n = 0;

	for (; *p && n + 1 < size; p++) {
		if (*p != '%')
			out[n++] = *p;
		else if (*++p == 'x')
			n += (size_t)snprintf(out + n, size - n, "%s", base[v->base]);
		else if (*p == 'k')
			n += (size_t)snprintf(out + n, size - n, "%u", v->k);
		else
			n += (size_t)snprintf(out + n, size - n, "%+lld",
					      (long long)v->more * (*p == 'h' ? v->k : 1));
	}
	out[n < size ? n : size - 1] = 0;
}

/* ---- monomials ---- */

uint64_t oom_mono_eval(const struct oom_tape *t, uint16_t m, uint64_t b, uint64_t s, uint64_t tgt)
{
	const uint64_t base[OOM_VAR_BASES] = {b, s, tgt};
	uint64_t v = 1;

	for (int i = 0; i < t->monos[m].n; i++) {
		const struct oom_var *w = &t->vars[t->monos[m].var[i]];

		if (__builtin_mul_overflow(v, value_of(w, base[w->base], b), &v))
			return UINT64_MAX;
	}
	return v;
}

void oom_monos_eval(const struct oom_tape *t, uint64_t b, uint64_t s, uint64_t tgt, uint64_t *out)
{
	const uint64_t base[OOM_VAR_BASES] = {b, s, tgt};
	uint64_t len[OOM_MAX_VARS];

	for (size_t i = 0; i < t->n_vars; i++)
		len[i] = value_of(&t->vars[i], base[t->vars[i].base], b);
	for (size_t m = 0; m < t->n_monos; m++) {
		uint64_t v = 1;

		for (int i = 0; i < t->monos[m].n; i++)
			if (__builtin_mul_overflow(v, len[t->monos[m].var[i]], &v)) {
				v = UINT64_MAX;
				break;
			}
		out[m] = v;
	}
}

uint64_t oom_mono_now(const struct oom_tape *t, uint16_t m)
{
	return oom_mono_eval(t, m, t->val_b, t->val_s, t->val_t);
}

bool oom_mono_contains(const struct oom_tape *t, uint16_t whole, uint16_t part)
{
	const struct oom_mono *a = &t->monos[whole], *b = &t->monos[part];
	bool used[OOM_MAX_FACTORS] = {false};

	for (int i = 0; i < b->n; i++) {
		int j = 0;

		while (j < a->n && (used[j] || a->var[j] != b->var[i]))
			j++;
		if (j == a->n)
			return false;
		used[j] = true;
	}
	for (int j = 0; j < a->n; j++)
		if (!used[j] && can_vanish(&t->vars[a->var[j]]))
			return false;
	return true;
}
