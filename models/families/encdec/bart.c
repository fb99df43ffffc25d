/* BART and its kin: encoder-decoder, learned positions, cross-attention, tied head with a logit
 * bias. Reference: transformers 5.12,
 * models/{bart,mbart,plbart,mvp,pegasus,marian,blenderbot,m2m_100,nllb_moe,trocr,
 * bigbird_pegasus,seamless_m4t,seamless_m4t_v2}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/encdec.h"
#include "blocks/sparse.h"
#include "config/keys.h"
#include "families/towers/weights.h"

struct bart_kind {
	struct oom_encdec_kind layer;   /* pre_norm: with one more norm after each stack */
	bool embed_norm;                /* layernorm_embedding */
	bool norm_words;                /* in a decoder it is of the words alone, before positions are added */
	bool offset;                    /* two more positions than the config says */
	bool sinusoidal;                /* positions are a table that is not trained but counted */
	/* positions are a buffer, indexed without a gradient (fairseq's make_positions) */
	bool table;
	bool row;                       /* the decoder is given its positions: one row for the batch */
	bool logit_bias;
	bool names_ones;                /* the decoder's mask of ones has a name beside the causal mask's */
	bool decoder;                   /* a decoder only (TrOCR) */
	bool blocks;                    /* a block-sparse encoder (BigBird) */
	bool experts;
	bool speech;                    /* classes that take speech in place of text */
	bool prompts;                   /* use_prompt adds trained prompts to every layer (MVP) */
	bool relative_speech;           /* whose encoder has relative positions (Seamless M4T's first) */
};
#define PRE_CLAMP .layer.pre_norm = true, .layer.clamp = true
#define SEAMLESS .layer.pre_norm = true, .layer.cast_to_fc2 = true, .table = true, .speech = true
static const struct bart_kind
	bart = {.layer.clamp = true, .embed_norm = true, .offset = true, .logit_bias = true,
		.row = true},
	mvp = {.layer.clamp = true, .embed_norm = true, .offset = true, .logit_bias = true, .prompts = true},
	mbart = {PRE_CLAMP, .names_ones = true, .embed_norm = true, .offset = true, .logit_bias = true, .row = true},
	pegasus = {PRE_CLAMP, .names_ones = true, .sinusoidal = true, .logit_bias = true},
	marian = {.layer.clamp = true, .names_ones = true, .sinusoidal = true, .logit_bias = true},
	blenderbot = {PRE_CLAMP, .names_ones = true, .logit_bias = true},
	blenderbot_small = {.layer.clamp = true, .names_ones = true, .embed_norm = true, .norm_words = true,
			    .logit_bias = true},
	m2m_100 = {PRE_CLAMP, .table = true},
	nllb_moe = {PRE_CLAMP, .layer.kernel = OOM_ED_MATMUL, .layer.cast_to_fc2 = true,
		    .table = true, .experts = true},
	seamless = {SEAMLESS, .layer.kernel = OOM_ED_BMM, .relative_speech = true},
	seamless_v2 = {SEAMLESS, .layer.kernel = OOM_ED_MATMUL, .layer.fp32_softmax = true},
	trocr = {.layer.kernel = OOM_ED_BMM, .embed_norm = true, .offset = true, .decoder = true},
	bigbird = {PRE_CLAMP, .layer.kernel = OOM_ED_MATMUL, .logit_bias = true, .blocks = true};

static const struct oom_family_type bart_types[] = {
	{"bart", &bart}, {"plbart", &bart}, {"mvp", &mvp}, {"mbart", &mbart}, {"pegasus", &pegasus},
	{"marian", &marian}, {"blenderbot", &blenderbot}, {"blenderbot-small", &blenderbot_small},
	{"m2m_100", &m2m_100}, {"nllb-moe", &nllb_moe}, {"trocr", &trocr},
	{"bigbird_pegasus", &bigbird}, {"seamless_m4t", &seamless},
	{"seamless_m4t_v2", &seamless_v2}, {NULL, NULL},
};

struct bart {
	struct bart_kind kind;          /* the type's, as the config changes it */
	uint64_t sparse[2];             /* every so many-th layer has experts: encoder, decoder */
	uint64_t cross_width;           /* of what TrOCR's idle cross-attention would read */
	uint64_t block, random;         /* BigBird's */
	uint64_t full;                  /* tokens up to which attention is full; 0: at any length */
	bool speech;                    /* the class takes speech */
};
OOM_OWN(bart, struct bart);

