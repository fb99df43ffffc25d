/* BART and its kin: encoder-decoder, learned positions, cross-attention, tied head with a logit
 * bias. Reference: transformers 5.12,
 * models/{bart,mbart,plbart,mvp,pegasus,marian,blenderbot,m2m_100,nllb_moe,trocr,
 * bigbird_pegasus,seamless_m4t,seamless_m4t_v2}/modeling_*.py. */
#include "bart.h"
#include "blocks/sparse.h"
#include "families/towers/weights.h"

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
	oom_tape_warn(t, "which tokens an expert of NLLB-MoE gets is the data's to say: its sparse "
		     "layers are approximated");
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
	const bool bias = bart_of(a)->kind.logit_bias && !t->outer_head;

	if (bias)
		oom_buffer(t, a->vocab, dt);
	if (oom_fuses_head(t))                  /* the bias is left out with the logits */
		return oom_fused_ce(t, a, x, embed, "lm_head");
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	if (bias)
		x = oom_op_add(t, x, oom_input(t, "final_logits_bias", OOM_MONO_ONE, a->vocab, dt));
	return t->outer_head ? oom_causal_lm_loss(t, a, x) : oom_plain_lm_loss(t, x, false, m_bt);
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

	oom_tape_warn(t, "the speech encoder of Seamless M4T is counted as weights only: neither "
		     "activations nor gradients");
	oom_weights_begin(t, &w);
	oom_seamless_speech(t, a, bart_of(a)->kind.relative_speech);
	oom_weights_end(t, &w);
}

struct oom_val bart_step(struct oom_tape *t, const struct oom_arch *a)
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
