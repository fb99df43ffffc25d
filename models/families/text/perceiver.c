/* Perceiver: an array of latents attends to the input, then to itself; the decoder's queries attend
 * to the latents. Reference: transformers 5.12, models/perceiver/modeling_perceiver.py. */
#include <string.h>

#include "blocks/image.h"

/* extra[] */
enum { LATENTS, D_LATENTS, QK, V, CROSS_HEADS, CROSS_WIDE, SELF_WIDE, SHAPE_Q, RESIDUAL, BLOCKS };
/* fixed in the classes, not by the config */
enum { PIXEL_CHANNELS = 256, LM_HEADS = 8, LM_QK = 8 * 32 };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *shape = oom_read_string(r, "cross_attention_shape_for_attention", "kv");

	a->default_task = OOM_TASK_MASKED_LM;
	a->extra[LATENTS] = oom_read_count_or(r, "num_latents", 256);
	a->extra[D_LATENTS] = oom_read_count_or(r, "d_latents", 1280);
	a->d_model = oom_read_count_or(r, "d_model", 768);
	a->extra[BLOCKS] = oom_read_count_or(r, "num_blocks", 1);
	a->n_layers = oom_read_count_or(r, "num_self_attends_per_block", 26);
	a->n_heads = a->n_kv_heads = oom_read_count_or(r, "num_self_attention_heads", 8);
	a->extra[CROSS_HEADS] = oom_read_count_or(r, "num_cross_attention_heads", 8);
	a->extra[QK] = oom_read_count_or(r, "qk_channels", 0);
	a->extra[V] = oom_read_count_or(r, "v_channels", 0);
	a->extra[CROSS_WIDE] = oom_read_count_or(r, "cross_attention_widening_factor", 1);
	a->extra[SELF_WIDE] = oom_read_count_or(r, "self_attention_widening_factor", 1);
	a->extra[SHAPE_Q] = !strcmp(shape, "q");
	a->extra[RESIDUAL] = oom_read_bool(r, "use_query_residual", true);
	a->vocab = oom_read_count_or(r, "vocab_size", 262);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 2048);
	a->image_size = oom_read_count_or(r, "image_size", 56);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->head_dim = a->n_heads ? a->extra[D_LATENTS] / a->n_heads : 0;
	if (!a->n_heads || !a->extra[CROSS_HEADS] || !a->extra[LATENTS] ||
	    a->extra[LATENTS] > 1 << 20 || !a->extra[D_LATENTS] || a->extra[D_LATENTS] > 1 << 20 ||
	    !a->d_model || a->d_model > 1 << 20 || a->extra[QK] > 1 << 20 ||
	    a->extra[V] > 1 << 20 || !a->extra[CROSS_WIDE] || a->extra[CROSS_WIDE] > 1024 ||
	    !a->extra[SELF_WIDE] || a->extra[SELF_WIDE] > 1024 || !a->max_positions ||
	    a->max_positions > 1 << 20 || !a->image_size || a->image_size > 4096 || !a->vocab ||
	    !a->extra[BLOCKS])
		oom_read_fail(r, "a size is out of range (model type %s)", r->family);
}

/* One layer: widths of queries, keys and values; what it attends to (absent: itself). */
struct layer {
	const struct oom_arch *a;
	uint64_t q_dim, qk, v, heads, wide;
	uint16_t mq, mk, sk;
	bool residual;
	struct oom_val inputs, mask;    /* kept */
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const bool cross = !oom_is_none(l->inputs);
	const struct oom_val bias[2] = {l->mask, oom_none()};
	struct oom_attn at = oom_attn_of(t, l->a);
	struct oom_val normed = oom_op_layer_norm(t, "layernorm1", oom_keep(x), 0, true, true),
		       from, q, k, v;

