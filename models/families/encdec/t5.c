/* T5: encoder-decoder with relative position biases shared by all layers, eager attention, no
 * biases. UMT5 has a bias table in every layer instead; t5_parts.c holds what else its relatives do
 * differently. Reference: transformers 5.12,
 * models/{t5,mt5,umt5,switch_transformers,longt5,pop2piano,udop}/modeling_*.py. */
#include "blocks/audio.h"
#include "blocks/encdec.h"
#include "t5.h"

/* The first layer looks its bias up behind the product that makes its scores, whose derivative runs after the lookup's:
 * until then it has the gradient of the scores in their own type.  A checkpointed layer has made the buckets again, too.  By the
 * interface the product comes after the lookup. */
static void beside_lookup(struct oom_tape *t, const struct t5_stack *s, struct oom_node *n)
{
	const uint16_t scores = oom_mono_mul(t, s->m_tokens, s->m_len);

	n->perm = OOM_LOOKUP_TURNED | (t->plan->grad_ckpt != OOM_CKPT_NONE ? OOM_LOOKUP_AGAIN : 0);
	if (t5_by_name(t))
		return;
	n->heads = (uint16_t)s->a->n_heads;
	n->length = scores;
	n->d = (uint16_t)(t->amp ? t->amp_dt : n->dt);
}

/* Bucketed relative positions, looked up and permuted to [1, heads, s, s].  `within`: made in the
 * first layer, whose checkpoint keeps no buckets. */
static struct oom_val relative_positions(struct oom_tape *t, const struct t5_stack *s, bool within)
{
	const uint16_t plane = oom_mono_mul(t, s->m_len, s->m_len);
	const struct oom_dim heads = {s->a->n_heads, "num_heads"};
	struct oom_val ids, b;

	if (within && t->plan->grad_ckpt != OOM_CKPT_NONE && t->grad && t->train) {
		oom_scratch(t, "relative buckets", plane, 1, OOM_I64);
		ids = oom_input(t, "relative buckets", plane, 1, OOM_I64);
	} else {
		ids = oom_new(t, "relative buckets", plane, D(1), OOM_I64);
	}
	b = oom_op_embedding(t, "relative_attention_bias", ids, t5_of(s->a)->buckets, heads, 0);
	b.perm = false;
	if (within && b.node >= 0)
		beside_lookup(t, s, &t->nodes[b.node]);
	return b;
}

/* A bias of zeros over keys of this length: for cross-attention, for layers without a table.  Under checkpointing it is a
 * leaf that asks for a gradient (position_bias.requires_grad = True), for nobody to use. */
static struct oom_val no_positions(struct oom_tape *t, const struct t5_stack *s, bool cross,
				   enum oom_dtype dt)
{
	struct oom_val zeros = oom_new(t, cross ? "cross position bias" : "position bias",
				       oom_mono_mul(t, s->m_len, cross ? s->m_src_len : s->m_len),
				       (struct oom_dim){s->a->n_heads, "num_heads"}, dt);
	int32_t n;

	/* a reentrant block's first run has no graph */
	if (t->plan->grad_ckpt == OOM_CKPT_NONE || oom_ckpt_reenters(t->plan) || !t->train || !t->grad ||
	    t5_kind_of(s->a)->each)
		return zeros;
	n = oom_node(t, OOM_NODE_LEAF, "position bias");
	zeros = oom_node_out(t, n, 0, zeros);
	oom_node_save(t, n, zeros);             /* AccumulateGrad holds its leaf */
	return zeros;
}

static struct oom_val masked(struct oom_tape *t, const struct t5_stack *s, struct oom_val bias,
			     struct oom_val mask)
{
	if (oom_is_none(mask) || t5_by_name(t))         /* which each layer adds for itself */
		return bias;
	return oom_op_add_into(t, bias, mask, oom_mono_mul(t, t->m_b, bias.mono),
			       (struct oom_dim){s->a->n_heads, "num_heads"});
}

/* A layer's own bias: looked up, or zeros, and masked. */
static struct oom_val own_bias(struct oom_tape *t, const struct t5_stack *s, uint32_t layer,
			       bool cross, enum oom_dtype dt)
{
	struct oom_val b;

	if (cross || (layer && t5_kind_of(s->a)->table_once))
		b = no_positions(t, s, cross, dt);
	else
		b = relative_positions(t, s, false);
	return masked(t, s, b, cross ? s->cross_mask : s->mask);
}

