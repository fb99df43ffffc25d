/* BART and its kin: encoder-decoder, learned positions, cross-attention, tied head with a logit bias.
 * Reference: transformers 5.12, models/{bart,mbart,plbart,mvp,pegasus,marian,blenderbot,m2m_100,...}/modeling_*.py. */
#include <string.h>

#include "../blocks.h"

enum { FLAGS, ENC_FF, DEC_FF, ENC_HEADS, DEC_HEADS, ENC_LAYERS };       /* extra[] */
enum {
	PRE_NORM = 1,           /* norms before, one more after each stack */
	EMBED_NORM = 2,         /* layernorm_embedding */
	OFFSET = 4,             /* two more positions than the config says */
	SINUSOIDAL = 8,         /* positions are a table that is not trained but counted */
	LOGIT_BIAS = 16,
	CLAMP = 32,             /* encoder layers clamp fp16 */
	TABLE = 64,             /* positions are a buffer, indexed without a gradient (fairseq's make_positions) */
};
static const struct {
	const char *type;
	unsigned flags;
} kinds[] = {
	{"bart", EMBED_NORM | OFFSET | LOGIT_BIAS}, {"plbart", EMBED_NORM | OFFSET | LOGIT_BIAS},
	{"mvp", EMBED_NORM | OFFSET | LOGIT_BIAS}, {"mbart", EMBED_NORM | OFFSET | LOGIT_BIAS | PRE_NORM | CLAMP},
	{"pegasus", SINUSOIDAL | LOGIT_BIAS | PRE_NORM | CLAMP}, {"marian", SINUSOIDAL | LOGIT_BIAS},
	{"blenderbot", LOGIT_BIAS | PRE_NORM | CLAMP}, {"blenderbot-small", LOGIT_BIAS | EMBED_NORM},
	{"m2m_100", PRE_NORM | TABLE | CLAMP},
};

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, a->model_type))
			a->extra[FLAGS] = kinds[i].flags;
	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r, "encoder_attention_heads", 1);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_attention_heads", 1);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	a->extra[DEC_FF] = oom_read_count(r, "decoder_ffn_dim", 1);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
}

struct stack {
	const struct oom_arch *a;
	struct oom_val mask, cross_mask, encoded;
	uint64_t heads, ff;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder;
	bool alone;             /* no encoder: cross-attention exists but is not called */
};

static struct oom_val attention(struct oom_tape *t, const struct stack *s, struct oom_val x, bool cross, struct oom_val *weights)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	at.heads = at.kv_heads = s->heads;
	at.d = at.dv = s->a->d_model / s->heads;
	at.causal = s->decoder && !cross;
	at.qkv_bias = at.o_bias = true;
	at.softmax_as_is = at.no_cast_back = true;
	at.o = "out_proj";
	at.weights = weights;
	at.mask = cross ? s->cross_mask : s->mask;
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (cross)
		at.kv_from = s->encoded;
	return oom_attention(t, &at, x);
}

/* One sub-layer around attention: norm before or after, dropout, residual.  `hidden, _ = attn(...)`: the name `_` holds
 * the probabilities until the next such line has run. */
static struct oom_val attend(struct oom_tape *t, const struct stack *s, struct oom_val x, const char *norm, bool cross,
			     struct oom_val *held)
{
	const bool pre = s->a->extra[FLAGS] & PRE_NORM;
	struct oom_val weights = oom_none();
	struct oom_val h = pre ? oom_op_layer_norm(t, norm, oom_keep(x), 0, true, true) : oom_share(t, x);

	h = attention(t, s, h, cross, &weights);
	oom_drop(t, *held);
	*held = weights;
	h = oom_op_dropout(t, h, s->a->dropout);
	x = oom_op_add(t, x, h);
	return pre ? x : oom_op_layer_norm(t, norm, x, 0, true, true);
}

