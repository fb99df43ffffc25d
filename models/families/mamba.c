/* Mamba and Falcon Mamba: a selective state space instead of attention, in the form PyTorch runs without the mamba_ssm
 * and causal_conv1d kernels: every intermediate of the scan lies in memory as [b, s, d_inner, d_state].
 * Reference: transformers 5.12, models/{mamba,falcon_mamba}/modeling_*.py, slow_forward.
 *
 * The scan is a Python loop over the tokens whose body allocates [b, d_inner, d_state] a few times.  Each kind of tensor
 * the loop leaves behind is recorded once, with all its tokens: the bytes kept are the same up to the rounding of each
 * token's share; what is alive during one turn of the loop is not told apart. */
#include <stdio.h>
#include <string.h>

#include "../blocks.h"

enum { INNER, STATE, RANK, KERNEL, CONV_BIAS, BIAS, FP32_RESIDUAL, FALCON };    /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	/* MambaConfig computes intermediate_size = int(expand * hidden_size) and ceil(hidden_size / 16) itself, then takes
	 * what the file says */
	a->extra[INNER] = (uint64_t)(oom_read_real(r, "expand", 2) * (double)a->d_model);
	if (oom_read_explicit(r, "intermediate_size"))
		a->extra[INNER] = oom_read_count(r, "intermediate_size", 1);
	a->extra[STATE] = oom_read_count(r, "state_size", 1);
	a->extra[RANK] = (a->d_model + 15) / 16;
	if (oom_read_key(r, "time_step_rank") && oom_read_key(r, "time_step_rank")->type == OOM_KEY_NUMBER)
		a->extra[RANK] = oom_read_count(r, "time_step_rank", 1);
	a->extra[KERNEL] = oom_read_count(r, "conv_kernel", 1);
	a->extra[CONV_BIAS] = oom_read_bool(r, "use_conv_bias", true);
	a->extra[BIAS] = oom_read_bool(r, "use_bias", false);
	a->extra[FP32_RESIDUAL] = oom_read_bool(r, "residual_in_fp32", true);
	a->extra[FALCON] = !strcmp(a->model_type, "falcon_mamba");
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (r->status)
		return;
	if (!a->extra[INNER] || a->extra[INNER] > UINT32_MAX || a->extra[STATE] > UINT32_MAX || a->extra[KERNEL] > 1u << 20)
		oom_read_fail(r, "expand, state_size or conv_kernel is out of range");
	snprintf(a->warning, sizeof(a->warning),
		 "%s: parameters are counted exactly; activations follow the scan written in PyTorch and are a guess. "
		 "With the mamba_ssm and causal_conv1d kernels training needs far less.", a->model_type);
}

/* rms_forward: the norm without a weight (Falcon Mamba, on time steps, B and C). */
static struct oom_val plain_norm(struct oom_tape *t, const struct oom_arch *a, const char *name, struct oom_val x)
{
	return a->extra[FALCON] ? oom_norm(t, OOM_NORM_RMS_PLAIN, name, x, 0) : x;
}

/* The states of all tokens: h[i] = A[i] * h[i - 1] + Bu[i].  A and Bu are consumed. */
static struct oom_val scan(struct oom_tape *t, struct oom_val da, struct oom_val bu)
{
	const bool rg = t->grad && (da.rg || bu.rg);
	struct oom_val h;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_MUL, "scan");
		oom_node_edge(t, n, da);
		oom_node_edge(t, n, bu);
		oom_node_save(t, n, da);
	}
	h = oom_new_like(t, "ssm_state", da, OOM_F32);
	if (rg) {
		h = oom_node_out(t, n, 0, h);
		oom_node_save(t, n, h);
	}
	oom_done(t, da);
	oom_done(t, bu);
	return h;
}

/* slow_forward from the convolved states u [b, s, inner] on: returns what the scan gives, [b, s, inner]. */
static struct oom_val selective_scan(struct oom_tape *t, const struct oom_arch *a, struct oom_val u)
{
	const struct oom_dim inner = {a->extra[INNER], "d_inner"}, state = {a->extra[STATE], "d_state"};
	const struct oom_dim rank = {a->extra[RANK], "dt_rank"}, all = {inner.n * state.n, "d_inner * d_state"};
	const struct oom_dim parts[3] = {rank, state, state};
	const enum oom_dtype dt = (enum oom_dtype)u.dt;
	struct oom_val p[3], step, a_log, d, da, db, h, y;

