/* What a config says that its weights are stored in: dtype, or torch_dtype as it was called before transformers
 * 4.56 (configuration_utils.py __init__ reads both). */
#include <stdio.h>
#include <string.h>

#include "families/model.h"

static const struct oom_key *find(const struct oom_model *m, const char *part, const char *key)
{
	char path[200];
	const struct oom_key *k;

	snprintf(path, sizeof(path), "%s%s%s", m->prefix, part, key);
	k = oom_keys_find(m->keys, path);
	return k && k->type == OOM_KEY_STRING && *k->string ? k : NULL;
}

void oom_model_read_stored(struct oom_model *m)
{
	static const struct {
		const char *word;
		enum oom_precision is;
	} words[] = {{"float32", OOM_FP32}, {"float", OOM_FP32}, {"bfloat16", OOM_BF16},
		     {"float16", OOM_FP16}, {"half", OOM_FP16}};
	/* a composition of models says it for its parts alike, where not for itself */
	static const char *const parts[] = {"", "text_config."};
	const struct oom_key *k = NULL;
	const char *word;

	m->stored = OOM_AUTO_PRECISION;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !k; i++) {
		k = find(m, parts[i], "dtype");
		if (!k)
			k = find(m, parts[i], "torch_dtype");
	}
	if (!k)
		return;
	word = strncmp(k->string, "torch.", 6) ? k->string : k->string + 6;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(word, words[i].word))
			m->stored = words[i].is;
}
