/* A bundled model by what people and folders call it: "llama-2-7b-hf", "Qwen.Qwen2.5-7B-Instruct", "llama3 8B".  Private to
 * planner/. */
#ifndef OOM_INPUT_MODEL_SPOKEN_H
#define OOM_INPUT_MODEL_SPOKEN_H

#include <stdbool.h>
#include <stddef.h>

/* What bundled models are called, read once: a text has many words. */
struct oom_spoken_name {
	char letters[48];       /* the name's letters and digits */
	char bundled[64];
};
struct oom_spoken_models {
	struct oom_spoken_name *items;
	size_t n, room;
};
/* Zero-initialise; without memory it knows fewer. */
void oom_spoken_load(struct oom_spoken_models *m);
void oom_spoken_release(struct oom_spoken_models *m);

struct oom_model_spoken {
	char bundled[64];       /* a word for oom_keys_read_model */
	/* the name says more than the bundled model's: what it is of it is taken to have the same shape */
	bool alike;
};
/* By the last part of a path or an id, or by words as they are spoken.  False: it is none of them. */
bool oom_model_spoken(const struct oom_spoken_models *m, const char *words, size_t n, struct oom_model_spoken *out);

#endif
