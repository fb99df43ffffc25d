/* Live bytes over a tape. */
#ifndef OOM_TIMELINE_H
#define OOM_TIMELINE_H

#include "oomplan/model.h"
#include "tape.h"

/* Net and peak of one stream, relative to its start. */
struct oom_span {
	int64_t net, peak;
};
/* Evaluates one stream; size[] are rounded row sizes.  acc: gradients exist already (they are
 * added and freed). */
struct oom_span oom_walk(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
			 bool acc);
/* Net and peak of what comes before the layers, of one layer, and of what comes after (in the
 * stream's order; layers are taken as equal, n of them). */
/* Events [cut[k], cut[k + 1]) of the stream are its k-th third. */
void oom_cut_at_layers(const struct oom_tape *t, enum oom_stream_id stream, size_t cut[4]);
/* A stretch of n layers as one of them. */
struct oom_span oom_one_layer(int64_t net, int64_t peak, uint64_t n);
void oom_walk_thirds(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
		     bool acc, uint64_t n, struct oom_span third[3]);
/* The same of a stream, or a stretch of one, with the composition: at[] gets the bytes of each
 * category at the peak, net[] at the end (both relative); *row is the last row born before the
 * peak, or -1. */
struct oom_span oom_walk_cats(const struct oom_tape *t, const struct oom_stream *s,
			      const uint64_t *size, bool acc, int64_t at[OOM_CATS],
			      int64_t net[OOM_CATS], int32_t *row);

#endif
