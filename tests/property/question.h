/* A random question: a model, knobs set to words, a card.  It is drawn from a seed, printed as a command
 * line, and made smaller while what is wrong with it stays wrong. */
#ifndef PROPERTY_QUESTION_H
#define PROPERTY_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/gpu.h"
#include "oomplan/model.h"
#include "oomplan/option.h"

struct setting {
	const struct oom_option *knob;
	char word[48];
};

enum { MOST_SETTINGS = 24 };

struct question {
	struct setting set[MOST_SETTINGS];
	size_t n;
	const struct oom_gpu *gpu;      /* one of the table's */
	uint64_t luck;                  /* what a law draws besides: the same while it shrinks */
};

/* The model that is asked about, and what prices it. */
struct subject {
	char name[80];                  /* a model type, or a bundled model */
	char path[80];                  /* of a config.json with it, for commands */
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_evaluator *ev;
};

/* What a law found. */
enum finding { HOLDS, BROKEN, SILENT };

typedef enum finding law_fn(const struct subject *s, const struct question *q, char *words, size_t size);

/* One sentence that is true of every question. */
struct law {
	const char *name;
	law_fn *check;
	unsigned every;                 /* it costs so much that it is asked of one question in so many */
};
extern const struct law laws[];         /* laws.c: more of something takes no less; sums add up */
extern const struct law agreements[];   /* agree.c: every command gives the same answer */

extern const char *oomplan;             /* the program, for laws about what it prints */

/* splitmix64 */
uint64_t roll(uint64_t *state, uint64_t sides);

/* False: the model cannot be read, which no law is about. */
bool subject_open(struct subject *s, const char *type, const char *json);
void subject_close(struct subject *s);

/* A question that the program prices. */
void question_draw(struct question *q, const struct subject *s, uint64_t *state);
/* False: a knob does not take its word. */
bool question_plan(const struct question *q, const struct subject *s, struct oom_plan *plan);
/* Adapters without targets get the family's, as a command gives them. */
void plan_adapt(struct oom_plan *plan, const struct subject *s);
/* The value set, NULL: none */
const char *question_word(const struct question *q, const char *knob);
/* Writes "--model M --gpu A10G --a=b ..."; returns buf. */
const char *question_options(const struct question *q, const struct subject *s, char *buf, size_t size);
/* Takes settings away and lowers counts while the law stays broken; words are of the smallest. */
void question_shrink(struct question *q, const struct subject *s, law_fn *law, char *words, size_t size);

#endif
