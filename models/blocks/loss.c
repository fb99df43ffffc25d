/* Heads and losses.  Reference: transformers 5.12, loss/loss_utils.py and the ForCausalLM /
 * ForMaskedLM / ForSequenceClassification classes; torch.nn.functional.cross_entropy =
 * log_softmax + nll_loss. */
#include "blocks.h"
#include "tape/round.h"

/* log_softmax is kept (its own derivative needs it, and nll_loss keeps it too); nll_loss_backward
 * makes zeros of the same size, then _log_softmax_backward_data another: 12 bytes an element at
 * the start of backward in fp32. */
struct oom_val oom_cross_entropy(struct oom_tape *t, struct oom_val logits, struct oom_val labels)
{
	/* a local of the caller */
	struct oom_val first, lp, loss, total, held = oom_share(t, logits);
	const bool rg = t->grad && logits.rg;
	int32_t n = -1;

	t->scope = "loss";
	first = oom_op_log_softmax(t, logits);
	/* nll_loss is on autocast's fp32 list; its argument, a temporary of the same expression,
	 * lives to the end of it */
	lp = t->amp ? oom_op_cast(t, oom_keep(first), OOM_F32) : oom_share(t, first);
	if (rg) {
		n = oom_node(t, OOM_NODE_NLL, "nll_loss_backward");
		oom_node_edge(t, n, lp);
		oom_node_save(t, n, lp);
		oom_node_save(t, n, labels);
		if (n >= 0)
			t->nodes[n].dt = lp.dt;
	}
	loss = oom_new(t, "nll_loss", OOM_MONO_ONE, D(1), (enum oom_dtype)lp.dt);
	total = oom_new(t, "total_weight", OOM_MONO_ONE, D(1), (enum oom_dtype)lp.dt);
	if (rg) {
		loss = oom_node_out(t, n, 0, loss);
		oom_node_save(t, n, total);
	}
	oom_drop(t, first);
	oom_drop(t, lp);
	oom_drop(t, total);
	oom_drop(t, held);
	oom_done(t, labels);
	return loss;
}

void oom_returns(struct oom_tape *t, struct oom_val x)
{
	if (t->n_outputs == OOM_MAX_RETURNED) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "a model that returns more than %d tensors",
			      OOM_MAX_RETURNED);
		oom_drop(t, x);
		return;
	}
	t->outputs[t->n_outputs++] = x;
}

void oom_returns_shared(struct oom_tape *t, struct oom_val x)
{
	oom_returns(t, oom_share(t, x));
	oom_drop_shared(t, x);
}

struct oom_val oom_lm_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			   struct oom_val embed, const char *name, bool bias)
{
	const struct oom_dim v = {a->vocab, "vocab_size"};

	t->vocab = a->vocab;
	if (a->tie) {
		struct oom_val b = oom_none();

		if (bias)
			b = oom_param(t, "bias", 0, a->vocab, 0);
		return oom_op_matmul_param(t, name, h, embed, b, v);
	}
	return oom_op_linear(t, name, h, v, OOM_IS_HEAD | (bias ? OOM_BIAS : 0));
}

/* logits[..., :-1, :].contiguous(), before that perhaps .float() under the same name: a copy unless
 * the batch is one sequence (models/gemma3/modeling_gemma3.py Gemma3ForConditionalGeneration,
 * models/llama4/modeling_llama4.py). */
static struct oom_val shifted_loss(struct oom_tape *t, struct oom_val logits)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const struct oom_dim v = {logits.width, logits.text};
	struct oom_val out, f, labels, loss;

	if (t->shift == OOM_SHIFT_LOGITS_FP32)
		logits = oom_op_cast(t, logits, OOM_F32);
	out = oom_share(t, logits);
	f = oom_op_slice(t, logits, tokens, v);
	if (oom_cond_above(t, t->m_b, 1))
		f = oom_op_copy(t, "shifted logits", f);
	labels = oom_new(t, "shifted labels", tokens, D(1), OOM_I64);
	loss = oom_cross_entropy(t, f, labels);
	oom_returns(t, out);
	return loss;
}

/* logits.float(); labels padded by one and shifted: no logit is copied. */
struct oom_val oom_causal_lm_loss(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val logits)
{
	struct oom_val labels, loss;

