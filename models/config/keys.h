/* Config keys as rows: which key fills which field, and what a silent config means.
 *
 *     static const struct oom_key_row mpt_keys[] = {
 *             MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), LIKE(d_ff, NULL, 4, d_model),
 *             REAL(attn_dropout, "attn_config.attn_pdrop", 0), FLAG(tie, "tie_word_embeddings", true),
 *             FLAG_OWN(struct mpt, clip, "attn_config.clip_qkv", false),
 *             OOM_KEYS_END};
 *
 * Rows are read in order, so a row may lean on a field of an earlier one.  Where the config says
 * nothing, the defaults of the model type (data/model_types.jsonl) come first, then the row's.  What
 * fits no row (ranges between keys, lists, warnings) is left to the family's parse, which runs after
 * the rows.  The macros check at compile time that the field is of the row's type. */
#ifndef OOM_KEYS_H
#define OOM_KEYS_H

#include <stddef.h>

#include "config/arch.h"

enum oom_key_kind {
	OOM_KEY_ROW_END,
	OOM_KEY_ROW_COUNT,      /* uint64_t; missing is an error */
	OOM_KEY_ROW_COUNT_OR,   /* uint64_t, else def */
	OOM_KEY_ROW_LIKE,       /* uint64_t, else def times the field at `like` */
	OOM_KEY_ROW_QUOTIENT,   /* uint64_t, else the field at `like` over the one at `over` */
	OOM_KEY_ROW_FLAG,       /* bool, else def */
	OOM_KEY_ROW_REAL,       /* double, else def */
	OOM_KEY_ROW_ACT,        /* enum oom_act, else word */
};
struct oom_key_row {
	const char *key;        /* NULL: no key, the default alone */
	const char *word;
	double def;
	uint16_t to, like, over;        /* offsets in struct oom_arch */
	uint16_t min;           /* least value of a count that the config gives */
	uint8_t kind;           /* enum oom_key_kind */
};

/* The offset in struct oom_arch of a field of it, or of a family's own struct S within it. */
#define OOM_KEY_AT(S, field, type) \
	((uint16_t)(_Generic((S *)NULL, struct oom_arch *: 0, default: offsetof(struct oom_arch, own)) + \
		    offsetof(S, field) + \
		    0 * sizeof(char[_Generic(((S *)NULL)->field, type: 1, default: -1)])))

/* The config or the type's defaults must have it: at least 1 (MUST0: 0). */
#define MUST_OWN(S, field, word) \
	{.key = word, .kind = OOM_KEY_ROW_COUNT, .min = 1, .to = OOM_KEY_AT(S, field, uint64_t)}
#define MUST0_OWN(S, field, word) \
	{.key = word, .kind = OOM_KEY_ROW_COUNT, .to = OOM_KEY_AT(S, field, uint64_t)}
/* A count, else a number. */
#define OR_OWN(S, field, word, number) \
	{.key = word, .kind = OOM_KEY_ROW_COUNT_OR, .def = number, \
	 .to = OOM_KEY_AT(S, field, uint64_t)}
/* A count, else so many times another field of struct oom_arch. */
#define LIKE_OWN(S, field, word, times, other) \
	{.key = word, .kind = OOM_KEY_ROW_LIKE, .def = times, \
	 .to = OOM_KEY_AT(S, field, uint64_t), \
	 .like = OOM_KEY_AT(struct oom_arch, other, uint64_t)}
/* A count, else one field of struct oom_arch over another (0 when that is 0). */
#define QUOTIENT_OWN(S, field, word, a, b) \
	{.key = word, .kind = OOM_KEY_ROW_QUOTIENT, .min = 1, \
	 .to = OOM_KEY_AT(S, field, uint64_t), \
	 .like = OOM_KEY_AT(struct oom_arch, a, uint64_t), \
	 .over = OOM_KEY_AT(struct oom_arch, b, uint64_t)}
#define FLAG_OWN(S, field, word, yes) \
	{.key = word, .kind = OOM_KEY_ROW_FLAG, .def = yes, .to = OOM_KEY_AT(S, field, bool)}
