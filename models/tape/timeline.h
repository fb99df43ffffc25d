/* The bytes that are alive over the course of a tape. */
#ifndef OOM_TIMELINE_H
#define OOM_TIMELINE_H

#include "oomplan/model.h"
#include "tape.h"

/* What one stream leaves and its peak, both relative to its start. */
struct oom_span {
	int64_t net, peak;
};
/* Walks one stream.  size[] are the rounded sizes of the rows.  acc: gradients exist already, so that new
 * ones are added to them and freed. */
struct oom_span oom_walk(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
			 bool acc);
/* Cuts a stream into what comes before the layers, the layers, and what comes after them: the k-th third is
 * the events [cut[k], cut[k + 1]). */
void oom_cut_at_layers(const struct oom_tape *t, enum oom_stream_id stream, size_t cut[4]);
/* Both at once: span[0] without, span[1] with gradients that exist already. */
void oom_walk_both(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
		   struct oom_span span[2]);
/* The span of one layer, given that of n equal layers. */
struct oom_span oom_one_layer(int64_t net, int64_t peak, uint64_t n);
/* The spans of the three thirds, of which the middle one is that of a single layer; the n layers are taken as
 * equal. */
void oom_walk_thirds(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
		     bool acc, uint64_t n, struct oom_span third[3]);
/* Walks a stream, or a part of one, with its composition: at[] receives the bytes of each category at the
 * peak and net[] those at the end, both relative to the start.  *row is the last row allocated before the
 * peak, or -1. */
struct oom_span oom_walk_cats(const struct oom_tape *t, const struct oom_stream *s,
			      const uint64_t *size, bool acc, int64_t at[OOM_CATS],
			      int64_t net[OOM_CATS], int32_t *row);

#endif
