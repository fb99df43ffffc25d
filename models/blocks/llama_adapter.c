/* LLaMA-Adapter: n trained tokens are attended to besides, without positions, and what comes of them is weighed by a trained
 * gate that begins at zero (peft 0.20, tuners/adaption_prompt/layer.py AdaptedAttention, utils.py
 * llama_compute_query_states).  The base's projections run again: on the tokens, and on the layer's own input. */
#include <string.h>

#include "blocks.h"
#include "ops/adapters.h"

/* The parameter made last of a module with this word. */
static struct oom_val made_last(const struct oom_tape *t, const char *word, const char *name)
{
	for (size_t i = t->cursor; i-- > 0;) {
		const struct oom_param *p = &t->params[i];

		if (p->scope && !strcmp(p->scope, word) && !strcmp(p->name, name))
			return (struct oom_val){.sto = -1, .node = -2 - (int32_t)i, .mono = OOM_MONO_ONE,
						.width = p->elems, .dt = p->dt};
	}
	return oom_none();
}

/* A frozen projection once more. */
static struct oom_val again(struct oom_tape *t, const char *word, struct oom_val x, struct oom_dim out, bool bias)
{
	struct oom_linear l = {.name = word, .out = out, .w = made_last(t, word, "weight"), .bias = oom_none()};

	l.in = l.w.width / out.n;
	if (bias)
		l.bias = made_last(t, word, "bias");
	return oom_linear_run(t, &l, x);
}

/* repeat over the batch, and repeat_interleave over the query heads of a group: both are copies. */
static struct oom_val for_all(struct oom_frame *f, const struct oom_attn *a, struct oom_val x, uint64_t n)
{
	struct oom_tape *t = f->t;
	const struct oom_val own = oom_name(f, x);
	const struct oom_dim grouped = {n * a->kv_heads * a->d, "adapter_len * d_kv"},
			     whole = {n * a->heads * a->d, "adapter_len * d_q"};

	x = oom_name(f, oom_op_expand_copy(t, own, t->m_b, grouped));
	return oom_rename(f, x, oom_op_expand_copy(t, x, t->m_b, whole));
}

/* The queries, rotated as the layer's own are; values are made only to be looked at, and their graph goes with them. */
static struct oom_val queries(struct oom_tape *t, const struct oom_attn *a, struct oom_val x)
{
	const struct oom_dim qd = {a->heads * a->d, "n_heads * head_dim"}, vd = {a->kv_heads * a->d, "n_kv_heads * head_dim"};
	const bool grad = t->grad;
	struct oom_frame f = {.t = t};
	struct oom_val q = oom_name(&f, oom_op_heads(t, again(t, a->q, x, qd, a->qkv_bias)));

	t->grad = false;
	oom_name(&f, oom_op_heads(t, again(t, a->v, x, vd, a->qkv_bias)));
	t->grad = grad;
	return oom_leave(&f, oom_rope_apply(t, oom_share(t, q), a->rope, a->heads, a->d, a->d));
}

bool oom_adaption(const struct oom_tape *t)
{
	return oom_plan_adapted(t->plan) && oom_adapter_of(t->plan)->attention && oom_adapter_here(t);
}

struct oom_val oom_adaption_added(struct oom_tape *t, const struct oom_attn *a, struct oom_val x, struct oom_val y)
{
	const uint64_t n = (uint64_t)t->plan->virtual_tokens;
	const uint32_t flags = OOM_P_SAVED | (oom_plan_quantised(t->plan) ? OOM_P_FP32 : 0);
	const struct oom_dim h = {x.width, x.text}, kd = {a->kv_heads * a->d, "n_kv_heads * head_dim"},
			     qd = {a->heads * a->d, "n_heads * head_dim"};
	const uint16_t rows = oom_mono_mul(t, a->mq, OOM_MONO_ONE);
	const struct oom_dim scores = {a->heads * n, "n_heads * adapter_len"};
	struct oom_frame f = {.t = t};
	struct oom_val prompt, gate, k, v, q, w;
	enum oom_dtype dt;

	y = oom_arg(&f, y);
	prompt = oom_param(t, "adaption_prompt", n, h.n, flags);
	gate = oom_param(t, "adaption_gate", 0, 1, flags);
	k = again(t, a->k, prompt, (struct oom_dim){kd.n, kd.text}, a->qkv_bias);
	v = again(t, a->v, prompt, (struct oom_dim){kd.n, kd.text}, a->qkv_bias);
	k = for_all(&f, a, k, n);
	v = for_all(&f, a, v, n);
	q = oom_name(&f, queries(t, a, x));
	dt = (enum oom_dtype)q.dt;
	t->joined = true;
	w = oom_op_bmm(t, "adapter scores", q, oom_op_cast(t, k, dt), rows, scores, a->d);
	w = oom_name(&f, oom_op_unary(t, OOM_SCALE, w));
	w = oom_rename(&f, w, oom_op_mul(t, gate, oom_op_cast(t, oom_op_softmax(t, w, true), dt)));
	w = oom_op_merge_heads(t, oom_op_bmm(t, "adapter output", w, v, rows, qd, n));
	w.perm = false;
	w = oom_name(&f, w);
	w = oom_rename(&f, w, again(t, a->o, w, h, a->o_bias));
	y = oom_rename(&f, y, oom_op_add(t, y, w));
	return oom_leave(&f, oom_op_cast(t, y, dt));
}
