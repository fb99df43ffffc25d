/* A model's config.json as flat keys with positions.
 *
 * Nested objects are joined by dots ("text_config.hidden_size"), list elements are numbered
 * ("layer_types.0").  The reader (planner/input/config.c) makes them; models/ only looks keys up, so that
 * the cost model knows no JSON. */
#ifndef OOMPLAN_CONFIG_H
#define OOMPLAN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_key_type {
	OOM_KEY_NULL,
	OOM_KEY_BOOL,
	OOM_KEY_NUMBER,
	OOM_KEY_STRING,
	OOM_KEY_LIST,
	OOM_KEY_OBJECT
};

struct oom_key {
	const char *path;       /* owned by the oom_keys it stands in */
	const char *string;     /* STRING only */
	double number;          /* NUMBER, and BOOL as 0 or 1 */
	uint32_t n_items;       /* LIST, OBJECT: direct elements */
	uint32_t line;          /* 1-based; 0 = unknown */
	enum oom_key_type type;
};

/* All keys of one file, sorted by path (strcmp order).  Owned by whoever called oom_keys_read*. */
struct oom_keys {
	struct oom_key *items;
	size_t n;
	const char *file;       /* for messages; owned */
	void *arena;            /* private */
};

/* Reads a config.json: a path, a folder that holds one, "-" for standard input.  Files above 64
 * MiB, nesting above 1000, more than 2 000 000 values and anything that is not a JSON object are
 * refused (OOM_ERR_PARSE) with line and column; OOM_ERR_IO when it cannot be read.  As in Python's
 * json module, the last of two equal keys wins and NaN and Infinity are numbers: check with
 * isfinite(). */
OOM_API enum oom_status oom_keys_read(struct oom_keys *out, const char *path,
				      struct oom_error *err);
/* The same from memory; name is used in messages. */
OOM_API enum oom_status oom_keys_parse(struct oom_keys *out, const char *text, size_t size,
				       const char *name, struct oom_error *err);
/* A model by any word a user may say: a config.json, a folder holding one, "-", or the name of a
 * bundled model. */
OOM_API enum oom_status oom_keys_read_model(struct oom_keys *out, const char *word,
					    struct oom_error *err);
/* Where the model of a hub id (or a path, also beside the file `beside` that names it; may be NULL)
 * lies: a bundled name, a folder of models (may be NULL), the local hub cache (HF_HUB_CACHE, HF_HOME,
 * ~/.cache/huggingface), a bundled model of the same shape (data/model_ids.csv).  Writes a word for oom_keys_read_model; OOM_ERR_UNKNOWN says which file to
 * fetch. */
OOM_API enum oom_status oom_model_locate(const char *id, const char *beside, const char *models_dir,
					 char *buf, size_t size, struct oom_error *err);
/* What another program's file calls the model that a user calls `word`: the hub id of a bundled model
 * and of a config.json that names one (_name_or_path), a folder that holds a config.json, a hub id as
 * it stands.  Into buf; NULL where only a config is known. */
OOM_API const char *oom_model_called(const char *word, char *buf, size_t size);
/* Bundled models: the i-th name (written into buf), or NULL past the end. */
OOM_API const char *oom_bundled_model(size_t i, char *buf, size_t size);
/* Accepts zeroed and NULL. */
OOM_API void oom_keys_release(struct oom_keys *keys);
/* The key, or NULL.  Takes log2(n) string comparisons. */
OOM_API const struct oom_key *oom_keys_find(const struct oom_keys *keys, const char *path);

/* A sentence, static, when the object is well-formed JSON of another kind (tokenizer_config.json,
 * the index of a checkpoint, a DeepSpeed config, ...): what it is and what to give instead.  NULL
 * when it may be a model's config. */
OOM_API const char *oom_keys_kind_hint(const struct oom_keys *keys);

/* Defaults of a model type for keys a config.json leaves out, from the table embedded at build time
 * (data/model_types.jsonl, read from transformers' configuration classes).  OOM_ERR_UNKNOWN when
 * the type is not in the table.  Keys:
 *   defaults.KEY           the class's own default under the class's own name (gpt2:
 *   defaults.n_embd);
 *                          null: computed from other keys, or off.  Without defaults.num_labels: 2.
 *   defaults.SUB.KEY       where the sub config SUB of this class starts from other values than its
 *                          own type's; valid only when SUB is absent as a whole
 *   aliases.OTHER          another name -> the one to look up: aliases.n_embd = "hidden_size".
 *   Both
 *                          files and the defaults above may use either.
 *   architectures.TASK     class name for base, causal-lm, masked-lm, seq2seq, seq-cls, image-cls,
 *                          speech-seq2seq, image-text
 *   as                     of a type whose code lies in its models' repositories: the type of transformers
 *                          whose layers it has; only.KEY: as long as the config has that value
 *   sub_configs.SUB        model type of the sub config SUB; "" when it has none, and then
 *                          defaults.SUB.* are its defaults always */
OOM_API enum oom_status oom_keys_defaults(struct oom_keys *out, const char *model_type,
					  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
