/* Pegasus-X: a decoder of the BART line above an encoder whose tokens see their block and a few
 * global tokens.
 *
 * Local and global tokens pass through the same projections; every other layer shifts the blocks by
 * half of one.  The global tokens' way from layer to layer is not followed: each layer starts from
 * the embedded ones. Reference: transformers 5.12, models/pegasus_x/modeling_pegasus_x.py. */
#include "blocks/encdec.h"
#include "config/keys.h"

struct pegasus_x {
	uint64_t block, globals;
	bool stagger;
};
OOM_OWN(pegasus_x, struct pegasus_x);

static const struct oom_key_row pegasus_x_keys[] = {
	OOM_ENCDEC_KEYS, MUST_OWN(struct pegasus_x, block, "block_size"),
	MUST_OWN(struct pegasus_x, globals, "num_global_tokens"),
	FLAG_OWN(struct pegasus_x, stagger, "stagger_local_blocks", true),
	OR(max_positions, "max_position_embeddings", 16384),
	ACT(act, "activation_function", "gelu"), OOM_ENCDEC_DROPOUT_KEYS(0.1),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void pegasus_x_parse(struct oom_arch *a)
{
	const struct pegasus_x *own = pegasus_x_of(a);

	if (own->block < 2 || own->block > 1 << 20 || own->globals > 1 << 20)
		oom_read_fail(&a->rd, "block_size must be from 2, num_global_tokens from 1 to 2^20");
	for (uint32_t i = 1; own->stagger && i < OOM_MAX_LAYERS; i += 2)
		a->kind[i] = 1;
}

struct encoder {
	const struct oom_arch *a;
	struct oom_val mask, globals;
	uint16_t m_tokens, m_shifted, m_globals;
};

/* Global tokens attend to everything. */
static struct oom_val global_attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				       const struct oom_val local[3],
				       const struct oom_val global[3])
{
	const struct oom_arch *a = s->a;
	const struct oom_dim d = {a->d_model, "d_model"},
			     scores = {pegasus_x_of(a)->globals * a->n_heads,
				       "num_global_tokens * n_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val k, v, w, p;

	/* the joined keys count as the local ones: a few rows more */
	k = oom_name(&f, oom_op_cat_into(t, global[1], local[1], m, d));
	v = oom_name(&f, oom_op_cat_into(t, global[2], local[2], m, d));
	w = oom_op_bmm(t, "global scores", global[0], k, m, scores, a->head_dim);
	w = oom_name(&f, oom_op_softmax(t, oom_op_add(t, w, s->mask), false));
	p = oom_name(&f, oom_op_dropout(t, w, a->attn_dropout));
	return oom_leave(&f, oom_op_bmm(t, "global attention", p, v, s->m_globals, d,
					oom_mono_now(t, m)));
}

/* Local tokens attend to the global ones and to their block. */
static struct oom_val local_attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				      const struct oom_val local[3], const struct oom_val global[3])
{
	const struct oom_arch *a = s->a;
	const uint64_t g = pegasus_x_of(a)->globals, b = pegasus_x_of(a)->block;
	const struct oom_dim d = {a->d_model, "d_model"},
			     near = {b * a->n_heads, "block_size * n_heads"},
			     far = {g * a->n_heads, "num_global_tokens * n_heads"},
			     both = {far.n + near.n, "(global + block) * n_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val to_g, to_l, w, p, parts[2], y, z;

	to_g = oom_op_bmm(t, "local to global", local[0], global[1], m, far, a->head_dim);
	to_g = oom_name(&f, to_g);
	to_l = oom_op_bmm(t, "local to local", local[0], local[1], m, near, a->head_dim);
	to_l = oom_name(&f, to_l);
	w = oom_op_add(t, oom_op_cat_into(t, to_g, to_l, m, both), s->mask);
	p = oom_op_dropout(t, oom_op_softmax(t, w, false), a->attn_dropout);
	p = oom_name(&f, p);
	parts[0] = oom_name(&f, oom_op_slice(t, p, m, far));
	parts[1] = oom_name(&f, oom_op_slice(t, p, m, near));
	y = oom_name(&f, oom_op_bmm(t, "global values", parts[0], global[2], m, d, g));
	z = oom_name(&f, oom_op_bmm(t, "local values", parts[1], local[2], m, d, b));
	return oom_leave(&f, oom_op_add(t, y, z));
}

/* The projections of x as heads, names of f's. */
static void project(struct oom_frame *f, const struct oom_linear *l, struct oom_val x,
		    struct oom_val y[3])
{
	struct oom_tape *t = f->t;

