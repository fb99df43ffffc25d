/* Sizes that depend on the batch: their lengths and products, each made once.  What they come to: lengths.c. */
#include "sizes.h"

#include <string.h>

#include "lengths.h"
#include "round.h"
#include "tape.h"

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
		oom_tape_impossible(t, OOM_ERR_INVALID,
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

uint16_t oom_len_sum_parts(struct oom_tape *t, uint16_t rows, uint64_t k)
{
	const struct oom_mono *m = &t->monos[rows];
	const uint32_t most = k < UINT32_MAX ? (uint32_t)k : UINT32_MAX;
	/* every width has lengths of its own: not so many that what must be recorded finds no room */
	const bool room = t->n_vars + 8 < OOM_MAX_VARS && t->n_monos + 16 < OOM_MAX_MONOS;

	for (int i = 0; room && m->n == 2 && i < 2; i++) {
		const struct oom_var of = t->vars[m->var[!i]], each = t->vars[m->var[i]];

		if (of.base != OOM_VAR_B || of.op != LEN_AS_IS)
			continue;
		if (each.op == LEN_CONST)
			return times(t, OOM_MONO_ONE,
				     (struct oom_var){OOM_VAR_B, LEN_SUM_PARTS_OF, most,
						      each.k < INT32_MAX ? (int32_t)each.k : INT32_MAX});
		if (each.base != OOM_VAR_B && each.op == LEN_AS_IS)
			return times(t, OOM_MONO_ONE, (struct oom_var){each.base, LEN_SUM_PARTS, most, 0});
	}
	return oom_len_const(t, OOM_MONO_ONE, 0);
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
