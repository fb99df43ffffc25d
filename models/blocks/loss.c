/* Heads and losses.  Reference: transformers 5.12, loss/loss_utils.py and the ForCausalLM /
 * ForMaskedLM / ForSequenceClassification classes; torch.nn.functional.cross_entropy =
 * log_softmax + nll_loss. */
#include <string.h>

#include "blocks.h"
#include "blocks/tokens.h"
#include "tape/round.h"

/* log_softmax is kept (its own derivative needs it, and nll_loss keeps it too); nll_loss_backward
 * makes zeros of the same size, then _log_softmax_backward_data another: 12 bytes per element at
 * the start of backward in fp32. */
static struct oom_val eager_cross_entropy(struct oom_tape *t, struct oom_val logits,
					  struct oom_val labels)
{
	/* a local of the caller */
	struct oom_val first, lp, loss, total, weights = oom_none(), held = oom_share(t, logits);
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
	if (t->plan->class_weights)             /* made anew by a compute_loss, at most as long as the batch's graph */
		weights = oom_new(t, "class weights", OOM_MONO_ONE, (struct oom_dim){lp.width, lp.text}, (enum oom_dtype)lp.dt);
	if (rg) {
		loss = oom_node_out(t, n, 0, loss);
		oom_node_save(t, n, total);
		if (!oom_is_none(weights))
			oom_node_save(t, n, weights);
	}
	oom_drop(t, weights);
	oom_drop(t, first);
	oom_drop(t, lp);
	oom_drop(t, total);
	oom_drop(t, held);
	oom_done(t, labels);
	return loss;
}

/* Losses of one kernel over whole logits, which does its arithmetic in registers. */
struct kernel {
	const char *node;
	bool as_they_are;       /* reads 16-bit logits, no fp32 copy is made for it */
	bool in_place;          /* the gradient takes the logits' place; without one, PyTorch's own runs */
	const char *rows[3];    /* per token, fp32; the first is kept, and the labels, unless in place */
};

static const struct kernel kernels[] = {
	/* linkedin/Liger-Kernel ops/cross_entropy.py: the gradient is made in the forward */
	[OOM_LOSS_IN_PLACE] = {"LigerCrossEntropy", false, true, {"loss per token"}},
	[OOM_LOSS_SLICED_IN_PLACE] = {"LigerCrossEntropy", false, true, {"loss per token"}},
	[OOM_LOSS_APART_IN_PLACE] = {"LigerCrossEntropy", false, true, {"loss per token"}},
	/* inductor keeps the logits and a logsumexp per token and writes the gradient in the logits'
	 * type, as it did on an H100 (PyTorch 2.11). */
	[OOM_LOSS_COMPILED] = {"CompiledCrossEntropy", true, false, {"logsumexp"}},
	/* flash_attn/ops/triton/cross_entropy.py with inplace_backward=False, its default and what
	 * llm-foundry takes (llmfoundry/models/mpt/modeling_mpt.py ComposerMPTCausalLM): logits,
	 * logsumexp and labels are saved, dlogits is empty_like(logits) */
	[OOM_LOSS_FLASH] = {"FlashCrossEntropy", true, false, {"logsumexp", "losses", "z_losses"}},
};

static const struct kernel *kernel_of(const struct oom_tape *t)
{
	const bool compiled = t->plan->compile && (t->plan->fused_ce == OOM_LOSS_PLAIN ||
						   t->plan->fused_ce == OOM_LOSS_CHUNKED);
	const size_t at = compiled ? OOM_LOSS_COMPILED : (size_t)t->plan->fused_ce;
	const struct kernel *k = at < sizeof(kernels) / sizeof(kernels[0]) ? &kernels[at] : NULL;

	return k && k->node && (t->grad || !k->in_place) ? k : NULL;
}

