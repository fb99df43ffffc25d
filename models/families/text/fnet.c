/* FNet: Fourier transforms in place of attention.
 * Reference: transformers 5.12, models/fnet/modeling_fnet.py. */
#include "blocks/encoder.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 4);
	a->act = oom_read_act(r, "hidden_act", "gelu_new");
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
}

struct layer {
	const struct oom_arch *a;
};

/* torch.fft.fftn(x, dim=(1, 2)).real: a complex tensor and one for the transform of the second
 * dimension; the real part is a view.  The derivative is linear, nothing is kept. */
static struct oom_val fourier(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim complex = D(2 * a->d_model);
	struct oom_val f = oom_op_cast(t, oom_keep(x), OOM_F32), y;

	y = oom_op_expand_copy(t, f, t->m_bs, complex);
	y = oom_op_copy(t, "fft", y);
	return oom_op_slice(t, y, t->m_bs, D(a->d_model));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val f = fourier(t, a, x), y;

	(void)i;
	y = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, x, oom_keep(f)), 0, true, true);
	oom_drop(t, f);
	x = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(y), D(a->d_ff), OOM_BIAS));
	return oom_output(t, a->dropout, "LayerNorm", x, y);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val w, pos, tt, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, h);
	w = oom_input_grads(t, w);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_input(t, "token type ids", t->m_bs, 1, OOM_I64), a->type_vocab, h,
			      0);
	x = oom_op_add(t, oom_keep(w), oom_keep(tt));
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       h, 0);
	x = oom_op_add_inplace(t, x, oom_keep(pos));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_op_dropout(t, oom_op_linear(t, "projection", x, h, OOM_BIAS), a->dropout);
	oom_drop(t, w);
	oom_drop(t, tt);
	oom_drop(t, pos);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = a->act, .spare_bias = true};
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first = oom_share(t, x);

	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop(t, first);
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_pooler_head(t, a, x);
	oom_idle_pooler(t, a, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_fnet = {
	.name = "fnet",
	.summary = "Fourier transforms in place of attention",
	.source = "transformers 5.12 models/fnet/modeling_fnet.py",
	.types = OOM_TYPE("fnet"),
	.lora_targets = "dense",
	.parse = parse,
	.step = step,
};
