/* Between the files of the sweep. */
#ifndef OOM_SWEEP_PARTS_H
#define OOM_SWEEP_PARTS_H

#include "oomplan/search.h"
#include "oomplan/sweep.h"

/* One thing an axis sets, as 64 bits: a count, the index of a choice, card, model or text, or
 * the bits of a real. */
enum sweep_kind { SWEEP_KNOB, SWEEP_GPU, SWEEP_MODEL };
struct sweep_var {
	enum sweep_kind kind;
	const struct oom_option *knob;
	bool plain, near;               /* the knob: a number that nothing hangs on here; oom_knob_near */
	char name[40];                  /* the column's */
	/* of a grid: runs of values, so that a range takes no memory */
	struct sweep_values {
		uint64_t from;          /* number of the first */
		int64_t start, step;
	} *values;
	size_t n_values, cap;
	int64_t *point;                 /* of a list: one a point */
};
struct sweep_axis {
	uint64_t n;
	struct sweep_var *var;
	size_t n_vars;
};
struct sweep_model {
	char *word;
	struct oom_keys keys;
	struct oom_error refused;       /* could not be read: its rows say so */
	struct oom_model *made;         /* while rows are priced; all workers read it */
};

enum { SWEEP_AXES = 24, SWEEP_COLUMNS = 96, SWEEP_WHERE = 16, SWEEP_MODELS = 4096 };
enum { SWEEP_KEPT = 52 };                /* characters of a text that is kept */
#define SWEEP_SEEK (1u << 31)           /* fresh at the start of a block */

enum sweep_column_kind { COLUMN_KNOB, COLUMN_GPU, COLUMN_MODEL, COLUMN_RESULT };
struct sweep_column {
	enum sweep_column_kind kind;
	int result;
	const struct oom_option *knob;
	const char *name;
	/* when a run begins */
	/* bits of the axes that change it, and SWEEP_SEEK; a result: 0 */
	uint32_t depends;
	/* a knob the search may have changed: printed as it left it */
	bool answer;
	bool plain;                     /* no card's name has to be quoted */
	int axis;                       /* the only one its text hangs on; -1: none, several, or more than it */
	/* how its text is come by: it is what it was as long as nothing moved that it depends on, as a
	 * number of the evaluation stands, or as what sweep_key_of() says does; or anew each time */
	enum sweep_text { TEXT_STANDS, TEXT_OF_NUMBER, TEXT_OF_KEY, TEXT_ANEW, TEXT_KINDS } text;
	size_t number;                  /* offset in struct oom_eval */
};
struct sweep_where {
	struct sweep_column column;
	int op;                         /* 0 <, 1 <=, 2 >, 3 >=, 4 =, 5 != */
	double value;
};
/* What the columns and conditions ask of a cell: cheap figures; the verdict, which replays the
 * allocator where bounds do not decide; or what is reserved and used, which always does. */
enum sweep_need { SWEEP_PRICE, SWEEP_VERDICT, SWEEP_BYTES };

struct oom_sweep {
	struct oom_plan base;
	struct sweep_axis axis[SWEEP_AXES];
	size_t n_axes;
	struct sweep_column column[SWEEP_COLUMNS];
	size_t n_columns;
	struct sweep_where where[SWEEP_WHERE];
	size_t n_where;
	enum sweep_need need;
	bool evaluations;               /* a column or a condition is about the evaluation between steps */
	struct oom_gpus gpus;           /* the table */
	uint64_t capacity;              /* in place of the cards'; 0: theirs */
	struct oom_gpu *card;           /* those used */
	size_t n_cards;
	struct sweep_model *model;
	size_t n_models;
	char **text;
	size_t n_texts;
};

/* One cell, evaluated. */
struct sweep_cell {
	uint64_t at[SWEEP_AXES];        /* value of each axis */
	struct oom_plan plan;           /* as asked */
	struct oom_plan settled;        /* with what follows from the model, where that is more */
	/* what eval describes: plan, settled, or what the search made of it */
	const struct oom_plan *answer;
	const struct oom_plan *asked;   /* plan, or settled */
	const struct oom_gpu *gpu;
	uint64_t capacity;              /* 0: no card, and none was given */
	const struct oom_model *model;
	const struct sweep_model *named;
	struct oom_eval eval;
	enum oom_status status;         /* why there is no price; ok: there is one */
	bool ok, fits;
	bool searched;                  /* found holds the search's answer */
	struct oom_search found;
	struct oom_error err;
};