static const struct oom_key_row bart_keys[] = {
	MUST(vocab, "vocab_size"), MUST(dec_layers, "decoder_layers"),
	MUST(dec_heads, "decoder_attention_heads"), MUST(dec_ff, "decoder_ffn_dim"),
	LIKE(n_layers, NULL, 1, dec_layers), MUST(max_positions, "max_position_embeddings"),
	ACT(act, "activation_function", "gelu"), OOM_ENCDEC_DROPOUT_KEYS(0.1),
	REAL(classifier_dropout, "classifier_dropout", 0), FLAG(tie, "tie_word_embeddings", true),
	OOM_KEYS_END};

static void parse_decoder(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);

	a->default_task = OOM_TASK_CAUSAL_LM;
	own->cross_width = oom_read_count_or(r, "cross_attention_hidden_size", 0);
	if (!oom_read_bool(r, "layernorm_embedding", true))
		own->kind.embed_norm = false;
	if (!oom_read_bool(r, "use_learned_position_embeddings", true)) {
		own->kind.offset = false;
		own->kind.table = true;
	}
}

static void parse_blocks(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);

	own->block = oom_read_count_or(r, "block_size", 64);
	own->random = oom_read_count_or(r, "num_random_blocks", 3);
	if (!own->block || own->block > 1 << 16 || own->random > 1 << 10)
		oom_read_fail(r, "block_size or num_random_blocks out of range");
	a->qkv_bias = oom_read_bool(r, "use_bias", false);
	own->kind.layer.no_bias = !a->qkv_bias;
	if (!strcmp(oom_read_string(r, "attention_type", "block_sparse"), "block_sparse"))
		own->full = (5 + 2 * own->random) * own->block;
}

static void bart_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);
	const char *class;

	own->kind = *(const struct bart_kind *)a->type->kind;
	a->default_task = OOM_TASK_SEQ2SEQ;     /* before what changes it */
	a->d_model = oom_read_count(r, oom_read_key(r, "d_model") ? "d_model" : "hidden_size", 1);
	if (own->kind.decoder) {
		a->n_heads = a->dec_heads;
		a->d_ff = a->dec_ff;
		parse_decoder(a);
	} else {
		a->enc_layers = oom_read_count(r, "encoder_layers", 1);
		a->n_heads = oom_read_count(r, "encoder_attention_heads", 1);
		a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	}
	a->n_kv_heads = a->n_heads;
	a->head_dim = a->d_model / a->n_heads;
	if (own->kind.experts) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = 2;
		own->sparse[0] = oom_read_count_or(r, "encoder_sparse_step", 0);
		own->sparse[1] = oom_read_count_or(r, "decoder_sparse_step", 0);
		a->qkv_bias = oom_read_bool(r, "router_bias", false);
	}
	class = own->kind.speech ? oom_read_item(r, "architectures", 0) : NULL;
	own->speech = class && strstr(class, "SpeechTo") != NULL;
	if (own->kind.blocks)
		parse_blocks(a);
	if (own->kind.prompts && oom_read_bool(r, "use_prompt", false)) {
		a->approximate = true;
		snprintf(a->warning, sizeof(a->warning), "%s: the prompts of use_prompt are not counted.", a->model_type);
	}
}

static bool in_blocks(struct oom_tape *t, const struct oom_arch *a)
{
	return bart_of(a)->full && oom_cond_above(t, t->m_s, bart_of(a)->full);
}

/* BigBird's encoder layers on long sequences. */
static struct oom_val block_attention(struct oom_tape *t, const struct oom_encdec *s,
				      struct oom_val x, struct oom_val *weights)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct oom_arch *a = s->a;
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_blocks b = {.block = bart_of(a)->block, .random = bart_of(a)->random,
			       .mask_dt = OOM_I64, .heads = s->heads, .d = a->d_model / s->heads};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	x = oom_arg(&f, x);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], x, D(a->d_model), bias));
	b.dt = (enum oom_dtype)p[0].dt;
	y = oom_block_attention(t, &b, p[0], p[1], p[2], weights);
	return oom_leave(&f, oom_op_linear(t, "output", y, D(a->d_model), bias));
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
	const uint64_t step = bart_of(s->a)->sparse[s->decoder];

	return step && (layer + 1) % step == 0;
}

/* NLLB-MoE: every fourth feed-forward is a router and experts. */
static struct oom_val nllb_feed_forward(struct oom_tape *t, const struct oom_encdec *s,
					uint32_t layer, struct oom_val x)
{
	const struct oom_arch *a = s->a;
	const struct oom_top1 m = {.experts = a->n_experts, .ff = {s->ff, "ffn_dim"}, .act = a->act,
				   .dropout = a->act_dropout,
				   .up = {"fc1", "fc1.weight", "fc1.bias"},
				   .down = {"fc2", "fc2.weight", "fc2.bias"},
				   .router_bias = a->qkv_bias, .bias = true, .masked = true};

	if (!is_sparse(s, layer))
		return oom_encdec_feed_forward(t, s, x);
	t->warning = "which tokens an expert of NLLB-MoE gets is the data's to say: its sparse "
		     "layers are approximated";
	return oom_moe_top1(t, &m, x);
}

