/* What a name of a function says about what it does: its words, however they are joined.
 *
 * "compute_prompt_logprobs", "PolicyWorker.trainStep", "jit_fused_w2_backward": programmers name functions
 * after the phase they belong to, and a name's verb outlives every release. */
#include <stdio.h>
#include <string.h>

#include "parts.h"

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

/* "~": the beginning of a word. In order: a name of an evaluation that generates is an
 * evaluation's, one that loads a data set is of the data. */
static const struct {
	const char *word;
	enum oom_crash_phase phase;
	const char *not_with;   /* another word that changes its sense */
} senses[] = {
	{"backward", OOM_CRASH_BACKWARD, NULL}, {"bwd", OOM_CRASH_BACKWARD, NULL}, {"backprop", OOM_CRASH_BACKWARD, NULL},
	{"collate", OOM_CRASH_DATA, NULL}, {"dataloader", OOM_CRASH_DATA, NULL}, {"dataset", OOM_CRASH_DATA, NULL},
	{"getitem", OOM_CRASH_DATA, NULL}, {"preprocess", OOM_CRASH_DATA, NULL}, {"augment", OOM_CRASH_DATA, NULL},
	{"save", OOM_CRASH_SAVE, "load"}, {"saving", OOM_CRASH_SAVE, NULL}, {"~evaluat", OOM_CRASH_EVAL, NULL},
	{"eval", OOM_CRASH_EVAL, "frame"}, {"~validat", OOM_CRASH_EVAL, NULL}, {"val", OOM_CRASH_EVAL, NULL},
	{"load", OOM_CRASH_LOAD, "data"}, {"loading", OOM_CRASH_LOAD, "data"}, {"loader", OOM_CRASH_LOAD, "data"}, {"pretrained", OOM_CRASH_LOAD, NULL},
	{"~instantiat", OOM_CRASH_INIT, NULL}, {"~initializ", OOM_CRASH_INIT, NULL}, {"warmup", OOM_CRASH_INIT, "sched"},
	{"capture", OOM_CRASH_INIT, NULL},
	{"train", OOM_CRASH_TRAIN_STEP, NULL}, {"training", OOM_CRASH_TRAIN_STEP, NULL}, {"finetune", OOM_CRASH_TRAIN_STEP, NULL},
	{"optimizer", OOM_CRASH_OPTIMIZER, "init"}, {"adamw", OOM_CRASH_OPTIMIZER, NULL},
	{"prefill", OOM_CRASH_INFERENCE, NULL}, {"~generat", OOM_CRASH_INFERENCE, "data"}, {"decode", OOM_CRASH_INFERENCE, NULL},
	{"~sampl", OOM_CRASH_INFERENCE, NULL}, {"~infer", OOM_CRASH_INFERENCE, NULL}, {"~predict", OOM_CRASH_INFERENCE, NULL},
	{"~transcrib", OOM_CRASH_INFERENCE, NULL}, {"~denois", OOM_CRASH_INFERENCE, NULL}, {"rollout", OOM_CRASH_INFERENCE, NULL},
	{"completion", OOM_CRASH_INFERENCE, NULL}, {"completions", OOM_CRASH_INFERENCE, NULL}, {"upscale", OOM_CRASH_INFERENCE, NULL},
	{"compile", OOM_CRASH_COMPILE, NULL}, {"compiling", OOM_CRASH_COMPILE, NULL}, {"compilation", OOM_CRASH_COMPILE, NULL}, {"autotune", OOM_CRASH_COMPILE, NULL},
	{"forward", OOM_CRASH_FORWARD, NULL}, {"fwd", OOM_CRASH_FORWARD, NULL}, {"~attention", OOM_CRASH_FORWARD, NULL},
	{"attn", OOM_CRASH_FORWARD, NULL}, {"logits", OOM_CRASH_FORWARD, NULL}, {"logprobs", OOM_CRASH_FORWARD, NULL},
	{"loss", OOM_CRASH_FORWARD, NULL},
};

static bool is(const char *word, const char *sense)
{
	return *sense == '~' ? !strncmp(word, sense + 1, strlen(sense + 1)) : !strcmp(word, sense);
}

static bool among(char words[MOST_WORDS][WORD], size_t n, const char *sense)
{
	for (size_t i = 0; i < n; i++)
		if (is(words[i], sense))
			return true;
	return false;
}

enum oom_crash_phase oom_identifier_phase(const char *name, const char *end)
{
	char words[MOST_WORDS][WORD];
	const size_t n = words_of(name, end, words);

