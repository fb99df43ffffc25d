/* LongT5's encoder: blocks of local_radius + 1 tokens attend to themselves and their neighbours, and where
 * encoder_attention_type says so to transient global tokens, the sums of every global_block_size tokens.
 * Reference: transformers 5.12, models/longt5/modeling_longt5.py. */
#include "blocks/image.h"
#include "t5.h"

/* Global tokens of a sequence: floor(s / global_block_size), taken as rounded up. */
static uint16_t global_tokens(struct oom_tape *t, const struct t5_stack *s, uint16_t m)
{
	return oom_len_ceil(t, m, t5_of(s->a)->global_block);
}

/* The keys of a block: three blocks, and the global tokens. */
static uint16_t keys_of(struct oom_tape *t, const struct t5_stack *s, uint16_t m)
{
	return oom_len_chunks(t, m, t5_of(s->a)->global_block, (int32_t)(3 * t5_of(s->a)->block));
}

/* where(mask > 0, 0, -1e10) over the blocks of the encoder's mask, of which only transient global attention's layers
 * (global) each make their own (_get_local_attention_mask). */
static struct oom_val local_mask(struct oom_tape *t, uint16_t m_padded, struct oom_dim three, bool global)
{
	struct oom_frame f = {.t = t};

	if (global)
		oom_name(&f, oom_new(t, "local mask", m_padded, three, OOM_U8));
	return oom_leave(&f, oom_new(t, "additive mask", m_padded, three, OOM_F32));
}

/* Of relative positions: made in the first layer, whose checkpoint keeps none. */
static struct oom_val buckets(struct oom_tape *t, const char *name, uint16_t mono, uint64_t n)
{
	if (t->plan->grad_ckpt == OOM_CKPT_NONE || !t->grad || !t->train)
		return oom_new(t, name, mono, (struct oom_dim){n, NULL}, OOM_I64);
	oom_scratch(t, name, mono, n, OOM_I64);
	return oom_input(t, name, mono, n, OOM_I64);
}

/* compute_side_bias: of every token to every global one, split into blocks, in the scores' type. */
static struct oom_val side_bias(struct oom_tape *t, const struct t5_stack *s, uint16_t m_padded, enum oom_dtype dt)
{
	const struct oom_dim heads = {s->a->n_heads, "num_heads"};
	const uint16_t m_side = global_tokens(t, s, t->m_bs);
	struct oom_frame f = {.t = t};
	struct oom_val mask, ids, b;

	mask = oom_name(&f, oom_new(t, "side mask", m_side, D(1), OOM_F32));
	ids = oom_name(&f, buckets(t, "side buckets", m_side, 1));
	b = oom_op_embedding(t, "global_relative_attention_bias", ids, t5_of(s->a)->buckets, heads, 0);
	b = oom_op_add_into(t, b, mask, m_side, heads);
	if (oom_cond_more(t, m_padded, 1, s->m_tokens, 1))
		b = oom_op_expand_copy(t, b, global_tokens(t, s, m_padded), heads);
	return oom_leave(&f, oom_op_cast(t, b, dt));
}

struct oom_val t5_block_bias(struct oom_frame *f, struct t5_stack *s, enum oom_dtype dt)
{
	const uint64_t block = t5_of(s->a)->block, h = s->a->n_heads;
	const struct oom_dim three = {3 * block, "3 * block_len"}, wide = {three.n * h, "3 * block_len * num_heads"};
	struct oom_tape *t = f->t;
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	const bool global = t5_of(s->a)->global;
	struct oom_val mask, b, side;

	/* the encoder's own, given to all layers; the first one makes an additive mask of it */
	if (!global)
		s->mask = oom_name_shared(f, oom_new(t, "local mask", m_padded, three, OOM_U8));
	b = buckets(t, "relative buckets", OOM_MONO_ONE, 3 * block * block);
	b = oom_op_embedding(t, "relative_attention_bias", b, t5_of(s->a)->buckets,
			     (struct oom_dim){h, "num_heads"}, 0);
	mask = oom_new(t, "additive mask", m_padded, three, OOM_F32);
	b = oom_op_add_into(t, oom_op_cast(t, b, OOM_F32), mask, m_padded, wide);
	if (!global)
		return b;
	b = oom_op_cast(t, b, dt);
	side = side_bias(t, s, m_padded, dt);
	b = oom_op_cat_into(t, b, side, keys_of(t, s, m_padded), (struct oom_dim){h, "num_heads"});
	return b;
}

/* A block, the one before and the one after: padded by a block at both ends, three slices
 * joined. */
static struct oom_val three_blocks(struct oom_tape *t, struct oom_val x, uint16_t m_padded,
				   uint64_t block)
{
	const struct oom_dim one = {x.width, x.text}, three = {3 * x.width, "3 * num_heads * d_kv"};
	struct oom_frame f = {.t = t};
	struct oom_val part[3];

	x = oom_name(&f, oom_op_expand_copy(t, x, oom_len_plus(t, t->m_b, 2 * block), one));
	for (int i = 0; i < 3; i++)
		part[i] = oom_op_slice(t, x, m_padded, one);
	oom_forget(&f, x);
	return oom_cat3(t, part[0], part[1], part[2], m_padded, three);
}

