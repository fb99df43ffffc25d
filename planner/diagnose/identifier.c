/* What a name of a function says about what it does: its words, however they are joined.
 *
 * "compute_prompt_logprobs", "PolicyWorker.trainStep", "jit_fused_w2_backward": programmers name functions
 * after the phase they belong to, and a name's verb outlives every release. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

enum { MOST_WORDS = 16, WORD = 24 };

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

/* The words of a name in lower case: at underscores, dots, digits and humps. */
static size_t words_of(const char *p, const char *end, char words[MOST_WORDS][WORD])
{
	size_t n = 0, used = 0;

	for (; p < end; p++) {
		const bool hump = upper(*p) && used && !upper(p[-1]);

		if (!letter(*p) || hump) {
			if (used)
				words[n++][used] = 0;
			used = 0;
			if (n == MOST_WORDS)
				return n;
		}
		if (letter(*p) && used + 1 < WORD)
			words[n][used++] = (char)(upper(*p) ? *p - 'A' + 'a' : *p);
	}
	if (used)
		words[n++][used] = 0;
	return n;
}

/* Up to the "and" of what is done one after the other: an outer frame's "quantize_and_save" may be at either. */
static size_t first_words_of(const char *p, const char *end, char words[MOST_WORDS][WORD])
{
	const size_t n = words_of(p, end, words);

	for (size_t i = 1; i < n; i++)
		if (!strcmp(words[i], "and"))
			return i;
	return n;
}

/* "~": the beginning of a word. In order: a name of an evaluation that generates is an
 * evaluation's, one that loads a data set is of the data. */
static const struct {
	const char *word;
	enum oom_crash_phase phase;
	const char *not_with;   /* other words that change its sense, between blanks */
} senses[] = {
	{"backward", OOM_CRASH_BACKWARD, NULL}, {"bwd", OOM_CRASH_BACKWARD, NULL}, {"backprop", OOM_CRASH_BACKWARD, NULL},
	{"collate", OOM_CRASH_DATA, NULL}, {"dataloader", OOM_CRASH_DATA, NULL}, {"dataset", OOM_CRASH_DATA, NULL},
	{"getitem", OOM_CRASH_DATA, NULL}, {"preprocess", OOM_CRASH_DATA, NULL}, {"augment", OOM_CRASH_DATA, NULL},
	{"save", OOM_CRASH_SAVE, "load backward evaluate eval"}, {"saving", OOM_CRASH_SAVE, NULL}, {"~evaluat", OOM_CRASH_EVAL, "train save"},
	{"eval", OOM_CRASH_EVAL, "frame jaxpr shape context mx train"}, {"~validat", OOM_CRASH_EVAL, "python args config environment train"},
	{"val", OOM_CRASH_EVAL, "train"},
	/* a mixture's loss is of the load of its experts */
	{"load", OOM_CRASH_LOAD, "data balancing balance"}, {"loading", OOM_CRASH_LOAD, "data"},
	/* who runs through a loader reads nothing with it: "run_loader", "iterate_loader" */
	{"loader", OOM_CRASH_LOAD, "data run loop iterate over batch batches epoch next"},
	{"pretrained", OOM_CRASH_LOAD, NULL},
	{"~instantiat", OOM_CRASH_INIT, NULL}, {"~initializ", OOM_CRASH_INIT, NULL}, {"warmup", OOM_CRASH_INIT, "sched allocator epoch step steps train"},
	{"capture", OOM_CRASH_INIT, NULL}, {"profile", OOM_CRASH_INIT, NULL},
	/* an engine runs a batch of nothing before it serves: "_dummy_run", "dummy_sampler_run" */
	{"dummy", OOM_CRASH_INIT, "loss input inputs tokens"},
	{"train", OOM_CRASH_TRAIN_STEP, NULL}, {"training", OOM_CRASH_TRAIN_STEP, NULL}, {"finetune", OOM_CRASH_TRAIN_STEP, NULL}, {"learn", OOM_CRASH_TRAIN_STEP, NULL}, {"retrain", OOM_CRASH_TRAIN_STEP, NULL},
	{"optimizer", OOM_CRASH_OPTIMIZER, "init"}, {"adamw", OOM_CRASH_OPTIMIZER, NULL},
	{"prefill", OOM_CRASH_INFERENCE, NULL}, {"~generat", OOM_CRASH_INFERENCE, "data qkv mask anchor anchors proposal proposals position grid points noise square labels targets generator"}, {"decode", OOM_CRASH_INFERENCE, NULL},
	{"~sampl", OOM_CRASH_INFERENCE, NULL}, {"~infer", OOM_CRASH_INFERENCE, NULL}, {"~predict", OOM_CRASH_INFERENCE, NULL},
	{"~transcrib", OOM_CRASH_INFERENCE, NULL}, {"~diariz", OOM_CRASH_INFERENCE, NULL}, {"~denois", OOM_CRASH_INFERENCE, NULL}, {"rollout", OOM_CRASH_INFERENCE, "sync"},
	{"completion", OOM_CRASH_INFERENCE, NULL}, {"completions", OOM_CRASH_INFERENCE, NULL}, {"upscale", OOM_CRASH_INFERENCE, NULL},
	{"embeddings", OOM_CRASH_INFERENCE, "input output position resize tie init tokens patch"}, {"extract", OOM_CRASH_INFERENCE, NULL},
	{"compile", OOM_CRASH_COMPILE, NULL}, {"compiling", OOM_CRASH_COMPILE, NULL}, {"compilation", OOM_CRASH_COMPILE, NULL}, {"autotune", OOM_CRASH_COMPILE, NULL},
	{"forward", OOM_CRASH_FORWARD, NULL}, {"fwd", OOM_CRASH_FORWARD, NULL}, {"~attention", OOM_CRASH_FORWARD, NULL},
	{"attn", OOM_CRASH_FORWARD, NULL}, {"logits", OOM_CRASH_FORWARD, NULL}, {"logprobs", OOM_CRASH_FORWARD, NULL}, {"logps", OOM_CRASH_FORWARD, NULL},
	{"loss", OOM_CRASH_FORWARD, NULL}, {"unembed", OOM_CRASH_FORWARD, NULL},
};

