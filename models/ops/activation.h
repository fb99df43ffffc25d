/* Activations by the word that a config has for them. */
#ifndef OOM_ACTIVATION_H
#define OOM_ACTIVATION_H

#include "config/arch.h"
#include "ops.h"

struct oom_val oom_activation(struct oom_tape *t, enum oom_act act, struct oom_val x);

#endif