static enum oom_dtype buffer_type(const struct oom_tape *t, struct oom_val embed)
{
	return oom_plan_four_bit(t->plan) ? OOM_DT_BF16 : (enum oom_dtype)embed.dt;
}

/* weights.index_select(0, positions of what is not padding): a buffer of max_position_embeddings
 * + 2 rows. */
static struct oom_val table_positions(struct oom_tape *t, const struct oom_encdec *s,
				      struct oom_val embed)
{
	const struct oom_arch *a = s->a;
	const enum oom_dtype dt = buffer_type(t, embed);
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new(t, "position ids", s->m_tokens, D(1), OOM_I64));
	if (!bart_of(a)->kind.decoder)          /* TrOCR's is neither parameter nor buffer */
		oom_buffer(t, (a->max_positions + 2) * a->d_model, dt);
	return oom_leave(&f, oom_new(t, "embed_positions", s->m_tokens, D(a->d_model), dt));
}

static struct oom_val positions(struct oom_tape *t, const struct oom_encdec *s,
				struct oom_val embed)
{
	const struct oom_arch *a = s->a;
	const struct bart_kind *k = &bart_of(a)->kind;
	const bool each = k->offset && !(s->decoder && k->row);
	struct oom_val ids;

	if (k->table)
		return table_positions(t, s, embed);
	ids = oom_new(t, "position ids", each ? s->m_tokens : s->m_len, D(1), OOM_I64);
	return oom_op_embedding(t, "embed_positions", ids, a->max_positions + (k->offset ? 2 : 0),
				D(a->d_model), k->sinusoidal ? OOM_P_FROZEN : 0);
}

/* BartEncoder.forward and BartDecoder.forward. */
static struct oom_val bart_stack(struct oom_tape *t, const struct oom_encdec *s,
				 struct oom_val embed, struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	const struct bart_kind *k = &bart_of(a)->kind;
	uint8_t sparse[OOM_MAX_LAYERS];
	const bool words = k->norm_words && s->decoder;
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	for (uint32_t i = 0; i < OOM_MAX_LAYERS; i++)
		sparse[i] = is_sparse(s, i);
	x = oom_op_unary(t, OOM_SCALE,
			 oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = oom_name(&f, oom_input_grads(t, x));
	pos = oom_name(&f, positions(t, s, embed));
	if (words)
		x = oom_rename(&f, x, oom_op_layer_norm(t, "layernorm_embedding", x, 0, true, true));
	x = oom_op_add(t, x, pos);
	if (k->embed_norm && !words)
		x = oom_op_layer_norm(t, "layernorm_embedding", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, s->layers), k->experts ? sparse : NULL,
		       oom_encdec_layer, s, x);
	if (k->layer.pre_norm)
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	return oom_leave(&f, x);
}

static struct oom_val lone_decoder(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val embed)
{
	const struct bart_kind *k = &bart_of(a)->kind;
	struct oom_encdec dec = oom_decoder_stack(t, a, &k->layer, t->m_s);
	struct oom_frame f = {.t = t};

	dec.alone = true;
	dec.cross_width = bart_of(a)->cross_width;
	if (!t->plan->padding_mask && k->names_ones)
		oom_name(&f, oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32));
	dec.mask = oom_name_shared(&f, oom_encdec_mask(t, &dec, true, (enum oom_dtype)embed.dt,
						       t->m_s, t->m_s));
	return oom_leave(&f, bart_stack(t, &dec, embed,
					oom_input(t, "input_ids", t->m_bs, 1, OOM_I64)));
}

/* The decoder by itself (BartForCausalLM): labels are not shifted, logits not cast. */
static struct oom_val causal_step(struct oom_tape *t, const struct oom_arch *a)
{
	const char *name = bart_of(a)->kind.decoder ? "output_projection" : "lm_head";
	struct oom_frame f = {.t = t};
	struct oom_arch head = *a;
	struct oom_val embed, x;

	if (bart_of(a)->kind.blocks)            /* BigBirdPegasusForCausalLM ties nothing */
		head.tie = false;
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = lone_decoder(t, a, embed);
	if (oom_fuses_head(t))
		return oom_fused_ce(t, &head, x, embed, name);
	x = oom_name(&f, x);
	return oom_leave(&f, oom_seq2seq_tail(t, &head, x, embed, name, t->m_bs));
}

