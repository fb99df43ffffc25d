/* What holds of every question by itself: sums add up, and more of something takes no less.  Where more
 * does take less, and rightly, the reason stands in the law. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "question.h"

static bool price(const struct subject *s, const struct oom_plan *p, unsigned flags, struct oom_eval *e)
{
	struct oom_error err = {""};

	return !oom_evaluate(s->ev, s->model, p, flags, e, &err);
}

/* The plan and what it costs; false: it is no plan any more. */
static bool base(const struct subject *s, const struct question *q, unsigned flags, struct oom_plan *p,
		 struct oom_eval *e)
{
	return question_plan(q, s, p) && price(s, p, flags, e);
}

static enum finding at_least(const char *what, uint64_t more, uint64_t less, char *words, size_t size)
{
	if (more >= less)
		return HOLDS;
	snprintf(words, size, "%s: %llu bytes before, %llu after, %llu fewer", what,
		 (unsigned long long)less, (unsigned long long)more, (unsigned long long)(less - more));
	return BROKEN;
}

static enum finding equal(const char *what, uint64_t a, uint64_t b, char *words, size_t size)
{
	if (a == b)
		return HOLDS;
	snprintf(words, size, "%s: %llu and %llu", what, (unsigned long long)a, (unsigned long long)b);
	return BROKEN;
}

/* ---- sums ---- */

static enum finding buckets(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_plan p;
	struct oom_eval e;
	uint64_t sum = 0, highest = 0;

	if (!base(s, q, OOM_EVAL_BUCKETS, &p, &e))
		return SILENT;
	for (int i = 0; i < OOM_BUCKETS; i++)
		sum += e.bucket[i];
	for (int i = OOM_PHASE_FWD1; i < OOM_PHASES; i++)
		if (i != OOM_PHASE_EVAL || p.eval_accumulation)
			highest = e.peak[i] > highest ? e.peak[i] : highest;
	if (equal("the highest phase is the overall peak", highest, e.overall_peak, words, size) == BROKEN)
		return BROKEN;
	return equal("who is alive adds up to the peak", sum, e.overall_peak, words, size);
}

static enum finding same_ways(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_plan p;
	struct oom_eval fast, full;

	if (!base(s, q, OOM_EVAL_FAST, &p, &fast) ||
	    !price(s, &p, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &full))
		return SILENT;
	for (int i = 0; i < OOM_PHASES; i++)
		if (equal(oom_phase_str((enum oom_phase)i), fast.peak[i], full.peak[i], words, size) ==
		    BROKEN)
			return BROKEN;
	return equal("the estimate of the reserved bytes", fast.used_bytes_estimated,
		     full.used_bytes_estimated, words, size);
}

static enum finding phases(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_anatomy a;
	struct oom_error err = {""};
	struct oom_plan p;
	struct oom_eval e;

	if (!base(s, q, OOM_EVAL_BUCKETS, &p, &e) || oom_anatomy(s->ev, s->model, &p, &e, &a, &err))
		return SILENT;
	for (int i = 0; i < OOM_PHASES; i++) {
		uint64_t sum = 0;

		for (int b = 0; b < OOM_BUCKETS; b++)
			sum += a.bucket[i][b];
		if (equal(oom_phase_str((enum oom_phase)i), sum, e.peak[i], words, size) == BROKEN)
			return BROKEN;
	}
	return HOLDS;
}

struct sums {
	uint64_t loaded, held;
};

static void add(void *ctx, const struct oom_ledger_row *row)
{
	struct sums *sum = ctx;

	if (!strcmp(row->born, "load") && !row->host)
		sum->loaded += row->bytes * row->count;
	sum->held += row->bytes * row->held;
}

/* What explain prints is what estimate adds up, of a shard as of the whole.  Where GPUs hold different layers it prints
 * the model's rows, and activations that are offloaded are kept in parts. */
