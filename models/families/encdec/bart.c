/* BART and its kin: encoder-decoder, learned positions, cross-attention, tied head with a logit
 * bias. Reference: transformers 5.12,
 * models/{bart,mbart,plbart,mvp,pegasus,marian,blenderbot,m2m_100,nllb_moe,trocr,
 * bigbird_pegasus,seamless_m4t,seamless_m4t_v2}/modeling_*.py. */
#include <string.h>

#include "blocks/encdec.h"
#include "blocks/sparse.h"
#include "families/towers/weights.h"

/* extra[] */
enum {
	FLAGS = ENCDEC_EXTRA,
	ENC_SPARSE,
	DEC_SPARSE,
	CROSS,
	FULL,
	SPEECH
};
enum {
	PRE_NORM = 1,           /* norms before, one more after each stack */
	EMBED_NORM = 2,         /* layernorm_embedding */
	OFFSET = 4,             /* two more positions than the config says */
	SINUSOIDAL = 8,         /* positions are a table that is not trained but counted */
	LOGIT_BIAS = 16,
	CLAMP = 32,             /* encoder layers clamp fp16 */
	/* positions are a buffer, indexed without a gradient (fairseq's make_positions) */
	TABLE = 64,
	EAGER = 128,            /* no attention but the one written out */
	DECODER = 256,          /* a decoder only (TrOCR): attention with bmm */
	BIGBIRD = 512,          /* no biases in attention, block-sparse encoder */
	EXPERTS = 1024,
	BMM = 4096, FP32_SOFTMAX = 8192,
	NLLB = 16384,           /* feed-forward as NLLB-MoE's */
	ROW = 32768,            /* the decoder is given its positions: one row for the batch */
	NO_ONES = 2048,         /* the decoder alone makes no mask of ones */
};
static const struct {
	const char *type;
	unsigned flags;
} kinds[] = {
	{"bart", EMBED_NORM | OFFSET | LOGIT_BIAS | ROW}, {"plbart", EMBED_NORM | OFFSET | LOGIT_BIAS | ROW},
	{"mvp", EMBED_NORM | OFFSET | LOGIT_BIAS}, {"mbart", EMBED_NORM | OFFSET | LOGIT_BIAS | PRE_NORM | CLAMP | ROW},
	{"pegasus", SINUSOIDAL | LOGIT_BIAS | PRE_NORM | CLAMP}, {"marian", SINUSOIDAL | LOGIT_BIAS},
	{"blenderbot", LOGIT_BIAS | PRE_NORM | CLAMP}, {"blenderbot-small", LOGIT_BIAS | EMBED_NORM},
	{"m2m_100", PRE_NORM | TABLE | CLAMP}, {"nllb-moe", PRE_NORM | TABLE | CLAMP | EXPERTS | EAGER | NLLB},
	{"seamless_m4t", PRE_NORM | TABLE | BMM | NLLB}, {"seamless_m4t_v2", PRE_NORM | TABLE | EAGER | FP32_SOFTMAX | NLLB},
	{"trocr", OFFSET | EMBED_NORM | DECODER | NO_ONES}, {"bigbird_pegasus", PRE_NORM | CLAMP | LOGIT_BIAS | BIGBIRD | EAGER},
};

static bool in_blocks(struct oom_tape *t, const struct oom_arch *a)
{
	return a->extra[FULL] && oom_cond_above(t, t->m_s, a->extra[FULL]);
}

static struct oom_blocks blocks_of(const struct oom_arch *a)
{
	struct oom_reader r = a->rd;

	return (struct oom_blocks){.block = oom_read_count_or(&r, "block_size", 64),
				   .random = oom_read_count_or(&r, "num_random_blocks", 3),
				   .mask_dt = OOM_I64};
}

