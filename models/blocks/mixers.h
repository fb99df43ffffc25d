/* Token mixers other than softmax attention, as transformers writes them in PyTorch: Mamba 2's
 * chunked scan, Mamba's selective scan, the gated delta rule. */
#ifndef OOM_MIXERS_H
#define OOM_MIXERS_H

#include "blocks.h"
#include "ops/scan.h"

/* Python locals: references given up when the function returns. */
enum { OOM_MAX_LOCALS = 48 };
struct oom_hold {
	struct oom_val v[OOM_MAX_LOCALS];
	int n;
};
static inline struct oom_val oom_hold(struct oom_tape *t, struct oom_hold *h, struct oom_val x)
{
	if (h->n == OOM_MAX_LOCALS)
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s: a function with more than %d named tensors",
			      t->scope, OOM_MAX_LOCALS);
	else
		h->v[h->n++] = oom_share(t, x);
	return x;
}
static inline void oom_release(struct oom_tape *t, struct oom_hold *h)
{
	while (h->n)
		oom_drop(t, h->v[--h->n]);
}

/* ---- mixers; each consumes x [b, s, d_model] and returns the same ---- */

enum oom_gated_norm {
	OOM_GATED_RMS,          /* norm(y * silu(gate)), in fp32 */
	OOM_GATED_RMS_GROUPS,   /* the same with statistics of every group */
	OOM_GATED_PLAIN,        /* y * silu(gate) (Falcon-H1) */
	OOM_GATED_BEFORE,       /* norm(y) * silu(gate) (Falcon-H1) */
	OOM_GATED_AFTER,        /* norm(y * silu(gate)), silu of the gate (Falcon-H1) */
};
/* Mamba 2 (ssd.c). */
struct oom_ssd {
	const char *module;             /* its name; NULL: "mixer" */
	uint64_t inner, heads, d_head, d_state, groups, kernel, chunk;
	bool bias, out_bias, conv_bias, scaled;         /* scaled: Falcon-H1's multipliers */
	bool mask_any_batch;            /* the padding mask is applied to a batch of one too */
	/* hidden_states is the name of the convolution's result and of its first part */
	bool name_taken_over;
	bool mask_twice;                /* and once more by the module's forward */
	enum oom_gated_norm norm;
	enum oom_act act;
};
/* Reads what cannot be too large out of a parsed mixer; false and a message otherwise. */
bool oom_ssd_check(struct oom_reader *r, const struct oom_ssd *m);
struct oom_val oom_ssd_mixer(struct oom_tape *t, const struct oom_ssd *m, struct oom_val x);

/* all_h of `_, all_h = associative_scan(combine_fn, (a, b), dim=2)` (scan.c).  a and b,
 * [b, d_inner, s, d_state], stay the caller's; what its names keep goes to held. */
struct oom_val oom_associative_scan(struct oom_tape *t, struct oom_val a, struct oom_val b,
				    struct oom_frame *held);

/* Mamba (selective.c). */
struct oom_selective {
	const char *module;             /* its name; NULL: "mixer" */
	uint64_t inner, d_state, rank, kernel, heads;
	bool by_head;                   /* bare weights of every head, A in fp32 (Zamba) */
	bool bias, conv_bias;
	bool associative;               /* an associative scan, not a loop over the tokens */
	bool normed;                    /* time steps, B and C by `norm` */
	enum oom_norm norm;
	enum oom_act act;
};
/* The rank of the time steps by a key: a sixteenth of the width unless the config gives a number. */
uint64_t oom_read_dt_rank(struct oom_arch *a, const char *key);
bool oom_selective_check(struct oom_reader *r, const struct oom_selective *m);
struct oom_val oom_selective_mixer(struct oom_tape *t, const struct oom_selective *m,
				   struct oom_val x);

/* The gated delta rule (delta.c): queries, keys, values after their convolution, and gates.  g and
 * beta have one element per value head. */
struct oom_delta {
	uint64_t k_heads, v_heads, dk, dv;
};
bool oom_delta_check(struct oom_reader *r, const struct oom_delta *m, uint64_t kernel);
struct oom_val oom_delta_rule(struct oom_tape *t, const struct oom_delta *m, struct oom_val q,
			      struct oom_val k, struct oom_val v, struct oom_val g,
			      struct oom_val beta);
/* RMS norm of every head times silu(gate) in fp32, back in y's type (Qwen3-Next). */
struct oom_val oom_delta_norm(struct oom_tape *t, const char *name, struct oom_val y,
			      struct oom_val gate, uint64_t dv);

/* x * mask[:, :, None], when there is padding and (unless any_batch) more than one sequence. */
struct oom_val oom_mask_padding(struct oom_tape *t, struct oom_val x, bool any_batch);
/* Depthwise convolution over the sequence with kernel - 1 tokens of padding on both sides, cut to
 * the sequence, and its activation. */
struct oom_val oom_short_conv(struct oom_tape *t, const char *name, struct oom_val x,
			      uint64_t kernel, bool bias, enum oom_act act);

/* Says that PEFT refuses adapters on `out_proj` of this type (tuners_utils.py,
 * _check_lora_target_modules_mamba). */
void oom_mamba_adapters(struct oom_tape *t);

#endif
