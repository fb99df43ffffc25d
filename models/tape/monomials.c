/* Sizes that depend on the batch: interned products of variables, and the conditions on them that a
 * recording took a branch by. */
#include "tape.h"

#include <string.h>

static uint8_t var_of(struct oom_tape *t, enum oom_var_base base, uint8_t op, uint32_t k)
{
	for (size_t i = 0; i < t->n_vars; i++)
		if (t->vars[i].base == base && t->vars[i].op == op && t->vars[i].k == k)
			return (uint8_t)i;
	if (t->n_vars == sizeof(t->vars) / sizeof(t->vars[0])) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many size variables in one model");
		return 0;
	}
	t->vars[t->n_vars] = (struct oom_var){.base = (uint8_t)base, .op = op, .k = k};
	return (uint8_t)t->n_vars++;
}

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
	if (t->n_monos == sizeof(t->monos) / sizeof(t->monos[0])) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many kinds of sizes in one model");
		return 0;
	}
	t->monos[t->n_monos] = m;
	return (uint16_t)t->n_monos++;
}

uint16_t oom_mono_of(struct oom_tape *t, uint16_t m, enum oom_var_base base, uint8_t op, uint32_t k)
{
	struct oom_mono x = t->monos[m];

	if (x.n == sizeof(x.var)) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT, "a size has too many factors");
		return m;
	}
	x.var[x.n++] = var_of(t, base, op, k);
	return intern(t, x);
}

uint16_t oom_mono_chunks(struct oom_tape *t, uint16_t m, uint32_t k, int more)
{
	if (k < 1 || k >= 1u << 24) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
					  "chunks of %u tokens: expected 1 to 2^24 - 1", k);
		return m;
	}
	return oom_mono_of(t, m, OOM_VAR_S, 8, k << 8 | (uint32_t)(more + 128));
}

uint16_t oom_mono_mul(struct oom_tape *t, uint16_t a, uint16_t b)
{
	struct oom_mono x = t->monos[a];

	for (int i = 0; i < t->monos[b].n; i++) {
		if (x.n == sizeof(x.var)) {
			t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
						  "a size has too many factors");
			return a;
		}
		x.var[x.n++] = t->monos[b].var[i];
	}
	return intern(t, x);
}

static uint64_t power_of_two_part(uint64_t x, uint64_t b, uint64_t k)
{
	uint64_t all, p = 1;

	if (__builtin_mul_overflow(x, b, &all) || all > (uint64_t)1 << 62)
		return UINT64_MAX;
	while (p < (all + k - 1) / k)
		p *= 2;
	return p < all ? p : all;
}

/* x up to whole units, and `halves` half units more. */
static uint64_t padded_part(uint64_t x, uint64_t unit, int halves)
{
	const uint64_t whole = (x + unit - 1) / unit * unit;

	if (halves >= 0)
		return whole + unit * (uint64_t)halves / 2;
	return whole > unit * (uint64_t)-halves / 2 ? whole - unit * (uint64_t)-halves / 2 : 0;
}

uint16_t oom_mono_padded(struct oom_tape *t, uint16_t m, uint64_t unit, int halves)
{
	if (unit < 1 || unit >= 1u << 24) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
					  "lengths padded to %llu: expected 1 to 2^24 - 1",
					  (unsigned long long)unit);
		return m;
	}
	return oom_mono_of(t, m, OOM_VAR_S, 11, (uint32_t)unit << 8 | (uint32_t)(halves + 128));
}

uint64_t oom_mono_eval(const struct oom_tape *t, uint16_t m, uint64_t b, uint64_t s, uint64_t tgt)
{
	const uint64_t base[OOM_VAR_BASES] = {b, s, tgt};
	uint64_t v = 1;

	for (int i = 0; i < t->monos[m].n; i++) {
		const struct oom_var *w = &t->vars[t->monos[m].var[i]];
		uint64_t x = base[w->base];

		switch (w->op) {
		case 1: x = (x + w->k - 1) / w->k * w->k; break;
		case 2: x = (x + w->k - 1) / w->k; break;
		case 3: x += w->k; break;
		case 4: x = x < w->k ? x : w->k; break;
		case 5: x = x > w->k ? x - w->k : 0; break;
		case 6: x = w->k; break;
		case 7: x += b == 1 ? w->k : 0; break;
		case 8:
			x = (x + (w->k >> 8) - 1) / (w->k >> 8) + (w->k & 255);
			x = x > 128 ? x - 128 : 0;
			break;
		case 9: x = b == 1 ? 0 : x + w->k; break;
		case 10: x = power_of_two_part(x, b, w->k); break;
		case 11: x = padded_part(x, w->k >> 8, (int)(w->k & 255) - 128); break;
		default: break;
		}
		if (__builtin_mul_overflow(v, x, &v))
			return UINT64_MAX;
	}
	return v;
}

uint64_t oom_mono_now(const struct oom_tape *t, uint16_t m)
{
	return oom_mono_eval(t, m, t->val_b, t->val_s, t->val_t);
}

bool oom_cond_more(struct oom_tape *t, uint16_t m, uint64_t w, uint16_t m2, uint64_t w2)
{
	const struct oom_cond c = {m, m2, w, w2,
				   (double)oom_mono_now(t, m) * (double)w >
					   (double)oom_mono_now(t, m2) * (double)w2};

	for (size_t i = 0; i < t->n_conds; i++)
		if (t->conds[i].mono == m && t->conds[i].mono2 == m2 && t->conds[i].width == w &&
		    t->conds[i].width2 == w2)
			return c.above;
	if (t->n_conds < OOM_MAX_COND)
		t->conds[t->n_conds++] = c;
	else
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many size conditions in one model");
	return c.above;
}

bool oom_cond_above(struct oom_tape *t, uint16_t m, uint64_t limit)
{
	return oom_cond_more(t, m, 1, OOM_MONO_ONE, limit);
}
