/* What PEFT puts beside a layer: one descriptor for every kind of adapter (adapters.c lists them).
 *
 * A layer y = x W^T + b of `in` x `out` is wrapped.  `before` makes another x of x on its way in, `after`
 * another y of y; either may be absent.  What is trained are the layer's parameters p[0], p[1], ... of
 * the descriptor's `params`.  Nobody outside models/ops asks which kind it is. */
#ifndef OOM_ADAPTERS_H
#define OOM_ADAPTERS_H

#include "ops.h"

struct oom_adapter {
	/* What is trained beside a layer called name; returns how many.  NULL: nothing is. */
	size_t (*params)(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			 struct oom_adapter_param q[OOM_ADAPTER_PARAMS]);
	/* Consume what they are given.  x of `after` is the layer's argument before any cast. */
	struct oom_val (*before)(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
	struct oom_val (*after)(struct oom_tape *t, struct oom_val x, struct oom_val y,
				const struct oom_linear *l);
	/* The layer with another weight in the place of its own, bias included; NULL: the layer's own product runs.  x is
	 * consumed. */
	struct oom_val (*instead)(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
	/* over a base of few bits; NULL: as over any other */
	struct oom_val (*after_quantised)(struct oom_tape *t, struct oom_val x, struct oom_val y,
					  const struct oom_linear *l);
	/* which modules beside linear layers PEFT wraps with it */
	bool embeddings, convolutions;
	bool attention;         /* attention modules instead of layers (blocks/llama_adapter.c) */
	bool banked;            /* a bank of vectors that all layers share (oom_bank_made) */
	bool cached;            /* trained keys and values come in a cache (oom_prefix_made) */
	bool norms;             /* norms instead of layers (oom_norm_param) */
	bool regularised;       /* a term of the loss is of the adapters alone */
	bool shared;            /* buffers that all layers share (oom_adapter_shared) */
	bool parameters;        /* stacked experts and routers, by their old names (lora_param.c) */
};

/* The plan's; of no meaning where it has no adapters. */
const struct oom_adapter *oom_adapter_of(const struct oom_plan *p);

/* Whether the layer being recorded is one of layers-to-transform. */
bool oom_adapter_here(const struct oom_tape *t);

/* ---- the kinds, each beside what it does ---- */

extern const struct oom_adapter oom_adapter_lora, oom_adapter_dora, oom_adapter_adalora,
	oom_adapter_ia3, oom_adapter_vera, oom_adapter_miss, oom_adapter_loha, oom_adapter_lokr,
	oom_adapter_fourier, oom_adapter_oft, oom_adapter_hra, oom_adapter_prompt, oom_adapter_prefix,
	oom_adapter_norms, oom_adapter_bank, oom_adapter_boft, oom_adapter_adaption;

/* B(A(x)) of LoRA's two matrices, p[0] and p[1]; x consumed. */
struct oom_val oom_lora_through(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
/* What DoRA makes of y, the lookup in a table, and of the same ids in A and B; y consumed. */
struct oom_val oom_dora_lookup(struct oom_tape *t, struct oom_val y,
			       const struct oom_embedding_adapter *e);
/* What DoRA adds to y, the base layer's result; both stay the caller's. */
struct oom_val oom_dora_delta(struct oom_tape *t, struct oom_val x, struct oom_val y,
			      const struct oom_linear *l);

#endif
