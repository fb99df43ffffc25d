/* Between the reader of lengths and their statistics. */
#ifndef OOM_LENGTHS_PARTS_H
#define OOM_LENGTHS_PARTS_H

#include <stdio.h>

#include "oomplan/lengths.h"

enum { OOM_LENGTH_MOST = 100000000 };

/* Counts, so that ten million lengths take the memory of the distinct ones. */
struct oom_length_counter {
	uint64_t *dense;                /* lengths below 2^20 */
	struct oom_length *rare;        /* the others, unsorted */
	size_t n_rare, cap_rare;
	uint64_t total, skipped;
	double sum;
};
/* False when there are too many different ones. */
bool oom_length_count(struct oom_length_counter *c, uint64_t tokens, uint64_t times);
/* field: the column or JSON field to take; NULL: the first that is known. */
enum oom_status oom_lengths_stream(struct oom_length_counter *c, FILE *f, const char *file,
				   const char *field, struct oom_error *err);
/* All of it from a stream, as oom_lengths_read does from a name. */
enum oom_status oom_lengths_from(struct oom_lengths *out, FILE *f, const char *name,
				 const char *field, struct oom_error *err);

#endif