/* TrOCR: a decoder for any image encoder. */
static void parse_decoder(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_CAUSAL_LM;
	a->extra[CROSS] = oom_read_count_or(r, "cross_attention_hidden_size", 0);
	if (!oom_read_bool(r, "layernorm_embedding", true))
		a->extra[FLAGS] &= ~(uint64_t)EMBED_NORM;
	if (!oom_read_bool(r, "use_learned_position_embeddings", true))
		a->extra[FLAGS] = (a->extra[FLAGS] & ~(uint64_t)OFFSET) | TABLE;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, a->model_type))
			a->extra[FLAGS] = kinds[i].flags;
	a->default_task = OOM_TASK_SEQ2SEQ;     /* before what changes it */
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, oom_read_key(r, "d_model") ? "d_model" : "hidden_size", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[DEC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r,
									  "decoder_attention_heads",
									  1);
	a->extra[DEC_FF] = a->d_ff = oom_read_count(r, "decoder_ffn_dim", 1);
	if (!(a->extra[FLAGS] & DECODER)) {
		a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
		a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(
			r, "encoder_attention_heads", 1);
		a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	}
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->extra[FLAGS] & EXPERTS) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = 2;
		a->extra[ENC_SPARSE] = oom_read_count_or(r, "encoder_sparse_step", 0);
		a->extra[DEC_SPARSE] = oom_read_count_or(r, "decoder_sparse_step", 0);
		a->qkv_bias = oom_read_bool(r, "router_bias", false);
	}
	if (a->extra[FLAGS] & DECODER)
		parse_decoder(a);
	if (!strncmp(a->model_type, "seamless", 8)) {
		const char *class = oom_read_item(r, "architectures", 0);

		a->extra[SPEECH] = class && strstr(class, "SpeechTo") != NULL;
	}
	if (a->extra[FLAGS] & BIGBIRD) {
		const struct oom_blocks b = blocks_of(a);

		if (!b.block || b.block > 1 << 16 || b.random > 1 << 10)
			oom_read_fail(r, "block_size or num_random_blocks out of range");
		a->qkv_bias = oom_read_bool(r, "use_bias", false);
		if (!strcmp(oom_read_string(r, "attention_type", "block_sparse"), "block_sparse"))
			a->extra[FULL] = (5 + 2 * b.random) * b.block;
	}
}

/* What a stack's layers are, in the words of encdec.h. */
static unsigned stack_flags(const struct oom_arch *a)
{
	const uint64_t f = a->extra[FLAGS];

	return (f & PRE_NORM ? OOM_ED_PRE_NORM : 0) | (f & CLAMP ? OOM_ED_CLAMP : 0) |
	       (f & EAGER ? OOM_ED_EAGER : 0) | (f & (DECODER | BMM) ? OOM_ED_BMM : 0) |
	       (f & NLLB ? OOM_ED_NLLB : 0) | (f & FP32_SOFTMAX ? OOM_ED_FP32_SOFTMAX : 0) |
	       (f & BIGBIRD && !a->qkv_bias ? OOM_ED_NO_BIAS : 0);
}

/* BigBird's encoder layers on long sequences. */
static struct oom_val block_attention(struct oom_tape *t, const struct oom_encdec *s,
				      struct oom_val x, struct oom_val *weights)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct oom_arch *a = s->a;
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_blocks b = blocks_of(a);
	struct oom_val p[3], y;

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(
			t, oom_op_linear(t, names[i], oom_keep(x), D(a->d_model), bias));
	b.heads = s->heads;
	b.d = a->d_model / s->heads;
	b.dt = (enum oom_dtype)p[0].dt;
	y = oom_block_attention(t, &b, p[0], p[1], p[2], weights);
	y = oom_op_linear(t, "output", y, D(a->d_model), bias);
	oom_done(t, x);
	return y;
}

/* On sequences too short for blocks: full attention under names of its own. */
static struct oom_val bigbird_attention(struct oom_tape *t, const struct oom_encdec *s,
					uint32_t layer, struct oom_val x, struct oom_val *weights)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	(void)layer;
	if (in_blocks(t, s->a))
		return block_attention(t, s, x, weights);
	at.heads = at.kv_heads = s->heads;
	at.d = at.dv = s->a->d_model / s->heads;
	at.causal = false;
	at.qkv_bias = at.o_bias = s->a->qkv_bias;
	at.softmax_as_is = at.no_cast_back = at.written_out = true;
	at.q = "query";
	at.k = "key";
	at.v = "value";
	at.o = "output";
	at.weights = weights;
	at.mask = s->mask;
	return oom_attention(t, &at, x);
}

