/* BigBird's attention: blocks of queries meet the blocks around them, the first and the last, and
 * a few at random; the first and last blocks meet all.
 *
 * Reference: transformers 5.12, models/big_bird/modeling_big_bird.py
 * (bigbird_block_sparse_attention, which bigbird_pegasus has too); Zaheer et al. 2020,
 * arXiv:2007.14062.  Everything that function names lives until it returns, the zeros it draws the
 * whole attention on included.
 *   e block size   r random blocks   h heads   d head_dim */
#include "image.h"
#include "sparse.h"

/* torch.cat of up to four. */
static struct oom_val join(struct oom_tape *t, const struct oom_val *x, int n, uint16_t mono,
			   uint64_t width)
{
	bool rg = false;
	struct oom_val y;
	int32_t node = -1;

	for (int i = 0; i < n; i++)
		rg = rg || (t->grad && x[i].rg);
	if (rg) {
		node = oom_node(t, OOM_NODE_CAT, "cat");
		for (int i = 0; i < n; i++)
			oom_node_edge(t, node, x[i]);
	}
	y = oom_new(t, "cat", mono, (struct oom_dim){width, NULL}, (enum oom_dtype)x[0].dt);
	if (rg)
		y = oom_node_out(t, node, 0, y);
	for (int i = 0; i < n; i++)
		oom_discard(t, x[i]);
	return y;
}

static struct oom_val part(struct oom_tape *t, struct oom_val x, uint16_t mono, uint64_t width)
{
	return oom_op_slice(t, x, mono, (struct oom_dim){width, NULL});
}

/* Scores of q with k, scaled, and masked in place. */
static struct oom_val scores(struct oom_tape *t, const struct oom_blocks *b, struct oom_val q,
			     struct oom_val k, uint16_t mono, uint64_t keys)
{
	struct oom_val s = oom_op_bmm(t, "scores", q, k, mono,
				      (struct oom_dim){keys * b->heads, NULL}, b->d);

	return oom_op_unary(t, OOM_SCALE, s);
}

/* One block of queries with the keys k and values v, of length keys (a monomial's when mono is not
 * the batch): parts 1, 2, 4 and 5. */
static struct oom_val one_block(struct oom_tape *t, const struct oom_blocks *b, struct oom_frame *l,
				struct oom_val q, struct oom_val k, struct oom_val v, uint16_t mono,
				uint64_t rows)
{
	const uint64_t wide = b->block * b->heads * b->d;
	struct oom_val s, p;

	s = oom_name(l, scores(t, b, part(t, q, t->m_b, wide), k, mono, rows));
	p = oom_name(l, oom_op_softmax(t, s, false));
	return oom_op_bmm(t, "context", p, v, t->m_b, (struct oom_dim){wide, NULL},
			  rows / b->block);
}

/* The blocks next to the ends: keys of four blocks and the random ones. */
static struct oom_val next_block(struct oom_tape *t, const struct oom_blocks *b, struct oom_frame *l,
				 const struct oom_val qkv[3], struct oom_val gk, struct oom_val gv)
{
	const uint64_t e = b->block, hd = b->heads * b->d, keys = (4 + b->random) * e;
	struct oom_val side[2], x[3];

	for (int i = 0; i < 2; i++) {
		/* four, one by one: of the sums that their gradients come to two are enough */
		x[0] = part(t, qkv[1 + i], t->m_b, 3 * e * hd);
		x[1] = part(t, qkv[1 + i], t->m_b, e * hd);
		x[2] = part(t, i ? gv : gk, t->m_b, b->random * e * hd);
		side[i] = oom_name(l, join(t, x, 3, t->m_b, keys * hd));
	}
	oom_name(l, oom_new(t, "seq_pad", t->m_b, (struct oom_dim){keys, NULL}, b->mask_dt));
	oom_name(l, oom_new(t, "rand_pad", t->m_b, (struct oom_dim){b->heads * e * keys, NULL},
			b->mask_dt));
	return one_block(t, b, l, qkv[0], side[0], side[1], t->m_b, e * keys);
}

