/* device_map="auto": a model's layers over several GPUs that work in turn. */
#ifndef OOM_DEVICE_MAP_H
#define OOM_DEVICE_MAP_H

#include "program.h"

/* The fullest GPU of plan->gpus into out, which already holds what the whole model counts.  g's
 * thirds are those of the batch; inputs: its bytes; at: the phase whose composition is wanted, or
 * 0 for the peak's. */
void oom_device_map(const struct program *g, const struct oom_arch *arch,
		    const struct oom_plan *plan, uint64_t inputs,
		    const struct oom_state_sums *state, enum oom_phase at, struct oom_eval *out);

#endif
