/* GPT-2: pre-norm decoder with learned positions, fused qkv, plain feed-forward, dropout
 * everywhere; GPT-Neo: separate projections without bias, fp32 eager attention, alternating local
 * layers; GPT BigCode: one key and value head. Reference: transformers 5.12,
 * models/gpt2/modeling_gpt2.py, models/gpt_neo/modeling_gpt_neo.py,
 * models/gpt_bigcode/modeling_gpt_bigcode.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

/* What sets the three types apart. */
struct gpt2_kind {
	const struct oom_key_row *keys;
	bool conv1d;            /* layers are Conv1D, weights transposed */
	bool separate;          /* q, k and v of their own, attention in fp32, written out */
	bool multi_query;       /* one head of keys and values, unless the config says otherwise */
	bool triangle;          /* the model has the lower triangle as a buffer */
};
OOM_KIND(gpt2, struct gpt2_kind);

#define DROPOUTS(resid, embd, attn, p) \
	REAL(dropout, resid, p), REAL(embed_dropout, embd, p), REAL(attn_dropout, attn, p)

static const struct oom_key_row gpt2_keys[] = {
	LIKE(d_ff, "n_inner", 4, d_model), DROPOUTS("resid_pdrop", "embd_pdrop", "attn_pdrop", 0.1),
	OOM_KEYS_END};
static const struct oom_key_row neo_keys[] = {
	LIKE(d_ff, "intermediate_size", 4, d_model),
	DROPOUTS("resid_dropout", "embed_dropout", "attention_dropout", 0), OOM_KEYS_END};

static const struct gpt2_kind gpt2 = {.keys = gpt2_keys, .conv1d = true};
static const struct gpt2_kind gpt_neo = {.keys = neo_keys, .separate = true};
static const struct gpt2_kind bigcode = {.keys = gpt2_keys, .multi_query = true, .triangle = true};

static const struct oom_family_type gpt2_types[] = {
	{"gpt2", &gpt2}, {"gpt_neo", &gpt_neo}, {"gpt_bigcode", &bigcode}, {NULL, NULL}};

static const struct oom_key_row keys_of_all[] = {
	OOM_DECODER_KEYS, MUST(max_positions, "max_position_embeddings"),
	ACT(act, "activation_function", "gelu_new"), FLAG(tie, "tie_word_embeddings", true),
	OOM_KEYS_END};

static void gpt2_parse(struct oom_arch *a)
{
	const struct gpt2_kind *kind = gpt2_kind_of(a);
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, kind->keys);
	a->loss_apart = kind->conv1d;           /* GPT2LMHeadModel */
	if (kind->multi_query && oom_read_bool(r, "multi_query", true))
		a->n_kv_heads = 1;
	if (oom_read_bool(r, "add_cross_attention", false))
		oom_read_fail(r, "%s with cross-attention is not modelled", a->model_type);
	oom_check_heads(a);
}

/* The flags of c_attn, c_fc and c_proj. */
static unsigned linear_flags(const struct oom_arch *a)
{
	return gpt2_kind_of(a)->conv1d ? OOM_BIAS | OOM_CONV1D : OOM_BIAS;
}

/* layer: the frame of the block, where the weights have a name. */
static struct oom_val gpt2_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model),
			     kv = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {h, kv, kv};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q[3], y;

	at.caller = layer;
	at.mask = l->mask;
	at.softmax_as_is = linear_flags(a) & OOM_CONV1D;
	y = oom_op_linear(t, "c_attn", x, D(a->d_model + 2 * kv.n), linear_flags(a));
	oom_op_split(t, y, 3, parts, q);
	for (int i = 0; i < 3; i++)             /* query_states and its like */
		q[i] = oom_name(&f, oom_op_heads(t, q[i]));
	y = oom_attention_core(t, &at, q[0], q[1], q[2]);
	y = oom_op_linear(t, "c_proj", y, h, linear_flags(a));
	return oom_leave(&f, oom_op_dropout(t, y, a->dropout));
}

