/* Parts of T5's relatives: Switch's experts, LongT5's attention within blocks, UDOP's and
 * Pop2Piano's other tables. Reference: transformers 5.12,
 * models/{switch_transformers,longt5,udop,pop2piano}/modeling_*.py. */
#include "t5.h"

#include "blocks/image.h"

bool t5_is_sparse(const struct t5_stack *s, uint32_t layer)
{
	const uint64_t step = t5_of(s->a)->sparse[s->decoder];

	return step && (layer % step == 1 || step == 1);
}

struct oom_val t5_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_top1 m = {.experts = a->n_experts, .ff = {a->d_ff, "d_ff"}, .act = a->act,
				   .dropout = a->dropout, .up = {"wi", "wi.weight"},
				   .down = {"wo", "wo.weight"},
				   .router_bias = t5_of(a)->router_bias, .jitter = true};

	t->warning = "which tokens an expert of Switch Transformers gets is the data's to say: its "
		     "sparse layers are approximated";
	return oom_moe_top1(t, &m, x);
}

/* ---- LongT5: blocks of local_radius + 1 tokens attend to themselves and their neighbours ---- */

struct oom_val t5_block_bias(struct oom_frame *f, struct t5_stack *s)
{
	const uint64_t block = t5_of(s->a)->block, h = s->a->n_heads;
	const struct oom_dim three = {3 * block, "3 * block_len"};
	struct oom_tape *t = f->t;
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	struct oom_val mask, b;

	/* the encoder's own, given to all layers; the first one makes an additive mask of it */
	s->mask = oom_name_shared(f, oom_new(t, "local mask", m_padded, three, OOM_U8));
	b = oom_new(t, "relative buckets", OOM_MONO_ONE, (struct oom_dim){3 * block * block, NULL},
		    OOM_I64);
	b = oom_op_embedding(t, "relative_attention_bias", b, t5_of(s->a)->buckets,
			     (struct oom_dim){h, "num_heads"}, 0);
	mask = oom_new(t, "additive mask", m_padded, three, OOM_F32);
	return oom_op_add_into(t, oom_op_cast(t, b, OOM_F32), mask, m_padded,
			       (struct oom_dim){three.n * h, "3 * block_len * num_heads"});
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

struct oom_val t5_block_attention(struct oom_tape *t, const struct t5_stack *s, struct oom_val x)
{
	static const char *const names[] = {"q", "k", "v"};
	const struct oom_arch *a = s->a;
	const uint64_t block = t5_of(a)->block;
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * d_kv"},
			     near = {3 * block * a->n_heads, "3 * block_len * num_heads"};
	const bool pad = oom_cond_more(t, m_padded, 1, s->m_tokens, 1);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], w, y;
	enum oom_dtype dt;

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_linear(t, names[i], x, inner, 0);
	for (int i = 0; i < 3; i++) {
		if (pad)
			p[i] = oom_op_expand_copy(t, p[i], m_padded, inner);
		if (i)
			p[i] = three_blocks(t, p[i], m_padded, block);
		p[i] = oom_name(&f, oom_op_heads(t, p[i]));
	}
	w = oom_op_bmm(t, "scores", p[0], p[1], m_padded, near, a->head_dim);
	dt = (enum oom_dtype)w.dt;
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
	y = oom_op_linear(t, "o", y, D(a->d_model), 0);
	if (t5_of(a)->global) {
		oom_param(t, "global_input_layer_norm.weight", 0, a->d_model,
			  OOM_P_UNUSED | OOM_P_NORM);
		t->warning = "LongT5's transient global tokens are approximated: only their "
			     "weights are counted";
	}
	return oom_leave(&f, y);
}

/* ---- weights beside the text ---- */

static void idle(struct oom_tape *t, const char *scope, uint64_t rows, uint64_t cols,
		 uint32_t flags)
{
	t->scope = scope;
	oom_param(t, "weight", rows, cols, OOM_P_UNUSED | flags);
}

void t5_idle_parts(struct oom_tape *t, const struct oom_arch *a)
{
	const struct t5_kind *k = t5_kind_of(a);
	const struct t5 *own = t5_of(a);
	const uint64_t d = a->d_model;

	if (k->features)
		idle(t, "mel_conditioner.embedding", own->composers, d, OOM_P_EMBEDDING);
	if (own->global)
		idle(t, "global_relative_attention_bias", own->buckets, a->n_heads,
		     OOM_P_EMBEDDING);
	if (!k->layout)
		return;
	t->warning = "UDOP's image patches and boxes are counted as weights only: their "
		     "activations are not modelled";
	/* the encoder's patches are shared, the decoder has its own */
	for (int i = 0; i < 2; i++) {
		idle(t, "patch_embed", d * a->channels * own->patch, own->patch, 0);
		oom_param(t, "bias", 0, d, OOM_P_UNUSED);
		idle(t, "cell_2d_embedding", own->coords, d, OOM_P_EMBEDDING);
	}
	for (uint64_t i = 0; i < 2 * own->biases && !t->status; i++)
		idle(t, "relative_bias", own->buckets, a->n_heads, OOM_P_EMBEDDING);
}