/* The parameters of a cross-attention that is never called: they get no gradient. */
static void idle_cross_attention(struct oom_tape *t, const struct oom_arch *a)
{
	static const char *const names[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	const uint64_t d = a->d_model;

	for (int i = 0; i < 4; i++) {
		oom_drop(t, oom_param(t, names[i], d, d, OOM_P_UNUSED | OOM_P_LINEAR));
		oom_drop(t, oom_param(t, "bias", 0, d, OOM_P_UNUSED));
	}
	oom_drop(t, oom_param(t, "encoder_attn_layer_norm.weight", 0, d, OOM_P_UNUSED | OOM_P_NORM));
	oom_drop(t, oom_param(t, "encoder_attn_layer_norm.bias", 0, d, OOM_P_UNUSED | OOM_P_NORM));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_arch *a = s->a;
	const bool pre = a->extra[FLAGS] & PRE_NORM;
	const struct oom_dim h = D(a->d_model);
	struct oom_val held = oom_none(), n, y;

	(void)i;
	x = attend(t, s, x, "self_attn_layer_norm", false, &held);
	if (s->alone)
		idle_cross_attention(t, a);
	else if (s->decoder)
		x = attend(t, s, x, "encoder_attn_layer_norm", true, &held);
	n = pre ? oom_op_layer_norm(t, "final_layer_norm", oom_keep(x), 0, true, true) : oom_share(t, x);
	y = oom_op_linear(t, "fc1", oom_keep(n), (struct oom_dim){s->ff, "ffn_dim"}, OOM_BIAS);
	y = oom_activation(t, a->act, y);       /* activation_fn(fc1(n)): one line, n is reassigned after it */
	oom_drop(t, n);
	y = oom_op_dropout(t, y, a->act_dropout);
	y = oom_op_linear(t, "fc2", y, h, OOM_BIAS);
	x = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	oom_drop(t, held);
	if (a->extra[FLAGS] & CLAMP && !s->decoder && x.dt == OOM_DT_F16)
		x = oom_op_unary(t, OOM_CLAMP, x);
	return pre ? x : oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
}

/* weights.index_select(0, positions of what is not padding): a buffer of max_position_embeddings + 2 rows. */
static struct oom_val table_positions(struct oom_tape *t, const struct stack *s, struct oom_val embed)
{
	const struct oom_arch *a = s->a;
	const enum oom_dtype dt = t->plan->qlora ? OOM_DT_BF16 : (enum oom_dtype)embed.dt;
	struct oom_val ids = oom_new(t, "position ids", s->m_tokens, D(1), OOM_I64), pos;

	oom_buffer(t, (a->max_positions + 2) * a->d_model, dt);
	pos = oom_new(t, "embed_positions", s->m_tokens, D(a->d_model), dt);
	oom_drop(t, ids);
	return pos;
}

static struct oom_val run_stack(struct oom_tape *t, struct stack *s, struct oom_val embed, struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const uint64_t flags = a->extra[FLAGS], positions = a->max_positions + (flags & OFFSET ? 2 : 0);
	const struct oom_dim h = D(a->d_model);
	struct oom_val x, pos, first;

	x = oom_op_unary(t, OOM_SCALE, oom_op_embedding_param(t, embed, ids, a->vocab, h));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	if (flags & TABLE) {
		pos = table_positions(t, s, embed);
	} else {
		pos = oom_new(t, "position ids", flags & OFFSET ? s->m_tokens : s->m_len, D(1), OOM_I64);
		pos = oom_op_embedding(t, "embed_positions", pos, positions, h, flags & SINUSOIDAL ? OOM_P_FROZEN : 0);
	}
	x = oom_op_add(t, x, oom_keep(pos));
	if (flags & EMBED_NORM)
		x = oom_op_layer_norm(t, "layernorm_embedding", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, block, s, x);
	if (flags & PRE_NORM)
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop(t, pos);
	oom_drop(t, first);
	return x;
}

/* The decoder by itself (BartForCausalLM): labels are not shifted, logits not cast. */
static struct oom_val causal_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct stack dec = {.a = a, .heads = a->extra[DEC_HEADS], .ff = a->extra[DEC_FF], .m_tokens = t->m_bs, .m_len = t->m_s,
			    .cross_mask = oom_none(), .encoded = oom_none(), .decoder = true, .alone = true};
	struct oom_val embed, x, loss, hidden, ones;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	ones = t->plan->padding_mask ? oom_none() : oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	dec.mask = oom_make_mask(t, true, 0, (enum oom_dtype)embed.dt, t->m_b, t->m_s, t->m_s);
	x = run_stack(t, &dec, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), a->dec_layers);
	oom_drop_shared(t, dec.mask);
	oom_drop(t, ones);
	hidden = oom_share(t, x);
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	loss = oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

