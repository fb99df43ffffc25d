/* BioGPT and XGLM: pre-norm decoders of fairseq's line, scaled embeddings, one more norm after the
 * layers. Reference: transformers 5.12, models/{biogpt,xglm}/modeling_*.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct biogpt_kind {
	const struct oom_key_row *keys;
	bool written_out;               /* attention, whatever the plan asks for (XGLM) */
	bool table;                     /* positions are a table that is not trained (XGLM) */
};
OOM_KIND(biogpt, struct biogpt_kind);

static const struct oom_key_row biogpt_keys[] = {
	MUST(d_model, "hidden_size"), MUST(n_layers, "num_hidden_layers"),
	MUST(n_heads, "num_attention_heads"), MUST(d_ff, "intermediate_size"),
	ACT(act, "hidden_act", "gelu"), REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1), OOM_KEYS_END};
static const struct oom_key_row xglm_keys[] = {
	MUST(d_model, "d_model"), MUST(n_layers, "num_layers"), MUST(n_heads, "attention_heads"),
	MUST(d_ff, "ffn_dim"), ACT(act, "activation_function", "gelu"),
	REAL(dropout, "dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0.1), OOM_KEYS_END};
static const struct biogpt_kind biogpt = {.keys = biogpt_keys};
static const struct biogpt_kind xglm = {.keys = xglm_keys, .written_out = true, .table = true};
static const struct oom_family_type biogpt_types[] = {
	{"biogpt", &biogpt}, {"xglm", &xglm}, {NULL, NULL},
};

static const struct oom_key_row keys_of_both[] = {
	MUST(vocab, "vocab_size"), MUST(max_positions, "max_position_embeddings"),
	REAL(act_dropout, "activation_dropout", 0), FLAG(tie, "tie_word_embeddings", true),
	OOM_KEYS_END};

static void biogpt_parse(struct oom_arch *a)
{
	oom_read_rows(a, biogpt_kind_of(a)->keys);
	if (oom_read_bool(&a->rd, "add_cross_attention", false))
		oom_read_fail(&a->rd, "%s with cross-attention is not modelled", a->model_type);
}

/* XGLM writes attention out: softmax(max(q k^T + mask, lowest)) v in the model's type.  layer: the
 * frame of the block, where the weights have a name ("hidden_states, _ ="). */
static struct oom_val written_out(struct oom_frame *layer, const struct oom_decoder_layer *l,
				  struct oom_val x)
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], w;

	x = oom_arg(&f, x);
	for (int i = 0; i < 3; i++) {
		p[i] = oom_op_linear(t, names[i], x, h, OOM_BIAS);
		p[i] = oom_op_heads(t, i ? p[i] : oom_op_unary(t, OOM_SCALE, p[i]));
	}
	for (int i = 0; i < 3 && oom_cond_above(t, t->m_b, 1); i++)     /* of one sequence: views */
		p[i] = oom_op_copy(t, "reshape", p[i]);
	oom_name_each(&f, p, 3);
	w = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, D(a->n_heads), a->head_dim);
	w = oom_op_at_least(t, oom_op_add(t, w, l->mask));
	if (w.dt == OOM_DT_F16)
		w = oom_op_cast(t, oom_op_softmax(t, w, true), OOM_DT_F16);
	else
		w = oom_op_softmax(t, w, false);
	w = oom_op_dropout(t, oom_name(layer, w), a->attn_dropout);
	w = oom_op_bmm(t, "attention", w, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	w = oom_op_linear(t, "out_proj", oom_op_merge_heads(t, w), h, OOM_BIAS);
	return oom_leave(&f, w);
}

static struct oom_val biogpt_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	at.mask = l->mask;
	at.qkv_bias = at.o_bias = true;
	at.softmax_as_is = at.no_cast_back = true;
	at.o = "out_proj";
	at.caller = &f;                         /* "hidden_states, _ =" */
	h = oom_norm(t, a->norm, "self_attn_layer_norm", x, 0);
	h = biogpt_kind_of(a)->written_out ? written_out(&f, l, h) : oom_attention(t, &at, h);
	x = oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
	h = oom_norm(t, a->norm, "final_layer_norm", x, 0);
	h = oom_activation(t, a->act, oom_op_linear(t, "fc1", h, D(a->d_ff), OOM_BIAS));
	h = oom_op_linear(t, "fc2", oom_op_dropout(t, h, a->act_dropout), D(a->d_model), OOM_BIAS);
	return oom_leave(&f, oom_op_add(t, oom_take(&f, x), oom_op_dropout(t, h, a->dropout)));
}

static struct oom_val positions(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct oom_dim h = D(a->d_model);
	const bool grad = t->grad;
	struct oom_val pos;

	if (!biogpt_kind_of(a)->table) {
		pos = oom_new(t, "position ids + 2", t->m_s, D(1), OOM_I64);
		return oom_op_embedding(t, "embed_positions", pos, a->max_positions + 2, h, 0);
	}
	oom_buffer(t, (a->max_positions + 2) * a->d_model, dt);
	t->grad = false;
	pos = oom_new(t, "index_select", t->m_s, h, dt);
	t->grad = grad;
	return pos;
}

static struct oom_val biogpt_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *l, struct oom_val x)
{
	const struct biogpt_kind *k = biogpt_kind_of(a);
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;
	struct oom_val m, ids, pos;

	if (!k->table && !t->plan->padding_mask)
		oom_name(f, oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32));
	m = k->written_out ? oom_make_eager_mask(t, dt) :
			     oom_causal_mask(t, 0, dt);
	l->mask = oom_name_shared(f, m);
	/* BioGPT's layers get them too; a local of both models until they return */
	ids = oom_position_ids(t);
	ids = k->table ? oom_name(f, ids) : oom_name_shared(f, ids);
	pos = oom_name(f, positions(t, a, dt));
	x = oom_op_add(t, x, pos);
	if (k->table)
		oom_forget(f, pos);
	return oom_op_dropout(t, x, a->dropout);
}

const struct oom_family oom_family_biogpt = {
	.name = "biogpt",
	.summary = "pre-norm decoder with scaled embeddings and a last norm",
	.source = "transformers 5.12 models/biogpt/modeling_biogpt.py",
	.one_sample = true,
	.types = biogpt_types,
	.norm = OOM_NORM_LAYER,
	.lora_targets = "q_proj+v_proj",
	.keys = keys_of_both,
	.parse = biogpt_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "layer_norm", .scaled_embed = true,
			       .block = biogpt_block, .prepare = biogpt_prepare),
};
