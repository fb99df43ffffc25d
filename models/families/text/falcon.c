/* Falcon: fused qkv with one key and value head or a group of them, parallel feed-forward, a mask
 * always made. Reference: transformers 5.12, models/falcon/modeling_falcon.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct falcon {
	uint64_t norms;                 /* before attention and feed-forward side by side */
	bool grouped;                   /* new_decoder_architecture */
	bool multi_query, parallel, bias, alibi;
};
OOM_OWN(falcon, struct falcon);

static const struct oom_key_row falcon_keys[] = {
	OOM_DECODER_KEYS, LIKE(d_ff, "ffn_hidden_size", 4, d_model), ACT(act, "activation", "gelu"),
	REAL(attn_dropout, "attention_dropout", 0), REAL(dropout, "hidden_dropout", 0),
	FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct falcon, grouped, "new_decoder_architecture", false),
	FLAG_OWN(struct falcon, multi_query, "multi_query", true),
	FLAG_OWN(struct falcon, parallel, "parallel_attn", true),
	FLAG_OWN(struct falcon, bias, "bias", false),
	FLAG_OWN(struct falcon, alibi, "alibi", false), OOM_KEYS_END};

static void falcon_parse(struct oom_arch *a)
{
	struct falcon *own = falcon_own(a);
	struct oom_reader *r = &a->rd;

	own->norms = oom_read_count_or(r, "num_ln_in_parallel_attn", own->grouped ? 2 : 1);
	a->n_kv_heads = own->grouped	 ? oom_read_count_or(r, "num_kv_heads", a->n_heads) :
			own->multi_query ? 1 :
					   a->n_heads;
	if (!a->head_dim || !a->n_kv_heads || a->n_heads % a->n_kv_heads)
		oom_read_fail(r,
			      "num_attention_heads (%llu) must divide hidden_size and be a "
			      "multiple of num_kv_heads (%llu)",
			      (unsigned long long)a->n_heads, (unsigned long long)a->n_kv_heads);
}

/* fused_qkv taken apart as _split_heads does: slices are views, lists of indices copies,
 * flattened groups copies. */
static void split_heads(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			struct oom_val p[3])
{
	const struct oom_dim h = D(a->d_model), kv = D(a->n_kv_heads * a->head_dim);
	const struct falcon *own = falcon_of(a);

	for (int i = 0; i < 3; i++) {
		if (!own->grouped && (!own->multi_query || !i)) {
			p[i] = oom_op_slice(t, x, x.mono, h);
		} else if (!i) {
			p[i] = oom_op_copy(t, "flatten", oom_op_slice(t, x, x.mono, h));
		} else {
			/* the list becomes a tensor on the card, which the derivative keeps */
			p[i] = oom_op_gather(t, "index", x, oom_new(t, "index", OOM_MONO_ONE, D(1), OOM_I64),
					     x.mono, kv);
			if (own->grouped && a->n_kv_heads < a->n_heads)
				p[i] = oom_op_expand_copy(t, p[i], x.mono, h);
		}
	}
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

/* softmax(q k^T / sqrt(d) [+ alibi] + mask) v, scaled in place.  The weights are a name of the
 * layer's. */
static struct oom_val eager(struct oom_frame *layer, const struct oom_decoder_layer *l,
			    const struct oom_val p[3], enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val k = p[1], v = p[2], w, sum, y;

	if (a->n_kv_heads == 1 && a->n_heads > 1 && !falcon_of(a)->grouped) {
		k = oom_op_expand(t, k, k.mono, h);
		v = oom_op_expand(t, v, v.mono, h);
	}
	w = oom_op_bmm(t, "scores", p[0], k, t->m_bss, D(a->n_heads), a->head_dim);
	if (!oom_is_none(l->bias)) {            /* matmul_result, attention_scores and attention_logits */
		w = oom_name(&f, w);
		if (w.dt != OOM_F32)
			w = oom_name(&f, oom_op_cast(t, w, OOM_F32));
		w = oom_op_add(t, w, l->bias);
	}
	w = oom_name(&f, w);
	sum = oom_name(&f, oom_op_add(t, w, l->mask));  /* the call's argument: alive until it returns */
	y = oom_op_softmax(t, oom_op_cast(t, sum, dt), false);
	oom_forget(&f, sum);
	if (oom_is_none(l->bias))
		oom_forget(&f, w);              /* attention_scores is reassigned only now */
	else
		y = oom_op_dropout(t, y, a->attn_dropout);
	y = oom_name(layer, y);
	oom_block_returns(t, y);
	y = oom_op_bmm(t, "attention", y, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, y));
}

/* FalconLinear: x @ weight.T, and its bias added to that.  Under autocast the product has 16 bits and the bias 32, so
 * that what goes on is the sum in fp32. */
static struct oom_val falcon_linear(struct oom_tape *t, const struct oom_arch *a, const char *name, struct oom_val x,
				    struct oom_dim out)
{
	const char *scope = t->scope;

	x = oom_op_linear(t, name, x, out, OOM_NOT_LEAF | OOM_DERIVED);
	if (!falcon_of(a)->bias)
		return x;
	t->scope = name;
	x = oom_op_add(t, x, oom_param(t, "bias", 0, out.n, 0));
	t->scope = scope;
	return x;
}

