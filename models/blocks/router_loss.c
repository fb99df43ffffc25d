/* The loss that balances a mixture's routers: transformers keeps what every router returned until the model has
 * returned, and works on all of it at once after the loss of the words (models/mixtral/modeling_mixtral.py
 * load_balancing_loss_func): one matrix of all layers' logits, its softmax, and for each expert of each token whether
 * it was chosen, in int64 and once more in fp32, which is what takes memory.  In the backward pass the gradient of that
 * matrix is there before any layer's, and lives until the first layer's router has taken its part of it. */
#include <string.h>

#include "blocks.h"
#include "config/arch.h"

/* Types whose ForCausalLM calls that function, of those whose layers are oom_moe_mlp's. */
static bool has_router_loss(const struct oom_arch *a)
{
	static const char *const types[] = {
		"ernie4_5_moe", "flex_olmo",   "gpt_oss",   "granitemoe", "granitemoehybrid", "granitemoeshared",
		"jamba",	"laguna",      "mellum",    "minimax",	  "minimax_m2",	      "mixtral",
		"olmoe",	"phimoe",      "qwen2_moe", "qwen3_moe",  "qwen3_next",	      "qwen3_5_moe_text"};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(a->model_type, types[i]))
			return true;
	return false;
}

static bool asked(const struct oom_tape *t)
{
	return (t->plan->router_logits || t->arch->router_logits) && has_router_loss(t->arch) && !t->no_labels &&
	       !t->beside.running && !t->in_bwd;
}

void oom_router_keeps(struct oom_tape *t, uint64_t experts, uint64_t top_k, struct oom_val logits)
{
	struct oom_routed *r = &t->routed;

	if (!asked(t) || logits.sto < 0 ||
	    !oom_tape_grow(t, (void **)&r->row, &r->cap, OOM_USUAL_FEW, r->n + 1, sizeof(*r->row)))
		return;
	oom_ref(t, logits.sto);
	r->row[r->n++] = logits.sto;
	if (r->n == 1) {
		/* a checkpoint gives up what it keeps before its layer runs again: the node before it */
		r->first = t->packing ? t->checkpoint - (t->checkpoint > 0) : logits.rg ? logits.node : -1;
		r->dt = logits.dt;
	}
	r->experts += experts * t->mult;
	r->chosen += top_k * t->mult;
	r->of_one = experts * top_k;
	r->pairs += r->of_one * t->mult;
}

/* Whether each expert was chosen, times the mask of tokens that are no padding. */
static void count_chosen(struct oom_tape *t)
{
	const struct oom_dim pairs = {t->routed.pairs, "layers * top_k * n_experts"};
	struct oom_val chosen = oom_new(t, "one_hot", t->m_bs, pairs, OOM_I64), mask = oom_none(), wide;

	if (t->plan->padding_mask)
		mask = oom_new(t, "mask of experts", t->m_bs, pairs, OOM_I64);
	wide = oom_new(t, "one_hot in fp32", t->m_bs, pairs, OOM_F32);
	if (!oom_is_none(mask))
		oom_drop(t, oom_new(t, "one_hot of tokens", t->m_bs, pairs, OOM_F32));
	oom_drop(t, oom_new(t, "tokens per expert", OOM_MONO_ONE, D(t->routed.of_one), OOM_F32));
	oom_drop(t, wide);
	oom_drop(t, mask);
	oom_drop(t, chosen);
}

void oom_router_loss(struct oom_tape *t)
{
	struct oom_routed *r = &t->routed;
	const struct oom_dim e = {r->experts, "layers * n_experts"}, k = {r->chosen, "layers * top_k"};
	const bool grad = t->grad;
	struct oom_val all, weights, values, index;

	if (!r->n)
		return;
	t->scope = "router loss";
	r->counted = true;
	all = oom_new(t, "router logits of all layers", t->m_bs, e, (enum oom_dtype)r->dt);
	t->grad = false;
	/* on autocast's fp32 list */
	weights = oom_op_softmax_own(t, t->amp ? oom_op_cast(t, oom_keep(all), OOM_F32) : oom_keep(all));
	values = oom_new(t, "top-k value", t->m_bs, k, (enum oom_dtype)weights.dt);
	index = oom_new(t, "top-k index", t->m_bs, k, OOM_I64);
	count_chosen(t);
	t->grad = grad;
	oom_drop(t, index);
	oom_drop(t, values);
	oom_drop(t, weights);
	/* as long as the gradient of it, and as large */
	if (t->grad && r->first >= 0)
		oom_node_hold(t, r->first, all);
	oom_drop(t, all);
}

void oom_router_leave(struct oom_tape *t)
{
	struct oom_routed *r = &t->routed;

	if (t->train && !r->counted && t->plan->router_logits)
		oom_tape_warn(t, "output-router-logits has no effect: this model has no such loss, or the objective makes one without it");
	while (r->n)
		oom_unref(t, r->row[--r->n]);
	r->experts = r->chosen = r->pairs = 0;
	r->counted = false;
}
