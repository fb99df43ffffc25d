/* The sizes of a step that depend on its batch.
 *
 * The number of elements of a tensor is a static width times a monomial: a product of at most five
 * lengths, each computed from one variable of the batch (its sequences b, the tokens s of each, the
 * target tokens t of each).  Monomials are interned: a uint16_t names one for as long as the
 * recording lives, and equal products have equal names.
 *
 * A length is made by one of the functions below.  Each multiplies a monomial by a length computed
 * from s; the examples multiply t->m_b (the batch) in a step of b = 2 sequences of s = 100 tokens.
 * Every length grows with its variable or stays as it is (the searches over batches rely on it);
 * only oom_len_plus_in_one shrinks when a second sequence joins the batch.
 *
 * A parameter is at most 2^32 - 1, a divisor or unit at least 1; what is not, and what does not fit
 * the tables, sets t->status and a sentence in t->err, and the monomial comes back as it was. */
#ifndef OOM_SIZES_H
#define OOM_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oom_tape;

enum oom_var_base { OOM_VAR_B, OOM_VAR_S, OOM_VAR_T, OOM_VAR_BASES };

/* How many a recording can hold.  In brackets what the known models need at most. */
enum {
	OOM_MAX_VARS = 32,      /* lengths [15] */
	OOM_MAX_MONOS = 96,     /* monomials [46] */
	OOM_MAX_FACTORS = 5,    /* lengths in one monomial [5] */
	OOM_MAX_CONDS = 32,     /* conditions [12] */
};

/* One length: what the operation `op` (a row of the table in lengths.h) makes of a variable. */
struct oom_var {
	uint8_t base;           /* enum oom_var_base */
	uint8_t op;
	uint32_t k;             /* its divisor, unit, summand or bound */
	int32_t more;           /* whole chunks or half units added in the end */
};
struct oom_mono {
	uint8_t n;
	uint8_t var[OOM_MAX_FACTORS];
};
/* The empty product: sizes that do not depend on the batch. */
enum { OOM_MONO_ONE = 0 };

/* A condition on the sizes that a recording took a branch by: mono x width > mono2 x width2 was
 * (`above`) or was not so. */
struct oom_cond {
	uint16_t mono, mono2;
	uint64_t width, width2;
	bool above;
};

/* Empties the tables and makes t->m_b, m_s, m_bs and m_bss. */
void oom_sizes_reset(struct oom_tape *t);

/* ---- lengths ---- */

