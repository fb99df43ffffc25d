/* Sequence lengths: what the longest batch of an epoch needs, rather than the average batch. */
#ifndef OOMPLAN_LENGTHS_H
#define OOMPLAN_LENGTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of lengths: the distinct lengths, sorted, with their counts.  Zero-initialise it and free it with
 * oom_lengths_release. */
struct oom_lengths {
	struct oom_length {
		uint32_t tokens;
		uint64_t count;
	} *items;
	size_t n;
	uint64_t total;         /* the number of observations */
	double mean;
	uint64_t skipped;       /* lines that held no length */
};

/* Reads lengths from a file ("-": standard input): one per line, a column of a CSV, or a field of JSON
 * lines.  The column or field is `field` or, if that is NULL, one of "length", "seq_len", "n_tokens", ...;
 * of a list, such as "input_ids", the number of elements is taken.  The file is streamed, and only distinct
 * lengths are kept.  word may also be a distribution, "uniform:LO:HI", "lognormal:MEDIAN:SIGMA",
 * "normal:MEAN:SD" or "exponential:MEAN", of which 10^6 quantiles are rounded and cut at 1.  OOM_ERR_INVALID
 * if there is no length or no such column.  Lines without a length, or with one above 10^8, are counted in
 * skipped. */
OOM_API enum oom_status oom_lengths_read(struct oom_lengths *out, const char *word,
					 const char *field, struct oom_error *err);
OOM_API void oom_lengths_release(struct oom_lengths *lengths);

/* The q-quantile: the smallest length that at least a share q of the observations does not exceed. */
OOM_API uint32_t oom_lengths_quantile(const struct oom_lengths *lengths, double q);
/* The q-quantile of the longest of n sequences that are drawn independently: F(x)^n >= q. */
OOM_API uint32_t oom_lengths_longest(const struct oom_lengths *lengths, double n, double q);
/* The mean of the longest of n. */
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
	/* padded length of the epoch's largest batch; with a token budget, its tokens divided by b */
	uint32_t worst_tokens;
	double worst_batch_tokens;      /* tokens of that batch with padding */
	double padding_share;           /* share of the computed tokens that is padding */
};
struct oom_lengths_report {
	uint64_t total, skipped;
	double mean, batch;
	uint32_t p50, p90, p99, p999, longest;
	struct oom_batching_need batching[OOM_BATCHINGS];
	double mean_batch_tokens;       /* expected padded length of a batch: that of its longest sequence */
	/* the first step whose batch is expected to exceed the average one; 0: none */
	double death_step;
	/* shares of the tokens lost, and of the sequences cut, if lengths were capped at the 99.9th percentile */
	double lost_share, cut_share;
};
/* The report for micro-batches of b sequences and `steps` batches per epoch. */
OOM_API struct oom_lengths_report oom_lengths_report(const struct oom_lengths *lengths, double b,
						     double steps);
/* The expected number of the first batch of b sequences that has one longer than `tokens`; 0: there is
 * none. */
OOM_API double oom_lengths_first_beyond(const struct oom_lengths *lengths, double b, double tokens);

#ifdef __cplusplus
}
#endif

#endif