	from = cross ? oom_op_layer_norm(t, "layernorm2", oom_keep(l->inputs), 0, true, true) :
		       oom_share(t, normed);
	at.causal = false;
	at.heads = at.kv_heads = l->heads;
	at.d = l->qk / l->heads;
	at.dv = l->v / l->heads;
	at.mq = l->mq;
	at.mk = l->mk;
	at.sk = l->sk;
	at.dropout = l->a->attn_dropout;
	q = oom_project_heads(t, "query", oom_keep(normed), l->qk, true, l->heads);
	k = oom_project_heads(t, "key", oom_keep(from), l->qk, true, l->heads);
	v = oom_project_heads(t, "value", oom_keep(from), l->v, true, l->heads);
	q = oom_written_attention(t, &at, q, k, v, bias, NULL);
	oom_drop(t, normed);
	oom_drop(t, from);
	q = oom_op_linear(t, "dense", q, (struct oom_dim){cross ? l->q_dim : l->v, "channels"},
			  OOM_BIAS);
	if (l->residual)
		q = oom_op_add(t, q, oom_keep(x));
	oom_done(t, x);
	return q;
}

static struct oom_val run_layer(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	struct oom_val y, z;

	y = attention(t, l, x);
	z = oom_op_layer_norm(t, "layernorm", oom_keep(y), 0, true, true);
	z = oom_plain_mlp(t, z, "dense1", "dense2", l->a->act,
			  (struct oom_dim){l->wide * l->q_dim, "widened"}, true);
	return oom_op_add(t, z, y);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	(void)i;
	return run_layer(t, ctx, x);
}

/* A learned array, [n, d], seen by every sample. */
static struct oom_val learned(struct oom_tape *t, const char *name, uint64_t n, uint64_t d)
{
	struct oom_val x = oom_param(t, name, n, d, 0);

	x.mono = oom_length_of(t, n);
	x.width = d;
	x = oom_op_expand(t, x, oom_tokens_of(t, n), (struct oom_dim){d, NULL});
	x.perm = false;
	return x;
}

/* The input with its positions; *m and *s say how many rows in all and in a sample. */
static struct oom_val text_input(struct oom_tape *t, const struct oom_arch *a, struct oom_val *held,
				 struct oom_val *embed)
{
	const struct oom_dim d = D(a->d_model);
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), pos, x;

	t->scope = "embeddings";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, d);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_new(t, "positions", t->m_s, D(1), OOM_I64), a->max_positions, d,
			       0);
	*held = oom_share(t, x);                /* embeddings_without_pos, returned beside */
	return oom_op_add(t, x, pos);
}

static struct oom_val image_input(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val *held, uint64_t *n)
{
	const struct oom_dim c = {PIXEL_CHANNELS, "256"};
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size : a->image_size;
	struct oom_map m = {.c = 3, .h = side, .w = side};
	struct oom_val pos, x;

	m.x = oom_input(t, "pixel_values", t->m_b, 3 * side * side, OOM_F32);
	m.x.dt = t->plan->precision == OOM_FP16 ? OOM_DT_F16 :
		 t->plan->precision == OOM_BF16 || t->plan->precision == OOM_BF16_AMP ?
						  OOM_DT_BF16 :
						  OOM_F32;
	m = oom_conv2d(t, "convnet_1x1", m,
		       &(struct oom_conv){.out = PIXEL_CHANNELS, .kernel = 1, .bias = true});
	if (t->status)
		return m.x;
	*n = side * side;
	x = oom_map_tokens(t, m);
	*held = oom_share(t, x);
	pos = learned(t, "position_embeddings", *n, PIXEL_CHANNELS);
	/* a batch of one row cannot be folded without a copy */
	pos = oom_op_expand_copy(t, pos, oom_tokens_of(t, *n), c);
	pos = oom_op_linear(t, "positions_projection", pos, c, OOM_BIAS);
	return oom_op_cat(t, x, pos, (struct oom_dim){2 * PIXEL_CHANNELS, "512"});
}

static struct oom_val encode(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			     uint16_t mk, uint16_t sk, uint64_t kv_dim)
{
	const uint64_t d = a->extra[D_LATENTS], n = a->extra[LATENTS];
	const uint64_t qk = a->extra[QK] ? a->extra[QK] : a->extra[SHAPE_Q] ? d : kv_dim;
	struct layer l = {.a = a,
			  .q_dim = d,
			  .qk = qk,
			  .v = a->extra[V] ? a->extra[V] : qk,
			  .heads = a->extra[CROSS_HEADS],
			  .wide = a->extra[CROSS_WIDE],
			  .mq = oom_tokens_of(t, n),
			  .mk = mk,
			  .sk = sk,
			  .inputs = oom_keep(x),
			  .residual = a->extra[RESIDUAL]};
	struct oom_val z = learned(t, "latents", n, d), first = oom_share(t, z);