static struct oom_val t5_attention(struct oom_tape *t, const struct t5_stack *s, uint32_t layer,
				   struct oom_val x, bool cross)
{
	const struct oom_arch *a = s->a;
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * d_kv"},
			     heads = {a->n_heads, "num_heads"};
	const uint16_t len = cross ? s->m_src_len : s->m_len;
	const struct oom_val src = cross ? s->encoded : x;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, w, p, bias = cross ? s->cross_bias : s->bias;
	enum oom_dtype dt;

	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "q", x, inner, 0)));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "k", src, inner, 0)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v", src, inner, 0)));
	if (t5_by_name(t)) {
		struct t5_heads h = {.q = q, .k = k, .v = v, .bias = bias, .mask = cross ? s->cross_mask : s->mask, .len = len,
				     .cross = cross};

		if (t5_kind_of(a)->each)
			h.bias = oom_name(&f, own_bias(t, s, layer, cross, (enum oom_dtype)q.dt));
		p = oom_name(&f, t5_by_interface(t, s, &h));
		return oom_leave(&f, oom_op_linear(t, "o", p, D(a->d_model), 0));
	}
	w = oom_op_bmm(t, "scores", q, k, oom_mono_mul(t, s->m_tokens, len), heads, a->head_dim);
	dt = (enum oom_dtype)w.dt;
	if (t5_kind_of(a)->each)
		bias = oom_name(&f, own_bias(t, s, layer, cross, dt));
	w = oom_name(&f, oom_op_add_inplace(t, w, bias));
	p = oom_op_softmax(t, oom_op_cast(t, w, OOM_F32), true);
	p = oom_op_dropout(t, oom_op_cast(t, p, dt), a->dropout);
	p = oom_op_bmm(t, "attention", p, v, s->m_tokens, inner, oom_mono_now(t, len));
	p = oom_op_linear(t, "o", oom_op_merge_heads(t, p), D(a->d_model), 0);
	return oom_leave(&f, p);
}

static struct oom_val t5_attend(struct oom_tape *t, const struct t5_stack *s, uint32_t layer,
				struct oom_val x, bool cross)
{
	struct oom_frame f = {.t = t};
	struct oom_val n, h;

	n = oom_name(&f, t5_norm(t, "layer_norm", x));
	h = t5_kind_of(s->a)->blocks && !s->decoder ? t5_block_attention(t, s, layer, n) :
						      t5_attention(t, s, layer, n, cross);
	h = oom_name(&f, h);
	return oom_leave(&f, oom_op_add(t, x, oom_op_dropout(t, h, s->a->dropout)));
}

static struct oom_val t5_feed_forward(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val x)
{
	const struct oom_dim ff = D(a->d_ff);
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_op_linear(t, a->gated ? "wi_0" : "wi", x, ff, 0);
	y = oom_activation(t, a->act, y);
	if (a->gated) {
		struct oom_val up = oom_op_linear(t, "wi_1", x, ff, 0);

		y = oom_op_mul(t, y, up);
	}
	y = oom_op_dropout(t, y, a->dropout);
	if (t->amp && !oom_plan_quantised(t->plan) && oom_plan_stores(t->plan) == OOM_FP32)
		y = oom_op_cast(t, y, OOM_F32);         /* .to(wo.weight.dtype) */
	return oom_leave(&f, oom_op_linear(t, "wo", y, D(a->d_model), 0));
}

/* isinf(x): abs(x) == inf. */
static void look_for_infinities(struct oom_tape *t, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new_like(t, "abs", x, OOM_DT_F16));
	oom_name(&f, oom_new_like(t, "isinf", x, OOM_U8));
	oom_leave(&f, oom_none());
}

/* In fp16 infinities are clamped away, by bounds that are tensors (modeling_t5.py T5Block.forward): what was clamped and
 * both bounds are kept, and the value of the bound has a name.  x is the caller's. */
static struct oom_val clamped(struct oom_frame *caller, const struct oom_arch *a, struct oom_val x)
{
	struct oom_frame f = {.t = caller->t};
	struct oom_tape *t = f.t;
	struct oom_val y, low, high;

	if (x.dt != OOM_DT_F16 || t5_kind_of(a)->looks)
		return x;
	look_for_infinities(t, x);
	high = oom_name(caller, oom_new(t, "where", OOM_MONO_ONE, D(1), OOM_F32));
	low = oom_name(&f, oom_new(t, "neg", OOM_MONO_ONE, D(1), OOM_F32));
	y = oom_op_unary(t, OOM_CLAMP, x);
	if (y.node >= 0 && oom_wants_grad(t, x)) {
		oom_node_save(t, y.node, low);
		oom_node_save(t, y.node, high);
	}
	return oom_name(caller, oom_leave(&f, y));
}

