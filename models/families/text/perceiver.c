/* Perceiver: an array of latents attends to the input, then to itself; the decoder's queries attend
 * to the latents. Reference: transformers 5.12, models/perceiver/modeling_perceiver.py. */
#include <string.h>

#include "blocks/image.h"
#include "config/keys.h"

/* fixed in the classes, not by the config */
enum { PIXEL_CHANNELS = 256, LM_HEADS = 8, LM_QK = 8 * 32 };

struct perceiver {
	uint64_t latents, d_latents;
	uint64_t qk, v;                 /* channels; 0: what the inputs suggest */
	uint64_t blocks, cross_heads;
	uint64_t cross_wide, self_wide; /* widening factors of the feed-forwards */
	bool shape_q;                   /* cross-attention as wide as its queries */
	bool residual;
};
OOM_OWN(perceiver, struct perceiver);

static const struct oom_key_row perceiver_keys[] = {
	OR(d_model, "d_model", 768), OR(n_layers, "num_self_attends_per_block", 26),
	OR(n_heads, "num_self_attention_heads", 8), OR(vocab, "vocab_size", 262),
	OR(max_positions, "max_position_embeddings", 2048), OR(image_size, "image_size", 56),
	ACT(act, "hidden_act", "gelu"), REAL(attn_dropout, "attention_probs_dropout_prob", 0.1),
	OR_OWN(struct perceiver, latents, "num_latents", 256),
	OR_OWN(struct perceiver, d_latents, "d_latents", 1280),
	OR_OWN(struct perceiver, qk, "qk_channels", 0),
	OR_OWN(struct perceiver, v, "v_channels", 0),
	OR_OWN(struct perceiver, blocks, "num_blocks", 1),
	OR_OWN(struct perceiver, cross_heads, "num_cross_attention_heads", 8),
	OR_OWN(struct perceiver, cross_wide, "cross_attention_widening_factor", 1),
	OR_OWN(struct perceiver, self_wide, "self_attention_widening_factor", 1),
	FLAG_OWN(struct perceiver, residual, "use_query_residual", true), OOM_KEYS_END};

static bool perceiver_in(uint64_t n, uint64_t most)
{
	return n && n <= most;
}

static void perceiver_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *shape = oom_read_string(r, "cross_attention_shape_for_attention", "kv");
	struct perceiver *p = perceiver_own(a);

	p->shape_q = !strcmp(shape, "q");
	a->head_dim = a->n_heads ? p->d_latents / a->n_heads : 0;
	if (!a->n_heads || !a->vocab || !p->cross_heads || !p->blocks || p->qk > 1 << 20 ||
	    p->v > 1 << 20 || !perceiver_in(p->latents, 1 << 20) ||
	    !perceiver_in(p->d_latents, 1 << 20) || !perceiver_in(a->d_model, 1 << 20) ||
	    !perceiver_in(p->cross_wide, 1024) || !perceiver_in(p->self_wide, 1024) ||
	    !perceiver_in(a->max_positions, 1 << 20) || !perceiver_in(a->image_size, 4096))
		oom_read_fail(r, "a size is out of range (model type %s)", r->family);
}

/* One layer: widths of queries, keys and values; what it attends to (absent: itself). */
struct perceiver_layer {
	const struct oom_arch *a;
	uint64_t q_dim, qk, v, heads, wide;
	uint16_t mq, mk, sk;
	bool residual;
	struct oom_val inputs, mask;
};

/* PerceiverSelfAttention.forward */
static struct oom_val perceiver_self(struct oom_tape *t, const struct perceiver_layer *l,
				     struct oom_val x)
{
	const bool cross = !oom_is_none(l->inputs);
	const struct oom_val bias[2] = {l->mask, oom_none()};
	struct oom_attn at = oom_attn_of(t, l->a);
	struct oom_frame f = {.t = t};
	struct oom_val from, q, k, v;

	x = from = oom_name(&f, oom_op_layer_norm(t, "layernorm1", x, 0, true, true));
	if (cross)
		from = oom_name(&f, oom_op_layer_norm(t, "layernorm2", l->inputs, 0, true, true));
	at.causal = false;
	at.heads = at.kv_heads = l->heads;
	at.d = l->qk / l->heads;
	at.dv = l->v / l->heads;
	at.mq = l->mq;
	at.mk = l->mk;
	at.sk = l->sk;
	at.dropout = l->a->attn_dropout;
	q = oom_project_heads(t, "query", x, l->qk, true, l->heads);
	k = oom_project_heads(t, "key", from, l->qk, true, l->heads);
	v = oom_project_heads(t, "value", from, l->v, true, l->heads);
	return oom_leave(&f, oom_written_attention(t, &at, q, k, v, bias));
}