/* A compiled graph with the loss in it returns the model's logits beside the loss, and autograd hands its backward pass zeros for
 * them (torch/csrc/autograd/python_function.cpp, materialize_grads): 2 bytes a logit beside logits and gradient, seen on an
 * H100 in the allocated bytes and in the code that inductor wrote (`tangents_2`).  It is the model's one graph, or the last of
 * those that FSDP's hooks cut it into; layers that are compiled by themselves leave the loss to another. */
static bool makes_zeros(const struct oom_tape *t)
{
	return t->plan->compile && !t->plan->compile_layers && t->plan->fused_ce == OOM_LOSS_PLAIN && !t->arch->loss_apart;
}

static struct oom_val one_kernel(struct oom_tape *t, const struct kernel *k, struct oom_val logits,
				 struct oom_val labels)
{
	struct oom_val rows[3], loss;
	int32_t n = -1;

	t->scope = "loss";
	if (oom_wants_grad(t, logits)) {
		n = oom_node(t, k->in_place ? OOM_NODE_GIVEN : OOM_NODE_SOFTMAX, k->node);
		oom_node_edge(t, n, logits);
		oom_node_save(t, n, logits);
		if (n >= 0) {
			t->nodes[n].dt = logits.dt;
			t->nodes[n].zeros = makes_zeros(t);
		}
	}
	for (int i = 0; i < 3; i++)
		rows[i] = k->rows[i] ? oom_new(t, k->rows[i], logits.mono, D(1), OOM_F32) : oom_none();
	if (!k->in_place && n >= 0) {
		oom_node_save(t, n, rows[0]);
		oom_node_save(t, n, labels);
	}
	loss = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	for (int i = 0; i < 3; i++)
		oom_drop(t, rows[i]);
	oom_done(t, logits);
	oom_drop(t, labels);
	return n >= 0 ? oom_node_out(t, n, 0, loss) : loss;
}

/* verl's log-probabilities are the losses of flash_attn's kernel, whose gradient takes the logits' place (verl/utils/
 * torch_functional.py logprobs_from_logits_flash_attn, workers/actor/dp_actor.py inplace_backward). */
bool oom_logps_in_place(const struct oom_plan *p)
{
	return p->fused_ce == OOM_LOSS_FLASH;
}

struct oom_val oom_flash_logps(struct oom_tape *t, struct oom_val logits)
{
	struct kernel in_place = kernels[OOM_LOSS_FLASH];

	in_place.in_place = true;
	return one_kernel(t, &in_place, logits, oom_new(t, "labels", logits.mono, D(1), OOM_I64));
}

/* logits.float(), but for a kernel that reads 16-bit logits as they are, and a loop that passes them on so. */
struct oom_val oom_upcast_logits(struct oom_tape *t, struct oom_val logits)
{
	const struct kernel *k = kernel_of(t);
	const bool own = t->plan->fused_ce == OOM_LOSS_OWN_TYPE && !t->amp;

	return own || (k && k->as_they_are) ? logits : oom_op_cast(t, logits, OOM_F32);
}

struct oom_val oom_cross_entropy(struct oom_tape *t, struct oom_val logits, struct oom_val labels)
{
	const struct kernel *k = kernel_of(t);

	return k ? one_kernel(t, k, logits, labels) : eager_cross_entropy(t, logits, labels);
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

struct oom_val oom_lm_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			   struct oom_val embed, const char *name, bool bias)
{
	const struct oom_dim v = {a->vocab, "vocab_size"};

	t->vocab = a->vocab;
	/* logits_to_keep: hidden[:, -n:, :], which the product copies where there are several
	 * sequences */
	if (t->m_logits != OOM_MONO_ONE) {
		h = oom_op_slice(t, h, t->m_logits, (struct oom_dim){h.width, h.text});
		if (oom_cond_above(t, t->m_b, 1))
			h = oom_op_copy(t, "clone", h);
	}
	if (a->tie) {
		struct oom_val b = oom_none();

		/* the bias of a tied "decoder" belongs to the head's module, which the caller has named */
		if (bias && strcmp(name, "decoder") != 0)
			t->scope = name;
		if (bias)
			b = oom_param(t, "bias", 0, a->vocab, 0);
		return oom_op_matmul_tied(t, name, h, embed, b, v);
	}
	return oom_op_linear(t, name, h, v, OOM_IS_HEAD | (bias ? OOM_BIAS : 0));
}