/* A projection of the tokens and, with the same weight, of the global ones (none: of the tokens alone). */
static struct oom_val t5_twice(struct oom_tape *t, const char *name, struct oom_val x, struct oom_val beside,
			       struct oom_dim width, struct oom_val *side)
{
	const size_t first = t->cursor;
	size_t here;

	x = oom_op_linear(t, name, x, width, 0);
	*side = oom_none();
	if (oom_is_none(beside))
		return x;
	here = t->cursor;
	t->cursor = first;                      /* the same layer again */
	*side = oom_op_linear(t, name, beside, width, 0);
	t->cursor = here;
	return x;
}

/* _create_global_aggregates and their norm; the ids of blocks and segments are names of f's. */
static struct oom_val global_inputs(struct oom_frame *f, const struct t5_stack *s, struct oom_val x)
{
	struct oom_tape *t = f->t;
	const uint16_t m_global = global_tokens(t, s, t->m_b), m_hot = global_tokens(t, s, t->m_bs);
	const struct oom_dim d = D(s->a->d_model);
	struct oom_frame g = {.t = t};
	struct oom_val hot, y;

	oom_name(f, oom_new(t, "block_ids", t->m_bs, D(1), OOM_I32));
	oom_name(f, oom_new(t, "global_segment_ids", m_global, D(1), OOM_I32));
	oom_name(&g, oom_new(t, "one_hot_block_ids", m_hot, D(1), OOM_I64));
	hot = oom_new(t, "one_hot_block_ids", m_hot, D(1), (enum oom_dtype)x.dt);
	y = oom_op_bmm(t, "global aggregates", x, hot, m_global, d, oom_mono_now(t, t->m_s));
	y = oom_name(f, oom_leave(&g, y));
	return oom_rename(f, y, t5_norm(t, "global_input_layer_norm", y));
}

/* Keys or values of a block: its own three, and those of the global tokens copied beside them. */
static struct oom_val with_global(struct oom_frame *f, const struct t5_stack *s, struct oom_val x, struct oom_val side)
{
	struct oom_tape *t = f->t;
	const uint16_t m_blocks = oom_len_ceil(t, t->m_b, t5_of(s->a)->block);
	const struct oom_dim inner = {side.width, side.text};

	side = oom_name(f, oom_op_expand_copy(t, side, global_tokens(t, s, m_blocks), inner));
	return oom_op_cat_into(t, x, side, keys_of(t, s, m_blocks), inner);
}

struct oom_val t5_block_attention(struct oom_tape *t, const struct t5_stack *s, uint32_t layer, struct oom_val x)
{
	static const char *const names[] = {"q", "k", "v"};
	const struct oom_arch *a = s->a;
	const uint64_t block = t5_of(a)->block;
	const bool global = t5_of(a)->global;
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * d_kv"},
			     near = {(global ? 1 : 3 * block) * a->n_heads, "3 * block_len * num_heads"};
	const bool pad = oom_cond_more(t, m_padded, 1, s->m_tokens, 1);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], side[3], w, y, aggregates = oom_none();
	enum oom_dtype dt;

	if (global)
		aggregates = global_inputs(&f, s, x);
	for (int i = 0; i < 3; i++)
		p[i] = t5_twice(t, names[i], x, i ? aggregates : oom_none(), inner, &side[i]);
	for (int i = 0; i < 3; i++) {
		if (pad)
			p[i] = oom_op_expand_copy(t, p[i], m_padded, inner);
		if (i)
			p[i] = three_blocks(t, p[i], m_padded, block);
		if (i && global)
			p[i] = with_global(&f, s, p[i], oom_name(&f, side[i]));
		p[i] = oom_name(&f, oom_op_heads(t, p[i]));
	}
	w = oom_op_bmm(t, "scores", p[0], p[1], global ? keys_of(t, s, m_padded) : m_padded, near, a->head_dim);
	dt = (enum oom_dtype)w.dt;
	if (global || !layer)
		oom_name(&f, local_mask(t, m_padded, (struct oom_dim){3 * block, "3 * block_len"}, global));
	w = oom_name(&f, oom_op_add_inplace(t, w, s->bias));
	y = oom_op_softmax(t, oom_op_cast(t, w, OOM_F32), true);
	y = oom_op_dropout(t, oom_op_cast(t, y, dt), a->dropout);
	y = oom_op_bmm(t, "attention", y, p[2], m_padded, inner, 3 * block);
	y = oom_op_copy(t, "contiguous", y);
	if (pad) {
		y = oom_op_slice(t, y, s->m_tokens, inner);
		/* the product folds batch and tokens, which of a slice takes a copy; so does a cast, which is one */
		if (oom_cond_above(t, t->m_b, 1) && !(t->amp && y.dt == OOM_F32))
			y = oom_op_copy(t, "clone", y);
	}
	return oom_leave(&f, oom_op_linear(t, "o", y, D(a->d_model), 0));
}
