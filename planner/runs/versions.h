/* A runs file's column `framework`: libraries and their versions in a sentence. */
#ifndef OOM_RUN_VERSIONS_H
#define OOM_RUN_VERSIONS_H

#include "oomplan/plan.h"
#include "oomplan/status.h"

/* Sets the versions that `text` names: "transformers==4.45.2 torch 2.4.0+cu121; peft-0.12".  Names that stand for no
 * knob say nothing; OOM_ERR_INVALID where the version of one that does cannot be read. */
enum oom_status oom_run_versions(struct oom_plan *plan, const char *text, struct oom_error *err);

#endif