/* Part 3: all blocks but two at either end, m of them together. */
static struct oom_val middle(struct oom_tape *t, const struct oom_blocks *b, struct oom_frame *l,
			     const struct oom_val qkv[3], struct oom_val gk, struct oom_val gv,
			     uint16_t m)
{
	const uint64_t e = b->block, r = b->random, h = b->heads, hd = h * b->d;
	struct oom_frame f = {.t = t};
	struct oom_val band[2], x[4], q = oom_name(&f, part(t, qkv[0], m, hd)), p, y, factor;

	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 3; j++)
			x[j] = part(t, qkv[1 + i], m, hd);
		band[i] = oom_name(l, join(t, x, 3, m, 3 * hd));
	}
	x[1] = oom_name(l, scores(t, b, oom_op_copy(t, "reshape", oom_keep(q)), band[0], m, 3 * e));
	x[2] = oom_op_copy(t, "reshape", oom_keep(q));
	x[2] = oom_name(l, scores(t, b, x[2], oom_op_copy(t, "reshape", part(t, gk, m, r * hd)), m, r * e));
	x[0] = oom_name(l, scores(t, b, q, part(t, qkv[1], t->m_b, e * hd), m, e));
	x[3] = oom_name(l, scores(t, b, q, part(t, qkv[1], t->m_b, e * hd), m, e));
	/* (1.0 - rand_mask) * penalty */
	factor = oom_new(t, "penalty", m, (struct oom_dim){r * e * h, NULL},
			 b->mask_dt == OOM_I64 ? OOM_F32 : b->mask_dt);
	oom_discard(t, oom_new_like(t, "penalty", factor, (enum oom_dtype)factor.dt));
	oom_discard(t, factor);
	y = oom_name(l, join(t, x, 4, m, (5 + r) * e * h));
	p = oom_name(l, oom_op_softmax(t, y, false));
	y = oom_op_bmm(t, "context", part(t, p, m, 3 * e * h), band[1], m,
		       (struct oom_dim){hd, NULL}, 3 * e);
	y = oom_op_add_in_view(t, y,
			       oom_op_bmm(t, "context", part(t, p, m, r * e * h),
					  oom_op_copy(t, "reshape", part(t, gv, m, r * hd)), m,
					  (struct oom_dim){hd, NULL}, r * e));
	for (int i = 0; i < 2; i++)
		y = oom_op_add_in_view(t, y,
				       oom_op_bmm(t, "context", part(t, p, m, e * h),
						  part(t, qkv[2], t->m_b, e * hd), m,
						  (struct oom_dim){hd, NULL}, e));
	return oom_leave(&f, oom_op_over(t, "view", y));
}

/* torch_gather_b2: the random blocks of every block but the first and last. */
static struct oom_val gathered(struct oom_tape *t, const struct oom_blocks *b, struct oom_val x,
			       uint16_t m)
{
	struct oom_val index = oom_new(t, "indices",
				       oom_len_chunks(t, t->m_b, b->block, -2),
				       (struct oom_dim){b->heads * b->random, NULL}, OOM_I64);

	x = oom_op_copy(t, "reshape", x);
	x.perm = false;
	return oom_op_gather(t, "index_select", x, index, m,
			     (struct oom_dim){b->random * b->heads * b->d, NULL});
}

struct oom_val oom_block_attention(struct oom_tape *t, const struct oom_blocks *b,
				   struct oom_val q, struct oom_val k, struct oom_val v,
				   struct oom_val *weights)
{
	const uint64_t e = b->block, h = b->heads, hd = h * b->d;
	const uint16_t m_rand = oom_len_padded(t, t->m_b, e, -4),
		       m_mid = oom_len_padded(t, t->m_b, e, -8);
	struct oom_frame f = {.t = t}, l = {.t = t};
	struct oom_val qkv[3], gk, gv, x[4], y;

	q = oom_arg(&f, q);
	k = oom_arg(&f, k);
	v = oom_arg(&f, v);
	/* blocked_query_matrix and its kin: views, of which all parts but the first and last block's keys are */
	qkv[0] = oom_name(&f, oom_op_viewed(t, oom_keep(q)));
	qkv[1] = oom_name(&f, oom_op_viewed(t, oom_keep(k)));
	qkv[2] = oom_name(&f, oom_op_viewed(t, oom_keep(v)));

	oom_name(&l, oom_new(t, "rand_attn", oom_len_chunks(t, t->m_b, b->block, -2), (struct oom_dim){h * b->random, NULL},
			     OOM_I64));
	oom_name(&l, oom_new(t, "rand_mask", m_rand, (struct oom_dim){h * b->random * e, NULL},
			 b->mask_dt));
	gk = oom_name(&l, oom_op_viewed(t, gathered(t, b, oom_keep(qkv[1]), m_rand)));
	gv = oom_name(&l, oom_op_viewed(t, gathered(t, b, oom_keep(qkv[2]), m_rand)));
	x[0] = one_block(t, b, &l, qkv[0], k, v, t->m_bs, e);
	x[1] = oom_name(&l, next_block(t, b, &l, qkv, gk, gv));
	x[2] = middle(t, b, &l, qkv, gk, gv, m_mid);
	x[3] = oom_name(&l, next_block(t, b, &l, qkv, gk, gv));
	y = one_block(t, b, &l, qkv[0], k, v, t->m_bs, e);
	/* five parts are joined; the first and the last count as one here */
	x[0] = oom_name(&l, join(t, (struct oom_val[]){x[0], y}, 2, t->m_b, 2 * e * hd));
	y = join(t, x, 4, t->m_bs, hd);
	/* from_mask.to(hidden_states.dtype) */
	y = oom_op_mul(t, y, b->dt == OOM_F32 && b->mask_dt != OOM_I64 ? oom_input(t, "from mask", t->m_bs, 1, b->dt) :
						  oom_new(t, "from mask", t->m_bs, D(1), b->dt));
	*weights = oom_new(t, "attention probs", t->m_bss, (struct oom_dim){h, "n_heads"},
			   (enum oom_dtype)y.dt);
	return oom_leave(&f, oom_op_merge_heads(t, oom_leave(&l, y)));
}

struct oom_val oom_band_mask(struct oom_tape *t, uint64_t block, enum oom_dtype dt)
{
	return oom_new(t, "band mask",
		       oom_len_padded(t, t->m_b, block, -8),
		       (struct oom_dim){3 * block, "3 * block_size"}, dt);
}
