/* T5Gemma and T5Gemma 2: encoder and decoder of Gemma layers, each with sizes of its own.
 *
 * T5Gemma's decoder attends to itself, then to the encoder; T5Gemma 2's to both at once, and its
 * encoder holds a SigLIP tower, which a step on text alone leaves without a gradient.
 * Reference: transformers 5.12, models/{t5gemma,t5gemma2}/modeling_*.py. */
#include "t5gemma.h"

struct stack {
	const struct oom_arch *a;
	const struct t5gemma_sizes *n;
	struct oom_rope rope[2];                        /* full, sliding */
	struct oom_val mask[2], cross_mask, encoded;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	uint8_t bit;                                    /* of arch.kind */
	bool decoder;
};

static struct oom_attn attention_of(struct oom_tape *t, const struct stack *s)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	at.heads = s->n->heads;
	at.kv_heads = s->n->kv_heads;
	at.d = at.dv = s->n->head_dim;
	at.qk_norm = t5gemma_kind_of(s->a)->merged;
	at.qkv_bias = at.o_bias = s->n->bias;
	at.causal = s->decoder;
	at.mq = at.mk = s->m_tokens;
	at.sk = s->m_len;
	return at;
}

/* T5Gemma 2's decoder: its own keys and values and the encoder's, through the same projections,
 * side by side. */
static struct oom_val merged_attention(struct oom_tape *t, const struct stack *s,
				       const struct oom_rope *rope, struct oom_val mask,
				       struct oom_val x)
{
	const uint64_t d = s->n->head_dim, heads = s->n->heads, kv_heads = s->n->kv_heads;
	const struct oom_dim h = {x.width, x.text}, qd = {heads * d, "n_heads * head_dim"},
			     kd = {kv_heads * d, "n_kv_heads * head_dim"},
			     both = {2 * kd.n, "2 * n_kv_heads * head_dim"};
	const struct oom_val none = oom_none();
	struct oom_attn at = attention_of(t, s);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, wk, wv, ck, cv;

	x = oom_arg(&f, x);
	q = oom_op_linear(t, "q_proj", x, qd, 0);
	t->scope = "k_proj";
	wk = oom_param(t, "weight", kd.n, x.width, OOM_P_LINEAR);
	t->scope = "v_proj";
	wv = oom_param(t, "weight", kd.n, x.width, OOM_P_LINEAR);
	k = oom_op_heads(t, oom_op_matmul_param(t, "k_proj", x, wk, none, kd));
	v = oom_op_heads(t, oom_op_matmul_param(t, "v_proj", x, wv, none, kd));
	q = oom_norm(t, s->a->norm, "q_norm", oom_op_heads(t, q), d);
	k = oom_norm(t, s->a->norm, "k_norm", k, d);
	oom_rope_pair(t, &q, &k, rope, heads, kv_heads, d, d);
	ck = oom_op_heads(t, oom_op_matmul_param(t, "k_proj", s->encoded, wk, none, kd));
	cv = oom_op_heads(t, oom_op_matmul_param(t, "v_proj", s->encoded, wv, none, kd));
	ck = oom_norm(t, OOM_NORM_RMS_PLAIN, "k_norm", ck, d);  /* k_norm once more */
	/* an approximation: the joined keys count as one sequence's */
	at.sk = s->m_src_len;
	at.mk = s->m_src;
	k = oom_op_cat_into(t, k, ck, s->m_src, both);
	v = oom_op_cat_into(t, v, cv, s->m_src, both);
	k.width = v.width = kd.n;
	at.mask = mask;
	at.causal = false;
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h, 0);
	return oom_leave(&f, q);
}

static struct oom_val self_attention(struct oom_tape *t, const struct stack *s, uint8_t slides,
				     struct oom_val x, struct oom_val *weights)
{
	struct oom_rope rope = s->rope[slides];
	struct oom_attn at = attention_of(t, s);

	if (s->decoder && t5gemma_kind_of(s->a)->merged)
		return merged_attention(t, s, &rope, s->mask[slides], x);
	at.rope = &rope;
	at.mask = s->mask[slides];
	at.weights = weights;
	return oom_attention(t, &at, x);
}

static struct oom_val cross_attention(struct oom_tape *t, const struct stack *s, struct oom_val x,
				      struct oom_val *weights)
{
	struct oom_attn at = attention_of(t, s);

	at.causal = false;
	at.mask = s->cross_mask;
	at.kv_from = s->encoded;
	at.mk = s->m_src;
	at.sk = s->m_src_len;
	at.weights = weights;
	return oom_attention(t, &at, x);
}