/* PerceiverAttention.forward */
static struct oom_val perceiver_attention(struct oom_tape *t, const struct perceiver_layer *l,
					  struct oom_val x)
{
	const uint64_t out = oom_is_none(l->inputs) ? l->v : l->q_dim;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = perceiver_self(t, l, x);
	y = oom_op_linear(t, "dense", y, (struct oom_dim){out, "channels"}, OOM_BIAS);
	return oom_leave(&f, l->residual ? oom_op_add(t, y, x) : y);
}

static struct oom_val perceiver_layer(struct oom_tape *t, const struct perceiver_layer *l,
				      struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val y = oom_name(&f, perceiver_attention(t, l, x)), z;

	z = oom_op_layer_norm(t, "layernorm", y, 0, true, true);
	z = oom_plain_mlp(t, z, "dense1", "dense2", l->a->act,
			  (struct oom_dim){l->wide * l->q_dim, "widened"}, true);
	return oom_leave(&f, oom_op_add(t, z, y));
}

static struct oom_val perceiver_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	(void)i;
	return perceiver_layer(t, ctx, x);
}

/* A learned array, [n, d], seen by every sample. */
static struct oom_val perceiver_learned(struct oom_tape *t, const char *name, uint64_t n,
					uint64_t d)
{
	struct oom_val x = oom_param(t, name, n, d, 0);

	x.mono = oom_length_of(t, n);
	x.width = d;
	x = oom_op_expand(t, x, oom_tokens_of(t, n), (struct oom_dim){d, NULL});
	x.perm = false;
	return x;
}

/* The words with their positions; without them they are returned beside, and so have a name in
 * f. */
static struct oom_val perceiver_text(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_val *embed)
{
	const struct oom_dim d = D(a->d_model);
	struct oom_tape *t = f->t;
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), pos, x;

	t->scope = "embeddings";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, d);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_new(t, "positions", t->m_s, D(1), OOM_I64), a->max_positions, d,
			       0);
	return oom_op_add(t, oom_name(f, x), pos);
}

/* The same for n pixels. */
static struct oom_val perceiver_image(struct oom_frame *f, const struct oom_arch *a, uint64_t *n)
{
	const struct oom_dim c = {PIXEL_CHANNELS, "256"};
	struct oom_tape *t = f->t;
	const enum oom_precision p = t->plan->precision;
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size : a->image_size;
	struct oom_map m = {.c = 3, .h = side, .w = side};
	struct oom_val pos, x;

	m.x = oom_input(t, "pixel_values", t->m_b, 3 * side * side, OOM_F32);
	m.x.dt = p == OOM_FP16			      ? OOM_DT_F16 :
		 p == OOM_BF16 ? OOM_DT_BF16 :
							OOM_F32;
	m = oom_conv2d(t, "convnet_1x1", m,
		       &(struct oom_conv){.out = PIXEL_CHANNELS, .kernel = 1, .bias = true});
	if (t->status)
		return m.x;
	*n = side * side;
	x = oom_name(f, oom_map_tokens(t, m));
	pos = perceiver_learned(t, "position_embeddings", *n, PIXEL_CHANNELS);
	/* a batch of one row cannot be folded without a copy */
	pos = oom_op_expand_copy(t, pos, oom_tokens_of(t, *n), c);
	pos = oom_op_linear(t, "positions_projection", pos, c, OOM_BIAS);
	return oom_op_cat(t, x, pos, (struct oom_dim){2 * PIXEL_CHANNELS, "512"});
}

/* The latents attend to x, mk rows of sk per sample, each kv_dim wide. */
static struct oom_val perceiver_cross(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val z, struct oom_val x, uint16_t mk, uint16_t sk)
{
	const struct perceiver *p = perceiver_of(a);
	const uint64_t qk = p->qk ? p->qk : p->shape_q ? p->d_latents : x.width;
	struct perceiver_layer l = {.a = a, .q_dim = p->d_latents, .qk = qk, .v = p->v ? p->v : qk,
				    .heads = p->cross_heads, .wide = p->cross_wide,
				    .mq = oom_tokens_of(t, p->latents), .mk = mk, .sk = sk,
				    .inputs = x, .residual = p->residual};
	struct oom_frame f = {.t = t};

	l.mask = oom_new(t, "extended attention mask", mk, D(1), (enum oom_dtype)x.dt);
	l.mask = oom_name(&f, l.mask);
	return oom_leave(&f, perceiver_layer(t, &l, z));
}

