/* Between the files that read a run: names, numbers and where they go. */
#ifndef OOM_RUN_PARTS_H
#define OOM_RUN_PARTS_H

#include "run.h"

/* What a name is about. */
enum oom_run_about { OOM_RUN_NOTHING, OOM_RUN_STEP, OOM_RUN_LOSS, OOM_RUN_MEMORY, OOM_RUN_TOKENS };
enum oom_run_about oom_run_about(const char *name, size_t n);
bool oom_run_name_char(char c);
bool oom_run_digit(char c);
/* A number with or without a unit of memory: behind it, or NULL. */
const char *oom_run_number(const char *p, const char *end, double *value, bool *bytes);
/* The digit behind a name and its punctuation, "': 2.1", " = 3", ": 4", " 5/ 100"; NULL: there is none. */
const char *oom_run_value_of(const char *p, const char *end);

void oom_run_put_step(struct oom_run_reader *r, int64_t step, int64_t of);
void oom_run_put_loss(struct oom_run_reader *r, double loss);
void oom_run_put_memory(struct oom_run_reader *r, const char *name, size_t n, double value, bool bytes);
/* A name of n letters, and the text behind it. */
void oom_run_figure(struct oom_run_reader *r, const char *name, size_t n, const char *p, const char *end);

#endif