static bool is_sparse(const struct oom_encdec *s, uint32_t layer)
{
	const uint64_t step = s->a->extra[s->decoder ? DEC_SPARSE : ENC_SPARSE];

	return step && (layer + 1) % step == 0;
}

/* NLLB-MoE: every fourth feed-forward is a router and experts that run one after another.  Which
 * tokens go where is the data's to say; here every token meets one expert. */
static struct oom_val experts(struct oom_tape *t, const struct oom_encdec *s, uint32_t layer,
			      struct oom_val x)
{
	const struct oom_arch *a = s->a;
	const uint64_t e = a->n_experts, d = a->d_model;
	const struct oom_dim ff = {s->ff, "ffn_dim"}, h = {d, "d_model"};
	struct oom_val w, up, down, bias_up, bias_down, probs, at, y, none = oom_none();

	if (!is_sparse(s, layer))
		return oom_encdec_feed_forward(t, s, x);
	t->warning = "which tokens an expert of NLLB-MoE gets is the data's to say: its sparse "
		     "layers are approximated";
	t->scope = "router";
	y = oom_op_cast(t, oom_keep(x), OOM_F32);
	w = oom_op_cast(t, oom_param(t, "weight", e, d, OOM_P_LINEAR), OOM_F32);
	y = oom_op_matmul_param(t, "classifier", y, w,
				a->qkv_bias ? oom_param(t, "bias", 0, e, 0) : none,
				(struct oom_dim){e, "num_experts"});
	probs = oom_op_cast(t, oom_op_softmax(t, y, true), (enum oom_dtype)x.dt);
	at = oom_new(t, "top-1 mask", x.mono, (struct oom_dim){e, "num_experts"}, OOM_I64);
	probs = oom_op_mul(t, probs, oom_keep(at));
	t->scope = "experts";
	up = oom_param(t, "fc1.weight", e * s->ff, d, OOM_P_EXPERT | OOM_P_LINEAR);
	bias_up = oom_param(t, "fc1.bias", 0, e * s->ff, OOM_P_EXPERT);
	down = oom_param(t, "fc2.weight", e * d, s->ff, OOM_P_EXPERT | OOM_P_LINEAR);
	bias_down = oom_param(t, "fc2.bias", 0, e * d, OOM_P_EXPERT);
	y = oom_op_copy(t, "current_state", oom_keep(x));
	y = oom_op_grouped_mm(t, "fc1", y, up, none, d, ff);
	y = oom_op_add_into(t, y, bias_up, y.mono, ff);
	y = oom_op_dropout(t, oom_activation(t, a->act, y), a->act_dropout);
	y = oom_op_grouped_mm(t, "fc2", y, down, none, s->ff, h);
	y = oom_op_add_into(t, y, bias_down, y.mono, h);
	y = oom_op_mul(t, y, oom_op_sum(t, probs, y.mono, D(1)));
	oom_drop(t, at);
	oom_done(t, x);
	return y;
}

/* weights.index_select(0, positions of what is not padding): a buffer of max_position_embeddings
 * + 2 rows. */
static struct oom_val table_positions(struct oom_tape *t, const struct oom_encdec *s,
				      struct oom_val embed)
{
	const struct oom_arch *a = s->a;
	const enum oom_dtype dt = oom_plan_four_bit(t->plan) ? OOM_DT_BF16 : (enum oom_dtype)embed.dt;
	struct oom_val ids = oom_new(t, "position ids", s->m_tokens, D(1), OOM_I64), pos;

	if (!(a->extra[FLAGS] & DECODER))       /* TrOCR's is neither parameter nor buffer */
		oom_buffer(t, (a->max_positions + 2) * a->d_model, dt);
	pos = oom_new(t, "embed_positions", s->m_tokens, D(a->d_model), dt);
	oom_drop(t, ids);
	return pos;
}

static struct oom_val run_stack(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				struct oom_val ids, uint64_t layers)
{
	const struct oom_arch *a = s->a;
	const uint64_t flags = a->extra[FLAGS],
		       positions = a->max_positions + (flags & OFFSET ? 2 : 0);
	const struct oom_dim h = D(a->d_model);
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x, pos, first;

