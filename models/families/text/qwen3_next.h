/* Gated delta nets: qwen3_next.c reads the configs and runs the layers, qwen3_next_mixer.c is the linear attention. */
#ifndef OOM_FAMILIES_QWEN3_NEXT_H
#define OOM_FAMILIES_QWEN3_NEXT_H

#include "blocks/decoder.h"
#include "blocks/mixers.h"

struct delta_net;
/* What the delta rule reads: queries, keys, values after their convolution, gate, and the inputs
 * of beta and the decay. */
struct delta_net_inputs {
	struct oom_val q, k, v, z, b, a;
};
typedef struct delta_net_inputs (*project_fn)(struct oom_frame *f, const struct delta_net *n,
				    struct oom_val x);

/* What sets the types apart. */
struct delta_net_kind {
	enum oom_norm norm;
	project_fn project;
	bool experts;           /* when the config has some */
	bool norm_topk;         /* whatever norm_topk_prob says */
	bool some_dense;        /* decoder_sparse_step and mlp_only_layers leave layers without */
	bool all_sparse;        /* no intermediate_size */
	bool three_axes;        /* positions for time, height and width of every sequence */
	bool gate_late;         /* of one value head a key head, copied out only after the rule */
	/* OLMo: attention layers with norms after them, queries and keys normed as a whole, no gate,
	 * positions only with a rope_theta; linear layers as wide as the heads where the config is
	 * silent, their decay in fp32 */
	bool olmo;
	double rotary;          /* share of a head that is rotated */
};

struct delta_net {
	uint64_t k_heads, v_heads, dk, dv, kernel;
	bool norm_topk, rope, neg_eigval;
};
OOM_OWN(delta_net, struct delta_net);

OOM_KIND(delta_net, struct delta_net_kind);

static inline struct oom_delta delta_net_rule(const struct delta_net *n)
{
	return (struct oom_delta){.k_heads = n->k_heads, .v_heads = n->v_heads, .dk = n->dk,
				  .dv = n->dv};
}

/* How the types come to the rule's inputs. */
struct delta_net_inputs delta_net_project_next(struct oom_frame *f, const struct delta_net *n, struct oom_val x);
struct delta_net_inputs delta_net_project_qwen35(struct oom_frame *f, const struct delta_net *n, struct oom_val x);
struct delta_net_inputs delta_net_project_olmo(struct oom_frame *f, const struct delta_net *n, struct oom_val x);
/* The layer's linear attention; consumes x. */
struct oom_val delta_net_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);

#endif
