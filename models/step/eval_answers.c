/* Evaluations that generate: transformers' Seq2SeqTrainer with predict_with_generate (trainer_seq2seq.py
 * prediction_step) gives answers to the batch first and then runs the pass with labels that every evaluation runs.
 *
 *   R  sequences of the batch, K beams, s tokens of the input, n of the answer
 *   k  bytes of the keys and values of one token of one layer; L layers of the decoder; V vocabulary
 *
 * At the last token lie above weights and states
 *   the cache            R K L k n, of a decoder alone R K L k (s + n); one layer's keys once more, which torch.cat copies
 *   of encoder-decoders  keys and values of the input, R K L k s, and the encoder's states, R s d, K times more with beams
 *   the scores           fp32 logits of the last token; with beams their log-probabilities, these processed, and summed
 *                        with the beams' own (generation/utils.py _beam_search)
 * or, where it is more, what the pass over the input needs, of an encoder or of the decoder alone (with K beams of all).
 *
 * generate calls the encoder itself, and accelerate's autocast is around the whole model's forward: the encoder runs in the
 * weights' type, and only the decoder has 16-bit copies of its weights.  Measured without beams over BART, Pegasus, T5 and
 * Llama; beams are estimated from their source. */
#include "step/objectives.h"
#include "families/model.h"
#include "step/phases.h"
#include "step/rollouts.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Tokens that are generated. */
static uint64_t tokens_of(const struct oom_plan *p, bool encodes)
{
	if (p->eval_new_tokens)
		return (uint64_t)p->eval_new_tokens;
	if (!encodes)
		return (uint64_t)p->completion_len;
	return (uint64_t)(p->tgt_len ? p->tgt_len : p->seq_len);
}

struct asked {
	uint64_t rows, all;     /* sequences; times beams */
	uint64_t s, n;          /* tokens of the input, of the answer */
	uint64_t token;         /* bytes of the keys and values of one token of one row in one layer */
	uint64_t layers;        /* of the decoder */
	uint64_t state;         /* bytes of one of the encoder's states */
	bool encodes, beams;
};

static struct asked asked_of(const struct oom_arch *a, const struct oom_plan *p)
{
	const bool encodes = oom_task_of(p, a) == OOM_TASK_SEQ2SEQ, full = oom_plan_stores(p) == OOM_FP32,
		   wide = full && (a->rotary_share > 0 || oom_generates_in(p) == OOM_FP32);
	const uint64_t heads = encodes ? (a->dec_heads ? a->dec_heads : a->n_heads) : a->n_kv_heads;
	struct asked x = {.rows = (uint64_t)p->micro_batch, .s = (uint64_t)p->seq_len, .n = tokens_of(p, encodes),
			  .layers = encodes ? a->dec_layers : a->n_layers, .encodes = encodes, .beams = p->eval_beams > 1};

	x.all = x.rows * (uint64_t)p->eval_beams;
	x.token = 2 * heads * a->head_dim * (wide ? 4 : 2);
	x.state = a->d_model * (full ? 4 : 2);
	if (p->num_layers)
		x.layers = (uint64_t)p->num_layers;
	return x;
}

/* The pass over the input. */
static enum oom_status over_input(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				  const struct asked *x, uint64_t *bytes, struct oom_error *err)
{
	struct oom_plan q = *p;
	enum oom_status st;

	if (x->encodes)
		q.precision = (int64_t)oom_plan_stores(p);
	st = oom_generating_pass(ev, model, &q, OOM_GENERATING_LAST, x->encodes ? x->rows : x->all, x->s, bytes, err);
	if (!x->encodes)
		*bytes += x->all * x->s * x->layers * x->token;
	return st;
}

/* The pass over one token more; the copies that autocast makes of an encoder's weights are taken out of it again. */
static enum oom_status over_token(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				  const struct asked *x, uint64_t *bytes, struct oom_error *err)
{
	const struct oom_arch *a = &model->arch;
	const uint64_t scores = x->all * oom_vocab_of(p, a) * 4 * (x->beams ? 4 : 2),
		       copies = a->enc_layers * a->d_model * (4 * a->n_heads * a->head_dim + (a->gated ? 3 : 2) * a->d_ff) * 2;
	enum oom_status st;

	*bytes = scores;
	if (x->encodes && oom_generates_in(p) == (int64_t)oom_plan_stores(p))
		return OOM_OK;          /* the pass over the input runs the decoder over one token, too */
	st = oom_generating_pass(ev, model, p, OOM_GENERATING_LAST, x->all, 1, bytes, err);
	if (x->encodes)
		*bytes -= copies < *bytes ? copies : *bytes;
	*bytes = larger(*bytes, scores);
	return st;
}

enum oom_status oom_eval_answers(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				 struct oom_eval *out, struct oom_alive *alive, struct oom_error *err)
{
	const struct asked x = asked_of(&model->arch, p);
	const enum oom_task task = oom_task_of(p, &model->arch);
	const uint64_t kept = x.encodes ? x.n : x.s + x.n;
	uint64_t first = 0, last = 0, most;
	enum oom_status st;

	if (!(1u << task & (1u << OOM_TASK_SEQ2SEQ | 1u << OOM_TASK_CAUSAL_LM | 1u << OOM_TASK_IMAGE_TEXT)) || !x.s)
		return OOM_OK;
	st = over_input(ev, model, p, &x, &first, err);
	if (!st)
		st = over_token(ev, model, p, &x, &last, err);
	if (st)
		return st;
	last += x.all * kept * (x.layers * x.token + x.token / 2);
	if (x.encodes)
		last += x.all * x.layers * x.token * x.s + x.rows * x.s * x.state + (x.beams ? x.all * x.s * x.state : 0);
	most = out->end[OOM_PHASE_EVAL] + larger(first, last);
	if (most <= out->peak[OOM_PHASE_EVAL])
		return OOM_OK;
	if (alive) {
		alive[OOM_PHASE_EVAL].bucket[OOM_BUCKET_TEMP] += most - out->peak[OOM_PHASE_EVAL];
		alive[OOM_PHASE_EVAL].op = "generate";
		alive[OOM_PHASE_EVAL].module = "evaluation loop";
	}
	out->peak[OOM_PHASE_EVAL] = most;
	/* a question about batches that are kept counts its evaluation, whatever that needs most for (oom_pile_up, evaluate_beside) */
	if (p->eval_accumulation && most > out->overall_peak) {
		out->overall_peak = most;
		out->peak_phase = OOM_PHASE_EVAL;
	}
	return OOM_OK;
}
