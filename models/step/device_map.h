/* device_map="auto": a model's layers over several GPUs that work in turn. */
#ifndef OOM_DEVICE_MAP_H
#define OOM_DEVICE_MAP_H

#include "step/phases.h"
#include "step/program.h"

/* The fullest GPU of plan->gpus into out (and alive, where it is wanted), its schedule into `fullest`.  whole:
 * the schedule of the undivided model; v: its streams, cut into thirds at the batch. */
void oom_device_map(const struct program *g, const struct oom_variant *v,
		    const struct oom_arch *arch, const struct oom_plan *plan,
		    const struct oom_schedule *whole, const uint64_t *size, struct oom_eval *out,
		    struct oom_alive *alive, struct oom_schedule *fullest);

#endif
