/* Between the files of compat/: rows as they are read, conditions as they are compiled. */
#ifndef OOM_COMPAT_TABLE_H
#define OOM_COMPAT_TABLE_H

#include "oomplan/compat.h"

/* What conditions ask besides knobs. */
enum fact {
	FACT_CHECKPOINTING,
	FACT_SDPA,
	FACT_FLASH,
	FACT_WRAPS,
	FACT_LIGER,
	FACT_BATCHNORM,
	FACT_FP16_OVERFLOW,
	FACT_CUT,
	FACT_CC,                        /* compute capability x 10 */
	FACT_HEAD_DIM,
	FACT_EXPERTS,
	FACT_HEADS,
	FACT_VENDOR,                    /* text from here on */
	FACT_TYPE,
	FACT_TASK,
	FACT_FRAMEWORK,                 /* "": nobody's that is known */
	FACTS
};
struct facts {
	int64_t number[FACT_VENDOR];    /* -1: not known */
	const char *word[FACTS];
};

/* Rows of an embedded file, one after the other; nothing is allocated. */
struct rows {
	const char *at;
};
struct rows compat_rows(const char *file);
/* The next row's cells (of n columns), NUL-terminated in buf; false past the last, or for a row that
 * is none. */
bool compat_next_row(struct rows *rows, size_t n, const char *cells[], char *buf, size_t size);

/* Compiles what is left of `when` under the facts to the end of c->condition: *here is false where
 * no plan can fulfil it.  OOM_ERR_PARSE, OOM_ERR_LIMIT. */
enum oom_status compat_compile(struct oom_compat *c, const char *when, const struct facts *facts,
			       bool *here, struct oom_error *err);

#endif