static struct oom_val perceiver_encode(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x, uint16_t mk, uint16_t sk)
{
	const struct perceiver *p = perceiver_of(a);
	const uint64_t d = p->d_latents, n = p->latents, qk = p->qk ? p->qk : d;
	const struct perceiver_layer l = {.a = a, .q_dim = d, .qk = qk, .v = p->v ? p->v : qk,
					  .heads = a->n_heads, .wide = p->self_wide,
					  .mq = oom_tokens_of(t, n), .mk = oom_tokens_of(t, n),
					  .sk = oom_length_of(t, n), .residual = true,
					  .inputs = oom_none(), .mask = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val z = oom_name(&f, perceiver_learned(t, "latents", n, d));

	z = perceiver_cross(t, a, z, x, mk, sk);
	if (p->blocks > 1)
		oom_tape_warn(t, "num_blocks above 1: activations are approximated as those of one "
			     "block");
	if (t->plan->num_layers)
		oom_tape_warn(t, "Perceiver's depth is num_blocks and num_self_attends_per_block: the "
			     "number of layers asked for is not applied");
	z = oom_layers(t, (uint32_t)a->n_layers, NULL, perceiver_block, &l, z);
	return oom_leave(&f, z);
}

/* The decoder's queries attend to the latents. */
static struct oom_val perceiver_decode(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val z, bool lm)
{
	const struct perceiver *p = perceiver_of(a);
	const uint64_t d = p->d_latents, n = lm ? a->max_positions : 1, q_dim = lm ? a->d_model : d;
	const uint64_t qk = lm ? LM_QK : p->shape_q ? q_dim : d;
	const struct perceiver_layer l = {.a = a, .q_dim = q_dim, .qk = qk,
					  .v = lm ? a->d_model : qk, .heads = lm ? LM_HEADS : 1,
					  .wide = 1, .mq = oom_tokens_of(t, n),
					  .mk = oom_tokens_of(t, p->latents),
					  .sk = oom_length_of(t, p->latents), .residual = !lm,
					  .inputs = z, .mask = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val q = perceiver_learned(t, "output_position_encodings", n, q_dim);

	return oom_leave(&f, perceiver_layer(t, &l, oom_name(&f, q)));
}

/* The inputs' embedding again, and a bias added to its product. */
static struct oom_val perceiver_lm(struct oom_tape *t, const struct oom_arch *a, struct oom_val y,
				   struct oom_val embed)
{
	t->vocab = a->vocab;
	oom_tape_warn(t, "Perceiver's language model predicts max_position_embeddings tokens, "
		     "whatever the sequence length");
	y = oom_op_matmul_param(t, "embedding_decoder", y, embed, oom_none(),
				(struct oom_dim){a->vocab, "vocab_size"});
	y = oom_op_add(t, y, oom_param(t, "bias", 0, a->vocab, 0));
	return oom_plain_lm_loss(t, y, false, oom_tokens_of(t, a->max_positions));
}

/* PerceiverModel.forward: the decoder's result; *latents gets the encoder's. */
static struct oom_val perceiver_model(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val *latents, struct oom_val *embed)
{
	const bool lm = t->task == OOM_TASK_MASKED_LM, image = t->task == OOM_TASK_IMAGE_CLS;
	struct oom_frame f = {.t = t};
	struct oom_val x, z;
	uint64_t n = 0;

	x = image ? perceiver_image(&f, a, &n) : perceiver_text(&f, a, embed);
	if (t->status)
		return x;
	x = oom_name(&f, x);
	z = image ? perceiver_encode(t, a, x, oom_tokens_of(t, n), oom_length_of(t, n)) :
		    perceiver_encode(t, a, x, t->m_bs, t->m_s);
	z = oom_name(&f, z);
	*latents = oom_give(&f, z);
	return oom_leave(&f, perceiver_decode(t, a, z, lm));
}

static struct oom_val perceiver_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val embed = oom_none(), z = oom_none(), y;

	oom_no_checkpointing(t);
	y = perceiver_model(t, a, &z, &embed);
	if (t->status)
		return y;
	z = oom_name(&f, z);
	if (t->task == OOM_TASK_MASKED_LM)
		return oom_leave(&f, perceiver_lm(t, a, y, embed));
	y = oom_op_view(t, y, t->m_b, (struct oom_dim){perceiver_of(a)->d_latents, "d_latents"});
	return oom_leave(&f, oom_image_loss(t, a, y));
}

const struct oom_family oom_family_perceiver = {
	.name = "perceiver",
	.summary = "latents that attend to the input, then to themselves",
	.source = "transformers 5.12 models/perceiver/modeling_perceiver.py",
	.types = OOM_TYPE("perceiver"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "all-linear",
	.keys = perceiver_keys,
	.parse = perceiver_parse,
	.step = perceiver_step,
};