/* The first layer makes the biases, and again when it is recomputed: the graph keeps the buckets of relative positions, and
 * the zeros of cross-attention are among the layer's results; the other bias takes the place of the first one, which no
 * later layer needs any more. */
static void biases_again(struct oom_frame *f, const struct t5_stack *s)
{
	struct oom_tape *t = f->t;

	if (!t5_kind_of(s->a)->blocks || s->decoder)
		oom_name(f, oom_new(t, "relative buckets", oom_mono_mul(t, s->m_len, s->m_len), D(1), OOM_I64));
	if (s->decoder)
		oom_name(f, oom_new_like(t, "cross position bias", s->cross_bias, (enum oom_dtype)s->cross_bias.dt));
}

static struct oom_val t5_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct t5_stack *s = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	if (!i && t->recompute && !t5_kind_of(s->a)->each)
		biases_again(&f, s);
	/* (cross_)attention_outputs hold the sums */
	x = clamped(&f, s->a, oom_name(&f, t5_attend(t, s, i, x, false)));
	if (s->decoder)
		x = clamped(&f, s->a, oom_name(&f, t5_attend(t, s, i, x, true)));
	y = t5_norm(t, "layer_norm", x);
	y = t5_kind_of(s->a)->experts && t5_is_sparse(s, i) ? t5_experts(t, s->a, y) :
							      t5_feed_forward(t, s->a, y);
	y = oom_name(&f, y);
	return oom_leave(&f, clamped(&f, s->a, oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, y, s->a->dropout)))));
}

/* An additive mask, made whatever attention the plan asks for where T5 has only the one written out.
 * `always`: an attention mask of ones stands in when none is given (UMT5). */
static struct oom_val additive_mask(struct oom_tape *t, const struct t5_stack *s, bool always,
				    enum oom_dtype dt)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan p = *real;
	struct oom_val m;

	if (always && !s->decoder) {            /* (1 - attention_mask[:, None, None, :]) * min */
		m = oom_op_cast(t, oom_new(t, "ones", t->m_bs, D(1), OOM_F32), dt);
		return oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_ADD_SCALAR, m));
	}
	if (!s->decoder && !real->padding_mask)
		return oom_none();
	p.attn = t5_fuses(t, s->a) ? OOM_ATTN_SDPA : OOM_ATTN_EAGER;
	p.padding_mask |= always;
	t->plan = &p;
	m = oom_make_mask(t, s->decoder, 0, dt, t->m_b, s->m_len, s->m_len);
	t->plan = real;
	return m;
}

/* The encoder's padding over the decoder's tokens; none without padding. */
static struct oom_val cross_padding(struct oom_tape *t, const struct t5_stack *s, enum oom_dtype dt)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan p = *real;
	struct oom_val m;

	if (!s->decoder || !real->padding_mask)
		return oom_none();
	p.attn = t5_fuses(t, s->a) ? OOM_ATTN_SDPA : OOM_ATTN_EAGER;
	t->plan = &p;
	m = oom_make_mask(t, false, 0, dt, t->m_b, s->m_len, s->m_src_len);
	t->plan = real;
	return m;
}

/* What all layers of a stack share, names of f's. */
static void make_biases(struct oom_frame *f, struct t5_stack *s, enum oom_dtype dt)
{
	const struct t5_kind *k = t5_kind_of(s->a);
	struct oom_tape *t = f->t;
	struct oom_val b, cross;

	s->bias = s->cross_bias = s->mask = s->cross_mask = oom_none();
	if (k->each && s->decoder && t->plan->padding_mask) {
		b = oom_op_cast(t, oom_new(t, "cross mask", t->m_bs, D(1), OOM_F32), dt);
		b.mono = t->m_bs;
		s->cross_mask = oom_name_shared(f, b);
	}
	if (k->each) {
		s->mask = oom_name_shared(f, additive_mask(t, s, true, dt));
		return;
	}
	if (k->blocks && !s->decoder) {
		s->bias = oom_name_shared(f, t5_block_bias(f, s, t->amp ? (enum oom_dtype)t->amp_dt : dt));
		return;
	}
	cross = oom_name_shared(f, cross_padding(t, s, dt));
	s->cross_mask = cross;
	b = relative_positions(t, s, true);
	s->mask = oom_name_shared(f, additive_mask(t, s, k->blocks, (enum oom_dtype)b.dt));
	s->bias = oom_name_shared(f, masked(t, s, b, s->mask));
	if (s->decoder)
		s->cross_bias = oom_name_shared(f, masked(t, s, no_positions(t, s, true, t->amp ? (enum oom_dtype)t->amp_dt : dt),
							  cross));
}