static struct oom_val join(struct oom_tape *t, const struct stack *s, struct oom_val x,
			   struct oom_val h, const char *norm)
{
	h = oom_norm(t, s->a->norm, norm, h, 0);
	return oom_op_add(t, x, oom_op_dropout(t, h, s->a->dropout));
}

static struct oom_val feed_forward(struct oom_tape *t, const struct stack *s, struct oom_val x)
{
	const struct oom_dim ff = {s->n->ff, "intermediate_size"}, d = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val y, up;

	x = oom_arg(&f, x);
	y = oom_activation(t, s->a->act, oom_op_linear(t, "gate_proj", x, ff, 0));
	up = oom_op_linear(t, "up_proj", x, ff, 0);
	y = oom_op_dropout(t, oom_op_mul(t, y, up), s->a->dropout);
	return oom_leave(&f, oom_op_linear(t, "down_proj", y, d, 0));
}

static struct oom_val t5gemma_block(struct oom_tape *t, const void *ctx, uint32_t i,
				    struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_arch *a = s->a;
	const uint8_t slides = i < OOM_MAX_LAYERS && a->kind[i] & s->bit;
	struct oom_frame f = {.t = t};
	struct oom_val weights = oom_none(), held, h;

	h = oom_norm(t, a->norm, "pre_self_attn_layernorm", x, 0);
	h = self_attention(t, s, slides, h, &weights);
	held = oom_name(&f, weights);
	x = oom_name(&f, join(t, s, x, h, "post_self_attn_layernorm"));
	if (s->decoder && !t5gemma_kind_of(a)->merged) {
		h = oom_norm(t, a->norm, "pre_cross_attn_layernorm", x, 0);
		weights = oom_none();
		h = cross_attention(t, s, h, &weights);
		oom_rename(&f, held, weights);
		x = oom_rename(&f, x, join(t, s, x, h, "post_cross_attn_layernorm"));
	}
	h = feed_forward(t, s, oom_norm(t, a->norm, "pre_feedforward_layernorm", x, 0));
	return oom_leave(&f, join(t, s, x, h, "post_feedforward_layernorm"));
}

static struct oom_rope shared_tables(struct oom_frame *f, const struct stack *s, enum oom_dtype dt)
{
	const uint16_t m_s = f->t->m_s;
	struct oom_rope r;

	f->t->m_s = s->m_len;                   /* of this stack's length */
	r = oom_rope_tables(f->t, s->n->head_dim, dt, 2);
	f->t->m_s = m_s;
	return (struct oom_rope){oom_name_shared(f, r.cos), oom_name_shared(f, r.sin)};
}

static struct oom_val t5gemma_stack(struct oom_tape *t, struct stack *s, struct oom_val embed,
				    struct oom_val ids)
{
	const struct oom_dim width = {s->n->d, "hidden_size"};
	const struct oom_arch *a = s->a;
	struct oom_frame f = {.t = t};
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x, m;
	enum oom_dtype dt;

	for (uint64_t i = 0; i < OOM_MAX_LAYERS; i++)
		kind[i] = (a->kind[i] & s->bit) != 0;
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, s->n->vocab, width));
	x = oom_name(&f, x);
	dt = (enum oom_dtype)x.dt;
	oom_name(&f, oom_new(t, "attention mask", s->m_tokens, D(1), OOM_I64));
	for (int i = 0; i < 2; i++) {
		m = oom_make_mask(t, s->decoder, i ? s->n->window : 0, dt, t->m_b, s->m_len,
				  s->m_len);
		s->mask[i] = oom_name_shared(&f, m);
	}
	s->cross_mask = s->decoder ?
				oom_make_mask(t, false, 0, dt, t->m_b, s->m_len, s->m_src_len) :
				oom_none();
	s->cross_mask = oom_name_shared(&f, s->cross_mask);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_SCALE, x), a->dropout);
	s->rope[0] = s->rope[1] = shared_tables(&f, s, dt);
	if (t5gemma_kind_of(a)->merged)                 /* sliding layers have a base of their own */
		s->rope[1] = shared_tables(&f, s, dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, s->n->layers), kind, t5gemma_block, s, x);
	x = oom_op_dropout(t, oom_norm(t, a->norm, "norm", x, 0), a->dropout);
	return oom_leave(&f, x);
}

static void idle_norm(struct oom_tape *t, const char *name, uint64_t d)
{
	t->scope = name;
	oom_param(t, "weight", 0, d, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "bias", 0, d, OOM_P_UNUSED | OOM_P_NORM);
}