#define REAL_OWN(S, field, word, number) \
	{.key = word, .kind = OOM_KEY_ROW_REAL, .def = number, .to = OOM_KEY_AT(S, field, double)}
#define ACT_OWN(S, field, name, otherwise) \
	{.key = name, .word = otherwise, .kind = OOM_KEY_ROW_ACT, \
	 .to = OOM_KEY_AT(S, field, enum oom_act)}

/* The same for fields of struct oom_arch. */
#define MUST(field, word) MUST_OWN(struct oom_arch, field, word)
#define MUST0(field, word) MUST0_OWN(struct oom_arch, field, word)
#define OR(field, word, number) OR_OWN(struct oom_arch, field, word, number)
#define LIKE(field, word, times, other) LIKE_OWN(struct oom_arch, field, word, times, other)
#define QUOTIENT(field, word, a, b) QUOTIENT_OWN(struct oom_arch, field, word, a, b)
#define FLAG(field, word, yes) FLAG_OWN(struct oom_arch, field, word, yes)
#define REAL(field, word, number) REAL_OWN(struct oom_arch, field, word, number)
#define ACT(field, name, otherwise) ACT_OWN(struct oom_arch, field, name, otherwise)
#define OOM_KEYS_END {.kind = OOM_KEY_ROW_END}

/* What nearly every decoder reads under these words. */
#define OOM_DECODER_KEYS \
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), \
		MUST(n_layers, "num_hidden_layers"), MUST(n_heads, "num_attention_heads")
/* Grouped heads of a width that may be the config's own. */
#define OOM_GROUPED_KEYS \
	{.key = "num_key_value_heads", .kind = OOM_KEY_ROW_LIKE, .def = 1, .min = 1, \
	 .to = OOM_KEY_AT(struct oom_arch, n_kv_heads, uint64_t), \
	 .like = OOM_KEY_AT(struct oom_arch, n_heads, uint64_t)}, \
		QUOTIENT(head_dim, "head_dim", d_model, n_heads)

/* Biases of all four projections of an attention. */
#define OOM_BIAS_KEYS(yes) \
	FLAG(qkv_bias, "attention_bias", yes), FLAG(o_bias, "attention_bias", yes)
/* What most decoders have beside their sizes. */
#define OOM_USUAL_KEYS \
	OR(max_positions, "max_position_embeddings", 0), FLAG(tie, "tie_word_embeddings", false), \
		REAL(attn_dropout, "attention_dropout", 0)

/* Reads every row.  Where no row filled them, n_kv_heads becomes n_heads and head_dim
 * d_model / n_heads.  Failures are left in the reader, as those of oom_read_count are. */
void oom_read_rows(struct oom_arch *a, const struct oom_key_row *rows);

/* Fails where the heads do not divide the width. */
void oom_check_heads(struct oom_arch *a);
/* A sentence that the answer says beside its numbers, after those before it. */
void oom_warn(struct oom_arch *a, const char *fmt, ...) OOM_PRINTF(2, 3);
/* Warns that the type is counted in the form that PyTorch runs without these kernels; with: "it" or "them". */
void oom_warn_kernels(struct oom_arch *a, const char *without, const char *with);
/* Fails where a token would go to more experts than there are. */
void oom_check_experts(struct oom_arch *a);

/* Whether element i of a list is this word; silent: where there is no such element. */
bool oom_read_says(struct oom_arch *a, const char *key, uint64_t i, const char *word, bool silent);
/* Whether the key is a list; whether the list has the number i in it. */
bool oom_read_listed(struct oom_arch *a, const char *key);
bool oom_read_lists(struct oom_arch *a, const char *key, uint64_t i);
/* The share of a head that is rotated: rope_parameters' own word, else partial_rotary_factor, else `silent`. */
double oom_read_rotary(struct oom_arch *a, double silent);
/* sliding_window as a number of tokens: 0 where it is none. */
uint64_t oom_read_sliding(struct oom_arch *a);

/* Sets `bit` in kind[] of every period-th layer from the offset on, both of them keys; whether there
 * is such a layer. */
bool oom_read_every(struct oom_arch *a, const char *period, const char *offset, uint8_t bit);

#endif
