/* What projectors of image features share. */
#ifndef OOM_PROJECTOR_H
#define OOM_PROJECTOR_H

#include "vision.h"

/* A linear layer of the projector, which adapters choose apart from the tower's. */
struct oom_val oom_project(struct oom_emit *e, const char *name, struct oom_val x, uint64_t out,
			   bool bias);
/* second(act(first(x))), both `out` wide. */
struct oom_val oom_project_norm(struct oom_emit *e, enum oom_norm norm, const char *name, struct oom_val x);
struct oom_val oom_project_twice(struct oom_emit *e, const char *first, const char *second,
				 enum oom_act act, struct oom_val x, uint64_t out, bool bias);
/* projector_hidden_act */
enum oom_act oom_projector_act(struct oom_emit *e);
/* hidden_states[key]: w runs up to the last layer asked for, a number or a list, and no norm comes
 * behind it. */
void oom_used_layers(struct oom_emit *e, struct oom_tower *w, const char *key, double def);
/* How many layers' features that are. */
uint64_t oom_feature_layers(struct oom_emit *e, const char *key);
/* The features of so many layers side by side. */
struct oom_val oom_side_by_side(struct oom_tape *t, struct oom_val x, uint64_t layers);

#endif
