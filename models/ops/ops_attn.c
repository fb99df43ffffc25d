/* Attention kernels: flash, memory-efficient, and PyTorch's choice between them and those that have scores
 * (attn_scores.c).
 *
 * Reference: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (choice), attention.cu and
 * attention_backward.cu (what is kept, what is scratch), read as of PyTorch 2.14.  The choice is
 * that of sm80. */
#include "attn.h"
#include "tape/round.h"

static bool is_half(struct oom_val x)
{
	return x.dt == OOM_DT_BF16 || x.dt == OOM_DT_F16;
}

int32_t oom_attention_node(struct oom_tape *t, uint8_t kind, struct oom_val q, struct oom_val k, struct oom_val v,
			   const struct oom_sdpa *a)
{
	static const char *const names[OOM_NODE_KINDS] = {[OOM_NODE_FLASH] = "flash_attention",
							  [OOM_NODE_EFFICIENT] = "efficient_attention",
							  [OOM_NODE_TRACED] = "attention"};
	int32_t n = oom_node(t, kind, names[kind]);

	if (a->heads > UINT16_MAX || a->d > UINT16_MAX)
		oom_tape_impossible(t, OOM_ERR_LIMIT, "attention of %llu heads of %llu: more than 65535 "
					    "(num_attention_heads, num_key_value_heads, head_dim)",
			      (unsigned long long)a->heads, (unsigned long long)a->d);
	oom_node_edge(t, n, q);
	oom_node_edge(t, n, k);
	oom_node_edge(t, n, v);
	if (n >= 0) {
		t->nodes[n].heads = (uint16_t)a->heads;
		t->nodes[n].d = (uint16_t)a->d;
		t->nodes[n].length = a->sq;
		t->nodes[n].aux_width = a->kv_heads;
		t->nodes[n].perm = (uint8_t)(q.perm | k.perm << 1 | v.perm << 2);
		t->nodes[n].aux_mono = kind == OOM_NODE_FLASH  ? oom_mono_rounded(t, a->mq, a->sq, 128) :
				       kind == OOM_NODE_TRACED ? oom_mono_mul(t, a->mq, a->sk) :
								 a->mq;
	}
	oom_node_save(t, n, q);
	oom_node_save(t, n, k);
	oom_node_save(t, n, v);
	return n;
}

static struct oom_val flash_kernel(struct oom_tape *t, struct oom_val q, struct oom_val k,
				   struct oom_val v, const struct oom_sdpa *a)
{
	const bool rg = oom_wants_grad(t, q) || oom_wants_grad(t, k) || oom_wants_grad(t, v);
	struct oom_val y, lse, rng, unused;
	int32_t n = -1;

	if (rg)
		n = oom_attention_node(t, OOM_NODE_FLASH, q, k, v, a);
	y = oom_new_kept(t, OOM_KEPT_ATTENTION, "flash_attention", a->mq, (struct oom_dim){a->heads * a->dv, q.text},
		    (enum oom_dtype)q.dt);
	y.perm = q.perm;                        /* out = empty_like(q): laid out as q is */
	lse = oom_new_kept(t, OOM_KEPT_ATTENTION, "logsumexp", a->mq, (struct oom_dim){a->heads, NULL}, OOM_F32);
	rng = oom_new_kept(t, OOM_KEPT_ATTENTION, "rng_state", OOM_MONO_ONE, (struct oom_dim){2, NULL}, OOM_I64);
	unused = oom_new_kept(t, OOM_KEPT_ATTENTION, "rng_unused", OOM_MONO_ONE, (struct oom_dim){1, NULL}, OOM_I64);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, y);
		oom_node_save(t, n, lse);
		oom_node_save(t, n, rng);
		oom_node_save(t, n, unused);
	}
	oom_drop(t, lse);
	oom_drop(t, rng);
	oom_drop(t, unused);
	oom_done(t, q);
	oom_done(t, k);
	oom_done(t, v);
	return y;
}

/* F.pad of the last dimension to a multiple of k: a copy. */
static struct oom_val pad_heads(struct oom_tape *t, struct oom_val x, uint64_t heads, uint64_t d,
				uint64_t k)
{
	const struct oom_dim w = {heads * oom_round_up(d, k), x.text};

	if (d % k == 0)
		return x;
	return oom_op_expand_copy(t, x, x.mono, w);
}

static struct oom_val flash(struct oom_tape *t, struct oom_val q, struct oom_val k,
			    struct oom_val v, const struct oom_sdpa *a)
{
	struct oom_sdpa p = *a;
	struct oom_val y;

	q = pad_heads(t, q, a->heads, a->d, 8);
	k = pad_heads(t, k, a->kv_heads, a->d, 8);
	v = pad_heads(t, v, a->kv_heads, a->d, 8);
	p.d = p.dv = oom_round_up(a->d, 8);
	y = flash_kernel(t, q, k, v, &p);
	if (a->d % 8) {
		y = oom_op_slice(t, y, y.mono, (struct oom_dim){a->heads * a->d, NULL});
		y.perm = false;
	}
	return y;
}

