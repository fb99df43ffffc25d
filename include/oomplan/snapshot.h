/* PyTorch memory snapshots (torch.cuda.memory._dump_snapshot): what held the memory when most of it was
 * held. */
#ifndef OOMPLAN_SNAPSHOT_H
#define OOMPLAN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an allocation is for, according to its stack frames.  BEFORE: it is older than the recording, as
 * weights mostly are.  NO_FRAMES: a thread without Python frames allocated it, mostly autograd's. */
enum oom_held {
	OOM_HELD_BEFORE, OOM_HELD_PARAMS, OOM_HELD_INPUTS, OOM_HELD_GRADS, OOM_HELD_OPT,
	OOM_HELD_FORWARD, OOM_HELD_LOSS, OOM_HELD_RECOMPUTE, OOM_HELD_BACKWARD, OOM_HELD_COMM,
	OOM_HELD_OTHER, OOM_HELD_NO_FRAMES, OOM_HELD_KINDS
};
/* The kind in words ("parameters", ...) and as the key of JSON reports ("params", ...).  Static. */
OOM_API const char *oom_held_str(enum oom_held held);
OOM_API const char *oom_held_column(enum oom_held held);

enum { OOM_SNAPSHOT_FRAMES = 16, OOM_SNAPSHOT_POINTS = 120, OOM_SNAPSHOT_DEVICES = 16 };
/* Sizes are those that the program asked for; the allocator rounds each up to 512 bytes. */
struct oom_snapshot {
	/* of n_devices, the one on which an allocation was refused last; otherwise the one that held most */
	int64_t device;
	size_t n_devices;
	/* the devices that recorded or held anything, in order, up to 16 */
	struct oom_snapshot_device {
		int64_t device;
		uint64_t peak_bytes;
		bool oom;               /* an allocation was refused on it */
	} each[OOM_SNAPSHOT_DEVICES];
	size_t n_each;
	size_t n_events;                /* recorded on `device` */
	/* the state after event number peak_event, counted from 1; 0: before the first event */
	uint64_t peak_bytes;
	size_t peak_event, peak_blocks;
	uint64_t held[OOM_HELD_KINDS];  /* the sum is peak_bytes */
	struct oom_snapshot_frame {
		char where[120];        /* "model.py:12 in forward" */
		enum oom_held held;
		uint64_t bytes;
		size_t blocks;
	} frame[OOM_SNAPSHOT_FRAMES];   /* most bytes first */
	size_t n_frames, n_other_frames;
	uint64_t other_frame_bytes;     /* of frames that are not listed */
	/* the segments at the time of the dump */
	uint64_t reserved_bytes, allocated_bytes, idle_bytes, largest_idle_bytes;
	size_t n_segments, n_idle;
	bool expandable;
	/* The recording is divided into up to 120 equal pieces; each has the state at the event at which
	 * most was held. */
	struct oom_snapshot_point {
		size_t event;           /* counted from 1; 0: before the first */
		uint64_t bytes, held[OOM_HELD_KINDS];   /* the sum of held is bytes */
	} point[OOM_SNAPSHOT_POINTS];
	size_t n_points;                /* 0: no events */
	/* the last allocation that was refused */
	bool oom;
	uint64_t oom_tried_bytes, oom_free_bytes;
	size_t oom_event;
};

/* True if a file that begins like this can be a snapshot, that is, a pickle of protocol 2 to 5. */
OOM_API bool oom_snapshot_is(const void *bytes, size_t size);
/* Reads a snapshot as plain data; nothing in the file is ever executed.  OOM_ERR_INVALID: it is not a
 * snapshot, or it wants to run code; OOM_ERR_PARSE: it is broken; OOM_ERR_LIMIT: it is larger than 512 MiB
 * or has more than 16 million values.  out is written only on success. */
OOM_API enum oom_status oom_snapshot_parse(struct oom_snapshot *out, const void *bytes, size_t size,
					   const char *name, struct oom_error *err);
OOM_API enum oom_status oom_snapshot_read(struct oom_snapshot *out, const char *path,
					  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
