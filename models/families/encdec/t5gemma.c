/* T5Gemma and T5Gemma 2: encoder and decoder of Gemma layers, each with sizes of its own.
 *
 * T5Gemma's decoder attends to itself, then to the encoder; T5Gemma 2's to both at once, and its
 * encoder holds a SigLIP tower, which a step on text alone leaves without a gradient.
 * Reference: transformers 5.12, models/{t5gemma,t5gemma2}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

enum {
	SECOND,
	ENC_D,
	ENC_FF,
	ENC_LAYERS,
	ENC_HEADS,
	ENC_KV,
	ENC_HEAD_DIM,
	ENC_WINDOW,
	ENC_VOCAB,
	V_D,
	V_FF,
	V_LAYERS,
	V_PATCH,
	V_SIDE,
	V_CHANNELS
}; /* extra[] */

static const char *key(char *path, size_t size, const char *prefix, const char *name)
{
	snprintf(path, size, "%s%s", prefix, name);
	return path;
}

/* Which layers of a stack slide: layer_types, else all but the last of every two (six in T5Gemma
 * 2). */
static void parse_kinds(struct oom_arch *a, const char *prefix, uint64_t layers, uint8_t bit)
{
	char path[96];

	key(path, sizeof(path), prefix, "layer_types");
	for (uint64_t i = 0; i < layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(&a->rd, path, (uint32_t)i);
		const bool slides = type ? !strcmp(type, "sliding_attention") :
					   (i + 1) % (a->extra[SECOND] ? 6 : 2) != 0;

		a->kind[i] = (uint8_t)(a->kind[i] | (slides ? bit : 0));
	}
}

/* Defaults are those of T5GemmaModuleConfig and T5Gemma2TextConfig. */
static void parse_encoder(struct oom_arch *a, const char *prefix)
{
	struct oom_reader *r = &a->rd;
	char p[96];

	a->extra[ENC_D] = oom_read_count_or(r, key(p, sizeof(p), prefix, "hidden_size"), 2304);
	a->extra[ENC_FF] = oom_read_count_or(r, key(p, sizeof(p), prefix, "intermediate_size"),
					     9216);
	a->extra[ENC_LAYERS] = oom_read_count_or(r, key(p, sizeof(p), prefix, "num_hidden_layers"),
						 26);
	a->extra[ENC_HEADS] = oom_read_count_or(r, key(p, sizeof(p), prefix, "num_attention_heads"),
						8);
	a->extra[ENC_KV] = oom_read_count_or(r, key(p, sizeof(p), prefix, "num_key_value_heads"),
					     4);
	a->extra[ENC_HEAD_DIM] = oom_read_count_or(r, key(p, sizeof(p), prefix, "head_dim"), 256);
	a->extra[ENC_WINDOW] = oom_read_count_or(r, key(p, sizeof(p), prefix, "sliding_window"),
						 4096);
	a->extra[ENC_VOCAB] = oom_read_count_or(r, key(p, sizeof(p), prefix, "vocab_size"),
						a->extra[SECOND] ? 262208 : 256000);
	parse_kinds(a, prefix, a->extra[ENC_LAYERS], 2);
	if (!a->extra[ENC_D] || !a->extra[ENC_HEADS] || !a->extra[ENC_KV] ||
	    a->extra[ENC_HEADS] % a->extra[ENC_KV] || !a->extra[ENC_HEAD_DIM] ||
	    !a->extra[ENC_FF] || a->extra[ENC_LAYERS] > OOM_MAX_LAYERS)
		oom_read_fail(r, "%s: the encoder's sizes make no model", a->model_type);
}

