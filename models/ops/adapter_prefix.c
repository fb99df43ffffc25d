/* Prefix tuning: n trained keys and values stand before those of every layer (peft 0.20, tuners/prefix_tuning/model.py,
 * peft_model.py get_prompt).  One lookup makes them for all layers and every sequence; transformers' DynamicCache copies
 * each layer's, and a layer joins its own to them (cache_utils.py DynamicLayer.update).
 *
 * The copies are one row here, which dies in the last layer; each of the real ones dies when its layer has joined it. */
#include "adapters.h"
#include "config/arch.h"

/* PrefixEncoder: a table of all that layers take, or one of n tokens and a network of two layers. */
static struct oom_val encoded(struct oom_tape *t, uint64_t n, uint64_t d, uint64_t layers)
{
	const uint64_t h = (uint64_t)t->plan->encoder_hidden;
	const struct oom_dim all = {2 * layers * d, "2 * n_layers * d_kv"}, token = {d, "d_kv"},
			     hidden = {h, "encoder_hidden_size"};
	struct oom_val ids = oom_scratch_hold(t, "prompt_tokens", t->m_b, n, OOM_I64), x, w, b;

	x = oom_embedding_lookup(t, oom_param(t, "embedding", n, h ? d : all.n, OOM_P_LORA), ids, h ? token : all);
	if (!h)
		return x;
	w = oom_param(t, "transform.0.weight", h, d, OOM_P_LORA | OOM_P_LINEAR);
	b = oom_param(t, "transform.0.bias", 0, h, OOM_P_LORA);
	x = oom_op_unary(t, OOM_TANH, oom_op_matmul_param(t, "transform.0", x, w, b, hidden));
	w = oom_param(t, "transform.2.weight", all.n, h, OOM_P_LORA | OOM_P_LINEAR);
	b = oom_param(t, "transform.2.bias", 0, all.n, OOM_P_LORA);
	return oom_op_matmul_param(t, "transform.2", x, w, b, all);
}

void oom_prefix_made(struct oom_tape *t, enum oom_dtype dt)
{
	const struct oom_arch *a = t->arch;
	const char *scope = t->scope;
	struct oom_val x;

	if (!oom_adapter_of(t->plan)->cached || t->beside.running)
		return;
	t->scope = "prompt_encoder";
	x = oom_op_cast(t, encoded(t, (uint64_t)t->plan->virtual_tokens, a->n_kv_heads * a->head_dim, oom_depth(t, a->n_layers)), dt);
	t->prefix = oom_op_copy(t, "cat", x);
	t->scope = scope;
}

uint64_t oom_prefix_tokens(const struct oom_tape *t)
{
	return oom_is_none(t->prefix) ? 0 : (uint64_t)t->plan->virtual_tokens;
}

/* The cache holds what layers joined until the model has returned. */
static void hold(struct oom_tape *t, int32_t sto)
{
	if (sto < 0 || !oom_tape_grow(t, (void **)&t->cached.row, &t->cached.cap, OOM_USUAL_FEW, t->cached.n + 1,
				       sizeof(*t->cached.row)))
		return;
	oom_ref(t, sto);
	t->cached.row[t->cached.n++] = sto;
}

void oom_prefix_taken(struct oom_tape *t)
{
	const struct oom_selection *s = &t->selection;

	t->joined = true;
	/* of one stack of layers; where the model has several, the copies wait for its end */
	if (s->depth == oom_depth(t, t->arch->n_layers) && s->layer + 1 == (int64_t)s->depth) {
		oom_drop(t, t->prefix);
		t->prefix = oom_none();
	}
}

struct oom_val oom_prefix_joined(struct oom_tape *t, struct oom_val x)
{
	const uint64_t n = oom_prefix_tokens(t);
	const struct oom_dim own = {n * x.width, "n_virtual_tokens * d_kv"};
	struct oom_val p;

	if (!n)
		return x;
	p = oom_op_slice(t, oom_keep(t->prefix), t->m_b, own);
	p = oom_op_cat_into(t, p, x, oom_len_plus(t, t->m_b, n), (struct oom_dim){x.width, x.text});
	hold(t, p.sto);
	return p;
}

void oom_prefix_leave(struct oom_tape *t)
{
	while (t->cached.n)
		oom_unref(t, t->cached.row[--t->cached.n]);
	oom_drop(t, t->prefix);
	t->prefix = oom_none();
}

const struct oom_adapter oom_adapter_prefix = {.cached = true};
