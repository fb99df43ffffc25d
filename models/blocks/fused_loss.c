/* Losses that take the head in: from the last hidden states to the loss without whole logits.  Each is
 * one row of the table below; families come to them by oom_fused_head alone. */
#include "blocks.h"
#include "plan/pattern.h"
#include "tape/round.h"

/* ---- Liger: gradients made in the forward ---- */

/* One chunk: logits, their gradient in place, the input's gradient, the head's. */
static void fused_chunk(struct oom_tape *t, struct oom_val x, struct oom_val w, enum oom_dtype dt,
			uint16_t chunk, uint64_t n, uint64_t v, uint64_t d)
{
	const bool grad = t->grad;
	const struct oom_dim weight = {v * d, "vocab_size * d_model"}, rows = {n * d, NULL};
	struct oom_val cast = oom_none(), rows16 = oom_none(), lc;

	/* logits = x @ w.t(): a transposed weight is no leaf, autocast casts it anew */
	if (t->amp && x.dt != dt)
		rows16 = oom_new(t, "input chunk", chunk, rows, dt);
	if (t->amp && w.dt != dt)
		cast = oom_new(t, "weight copy", OOM_MONO_ONE, weight, dt);
	lc = oom_new(t, "logits chunk", chunk, (struct oom_dim){n * v, NULL}, dt);
	oom_drop(t, cast);
	oom_drop(t, rows16);
	/* grad x = logits @ w: the leaf's copy goes through the cache */
	t->grad = false;
	cast = t->amp ? oom_amp_cast(t, w) : oom_none();
	t->grad = grad;
	oom_drop(t, oom_new(t, "input gradient chunk", chunk, rows, dt));
	if (cast.sto >= 0)
		oom_drop(t, cast);
	if (w.rg && w.dt == OOM_F32 && dt != OOM_F32) {         /* addmm into the fp32 gradient */
		oom_drop(t, oom_new(t, "input chunk", chunk, rows, dt));
	} else if (w.rg) {                                      /* gw += mm(...).float() */
		struct oom_val m = oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight, dt);

		if (dt != OOM_F32)
			oom_drop(t,
				 oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight, OOM_F32));
		oom_drop(t, m);
	}
	oom_drop(t, lc);
}

/* Liger's fused linear cross-entropy: chunk = next power of two of tokens / ceil(V / h); the chunk
 * of logits is overwritten by its gradient; gradients of input and head exist from the forward on
 * (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py). */
static struct oom_val liger(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	const uint64_t v = a->vocab, d = h.width, inc = oom_ceil_div(v, d);
	const uint64_t tokens = oom_mono_now(t, h.mono);
	uint64_t chunk = 1, piece = oom_ceil_div(tokens, inc);
	uint16_t part = OOM_MONO_ONE;
	struct oom_val w, gx, gw = oom_none(), loss, total, labels;
	struct oom_val as = h;
	enum oom_dtype dt;
	int32_t n = -1;
	bool rg;

	while (chunk < piece)
		chunk *= 2;
	if (h.mono == t->m_bs && inc <= UINT32_MAX) {   /* the chunk steps with the tokens */
		part = oom_len_pow2_part(t, OOM_MONO_ONE, inc);
		oom_cond_more(t, h.mono, 1, part, 1);
	} else { /* tokens of another kind: record anew beyond the step */
		oom_cond_above(t, h.mono, chunk * inc);
		oom_cond_above(t, h.mono, chunk / 2 * inc);
	}
	t->vocab = v;
	t->fused = true;
	t->scope = name;
	w = a->tie ? embed : oom_param(t, "weight", v, d, OOM_P_HEAD | OOM_P_LINEAR);
	rg = t->grad && (h.rg || w.rg);
	if (rg) {
		n = oom_node(t, OOM_NODE_FUSED_CE, "FusedLinearCE");
		oom_node_edge(t, n, h);
		oom_node_edge(t, n, w);
	}
	chunk = chunk < tokens ? chunk : tokens;
	labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1),
			 OOM_I64);
	gx = oom_new(t, "grad of input", h.mono, (struct oom_dim){d, NULL}, (enum oom_dtype)h.dt);
	if (w.rg)
		gw = oom_new(t, "grad of head", OOM_MONO_ONE,
			     (struct oom_dim){v * d, "vocab_size * d_model"}, (enum oom_dtype)w.dt);
	loss = oom_new(t, "loss per token", h.mono, D(1), OOM_F32);
	dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)h.dt;
	as.dt = (uint8_t)dt;
	oom_tape_product(t, as, d, v);
	/* from the second chunk on the cast weight is cached */
	for (int i = 0; i < (chunk < tokens ? 2 : 1); i++)
		fused_chunk(t, h, w, dt, part, part == OOM_MONO_ONE ? chunk : 1, v, d);
	total = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	oom_drop(t, loss);
	if (rg) {
		total = oom_node_out(t, n, 0, total);
		oom_node_save(t, n, gx);
		oom_node_save(t, n, gw);
	}
	oom_drop(t, gx);
	oom_drop(t, gw);
	oom_drop(t, labels);
	oom_done(t, h);
	return total;
}

