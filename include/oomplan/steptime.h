/* How long a step takes, as a ledger of named parts.
 *
 * The time is an estimate with an interval.  models/step/time/README.md says what it was compared with and how
 * far it was off.  The parameters of a class of cards are fitted to throughputs that others published,
 * never to a single row. */
#ifndef OOMPLAN_STEPTIME_H
#define OOMPLAN_STEPTIME_H

#include "oomplan/gpu.h"
#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What limits the speed of a step. */
#define OOM_BOUNDS(X) \
	X(OOM_BOUND_COMPUTE, "compute") \
	X(OOM_BOUND_HBM, "HBM") \
	X(OOM_BOUND_LAUNCHES, "launches") \
	X(OOM_BOUND_NETWORK, "network") \
	X(OOM_BOUND_BUBBLE, "bubble") \
	X(OOM_BOUND_PCIE, "PCIe")

/* The parts of a step's time: X(id, name, what limits it, what it is). */
#define OOM_TIME_PARTS(X) \
	X(OOM_TIME_PRODUCTS, "products", OOM_BOUND_COMPUTE, \
	  "matrix products with weights: forward, backward, recomputation") \
	X(OOM_TIME_ATTENTION, "attention", OOM_BOUND_COMPUTE, "scores and their products") \
	X(OOM_TIME_TRAFFIC, "traffic", OOM_BOUND_HBM, \
	  "point-wise kernels, norms, losses: bytes read and written") \
	X(OOM_TIME_UNPACKING, "unpacking", OOM_BOUND_HBM, "4-bit weights made whole") \
	X(OOM_TIME_LAUNCHES, "launches", OOM_BOUND_LAUNCHES, \
	  "waiting for kernels to be launched, beyond what the card computes meanwhile") \
	X(OOM_TIME_TENSOR, "tensor-parallel", OOM_BOUND_NETWORK, \
	  "hidden states summed over tensor-parallel ranks") \
	X(OOM_TIME_EXPERT, "expert-parallel", OOM_BOUND_NETWORK, "tokens sent to their experts") \
	X(OOM_TIME_CONTEXT, "context-parallel", OOM_BOUND_NETWORK, \
	  "keys and values exchanged, beyond what attention hides") \
	X(OOM_TIME_PIPELINE, "pipeline", OOM_BOUND_NETWORK, "hidden states between stages") \
	X(OOM_TIME_BUBBLE, "bubble", OOM_BOUND_BUBBLE, "stages that wait for the first, and the last") \
	X(OOM_TIME_GRADIENTS, "data-parallel", OOM_BOUND_NETWORK, \
	  "gradients reduced and weights gathered, beyond what computation hides") \
	X(OOM_TIME_OPTIMIZER, "optimizer", OOM_BOUND_HBM, "the update: weights, gradients, states") \
	X(OOM_TIME_HOST, "host", OOM_BOUND_PCIE, \
	  "what is offloaded or paged, over PCIe or from disk, and the update on the CPU")

#define OOM_BOUND_ID(id, word) id,
enum oom_bound { OOM_BOUNDS(OOM_BOUND_ID) OOM_BOUND_COUNT };
#undef OOM_BOUND_ID
#define OOM_TIME_ID(id, name, bound, summary) id,
enum oom_time_part { OOM_TIME_PARTS(OOM_TIME_ID) OOM_TIME_PART_COUNT };
#undef OOM_TIME_ID

struct oom_step_time {
	double part_s[OOM_TIME_PART_COUNT];     /* of one optimizer step; the sum is total_s */
	double total_s;
	/* a share OOM_STEP_COVERAGE of measured steps should lie between these */
	double low_s, high_s;
	double samples_per_s;           /* over all GPUs */
	/* Model-FLOPs utilisation: the share of the GPUs' 16-bit peak (32-bit if the run computes in that)
	 * that the model itself needs.  Recomputation does not count, nor does the masked half of causal
	 * attention. */
	double mfu;
	enum oom_bound binds;           /* what most of the time is spent on */
};
/* The share of steps that the interval is meant to contain. */
#define OOM_STEP_COVERAGE 0.85

/* The time of an evaluated plan's step.  If gpu is NULL an A100's numbers are used, which still ranks the
 * plans for one card. */
OOM_API struct oom_step_time oom_step_time(const struct oom_plan *plan, const struct oom_eval *eval,
					   const struct oom_gpu *gpu);
/* A factor above 1: two plans for one question whose times differ by less than it cannot be told apart. */
OOM_API double oom_step_time_interval(const struct oom_plan *plan);
/* The tokens of a sample, or 1 if samples are not sequences; samples_per_s times this is tokens per
 * second. */
OOM_API double oom_step_tokens(const struct oom_plan *plan);

/* How a part is computed.  The texts are static, except inputs.  A part that takes no time has a row too. */
struct oom_time_row {
	enum oom_time_part part;
	double seconds;                 /* oom_step_time's part_s */
	const char *formula, *source;
	char inputs[256];
};
OOM_API void oom_step_time_explain(const struct oom_plan *plan, const struct oom_eval *eval,
				   const struct oom_gpu *gpu,
				   struct oom_time_row rows[OOM_TIME_PART_COUNT]);
/* Names of bounds ("compute", ...) and of parts ("products", ...), and what limits and is a part. */
OOM_API const char *oom_bound_str(enum oom_bound bound);
OOM_API const char *oom_time_part_str(enum oom_time_part part);
OOM_API enum oom_bound oom_time_part_bound(enum oom_time_part part);
OOM_API const char *oom_time_part_summary(enum oom_time_part part);

#ifdef __cplusplus
}
#endif

#endif