static void parse_tower(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[V_D] = oom_read_count_or(r, "encoder.vision_config.hidden_size", 768);
	a->extra[V_FF] = oom_read_count_or(r, "encoder.vision_config.intermediate_size", 3072);
	a->extra[V_LAYERS] = oom_read_count_or(r, "encoder.vision_config.num_hidden_layers", 12);
	a->extra[V_PATCH] = oom_read_count_or(r, "encoder.vision_config.patch_size", 16);
	a->extra[V_SIDE] = oom_read_count_or(r, "encoder.vision_config.image_size", 224);
	a->extra[V_CHANNELS] = oom_read_count_or(r, "encoder.vision_config.num_channels", 3);
	if (!a->extra[V_D] || !a->extra[V_FF] || !a->extra[V_PATCH] ||
	    a->extra[V_LAYERS] > OOM_MAX_LAYERS || a->extra[V_SIDE] > 65536 ||
	    a->extra[V_PATCH] > 65536 || a->extra[V_CHANNELS] > 65536)
		oom_read_fail(r, "the vision tower's sizes (encoder.vision_config) make no model");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[SECOND] = !strcmp(a->model_type, "t5gemma2");
	a->default_task = OOM_TASK_SEQ2SEQ;
	a->norm = OOM_NORM_RMS_PLUS1;
	a->d_model = oom_read_count_or(r, "decoder.hidden_size", 2304);
	a->d_ff = oom_read_count_or(r, "decoder.intermediate_size", 9216);
	a->n_layers = a->dec_layers = oom_read_count_or(r, "decoder.num_hidden_layers", 26);
	a->n_heads = oom_read_count_or(r, "decoder.num_attention_heads", 8);
	a->n_kv_heads = oom_read_count_or(r, "decoder.num_key_value_heads", 4);
	a->head_dim = oom_read_count_or(r, "decoder.head_dim", 256);
	a->window = oom_read_count_or(r, "decoder.sliding_window", 4096);
	a->max_positions = oom_read_count_or(r, "decoder.max_position_embeddings", 8192);
	a->vocab = oom_read_count_or(r, "decoder.vocab_size",
				     oom_read_count_or(r, "vocab_size", 256000));
	a->act = oom_read_act(r, "decoder.hidden_activation", "gelu_pytorch_tanh");
	a->softcap_attn = oom_read_real(r, "decoder.attn_logit_softcapping",
					a->extra[SECOND] ? 0 : 50);
	a->softcap_logits = oom_read_real(r, "decoder.final_logit_softcapping",
					  a->extra[SECOND] ? 0 : 30);
	a->attn_dropout = oom_read_real(r, "decoder.attention_dropout", 0);
	a->dropout = oom_read_real(r, "decoder.dropout_rate", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout_rate", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	parse_kinds(a, "decoder.", a->n_layers, 1);
	parse_encoder(a, a->extra[SECOND] ? "encoder.text_config." : "encoder.");
	if (a->extra[SECOND])
		parse_tower(a);
	if (!a->d_model || !a->n_heads || !a->n_kv_heads || !a->head_dim || !a->d_ff ||
	    !a->n_layers)
		oom_read_fail(r, "%s: the decoder's sizes make no model", a->model_type);
}

struct stack {
	const struct oom_arch *a;
	struct oom_rope rope, local;
	struct oom_val mask[2], cross_mask, encoded;    /* mask: full, sliding */
	uint64_t heads, kv_heads, d, ff;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	uint8_t bit;                                    /* of arch.kind */
	bool decoder;
};

static struct oom_attn attention_of(struct oom_tape *t, const struct stack *s)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	at.heads = s->heads;
	at.kv_heads = s->kv_heads;
	at.d = at.dv = s->d;
	at.qk_norm = false;
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
	struct oom_attn at = attention_of(t, s);
	const struct oom_dim h = {x.width, x.text}, qd = {s->heads * s->d, "n_heads * head_dim"};
	const struct oom_dim kd = {s->kv_heads * s->d, "n_kv_heads * head_dim"};
	struct oom_val q, k, v, wk, wv, kn, ck, cv;

	q = oom_op_linear(t, "q_proj", oom_keep(x), qd, 0);
	t->scope = "k_proj";
	wk = oom_param(t, "weight", kd.n, x.width, OOM_P_LINEAR);
	t->scope = "v_proj";
	wv = oom_param(t, "weight", kd.n, x.width, OOM_P_LINEAR);
	k = oom_op_heads(t, oom_op_matmul_param(t, "k_proj", oom_keep(x), wk, oom_none(), kd));
	v = oom_op_heads(t, oom_op_matmul_param(t, "v_proj", oom_keep(x), wv, oom_none(), kd));
	q = oom_norm(t, s->a->norm, "q_norm", oom_op_heads(t, q), s->d);
	k = oom_norm(t, s->a->norm, "k_norm", k, s->d);
	oom_rope_pair(t, &q, &k, rope, s->heads, s->kv_heads, s->d, s->d);
	ck = oom_op_heads(t, oom_op_matmul_param(t, "k_proj", oom_keep(s->encoded), wk, oom_none(),
						 kd));
	cv = oom_op_heads(t, oom_op_matmul_param(t, "v_proj", oom_keep(s->encoded), wv, oom_none(),
						 kd));
	kn = oom_norm(t, OOM_NORM_RMS_PLAIN, "k_norm", ck, s->d);       /* k_norm once more */
	/* an approximation: the joined keys count as one sequence's */
	at.sk = s->m_src_len;
	at.mk = s->m_src;
	k = oom_op_cat_into(t, k, kn, s->m_src,
			    (struct oom_dim){2 * kd.n, "2 * n_kv_heads * head_dim"});
	v = oom_op_cat_into(t, v, cv, s->m_src,
			    (struct oom_dim){2 * kd.n, "2 * n_kv_heads * head_dim"});
	k.width = v.width = kd.n;
	at.mask = mask;
	at.causal = false;
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_op_linear(t, "o_proj", q, h, 0);
	oom_done(t, x);
	return q;
}