static enum finding ledger(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_error err = {""};
	struct sums sum = {0};
	struct oom_plan p;
	struct oom_eval e;

	if (!base(s, q, OOM_EVAL_BUCKETS, &p, &e) || e.n_stages || p.tp * p.cp * p.ep * p.pp > 1 ||
	    oom_ledger_each(s->ev, s->model, &p, add, &sum, &err))
		return SILENT;
	if (equal("there after loading: explain, estimate", sum.loaded, e.end[OOM_PHASE_LOAD], words, size) == BROKEN)
		return BROKEN;
	if (p.offload_activations)
		return HOLDS;
	return equal("kept for the backward pass: explain, estimate", sum.held, e.saved_bytes, words, size);
}

/* ---- more takes no less ---- */

/* Compares the peaks of the question with those of the same with a knob raised. */
static enum finding raised(const struct subject *s, int64_t *field, struct oom_plan *p, int64_t to,
			   const char *what, char *words, size_t size)
{
	struct oom_eval less, more;

	/* a device map's parts are counted by the mean of their layers, and dealt out anew */
	if (p->engine == OOM_ENGINE_DEVICE_MAP || !price(s, p, OOM_EVAL_FAST, &less))
		return SILENT;
	*field = to;
	if (!price(s, p, OOM_EVAL_FAST, &more))
		return SILENT;
	return at_least(what, more.overall_peak, less.overall_peak, words, size);
}

static enum finding more_batch(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_plan p;

	/* of one image the gradient of a class token is a slice of the whole sequence's, which lies there as long
	 * (ops/backward.c: expand() and cat() hand slices of one gradient on) */
	if (!question_plan(q, s, &p) || (p.micro_batch == 1 && oom_model_task(s->model) == OOM_TASK_IMAGE_CLS))
		return SILENT;
	return raised(s, &p.micro_batch, &p, p.micro_batch + 1, "one more in the micro-batch", words, size);
}

static enum finding more_tokens(const struct subject *s, const struct question *q, char *words,
				size_t size)
{
	uint64_t luck = q->luck;
	struct oom_plan p;

	if (!question_plan(q, s, &p))
		return SILENT;
	/* a length that SDPA's kernels pad, or that they cannot take, may cost more than the next */
	p.seq_len = (p.seq_len + 63) / 64 * 64;
	return raised(s, &p.seq_len, &p, p.seq_len + 64 * (int64_t)(1 + roll(&luck, 16)),
		      "longer sequences", words, size);
}

static enum finding more_layers(const struct subject *s, const struct question *q, char *words,
				size_t size)
{
	const struct oom_model_shape shape = oom_model_shape(s->model);
	struct oom_plan p;

	/* the last layer, where it alone trains or FSDP1 gathers it ahead, may be of another kind (sparse, sliding) in a deeper
	 * model */
	if (!question_plan(q, s, &p) || p.pp > 1 || p.train_last || p.engine == OOM_ENGINE_FSDP1 ||
	    shape.n_layers < 2 || shape.n_layers > 500)
		return SILENT;
	p.num_layers = (int64_t)shape.n_layers;
	return raised(s, &p.num_layers, &p, p.num_layers + 1, "one more layer", words, size);
}

static enum finding more_vocabulary(const struct subject *s, const struct question *q, char *words,
				    size_t size)
{
	const uint64_t now = oom_model_shape(s->model).vocab;
	cJSON *config = cJSON_CreateObject();
	struct subject larger;
	struct oom_plan p;
	struct oom_eval less, more;
	char *json;
	enum finding found = SILENT;

	cJSON_AddStringToObject(config, "model_type", s->name);
	cJSON_AddNumberToObject(config, "vocab_size", (double)(now + 1024));
	json = cJSON_PrintUnformatted(config);
	/* a device map: as in raised() */
	if (now > 1000 && question_plan(q, s, &p) && p.engine != OOM_ENGINE_DEVICE_MAP && base(s, q, OOM_EVAL_FAST, &p, &less) && subject_open(&larger, s->name, json)) {
		if (price(&larger, &p, OOM_EVAL_FAST, &more))
			found = at_least("1,024 more words", more.overall_peak, less.overall_peak, words,
					 size);
		subject_close(&larger);
	}
	cJSON_free(json);
	cJSON_Delete(config);
	return found;
}