/* SigLIP with its pooling head, and the projector: parameters that text alone never meets. */
static void idle_tower(struct oom_tape *t, const struct t5gemma *own)
{
	static const char *const projections[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	const uint64_t d = own->vision.d, f = own->vision.ff, patch = own->vision.patch,
		       side = own->vision.side / patch;

	t->scope = "patch_embedding";
	oom_param(t, "weight", d * own->vision.channels * patch, patch, OOM_P_UNUSED);
	oom_param(t, "bias", 0, d, OOM_P_UNUSED);
	t->scope = "position_embedding";
	oom_param(t, "weight", side * side, d, OOM_P_UNUSED | OOM_P_EMBEDDING);
	oom_buffer(t, side * side, OOM_I64);
	for (uint64_t i = 0; i < own->vision.layers && !t->status; i++) {
		idle_norm(t, "layer_norm1", d);
		for (int j = 0; j < 4; j++)
			oom_linear_unused(t, projections[j], d, d, OOM_BIAS);
		idle_norm(t, "layer_norm2", d);
		oom_linear_unused(t, "fc1", d, f, OOM_BIAS);
		oom_linear_unused(t, "fc2", f, d, OOM_BIAS);
	}
	idle_norm(t, "post_layernorm", d);
	t->scope = "head";
	oom_param(t, "probe", 0, d, OOM_P_UNUSED);
	oom_param(t, "in_proj_weight", 3 * d, d, OOM_P_UNUSED);
	oom_param(t, "in_proj_bias", 0, 3 * d, OOM_P_UNUSED);
	oom_param(t, "out_proj.weight", d, d, OOM_P_UNUSED);
	oom_param(t, "out_proj.bias", 0, d, OOM_P_UNUSED);
	idle_norm(t, "layernorm", d);
	oom_linear_unused(t, "fc1", d, f, OOM_BIAS);
	oom_linear_unused(t, "fc2", f, d, OOM_BIAS);
	t->scope = "multi_modal_projector";
	oom_param(t, "mm_input_projection_weight", d, own->enc.d, OOM_P_UNUSED);
	oom_param(t, "mm_soft_emb_norm.weight", 0, d, OOM_P_UNUSED | OOM_P_NORM);
}

/* out_proj of every token, the last one picked. */
static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct oom_dim labels = {t->n_labels, "num_labels"};
	struct oom_frame f = {.t = t};
	struct oom_val all, idx;

	all = oom_op_linear(t, "out_proj", oom_op_dropout(t, h, a->classifier_dropout), labels,
			    OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	all = oom_name(&f, all);
	idx = oom_new(t, "last token", t->m_b, D(1), OOM_I64);
	idx = oom_op_gather(t, "pooled logits", all, idx, t->m_b, labels);
	return oom_leave(&f, oom_cls_loss(t, a, idx));
}

struct oom_val t5gemma_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct t5gemma *own = t5gemma_of(a);
	const bool merged = t5gemma_kind_of(a)->merged;
	const uint16_t m_t = oom_encdec_task(t, merged) == OOM_TASK_SEQ_CLS ? t->m_s : oom_len_targets(t);
	struct stack enc = {.a = a, .n = &own->enc, .m_tokens = t->m_bs, .m_len = t->m_s, .bit = 2,
			    .encoded = oom_none()};
	struct stack dec = {.a = a, .n = &own->dec, .m_tokens = oom_mono_mul(t, t->m_b, m_t),
			    .m_len = m_t, .m_src = t->m_bs, .m_src_len = t->m_s, .bit = 1,
			    .decoder = true};
	struct oom_frame f = {.t = t};
	struct oom_val embed, dec_embed, ids, x;

	if (t->task != OOM_TASK_SEQ2SEQ && t->task != OOM_TASK_SEQ_CLS) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and seq-cls", a->model_type);
		return oom_none();
	}
	if (merged)
		oom_tape_warn(t, "T5Gemma 2: attention over both sequences at once is approximated");
	t->scope = "encoder.embed_tokens";
	embed = dec_embed = oom_param(t, "weight", own->enc.vocab, own->enc.d, OOM_P_EMBEDDING);
	if (merged) {
		oom_param(t, "eoi_embedding", 0, own->enc.d, 0);
		idle_tower(t, own);
	}
	if (!merged || !a->tie) {
		t->scope = "decoder.embed_tokens";
		dec_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
		if (merged)
			oom_param(t, "eoi_embedding", 0, a->d_model, 0);
	}
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	x = t5gemma_stack(t, &enc, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64));
	dec.encoded = oom_name_shared(&f, x);
	x = oom_name(&f, t5gemma_stack(t, &dec, dec_embed, ids));
	x = t->task == OOM_TASK_SEQ_CLS ?
		    classify(t, a, x) :
		    oom_causal_lm_loss(t, a, oom_lm_head(t, a, x, dec_embed, "lm_head", false));
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}
