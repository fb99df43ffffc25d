/* Sizes that depend on the batch: lengths and their products. */
#include "sizes.h"

#include <stdio.h>
#include <string.h>

#include "round.h"
#include "tape.h"

/* ---- lengths: one row each ---- */

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

/* Every operation: its name; the value of a variable x >= 1 with the parameters k and more in a
 * batch of b >= 1; whether that can be 0; the text, in which %x stands for the variable, %k and %m
 * for the parameters and %h for their product. */
#define LENGTHS(ROW)                                                                     \
	ROW(AS_IS, x, false, "%x")                                                       \
	ROW(CONST, k, k == 0, "%k")                                                      \
	ROW(PLUS, x + k, false, "(%x+%k)")                                               \
	ROW(MINUS, x > k ? x - k : 0, true, "max(%x-%k,0)")                              \
	ROW(MIN, x < k ? x : k, k == 0, "min(%x,%k)")                                    \
	ROW(CEIL, oom_ceil_div(x, k), false, "ceil(%x/%k)")                              \
	ROW(ROUND_UP, oom_round_up(x, k), false, "roundup(%x,%k)")                       \
	ROW(CHUNKS, chunks(x, k, more), more < 0, "(ceil(%x/%k)%m)")                     \
	ROW(PADDED, padded(x, k, more), more < -1, "(roundup(%x,%k)%h/2)")               \
	ROW(PLUS_IN_ONE, b == 1 ? x + k : x, false, "(%x+%k if b=1)")                    \
	ROW(PLUS_IN_MANY, b == 1 ? 0 : x + k, true, "(%x+%k if b>1)")                    \
	ROW(PLUS_CEIL, oom_ceil_div(x + (uint64_t)more, k), false, "ceil((%x%m)/%k)")     \
	ROW(PLUS_ROUND_UP, oom_round_up(x + (uint64_t)more, k), false, "roundup(%x%m,%k)") \
	ROW(POW2_PART, pow2_part(x, b, k), false, "pow2(b*%x/%k)")                       \
	ROW(CHUNKS_BEFORE, chunks_before(tokens_of(b, x, more), k), true, "max(b*(%x%m)/%k-1,0)") \
	ROW(CHUNKS_BEFORE_OF, chunks_before(tokens_of(x, (uint64_t)more, 0), k), true, "max(%x*%m/%k-1,0)")

#define AS_ENUM(name, value, vanishes, text) LEN_##name,
#define AS_VALUE(name, value, vanishes, text) case LEN_##name: return value;
#define AS_VANISHES(name, value, vanishes, text) case LEN_##name: return vanishes;
#define AS_TEXT(name, value, vanishes, text) text,

enum { LENGTHS(AS_ENUM) };
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

static uint16_t intern(struct oom_tape *t, struct oom_mono m)
{
	for (int i = 1; i < m.n; i++)           /* sorted: few elements */
		for (int j = i; j > 0 && m.var[j] < m.var[j - 1]; j--) {
			uint8_t x = m.var[j];

			m.var[j] = m.var[j - 1];
			m.var[j - 1] = x;
		}
	for (size_t i = 0; i < t->n_monos; i++)
		if (t->monos[i].n == m.n && !memcmp(t->monos[i].var, m.var, m.n))
			return (uint16_t)i;
	if (t->n_monos == OOM_MAX_MONOS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than %d kinds of sizes in one model",
			      OOM_MAX_MONOS);
		return OOM_MONO_ONE;
	}
	t->monos[t->n_monos] = m;
	return (uint16_t)t->n_monos++;
}

/* m times the variables named. */
static uint16_t product(struct oom_tape *t, uint16_t m, const uint8_t *var, uint8_t n)
{
	struct oom_mono x = t->monos[m];

	if (x.n + n > OOM_MAX_FACTORS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "a size of more than %d factors", OOM_MAX_FACTORS);
		return m;
	}
	for (int i = 0; i < n; i++)
		x.var[x.n++] = var[i];
	return intern(t, x);
}

uint16_t oom_mono_mul(struct oom_tape *t, uint16_t a, uint16_t b)
{
	return product(t, a, t->monos[b].var, t->monos[b].n);
}

/* m times the length v. */
static uint16_t times(struct oom_tape *t, uint16_t m, struct oom_var v)
{
	uint8_t i = 0;

	while (i < t->n_vars && (t->vars[i].base != v.base || t->vars[i].op != v.op ||
				 t->vars[i].k != v.k || t->vars[i].more != v.more))
		i++;
	if (i == OOM_MAX_VARS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than %d kinds of lengths in one model",
			      OOM_MAX_VARS);
		return m;
	}
	if (i == t->n_vars)
		t->vars[t->n_vars++] = v;
	return product(t, m, &i, 1);
}

/* m times an operation on s, its parameter checked. */
static uint16_t length(struct oom_tape *t, uint16_t m, uint8_t op, uint64_t least, uint64_t k,
		       int32_t more)
{
	if (k < least || k > UINT32_MAX) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "a length computed with %llu: expected %llu to 2^32 - 1",
			      (unsigned long long)k, (unsigned long long)least);
		return m;
	}
	return times(t, m, (struct oom_var){OOM_VAR_S, op, (uint32_t)k, more});
}

uint16_t oom_len_const(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_CONST, 0, k, 0);
}

uint16_t oom_len_plus(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_PLUS, 0, k, 0);
}

uint16_t oom_len_minus(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_MINUS, 0, k, 0);
}

uint16_t oom_len_min(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_MIN, 0, k, 0);
}

uint16_t oom_len_ceil(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_CEIL, 1, k, 0);
}