/* The kernel's additive bias of the mask.  Where the keys are no multiple of 16 it is padded, a copy with aligned rows;
 * of a learned bias the gradient goes back through the padding. */
static struct oom_val aligned_bias(struct oom_tape *t, struct oom_val mask, enum oom_dtype dt, const struct oom_sdpa *a)
{
	struct oom_val bias = oom_mask_to_bias(t, mask, dt), padded;
	const struct oom_dim w = {bias.width, NULL};
	uint16_t m;

	if (!oom_cond_more(t, oom_mono_rounded(t, a->mk, a->sk, 16), 1, a->mk, 1))
		return bias;
	m = oom_mono_rounded(t, bias.mono, a->sk, 16);
	if (bias.rg)
		return oom_op_expand_copy(t, bias, m, w);
	padded = oom_new(t, "padded bias", m, w, dt);
	oom_done(t, bias);
	return padded;
}

static struct oom_val efficient(struct oom_tape *t, struct oom_val q, struct oom_val k,
				struct oom_val v, struct oom_val mask, const struct oom_sdpa *a)
{
	/* a learned bias alone is enough (derivatives.yaml: attn_bias) */
	const bool rg = oom_wants_grad(t, q) || oom_wants_grad(t, k) || oom_wants_grad(t, v) ||
			(!oom_is_none(mask) && oom_wants_grad(t, mask));
	struct oom_val y, lse, seed, offset, bias = oom_none();
	int32_t n = -1;

	if (!oom_is_none(mask))
		bias = aligned_bias(t, mask, (enum oom_dtype)q.dt, a);
	if (rg) {
		n = oom_attention_node(t, OOM_NODE_EFFICIENT, q, k, v, a);
		if (!oom_is_none(bias)) {
			if (bias.rg)
				oom_node_edge(t, n, bias);
			oom_node_save(t, n, bias);
		}
	}
	y = oom_new_kept(t, OOM_KEPT_ATTENTION, "efficient_attention", a->mq, (struct oom_dim){a->heads * a->dv, q.text},
		    (enum oom_dtype)q.dt);
	y.perm = true;
	lse = oom_new_kept(t, OOM_KEPT_ATTENTION, "logsumexp", rg ? oom_mono_rounded(t, a->mq, a->sq, 32) : OOM_MONO_ONE,
		      (struct oom_dim){rg ? a->heads : 0, NULL}, OOM_F32);
	seed = oom_new_kept(t, OOM_KEPT_ATTENTION, "philox seed", OOM_MONO_ONE, (struct oom_dim){1, NULL}, OOM_I64);
	offset = oom_new_kept(t, OOM_KEPT_ATTENTION, "philox offset", OOM_MONO_ONE, (struct oom_dim){1, NULL}, OOM_I64);
	if (a->dv > 128 && is_half(q))          /* output kept in an fp32 accumulator */
		oom_scratch(t, "output accumulator", a->mq, a->heads * a->dv, OOM_F32);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, y);
		oom_node_save(t, n, lse);
		oom_node_save(t, n, seed);
		oom_node_save(t, n, offset);
	}
	oom_drop(t, seed);
	oom_drop(t, offset);
	oom_drop(t, lse);
	oom_done(t, q);
	oom_done(t, k);
	oom_done(t, v);
	oom_done(t, bias);
	return y;
}

/* The two products of a fused kernel; the math path's count themselves.  A mask of padding hides scores that are
 * computed all the same: 8,192 padded tokens of Llama-3.2-1B take 21 ms more than others on an H100, where the scores below the
 * diagonal take some 20 (data/h100_steps.csv). */
static void count(struct oom_tape *t, const struct oom_sdpa *a, bool wide, bool masked)
{
	const uint16_t mono = oom_mono_mul(t, a->mq, a->sk);
	const double n = 2.0 * (double)a->heads * (double)(a->d + a->dv) * t->mult;

	const bool below = a->causal && !masked && a->sk == t->m_s;

	t->sums->tally.attn[mono] += n;
	/* blocks above the diagonal are not computed (flash-attention, is_causal); a window's are
	 * counted by its length */
	if (below)
		t->sums->tally.skipped[mono] += n / 2;
	if (wide)
		t->sums->tally.wide[mono] += below ? n / 2 : n;
}

/* The kernel for q, k, v and mask, which are the caller's (autocast's casts too) until it
 * returns. */