	t->scope = "loss";
	if (a->softcap_logits > 0) {            /* logits / cap; tanh; * cap */
		logits = oom_op_unary(t, OOM_SCALE, logits);
		logits = oom_op_unary(t, OOM_TANH, logits);
		logits = oom_op_unary(t, OOM_SCALE, logits);
	}
	if (a->scale_logits)
		logits = oom_op_unary(t, OOM_SCALE, logits);
	if (t->shift)
		return shifted_loss(t, logits);
	if (a->float_logits)
		logits = oom_op_cast(t, logits, OOM_F32);
	/* the model's output holds the logits until the loss is done */
	{
		struct oom_val out = oom_share(t, logits), padded, f;

		f = oom_op_cast(t, logits, OOM_F32);
		/* F.pad(labels, (0, 1)), a local to the end; [..., 1:].contiguous() of one
		 * sequence is a view of it */
		padded = oom_new(t, "padded labels", oom_len_plus_in_many(t, t->m_b, 1), D(1),
				 OOM_I64);
		labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1),
				 OOM_I64);
		if (t->plan->fused_ce == OOM_LOSS_SLICED) {
			/* transformers < 4.45: shift_logits = logits[..., :-1, :].contiguous() */
			f = oom_op_slice(t, f, f.mono, (struct oom_dim){f.width, f.text});
			f = oom_op_copy(t, "shifted logits", f);
		}
		loss = oom_cross_entropy(t, f, labels);
		oom_drop(t, padded);
		oom_returns(t, out);
	}
	return loss;
}

struct oom_val oom_plain_lm_loss(struct oom_tape *t, struct oom_val logits, bool upcast,
				 uint16_t tokens)
{
	struct oom_val out = oom_share(t, logits), loss;

	if (upcast)
		logits = oom_op_cast(t, logits, OOM_F32);
	loss = oom_cross_entropy(t, logits, oom_input(t, "labels", tokens, 1, OOM_I64));
	oom_returns(t, out);
	return loss;
}

struct oom_val oom_cls_loss(struct oom_tape *t, const struct oom_arch *a, struct oom_val logits)
{
	struct oom_val out = oom_share(t, logits), loss;

	(void)a;
	loss = oom_cross_entropy(t, logits, oom_input(t, "labels", t->m_b, 1, OOM_I64));
	oom_returns(t, out);
	return loss;
}

struct oom_val oom_seq_cls_last(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				const char *name)
{
	struct oom_val all, logits, idx, loss;

	all = oom_op_linear(t, name, oom_keep(h), (struct oom_dim){t->n_labels, "num_labels"},
			    OOM_NO_QUANT | OOM_IS_HEAD);
	idx = oom_new(t, "last token", t->m_b, D(1), OOM_I64);
	logits = oom_op_gather(t, "pooled logits", oom_keep(all), idx, t->m_b,
			       (struct oom_dim){t->n_labels, "num_labels"});
	loss = oom_cls_loss(t, a, logits);
	oom_drop(t, all);                       /* locals until the loss is returned */
	oom_done(t, h);
	return loss;
}

/* hidden[eos] of every sequence, dropout, dense, tanh, dropout, out_proj
 * (BartClassificationHead, T5ClassificationHead). */
struct oom_val oom_seq2seq_cls(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct oom_dim d = {h.width, h.text};
	struct oom_val idx = oom_new(t, "eos positions", t->m_b, (struct oom_dim){2, NULL},
				     OOM_I64);
	struct oom_val x = oom_op_gather(t, "sentence", h, idx, t->m_b, d);

	x = oom_op_linear(t, "dense", oom_op_dropout(t, x, a->classifier_dropout), d, OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_TANH, x), a->classifier_dropout);
	x = oom_op_linear(t, "out_proj", x, (struct oom_dim){t->n_labels, "num_labels"}, OOM_BIAS);
	return oom_cls_loss(t, a, x);
}

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
struct oom_val oom_fused_ce(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	const uint64_t v = a->vocab, d = h.width, inc = oom_ceil_div(v, d);
	const uint64_t tokens = oom_mono_now(t, h.mono);
	uint64_t chunk = 1, piece = oom_ceil_div(tokens, inc);
	uint16_t part = OOM_MONO_ONE;
	struct oom_val w, gx, gw = oom_none(), loss, total, labels;
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
	t->flops[h.mono] += 2.0 * (double)d * (double)v * t->mult;
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

bool oom_fuses_head(const struct oom_tape *t)
{
	return t->plan->fused_ce == OOM_LOSS_FUSED && t->train;
}

struct oom_val oom_fused_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			      struct oom_val embed, const char *name, bool bias)
{
	struct oom_val loss = oom_fused_ce(t, a, h, embed, name);

	if (bias)
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	return loss;
}

struct oom_val oom_causal_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed)
{
	struct oom_val logits, hidden, loss;

	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_seq_cls_last(t, a, h, "score");
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, h, embed, "lm_head", a->head_bias);
	/* the model's output object keeps the last hidden states */
	hidden = oom_share(t, h);
	logits = oom_lm_head(t, a, h, embed, "lm_head", a->head_bias);
	loss = oom_causal_lm_loss(t, a, logits);
	oom_drop(t, hidden);
	return loss;
}