/* logits + final_logits_bias and their loss.  The bias is a buffer in the model's type, so fp32 weights under autocast
 * make the sum fp32. */
static struct oom_val lm_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, struct oom_val embed, uint16_t m_bt)
{
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	if (a->extra[FLAGS] & LOGIT_BIAS) {
		struct oom_val bias = oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab,
						t->plan->qlora ? OOM_DT_BF16 : (enum oom_dtype)embed.dt);

		oom_buffer(t, a->vocab, (enum oom_dtype)bias.dt);
		x = oom_op_add(t, x, bias);
	}
	return oom_plain_lm_loss(t, x, false, m_bt);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	/* targets have a length of their own; classifiers and AutoModelForMaskedLM feed the decoder what the encoder got */
	const uint16_t m_t = a->task == OOM_TASK_SEQ2SEQ ? oom_mono_of(t, OOM_MONO_ONE, OOM_VAR_T, 0, 0) : t->m_s;
	const uint16_t m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_val embed, enc_embed, dec_embed, x, dec_ids, hidden, loss;
	struct stack enc = {.a = a, .heads = a->extra[ENC_HEADS], .ff = a->extra[ENC_FF], .m_tokens = t->m_bs, .m_len = t->m_s,
			    .mask = oom_none(), .cross_mask = oom_none(), .encoded = oom_none()};
	struct stack dec = {.a = a, .heads = a->extra[DEC_HEADS], .ff = a->extra[DEC_FF], .m_tokens = m_bt, .m_len = m_t,
			    .m_src = t->m_bs, .m_src_len = t->m_s, .decoder = true};

	if (a->task == OOM_TASK_CAUSAL_LM)
		return causal_step(t, a);
	if (a->task == OOM_TASK_IMAGE_CLS) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID, "%s is a text model: it has no task image-cls", a->model_type);
		return oom_none();
	}
	t->scope = "shared";
	embed = enc_embed = dec_embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	if (!a->tie) {                          /* shared, encoder and decoder tables are then three */
		enc_embed = oom_param(t, "encoder.embed_tokens", a->vocab, a->d_model, OOM_P_EMBEDDING);
		dec_embed = oom_param(t, "decoder.embed_tokens", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	dec_ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	enc.mask = oom_make_mask(t, false, 0, (enum oom_dtype)embed.dt, t->m_b, t->m_s, t->m_s);
	x = run_stack(t, &enc, enc_embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), a->extra[ENC_LAYERS]);
	oom_drop_shared(t, enc.mask);
	dec.encoded = x;
	dec.mask = oom_make_mask(t, true, 0, (enum oom_dtype)embed.dt, t->m_b, m_t, m_t);
	dec.cross_mask = oom_make_mask(t, false, 0, (enum oom_dtype)embed.dt, t->m_b, m_t, t->m_s);
	x = run_stack(t, &dec, dec_embed, oom_keep(dec_ids), a->dec_layers);
	oom_drop_shared(t, dec.mask);
	oom_drop_shared(t, dec.cross_mask);
	hidden = oom_share(t, x);               /* the base model's output lives as long as the head runs */
	loss = a->task == OOM_TASK_SEQ_CLS ? oom_seq2seq_cls(t, a, x) : lm_tail(t, a, x, embed, m_bt);
	oom_drop(t, hidden);
	oom_drop_shared(t, dec.encoded);        /* in the model's output */
	oom_drop(t, dec_ids);
	return loss;
}

static const char *const types[] = {"bart", "plbart", "mvp", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small",
				    "m2m_100", NULL};

const struct oom_family oom_family_bart = {
	.name = "bart",
	.summary = "encoder-decoder with learned positions and cross-attention",
	.source = "transformers 5.12 models/bart/modeling_bart.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
