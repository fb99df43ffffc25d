/* Models called in a step: the trained one as its objective calls it, and others beside it. */
#ifndef OOM_MODEL_CALLS_H
#define OOM_MODEL_CALLS_H

#include "step/objectives.h"

struct oom_called {
	struct oom_val loss, logits;    /* logits: only where they are worked on */
};

/* One forward pass of a model; labels: it gets some and makes a loss of its own; wanted: its logits are
 * worked on. */
struct oom_called oom_call(struct oom_tape *t, const struct oom_arch *a, bool train, bool labels, bool wanted);
/* The logits of another model, without a graph: a second one in evaluation (OOM_REF_MODEL), whose weights then
 * lie beside, or the trained one without its adapters (OOM_REF_ADAPTER). */
struct oom_val oom_other_logits(struct oom_tape *t, const struct oom_arch *a, enum oom_reference ref);

/* A critic: a classifier of one number on the trained model's architecture, whole and without checkpointing,
 * trained beside it; its number per sequence.  A reward model of its kind lies beside, without a graph. */
struct oom_val oom_critic(struct oom_tape *t, const struct oom_arch *a);
/* A frozen copy of the parameters from `from` on, without adapters, lies beside the trained models. */
void oom_copy_beside(struct oom_tape *t, size_t from);

#endif
