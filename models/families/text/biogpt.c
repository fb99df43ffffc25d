/* BioGPT and XGLM: pre-norm decoders of fairseq's line, scaled embeddings, one more norm after the
 * layers. Reference: transformers 5.12, models/{biogpt,xglm}/modeling_*.py. */
#include <string.h>

#include "blocks/blocks.h"

enum { XGLM };                          /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const bool xglm = !strcmp(a->model_type, "xglm");

	a->extra[XGLM] = xglm;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, xglm ? "d_model" : "hidden_size", 1);
	a->n_layers = oom_read_count(r, xglm ? "num_layers" : "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r,
						    xglm ? "attention_heads" :
							   "num_attention_heads",
						    1);
	a->d_ff = oom_read_count(r, xglm ? "ffn_dim" : "intermediate_size", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, xglm ? "activation_function" : "hidden_act", "gelu");
	a->dropout = oom_read_real(r, xglm ? "dropout" : "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r,
					xglm ? "attention_dropout" : "attention_probs_dropout_prob",
					0.1);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (oom_read_bool(r, "add_cross_attention", false))
		oom_read_fail(r, "%s with cross-attention is not modelled", a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* XGLM writes attention out: softmax(max(q k^T + mask, lowest)) v in the model's type. */
static struct oom_val written_out(struct oom_tape *t, const struct layer *l, struct oom_val x,
				  struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_val q, k, v, w;

	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", oom_keep(x), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(x), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), h, OOM_BIAS));
	q = oom_op_heads(t, q);
	if (oom_cond_above(t, t->m_b, 1)) {     /* of one sequence: views */
		q = oom_op_copy(t, "reshape", q);
		k = oom_op_copy(t, "reshape", k);
		v = oom_op_copy(t, "reshape", v);
	}
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), t->m_bss, D(a->n_heads), a->head_dim);
	w = oom_op_add(t, w, oom_keep(l->mask));
	w = oom_op_at_least(t, w);
	if (w.dt == OOM_DT_F16)
		w = oom_op_cast(t, oom_op_softmax(t, w, true), OOM_DT_F16);
	else
		w = oom_op_softmax(t, w, false);
	*weights = oom_share(t, w);
	w = oom_op_dropout(t, w, a->attn_dropout);
	w = oom_op_bmm(t, "attention", w, oom_keep(v), t->m_bs, h, oom_mono_now(t, t->m_s));
	w = oom_op_linear(t, "out_proj", oom_op_merge_heads(t, w), h, OOM_BIAS);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	oom_done(t, x);
	return w;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val h, weights = oom_none();

	(void)i;
	at.mask = l->mask;
	at.qkv_bias = at.o_bias = true;
	at.softmax_as_is = at.no_cast_back = true;
	at.o = "out_proj";
	h = oom_op_layer_norm(t, "self_attn_layer_norm", oom_keep(x), 0, true, true);
	h = a->extra[XGLM] ? written_out(t, l, h, &weights) : oom_attention(t, &at, h);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	h = oom_op_layer_norm(t, "final_layer_norm", oom_keep(x), 0, true, true);
	h = oom_activation(t, a->act, oom_op_linear(t, "fc1", h, D(a->d_ff), OOM_BIAS));
	h = oom_op_linear(t, "fc2", oom_op_dropout(t, h, a->act_dropout), D(a->d_model), OOM_BIAS);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	/* "hidden_states, _ =" keeps them for the whole layer */
	oom_drop(t, weights);
	return x;
}

static struct oom_val positions(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct oom_dim h = D(a->d_model);
	const bool grad = t->grad;
	struct oom_val pos;

	if (!a->extra[XGLM]) {
		pos = oom_new(t, "position ids + 2", t->m_s, D(1), OOM_I64);
		return oom_op_embedding(t, "embed_positions", pos, a->max_positions + 2, h, 0);
	}
	/* a table that is not trained */
	oom_buffer(t, (a->max_positions + 2) * a->d_model, dt);
	t->grad = false;
	pos = oom_new(t, "index_select", t->m_s, h, dt);
	t->grad = grad;
	return pos;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, pos, position_ids, ones = oom_none(),
							   ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_unary(t, OOM_SCALE,
			 oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	if (!a->extra[XGLM] && !t->plan->padding_mask)
		ones = oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	l.mask = a->extra[XGLM] ? oom_make_eager_mask(t, (enum oom_dtype)x.dt) :
		 oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	/* BioGPT's layers get them too; a local of both models until they return */
	position_ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	pos = positions(t, a, (enum oom_dtype)x.dt);
	x = oom_op_add(t, x, oom_keep(pos));
	if (a->extra[XGLM]) {
		oom_drop(t, pos);
		pos = oom_none();
	}
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	if (a->extra[XGLM])
		oom_drop(t, position_ids);
	else
		oom_drop_shared(t, position_ids);
	oom_drop(t, pos);
	oom_drop(t, ones);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"biogpt", NULL}, {"xglm", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_biogpt = {
	.name = "biogpt",
	.summary = "pre-norm decoder with scaled embeddings and a last norm",
	.source = "transformers 5.12 models/biogpt/modeling_biogpt.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