	l.mask = oom_new(t, "extended attention mask", mk, D(1), (enum oom_dtype)x.dt);
	z = run_layer(t, &l, z);
	oom_drop(t, l.mask);
	l = (struct layer){.a = a,
			   .q_dim = d,
			   .qk = a->extra[QK] ? a->extra[QK] : d,
			   .heads = a->n_heads,
			   .wide = a->extra[SELF_WIDE],
			   .mq = oom_tokens_of(t, n),
			   .mk = oom_tokens_of(t, n),
			   .sk = oom_length_of(t, n),
			   .residual = true,
			   .inputs = oom_none(),
			   .mask = oom_none()};
	l.v = a->extra[V] ? a->extra[V] : l.qk;
	if (a->extra[BLOCKS] > 1)
		t->warning = "num_blocks above 1: activations are approximated as those of one "
			     "block";
	if (t->plan->num_layers)
		t->warning = "Perceiver's depth is num_blocks and num_self_attends_per_block: the "
			     "number of layers asked for is not applied";
	z = oom_layers(t, (uint32_t)a->n_layers, NULL, block, &l, z);
	oom_drop(t, first);
	return z;
}

/* The decoder's queries attend to the latents. */
static struct oom_val decode(struct oom_tape *t, const struct oom_arch *a, struct oom_val z,
			     bool lm)
{
	const uint64_t d = a->extra[D_LATENTS], n = lm ? a->max_positions : 1,
		       q_dim = lm ? a->d_model : d;
	const uint64_t qk = lm ? LM_QK : a->extra[SHAPE_Q] ? q_dim : d;
	const struct layer l = {.a = a,
				.q_dim = q_dim,
				.qk = qk,
				.v = lm ? a->d_model : qk,
				.heads = lm ? LM_HEADS : 1,
				.wide = 1,
				.mq = oom_tokens_of(t, n),
				.mk = oom_tokens_of(t, a->extra[LATENTS]),
				.sk = oom_length_of(t, a->extra[LATENTS]),
				.residual = !lm,
				.inputs = oom_keep(z),
				.mask = oom_none()};
	struct oom_val q = learned(t, "output_position_encodings", n, q_dim), x;

	x = run_layer(t, &l, oom_keep(q));
	oom_drop(t, q);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool lm = t->task == OOM_TASK_MASKED_LM, image = t->task == OOM_TASK_IMAGE_CLS;
	struct oom_val held = oom_none(), embed = oom_none(), x, z, y;
	uint64_t n = 0;

	oom_no_checkpointing(t);
	x = image ? image_input(t, a, &held, &n) : text_input(t, a, &held, &embed);
	if (t->status)
		return x;
	z = image ? encode(t, a, x, oom_tokens_of(t, n), oom_length_of(t, n), 2 * PIXEL_CHANNELS)
		  : encode(t, a, x, t->m_bs, t->m_s, a->d_model);
	y = decode(t, a, z, lm);
	oom_drop(t, held);
	oom_drop(t, x);
	/* the inputs' embedding again, and a bias added to its product */
	if (lm) {
		const uint16_t m = oom_tokens_of(t, a->max_positions);

		t->vocab = a->vocab;
		t->warning = "Perceiver's language model predicts max_position_embeddings tokens, "
			     "whatever the sequence length";
		y = oom_op_matmul_param(t, "embedding_decoder", y, embed, oom_none(),
					(struct oom_dim){a->vocab, "vocab_size"});
		y = oom_op_add(t, y, oom_param(t, "bias", 0, a->vocab, 0));
		y = oom_plain_lm_loss(t, y, false, m);
		oom_drop(t, z);
		return y;
	}
	y = oom_op_view(t, y, t->m_b, (struct oom_dim){a->extra[D_LATENTS], "d_latents"});
	return oom_image_head(t, a, y, z);
}

const struct oom_family oom_family_perceiver = {
	.name = "perceiver",
	.summary = "latents that attend to the input, then to themselves",
	.source = "transformers 5.12 models/perceiver/modeling_perceiver.py",
	.types = OOM_TYPE("perceiver"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
