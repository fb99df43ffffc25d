/* The data-only subset of Python's pickle: no opcode that names, calls or builds a class is ever
 * obeyed. */
#ifndef OOM_PICKLE_H
#define OOM_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

enum oom_pickle_kind {
	OOM_PICKLE_NONE,
	OOM_PICKLE_INT,
	OOM_PICKLE_REAL,
	OOM_PICKLE_TEXT,
	OOM_PICKLE_LIST,
	OOM_PICKLE_DICT
};

/* LIST is a list or a tuple; DICT holds key, value, key, value.  TEXT points into the caller's
 * bytes. */
struct oom_pickle_node {
	enum oom_pickle_kind kind;
	uint32_t n, cap;
	union {
		int64_t integer;
		double real;
		const char *text;
		uint32_t *items;
	} u;
};

struct oom_pickle {
	struct oom_pickle_node *nodes;
	size_t n, cap;
	uint32_t root;
};

/* The caller's bytes must outlive the result.  Zero-initialise out; free with
 * oom_pickle_release. */
enum oom_status oom_pickle_parse(struct oom_pickle *out, const uint8_t *data, size_t size,
				 struct oom_error *err);
void oom_pickle_release(struct oom_pickle *p);

#endif
