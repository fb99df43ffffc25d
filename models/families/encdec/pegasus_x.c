/* Pegasus-X: a decoder of the BART line above an encoder whose tokens see their block and a few
 * global tokens.
 *
 * Local and global tokens pass through the same projections; every other layer shifts the blocks by
 * half of one.  The global tokens' way from layer to layer is not followed: each layer starts from
 * the embedded ones. Reference: transformers 5.12, models/pegasus_x/modeling_pegasus_x.py. */
#include "blocks/encdec.h"

/* extra[] */
enum { BLOCK = ENCDEC_EXTRA, GLOBALS, STAGGER };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	oom_encdec_sizes(a);
	a->extra[BLOCK] = oom_read_count(r, "block_size", 2);
	a->extra[GLOBALS] = oom_read_count(r, "num_global_tokens", 1);
	a->extra[STAGGER] = oom_read_bool(r, "stagger_local_blocks", true);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 16384);
	a->act = oom_read_act(r, "activation_function", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->extra[BLOCK] > 1 << 20 || a->extra[GLOBALS] > 1 << 20)
		oom_read_fail(r, "block_size or num_global_tokens is more than 2^20");
}

struct encoder {
	const struct oom_arch *a;
	struct oom_val mask, globals;
	uint16_t m_tokens, m_shifted, m_globals;
};

static struct oom_val heads_of(struct oom_tape *t, struct oom_val x)
{
	return oom_op_copy(t, "contiguous", oom_op_heads(t, x));
}

/* Global tokens attend to everything. */
static struct oom_val global_attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				       const struct oom_val local[3],
				       const struct oom_val global[3])
{
	const struct oom_arch *a = s->a;
	const uint64_t g = a->extra[GLOBALS], heads = a->extra[ENC_HEADS];
	const struct oom_dim d = {a->d_model, "d_model"},
			     scores = {g * heads, "num_global_tokens * n_heads"};
	struct oom_val k, v, w, p, y;

	/* the joined keys count as the local ones: a few rows more */
	k = oom_op_cat_into(t, oom_keep(global[1]), oom_keep(local[1]), m, d);
	v = oom_op_cat_into(t, oom_keep(global[2]), oom_keep(local[2]), m, d);
	w = oom_op_bmm(t, "global scores", oom_keep(global[0]), oom_keep(k), m, scores,
		       a->d_model / heads);
	w = oom_op_add(t, w, oom_keep(s->mask));
	w = oom_op_softmax(t, w, false);
	p = oom_op_dropout(t, oom_keep(w), a->attn_dropout);
	y = oom_op_bmm(t, "global attention", oom_keep(p), oom_keep(v), s->m_globals, d,
		       oom_mono_now(t, m));
	oom_drop(t, w);
	oom_drop(t, p);
	oom_drop(t, k);
	oom_drop(t, v);
	return y;
}

/* Local tokens attend to the global ones and to their block. */
static struct oom_val local_attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				      const struct oom_val local[3], const struct oom_val global[3])
{
	const struct oom_arch *a = s->a;
	const uint64_t g = a->extra[GLOBALS], b = a->extra[BLOCK], heads = a->extra[ENC_HEADS],
		       d_head = a->d_model / heads;
	const struct oom_dim d = {a->d_model, "d_model"},
			     near = {b * heads, "block_size * n_heads"},
			     far = {g * heads, "num_global_tokens * n_heads"};
	struct oom_val to_g, to_l, w, p, parts[2], y, z;
	const struct oom_dim split[2] = {far, near};

	to_g = oom_op_bmm(t, "local to global", oom_keep(local[0]), oom_keep(global[1]), m, far,
			  d_head);
	to_l = oom_op_bmm(t, "local to local", oom_keep(local[0]), oom_keep(local[1]), m, near,
			  d_head);
	w = oom_op_cat_into(t, oom_keep(to_g), oom_keep(to_l), m,
			    (struct oom_dim){far.n + near.n, "(global + block) * n_heads"});
	w = oom_op_add(t, w, oom_keep(s->mask));
	w = oom_op_softmax(t, w, false);
	p = oom_op_dropout(t, w, a->attn_dropout);
	for (int i = 0; i < 2; i++)
		parts[i] = oom_op_slice(t, oom_keep(p), m, split[i]);
	y = oom_op_bmm(t, "global values", oom_keep(parts[0]), oom_keep(global[2]), m, d, g);
	z = oom_op_bmm(t, "local values", oom_keep(parts[1]), oom_keep(local[2]), m, d, b);
	w = oom_op_add(t, oom_keep(y), oom_keep(z));
	oom_drop(t, y);
	oom_drop(t, z);
	oom_drop(t, parts[0]);
	oom_drop(t, parts[1]);
	oom_drop(t, p);
	oom_drop(t, to_g);
	oom_drop(t, to_l);
	return w;
}