/* The row last written, which ends where the next one begins.  row.c */
struct sweep_row {
	size_t n;
	bool priced;                    /* it is of a cell with a price */
	struct {
		uint32_t begin, n;      /* of the column's value, behind what separates it */
	} at[SWEEP_COLUMNS];
	/* the columns, those of one kind of text beside each other, and where each kind ends */
	struct sweep_field {
		uint32_t depends;
		uint16_t column;
		int16_t axis;
		size_t number;
		int64_t key;            /* of a result: what the text was made of */
		/* of a column that hangs on one axis: texts of the values it had last */
		struct {
			uint64_t at;
			uint32_t n;     /* 0: none */
			char text[SWEEP_KEPT];
		} kept[4];
	} field[SWEEP_COLUMNS];
	size_t end[TEXT_KINDS];
};

/* A worker: cells one after the other.  cells.c */
struct sweep_worker {
	struct oom_sweep *s;
	struct oom_evaluator *ev;
	struct sweep_cell cell;
	double capability;              /* as asked; the card's where that is none */
	int64_t gpus, nodes, zero, precision;   /* as asked; what is priced may follow from them */
	size_t run[SWEEP_AXES];         /* of the values of a grid's axis: where the last lay */
	uint32_t stale;                 /* axes that moved since a row was written */
	bool moved;                     /* more than the card changed since the last evaluation */
	/* nothing else was asked of ev since then, and no knob changed that is not near (oom_knob_near) */
	bool near;
	enum oom_status last_status;
	struct sweep_row row;
};
bool sweep_worker_init(struct sweep_worker *w, struct oom_sweep *s);
void sweep_worker_release(struct sweep_worker *w);
void sweep_seek(struct sweep_worker *w, uint64_t cell);
void sweep_step(struct sweep_worker *w);
void sweep_price(struct sweep_worker *w, const struct oom_sweep_options *o);
/* The row of the cell at out, where there are sweep_row_room bytes, behind the row before unless sweep_seek was
 * called since; returns its end. */
char *sweep_put(struct sweep_worker *w, bool jsonl, char *out);
void sweep_row_init(struct sweep_row *r, const struct oom_sweep *s);
/* write.c, what row.c joins: all return the end of what they wrote.  A value takes at most 800 bytes, a text at
 * most 300 characters in 602 bytes; a number up to 20 and seven more bytes behind what is returned. */
char *sweep_put_value(const struct sweep_cell *cell, const struct sweep_column *c, bool jsonl, char *out);
char *sweep_put_text(char *out, const char *text, bool jsonl);
char *sweep_put_int(char *out, int64_t v);
/* What the text of a result hangs on where it is no number of an evaluation. */
int64_t sweep_key_of(const struct sweep_cell *c, int result);
/* A sweep's cell has nothing beside the plan's field that follows from the knob. */
bool sweep_knob_is_plain(const struct oom_option *k);
/* Sets how the column's text is come by. */
void sweep_column_text(const struct oom_sweep *s, struct sweep_column *c);
bool sweep_passes(const struct oom_sweep *s, const struct sweep_cell *cell);
bool sweep_find_column(const struct oom_sweep *s, const char *name, struct sweep_column *out);
size_t sweep_row_room(const struct oom_sweep *s);
/* Makes the models of which there are keys, before the first worker. */
/* OOM_ERR_MEMORY; what is wrong with a model stands with it. */
enum oom_status sweep_make_models(struct oom_sweep *s);
/* What each column depends on, once the axes are known; and what they need. */
void sweep_resolve(struct oom_sweep *s, bool plan_each);

/* sweep.c and values.c, for points.c: a variable by name (OOM_ERR_INVALID: unknown, or set by another
 * axis), and one of its values. */
enum oom_status sweep_var_named(const struct oom_sweep *s, const char *name, struct sweep_var *out,
				struct oom_error *err);
enum oom_status sweep_value(struct oom_sweep *s, const struct sweep_var *v, const char *word,
			    int64_t *value, struct oom_error *err);
/* values.c: the number of a card among those used, which it joins; models as they are before any was
 * made: one reads its keys where they lie, so it goes before they move. */
enum oom_status sweep_card(struct oom_sweep *s, const struct oom_gpu *g, int64_t *value,
			   struct oom_error *err);
void sweep_drop_models(struct oom_sweep *s);
/* An array with room for one more: doubles at powers of two. */
bool sweep_room(void *array, size_t size, size_t n);

#endif
