#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oomplan/gpu.h"
#include "question.h"

uint64_t roll(uint64_t *state, uint64_t sides)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % sides;
}

/* ---- the model ---- */

bool subject_open(struct subject *s, const char *type, const char *json)
{
	struct oom_error err = {""};
	FILE *f;
	int fd;

	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s", type);
	snprintf(s->path, sizeof(s->path), "/tmp/oomplan-property-XXXXXX.json");
	fd = mkstemps(s->path, 5);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		perror(s->path);
		exit(1);
	}
	fputs(json, f);
	fclose(f);
	s->ev = oom_evaluator_new();
	if (s->ev && !oom_keys_read(&s->keys, s->path, &err) && !oom_model_new(&s->model, &s->keys, &err))
		return true;
	subject_close(s);
	return false;
}

void subject_close(struct subject *s)
{
	oom_evaluator_free(s->ev);
	oom_model_free(s->model);
	oom_keys_release(&s->keys);
	unlink(s->path);
}

/* ---- the plan ---- */

void plan_adapt(struct oom_plan *plan, const struct subject *s)
{
	if (plan->lora_r && !plan->lora_targets[0])
		snprintf(plan->lora_targets, sizeof(plan->lora_targets), "%s",
			 oom_plan_lora_targets(plan, s->model));
}

bool question_plan(const struct question *q, const struct subject *s, struct oom_plan *plan)
{
	struct oom_error err = {""};

	*plan = oom_plan_default();
	for (size_t i = 0; i < q->n; i++)
		if (oom_plan_set(plan, q->set[i].knob, q->set[i].word, &err))
			return false;
	oom_plan_settle(plan);
	plan_adapt(plan, s);
	return true;
}

const char *question_word(const struct question *q, const char *knob)
{
	for (size_t i = 0; i < q->n; i++)
		if (!strcmp(q->set[i].knob->name, knob))
			return q->set[i].word;
	return NULL;
}

const char *question_options(const struct question *q, const struct subject *s, char *buf, size_t size)
{
	size_t at = (size_t)snprintf(buf, size, "--model %s --gpu '%s'", s->name, q->gpu->name);

	for (size_t i = 0; i < q->n && at < size; i++)
		at += (size_t)snprintf(buf + at, size - at, " --%s=%s", q->set[i].knob->name,
				       q->set[i].word);
	return buf;
}

static bool runs(const struct question *q, const struct subject *s)
{
	struct oom_error err = {""};
	struct oom_plan p;
	struct oom_eval e;

	return question_plan(q, s, &p) &&
	       !oom_evaluate(s->ev, s->model, &p, OOM_EVAL_FAST, &e, &err);
}

/* ---- drawing ---- */

static const struct oom_gpus *cards(void)
{
	static struct oom_gpus table;
	struct oom_error err = {""};

	if (!table.n && oom_gpus_load(&table, &err)) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return &table;
}

/* A word that the knob takes; false: words of this kind are not drawn. */
static bool draw_word(const struct oom_option *k, char *word, size_t size, uint64_t *state)
{
	static const char *const lengths[] = {"1", "64", "256", "384", "512", "1024", "2048"};
	static const char *const names[] = {"lm_head", "embed_tokens", "q_proj+v_proj", "all-linear", ".*proj",
					    "classifier+score", "0+1", "norm", "query+value", "wte"};
	size_t n = 0;

	switch (k->kind) {
	case OOM_OPTION_CHOICE:
		while (k->choice(n))
			n++;
		snprintf(word, size, "%s", k->choice(roll(state, n))->name);
		return true;
	case OOM_OPTION_FLAG:
		snprintf(word, size, "%s", roll(state, 2) ? "true" : "false");
		return true;
	case OOM_OPTION_COUNT:
		if (strstr(k->name, "-len"))
			snprintf(word, size, "%s", lengths[roll(state, 7)]);
		else if (k->max > 1e6 && k->min <= 0)   /* elements of a bucket */
			snprintf(word, size, "%llu", 1ull << roll(state, 28));
		else
			snprintf(word, size, "%.0f",
				 (k->min < 0 ? 0 : k->min) + (double)(roll(state, 2) ? roll(state, 12) :
								     1ull << roll(state, 4)));
		return true;
	case OOM_OPTION_REAL:
		snprintf(word, size, "%.2f", k->min + (k->max > 10 ? 4 : k->max - k->min) *
							      (double)roll(state, 50) / 100);
		return true;
	case OOM_OPTION_NAMES: snprintf(word, size, "%s", names[roll(state, 10)]); return true;
	default:
		return false;
	}
}

/* Sets a knob, unless it is set already or the program refuses it beside the others. */
static void try_word(struct question *q, const struct subject *s, const char *knob, const char *word)
{
	if (q->n == MOST_SETTINGS || question_word(q, knob))
		return;
	q->set[q->n].knob = oom_knob_find(knob);
	snprintf(q->set[q->n++].word, sizeof(q->set[0].word), "%s", word);
	if (!runs(q, s))
		q->n--;
}

