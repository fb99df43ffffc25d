/* The table of adapters, and how a layer gets its own. */
#include "adapters.h"

static const struct oom_adapter *const kinds[] = {
	[OOM_ADAPTER_LORA] = &oom_adapter_lora,
	[OOM_ADAPTER_DORA] = &oom_adapter_dora,
	[OOM_ADAPTER_ADALORA] = &oom_adapter_adalora,
	[OOM_ADAPTER_IA3] = &oom_adapter_ia3,
	[OOM_ADAPTER_VERA] = &oom_adapter_vera,
	[OOM_ADAPTER_MISS] = &oom_adapter_miss,
	[OOM_ADAPTER_LOHA] = &oom_adapter_loha,
	[OOM_ADAPTER_LOKR] = &oom_adapter_lokr,
	[OOM_ADAPTER_FOURIER] = &oom_adapter_fourier,
	[OOM_ADAPTER_OFT] = &oom_adapter_oft,
	[OOM_ADAPTER_HRA] = &oom_adapter_hra,
	[OOM_ADAPTER_VBLORA] = &oom_adapter_bank,
	[OOM_ADAPTER_BOFT] = &oom_adapter_boft,
	[OOM_ADAPTER_PROMPT] = &oom_adapter_prompt,
	[OOM_ADAPTER_P_TUNING] = &oom_adapter_prompt,
	[OOM_ADAPTER_ADAPTION] = &oom_adapter_adaption,
	[OOM_ADAPTER_PREFIX] = &oom_adapter_prefix,
	[OOM_ADAPTER_LN_TUNING] = &oom_adapter_norms,
};

const struct oom_adapter *oom_adapter_of(const struct oom_plan *p)
{
	return kinds[oom_plan_adapter(p)];
}

size_t oom_adapter_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  unsigned flags, struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const struct oom_adapter *a = oom_adapter_of(t->plan);

	if (!a->params || !oom_lora_adapts(t, name, flags))
		return 0;
	return a->params(t, name, in, out, q);
}

struct oom_val oom_adapter_weight(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols, uint32_t flags)
{
	const struct oom_val w = oom_param(t, name, rows, cols, flags);

	for (int64_t i = 0; i < t->plan->idle_adapters; i++)
		oom_drop(t, oom_param(t, name, rows, cols, flags | OOM_P_IDLE | OOM_P_UNUSED));
	return w;
}

void oom_adapter_open(struct oom_tape *t, struct oom_linear *l, uint32_t more)
{
	struct oom_adapter_param q[OOM_ADAPTER_PARAMS];
	const size_t n = oom_adapter_params(t, l->name, l->in, l->out.n, l->flags, q);

	/* PEFT copies whatever module is named; of linear layers that is not modelled, and said */
	if (oom_adapter_of(t->plan)->norms && !oom_lora_takes_all(t) &&
	    oom_lora_adapts(t, l->name, l->flags) && !t->status)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "lora-targets: ln-tuning is priced for norms, %s is a linear layer; "
			      "--modules-to-save trains a copy of it", l->name);
	if (n && oom_adapter_of(t->plan)->instead && oom_plan_quantised(t->plan) && !t->status)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "peft-type: this kind works on whole weights, and PEFT has no layer of it over a base of few bits");
	l->adapter = n ? oom_adapter_of(t->plan) : NULL;
	for (size_t i = 0; i < n; i++)
		l->p[i] = oom_adapter_weight(t, q[i].name, q[i].rows, q[i].cols,
					     (q[i].flags & OOM_P_FROZEN ? 0 : OOM_P_LORA) | q[i].flags | more);
	if (n && l->adapter->shared) {
		t->shared_in = t->shared_in > l->in ? t->shared_in : l->in;
		t->shared_out = t->shared_out > l->out.n ? t->shared_out : l->out.n;
	}
}

/* VeRA's two matrices fit the widest layers; in fp32 (peft/tuners/vera/model.py). */
void oom_adapter_shared(struct oom_tape *t)
{
	const uint64_t r = (uint64_t)t->plan->lora_r;
	const enum oom_stream_id stream = t->stream;

	if (!t->shared_in || !oom_adapter_of(t->plan)->shared)
		return;
	t->stream = OOM_STREAM_FWD;             /* where buffers are counted */
	oom_buffer(t, r * t->shared_in, OOM_F32);
	oom_buffer(t, r * t->shared_out, OOM_F32);
	t->stream = stream;
}

struct oom_val oom_adapter_before(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	return l->adapter->before ? l->adapter->before(t, x, l) : x;
}

bool oom_adapter_replaces(const struct oom_linear *l)
{
	return l->adapter && l->adapter->instead;
}

struct oom_val oom_adapter_instead(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	return l->adapter->instead(t, x, l);
}

struct oom_val oom_adapter_after(struct oom_tape *t, struct oom_val x, struct oom_val y,
				 const struct oom_linear *l, bool quantised)
{
	const struct oom_adapter *a = l->adapter;

	if (quantised && a->after_quantised)
		return a->after_quantised(t, x, y, l);
	if (a->after)
		return a->after(t, x, y, l);
	oom_drop(t, x);
	return y;
}
