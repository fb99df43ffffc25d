/* Derivatives: what each operation's backward allocates.  One rule per kind of node, for backward.c's walk. */
#ifndef OOMPLAN_OPS_DERIVATIVES_H
#define OOMPLAN_OPS_DERIVATIVES_H

#include "ops.h"

/* A gradient on its way to an edge. */
struct grad {
	uint64_t width;
	int32_t sto;
	uint16_t mono;
	uint8_t dt;
	bool perm, given;
	bool gaps;              /* a view with gaps, or one that holds what it is a view of: nothing is added in place */
	bool own;               /* a view that no other branch has */
};

/* A new gradient. */
struct grad oom_grad_fresh(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width, uint8_t dt,
			   bool perm);
/* A gradient the size of the edge's tensor, in the type the arithmetic is done in. */
struct grad oom_grad_for_edge(struct oom_tape *t, const struct oom_node *n, int i, uint8_t dt);
/* The gradient that came, or a view of it. */
struct grad oom_grad_shared(struct oom_tape *t, const struct oom_node *n);
/* Whether something waits behind the edge. */
static inline bool oom_needs_grad(const struct oom_node *n, int i)
{
	return i < n->n_edge && n->edge[i].to != -1;
}

/* Makes g[i] for every edge that needs one: derivatives.c, of attention derivatives_attn.c, of losses
 * derivatives_loss.c.  NULL: the kind has none. */
typedef void oom_derivative_fn(struct oom_tape *t, struct oom_node *n, struct grad *g);
oom_derivative_fn *oom_derivative_of(enum oom_node_kind kind);

oom_derivative_fn oom_derive_flash, oom_derive_efficient, oom_derive_traced, oom_derive_cumulation;
oom_derivative_fn oom_derive_embedding, oom_derive_pick, oom_derive_rows, oom_derive_in_view, oom_derive_smooth, oom_derive_chunked,
	oom_derive_cut, oom_derive_liger_rms, oom_derive_log_add, oom_derive_fast_lora;

#endif