	a_log = oom_param(t, "A_log", inner.n, state.n, 0);
	d = oom_param(t, "D", 0, inner.n, 0);
	oom_op_split(t, oom_op_linear(t, "x_proj", oom_keep(u), (struct oom_dim){rank.n + 2 * state.n, "dt_rank + 2 * d_state"}, 0), 3,
		     parts, p);
	p[1] = plain_norm(t, a, "B", p[1]);
	p[2] = plain_norm(t, a, "C", p[2]);
	p[0] = plain_norm(t, a, "dt", p[0]);
	step = oom_op_unary(t, OOM_SOFTPLUS, oom_op_linear(t, "dt_proj", p[0], inner, OOM_BIAS));
	t->scope = "mixer";
	da = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, a_log, OOM_F32)));
	da = oom_op_mul(t, oom_op_expand(t, da, t->m_bs, all), oom_op_expand(t, oom_keep(step), t->m_bs, all));
	da = oom_op_unary(t, OOM_EXP, da);
	db = oom_op_mul(t, oom_op_expand(t, step, t->m_bs, all), oom_op_expand(t, oom_op_cast(t, p[1], OOM_F32), t->m_bs, all));
	db = oom_op_mul(t, db, oom_op_expand(t, oom_op_cast(t, oom_keep(u), OOM_F32), t->m_bs, all));
	h = oom_op_cast(t, scan(t, da, db), dt);
	y = oom_op_bmm(t, "scan_output", h, p[2], t->m_bs, inner, state.n);
	return oom_op_add(t, y, oom_op_mul(t, u, oom_op_expand(t, d, t->m_bs, inner)));
}

struct layer {
	const struct oom_arch *a;
	enum oom_dtype dt;              /* of the weights */
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim inner = {a->extra[INNER], "d_inner"}, h = {x.width, x.text}, parts[2] = {inner, inner};
	const unsigned bias = a->extra[BIAS] ? OOM_BIAS : 0;
	const uint32_t pad = (uint32_t)a->extra[KERNEL] - 1;
	const uint16_t longer = pad ? oom_mono_of(t, t->m_b, OOM_VAR_S, 3, pad) : t->m_bs;
	struct oom_val p[2], y, u;

	(void)i;
	y = oom_norm(t, a->norm, "norm", oom_op_cast(t, oom_keep(x), l->dt), 0);
	if (a->extra[FP32_RESIDUAL])
		x = oom_op_cast(t, x, OOM_F32);
	oom_op_split(t, oom_op_linear(t, "in_proj", y, (struct oom_dim){2 * inner.n, "2 * d_inner"}, bias), 2, parts, p);
	u = oom_op_conv(t, "conv1d", p[0], inner.n, a->extra[KERNEL], a->extra[CONV_BIAS], longer, inner);
	u = oom_op_slice(t, u, t->m_bs, inner);
	u = oom_activation(t, a->act, u);
	u = selective_scan(t, a, u);
	u = oom_op_mul(t, u, oom_activation(t, a->act, p[1]));
	return oom_op_add(t, x, oom_op_linear(t, "out_proj", u, h, bias));
}

/* MambaForCausalLM: logits in fp32; those of all tokens but the last made contiguous (as they are in a batch of one). */
static struct oom_val tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, struct oom_val embed)
{
	const uint16_t shorter = oom_mono_of(t, t->m_b, OOM_VAR_S, 5, 1);
	struct oom_val hidden, logits, out, labels, loss;

	if (a->task != OOM_TASK_CAUSAL_LM || (t->plan->fused_ce == OOM_LOSS_FUSED && t->train))
		return oom_causal_tail(t, a, x, embed);
	hidden = oom_share(t, x);               /* the model's output object keeps the last hidden states */
	logits = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	out = oom_share(t, logits);
	logits = oom_op_slice(t, logits, shorter, D(a->vocab));
	if (oom_cond_above(t, t->m_b, 1))
		logits = oom_op_copy(t, "shift_logits", logits);
	oom_drop(t, oom_input(t, "labels", t->m_bs, 1, OOM_I64));
	labels = oom_new(t, "shift_labels", shorter, D(1), OOM_I64);
	loss = oom_cross_entropy(t, logits, labels);
	oom_drop(t, out);
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed.dt;
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);                /* inputs_embeds, a local of the model */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_norm(t, a->norm, "norm_f", x, 0);
	oom_drop(t, first);
	x = oom_op_cast(t, x, l.dt);
	return tail(t, a, x, embed);
}

static const char *const types[] = {"mamba", "falcon_mamba", NULL};

const struct oom_family oom_family_mamba = {
	.name = "mamba",
	.summary = "selective state space, scan written in PyTorch",
	.source = "transformers 5.12 models/mamba/modeling_mamba.py",
	.types = types,
	.lora_targets = "in_proj+x_proj+embeddings+out_proj",
	.parse = parse,
	.step = step,
};