/* Both; the global result goes into *global. */
static struct oom_val attention(struct oom_tape *t, const struct encoder *s, uint16_t m,
				struct oom_val x, struct oom_val *global)
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
	const struct oom_dim d = {s->a->d_model, "d_model"};
	struct oom_linear l[3], o;
	struct oom_val q[3], g[3], y;

	for (int i = 0; i < 3; i++)
		if (!oom_linear_open(t, &l[i], names[i], d.n, d, 0))
			return x;
	if (!oom_linear_open(t, &o, "out_proj", d.n, d, 0))
		return x;
	for (int i = 0; i < 3; i++) {
		q[i] = oom_linear_run(t, &l[i], oom_keep(x));
		q[i] = heads_of(t, i ? q[i] : oom_op_unary(t, OOM_SCALE, q[i]));
	}
	for (int i = 0; i < 3; i++) {
		g[i] = oom_linear_run(t, &l[i], oom_keep(*global));
		g[i] = heads_of(t, i ? g[i] : oom_op_unary(t, OOM_SCALE, g[i]));
	}
	oom_done(t, *global);
	*global = global_attention(t, s, m, q, g);
	y = local_attention(t, s, m, q, g);
	*global = oom_linear_run(t, &o, oom_op_copy(t, "contiguous", *global));
	y = oom_linear_run(t, &o, oom_op_copy(t, "contiguous", y));
	for (int i = 0; i < 3; i++) {
		oom_drop(t, q[i]);
		oom_drop(t, g[i]);
	}
	oom_done(t, x);
	return y;
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
	const bool shifted = a->extra[STAGGER] && i % 2 == 1;
	const struct oom_dim d = {a->d_model, "d_model"},
			     ff = {a->extra[ENC_FF], "encoder_ffn_dim"};
	struct oom_linear up, down;
	struct oom_val h, g, n;

	h = oom_op_layer_norm(t, "self_attn_layer_norm", oom_keep(x), 0, true, true);
	g = oom_op_layer_norm(t, "global_self_attn_layer_norm", oom_keep(s->globals), 0, true,
			      true);
	if (shifted)
		h = oom_op_expand_copy(t, h, s->m_shifted, d);
	h = attention(t, s, shifted ? s->m_shifted : s->m_tokens, h, &g);
	if (shifted)
		h = oom_op_slice(t, h, s->m_tokens, d);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	g = oom_op_add(t, oom_keep(s->globals), oom_op_dropout(t, g, a->dropout));
	h = oom_op_layer_norm(t, "final_layer_norm", oom_keep(x), 0, true, true);
	n = oom_op_layer_norm(t, "final_layer_norm", oom_keep(g), 0, false, false);
	if (!oom_linear_open(t, &up, "fc1", d.n, ff, OOM_BIAS) ||
	    !oom_linear_open(t, &down, "fc2", ff.n, d, OOM_BIAS))
		return x;
	x = feed_forward(t, a, x, h, &up, &down);
	oom_drop(t, feed_forward(t, a, g, n, &up, &down));
	return x;
}

/* sin and cos computed anew: [s, d], no gradient. */
static struct oom_val positions(struct oom_tape *t, const struct oom_arch *a, uint16_t m_len,
				enum oom_dtype dt)
{
	struct oom_val pe = oom_new(t, "positions", m_len, D(a->d_model), dt);

	oom_scratch(t, "angles", m_len, a->d_model / 2, dt);
	return pe;
}

static struct oom_val run_encoder(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val embed)
{
	const uint64_t block_size = a->extra[BLOCK];
	const uint16_t m_tokens = oom_len_round_up(t, t->m_b, block_size);
	struct encoder s = {.a = a,
			    .m_tokens = m_tokens,
			    .m_shifted = oom_len_plus(t, t->m_b, block_size),
			    .m_globals = oom_len_const(t, t->m_b, a->extra[GLOBALS])};
	uint8_t kind[OOM_MAX_LAYERS];
	struct oom_val x, first, pe;

