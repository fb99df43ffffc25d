/* A model's config.json as flat keys with their positions in the file.
 *
 * The levels of nested objects are joined by dots ("text_config.hidden_size"), and list elements are
 * numbered ("layer_types.0").  planner/input/config.c reads them; models/ only looks keys up, so the cost
 * model knows nothing of JSON. */
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
	const char *path;       /* owned by the oom_keys that contains it */
	const char *string;     /* STRING only */
	double number;          /* NUMBER, and BOOL as 0 or 1 */
	uint32_t n_items;       /* LIST, OBJECT: direct elements */
	uint32_t line;          /* 1-based; 0 = unknown */
	enum oom_key_type type;
};

/* All keys of one file, sorted by path (strcmp order).  The caller of oom_keys_read* owns them and calls
 * oom_keys_release. */
struct oom_keys {
	struct oom_key *items;
	size_t n;
	const char *file;       /* for messages; owned */
	void *arena;            /* private */
};

/* Reads a config.json, given as a path, a folder that holds one, or "-" for standard input.  OOM_ERR_PARSE,
 * with line and column: the file is larger than 64 MiB, nested more than 1000 levels deep, has more than
 * 2,000,000 values, or is not a JSON object.  OOM_ERR_IO: it cannot be read.  As in Python's json module,
 * the last of two equal keys wins, and NaN and Infinity are numbers: check with isfinite(). */
OOM_API enum oom_status oom_keys_read(struct oom_keys *out, const char *path,
				      struct oom_error *err);
/* The same for a text in memory; name is used in messages.  OOM_ERR_PARSE. */
OOM_API enum oom_status oom_keys_parse(struct oom_keys *out, const char *text, size_t size,
				       const char *name, struct oom_error *err);
/* Reads a model by any word that a user may give: a config.json, a folder that holds one, "-", or the name
 * of a bundled model.  OOM_ERR_UNKNOWN: it is none of these, and the text names the nearest; otherwise it fails as
 * oom_keys_read does. */
OOM_API enum oom_status oom_keys_read_model(struct oom_keys *out, const char *word,
					    struct oom_error *err);
/* Finds a model by its hub id or path and writes a word for oom_keys_read_model into buf.  It is looked for
 * as a path (also relative to the file `beside` that names it, which may be NULL), among the bundled names,
 * in models_dir (may be NULL), in the local hub cache (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface), and
 * among bundled models of the same shape (data/model_ids.csv).  The text of OOM_ERR_UNKNOWN says which file
 * to fetch. */
OOM_API enum oom_status oom_model_locate(const char *id, const char *beside, const char *models_dir,
					 char *buf, size_t size, struct oom_error *err);
/* Writes into buf what the file of a training framework should call the model that a user calls `word`: the
 * hub id of a bundled model or of a config.json that names one (_name_or_path), the folder of a
 * config.json, or a hub id as it is.  NULL if only a config is known. */
OOM_API const char *oom_model_called(const char *word, char *buf, size_t size);
/* Writes the name of the i-th bundled model into buf; NULL past the end. */
OOM_API const char *oom_bundled_model(size_t i, char *buf, size_t size);
/* Frees the keys.  A zeroed struct and NULL are accepted. */
OOM_API void oom_keys_release(struct oom_keys *keys);
/* The key with this path, or NULL.  It takes log2(n) string comparisons. */
OOM_API const struct oom_key *oom_keys_find(const struct oom_keys *keys, const char *path);

/* If the object is well-formed JSON of another kind (tokenizer_config.json, a checkpoint's index, a
 * DeepSpeed config, ...), a static sentence that says what it is and what to give instead.  NULL if it may
 * be a model's config. */
OOM_API const char *oom_keys_kind_hint(const struct oom_keys *keys);

/* Defaults of a model type for keys that a config.json leaves out, from a table that is part of the library
 * (data/model_types.jsonl, read from transformers' configuration classes).  OOM_ERR_UNKNOWN if the type is
 * not in the table.  Keys:
 *   defaults.KEY           the class's own default under the class's own name (gpt2: defaults.n_embd); null:
 *                          computed from other keys, or off.  Without defaults.num_labels it is 2.
 *   defaults.SUB.KEY       where this class gives its sub-config SUB other defaults than SUB's own type has;
 *                          valid only if SUB is absent as a whole
 *   aliases.OTHER          another name -> the one to look up: aliases.n_embd = "hidden_size".  Files and
 *                          the defaults above may use either.
 *   architectures.TASK     class name for base, causal-lm, masked-lm, seq2seq, seq-cls, image-cls,
 *                          speech-seq2seq, image-text
 *   as                     for a type whose code is in its models' repositories: the type of transformers
 *                          that has the same layers; only.KEY: if the config has that value
 *   sub_configs.SUB        the model type of the sub-config SUB; "" if it has none, in which case
 *                          defaults.SUB.* always apply */
OOM_API enum oom_status oom_keys_defaults(struct oom_keys *out, const char *model_type,
					  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