/* ---- TRL: chunks that are computed again ---- */

enum { TRL_CHUNK = 256 };

/* The head as its user meets it: rows of a chunk times a monomial, V, width, a weight. */
struct chunk {
	uint16_t mono;
	uint64_t rows, v, d;
	struct oom_val w;
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
	struct oom_val h = oom_none(), w = oom_none(), logits, lp, e, m;

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
	e = of_chunk(t, "entropy", c, c->v);
	m = of_chunk(t, "entropy", c, c->v);
	oom_drop(t, m);
	oom_drop(t, e);
	oom_drop(t, lp);
	oom_drop(t, logits);
}

/* TRL's chunked cross entropy (trl/trainer/sft_trainer.py _chunk, _chunked_cross_entropy_loss): tokens
 * sorted so that those with a label come first, then chunks of 256 behind checkpoints.  The measured
 * runs compute it outside of autocast, and so does this; within it a 16-bit copy of the weight and of
 * its gradient would come on top. */
static struct oom_val trl(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			  struct oom_val embed, const char *name)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const bool many = oom_cond_above(t, tokens, TRL_CHUNK);
	struct chunk c = {.mono = many ? OOM_MONO_ONE : tokens,
			  .rows = many ? TRL_CHUNK : 1,
			  .v = a->vocab,
			  .d = h.width};
	const struct oom_dim d = {c.d, h.text};
	struct oom_val flat = oom_none(), sorted, order, loss;
	int32_t n = -1;

	t->vocab = a->vocab;
	t->fused = true;
	t->scope = name;
	c.w = a->tie ? embed : oom_param(t, "weight", c.v, c.d, OOM_P_HEAD | OOM_P_LINEAR);
	if (oom_cond_above(t, t->m_b, 1))       /* hidden[..., :-1, :].reshape(-1, H) */
		flat = oom_new(t, "flat hidden states", tokens, d, (enum oom_dtype)h.dt);
	order = oom_new(t, "order of tokens", tokens, D(3), OOM_I64);
	sorted = oom_new(t, "sorted hidden states", tokens, d, (enum oom_dtype)h.dt);
	oom_drop(t, flat);
	if (t->grad && (h.rg || c.w.rg)) {
		n = oom_node(t, OOM_NODE_CHUNKED, "chunked loss");
		oom_node_edge(t, n, h);
		oom_node_edge(t, n, c.w);
		oom_node_save(t, n, sorted);
		oom_node_save(t, n, order);
		if (n >= 0) {
			t->nodes[n].aux_mono = c.mono;
			t->nodes[n].aux_width = c.rows * c.v;
		}
	}
	oom_tape_product(t, h, c.d, c.v);
	for (int i = 0; i < (many ? 2 : 1); i++)
		trl_chunk(t, &c);
	loss = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	loss = n >= 0 ? oom_node_out(t, n, 0, loss) : loss;
	oom_drop(t, order);
	oom_drop(t, sorted);
	oom_done(t, h);
	return loss;
}

/* ---- the table ---- */

/* Behind each word of --loss that takes the head in; the others work on logits. */
static const struct {
	struct oom_val (*head)(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed, const char *name);
	bool evaluates;         /* evaluations take it too */
} taking_in[] = {
	[OOM_LOSS_FUSED] = {liger, false},
	[OOM_LOSS_CHUNKED_NLL] = {trl, true},
};
enum { TAKING_IN = sizeof(taking_in) / sizeof(taking_in[0]) };

bool oom_loss_takes_head(int64_t loss)
{
	return loss >= 0 && loss < TAKING_IN && taking_in[loss].head;
}

bool oom_fuses_head(const struct oom_tape *t)
{
	const int64_t loss = t->plan->fused_ce;

	return oom_loss_takes_head(loss) && !t->no_labels &&
	       (t->train || taking_in[loss].evaluates);
}

struct oom_val oom_fused_ce(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	return taking_in[t->plan->fused_ce].head(t, a, h, embed, name);
}

struct oom_val oom_fused_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			      struct oom_val embed, const char *name, bool bias)
{
	struct oom_val loss = oom_fused_ce(t, a, h, embed, name);

	if (*t->plan->modules_to_save && oom_targets_name(t->plan->modules_to_save, name) && !t->warning)
		t->warning = "a fused head is not counted as one of modules-to-save: its copy, gradient "
			     "and states are missing";
	if (bias)
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	return loss;
}