	x = oom_op_unary(t, OOM_SCALE, oom_op_embedding_param(t, embed, ids, a->vocab, h));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	if (flags & TABLE) {
		pos = table_positions(t, s, embed);
	} else {
		pos = oom_new(t, "position ids",
			      flags & OFFSET && !(s->decoder && flags & ROW) ? s->m_tokens :
									       s->m_len,
			      D(1), OOM_I64);
		pos = oom_op_embedding(t, "embed_positions", pos, positions, h,
				       flags & SINUSOIDAL ? OOM_P_FROZEN : 0);
	}
	x = oom_op_add(t, x, oom_keep(pos));
	if (flags & EMBED_NORM)
		x = oom_op_layer_norm(t, "layernorm_embedding", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	if (a->extra[FLAGS] & EXPERTS)
		for (uint64_t i = 0; i < OOM_MAX_LAYERS; i++)
			kind[i] = is_sparse(s, (uint32_t)i);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), a->extra[FLAGS] & EXPERTS ? kind : NULL,
		       oom_encdec_layer, s, x);
	if (flags & PRE_NORM)
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop(t, pos);
	oom_drop(t, first);
	return x;
}

/* The decoder by itself (BartForCausalLM): labels are not shifted, logits not cast. */
static struct oom_val causal_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = t->m_bs,
				 .m_len = t->m_s,
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .decoder = true,
				 .alone = true,
				 .flags = stack_flags(a),
				 .cross_width = a->extra[CROSS]};
	struct oom_arch untied = *a;
	const struct oom_arch *head = a;
	const char *name = a->extra[FLAGS] & DECODER ? "output_projection" : "lm_head";
	struct oom_val embed, x, loss, hidden, ones;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	ones = t->plan->padding_mask || a->extra[FLAGS] & NO_ONES ?
		       oom_none() :
		       oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	dec.mask = oom_encdec_mask(t, dec.flags, true, (enum oom_dtype)embed.dt, t->m_s, t->m_s);
	x = run_stack(t, &dec, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
		      a->dec_layers);
	oom_drop_shared(t, dec.mask);
	oom_drop(t, ones);
	if (a->extra[FLAGS] & BIGBIRD) {        /* BigBirdPegasusForCausalLM ties nothing */
		untied.tie = false;
		head = &untied;
	}
	if (oom_fuses_head(t))
		return oom_fused_ce(t, head, x, embed, name);
	hidden = oom_share(t, x);
	x = oom_lm_head(t, head, x, embed, name, false);
	loss = oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

static enum oom_dtype logit_bias_type(const struct oom_tape *t, struct oom_val embed)
{
	return oom_plan_four_bit(t->plan) ? OOM_DT_BF16 : (enum oom_dtype)embed.dt;
}

/* logits + final_logits_bias and their loss.  The bias is a buffer in the model's type, so fp32
 * weights under autocast make the sum fp32. */
static struct oom_val lm_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val embed, uint16_t m_bt)
{
	if (oom_fuses_head(t)) {                /* the bias is left out with the logits */
		if (a->extra[FLAGS] & LOGIT_BIAS)
			oom_buffer(t, a->vocab, logit_bias_type(t, embed));
		return oom_fused_ce(t, a, x, embed, "lm_head");
	}
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	if (a->extra[FLAGS] & LOGIT_BIAS) {
		struct oom_val bias = oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab,
						logit_bias_type(t, embed));

		oom_buffer(t, a->vocab, (enum oom_dtype)bias.dt);
		x = oom_op_add(t, x, bias);
	}
	return oom_plain_lm_loss(t, x, false, m_bt);
}

/* Tasks that the type has not. */
static bool refused(struct oom_tape *t, const struct oom_arch *a)
{
	if (a->extra[FLAGS] & DECODER) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is a decoder: it has the task causal-lm only",
			      a->model_type);
		return true;
	}
	if (t->task == OOM_TASK_IMAGE_CLS) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is a text model: it has no task image-cls",
			      a->model_type);
		return true;
	}
	return false;
}

/* The shared table, and the encoder's and decoder's: three when nothing is tied. */
static struct oom_val tables(struct oom_tape *t, const struct oom_arch *a, struct oom_val *encoder,
			     struct oom_val *decoder)
{
	struct oom_val shared;