	for (uint32_t i = 0; i < OOM_MAX_LAYERS; i++)
		kind[i] = a->extra[STAGGER] && i % 2;
	x = oom_op_unary(t, OOM_SCALE,
			 oom_op_embedding_param(t, embed,
						oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
						a->vocab, D(a->d_model)));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	pe = positions(t, a, t->m_s, (enum oom_dtype)x.dt);
	x = oom_op_dropout(t, oom_op_add(t, x, oom_keep(pe)), a->dropout);
	s.mask = oom_new(t, "attention mask", m_tokens, D(1), (enum oom_dtype)embed.dt);
	if (oom_cond_more(t, m_tokens, 1, t->m_bs, 1))
		x = oom_op_expand_copy(t, x, m_tokens, D(a->d_model));
	s.globals = oom_op_embedding(t, "embed_global",
				     oom_new(t, "global ids", s.m_globals, D(1), OOM_I64),
				     a->extra[GLOBALS], D(a->d_model), 0);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->extra[ENC_LAYERS]), kind, block, &s, x);
	oom_drop_shared(t, s.globals);
	oom_drop_shared(t, s.mask);
	if (oom_cond_more(t, m_tokens, 1, t->m_bs, 1))
		x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop(t, pe);
	oom_drop(t, first);
	return x;
}

static struct oom_val run_decoder(struct oom_tape *t, struct oom_encdec *s, struct oom_val embed,
				  struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	struct oom_val x = oom_op_unary(t, OOM_SCALE,
					oom_op_embedding_param(t, embed, ids, a->vocab,
							       D(a->d_model))),
		       first, pe, ones;

	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ones = oom_new(t, "ones", s->m_tokens, D(1), OOM_F32);
	pe = positions(t, a, s->m_len, (enum oom_dtype)x.dt);
	x = oom_op_dropout(t, oom_op_add(t, x, oom_keep(pe)), a->dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->dec_layers), NULL, oom_encdec_layer, s, x);
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop(t, ones);
	oom_drop(t, pe);
	oom_drop(t, first);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->extra[DEC_FF],
				 .m_tokens = m_bt,
				 .m_len = m_t,
				 .m_src = t->m_bs,
				 .m_src_len = t->m_s,
				 .decoder = true,
				 .flags = OOM_ED_PRE_NORM | OOM_ED_NO_BIAS | OOM_ED_EAGER};
	struct oom_val embed, enc_embed, dec_embed, x, ids, hidden;

	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	t->scope = "shared";
	embed = enc_embed = dec_embed = oom_param(t, "weight", a->vocab, a->d_model,
						  OOM_P_EMBEDDING | (a->tie ? 0 : OOM_P_UNUSED));
	if (!a->tie) {
		enc_embed = oom_param(t, "encoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
		dec_embed = oom_param(t, "decoder.embed_tokens", a->vocab, a->d_model,
				      OOM_P_EMBEDDING);
	}
	t->warning = "Pegasus-X: the global tokens' way from layer to layer is approximated";
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	dec.encoded = run_encoder(t, a, enc_embed);
	dec.mask = oom_encdec_mask(t, dec.flags, true, (enum oom_dtype)embed.dt, m_t, m_t);
	dec.cross_mask = oom_encdec_mask(t, dec.flags, false, (enum oom_dtype)embed.dt, m_t,
					 t->m_s);
	x = run_decoder(t, &dec, dec_embed, oom_keep(ids));
	oom_drop_shared(t, dec.mask);
	oom_drop_shared(t, dec.cross_mask);
	hidden = oom_share(t, x);
	x = oom_plain_lm_loss(t, oom_lm_head(t, a, x, embed, "lm_head", false), false, m_bt);
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return x;
}

const struct oom_family oom_family_pegasus_x = {
	.name = "pegasus_x",
	.summary = "encoder-decoder for long inputs: blocks and global tokens",
	.source = "transformers 5.12 models/pegasus_x/modeling_pegasus_x.py",
	.types = OOM_TYPE("pegasus_x"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
