/* TRL's loss: the head in chunks of tokens, which the backward computes again. */
#include "blocks.h"
#include "fused_loss.h"
#include "tape/round.h"

enum { TRL_CHUNK = 256 };

/* The head as its user meets it: rows of a chunk times a monomial, V, width, a weight. */
struct chunk {
	uint16_t mono;
	uint64_t rows, v, d;
	struct oom_val w;
	bool copied;                    /* the input is no fp32 yet */
};

static struct oom_val of_chunk(struct oom_tape *t, const char *name, const struct chunk *c,
			       uint64_t width)
{
	return oom_new(t, name, c->mono, (struct oom_dim){c->rows * width, NULL}, OOM_F32);
}

/* h.float() @ w.float().t(), log_softmax, nll_loss, argmax, entropy: logits and log-probabilities are
 * locals; their exponentials and the product come on top. */
static void trl_chunk(struct oom_tape *t, const struct chunk *c)
{
	struct oom_val h = oom_none(), w = oom_none(), logits, lp, e, m, small[3];

	if (c->copied)
		h = of_chunk(t, "input chunk", c, c->d);
	if (c->w.dt != OOM_F32)
		w = oom_new(t, "weight in fp32", OOM_MONO_ONE,
			    (struct oom_dim){c->v * c->d, "vocab_size * d_model"}, OOM_F32);
	logits = of_chunk(t, "logits chunk", c, c->v);
	oom_drop(t, w);
	oom_drop(t, h);
	if (t->arch->softcap_logits > 0) {      /* / cap, tanh, * cap: two of them at once */
		lp = of_chunk(t, "logits chunk", c, c->v);
		e = of_chunk(t, "logits chunk", c, c->v);
		oom_drop(t, lp);
		oom_drop(t, logits);
		logits = e;
	}
	lp = of_chunk(t, "log_softmax", c, c->v);
	/* nll_loss' two scalars and the right answers' number; which labels count */
	small[0] = oom_scratch_hold(t, "nll_loss", OOM_MONO_ONE, 3 * oom_block(4), OOM_U8);
	small[1] = oom_new(t, "labels that count", c->mono, (struct oom_dim){c->rows, NULL}, OOM_U8);
	e = of_chunk(t, "entropy", c, c->v);
	m = of_chunk(t, "entropy", c, c->v);
	small[2] = of_chunk(t, "entropies", c, 1);
	for (int i = 0; i < 3; i++)
		oom_drop(t, small[i]);
	oom_drop(t, m);
	oom_drop(t, e);
	oom_drop(t, lp);
	oom_drop(t, logits);
}

/* TRL's chunked cross entropy (trl/trainer/sft_trainer.py _chunk, _chunked_cross_entropy_loss): tokens
 * sorted so that those with a label come first, then chunks of 256 (chunk_size) behind checkpoints.  The measured
 * runs compute it outside of autocast, and so does this; within it a 16-bit copy of the weight and of
 * its gradient would come on top. */
struct oom_val oom_chunked_nll(struct oom_tape *t, const struct oom_arch *a, struct oom_val h, struct oom_val embed,
			       const char *name)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const uint64_t asked = (uint64_t)t->plan->loss_chunk;
	const struct oom_head_part part = oom_part_of_tokens(t, tokens, asked ? asked : TRL_CHUNK);
	struct chunk c = {.mono = part.mono,
			  .rows = part.rows,
			  .v = a->vocab,
			  .d = h.width,
			  .copied = h.dt != OOM_F32};
	const struct oom_dim d = {c.d, h.text};
	struct oom_val flat = oom_none(), valid, scalars, sorted, order, labels, loss;
	int32_t n = -1;

	t->vocab = a->vocab;
	t->fused = true;
	t->scope = name;
	c.w = oom_head_weight(t, a, h, embed, name);
	if (oom_cond_above(t, t->m_b, 1))       /* hidden[..., :-1, :].reshape(-1, H) */
		flat = oom_new(t, "flat hidden states", tokens, d, (enum oom_dtype)h.dt);
	valid = oom_new(t, "labels that count", tokens, D(1), OOM_U8);
	/* their number, and the loss, the entropy and the right answers so far: a block each */
	scalars = oom_scratch_hold(t, "sums", OOM_MONO_ONE, 4 * oom_block(4), OOM_U8);
	order = oom_new(t, "order of tokens", tokens, D(1), OOM_I64);
	sorted = oom_new(t, "sorted hidden states", tokens, d, (enum oom_dtype)h.dt);
	oom_drop(t, flat);
	labels = oom_new(t, "sorted labels", tokens, D(1), OOM_I64);
	if (t->grad && (h.rg || c.w.rg)) {
		n = oom_node(t, OOM_NODE_CHUNKED, "chunked loss");
		oom_node_edge(t, n, h);
		oom_node_edge(t, n, c.w);
		oom_node_save(t, n, sorted);
		oom_node_save(t, n, order);
		oom_node_save(t, n, labels);
		if (n >= 0) {
			t->nodes[n].aux_mono = c.mono;
			t->nodes[n].aux_width = c.rows * c.v;
		}
	}
	oom_tape_product(t, h, c.d, c.v, oom_trains(t, c.w));
	for (int i = 0; i < (part.many ? 2 : 1); i++) {
		/* of the chunk before: its loss, right answers and entropy */
		struct oom_val before = i ? oom_scratch_hold(t, "sums of a chunk", OOM_MONO_ONE, 3 * oom_block(4), OOM_U8) :
					    oom_none();

		trl_chunk(t, &c);
		oom_drop(t, before);
	}
	loss = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	loss = n >= 0 ? oom_node_out(t, n, 0, loss) : loss;
	oom_drop(t, valid);
	oom_drop(t, scalars);
	oom_drop(t, order);
	oom_drop(t, labels);
	oom_drop(t, sorted);
	oom_done(t, h);
	return loss;
}