	t->scope = "shared";
	shared = *encoder = *decoder = oom_param(t, "weight", a->vocab, a->d_model,
						  OOM_P_EMBEDDING);
	if (!a->tie) {
		if (!a->extra[SPEECH])
			*encoder = oom_param(t, "encoder.embed_tokens", a->vocab, a->d_model,
					      OOM_P_EMBEDDING);
		*decoder = oom_param(t, "decoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
	}
	return shared;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	/* targets have a length of their own; classifiers and AutoModelForMaskedLM feed the
	 * decoder what the encoder got */
	const uint16_t m_t = t->task == OOM_TASK_SEQ2SEQ ? oom_len_targets(t) : t->m_s;
	const uint16_t m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_val embed, enc_embed, dec_embed, x, dec_ids, hidden, loss;
	struct oom_encdec enc = {.a = a,
				 .heads = a->extra[ENC_HEADS],
				 .ff = a->extra[ENC_FF],
				 .m_tokens = t->m_bs,
				 .m_len = t->m_s,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .flags = stack_flags(a)};
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = m_bt,
				 .m_len = m_t,
				 .m_src = t->m_bs,
				 .m_src_len = t->m_s,
				 .decoder = true,
				 .flags = enc.flags};

	if (t->task == OOM_TASK_CAUSAL_LM)
		return causal_step(t, a);
	if (refused(t, a))
		return oom_none();
	embed = tables(t, a, &enc_embed, &dec_embed);
	if (a->extra[SPEECH]) {                 /* in the text encoder's place */
		struct oom_weights speech;

		t->warning = "the speech encoder of Seamless M4T is counted as weights only: "
			     "neither activations nor gradients";
		oom_weights_begin(t, &speech);
		oom_seamless_speech(t, a);
		oom_weights_end(t, &speech);
	}
	dec_ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	enc.mask = in_blocks(t, a) ?
			   oom_band_mask(t, blocks_of(a).block, OOM_I64) :
			   oom_encdec_mask(t, enc.flags, false, (enum oom_dtype)embed.dt, t->m_s,
					   t->m_s);
	if (a->extra[FLAGS] & EXPERTS)
		enc.feed_forward = dec.feed_forward = experts;
	if (a->extra[FLAGS] & BIGBIRD)
		enc.self_attention = bigbird_attention;
	if (a->extra[SPEECH])
		x = oom_new(t, "speech features", t->m_bs, D(a->d_model), (enum oom_dtype)embed.dt);
	else
		x = run_stack(t, &enc, enc_embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
			      a->extra[ENC_LAYERS]);
	oom_drop_shared(t, enc.mask);
	dec.encoded = x;
	dec.mask = oom_encdec_mask(t, dec.flags, true, (enum oom_dtype)embed.dt, m_t, m_t);
	dec.cross_mask = oom_encdec_mask(t, dec.flags, false, (enum oom_dtype)embed.dt, m_t,
					 t->m_s);
	x = run_stack(t, &dec, dec_embed, oom_keep(dec_ids), a->dec_layers);
	oom_drop_shared(t, dec.mask);
	oom_drop_shared(t, dec.cross_mask);
	/* the base model's output lives as long as the head runs */
	hidden = oom_share(t, x);
	loss = t->task == OOM_TASK_SEQ_CLS ? oom_seq2seq_cls(t, a, x) :
					     lm_tail(t, a, x, embed, m_bt);
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);        /* in the model's output */
	oom_drop(t, dec_ids);
	return loss;
}

static const struct oom_family_type types[] = {
	{"bart", NULL}, {"plbart", NULL}, {"mvp", NULL}, {"mbart", NULL}, {"pegasus", NULL},
	{"marian", NULL}, {"blenderbot", NULL}, {"blenderbot-small", NULL}, {"m2m_100", NULL},
	{"nllb-moe", NULL}, {"trocr", NULL}, {"bigbird_pegasus", NULL}, {"seamless_m4t", NULL},
	{"seamless_m4t_v2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_bart = {
	.name = "bart",
	.summary = "encoder-decoder with learned positions and cross-attention",
	.source = "transformers 5.12 models/bart/modeling_bart.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
