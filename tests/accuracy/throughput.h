/* Between the files of the throughput scores: rows, fits and groups. */
#ifndef TEST_THROUGHPUT_H
#define TEST_THROUGHPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "input/csv_rows.h"
#include "oomplan/gpu.h"
#include "oomplan/model.h"
#include "step/time/steptime_as.h"

enum { MAX_ROWS = 2000, CLASSES = 16, FITTED = 4, FOLDS = 64 };

struct row {
	char id[24], source[96], model[64], engine[24], card[48];
	struct oom_plan plan;
	struct oom_eval eval;
	struct oom_gpu gpu;
	double published, params, predicted, low, high;
	size_t cls;
	bool complete;
};
struct rows {
	struct row *rows;
	size_t n, refused;
	struct oom_gpus gpus;
	struct oom_card_class cls[CLASSES];
	size_t n_cls;
};
extern struct rows all;

/* throughput_rows.c: takes a row of the table; the tokens a second of it; how far off these are, as a logarithm; where
 * its time goes. */
enum oom_status take(void *ctx, const struct oom_csv_row *csv, struct oom_error *err);
void predict(struct row *r);
double off(const struct row *r);
void print_parts(const struct row *r);

/* throughput_fit.c: the classes' shares fitted to all rows but those of `source`; all rows by fits without their source. */
int sources_of(size_t c, const char *source);
int card_sources(const char *card, const char *source);
void fit(const char *source);
void print_fit(void);
void cross(void);

/* throughput_scores.c */
struct score {
	size_t n;
	double median, p10, p90, near, nearer, held;
};
typedef const char *(*group_fn)(const struct row *r);
int by_size(const void *a, const void *b);
struct score score(group_fn of, const char *group);
void print_scores(void);
double held_by_source(bool open, size_t *sources);
/* The share of pairs that stand in the published order. */
double ordered(void);
/* Of a row: its card, engine, number of nodes, size. */
const char *card(const struct row *r);
const char *engine(const struct row *r);
const char *nodes(const struct row *r);
const char *size(const struct row *r);

#endif