void oom_returns_logits(struct oom_tape *t, struct oom_val logits)
{
	t->logits_at = (int)t->n_outputs;
	oom_returns(t, logits.kept ? oom_share(t, logits) : logits);
}

struct oom_val oom_logits_alone(struct oom_tape *t, struct oom_val logits)
{
	oom_returns_logits(t, logits);
	return oom_none();
}

/* The batch's labels from the second token on: a view of one sequence's, a copy of several. */
static struct oom_val labels_from_second(struct oom_tape *t, uint16_t tokens)
{
	if (oom_cond_above(t, t->m_b, 1))
		return oom_new(t, "shifted labels", tokens, D(1), OOM_I64);
	return (struct oom_val){.width = 1, .sto = -1, .node = -1, .mono = tokens, .dt = OOM_I64};
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
	labels = labels_from_second(t, tokens);
	loss = oom_cross_entropy(t, f, labels);
	oom_returns_logits(t, out);
	return loss;
}

/* transformers < 4.49: shift_logits = logits[..., :-1, :].contiguous(), beside the local that it is cut from.
 * The ":" of the last dimension is a slice of its own: PyTorch of that time skips a whole one only where its
 * end is written out (ATen/TensorIndexing.h applySlice, length == stop).  In the backward pass each makes
 * zeros of what it was cut from, the second s - 1 tokens, the first s. */
static struct oom_val sliced_loss(struct oom_tape *t, struct oom_val f)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const struct oom_dim v = {f.width, f.text};
	struct oom_val whole = oom_share(t, f), loss;

	f = oom_op_slice(t, f, tokens, v);
	f = oom_op_slice(t, f, tokens, v);
	if (oom_cond_above(t, t->m_b, 1))       /* one sequence is contiguous as it stands */
		f = oom_op_copy(t, "shifted logits", f);
	loss = oom_cross_entropy(t, f, labels_from_second(t, tokens));
	oom_drop(t, whole);
	return loss;
}

/* logits.float(); labels padded by one and shifted: no logit is copied. */
struct oom_val oom_causal_lm_loss(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val logits)
{
	const enum oom_loss kind = (enum oom_loss)t->plan->fused_ce;
	const bool apart = kind == OOM_LOSS_SLICED_APART || kind == OOM_LOSS_APART_IN_PLACE,
		   upcast = kind == OOM_LOSS_SLICED || kind == OOM_LOSS_SLICED_IN_PLACE;
	struct oom_val labels, loss;

	t->scope = "loss";
	if (a->softcap_logits > 0) {            /* logits / cap; tanh; * cap */
		logits = oom_op_unary(t, OOM_SCALE, logits);
		logits = oom_op_unary(t, OOM_TANH, logits);
		logits = oom_op_unary(t, OOM_SCALE, logits);
	}
	if (a->scale_logits)
		logits = oom_op_unary(t, OOM_SCALE, logits);
	if (t->shift && !t->no_labels)
		return shifted_loss(t, logits);
	/* transformers < 4.46: the class itself upcasts, with labels or without; its own are gone */
	if (a->float_logits || upcast)
		logits = oom_op_cast(t, logits, OOM_F32);
	if (t->no_labels)
		return oom_logits_alone(t, logits);
	/* the model's output holds the logits until the loss is done */
	{
		struct oom_val out = oom_share(t, logits), padded, f = oom_upcast_logits(t, logits);

		if (upcast || apart) {
			loss = sliced_loss(t, f);
			oom_returns_logits(t, out);
			return loss;
		}
		/* F.pad(labels, (0, 1)), a local to the end; [..., 1:].contiguous() of one
		 * sequence is a view of it */
		padded = oom_new(t, "padded labels", oom_len_plus_in_many(t, t->m_b, 1), D(1),
				 OOM_I64);
		labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1),
				 OOM_I64);
		loss = oom_cross_entropy(t, f, labels);
		oom_drop(t, padded);
		oom_returns_logits(t, out);
	}
	return loss;
}

