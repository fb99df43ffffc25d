/* A plan in the files of training frameworks.
 *
 * What a format is written from are the rows it is read by, and every text is read back before it is
 * handed out: a knob that would come back as something else is named, never lost in silence. */
#ifndef OOMPLAN_EMIT_H
#define OOMPLAN_EMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "oomplan/gpu.h"
#include "oomplan/plan.h"
#include "oomplan/reading.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A format; NULL past the end. */
struct oom_emit_format {
	const char *name, *summary;
	const char *version;    /* of the framework whose keys are written, and how that was checked */
};
OOM_API const struct oom_emit_format *oom_emit_format_at(size_t i);

enum { OOM_EMIT_UNSAID_MAX = 24 };

struct oom_emitted {
	char *text;             /* owned, ends with a line */
	size_t size;
	/* knobs that the plan has and the text does not give back, "--vpp 2" */
	char unsaid[OOM_EMIT_UNSAID_MAX][96];
	size_t n_unsaid;
};

/* What a file says besides the plan. */
struct oom_emit_run {
	const char *model;      /* a hub id or a path; NULL: a placeholder stands for it, which is said */
	const struct oom_gpu *gpu;      /* NULL: not known; tasks of clouds then leave it open */
	/* a word for oom_keys_read_model: formats that describe a model by its dimensions take them from its
	 * config; NULL: they are left to be added */
	const char *config;
};

/* Writes the plan.  run: NULL: nothing is known.  OOM_ERR_UNKNOWN: no such format, with the nearest;
 * OOM_ERR_MEMORY.  oom_emitted_release gives it back. */
OOM_API enum oom_status oom_emit(const char *format, const struct oom_plan *plan,
				 const struct oom_emit_run *run, struct oom_emitted *out,
				 struct oom_error *err);
/* A card as SkyPilot's catalogue and dstack's gpuhunt call it: RTX4090, RTX6000-Ada (RTX6000Ada for
 * dstack), A6000, A100-80GB; returns out. */
OOM_API const char *oom_gpu_listed(const struct oom_gpu *gpu, bool sky, char out[80]);
/* What has to change in the files that were read for the plan `to`, which departs from `from`: a
 * unified diff, comments and order kept.  OOM_ERR_IO: a file cannot be read again. */
OOM_API enum oom_status oom_emit_patch(const struct oom_reading *reading, const struct oom_plan *from,
				       const struct oom_plan *to, struct oom_emitted *out,
				       struct oom_error *err);
/* Accepts zeroed. */
OOM_API void oom_emitted_release(struct oom_emitted *out);

#ifdef __cplusplus
}
#endif

#endif