uint16_t oom_len_round_up(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_ROUND_UP, 1, k, 0);
}

uint16_t oom_len_chunks(struct oom_tape *t, uint16_t m, uint64_t k, int32_t more)
{
	return length(t, m, LEN_CHUNKS, 1, k, more);
}

uint16_t oom_len_padded(struct oom_tape *t, uint16_t m, uint64_t unit, int32_t halves)
{
	return length(t, m, LEN_PADDED, 1, unit, halves);
}

uint16_t oom_len_plus_in_one(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_PLUS_IN_ONE, 0, k, 0);
}

uint16_t oom_len_plus_in_many(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_PLUS_IN_MANY, 0, k, 0);
}

uint16_t oom_len_pow2_part(struct oom_tape *t, uint16_t m, uint64_t k)
{
	return length(t, m, LEN_POW2_PART, 1, k, 0);
}

uint16_t oom_len_chunks_before(struct oom_tape *t, uint16_t m, uint64_t k, uint64_t each)
{
	if (!each)
		return length(t, m, LEN_CHUNKS_BEFORE, 1, k, -1);
	return times(t, m, (struct oom_var){OOM_VAR_B, LEN_CHUNKS_BEFORE_OF, k > 0 && k < UINT32_MAX ? (uint32_t)k : 1,
					    each < INT32_MAX ? (int32_t)each : INT32_MAX});
}

uint16_t oom_len_sequences(struct oom_tape *t, uint16_t m, uint64_t k)
{
	const uint32_t part = k > 0 && k < UINT32_MAX ? (uint32_t)k : 1;

	return times(t, m, (struct oom_var){.base = OOM_VAR_B, .op = LEN_CEIL, .k = part});
}

uint16_t oom_len_targets(struct oom_tape *t)
{
	return times(t, OOM_MONO_ONE, (struct oom_var){.base = OOM_VAR_T, .op = LEN_AS_IS});
}

uint16_t oom_len_targets_min(struct oom_tape *t, uint64_t k)
{
	const uint32_t most = k < UINT32_MAX ? (uint32_t)k : UINT32_MAX;

	return times(t, OOM_MONO_ONE,
		     (struct oom_var){.base = OOM_VAR_T, .op = LEN_MIN, .k = most});
}

void oom_sizes_reset(struct oom_tape *t)
{
	const uint8_t b = 0, s = 1;

	t->n_conds = 0;
	t->vars[b] = (struct oom_var){.base = OOM_VAR_B, .op = LEN_AS_IS};
	t->vars[s] = (struct oom_var){.base = OOM_VAR_S, .op = LEN_AS_IS};
	t->n_vars = 2;
	t->monos[OOM_MONO_ONE].n = 0;
	t->n_monos = 1;
	t->m_b = product(t, OOM_MONO_ONE, &b, 1);
	t->m_s = product(t, OOM_MONO_ONE, &s, 1);
	t->m_bs = oom_mono_mul(t, t->m_b, t->m_s);
	t->m_bss = oom_mono_mul(t, t->m_bs, t->m_s);
}

/* ---- monomials with a sequence's length in pieces ---- */

/* Is v a sequence's length itself, tokens or a constant? */
static bool is_length(const struct oom_var *v)
{
	return v->base != OOM_VAR_B && (v->op == LEN_AS_IS || v->op == LEN_CONST);
}

/* Which factor of m is the length of one sequence: `len` where m holds it, else a variable as it is,
 * else the constant made last (the images of a batch come before the patches of each). */
static int length_in(const struct oom_tape *t, const struct oom_mono *m, uint16_t len)
{
	const struct oom_mono *l = &t->monos[len];
	int found = -1;

	for (int i = 0; i < m->n; i++) {
		const struct oom_var *v = &t->vars[m->var[i]];
		const bool same = l->n == 1 && l->var[0] == m->var[i];

		if (!is_length(v) && !(same && v->op == LEN_PLUS))
			continue;
		if (same)
			return i;
		if (found < 0 || t->vars[m->var[found]].op == LEN_CONST)
			found = i;
	}
	return found;
}

/* m with its sequence's length divided into pieces of k: their number, or what they hold. */
static uint16_t in_pieces(struct oom_tape *t, uint16_t m, uint16_t len, uint32_t k, uint8_t op)
{
	const struct oom_mono x = t->monos[m];
	const int at = length_in(t, &x, len);
	uint16_t r = OOM_MONO_ONE;

	for (int i = 0; i < x.n; i++) {
		struct oom_var v = t->vars[x.var[i]];

		if (i == at && v.op == LEN_CONST)
			v.k = (uint32_t)(op == LEN_CEIL ? oom_ceil_div(v.k, k) :
							  oom_round_up(v.k, k));
		else if (i == at && v.op == LEN_PLUS && v.k <= INT32_MAX)
			v = (struct oom_var){.base = v.base, .k = k, .more = (int32_t)v.k,
					     .op = op == LEN_CEIL ? LEN_PLUS_CEIL : LEN_PLUS_ROUND_UP};
		else if (i == at)
			v = (struct oom_var){.base = v.base, .op = op, .k = k};
		r = times(t, r, v);
	}
	return r;
}

uint16_t oom_mono_rounded(struct oom_tape *t, uint16_t m, uint16_t len, uint32_t k)
{
	return in_pieces(t, m, len, k, LEN_ROUND_UP);
}

uint16_t oom_mono_tiles(struct oom_tape *t, uint16_t m, uint16_t len, uint32_t k)
{
	return in_pieces(t, m, len, k, LEN_CEIL);
}

/* ---- values ---- */

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