/* The target tokens of a sequence: t (what a decoder of its own is fed). */
uint16_t oom_len_targets(struct oom_tape *t);
/* min(t, k): labels cut at the length the decoder has positions for. */
uint16_t oom_len_targets_min(struct oom_tape *t, uint64_t k);
/* m x k: a length the model or its images fix.  k = 197: 2 x 197 = 394. */
uint16_t oom_len_const(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x (s + k).  k = 3: 2 x 103 = 206. */
uint16_t oom_len_plus(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x max(s - k, 0).  k = 1, logits without the last token's: 2 x 99 = 198. */
uint16_t oom_len_minus(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x min(s, k).  k = 64, keys within a window: 2 x 64 = 128. */
uint16_t oom_len_min(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x ceil(s / k): patches of k tokens, the last one perhaps short.  k = 64: 2 x 2 = 4. */
uint16_t oom_len_ceil(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x s rounded up to a multiple of k.  k = 64: 2 x 128 = 256. */
uint16_t oom_len_round_up(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x max(ceil(s / k) + more, 0): chunks of k tokens, `more` of them added (or, below zero, left
 * out).  k = 64, more = 1: 2 x 3 = 6. */
uint16_t oom_len_chunks(struct oom_tape *t, uint16_t m, uint64_t k, int32_t more);
/* m x max(s rounded up to whole units + halves x unit / 2, 0): a length padded to its windows, and
 * half windows more or less.  unit = 64, halves = -1: 2 x (128 - 32) = 192. */
uint16_t oom_len_padded(struct oom_tape *t, uint16_t m, uint64_t unit, int32_t halves);
/* m x (s + k) in a batch of one, m x s in a larger: x[:, k:] of one sequence is a view that keeps
 * all it was cut from, of several a copy.  k = 1: 2 x 100 = 200; with b = 1, 101. */
uint16_t oom_len_plus_in_one(struct oom_tape *t, uint16_t m, uint64_t k);
/* Nothing in a batch of one, m x (s + k) in a larger: what such a slice is cut from, where the
 * slice itself (oom_len_plus_in_one) is counted too.  k = 1: 2 x 101 = 202; with b = 1, 0. */
uint16_t oom_len_plus_in_many(struct oom_tape *t, uint16_t m, uint64_t k);
/* m x min(p, b s), p the least power of two that is at least b s / k: the chunk in which all the
 * tokens of the batch are worked off, in about k turns.  k = 10, m = OOM_MONO_ONE: 200 tokens in
 * chunks of 32 (at least 20). */
uint16_t oom_len_pow2_part(struct oom_tape *t, uint16_t m, uint64_t k);

/* Into how many parts a sum over the rows that `rows` counts, b sequences or samples of a length, is divided where k parts
 * would fill the card; 0 where it is not divided, or counts something else.  k = 88, rows = b s = 6304: 88. */
uint16_t oom_len_sum_parts(struct oom_tape *t, uint16_t rows, uint64_t k);

/* m x max(floor(b (s - 1) / k) - 1, 0), or of b x each tokens (each above 0): the chunks of k tokens of the whole batch that
 * are done when the last whole one is under way.  k = 64, m = OOM_MONO_ONE: 198 tokens, 3 - 1 = 2. */
uint16_t oom_len_chunks_before(struct oom_tape *t, uint16_t m, uint64_t k, uint64_t each);

/* m x ceil(b / k): a k-th part of the sequences.  k = 2, m = s: 100 x 1 = 100. */
uint16_t oom_len_sequences(struct oom_tape *t, uint16_t m, uint64_t k);

/* m, the tokens of all sequences, with the length `len` of one rounded up to a multiple of k, or
 * divided into tiles of k: b s -> b roundup(s, k), b ceil(s / k), and likewise of s + n.  Where m does not hold `len` (cross
 * attention's queries: OOM_MONO_ONE), a length that it does hold: s or t, else the last constant. */
uint16_t oom_mono_rounded(struct oom_tape *t, uint16_t m, uint16_t len, uint32_t k);
uint16_t oom_mono_tiles(struct oom_tape *t, uint16_t m, uint16_t len, uint32_t k);

/* ---- monomials ---- */

uint16_t oom_mono_mul(struct oom_tape *t, uint16_t a, uint16_t b);
/* The value at b sequences of s tokens and tgt target tokens; UINT64_MAX when it overflows. */
uint64_t oom_mono_eval(const struct oom_tape *t, uint16_t m, uint64_t b, uint64_t s, uint64_t tgt);
/* The same of all monomials, OOM_MAX_MONOS at most: each length is computed once. */
void oom_monos_eval(const struct oom_tape *t, uint64_t b, uint64_t s, uint64_t tgt, uint64_t *out);
/* The value at the sizes recorded with. */
uint64_t oom_mono_now(const struct oom_tape *t, uint16_t m);
/* True when `whole` is `part` times lengths of at least 1: never smaller, whatever the batch. */
bool oom_mono_contains(const struct oom_tape *t, uint16_t whole, uint16_t part);
/* The length as `explain` prints it: "ceil(s/64)". */
void oom_var_text(const struct oom_var *v, char *out, size_t size);

/* ---- conditions ---- */

/* True when m > limit; remembered, so that a batch on the other side is recorded anew. */
bool oom_cond_above(struct oom_tape *t, uint16_t m, uint64_t limit);
/* The sequences of the batch, one by one, where there are at most `most` of them; else 0.  Remembered
 * likewise: a batch of another number is recorded anew. */
uint32_t oom_cond_sequences(struct oom_tape *t, uint32_t most);
/* True when m x w > m2 x w2; remembered likewise. */
bool oom_cond_more(struct oom_tape *t, uint16_t m, uint64_t w, uint16_t m2, uint64_t w2);
/* Would a recording at these sizes take every branch as this one did? */
bool oom_conds_hold(const struct oom_tape *t, uint64_t b, uint64_t s, uint64_t tgt);
/* The same of monomials that have been evaluated at these sizes. */
bool oom_conds_hold_at(const struct oom_tape *t, const uint64_t *mono, uint64_t b, uint64_t s,
		       uint64_t tgt);

#endif