struct oom_val oom_plain_lm_loss(struct oom_tape *t, struct oom_val logits, bool wide,
				 uint16_t tokens)
{
	struct oom_val out, loss;

	if (t->no_labels)
		return oom_logits_alone(t, logits);
	out = oom_share(t, logits);
	if (wide)
		logits = oom_upcast_logits(t, logits);
	loss = oom_cross_entropy(t, logits, oom_input(t, "labels", tokens, 1, OOM_I64));
	oom_returns_logits(t, out);
	return loss;
}

struct oom_val oom_cls_loss(struct oom_tape *t, const struct oom_arch *a, struct oom_val logits)
{
	struct oom_val out, loss;

	(void)a;
	if (t->no_labels)
		return oom_logits_alone(t, logits);
	out = oom_share(t, logits);
	loss = oom_cross_entropy(t, logits, oom_input(t, "labels", t->m_b, 1, OOM_I64));
	oom_returns_logits(t, out);
	return loss;
}

/* The last token of every sequence that is no padding; held: what its names keep, the tokens that are no
 * padding and their places (modeling_layers.py, GenericForSequenceClassification). */
static struct oom_val last_token(struct oom_tape *t, struct oom_val held[2])
{
	const bool grad = t->grad;
	struct oom_val differ, placed, idx;

	t->grad = false;
	differ = oom_new(t, "not padding", t->m_bs, D(1), OOM_U8);
	held[0] = oom_new(t, "not padding", t->m_bs, D(1), OOM_I32);
	oom_drop(t, differ);
	held[1] = oom_new(t, "places", t->m_s, D(1), OOM_I32);
	placed = oom_new(t, "places", t->m_bs, D(1), OOM_I32);
	idx = oom_new(t, "last token", t->m_b, D(1), OOM_I64);
	oom_drop(t, placed);
	t->grad = grad;
	return idx;
}

struct oom_val oom_seq_cls_last(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				const char *name)
{
	struct oom_val all, logits, idx, loss, held[2];

	all = oom_op_linear(t, name, oom_keep(h), (struct oom_dim){t->n_labels, "num_labels"},
			    OOM_NO_QUANT | OOM_IS_HEAD);
	idx = last_token(t, held);
	logits = oom_op_gather(t, "pooled logits", oom_keep(all), idx, t->m_b,
			       (struct oom_dim){t->n_labels, "num_labels"});
	loss = oom_cls_loss(t, a, logits);
	for (int i = 0; i < 2; i++)             /* locals until the loss is returned */
		oom_drop(t, held[i]);
	oom_drop(t, all);
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

struct oom_val oom_causal_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed, const char *name)
{
	struct oom_val logits, hidden, loss;

	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_seq_cls_last(t, a, h, "score");
	if (oom_tokens_asked(t))                /* config.classifier_dropout, hidden_dropout, else this */
		return oom_tokens_head(t, &(struct oom_tokens){.name = "score", .dropout = 0.1, .converts = true}, h);
	if (oom_fuses_head(t)) {
		loss = oom_fused_head(t, a, h, embed, name, a->head_bias);
		oom_router_loss(t);
		return loss;
	}
	/* the model's output object keeps the last hidden states */
	hidden = t->loss_outside ? oom_none() : oom_share(t, h);
	logits = oom_lm_head(t, a, h, embed, name, a->head_bias);
	loss = oom_causal_lm_loss(t, a, logits);
	oom_router_loss(t);
	oom_drop(t, hidden);
	return loss;
}

struct oom_val oom_causal_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed)
{
	return oom_causal_head(t, a, h, embed, "lm_head");
}