/* Knobs that only mean something together; "*" is a word drawn for the knob. */
static const struct {
	const char *knob[4], *word[4];
} sets[] = {
	{{"gpus", "engine", "zero"}, {"2", "fsdp2", "3"}},
	{{"gpus", "engine", "zero"}, {"4", "fsdp1", "3"}},
	{{"gpus", "engine", "zero"}, {"8", "deepspeed", "3"}},
	{{"gpus", "engine", "zero"}, {"4", "deepspeed", "2"}},
	{{"gpus", "engine"}, {"2", "ddp"}},
	{{"gpus", "engine", "tp"}, {"4", "megatron", "2"}},
	{{"gpus", "engine", "pp", "tp"}, {"8", "megatron", "2", "2"}},
	{{"gpus", "engine"}, {"2", "device-map"}},
	{{"lora-r"}, {"8"}},
	{{"lora-r", "lora-targets"}, {"16", "all-linear"}},
	{{"lora-r", "qlora", "kbit-prepare"}, {"16", "true", "true"}},
	{{"objective", "lora-r"}, {"dpo", "8"}},
	{{"precision", "grad-ckpt", "attn"}, {"amp-bf16", "full", "flash"}},
	/* objectives */
	{{"objective", "reference"}, {"*", "*"}},
	{{"objective", "completion-len", "rollouts", "lora-r"}, {"*", "64", "*", "8"}},
	{{"objective", "rollouts", "vllm-gpu-memory-utilization", "vllm-sleep"}, {"grpo", "*", "0.30", "true"}},
	{{"objective", "texts", "texts-chunk"}, {"contrastive", "3", "2"}},
	{{"objective", "medusa-heads", "medusa-layers"}, {"medusa", "*", "*"}},
	{{"evaluates", "predict-with-generate", "eval-new-tokens", "eval-beams"}, {"yes", "true", "64", "2"}},
	/* losses */
	{{"loss", "liger-kernels"}, {"*", "true"}},
	{{"loss", "loss-chunk", "objective"}, {"*", "128", "*"}},
	{{"loss", "label-smoothing", "keep-outputs"}, {"*", "0.10", "*"}},
	/* adapters and what trains beside them */
	{{"peft-type", "lora-r", "lora-targets", "lora-bias"}, {"*", "8", "all-linear", "*"}},
	{{"peft-type", "num-virtual-tokens", "encoder-hidden-size"}, {"*", "20", "*"}},
	{{"lora-r", "modules-to-save", "trainable-tokens"}, {"8", "lm_head", "*"}},
	{{"lora-r", "use-dora", "lora-targets", "exclude-modules"}, {"4", "true", "all-linear", "*"}},
	{{"freeze", "train-last"}, {"*", "2"}},
	{{"freeze-vision-tower", "images", "freeze-projector"}, {"true", "1", "*"}},
	/* bases */
	{{"base-weights", "lora-r", "kbit-prepare", "peft-type"}, {"*", "8", "*", "*"}},
	{{"gpus", "engine", "base-weights", "lora-r"}, {"2", "*", "*", "8"}},
	/* what an update and its states do */
	{{"optimizer", "optimizer-in-backward", "ema"}, {"*", "true", "*"}},
	{{"engine", "offload-optimizer", "offload-params", "gpus"}, {"*", "*", "*", "2"}},
	{{"optimizer", "offload-gradients", "offload-activations"}, {"*", "*", "true"}},
};

static void draw_together(struct question *q, const struct subject *s, uint64_t *state)
{
	const size_t i = roll(state, sizeof(sets) / sizeof(sets[0]));
	char word[sizeof(q->set[0].word)];

	for (int k = 0; k < 4 && sets[i].knob[k]; k++) {
		snprintf(word, sizeof(word), "%s", sets[i].word[k]);
		if (*word == '*' && !draw_word(oom_knob_find(sets[i].knob[k]), word, sizeof(word), state))
			continue;
		try_word(q, s, sets[i].knob[k], word);
	}
}

/* Knobs are set one after another; one that the program refuses with those before it is left out, so
 * that all are met, and met together, although most drawn at random exclude one another. */
void question_draw(struct question *q, const struct subject *s, uint64_t *state)
{
	static const char *const common[] = {"precision", "micro-batch", "seq-len", "grad-ckpt"};
	const size_t more = roll(state, 10);
	char word[sizeof(q->set[0].word)];
	size_t n = 0;

	memset(q, 0, sizeof(*q));
	q->gpu = &cards()->items[roll(state, cards()->n)];
	q->luck = roll(state, UINT64_MAX);
	while (oom_knob_at(n))
		n++;
	if (roll(state, 2))
		draw_together(q, s, state);
	for (size_t i = 0; i < 4 + more; i++) {
		const struct oom_option *k = i < 4 ? oom_knob_find(common[i]) :
						     oom_knob_at(roll(state, n));

		if (i < 4 && roll(state, 4) == 0)
			continue;
		if (draw_word(k, word, sizeof(word), state))
			try_word(q, s, k->name, word);
	}
}

/* ---- shrinking ---- */

static bool still_broken(const struct question *q, const struct subject *s, law_fn *law, char *words,
			 size_t size)
{
	char text[400];

	if (!runs(q, s) || law(s, q, text, sizeof(text)) != BROKEN)
		return false;
	snprintf(words, size, "%s", text);
	return true;
}

/* Half of a count, its least value first. */
static bool lower(const struct question *q, size_t i, int way, struct question *out)
{
	const struct oom_option *k = q->set[i].knob;
	const long long now = atoll(q->set[i].word),
			to = way ? now / 2 : (long long)(k->min < 1 ? 1 : k->min);

	if (k->kind != OOM_OPTION_COUNT || to >= now)
		return false;
	*out = *q;
	snprintf(out->set[i].word, sizeof(out->set[i].word), "%lld", to);
	return true;
}

void question_shrink(struct question *q, const struct subject *s, law_fn *law, char *words, size_t size)
{
	bool smaller = true;

	while (smaller) {
		struct question less;

		smaller = false;
		for (size_t i = 0; i < q->n && !smaller; i++) {
			less = *q;
			less.n--;
			memmove(&less.set[i], &less.set[i + 1], (less.n - i) * sizeof(less.set[0]));
			smaller = still_broken(&less, s, law, words, size);
			for (int way = 0; way < 2 && !smaller; way++)
				smaller = lower(q, i, way, &less) &&
					  still_broken(&less, s, law, words, size);
		}
		if (smaller)
			*q = less;
	}
}