static struct oom_val falcon_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t groups = falcon_of(a)->grouped ? a->n_heads : a->n_kv_heads,
		       kv = a->n_kv_heads * a->head_dim;
	struct oom_tape *t = layer->t;
	const struct oom_sdpa s = {.heads = a->n_heads, .kv_heads = groups, .d = a->head_dim,
				   .dv = a->head_dim, .mq = t->m_bs, .mk = t->m_bs, .sk = t->m_s,
				   .sq = t->m_s, .causal = true};
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	x = oom_arg(&f, x);
	y = falcon_linear(t, a, "query_key_value", x, D(a->d_model + 2 * kv));
	split_heads(t, a, oom_name(&f, y), p);
	if (!falcon_of(a)->alibi)
		oom_rope_pair(t, &p[0], &p[1], &l->rope, a->n_heads, groups, a->head_dim, a->head_dim);
	oom_name_each(&f, p, 3);                /* query_layer and its like */
	switch ((enum oom_attention)t->plan->attn) {
	case OOM_ATTN_SDPA:
		y = oom_op_merge_heads(t, oom_op_sdpa(t, p[0], p[1], p[2], l->mask, &s));
		break;
	case OOM_ATTN_FLASH:
		y = oom_op_merge_heads(t, oom_op_flash(t, p[0], p[1], p[2], &s));
		break;
	default: y = eager(layer, l, p, dt); break;
	}
	return oom_leave(&f, falcon_linear(t, a, "dense", y, D(a->d_model)));
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val falcon_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct falcon *own = falcon_of(a);
	const bool two = own->grouped && own->norms == 2, side = own->grouped || own->parallel;
	struct oom_frame f = {.t = t};
	struct oom_val h, m, y;

	if (t->plan->attn == OOM_ATTN_EAGER)
		oom_name(&f, oom_weights_before(t, i, a->n_heads, x.dt));
	h = oom_norm(t, a->norm, two ? "ln_attn" : "input_layernorm", x, 0);
	if (two)
		m = oom_name(&f, oom_norm(t, a->norm, "ln_mlp", x, 0));
	else
		h = m = oom_name(&f, h);
	y = falcon_attention(&f, l, h);
	if (!side) {
		x = oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, y, a->attn_dropout)));
		oom_forget(&f, m);
		m = oom_name(&f, oom_norm(t, a->norm, "post_attention_layernorm", x, 0));
	}
	h = falcon_linear(t, a, "dense_h_to_4h", m, D(a->d_ff));
	h = oom_activation(t, a->act, h);
	h = falcon_linear(t, a, "dense_4h_to_h", h, D(a->d_model));
	if (side)
		h = oom_op_add_inplace(t, h, y);
	return oom_leave(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
}

/* A mask function is handed to create_causal_mask, so the mask is made even where the kernel's
 * causality would do. */
static struct oom_val make_mask(struct oom_tape *t, enum oom_dtype dt)
{
	const bool grad = t->grad;
	struct oom_val b;

	if (t->plan->attn == OOM_ATTN_FLASH)
		return oom_none();
	if (t->plan->attn == OOM_ATTN_EAGER || t->plan->padding_mask)
		return oom_causal_mask(t, 0, dt);
	t->grad = false;
	b = oom_new(t, "mask", oom_mono_mul(t, t->m_s, t->m_s), D(1), OOM_U8);
	b.mono = t->m_bss;
	t->grad = grad;
	return b;
}

static struct oom_val falcon_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	const bool alibi = falcon_of(a)->alibi;
	struct oom_tape *t = f->t;
	struct oom_val m;

	if (oom_plan_quantised(t->plan) && !t->plan->quantise_derived)
		oom_tape_warn(t, "Falcon's layers stay as they are: transformers 5 quantises nn.Linear itself and no class derived "
			     "from it (--quantise-derived true, or --transformers 4.57: as before)");
	if (alibi)
		l->bias = oom_name_shared(f, oom_new(t, "alibi", t->m_bs, D(a->n_heads), dt));
	m = l->mask = oom_name_shared(f, make_mask(t, dt));
	if (alibi && !oom_is_none(m)) {         /* the bias is folded into a mask for every head */
		l->mask = oom_new(t, "alibi mask", t->m_bss, D(a->n_heads), dt);
		l->mask = oom_name_shared(f, l->mask);
		oom_forget(f, m);
	}
	l->rope = oom_name_tables(f, oom_rope_tables(t, a->head_dim, dt, 2));
	return x;
}

static const struct oom_type_targets falcon_targets[] = {
	{"falcon", NULL, "input_layernorm+post_attention_layernorm+ln_f"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_falcon = {
	.name = "falcon",
	.summary = "parallel decoder, fused qkv with few key heads, rotary positions or ALiBi",
	.source = "transformers 5.12 models/falcon/modeling_falcon.py",
	.one_sample = true,
	.types = OOM_TYPE("falcon"),
	.norm = OOM_NORM_LAYER,
	.lora_targets = "query_key_value",
	.type_targets = falcon_targets,
	.keys = falcon_keys,
	.parse = falcon_parse,
	.decoder = OOM_DECODER(.embed = "word_embeddings", .norm = "ln_f", .position_ids = true,
			       .block = falcon_block, .prepare = falcon_prepare),
};
