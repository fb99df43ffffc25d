/* T5: encoder-decoder with relative position biases shared by all layers, eager attention, no
 * biases. UMT5 has a bias table in every layer instead; t5_parts.c holds what else its relatives do
 * differently. Reference: transformers 5.12,
 * models/{t5,mt5,umt5,switch_transformers,longt5,pop2piano,udop}/modeling_*.py. */
#include <string.h>

#include "blocks/audio.h"
#include "t5.h"

static const struct {
	const char *type;
	unsigned flags;
} kinds[] = {
	{"umt5", OOM_T5_EACH}, {"switch_transformers", OOM_T5_EACH | OOM_T5_TABLE_ONCE | OOM_T5_EXPERTS | OOM_T5_OWN_TABLES},
	{"longt5", OOM_T5_BLOCKS | OOM_T5_OWN_TABLES}, {"pop2piano", OOM_T5_FEATURES | OOM_T5_OWN_TABLES | OOM_T5_OWN_HEAD}, {"udop", OOM_T5_LAYOUT},
};

/* What the relatives' configs say besides. */
static void parse_parts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t flags = a->extra[OOM_T5_FLAGS];

	if (flags & OOM_T5_EXPERTS) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = 1;
		/* SwitchTransformersConfig: every num_layers / num_sparse_encoder_layers-th
		 * layer is sparse */
		a->extra[OOM_T5_ENC_SPARSE] = oom_read_count_or(r, "num_sparse_encoder_layers", 3);
		a->extra[OOM_T5_DEC_SPARSE] = oom_read_count_or(r, "num_sparse_decoder_layers", 3);
		a->extra[OOM_T5_ENC_SPARSE] = a->extra[OOM_T5_ENC_SPARSE] ?
						      a->n_layers / a->extra[OOM_T5_ENC_SPARSE] :
						      a->n_layers;
		a->extra[OOM_T5_DEC_SPARSE] = a->extra[OOM_T5_DEC_SPARSE] ?
						      a->extra[OOM_T5_DEC_LAYERS] /
							      a->extra[OOM_T5_DEC_SPARSE] :
						      a->extra[OOM_T5_DEC_LAYERS];
		a->extra[OOM_T5_ROUTER_BIAS] = oom_read_bool(r, "router_bias", false);
	}
	if (flags & OOM_T5_BLOCKS) {
		a->extra[OOM_T5_LOCAL] = oom_read_count_or(r, "local_radius", 127) + 1;
		a->extra[OOM_T5_GLOBAL] = strcmp(oom_read_string(r, "encoder_attention_type",
								 "local"),
						 "local") != 0;
		if (a->extra[OOM_T5_LOCAL] > 1 << 20)
			oom_read_fail(r, "local_radius is more than 2^20");
	}
	if (flags & OOM_T5_FEATURES) {
		a->extra[OOM_T5_MORE] = oom_read_count(r, "composer_vocab_size", 1);
		a->frame = a->d_model;
		a->act = oom_read_act(r, "dense_act_fn", "relu");
	}
	if (flags & OOM_T5_LAYOUT && a->act == OOM_ACT_GELU_NEW)
		/* only T5's own config reads gated-gelu as gelu_new */
		a->act = OOM_ACT_GELU;
	if (flags & OOM_T5_LAYOUT) {
		const struct oom_key *k = oom_read_key(r, "relative_bias_args");

		a->extra[OOM_T5_MORE] = k && k->type == OOM_KEY_LIST ?
						(k->n_items ? k->n_items - 1 : 0) :
						2;
		a->extra[OOM_T5_PATCH] = oom_read_count_or(r, "patch_size", 16);
		a->extra[OOM_T5_COORDS] = oom_read_count_or(r, "max_2d_position_embeddings", 1024);
		a->channels = oom_read_count_or(r, "num_channels", 3);
		if (!a->extra[OOM_T5_PATCH] || a->extra[OOM_T5_PATCH] > 65536 ||
		    a->channels > 65536 || a->extra[OOM_T5_MORE] > 64)
			oom_read_fail(r, "patch_size, num_channels or relative_bias_args is out of "
					 "range");
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *ff = oom_read_string(r, "feed_forward_proj",
					 strstr(a->model_type, "mt5") ? "gated-gelu" : "relu");

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->d_ff = oom_read_count(r, "d_ff", 1);
	a->head_dim = oom_read_count(r, "d_kv", 1);
	a->n_layers = oom_read_count(r, "num_layers", 1);
	a->extra[OOM_T5_DEC_LAYERS] = oom_read_count_or(r, "num_decoder_layers", a->n_layers);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_heads", 1);
	a->extra[OOM_T5_BUCKETS] = oom_read_count(r, "relative_attention_num_buckets", 1);
	a->dropout = oom_read_real(r, "dropout_rate", 0.1);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	a->gated = !strncmp(ff, "gated-", 6);
	if (!strcmp(ff, "gated-gelu"))
		a->act = OOM_ACT_GELU_NEW;
	else if (!strcmp(ff, "relu") || !strcmp(ff, "gated-relu"))
		a->act = OOM_ACT_RELU;
	else if (strstr(ff, "silu"))
		a->act = OOM_ACT_SILU;
	else
		a->act = OOM_ACT_GELU;
	a->tie = oom_read_bool(r, "tie_word_embeddings", strcmp(a->model_type, "mt5") != 0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, a->model_type))
			a->extra[OOM_T5_FLAGS] = kinds[i].flags;
	a->extra[OOM_T5_SCALE_OUT] = oom_read_bool(r, "scale_decoder_outputs", a->tie);
	parse_parts(a);
}

