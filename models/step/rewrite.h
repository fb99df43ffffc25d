/* Rewriting the events of a step: what a sharded engine or an offload adds to each layer.
 *
 * A pass is asked at the places of a stream where it may act, adds rows of its own and events over
 * any row, and may take over an event of the stream. */
#ifndef OOM_REWRITE_H
#define OOM_REWRITE_H

#include "oomplan/plan.h"
#include "tape/tape.h"

struct oom_rewrite;

/* The places of a stream, in the order in which they are met.  NULL: the pass has nothing there. */
struct oom_hooks {
	/* before a stream's first event, and after its last */
	void (*begin)(struct oom_rewrite *w);
	void (*end)(struct oom_rewrite *w);
	/* a layer begins or ends; unit counts from 0 */
	void (*unit_begin)(struct oom_rewrite *w, size_t unit);
	void (*unit_end)(struct oom_rewrite *w, size_t unit);
	/* the gradient of a parameter is whole; its row */
	void (*grad)(struct oom_rewrite *w, int32_t row);
	/* the stream is about to free a row of the recording; false: it stays, and is the pass's to
	 * free */
	bool (*freed)(struct oom_rewrite *w, int32_t row);
};

/* A rewriting under way.  A pass keeps what it needs between hooks in `own`. */
struct oom_rewrite {
	const struct oom_tape *from;
	struct oom_tape *to;            /* rows of `from` and new ones; streams grow */
	const struct oom_plan *plan;
	enum oom_stream_id stream;
	int64_t unit;                   /* the layer the stream is in, or -1 */
	/* by row of `from`: 1 + the layer whose parameter's gradient it is; 0: of none, or outside */
	uint32_t *unit_of_grad;
	/* by row of `from`: 1 + the layer in which it was born, of what a layer keeps for the
	 * backward pass; 0: of all else */
	uint32_t *kept;
	/* by row of `from`: 1 + the layer whose backward made it and left it to an earlier layer's: the
	 * gradient of the layer's input; 0: of all else */
	bool *late;             /* born in the forward, behind the layers */
	uint32_t *handed;
	void *own;
	enum oom_status status;
};

/* A new row of `bytes` (before they are shared), alive at nobody's behest but the pass's; name is
 * static. */
int32_t oom_rewrite_row(struct oom_rewrite *w, const char *name, uint64_t bytes, enum oom_cat cat,
			enum oom_share share);
/* A new row as large as this one of `from`. */
int32_t oom_rewrite_copy(struct oom_rewrite *w, int32_t row);
void oom_rewrite_event(struct oom_rewrite *w, int32_t row, enum oom_event_kind kind);

/* Copies `from` into the empty tape `to` with the hooks' events put in; own: zeroed memory of that
 * size for the pass.  *to is released with oom_rewrite_release. */
enum oom_status oom_rewrite(const struct oom_tape *from, struct oom_tape *to,
			    const struct oom_plan *plan, const struct oom_hooks *hooks,
			    size_t own);
void oom_rewrite_release(struct oom_tape *to);

#endif