static bool is(const char *word, const char *sense)
{
	return *sense == '~' ? !strncmp(word, sense + 1, strlen(sense + 1)) : !strcmp(word, sense);
}

/* One of several words between blanks. */
static bool any_among(char words[MOST_WORDS][WORD], size_t n, const char *list)
{
	for (size_t i = 0; i < n; i++) {
		const size_t k = strlen(words[i]);

		for (const char *p = list; (p = strstr(p, words[i])); p += k)
			if ((p == list || p[-1] == ' ') && (!p[k] || p[k] == ' '))
				return true;
	}
	return false;
}

static bool among(char words[MOST_WORDS][WORD], size_t n, const char *sense)
{
	for (size_t i = 0; i < n; i++)
		if (is(words[i], sense))
			return true;
	return false;
}

bool oom_identifier_has(const char *name, const char *end, const char *beginning)
{
	char words[MOST_WORDS][WORD];
	const size_t n = first_words_of(name, end, words);

	for (size_t i = 0; i < n; i++)
		if (!strncmp(words[i], beginning, strlen(beginning)))
			return true;
	return false;
}

enum oom_crash_phase oom_identifier_phase(const char *name, const char *end)
{
	char words[MOST_WORDS][WORD];
	const size_t n = first_words_of(name, end, words);

	/* a training's, over its validation set */
	if (among(words, n, "~predict") && among(words, n, "epoch"))
		return OOM_CRASH_EVAL;
	for (size_t i = 0; i < sizeof(senses) / sizeof(senses[0]); i++)
		if (among(words, n, senses[i].word) &&
		    !(senses[i].not_with && any_among(words, n, senses[i].not_with)))
			return senses[i].phase;
	if (among(words, n, "init") && among(words, n, "model"))
		return OOM_CRASH_INIT;
	/* "train_step", "grad_step", "update_policy" */
	if ((among(words, n, "step") && among(words, n, "grad")) ||
	    (among(words, n, "update") && (among(words, n, "policy") || among(words, n, "actor") ||
					   among(words, n, "critic"))))
		return OOM_CRASH_TRAIN_STEP;
	if (among(words, n, "prompt") && among(words, n, "step"))
		return OOM_CRASH_INFERENCE;
	/* "init_device", "_init_weights"; every class has an __init__, and a kernel's "_init_handles" is its launch */
	if (n > 1 && among(words, n, "init") && !among(words, n, "handles"))
		return OOM_CRASH_INIT;
	/* "get_weight", "create_weights", "load_weight" of a layer */
	if ((among(words, n, "weight") || among(words, n, "weights")) &&
	    (among(words, n, "get") || among(words, n, "create") || among(words, n, "make") || among(words, n, "pack")))
		return OOM_CRASH_LOAD;
	/* "backload_to_gpu", "move_to_device" */
	if (among(words, n, "to") && (among(words, n, "gpu") || among(words, n, "cuda") || among(words, n, "device")))
		return OOM_CRASH_TO_DEVICE;
	/* "create_model", "build_model_and_tokenizer" */
	if (among(words, n, "model") && (among(words, n, "create") || among(words, n, "build") || among(words, n, "make")))
		return OOM_CRASH_INIT;
	/* "cache_latents", "cache_text_encoder_outputs": what a training reads later is made before it */
	if (among(words, n, "cache") && (among(words, n, "latents") || among(words, n, "outputs") || among(words, n, "images")))
		return OOM_CRASH_DATA;
	/* what a data loader's thread does with a batch */
	if (among(words, n, "pin") && among(words, n, "memory"))
		return OOM_CRASH_DATA;
	/* the loop of a server: "_process_engine_step", "run_busy_loop" */
	if ((among(words, n, "engine") && among(words, n, "step")) ||
	    (among(words, n, "busy") && among(words, n, "loop")))
		return OOM_CRASH_INFERENCE;
	return OOM_CRASH_UNKNOWN;
}

bool oom_phase_settle(struct oom_crash *c, enum oom_crash_phase phase, double confidence, const char *why)
{
	c->phase = phase;
	c->phase_confidence = confidence;
	snprintf(c->phase_evidence, sizeof(c->phase_evidence), "%s", why);
	return true;
}
