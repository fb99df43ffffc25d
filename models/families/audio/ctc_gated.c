/* WavLM's attention: torch's own function for it, whose mask is a bias of relative positions times a gate that every layer
 * makes of its input.  The first layer looks the bias up for all of them.
 * Reference: transformers 5.12, models/wavlm/modeling_wavlm.py WavLMAttention; torch/nn/functional.py
 * multi_head_attention_forward. */
#include "ctc.h"

/* compute_bias, repeated for every sample. */
struct oom_val oom_ctc_relative_bias(struct oom_tape *t, const struct oom_arch *a, uint64_t frames)
{
	const uint16_t length = oom_length_of(t, frames), plane = oom_mono_mul(t, length, length);
	const bool again = t->plan->grad_ckpt != OOM_CKPT_NONE && t->grad && t->train;
	const struct oom_dim heads = {a->n_heads, "num_attention_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val ids, x;

	oom_name(&f, oom_new(t, "relative positions", plane, D(1), OOM_I64));
	/* a checkpoint keeps no buckets: the first layer makes them again */
	ids = again ? oom_input(t, "relative buckets", plane, 1, OOM_I64) : oom_new(t, "relative buckets", plane, D(1), OOM_I64);
	x = oom_name(&f, oom_op_embedding(t, "rel_attn_embed", ids, ctc_of(a)->buckets, heads, 0));
	if (again && x.node >= 0)               /* and has them while the lookup's derivative runs */
		t->nodes[x.node].perm |= OOM_LOOKUP_AGAIN;
	return oom_leave(&f, oom_op_expand_copy(t, x, oom_mono_mul(t, oom_tokens_of(t, frames), length), heads));
}

/* gate_a * (gate_b * gru_rel_pos_const - 1.0) + 2.0 for every token and head. */
static struct oom_val gate(struct oom_tape *t, const struct ctc_stack *l, struct oom_val x)
{
	const struct oom_arch *a = l->s.a;
	const uint16_t rows = oom_tokens_of(t, l->frames * a->n_heads);
	const struct oom_dim one = {1, NULL}, parts[2] = {one, one};
	const struct oom_val factor = oom_param(t, "gru_rel_pos_const", 0, a->n_heads, 0);
	struct oom_frame f = {.t = t};
	struct oom_val p[2], y;

	y = oom_op_view(t, x, rows, (struct oom_dim){a->d_model / a->n_heads, "head_dim"});
	y.perm = true;                          /* heads before tokens: the layer copies it */
	y = oom_name(&f, oom_op_linear(t, "gru_rel_pos_linear", y, D(8), OOM_BIAS));
	if (t->amp)                             /* sum is on autocast's list */
		y = oom_name(&f, oom_op_cast(t, y, OOM_F32));
	y = oom_name(&f, oom_op_sum(t, y, rows, D(2)));
	oom_op_split(t, oom_op_unary(t, OOM_SIGMOID, y), 2, parts, p);
	oom_name_each(&f, p, 2);
	y = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_mul(t, p[1], factor));
	return oom_leave(&f, oom_op_unary(t, OOM_ADD_SCALAR, oom_op_mul(t, p[0], y)));
}

/* The mask of frames that are padding as numbers, spread to all heads, added to the bias. */
static struct oom_val with_padding(struct oom_tape *t, const struct ctc_stack *l, struct oom_val bias, enum oom_dtype dt)
{
	const uint16_t rows = oom_tokens_of(t, l->frames);
	struct oom_frame f = {.t = t};
	struct oom_val pad;

	oom_name(&f, oom_new(t, "zeros_like", rows, D(1), dt));
	pad = oom_name(&f, oom_new(t, "key_padding_mask", rows, (struct oom_dim){l->s.a->n_heads, "num_attention_heads"}, dt));
	return oom_leave(&f, oom_op_add(t, bias, pad));
}

/* A projection whose weights the function takes: the module is not called, and an adapter on it is passed by. */
static struct oom_val by_weight(struct oom_tape *t, const char *name, struct oom_val x, struct oom_dim out)
{
	struct oom_linear l = {.name = name, .in = x.width, .out = out, .flags = OOM_BIAS};
	struct oom_adapter_param own[OOM_ADAPTER_PARAMS];
	const char *scope = t->scope;
	struct oom_val w, bias;

	if (oom_adapter_params(t, name, l.in, out.n, OOM_BIAS, own))
		oom_tape_warn(t, "adapters on projections of WavLM's attention get no gradient: multi_head_attention_forward takes "
				 "their base layers' weights and calls none of them");
	t->scope = name;
	w = oom_param(t, "weight", out.n, l.in, OOM_P_LINEAR);
	bias = oom_param(t, "bias", 0, out.n, 0);
	oom_adapter_open(t, &l, OOM_P_UNUSED);
	t->scope = scope;
	return oom_op_matmul_param(t, name, x, w, bias, out);
}

/* The first layer's second run makes the bias once more, and its graph keeps the buckets. */
static void buckets_again(struct oom_tape *t, const struct ctc_stack *l, int32_t node)
{
	struct oom_val ids;

	if (node < 0)
		return;
	ids = oom_new(t, "relative buckets", oom_mono_mul(t, l->s.m_len, l->s.m_len), D(1), OOM_I64);
	oom_node_save(t, node, ids);
	oom_discard(t, ids);
}

struct oom_val oom_ctc_gated_attention(struct oom_tape *t, const struct ctc_stack *l, uint32_t layer, struct oom_val x)
{
	const struct oom_arch *a = l->s.a;
	const uint64_t head = a->d_model / a->n_heads;
	const struct oom_sdpa how = {.heads = a->n_heads, .kv_heads = a->n_heads, .d = head, .dv = head, .mq = x.mono, .mk = x.mono,
				     .sk = l->s.m_len, .sq = l->s.m_len, .dropout = t->train ? a->attn_dropout : 0};
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
	struct oom_frame f = {.t = t};
	struct oom_val bias, p[3], y;

	x = oom_arg(&f, x);
	bias = oom_name(&f, gate(t, l, x));     /* gate_output */
	bias = oom_name(&f, oom_op_mul(t, bias, l->bias));      /* gated_position_bias */
	if (!layer && t->recompute)
		buckets_again(t, l, bias.node);
	if (t->plan->padding_mask)
		bias = oom_name(&f, with_padding(t, l, bias, (enum oom_dtype)x.dt));
	for (int i = 0; i < 3; i++) {
		y = x;
		y.perm = true;                  /* transposed to (frames, batch): each projection copies it */
		p[i] = oom_op_heads(t, by_weight(t, names[i], y, D(a->d_model)));
	}
	oom_name_each(&f, p, 3);
	y = oom_op_sdpa(t, p[0], p[1], p[2], bias, &how);
	y = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_merge_heads(t, y)));
	return oom_leave(&f, by_weight(t, "out_proj", y, D(a->d_model)));
}