/* variance in fp32, x * rsqrt in fp32, back to the weight's type when that is 16-bit, times the
 * weight. */
static struct oom_val norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_val w, v, y;

	t->scope = name;
	w = oom_param(t, "weight", 0, x.width, OOM_P_NORM);
	v = oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, oom_keep(x), OOM_F32));
	v = oom_op_mean(t, v, x.mono, D(1));
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, x, v);
	if (w.dt != OOM_F32)
		y = oom_op_cast(t, y, (enum oom_dtype)w.dt);
	y = oom_op_mul(t, w, y);
	t->scope = scope;
	return y;
}

/* Bucketed relative positions, looked up and permuted to [1, heads, s, s].  `within`: made in the
 * first layer, whose checkpoint keeps no buckets. */
static struct oom_val relative_positions(struct oom_tape *t, const struct oom_t5_stack *s,
					 bool within)
{
	const uint16_t plane = oom_mono_mul(t, s->m_len, s->m_len);
	struct oom_val ids = oom_new(t, "relative buckets", plane, D(1), OOM_I64), b;

	if (within && t->plan->grad_ckpt != OOM_CKPT_NONE && t->grad && t->train) {
		oom_drop(t, ids);
		ids = oom_input(t, "relative buckets", plane, 1, OOM_I64);
	}
	b = oom_op_embedding(t, "relative_attention_bias", ids, s->a->extra[OOM_T5_BUCKETS],
			     (struct oom_dim){s->a->n_heads, "num_heads"}, 0);
	b.perm = false;
	return b;
}

/* The bias of cross-attention: zeros. */
static struct oom_val no_positions(struct oom_tape *t, const struct oom_t5_stack *s,
				   enum oom_dtype dt)
{
	return oom_new(t, "cross position bias", oom_mono_mul(t, s->m_len, s->m_src_len),
		       (struct oom_dim){s->a->n_heads, "num_heads"}, dt);
}

static struct oom_val masked(struct oom_tape *t, const struct oom_t5_stack *s, struct oom_val bias,
			     struct oom_val mask)
{
	if (oom_is_none(mask))
		return bias;
	return oom_op_add_into(t, bias, mask, oom_mono_mul(t, t->m_b, bias.mono),
			       (struct oom_dim){s->a->n_heads, "num_heads"});
}

/* A layer's own bias: looked up, or zeros, and masked. */
static struct oom_val own_bias(struct oom_tape *t, const struct oom_t5_stack *s, uint32_t layer,
			       bool cross, enum oom_dtype dt)
{
	struct oom_val b;

	if (cross)
		b = no_positions(t, s, dt);
	else if (layer && s->a->extra[OOM_T5_FLAGS] & OOM_T5_TABLE_ONCE)
		b = oom_new(t, "position bias", oom_mono_mul(t, s->m_len, s->m_len),
			    (struct oom_dim){s->a->n_heads, "num_heads"}, dt);
	else
		b = relative_positions(t, s, false);
	return masked(t, s, b, oom_keep(cross ? s->cross_mask : s->mask));
}

static struct oom_val attention(struct oom_tape *t, const struct oom_t5_stack *s, uint32_t layer,
				struct oom_val x, bool cross)
{
	const struct oom_arch *a = s->a;
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * d_kv"},
			     heads = {a->n_heads, "num_heads"};
	const uint16_t len = cross ? s->m_src_len : s->m_len;
	struct oom_val src = cross ? oom_keep(s->encoded) : oom_keep(x), q, k, v, w, p, bias;
	enum oom_dtype dt;

