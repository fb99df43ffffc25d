/* What the writers share: the tree that is written, and how it is spelled.  Private to planner/emit. */
#ifndef OOM_EMIT_PARTS_H
#define OOM_EMIT_PARTS_H

#include "frameworks/arguments.h"
#include "frameworks/framework.h"
#include "oomplan/emit.h"

/* A text that grows. */
struct emit_text {
	char *text;
	size_t n, room;
	bool failed;
};

struct emission {
	const struct oom_plan *plan;
	const char *model;
	const struct oom_gpu *gpu;      /* NULL: not known */
	const char *config;             /* whose dimensions are written; NULL: not known */
	bool described;                 /* the model is: nothing of it is to be added */
	const struct framework *fw;     /* whose rows give the words; NULL: none */
	struct doc doc;                 /* keys and values, in the order they are written */
	bool failed;
};

/* What it costs that a format cannot ask for one word of a knob, and is run with another: told beside it.  Where that
 * only spares memory, nothing is lost. */
struct emit_cost {
	const char *knob, *want, *got, *text;
	bool spares;
};

/* A format: who fills it, how it is spelled, as whose file it is read back. */
struct emit_target {
	struct oom_emit_format format;
	const char *framework;          /* of its rows; NULL: none */
	const char *reads_as;           /* a name that gives the door: "x.yaml" */
	void (*fill)(struct emission *e);
	void (*write)(struct emission *e, struct emit_text *out);
	/* where the text is a frame around a command line: that line, which is read back */
	void (*line)(struct emission *e, struct emit_text *out);
	const char *comment;            /* "# "; NULL: the format has no comments */
	/* what the format never says, as it stands elsewhere: blank-separated knobs */
	const char *elsewhere;
	/* what a launch needs besides and no plan holds: a data set, a script; and where the file describes the
	 * model itself */
	const char *yours, *yours_described;
	const struct emit_cost *costs;  /* ends with a NULL knob; NULL: none is known */
};

extern const struct emit_target emit_targets[];

/* emit.c: what a knob or a fact of frameworks (model, method, base-bits, @dtype, @autocast) is in the
 * plan, as a row's value; "" where the plan says nothing. */
const char *emit_fact(const struct emission *e, const char *knob, char buf[160]);
bool emit_adapted(const struct emission *e);
bool emit_deepspeed(const struct emission *e);
bool emit_fsdp(const struct emission *e);
/* FSDP checkpoints in the Trainer's place, which would gather each block once more (data/compat.csv). */
bool emit_fsdp_checkpoints(const struct emission *e);
/* Does the format run `got` where `want` was priced, which needs less? */
bool emit_spares(const struct emit_target *target, const char *knob, const char *want, const char *got);
/* A knob about the card, the host or the verdict: no file of a framework says it. */
bool emit_is_aside(const char *knob);
/* The base as the knob base-bits spells it, which is no knob of a plan. */
const char *emit_base_bits(const struct emission *e);
bool emit_is(const struct emission *e, const char *knob, const char *value);
/* "a.b": value; an empty value is not written. */
void emit_set(struct emission *e, const char *path, const char *value);
/* The same of names joined by '+'. */
void emit_names(struct emission *e, const char *path, const char *names);
/* Keys of the framework, blank-separated, by their rows: what no word says is left out. */
void emit_rows(struct emission *e, const char *prefix, const char *framework, const char *keys);

/* write.c */
void emit_put(struct emit_text *t, const char *fmt, ...) OOM_PRINTF(2, 3);
void emit_yaml(struct emission *e, struct emit_text *out);
void emit_json(struct emission *e, struct emit_text *out);
void emit_toml(struct emission *e, struct emit_text *out);
void emit_options(struct emission *e, struct emit_text *out);           /* --key value */
void emit_flags(struct emission *e, struct emit_text *out);             /* the same, true: --key */
void emit_overrides(struct emission *e, struct emit_text *out);         /* a.b=value */
void emit_keywords(struct emission *e, struct emit_text *out);          /* Class(key=value) */
void emit_text_release(struct emit_text *t);
/* A word of a shell, in quotes where it needs them. */
void emit_shell_word(struct emit_text *t, const char *word);

#endif
