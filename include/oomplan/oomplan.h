/* All of the library: #include <oomplan/oomplan.h>.
 *
 * Threads.  The library keeps no state of its own: there is nothing to initialise, and two calls
 * that share no argument never meet.  What is passed as a pointer to const is only read; a model,
 * its keys, and the tables of GPUs, offers or measurements may be read by any number of threads at
 * once, as long as nobody frees them.  What is passed otherwise belongs to one call at a time: above
 * all the evaluator, of which each thread makes its own. */
#ifndef OOMPLAN_OOMPLAN_H
#define OOMPLAN_OOMPLAN_H

#include "oomplan/answer.h"
#include "oomplan/box.h"
#include "oomplan/calibrate.h"
#include "oomplan/choices.h"
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