static enum finding accumulation(const struct subject *s, const struct question *q, char *words,
				 size_t size)
{
	struct oom_plan p;
	struct oom_eval two, four;

	if (!question_plan(q, s, &p) || p.global_batch || p.pp > 1)
		return SILENT;
	/* TRL's PPO keeps the scores of all micro-batches' rollouts (ppo_trainer.py local_batch_size), GRPO
	 * generates a whole step's answers at once (grpo_config.py steps_per_generation) */
	if (p.objective == OOM_METHOD_PPO || p.objective == OOM_METHOD_GRPO)
		return SILENT;
	p.grad_accum = 2;
	if (!price(s, &p, OOM_EVAL_FAST, &two))
		return SILENT;
	p.grad_accum = 4;
	if (!price(s, &p, OOM_EVAL_FAST, &four))
		return SILENT;
	return equal("accumulated over two and four steps", two.overall_peak, four.overall_peak, words,
		     size);
}

/* ---- what is meant to save does ---- */

static enum finding checkpointing(const struct subject *s, const struct question *q, char *words,
				  size_t size)
{
	struct oom_plan p;
	struct oom_eval without, with;

	if (!question_plan(q, s, &p) || p.grad_ckpt)
		return SILENT;
	if (!price(s, &p, OOM_EVAL_FAST, &without))
		return SILENT;
	p.grad_ckpt = OOM_CKPT_FULL;
	if (!price(s, &p, OOM_EVAL_FAST, &with))
		return SILENT;
	/* layers that no gradient passes through keep nothing, and their checkpoints their inputs; nor does
	 * anything of a model on two GPUs stand for one of them */
	if (with.trainable_params < with.total_params || p.engine == OOM_ENGINE_DEVICE_MAP)
		return SILENT;
	/* wherever it is kept: what layers save is offloaded, the masks that checkpoints hold are not */
	return at_least("kept with checkpointing", without.saved_bytes + without.offloaded_bytes + 65536,
			with.saved_bytes + with.offloaded_bytes, words, size);
}

static enum finding more_gpus(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_plan p;
	struct oom_eval few, many;

	if (!question_plan(q, s, &p) || p.zero_stage != 3 || p.gpus < 2 || p.nodes != 1 || p.global_batch ||
	    p.tp * p.pp * p.cp * p.ep > 1)
		return SILENT;
	if (!price(s, &p, OOM_EVAL_FAST, &few))
		return SILENT;
	p.gpus *= 2;
	p.gpus_per_node = p.gpus;
	if (!price(s, &p, OOM_EVAL_FAST, &many))
		return SILENT;
	/* the reduced shards of every rank pass through buffers of a rank's own size */
	return at_least("sharded over twice the GPUs", few.overall_peak + (1 << 20), many.overall_peak,
			words, size);
}

static enum finding adapters(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_plan p;
	struct oom_eval full, lora;

	if (!question_plan(q, s, &p) || p.lora_r || p.engine || p.freeze[0] || p.train[0] || p.train_last ||
	    p.freeze_tower || p.freeze_projector || p.freeze_language)
		return SILENT;
	if (!price(s, &p, OOM_EVAL_FAST, &full))
		return SILENT;
	p.lora_r = 4;
	plan_adapt(&p, s);
	if (!price(s, &p, OOM_EVAL_FAST, &lora))
		return SILENT;
	/* what trains decides, where activations do the adapters' own are more than the gradients saved */
	return at_least("states with adapters", full.grad_bytes + full.opt_bytes,
			lora.grad_bytes + lora.opt_bytes, words, size);
}

const struct law laws[] = {
	{"the peak's buckets and phases add up", buckets, 1},
	{"the quick, the full and the replayed evaluation agree", same_ways, 2},
	{"the buckets of every phase add up", phases, 4},
	{"explain's rows add up", ledger, 4},
	{"a larger micro-batch takes no less", more_batch, 1},
	{"a longer sequence takes no less", more_tokens, 1},
	{"more layers take no less", more_layers, 1},
	{"a larger vocabulary takes no less", more_vocabulary, 4},
	{"accumulation costs the same from two steps on", accumulation, 2},
	{"checkpointing keeps no more", checkpointing, 1},
	{"ZeRO-3 over more GPUs takes no more", more_gpus, 1},
	{"adapters have no larger states", adapters, 2},
	{NULL, NULL, 0},
};