	q = oom_op_heads(t, oom_op_linear(t, "q", oom_keep(x), inner, 0));
	k = oom_op_heads(t, oom_op_linear(t, "k", src, inner, 0));
	v = oom_op_heads(t, oom_op_linear(t, "v", src, inner, 0));
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), oom_mono_mul(t, s->m_tokens, len),
		       heads, a->head_dim);
	dt = (enum oom_dtype)w.dt;
	if (a->extra[OOM_T5_FLAGS] & OOM_T5_EACH)
		bias = own_bias(t, s, layer, cross, dt);
	else
		bias = oom_share(t, cross ? s->cross_bias : s->bias);
	w = oom_op_add_inplace(t, w, oom_keep(bias));
	p = oom_op_softmax(t, oom_op_cast(t, oom_keep(w), OOM_F32), true);
	p = oom_op_dropout(t, oom_op_cast(t, p, dt), a->dropout);
	p = oom_op_bmm(t, "attention", p, oom_keep(v), s->m_tokens, inner, oom_mono_now(t, len));
	p = oom_op_linear(t, "o", oom_op_merge_heads(t, p), D(a->d_model), 0);
	/* scores and its like: locals until the module returns */
	oom_drop(t, w);
	oom_drop(t, bias);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	oom_done(t, x);
	return p;
}

static struct oom_val attend(struct oom_tape *t, const struct oom_t5_stack *s, uint32_t layer,
			     struct oom_val x, bool cross)
{
	const bool blocks = s->a->extra[OOM_T5_FLAGS] & OOM_T5_BLOCKS && !s->decoder;
	struct oom_val n = norm(t, "layer_norm", oom_keep(x));
	struct oom_val h = blocks ? oom_t5_block_attention(t, s, oom_keep(n)) :
				    attention(t, s, layer, oom_keep(n), cross);

	x = oom_op_add(t, x, oom_op_dropout(t, oom_keep(h), s->a->dropout));
	oom_drop(t, h);
	oom_drop(t, n);
	return x;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim f = D(a->d_ff), h = D(a->d_model);
	struct oom_val y;

	if (a->gated) {
		struct oom_val up;

		y = oom_activation(t, a->act, oom_op_linear(t, "wi_0", oom_keep(x), f, 0));
		up = oom_op_linear(t, "wi_1", oom_keep(x), f, 0);
		y = oom_op_mul(t, y, up);
	} else {
		y = oom_activation(t, a->act, oom_op_linear(t, "wi", oom_keep(x), f, 0));
	}
	y = oom_op_dropout(t, y, a->dropout);
	if (t->amp && !oom_plan_quantised(t->plan) && oom_plan_stores(t->plan) == OOM_FP32)
		y = oom_op_cast(t, y, OOM_F32);         /* .to(wo.weight.dtype) */
	y = oom_op_linear(t, "wo", y, h, 0);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_t5_stack *s = ctx;
	/* (cross_)attention_outputs */
	struct oom_val y, outputs[2] = {oom_none(), oom_none()};

	x = attend(t, s, i, x, false);
	outputs[0] = oom_share(t, x);
	if (s->decoder) {
		x = attend(t, s, i, x, true);
		outputs[1] = oom_share(t, x);
	}
	y = norm(t, "layer_norm", oom_keep(x));
	y = s->a->extra[OOM_T5_FLAGS] & OOM_T5_EXPERTS && oom_t5_is_sparse(s, i) ?
		    oom_t5_experts(t, s->a, y) :
		    feed_forward(t, s->a, y);
	x = oom_op_add(t, x, oom_op_dropout(t, oom_keep(y), s->a->dropout));
	oom_drop(t, y);
	oom_drop(t, outputs[1]);
	oom_drop(t, outputs[0]);
	return x;
}

/* An additive mask, made whatever attention the plan asks for: T5 has only the one written out.
 * `always`: an attention mask of ones stands in when none is given (UMT5). */
static struct oom_val additive_mask(struct oom_tape *t, const struct oom_t5_stack *s, bool always,
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
	p.attn = OOM_ATTN_EAGER;
	p.padding_mask |= always;
	t->plan = &p;
	m = oom_make_mask(t, s->decoder, 0, dt, t->m_b, s->m_len, s->m_len);
	t->plan = real;
	return m;
}

static void make_biases(struct oom_tape *t, struct oom_t5_stack *s, enum oom_dtype dt)
{
	const bool each = s->a->extra[OOM_T5_FLAGS] & OOM_T5_EACH,
		   blocks = s->a->extra[OOM_T5_FLAGS] & OOM_T5_BLOCKS;

	s->bias = s->cross_bias = s->mask = s->cross_mask = oom_none();
	if (each && s->decoder && t->plan->padding_mask) {
		s->cross_mask = oom_op_cast(t, oom_new(t, "cross mask", t->m_bs, D(1), OOM_F32),
					    dt);
		s->cross_mask.mono = t->m_bs;
	}
	if (each) {
		s->mask = additive_mask(t, s, true, dt);
		return;
	}
	if (blocks && !s->decoder) {
		s->bias = oom_t5_block_bias(t, s);
		return;
	}
	s->bias = relative_positions(t, s, true);
	s->mask = additive_mask(t, s, blocks, (enum oom_dtype)s->bias.dt);
	s->bias = masked(t, s, s->bias, oom_keep(s->mask));
	if (s->decoder)
		s->cross_bias = no_positions(t, s, t->amp ? (enum oom_dtype)t->amp_dt : dt);
}