static struct oom_val self_attention(struct oom_tape *t, const struct stack *s, uint8_t slides,
				     struct oom_val x, struct oom_val *w)
{
	struct oom_rope rope = s->a->extra[SECOND] && slides ? s->local : s->rope;
	struct oom_attn at = attention_of(t, s);

	at.rope = &rope;
	at.mask = s->mask[slides];
	at.weights = w;
	if (s->a->extra[SECOND]) {
		at.qk_norm = true;
		if (s->decoder)
			return merged_attention(t, s, &rope, s->mask[slides], x);
	}
	return oom_attention(t, &at, x);
}

static struct oom_val cross_attention(struct oom_tape *t, const struct stack *s, struct oom_val x,
				      struct oom_val *w)
{
	struct oom_attn at = attention_of(t, s);

	at.causal = false;
	at.mask = s->cross_mask;
	at.kv_from = s->encoded;
	at.mk = s->m_src;
	at.sk = s->m_src_len;
	at.weights = w;
	return oom_attention(t, &at, x);
}

static struct oom_val join(struct oom_tape *t, const struct stack *s, struct oom_val x,
			   struct oom_val h, const char *norm)
{
	h = oom_norm(t, s->a->norm, norm, h, 0);
	return oom_op_add(t, x, oom_op_dropout(t, h, s->a->dropout));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_arch *a = s->a;
	const uint8_t slides = i < OOM_MAX_LAYERS && a->kind[i] & s->bit;
	const struct oom_dim ff = {s->ff, "intermediate_size"}, d = {x.width, x.text};
	struct oom_val held = oom_none(), w = oom_none(), h, y;

	h = oom_norm(t, a->norm, "pre_self_attn_layernorm", oom_keep(x), 0);
	h = self_attention(t, s, slides, h, &held);
	x = join(t, s, x, h, "post_self_attn_layernorm");
	if (s->decoder && !a->extra[SECOND]) {
		h = oom_norm(t, a->norm, "pre_cross_attn_layernorm", oom_keep(x), 0);
		h = cross_attention(t, s, h, &w);
		oom_drop(t, held);
		held = w;
		x = join(t, s, x, h, "post_cross_attn_layernorm");
	}
	h = oom_norm(t, a->norm, "pre_feedforward_layernorm", oom_keep(x), 0);
	y = oom_activation(t, a->act, oom_op_linear(t, "gate_proj", oom_keep(h), ff, 0));
	y = oom_op_mul(t, y, oom_op_linear(t, "up_proj", oom_keep(h), ff, 0));
	y = oom_op_linear(t, "down_proj", oom_op_dropout(t, y, a->dropout), d, 0);
	oom_drop(t, h);
	x = join(t, s, x, y, "post_feedforward_layernorm");
	oom_drop(t, held);
	return x;
}