	for (size_t i = 0; i < sizeof(senses) / sizeof(senses[0]); i++)
		if (among(words, n, senses[i].word) &&
		    !(senses[i].not_with && among(words, n, senses[i].not_with)))
			return senses[i].phase;
	/* "train_step", "grad_step", "update_policy" */
	if ((among(words, n, "step") && among(words, n, "grad")) ||
	    (among(words, n, "update") && (among(words, n, "policy") || among(words, n, "actor") ||
					   among(words, n, "critic"))))
		return OOM_CRASH_TRAIN_STEP;
	return OOM_CRASH_UNKNOWN;
}

bool oom_phase_settle(struct oom_crash *c, enum oom_crash_phase phase, double confidence, const char *why)
{
	c->phase = phase;
	c->phase_confidence = confidence;
	snprintf(c->phase_evidence, sizeof(c->phase_evidence), "%s", why);
	return true;
}

/* ---- names of functions ---- */

static bool name_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '_';
}

static const char *name_end(const char *p, const char *end)
{
	while (p < end && (name_char(*p) || *p == '.'))
		p++;
	return p;
}

static bool by_name(struct oom_crash *c, const char *name, const char *stop, double confidence)
{
	const enum oom_crash_phase phase = oom_identifier_phase(name, stop);
	char why[80];

	if (phase == OOM_CRASH_UNKNOWN)
		return false;
	snprintf(why, sizeof(why), "the function \"%.*s\"",
		 (int)(stop - name < 48 ? stop - name : 48), name);
	return oom_phase_settle(c, phase, confidence, why);
}

/* XLA names what it compiled after the function: "executable_name='jit_train_step'",
 * "jit(train_step)" */
bool oom_phase_by_executable(struct oom_crash *c, const char *line, const char *end)
{
	static const char *const marks[] = {"executable_name='", "jit(", "pjit(", "pmap(", "jit_"};

	if (strcmp(c->framework, "jax") && strcmp(c->framework, "torch-xla"))
		return false;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *p = oom_text_find(line, end, marks[i]);

		if (p && by_name(c, p + strlen(marks[i]), name_end(p + strlen(marks[i]), end), 0.8))
			return true;
	}
	return false;
}

/* What a frame's function is called: "..., in NAME", "x.py in NAME(", "a.py:12 NAME",
 * "Class.method". */
static const char *function_of(const char *line, const char *stop)
{
	static const char *const marks[] = {", in ", ".py in ", "-> ", "::"};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *p = oom_text_find(line, stop, marks[i]);

		if (p && p + strlen(marks[i]) < stop && name_char(p[strlen(marks[i])]))
			return p + strlen(marks[i]);
	}
	return NULL;
}

/* The name of a frame's Python file, behind the last slash; NULL where there is none. */
static const char *file_of(const char *line, const char *stop)
{
	const char *const dot = oom_text_find(line, stop, ".py"), *p = dot;

	while (p && p > line && p[-1] != '/' && p[-1] != '\\')
		p--;
	return p && p > line ? p : NULL;
}

/* Frames from the innermost outwards: the first whose name says more than that it computes. A
 * frame's file speaks where its function does not: ".../_instantiate.py", ".../pin_memory.py". */
bool oom_phase_by_functions(struct oom_crash *c, const char *begin, const char *at)
{
	struct oom_crash leaf = {0};
	const char *from = oom_line_begin(begin, at);

	for (int n = 0; from > begin && n < 120; n++) {
		const char *const stop = from - 1;
		const char *name;

		from = oom_line_begin(begin, stop);
		name = function_of(from, stop);
		if (!name)
			continue;
		if (!by_name(c, name, name_end(name, stop), 0.7)) {
			const char *const file = file_of(from, stop);

			if (!file || !by_name(c, file, oom_text_find(file, stop, ".py"), 0.6))
				continue;
		}
		if (c->phase != OOM_CRASH_FORWARD)
			/* a forward pass inside a training step is the forward pass */
			return c->phase == OOM_CRASH_TRAIN_STEP && leaf.phase ?
				       oom_phase_settle(c, leaf.phase, 0.7, leaf.phase_evidence) :
				       true;
		if (!leaf.phase)
			leaf = *c;
	}
	if (leaf.phase)
		return oom_phase_settle(c, leaf.phase, 0.7, leaf.phase_evidence);
	oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
	return false;
}

/* Ray's table of the largest workers names their methods: "260.26 ray::WorkerDict.save_checkpoint" */
bool oom_phase_by_workers(struct oom_crash *c, const char *at, const char *end)
{
	const char *p = strcmp(c->format, "ray-oom") ? NULL : oom_text_find(at, end, "ray::");

	return p && by_name(c, p + 5, name_end(p + 5, end), 0.75);
}