/* logits + final_logits_bias and their loss.  The bias is a buffer in the model's type, so fp32
 * weights under autocast make the sum fp32. */
static struct oom_val lm_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val embed, uint16_t m_bt)
{
	const enum oom_dtype dt = buffer_type(t, embed);
	const bool bias = bart_of(a)->kind.logit_bias;

	if (bias)
		oom_buffer(t, a->vocab, dt);
	if (oom_fuses_head(t))                  /* the bias is left out with the logits */
		return oom_fused_ce(t, a, x, embed, "lm_head");
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	if (bias)
		x = oom_op_add(t, x, oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab, dt));
	return oom_plain_lm_loss(t, x, false, m_bt);
}

/* Tasks that the type has not. */
static bool refused(struct oom_tape *t, const struct oom_arch *a)
{
	if (bart_of(a)->kind.decoder) {
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

static struct oom_val text_encoder(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val embed)
{
	const struct bart_kind *k = &bart_of(a)->kind;
	struct oom_encdec enc = oom_encoder_stack(t, a, &k->layer);
	struct oom_frame f = {.t = t};

	if (k->experts)
		enc.feed_forward = nllb_feed_forward;
	if (k->blocks)
		enc.self_attention = bigbird_attention;
	enc.mask = in_blocks(t, a) ? oom_band_mask(t, bart_of(a)->block, OOM_I64) :
				     oom_encdec_mask(t, &enc, false, (enum oom_dtype)embed.dt,
						     t->m_s, t->m_s);
	enc.mask = oom_name_shared(&f, enc.mask);
	return oom_leave(&f, bart_stack(t, &enc, embed,
					oom_input(t, "input_ids", t->m_bs, 1, OOM_I64)));
}

static struct oom_val text_decoder(struct oom_tape *t, struct oom_encdec *dec, struct oom_val embed,
				   struct oom_val ids)
{
	struct oom_frame f = {.t = t};

	if (bart_of(dec->a)->kind.names_ones)   /* batches have no decoder_attention_mask */
		oom_name(&f, oom_new(t, "attention mask", dec->m_tokens, D(1), OOM_F32));
	if (bart_of(dec->a)->kind.experts)
		dec->feed_forward = nllb_feed_forward;
	oom_encdec_masks(&f, dec, (enum oom_dtype)embed.dt);
	return oom_leave(&f, bart_stack(t, dec, embed, ids));
}

/* In the text encoder's place. */
static void speech_encoder(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_weights w;

	t->warning = "the speech encoder of Seamless M4T is counted as weights only: neither "
		     "activations nor gradients";
	oom_weights_begin(t, &w);
	oom_seamless_speech(t, a, bart_of(a)->kind.relative_speech);
	oom_weights_end(t, &w);
}

static struct oom_val bart_step(struct oom_tape *t, const struct oom_arch *a)
{
	/* targets have a length of their own; classifiers and AutoModelForMaskedLM feed the
	 * decoder what the encoder got */
	const uint16_t m_t = t->task == OOM_TASK_SEQ2SEQ ? oom_len_targets(t) : t->m_s;
	const struct bart *own = bart_of(a);
	struct oom_encdec dec = oom_decoder_stack(t, a, &own->kind.layer, m_t);
	struct oom_encdec_tables e;
	struct oom_frame f = {.t = t};
	struct oom_val x, ids;

	if (t->task == OOM_TASK_CAUSAL_LM)
		return causal_step(t, a);
	if (refused(t, a))
		return oom_none();
	e = oom_encdec_tables(t, a, NULL, !own->speech);
	if (own->speech)
		speech_encoder(t, a);
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	x = own->speech ? oom_new(t, "speech features", t->m_bs, D(a->d_model),
				  (enum oom_dtype)e.shared.dt) :
			  text_encoder(t, a, e.encoder);
	dec.encoded = oom_name_shared(&f, x);
	/* the base model's output lives as long as the head runs */
	x = oom_name(&f, text_decoder(t, &dec, e.decoder, ids));
	x = t->task == OOM_TASK_SEQ_CLS ? oom_seq2seq_cls(t, a, x) :
					  lm_tail(t, a, x, e.shared, dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_bart = {
	.name = "bart",
	.summary = "encoder-decoder with learned positions and cross-attention",
	.source = "transformers 5.12 models/bart/modeling_bart.py",
	.one_sample = true,
	.types = bart_types,
	.lora_targets = "q_proj+v_proj",
	.keys = bart_keys,
	.parse = bart_parse,
	.step = bart_step,
};
