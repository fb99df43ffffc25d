/* A plan written as the files of training frameworks.
 *
 * A format is written from the same rows by which it is read, and every text is read back before it is
 * returned.  A knob that would come back as something else is named, never lost silently. */
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

/* A format that can be written. */
struct oom_emit_format {
	const char *name, *summary;
	const char *version;    /* the framework's version whose keys are written, and how they were checked */
};
OOM_API const struct oom_emit_format *oom_emit_format_at(size_t i);
/* The framework that runs what is written in this format (oom_framework_name); NULL: there is no such format,
 * or others run it. */
OOM_API const char *oom_emit_framework(const char *format);

enum { OOM_EMIT_UNSAID_MAX = 24 };

struct oom_emitted {
	char *text;             /* owned; ends with a newline */
	size_t size;
	/* knobs of the plan that the text does not give back, such as "--vpp 2" */
	char unsaid[OOM_EMIT_UNSAID_MAX][192];
	size_t n_unsaid;
	/* knobs in whose place the text gives what needs no more, such as "--attn sdpa: flash is what runs"; no loss */
	char spared[OOM_EMIT_UNSAID_MAX][192];
	size_t n_spared;
};

/* What a file says in addition to the plan. */
struct oom_emit_run {
	const char *model;      /* a hub id or a path; NULL: a placeholder is written and named */
	const struct oom_gpu *gpu;      /* NULL: unknown, and cloud tasks leave the card open */
	/* a word for oom_keys_read_model: formats that describe a model by its dimensions take them from this
	 * config; NULL: the user has to add them */
	const char *config;
	/* the files that the plan was read from, if any: an objective of theirs that no plan has, so that another one was priced
	 * and is written, is named as unsaid */
	const struct oom_reading *reading;
};

/* Writes the plan.  run may be NULL if nothing is known about it.  OOM_ERR_UNKNOWN: there is no such format,
 * and the text names the nearest; OOM_ERR_MEMORY.  The caller calls oom_emitted_release. */
OOM_API enum oom_status oom_emit(const char *format, const struct oom_plan *plan,
				 const struct oom_emit_run *run, struct oom_emitted *out,
				 struct oom_error *err);
/* True if Megatron-LM's pretrain_gpt.py builds this model type from arguments. */
OOM_API bool oom_emit_megatron_builds(const char *model_type);
/* Writes a card's name in SkyPilot's catalogue (sky), or otherwise in gpuhunt's, which dstack uses: RTX4090,
 * RTX6000-Ada (dstack: RTX6000Ada), A6000, A100-80GB.  Returns out. */
OOM_API const char *oom_gpu_listed(const struct oom_gpu *gpu, bool sky, char out[80]);
/* Writes the changes that turn the files that were read, which say `from`, into files that say `to`: a
 * unified diff that keeps comments and order.  OOM_ERR_IO: a file cannot be read again. */
OOM_API enum oom_status oom_emit_patch(const struct oom_reading *reading, const struct oom_plan *from,
				       const struct oom_plan *to, struct oom_emitted *out,
				       struct oom_error *err);
/* Frees the text.  A zeroed struct is accepted. */
OOM_API void oom_emitted_release(struct oom_emitted *out);

#ifdef __cplusplus
}
#endif

#endif