static struct oom_val run_stack(struct oom_tape *t, struct stack *s, struct oom_val embed,
				struct oom_val ids, uint64_t vocab, uint64_t width, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const uint64_t window = s->decoder ? a->window : a->extra[ENC_WINDOW];
	const uint16_t m_s = t->m_s;
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x = oom_op_embedding_param(t, embed, ids, vocab,
						  (struct oom_dim){width, "hidden_size"}),
		       first, mask;
	enum oom_dtype dt = (enum oom_dtype)x.dt;

	for (uint64_t i = 0; i < OOM_MAX_LAYERS; i++)
		kind[i] = (a->kind[i] & s->bit) != 0;
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	mask = oom_new(t, "attention mask", s->m_tokens, D(1), OOM_I64);
	s->mask[0] = oom_make_mask(t, s->decoder, 0, dt, t->m_b, s->m_len, s->m_len);
	s->mask[1] = oom_make_mask(t, s->decoder, window, dt, t->m_b, s->m_len, s->m_len);
	s->cross_mask = s->decoder ?
				oom_make_mask(t, false, 0, dt, t->m_b, s->m_len, s->m_src_len) :
				oom_none();
	x = oom_op_dropout(t, oom_op_unary(t, OOM_SCALE, x), a->dropout);
	t->m_s = s->m_len;                      /* rotary tables of this stack's length */
	s->rope = oom_rope_tables(t, s->d, dt, 2);
	s->local.cos = s->local.sin = oom_none();
	if (a->extra[SECOND])
		s->local = oom_rope_tables(t, s->d, dt, 2);
	t->m_s = m_s;
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), kind, block, s, x);
	x = oom_op_dropout(t, oom_norm(t, a->norm, "norm", x, 0), a->dropout);
	oom_drop_shared(t, s->rope.cos);
	oom_drop_shared(t, s->rope.sin);
	oom_drop_shared(t, s->local.cos);
	oom_drop_shared(t, s->local.sin);
	oom_drop_shared(t, s->mask[0]);
	oom_drop_shared(t, s->mask[1]);
	oom_drop_shared(t, s->cross_mask);
	oom_drop(t, mask);
	oom_drop(t, first);
	return x;
}

static void idle_norm(struct oom_tape *t, const char *name, uint64_t d)
{
	t->scope = name;
	oom_drop(t, oom_param(t, "weight", 0, d, OOM_P_UNUSED | OOM_P_NORM));
	oom_drop(t, oom_param(t, "bias", 0, d, OOM_P_UNUSED | OOM_P_NORM));
}

/* SigLIP with its pooling head, and the projector: parameters that text alone never meets. */
static void idle_tower(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t *e = a->extra, d = e[V_D], f = e[V_FF], side = e[V_SIDE] / e[V_PATCH];

	t->scope = "patch_embedding";
	oom_drop(t,
		 oom_param(t, "weight", d * e[V_CHANNELS] * e[V_PATCH], e[V_PATCH], OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "bias", 0, d, OOM_P_UNUSED));
	t->scope = "position_embedding";
	oom_drop(t, oom_param(t, "weight", side * side, d, OOM_P_UNUSED | OOM_P_EMBEDDING));
	oom_buffer(t, side * side, OOM_I64);
	for (uint64_t i = 0; i < e[V_LAYERS] && !t->status; i++) {
		idle_norm(t, "layer_norm1", d);
		oom_linear_unused(t, "k_proj", d, d, OOM_BIAS);
		oom_linear_unused(t, "v_proj", d, d, OOM_BIAS);
		oom_linear_unused(t, "q_proj", d, d, OOM_BIAS);
		oom_linear_unused(t, "out_proj", d, d, OOM_BIAS);
		idle_norm(t, "layer_norm2", d);
		oom_linear_unused(t, "fc1", d, f, OOM_BIAS);
		oom_linear_unused(t, "fc2", f, d, OOM_BIAS);
	}
	idle_norm(t, "post_layernorm", d);
	t->scope = "head";
	oom_drop(t, oom_param(t, "probe", 0, d, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "in_proj_weight", 3 * d, d, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "in_proj_bias", 0, 3 * d, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "out_proj.weight", d, d, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "out_proj.bias", 0, d, OOM_P_UNUSED));
	idle_norm(t, "layernorm", d);
	oom_linear_unused(t, "fc1", d, f, OOM_BIAS);
	oom_linear_unused(t, "fc2", f, d, OOM_BIAS);
	t->scope = "multi_modal_projector";
	oom_drop(t, oom_param(t, "mm_input_projection_weight", d, e[ENC_D], OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "mm_soft_emb_norm.weight", 0, d, OOM_P_UNUSED | OOM_P_NORM));
}

