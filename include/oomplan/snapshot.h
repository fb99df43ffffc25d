/* What a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) says: who held the memory
 * when most of it was held. */
#ifndef OOMPLAN_SNAPSHOT_H
#define OOMPLAN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the frames of an allocation say it is for.  BEFORE: older than the recording, most often the
 * weights; NO_FRAMES: allocated while recording, by a thread without Python frames, most often
 * autograd's. */
enum oom_held {
	OOM_HELD_BEFORE, OOM_HELD_PARAMS, OOM_HELD_INPUTS, OOM_HELD_GRADS, OOM_HELD_OPT,
	OOM_HELD_FORWARD, OOM_HELD_LOSS, OOM_HELD_RECOMPUTE, OOM_HELD_BACKWARD, OOM_HELD_COMM,
	OOM_HELD_OTHER, OOM_HELD_NO_FRAMES, OOM_HELD_KINDS
};
/* "parameters", ... and the word of the JSON report, "params". */
OOM_API const char *oom_held_str(enum oom_held held);
OOM_API const char *oom_held_column(enum oom_held held);

enum { OOM_SNAPSHOT_FRAMES = 16, OOM_SNAPSHOT_POINTS = 120, OOM_SNAPSHOT_DEVICES = 16 };
/* Bytes are as the program asked for them: the allocator rounds each up to 512 bytes. */
struct oom_snapshot {
	/* of n_devices the one whose last refusal was recorded, else the one that held most */
	int64_t device;
	size_t n_devices;
	/* those that recorded or held anything, in their order, up to 16 */
	struct oom_snapshot_device {
		int64_t device;
		uint64_t peak_bytes;
		bool oom;               /* a refusal was recorded on it */
	} each[OOM_SNAPSHOT_DEVICES];
	size_t n_each;
	size_t n_events;                /* recorded on it */
	/* the state after event peak_event, counted from 1; 0: before the first */
	uint64_t peak_bytes;
	size_t peak_event, peak_blocks;
	uint64_t held[OOM_HELD_KINDS];  /* adds up to peak_bytes */
	struct oom_snapshot_frame {
		char where[120];        /* "model.py:12 in forward" */
		enum oom_held held;
		uint64_t bytes;
		size_t blocks;
	} frame[OOM_SNAPSHOT_FRAMES];   /* most bytes first */
	size_t n_frames, n_other_frames;
	uint64_t other_frame_bytes;     /* of the frames that are not listed */
	/* the segments when it was dumped */
	uint64_t reserved_bytes, allocated_bytes, idle_bytes, largest_idle_bytes;
	size_t n_segments, n_idle;
	bool expandable;
	/* the recording in up to 120 equal pieces, first to last: who held what at the event of each piece
	 * at which most was held */
	struct oom_snapshot_point {
		size_t event;           /* counted from 1; 0: before the first */
		uint64_t bytes, held[OOM_HELD_KINDS];   /* held adds up to bytes */
	} point[OOM_SNAPSHOT_POINTS];
	size_t n_points;                /* 0: no events */
	/* the last refusal recorded */
	bool oom;
	uint64_t oom_tried_bytes, oom_free_bytes;
	size_t oom_event;
};

/* Is this how such a file begins?  (A pickle of protocol 2 to 5.) */
OOM_API bool oom_snapshot_is(const void *bytes, size_t size);
/* Plain data only: nothing in the file is ever executed.  OOM_ERR_INVALID for what is no snapshot
 * or asks for code, OOM_ERR_PARSE for a broken one, OOM_ERR_LIMIT beyond 512 MiB or 16 million
 * values.  out is written on success alone. */
OOM_API enum oom_status oom_snapshot_parse(struct oom_snapshot *out, const void *bytes, size_t size,
					   const char *name, struct oom_error *err);
OOM_API enum oom_status oom_snapshot_read(struct oom_snapshot *out, const char *path,
					  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
