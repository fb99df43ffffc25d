/* Answers that the trained model gives within the step: transformers' generate with a growing cache of keys and
 * values (generation/utils.py _sample, cache_utils.py DynamicCache), as TRL's trainers call it without vLLM.
 *
 *   R  sequences at once: a whole step's for GRPO (steps_per_generation is the accumulation), PPO's in parts, those of
 *      one micro-batch for online DPO and its kin
 *   p  tokens of the prompt, n of the answer; L layers of k key-value heads of size h; V vocabulary
 *
 * Three moments can be the highest; each stands above weights, states and what the loop still holds:
 *   prompt   a forward pass over R x p tokens, logits of the last alone, and the cache of p tokens
 *   last     one over R x 1, the cache of p + n, and one layer's new keys beside the old: torch.cat copies
 *   scores   PPO's: fp32 scores of the answers' tokens once as they came and once stacked, those of the update
 *            before under their name yet; then the reference's pass over p + n with all logits and hidden states
 *
 * Estimated where measured rows end: sliding windows, latent attention and state spaces keep less than this cache,
 * beams and sorted sampling more. */
#include "step/rollouts.h"

#include <string.h>

#include "families/model.h"
#include "step/engines.h"
#include "step/objectives.h"
#include "step/phases.h"

/* per rank and pass: ppo_config.py local_rollout_forward_batch_size */
#define PPO_PART 64

bool oom_plan_generates(const struct oom_plan *p)
{
	return oom_objective_of(p)->online && !p->generating &&
	       (p->rollouts == OOM_ROLLOUTS_GENERATE || (p->rollouts == OOM_ROLLOUTS_AUTO && p->vllm_share <= 0));
}

/* The type that it generates in: accelerate's autocast is around the forward of what it has wrapped, which is not what
 * PPO generates with, nor what a PEFT model calls (peft_model.py generate: the base model's own). */
int64_t oom_generates_in(const struct oom_plan *p)
{
	return oom_objective_of(p)->rollouts || oom_plan_adapted(p) ? (int64_t)oom_plan_stores(p) : p->precision;
}

struct answers {
	uint64_t rows, part;    /* of a step; of a call */
	uint64_t prompt, tokens;
	uint64_t token;         /* the cache of one token of one row, in bytes */
	uint64_t logits;        /* one token's, fp32 */
};

static struct answers answers_of(const struct oom_arch *a, const struct oom_plan *p)
{
	const uint64_t seq = (uint64_t)p->seq_len, n = (uint64_t)p->completion_len,
		       layers = p->num_layers ? (uint64_t)p->num_layers : a->n_layers,
		       rows = (uint64_t)p->micro_batch * (oom_objective_of(p)->by_batch ? oom_objective_of(p)->rows : (uint64_t)p->grad_accum);
	/* keys are rotated in the type of the embedded tokens, and values follow them (DynamicLayer.lazy_initialization) */
	const bool wide = oom_plan_stores(p) == OOM_FP32 && (a->rotary_share > 0 || oom_generates_in(p) == OOM_FP32);
	struct answers x = {.rows = rows, .part = rows, .tokens = n < seq ? n : seq - 1, .logits = 4 * oom_vocab_of(p, a)};

	x.prompt = seq - x.tokens;
	x.token = 2 * layers * a->n_kv_heads * a->head_dim * (wide ? 4 : 2);
	if (oom_objective_of(p)->rollouts && x.part > PPO_PART)
		x.part = PPO_PART;
	return x;
}

enum oom_status oom_generating_pass(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				  enum oom_generating what, uint64_t rows, uint64_t tokens, uint64_t *bytes,
				  struct oom_error *err)
{
	struct oom_plan q = *p;
	struct oom_eval e;
	enum oom_status st;

