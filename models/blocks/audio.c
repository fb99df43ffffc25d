/* Gated linear units and the features of audio.  Saved for backward (tools/autograd/derivatives.yaml): glu its input. */
#include "audio.h"

struct oom_val oom_op_glu(struct oom_tape *t, struct oom_val x)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	/* its gradient is one tensor of the input's size, as a gather's */
	if (rg) {
		n = oom_node(t, OOM_NODE_GATHER, "glu");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, x);
	}
	y = oom_new(t, "glu", x.mono, (struct oom_dim){x.width / 2, NULL}, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_features(struct oom_tape *t, const struct oom_arch *a, uint16_t mono)
{
	return oom_input(t, "input_features", mono, a->frame, oom_loaded_dtype(t->plan));
}
