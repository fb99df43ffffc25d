/* Sequence lengths: what the longest batch of an epoch needs, not the mean one. */
#ifndef OOMPLAN_LENGTHS_H
#define OOMPLAN_LENGTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of lengths, sorted, as counts of each distinct one.  Zero-initialise; free with
 * oom_lengths_release. */
struct oom_lengths {
	struct oom_length {
		uint32_t tokens;
		uint64_t count;
	} *items;
	size_t n;
	uint64_t total;         /* observations */
	double mean;
	uint64_t skipped;       /* lines that held no length */
};

/* Reads one length a line, a column of a CSV or a field of JSON lines ("length", "seq_len",
 * "n_tokens", ... or the one named by field, which may be NULL; of a list, such as "input_ids", the
 * elements count); "-" is standard input.  Streams; only distinct lengths are kept.  Or a named
 * distribution: "uniform:LO:HI", "lognormal:MEDIAN:SIGMA", "normal:MEAN:SD", "exponential:MEAN",
 * each cut at 1 and rounded (10^6 quantiles).  OOM_ERR_INVALID when there is no length, or no such
 * column; lines without a length, or with one beyond 10^8, are counted in skipped. */
OOM_API enum oom_status oom_lengths_read(struct oom_lengths *out, const char *word,
					 const char *field, struct oom_error *err);
OOM_API void oom_lengths_release(struct oom_lengths *lengths);

/* The q-quantile: the smallest length with at least a share q of the observations at or below
 * it. */
OOM_API uint32_t oom_lengths_quantile(const struct oom_lengths *lengths, double q);
/* The q-quantile of the longest of n drawn sequences: F(x)^n >= q (order statistics of
 * independent draws). */
OOM_API uint32_t oom_lengths_longest(const struct oom_lengths *lengths, double n, double q);
/* Its mean. */
OOM_API double oom_lengths_longest_mean(const struct oom_lengths *lengths, double n);

enum oom_batching {
	OOM_BATCH_LONGEST,
	OOM_BATCH_MAX_LENGTH,
	OOM_BATCH_PACKING,
	OOM_BATCH_BY_LENGTH,
	OOM_BATCH_BUDGET,
	OOM_BATCHINGS
};
/* One way of making batches of b sequences. */
struct oom_batching_need {
	const char *name, *what;
	/* padded length of the largest batch of the epoch; budget: a b-th of its tokens */
	uint32_t worst_tokens;
	double worst_batch_tokens;      /* tokens of that batch, padding included */
	double padding_share;           /* of the tokens a step computes that are padding */
};
struct oom_lengths_report {
	uint64_t total, skipped;
	double mean, batch;
	uint32_t p50, p90, p99, p999, longest;
	struct oom_batching_need batching[OOM_BATCHINGS];
	double mean_batch_tokens;       /* expected padded length of a batch */
	/* expected first step whose batch exceeds the mean-sized one; 0: never */
	double death_step;
	/* of the tokens, and of the sequences cut, capping at the 99.9th percentile would lose */
	double lost_share, cut_share;
};
/* For b sequences a micro-batch and steps batches an epoch. */
OOM_API struct oom_lengths_report oom_lengths_report(const struct oom_lengths *lengths, double b,
						     double steps);
/* Expected number of the first batch of b sequences in which one is longer than tokens; 0: none
 * is. */
OOM_API double oom_lengths_first_beyond(const struct oom_lengths *lengths, double b, double tokens);

#ifdef __cplusplus
}
#endif

#endif