	q.generating = what;
	q.micro_batch = (int64_t)rows;
	q.grad_accum = 1;
	q.global_batch = 0;
	q.seq_len = (int64_t)tokens;
	q.tgt_len = 1;
	q.eval_accumulation = q.eval_generates = q.eval_new_tokens = 0;
	q.eval_beams = 1;
	q.precision = oom_generates_in(p);
	st = oom_evaluate_phases(ev, model, &q, OOM_EVAL_FAST, &e, NULL, err);
	if (!st)
		*bytes = e.peak[OOM_PHASE_EVAL] - e.end[OOM_PHASE_EVAL];
	return st;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Keys and values that attention repeats to all heads over a padded batch, and in fp32, which no fused kernel takes with
 * grouped heads; of one layer. */
static uint64_t repeated(const struct oom_arch *a, const struct oom_plan *p, const struct answers *x)
{
	const uint64_t layers = p->num_layers ? (uint64_t)p->num_layers : a->n_layers;

	if ((!p->padding_mask && oom_generates_in(p) != OOM_FP32) || p->attn == OOM_ATTN_FLASH || a->n_kv_heads >= a->n_heads || !a->n_kv_heads || !layers)
		return 0;
	return x->part * (x->prompt + x->tokens) * (x->token / layers) * (a->n_heads / a->n_kv_heads);
}

/* PPO's scores and the passes over what was generated. */
static enum oom_status scored(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
			      const struct answers *x, uint64_t *most, struct oom_error *err)
{
	const struct oom_arch *a = &model->arch;
	const uint64_t part = x->part * x->tokens * x->logits, all = x->rows * x->tokens * x->logits,
		       seq = x->prompt + x->tokens, layers = p->num_layers ? (uint64_t)p->num_layers : a->n_layers,
		       hidden = x->part * seq * layers * a->d_model * (oom_plan_stores(p) == OOM_FP32 ? 4 : 2);
	uint64_t forward = 0;
	const enum oom_status st = oom_generating_pass(ev, model, p, OOM_GENERATING_ALL, x->part, seq, &forward, err);

	/* the last part's, stacked while its cache lives; all of them, padded */
	*most = larger(*most + all, all + part + x->part * seq * x->token);
	*most = larger(*most, 2 * all);
	/* log-probabilities of 16-bit logits are made a sequence at a time, the last one's under its name until the next */
	*most = larger(*most, forward + hidden + (oom_plan_stores(p) == OOM_FP32 ? 0 : x->tokens * x->logits));
	return st;
}

/* Everything that is there between steps, by bucket, and the rest. */
static void note(struct oom_eval *out, struct oom_alive *alive, uint64_t above)
{
	const uint64_t rest = out->end[OOM_PHASE_OPT2];
	struct oom_alive *x = alive ? &alive[OOM_PHASE_ROLLOUTS] : NULL;
	uint64_t sum = 0;

	out->end[OOM_PHASE_ROLLOUTS] = rest;
	out->peak[OOM_PHASE_ROLLOUTS] = rest + above;
	if (out->peak[OOM_PHASE_ROLLOUTS] > out->overall_peak) {
		out->overall_peak = out->peak[OOM_PHASE_ROLLOUTS];
		out->peak_phase = OOM_PHASE_ROLLOUTS;
	}
	if (!x)
		return;
	memset(x, 0, sizeof(*x));
	x->op = "generate";
	x->module = "rollouts";
	for (int b = OOM_BUCKET_PARAMS; b <= OOM_BUCKET_OPT; b++) {
		const uint64_t there = b == OOM_BUCKET_GRADS ? 0 : alive[OOM_PHASE_OPT2].bucket[b];

		x->bucket[b] = there < rest - sum ? there : rest - sum;
		sum += x->bucket[b];
	}
	x->bucket[OOM_BUCKET_SAVED] = rest - sum;
	x->bucket[OOM_BUCKET_TEMP] = above;
}

enum oom_status oom_rollouts(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
			     struct oom_eval *out, struct oom_alive *alive, struct oom_error *err)
{
	const struct oom_arch *a = &model->arch;
	const uint64_t layers = p->num_layers ? (uint64_t)p->num_layers : a->n_layers;
	uint64_t first = 0, last = 0, whole = 0, most;
	struct answers x;
	enum oom_status st;

	if (!oom_plan_generates(p) || p->seq_len < 2)
		return OOM_OK;
	x = answers_of(a, p);
	st = oom_generating_pass(ev, model, p, OOM_GENERATING_LAST, x.part, x.prompt, &first, err);
	if (!st)
		st = oom_generating_pass(ev, model, p, OOM_GENERATING_LAST, x.part, 1, &last, err);
	if (st)
		return st;
	first += x.part * x.prompt * x.token;
	/* sampling: the model's logits, an fp32 copy, over the temperature where there is one, probabilities */
	last = larger(last, x.part * x.logits * (oom_objective_of(p)->rollouts ? 4 : 3));
	last += x.part * (x.prompt + x.tokens) * (x.token + (layers ? x.token / layers / 2 : 0)) + repeated(a, p, &x);
	/* ZeRO-3's layers are gathered for good (trl/models/utils.py unwrap_model_for_generation) */
	if (p->zero_stage == 3 && oom_engine_of(p)->partitions && !oom_engine_of(p)->wraps_units)
		whole = out->param_bytes - out->whole_bytes;
	most = larger(first, last);
	if (oom_objective_of(p)->rollouts)
		st = scored(ev, model, p, &x, &most, err);
	/* with accumulation the gradients so far lie there while the next batch is answered */
	if (oom_objective_of(p)->by_batch && p->grad_accum > 1)
		whole += out->grad_bytes;
	note(out, alive, most + whole);
	return st;
}