/* GPT-Neo writes attention out: q and k in fp32, a causal buffer applied by where(). */
static struct oom_val neo_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	/* of GPTNeoSelfAttention.forward, and of _attn within it */
	struct oom_frame f = {.t = t}, inner = {.t = t};
	struct oom_val q, k, v, w, p, y;
	enum oom_dtype dt;

	oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "q_proj", x, h, 0)));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "k_proj", x, h, 0)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v_proj", x, h, 0)));
	dt = v.dt;
	q = oom_name(&inner, oom_op_cast(t, q, OOM_F32));
	k = oom_name(&inner, oom_op_cast(t, k, OOM_F32));
	w = oom_op_bmm(t, "scores", q, k, t->m_bss, heads, a->head_dim);
	w = oom_op_masked(t, "where", w, oom_input(t, "causal buffer", t->m_s, 1, OOM_U8));
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, l->mask);
	p = oom_op_cast(t, oom_op_softmax(t, w, false), dt);
	p = oom_name(&inner, oom_op_dropout(t, p, a->attn_dropout));
	y = oom_op_bmm(t, "attention", p, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	*weights = oom_give(&inner, p);
	y = oom_op_merge_heads(t, oom_leave(&inner, y));
	y = oom_op_linear(t, "out_proj", y, h, OOM_BIAS);
	return oom_leave(&f, oom_op_dropout(t, y, a->dropout));
}

static struct oom_val gpt2_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct gpt2_kind *kind = gpt2_kind_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val h, y, weights = oom_none();

	/* the model's `outputs` are the last layer's until this one returns */
	if (kind->separate)
		oom_name(&f, oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, x.dt)));
	h = oom_name(&f, oom_norm(t, a->norm, "ln_1", x, 0));
	y = kind->separate ? neo_attention(t, l, h, &weights) : gpt2_attention(&f, l, h);
	y = oom_name(&f, y);                    /* attn_output, to the end */
	oom_name(&f, weights);
	if (!oom_is_none(weights))
		oom_block_returns(t, weights);
	/* hidden_states = attn_output + residual: the normed input's name is the sum's */
	x = oom_rename(&f, h, oom_op_add(t, y, x));
	h = oom_name(&f, oom_norm(t, a->norm, "ln_2", x, 0));
	y = oom_op_linear(t, "c_fc", h, D(a->d_ff), linear_flags(a));
	y = oom_op_linear(t, "c_proj", oom_activation(t, a->act, y), D(a->d_model), linear_flags(a));
	y = oom_name(&f, oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, oom_op_add(t, x, y));
}

static struct oom_val gpt2_prepare(struct oom_frame *f, const struct oom_arch *a,
				   struct oom_decoder_layer *l, struct oom_val x)
{
	const struct gpt2_kind *kind = gpt2_kind_of(a);
	struct oom_tape *t = f->t;
	struct oom_val ids, pos;

	if (kind->triangle)
		oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	ids = oom_position_ids(t);
	/* GPT-Neo's layers are not handed them */
	ids = kind->separate ? oom_name(f, ids) : oom_name_shared(f, ids);
	pos = oom_name(f, oom_op_embedding(t, "wpe", ids, a->max_positions, D(a->d_model), 0));
	x = oom_op_add(t, x, pos);
	if (!kind->separate || t->plan->padding_mask || t->plan->attn != OOM_ATTN_SDPA)
		l->mask = oom_name_shared(f,
					  oom_causal_mask(t, 0, x.dt));
	return oom_op_dropout(t, x, a->embed_dropout);
}

static const struct oom_type_targets gpt2_targets[] = {
	{"gpt_neo", "q_proj+v_proj", NULL}, {"gpt2", NULL, "ln_1+ln_2+ln_f"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_gpt2 = {
	.name = "gpt2",
	.summary = "pre-norm decoder, learned positions, fused qkv, plain feed-forward, dropout",
	.source = "transformers 5.12 models/gpt2/modeling_gpt2.py",
	.types = gpt2_types,
	.norm = OOM_NORM_LAYER,
	.lora_targets = "c_attn",
	.type_targets = gpt2_targets,
	.keys = keys_of_all,
	.parse = gpt2_parse,
	.decoder = OOM_DECODER(.embed = "wte", .norm = "ln_f", .block = gpt2_block,
			       .prepare = gpt2_prepare),
};