/* out_proj of every token, the last one picked. */
static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct oom_dim labels = {t->n_labels, "num_labels"};
	struct oom_val all, idx, loss;

	all = oom_op_linear(t, "out_proj", oom_op_dropout(t, oom_keep(h), a->classifier_dropout),
			    labels, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	idx = oom_new(t, "last token", t->m_b, D(1), OOM_I64);
	loss = oom_cls_loss(t, a,
			    oom_op_gather(t, "pooled logits", oom_keep(all), idx, t->m_b, labels));
	oom_drop(t, all);
	oom_done(t, h);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t *e = a->extra;
	const uint16_t m_t = t->task == OOM_TASK_SEQ2SEQ ? oom_len_targets(t) : t->m_s;
	const uint16_t m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct stack enc = {.a = a,
			    .heads = e[ENC_HEADS],
			    .kv_heads = e[ENC_KV],
			    .d = e[ENC_HEAD_DIM],
			    .ff = e[ENC_FF],
			    .m_tokens = t->m_bs,
			    .m_len = t->m_s,
			    .bit = 2,
			    .encoded = oom_none()};
	struct stack dec = {.a = a,
			    .heads = a->n_heads,
			    .kv_heads = a->n_kv_heads,
			    .d = a->head_dim,
			    .ff = a->d_ff,
			    .m_tokens = m_bt,
			    .m_len = m_t,
			    .m_src = t->m_bs,
			    .m_src_len = t->m_s,
			    .bit = 1,
			    .decoder = true};
	struct oom_val embed, dec_embed, ids, x, hidden, loss;

	if (t->task != OOM_TASK_SEQ2SEQ && t->task != OOM_TASK_SEQ_CLS) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s is modelled for the tasks seq2seq and seq-cls", a->model_type);
		return oom_none();
	}
	if (e[SECOND])
		t->warning = "T5Gemma 2: attention over both sequences at once is approximated";
	t->scope = "encoder.embed_tokens";
	embed = dec_embed = oom_param(t, "weight", e[ENC_VOCAB], e[ENC_D], OOM_P_EMBEDDING);
	if (e[SECOND]) {
		oom_drop(t, oom_param(t, "eoi_embedding", 0, e[ENC_D], 0));
		idle_tower(t, a);
	}
	if (!e[SECOND] || !a->tie) {
		t->scope = "decoder.embed_tokens";
		dec_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
		if (e[SECOND])
			oom_drop(t, oom_param(t, "eoi_embedding", 0, a->d_model, 0));
	}
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	dec.encoded = run_stack(t, &enc, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				e[ENC_VOCAB], e[ENC_D], e[ENC_LAYERS]);
	x = run_stack(t, &dec, dec_embed, oom_keep(ids), a->vocab, a->d_model, a->dec_layers);
	hidden = oom_share(t, x);
	loss = t->task == OOM_TASK_SEQ_CLS ? classify(t, a, x) :
	       oom_causal_lm_loss(t, a, oom_lm_head(t, a, x, dec_embed, "lm_head", false));
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return loss;
}

static const struct oom_family_type types[] = {
	{"t5gemma", NULL}, {"t5gemma2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_t5gemma = {
	.name = "t5gemma",
	.summary = "encoder-decoder of Gemma layers",
	.source = "transformers 5.12 models/t5gemma/modeling_t5gemma.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