static struct oom_val run_stack(struct oom_tape *t, struct oom_t5_stack *s, struct oom_val embed,
				struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const uint64_t flags = a->extra[OOM_T5_FLAGS];
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x, first, last;

	if (flags & OOM_T5_FEATURES && !s->decoder)
		x = oom_features(t, a, s->m_tokens);
	else
		x = oom_input_grads(t,
				    oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	for (uint32_t i = 0; i < OOM_MAX_LAYERS; i++)
		kind[i] = (uint8_t)((i == 0) |
				    (flags & OOM_T5_EXPERTS && oom_t5_is_sparse(s, i) ? 2 : 0));
	first = oom_share(t, x);
	make_biases(t, s, (enum oom_dtype)embed.dt);
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), flags & OOM_T5_TABLE_ONCE ? kind : NULL,
		       block, s, x);
	last = oom_share(t, x);                 /* layer_outputs */
	x = oom_op_dropout(t, norm(t, "final_layer_norm", x), a->dropout);
	oom_drop_shared(t, s->bias);
	oom_drop_shared(t, s->cross_bias);
	oom_drop_shared(t, s->mask);
	oom_drop_shared(t, s->cross_mask);
	oom_drop(t, last);
	oom_drop(t, first);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	/* a classifier feeds the decoder what the encoder got, shifted */
	const uint16_t m_t = t->task == OOM_TASK_SEQ2SEQ ? oom_len_targets(t) : t->m_s;
	const uint16_t m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_t5_stack enc = {.a = a, .m_tokens = t->m_bs, .m_len = t->m_s};
	struct oom_t5_stack dec = {.a = a,
				   .m_tokens = m_bt,
				   .m_len = m_t,
				   .m_src = t->m_bs,
				   .m_src_len = t->m_s,
				   .decoder = true};
	const uint64_t flags = a->extra[OOM_T5_FLAGS];
	const bool apart = !a->tie && flags & OOM_T5_OWN_TABLES;
	struct oom_arch own = *a;
	struct oom_val embed, enc_embed, x, dec_ids, hidden, loss;

	own.tie = a->tie && !(flags & OOM_T5_OWN_HEAD);
	if (t->task != OOM_TASK_SEQ2SEQ && t->task != OOM_TASK_SEQ_CLS) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and seq-cls", a->model_type);
		return oom_none();
	}
	if (flags & OOM_T5_FEATURES && t->plan->grad_ckpt != OOM_CKPT_NONE)
		t->warning = "pop2piano under checkpointing is only approximated (3 to 5 % "
			     "measured)";
	t->scope = "shared";
	embed = enc_embed = oom_param(t, "weight", a->vocab, a->d_model,
				      OOM_P_EMBEDDING | (apart ? OOM_P_UNUSED : 0));
	if (apart) {
		enc_embed = oom_param(t, "encoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
		embed = oom_param(t, "decoder.embed_tokens", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	oom_t5_idle_parts(t, a);
	dec_ids = t->task == OOM_TASK_SEQ_CLS ?
			  oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64) :
			  oom_none();
	x = run_stack(t, &enc, enc_embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
		      a->n_layers);
	dec.encoded = x;
	if (oom_is_none(dec_ids))
		dec_ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	x = run_stack(t, &dec, embed, oom_keep(dec_ids), a->extra[OOM_T5_DEC_LAYERS]);
	hidden = oom_share(t, x);               /* decoder_outputs */
	if (t->task == OOM_TASK_SEQ_CLS) {
		loss = oom_seq2seq_cls(t, a, x);
	} else {
		if (a->extra[OOM_T5_SCALE_OUT])
			x = oom_op_unary(t, OOM_SCALE, x);
		loss = oom_plain_lm_loss(t,
					 oom_lm_head(t, &own, oom_keep(x), embed, "lm_head", false),
					 false, m_bt);
		oom_drop(t, x);                 /* sequence_output */
	}
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, dec_ids);
	return loss;
}

static const struct oom_family_type types[] = {
	{"t5", NULL}, {"mt5", NULL}, {"umt5", NULL}, {"switch_transformers", NULL},
	{"longt5", NULL}, {"pop2piano", NULL}, {"udop", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_t5 = {
	.name = "t5",
	.summary = "encoder-decoder with relative position biases",
	.source = "transformers 5.12 models/t5/modeling_t5.py",
	.types = types,
	.lora_targets = "q+v",
	.parse = parse,
	.step = step,
};
