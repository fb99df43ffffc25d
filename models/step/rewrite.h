/* Rewriting the events of a step: what a sharded engine or an offload adds to each layer.
 *
 * A pass is called at those places of a stream where it may act.  It adds rows of its own and events over any
 * row, and it may take over an event of the stream. */
#ifndef OOM_REWRITE_H
#define OOM_REWRITE_H

#include "oomplan/plan.h"
#include "tape/tape.h"

struct oom_rewrite;

/* The places at which a pass is called, in the order in which they occur.  NULL: it does nothing there. */
struct oom_hooks {
	/* before a stream's first event, and after its last */
	void (*begin)(struct oom_rewrite *w);
	void (*end)(struct oom_rewrite *w);
	/* before a stream's first layer, of however many equal ones */
	void (*layers)(struct oom_rewrite *w);
	/* where a layer begins or ends; unit counts from 0 */
	void (*unit_begin)(struct oom_rewrite *w, size_t unit);
	void (*unit_end)(struct oom_rewrite *w, size_t unit);
	/* where the gradient of a parameter, in this row, is complete */
	void (*grad)(struct oom_rewrite *w, int32_t row);
	/* where the stream is about to free a recorded row; with false it stays, and the pass must free it */
	bool (*freed)(struct oom_rewrite *w, int32_t row);
};

/* A rewriting in progress.  A pass keeps what it needs between calls in `own`. */
struct oom_rewrite {
	const struct oom_tape *from;
	/* the rows of `from`, which stay as they are and may lie there still, and new ones; its streams grow */
	struct oom_tape *to;
	const struct oom_plan *plan;
	enum oom_stream_id stream;
	int64_t unit;                   /* the layer the stream is in, or -1 */
	/* for each row of `from`: 1 + the layer to whose parameter this gradient belongs, or 0 */
	uint32_t *unit_of_grad;
	/* what is only made when it is asked for, below; NULL before */
	uint32_t *kept, *handed;
	bool *late;
	void *own;
	enum oom_status status;
};

/* Adds a row of `bytes` (before sharding), which only the pass allocates and frees.  name is static. */
int32_t oom_rewrite_row(struct oom_rewrite *w, const char *name, uint64_t bytes, enum oom_cat cat,
			enum oom_share share);
/* Adds a row of the same size as this row of `from`. */
int32_t oom_rewrite_copy(struct oom_rewrite *w, int32_t row);
void oom_rewrite_event(struct oom_rewrite *w, int32_t row, enum oom_event_kind kind);

/* For each row of `from`, the pass's own to change; NULL, and an error in status: out of host memory.
 * kept: 1 + the layer that allocated it, if a layer keeps it for the backward pass; otherwise 0.
 * late: allocated in the forward pass after the layers.
 * handed: 1 + the layer whose backward pass made it for that of an earlier layer, which is the gradient
 * of the layer's input; otherwise 0. */
uint32_t *oom_rewrite_kept(struct oom_rewrite *w);
bool *oom_rewrite_late(struct oom_rewrite *w);
uint32_t *oom_rewrite_handed(struct oom_rewrite *w);

/* Copies `from` into the empty tape `to` and inserts the events of the hooks.  The pass gets `own` bytes of
 * zeroed memory.  The caller releases *to with oom_rewrite_release. */
enum oom_status oom_rewrite(const struct oom_tape *from, struct oom_tape *to,
			    const struct oom_plan *plan, const struct oom_hooks *hooks,
			    size_t own);
void oom_rewrite_release(struct oom_tape *to);

#endif
