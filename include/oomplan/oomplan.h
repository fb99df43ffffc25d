/* The whole library: #include <oomplan/oomplan.h>.
 *
 * Threads.  The library has no state of its own: there is nothing to initialise, and calls that share no
 * argument do not affect each other.  Arguments that are pointers to const are only read: any number of
 * threads may read a model, its keys, or a table of GPUs, offers or measurements at the same time, as long
 * as none of them frees it.  Other arguments belong to one call at a time.  Above all, each thread makes an
 * evaluator of its own. */
#ifndef OOMPLAN_OOMPLAN_H
#define OOMPLAN_OOMPLAN_H

#include "oomplan/answer.h"
#include "oomplan/box.h"
#include "oomplan/calibrate.h"
#include "oomplan/choices.h"
#include "oomplan/choices_adapters.h"
#include "oomplan/choices_machines.h"
#include "oomplan/choices_objective.h"
#include "oomplan/compare.h"
#include "oomplan/compat.h"
#include "oomplan/config.h"
#include "oomplan/diagnose.h"
#include "oomplan/emit.h"
#include "oomplan/engine.h"
#include "oomplan/gpu.h"
#include "oomplan/host.h"
#include "oomplan/ladder.h"
#include "oomplan/lengths.h"
#include "oomplan/lore.h"
#include "oomplan/megatron.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "oomplan/plan.h"
#include "oomplan/priced.h"
#include "oomplan/reading.h"
#include "oomplan/rules.h"
#include "oomplan/runs.h"
#include "oomplan/safetensors.h"
#include "oomplan/search.h"
#include "oomplan/snapshot.h"
#include "oomplan/status.h"
#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "oomplan/units.h"

#endif