static struct oom_val t5_run_stack(struct oom_tape *t, struct t5_stack *s, struct oom_val embed,
				   struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const struct t5_kind *k = t5_kind_of(a);
	struct oom_frame f = {.t = t};
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x;

	for (uint32_t i = 0; i < OOM_MAX_LAYERS; i++)
		kind[i] = (uint8_t)((i == 0) | (k->experts && t5_is_sparse(s, i) ? 2 : 0));
	if (k->features && !s->decoder) {
		x = oom_features(t, a, s->m_tokens);
	} else {
		x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
		x = oom_input_grads(t, x);
	}
	x = oom_name(&f, x);
	/* LongT5's stacks make an attention mask of ones where they are given none */
	if (k->blocks && (s->decoder || !t->plan->padding_mask))
		oom_name(&f, oom_new(t, "attention mask", s->m_tokens, D(1), OOM_F32));
	make_biases(&f, s, (enum oom_dtype)embed.dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers),
		       k->table_once || (k->blocks && !s->decoder) ? kind : NULL, t5_block, s,
		       oom_op_dropout(t, x, a->dropout));
	x = oom_name(&f, x);                    /* layer_outputs */
	return oom_leave(&f, oom_op_dropout(t, t5_norm(t, "final_layer_norm", x), a->dropout));
}

/* T5Config and its likes set tie_word_embeddings to True since transformers 5, whatever the file says
 * (models/t5/configuration_t5.py, __post_init__). */
static bool t5_ties(const struct oom_tape *t, const struct oom_arch *a)
{
	return a->tie || (t5_kind_of(a)->forced_tie && t->plan->force_t5_tie);
}

static bool t5_scales(const struct oom_tape *t, const struct oom_arch *a)
{
	switch (t5_kind_of(a)->scale) {
	case T5_SCALE_NEVER: return false;
	case T5_SCALE_TIED: return t5_ties(t, a);
	case T5_SCALE_SAID: break;
	}
	return t5_of(a)->scale_out;
}

static struct oom_val t5_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val embed, uint16_t m_tokens)
{
	struct oom_frame f = {.t = t};
	struct oom_arch head = *a;

	head.tie = t5_ties(t, a) && !t5_kind_of(a)->own_head;
	if (t5_scales(t, a))
		x = oom_name(&f, oom_op_unary(t, OOM_SCALE, x));        /* sequence_output */
	x = oom_lm_head(t, &head, x, embed, "lm_head", false);
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, m_tokens));
}

struct oom_val t5_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct t5_kind *k = t5_kind_of(a);
	const bool classes = oom_encdec_task(t, k->layout) == OOM_TASK_SEQ_CLS, apart = !a->tie && k->own_tables;
	/* a classifier feeds the decoder what the encoder got, shifted */
	const uint16_t m_t = classes ? t->m_s : oom_len_targets(t),
		       m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct t5_stack enc = {.a = a, .m_tokens = t->m_bs, .m_len = t->m_s};
	struct t5_stack dec = {.a = a, .m_tokens = m_bt, .m_len = m_t, .m_src_len = t->m_s,
			       .decoder = true};
	struct oom_val embed, enc_embed, x, ids = oom_none();
	struct oom_frame f = {.t = t};

	if (t->task != OOM_TASK_SEQ2SEQ && !classes) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and seq-cls", a->model_type);
		return oom_none();
	}
	if (k->features && t->plan->grad_ckpt != OOM_CKPT_NONE)
		oom_tape_warn(t, "pop2piano under checkpointing is only approximated (3 to 5 % "
			     "measured)");
	t->scope = "shared";
	embed = enc_embed = oom_param(t, "weight", a->vocab, a->d_model,
				      OOM_P_EMBEDDING | (apart ? OOM_P_UNUSED : 0));
	oom_lora_idle_table(t, embed, "shared");
	if (apart) {
		t->scope = "encoder.embed_tokens";
		enc_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
		t->scope = "decoder.embed_tokens";
		embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	t5_idle_parts(t, a);
	if (classes)
		ids = oom_name(&f, oom_decoder_ids(t, m_bt));
	x = t5_run_stack(t, &enc, enc_embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
			 a->n_layers);
	dec.encoded = oom_name_shared(&f, x);
	if (!classes)
		ids = oom_name(&f, oom_decoder_ids(t, m_bt));
	x = oom_name(&f, t5_run_stack(t, &dec, embed, ids, a->dec_layers));    /* decoder_outputs */
	x = classes ? oom_seq2seq_cls(t, a, x) : t5_tail(t, a, x, embed, m_bt);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}