static struct oom_val choose(struct oom_tape *t, const struct oom_val arg[4],
			     const struct oom_sdpa *a)
{
	const struct oom_val q = oom_keep(arg[0]), k = oom_keep(arg[1]), v = oom_keep(arg[2]),
			     mask = oom_keep(arg[3]);
	const bool same = a->heads == a->kv_heads;
	const double sm = oom_capability(t->plan);
	/* minimum_gemm_alignment: tensor cores want 16 bytes; before Ampere they take no fp32,
	 * before Volta nothing */
	const uint64_t align = is_half(q) ? sm >= 7 ? 8 : 1 : sm >= 8 ? 4 : 1;

	/* select_sdp_backend passes over backends that the user has turned off */
	if (!t->plan->sdp_fused)
		return oom_attention_math(t, q, k, v, mask, a);
	if (t->spread_mask && !a->causal && oom_is_none(mask)) {
		count(t, a, !is_half(q), true);
		return oom_attention_traced(t, q, k, v, a);
	}
	if (a->across)
		return oom_attention_math(t, q, k, v, mask, a);
	if (sm >= 8 && is_half(q) && oom_is_none(mask) && a->d == a->dv && a->d <= 256 &&
	    (same || a->gqa)) {
		count(t, a, false, false);
		return flash(t, q, k, v, a);    /* check_sm_version: Ampere and later */
	}
	if (same && !a->rows_apart && a->d % align == 0 && a->dv % align == 0 && (sm >= 8 || q.dt != OOM_DT_BF16)) {
		count(t, a, !is_half(q), t->plan->padding_mask);
		return efficient(t, q, k, v, mask, a);
	}
	return oom_attention_math(t, q, k, v, mask, a);
}

struct oom_val oom_op_sdpa(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v,
			   struct oom_val mask, const struct oom_sdpa *a)
{
	struct oom_val arg[4] = {q, k, v, mask}, given[4], y;

	/* scaled_dot_product_attention is on autocast's 16-bit list */
	for (int i = 0; i < 4; i++) {
		given[i] = oom_argument(t, arg[i]);
		if (!oom_is_none(arg[i]) && arg[i].dt != OOM_U8)
			arg[i] = oom_amp_cast(t, arg[i]);
	}
	y = choose(t, arg, a);
	for (int i = 3; i >= 0; i--) {
		oom_done(t, arg[i]);
		oom_drop(t, given[i]);
	}
	return y;
}

/* Rows of x that are no padding, one sequence after the other (_index_first_axis): a copy that is
 * kept in the place of x. */
static struct oom_val without_padding(struct oom_tape *t, struct oom_val x, struct oom_val rows)
{
	x = oom_op_merge_heads(t, x);
	x = oom_op_gather(t, "unpadded", x, oom_keep(rows), x.mono,
			  (struct oom_dim){x.width, x.text});
	x = oom_op_heads(t, x);
	x.perm = true;
	return x;
}

/* transformers unpads what a mask hides, and pads the result (modeling_flash_attention_utils.py
 * _upad_input, pad_input): copies of q, k and v, the numbers of the rows, made anew by every layer,
 * and the padded result are kept.  How much of a batch is padding is not known: none is taken off. */
static struct oom_val flash_unpadded(struct oom_tape *t, const struct oom_val arg[3],
				     struct oom_val v, const struct oom_sdpa *a)
{
	struct oom_val rows = oom_new(t, "rows without padding", a->mq, (struct oom_dim){1, NULL}, OOM_I64);
	struct oom_val k = without_padding(t, oom_keep(arg[1]), rows), q, y;

	v = without_padding(t, v, rows);
	q = without_padding(t, oom_keep(arg[0]), rows);
	y = flash(t, oom_keep(q), oom_keep(k), oom_keep(v), a);
	y = oom_op_gather(t, "padded", y, oom_keep(rows), y.mono, (struct oom_dim){y.width, y.text});
	y.perm = true;
	oom_drop(t, q);
	oom_drop(t, v);
	oom_drop(t, k);
	oom_drop(t, rows);
	return y;
}

/* Self-attention over the batch's text, which has a mask.  Towers and cross-attention have others. */
static bool has_padding(const struct oom_tape *t, const struct oom_sdpa *a)
{
	return t->plan->padding_mask && a->mq == t->m_bs && a->mk == t->m_bs;
}

struct oom_val oom_op_flash(struct oom_tape *t, struct oom_val q, struct oom_val k,
			    struct oom_val v, const struct oom_sdpa *a)
{
	const enum oom_dtype half = t->amp ? (enum oom_dtype)t->amp_dt : OOM_DT_BF16;
	struct oom_val arg[3] = {q, k, v}, y;

	if (oom_capability(t->plan) < 8)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "attn flash: flash_attn needs compute capability 8.0 (Ampere) or "
			      "later, this card has %.1f: use sdpa", oom_capability(t->plan));
	/* names of transformers' function; those of flash_attn's go with its padded copies */
	for (int i = 0; i < 3; i++)
		if (!is_half(arg[i]))
			arg[i] = oom_op_cast(t, arg[i], half);
	count(t, a, false, false);
	v = oom_keep(arg[2]);
	if (a->dv != a->d)
		v = oom_op_expand_copy(t, v, v.mono, (struct oom_dim){a->kv_heads * a->d, NULL});
	y = has_padding(t, a) ? flash_unpadded(t, arg, v, a) :
				flash(t, oom_keep(arg[0]), oom_keep(arg[1]), v, a);
	if (a->dv != a->d) {                    /* attn_output[..., :v_head_dim] */
		y = oom_op_slice(t, y, y.mono, (struct oom_dim){a->heads * a->dv, NULL});
		y.perm = false;
	}
	for (int i = 2; i >= 0; i--)
		oom_done(t, arg[i]);
	return y;
}