	for (int i = 0; i < 3; i++) {
		y[i] = oom_linear_run(t, &l[i], x);
		y[i] = oom_op_heads(t, i ? y[i] : oom_op_unary(t, OOM_SCALE, y[i]));
		y[i] = oom_name(f, oom_op_copy(t, "contiguous", y[i]));
	}
}

/* Both; the global result goes into *global. */
static struct oom_val attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				struct oom_val x, struct oom_val *global)
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
	const struct oom_dim d = {s->a->d_model, "d_model"};
	struct oom_frame f = {.t = t};
	struct oom_linear l[4];
	struct oom_val q[3], g[3], y;

	for (int i = 0; i < 4; i++)
		if (!oom_linear_open(t, &l[i], names[i], d.n, d, 0))
			return x;
	x = oom_arg(&f, x);
	*global = oom_arg(&f, *global);
	project(&f, l, x, q);
	project(&f, l, *global, g);
	oom_forget(&f, *global);
	*global = global_attention(t, s, m, q, g);
	y = local_attention(t, s, m, q, g);
	*global = oom_linear_run(t, &l[3], oom_op_copy(t, "contiguous", *global));
	y = oom_linear_run(t, &l[3], oom_op_copy(t, "contiguous", y));
	return oom_leave(&f, y);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				   struct oom_val n, const struct oom_linear *up,
				   const struct oom_linear *down)
{
	n = oom_activation(t, a->act, oom_linear_run(t, up, n));
	n = oom_linear_run(t, down, oom_op_dropout(t, n, a->act_dropout));
	return oom_op_add(t, x, oom_op_dropout(t, n, a->dropout));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct encoder *s = ctx;
	const struct oom_arch *a = s->a;
	const bool shifted = i < OOM_MAX_LAYERS && a->kind[i];
	const struct oom_dim d = {a->d_model, "d_model"}, ff = {a->d_ff, "encoder_ffn_dim"};
	struct oom_frame f = {.t = t};
	struct oom_linear up, down;
	struct oom_val h, g, n;

	h = oom_op_layer_norm(t, "self_attn_layer_norm", x, 0, true, true);
	g = oom_op_layer_norm(t, "global_self_attn_layer_norm", s->globals, 0, true, true);
	if (shifted)
		h = oom_op_expand_copy(t, h, s->m_shifted, d);
	h = attention(t, s, shifted ? s->m_shifted : s->m_tokens, h, &g);
	if (shifted)
		h = oom_op_slice(t, h, s->m_tokens, d);
	x = oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
	g = oom_name(&f, oom_op_add(t, s->globals, oom_op_dropout(t, g, a->dropout)));
	h = oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
	n = oom_op_layer_norm(t, "final_layer_norm", g, 0, false, false);
	if (!oom_linear_open(t, &up, "fc1", d.n, ff, OOM_BIAS) ||
	    !oom_linear_open(t, &down, "fc2", ff.n, d, OOM_BIAS))
		return x;
	x = feed_forward(t, a, oom_take(&f, x), h, &up, &down);
	oom_name(&f, feed_forward(t, a, oom_take(&f, g), n, &up, &down));
	return oom_leave(&f, x);
}

/* Embedded tokens and what is added to them: sin and cos computed anew, [s, d], no gradient.  Both
 * are names of f's. */
static struct oom_val embedded(struct oom_frame *f, const struct oom_arch *a, struct oom_val embed,
			       struct oom_val ids, uint16_t m_len, uint16_t m_ones)
{
	struct oom_tape *t = f->t;
	struct oom_val x, pe;

	x = oom_op_unary(t, OOM_SCALE,
			 oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = oom_name(f, oom_input_grads(t, x));
	if (m_ones)
		oom_name(f, oom_new(t, "ones", m_ones, D(1), OOM_F32));
	pe = oom_name(f, oom_new(t, "positions", m_len, D(a->d_model), (enum oom_dtype)x.dt));
	oom_scratch(t, "angles", m_len, a->d_model / 2, (enum oom_dtype)x.dt);
	return oom_op_dropout(t, oom_op_add(t, x, pe), a->dropout);
}

static struct oom_val run_encoder(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val embed)
{
	const struct pegasus_x *own = pegasus_x_of(a);
	const uint16_t m_tokens = oom_len_round_up(t, t->m_b, own->block);
	const bool padded = oom_cond_more(t, m_tokens, 1, t->m_bs, 1);
	struct encoder s = {.a = a, .m_tokens = m_tokens,
			    .m_shifted = oom_len_plus(t, t->m_b, own->block),
			    .m_globals = oom_len_const(t, t->m_b, own->globals)};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	x = embedded(&f, a, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), t->m_s, 0);
	s.mask = oom_new(t, "attention mask", m_tokens, D(1), (enum oom_dtype)embed.dt);
	s.mask = oom_name_shared(&f, s.mask);
	if (padded)
		x = oom_op_expand_copy(t, x, m_tokens, D(a->d_model));
	s.globals = oom_new(t, "global ids", s.m_globals, D(1), OOM_I64);
	s.globals = oom_op_embedding(t, "embed_global", s.globals, own->globals, D(a->d_model), 0);
	s.globals = oom_name_shared(&f, s.globals);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->enc_layers), a->kind, block, &s, x);
	if (padded)
		x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val run_decoder(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				  struct oom_val ids)
{
	struct oom_frame f = {.t = t};
	struct oom_val x;

	oom_encdec_masks(&f, s, (enum oom_dtype)embed.dt);
	x = oom_encdec_layers(t, s, embedded(&f, s->a, embed, ids, s->m_len, s->m_tokens));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
}

static struct oom_val pegasus_x_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_encdec_kind kind = {
		.kernel = OOM_ED_MATMUL, .pre_norm = true, .no_bias = true};
	struct oom_encdec dec = oom_decoder_stack(t, a, &kind, oom_len_targets(t));
	struct oom_encdec_tables e;
	struct oom_frame f = {.t = t};
	struct oom_val x, ids;

	if (!oom_seq2seq_only(t, a))
		return oom_none();
	oom_tape_warn(t, "Pegasus-X: the global tokens' way from layer to layer is approximated");
	e = oom_encdec_tables(t, a, NULL, true);
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	dec.encoded = oom_name_shared(&f, run_encoder(t, a, e.encoder));
	x = oom_name(&f, run_decoder(t, &dec, e.decoder, ids));
	x = oom_seq2seq_tail(t, a, x, e.shared, "lm_head", dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_pegasus_x = {
	.name = "pegasus_x",
	.summary = "encoder-decoder for long inputs: blocks and global tokens",
	.source = "transformers 5.12 models/pegasus_x/modeling_pegasus_x.py",
	.types = OOM_TYPE("pegasus_x"),
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = pegasus_x_keys,
	.parse = pegasus_x_parse,
	.step = pegasus_x_step,
};
