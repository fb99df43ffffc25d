/* LoRA under Megatron: Megatron-Bridge 067f987 src/megatron/bridge/peft (lora.py, lora_layers.py, utils.py), which NeMo's
 * is like.
 *
 * One adapter lies on each of a layer's linear modules, of which queries, keys and values are one, gate and up another
 * ("performant" LoRA; CanonicalLoRA would have one for each).  ParallelLinearAdapter divides both matrices over
 * tensor-parallel ranks: A by rows of its rank where the module's input is whole (ColumnParallelLinear,
 * gather_output), by columns where it is divided (RowParallelLinear); B always by its outputs, which are gathered
 * again where the module's are whole.  Experts of a rank share one (share_expert_adapters). */
#include "parts.h"

bool oom_mg_adapted(const struct oom_megatron *m, enum oom_mg_target on)
{
	return m->lora_r && m->lora_targets >> on & 1;
}

/* On a module of `in` x `out`, both undivided, over t ranks. */
static size_t put(const struct oom_megatron *m, enum oom_mg_target on, bool routed, double in, double out, double t,
		  struct mg_adapter *to)
{
	const bool row = on == OOM_MG_LINEAR_PROJ || on == OOM_MG_LINEAR_FC2;
	const double r = (double)m->lora_r;

	if (!oom_mg_adapted(m, on))
		return 0;
	*to = (struct mg_adapter){.on = on, .routed = routed, .row = row, .in = row ? in / t : in,
				  .out = row ? out : out / t, .a = r * in / t, .b = r * out / t};
	return 1;
}

static size_t feed_forward(const struct oom_megatron *m, bool routed, double f, double t, struct mg_adapter *to)
{
	const double h = routed && m->moe_latent ? (double)m->moe_latent : (double)m->hidden;
	const size_t n = put(m, OOM_MG_LINEAR_FC1, routed, h, m->swiglu ? 2 * f : f, t, to);

	return n + put(m, OOM_MG_LINEAR_FC2, routed, f, h, t, to + n);
}

size_t oom_mg_adapters(const struct oom_megatron *m, bool experts, struct mg_adapter to[MG_ADAPTERS])
{
	const double h = (double)m->hidden, t = (double)m->tp, d = (double)m->kv_channels, q = (double)m->heads * d,
		     groups = (double)(m->query_groups > m->tp ? m->query_groups : m->tp);
	size_t n = put(m, OOM_MG_LINEAR_QKV, false, h, q + 2 * groups * d, t, to);

	n += put(m, OOM_MG_LINEAR_PROJ, false, q, h, t, to + n);
	if (!experts)
		return n + feed_forward(m, false, (double)m->ffn_hidden, t, to + n);
	n += feed_forward(m, true, (double)m->moe_ffn, (double)m->etp, to + n);
	return m->moe_shared_ffn ? n + feed_forward(m, false, (double)m->moe_shared_ffn, t, to + n) : n;
}
