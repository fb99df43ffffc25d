/* Operations and blocks, one at a time, against what PyTorch allocated for them.
 *
 * A case is a function of a tensor x [b, s, width] (absent when width is 0), written in the
 * operations of ops.h, and has a row or more in a table of measured/ under its own name.  The step
 * around it is that of tests/tools/measured/harness.py: twice the result, summed, is the loss.
 *
 *	CASE(gelu, 64) { return oom_op_unary(t, OOM_GELU, x); }
 *
 * x is consumed; the caller holds it until the case returns, as Python's frame does. */
#ifndef TAPE_CASE_H
#define TAPE_CASE_H

#include "blocks/blocks.h"
#include "ops/conv.h"

typedef struct oom_val (*tape_case_fn)(struct oom_tape *t, struct oom_val x);

#define CASE(name, width)                                                                    \
	static struct oom_val case_##name(struct oom_tape *t, struct oom_val x);             \
	__attribute__((constructor)) static void add_##name(void)                            \
	{                                                                                    \
		tape_case_add(#name, width, case_##name);                                    \
	}                                                                                    \
	static struct oom_val case_##name(struct oom_tape *t, struct oom_val x)

/* A case that is priced only nearly: every number within so many thousandths of the measured one.  What is missing
 * is said beside it. */
#define CASE_WITHIN(name, width, thousandths)                                                \
	__attribute__((constructor)) static void nearly_##name(void)                         \
	{                                                                                    \
		tape_case_within(#name, thousandths);                                        \
	}                                                                                    \
	CASE(name, width)

/* A case on images: m is a map of c x h x w. */
#define CASE_MAP(name, c, h, w)                                                              \
	static struct oom_val map_##name(struct oom_tape *t, struct oom_map m);              \
	CASE(name, (uint64_t)TAPE_MAP | (c) * (h) * (w))                                     \
	{                                                                                    \
		return map_##name(t, (struct oom_map){x, c, h, w});                          \
	}                                                                                    \
	static struct oom_val map_##name(struct oom_tape *t, struct oom_map m)
/* Of a case's width: one per image, not per token. */
#define TAPE_MAP (1ull << 40)

/* A case that makes all its inputs itself. */
#define CASE_OF_NOTHING(name)                                                                \
	static struct oom_val bare_##name(struct oom_tape *t);                               \
	CASE(name, 0)                                                                        \
	{                                                                                    \
		(void)x;                                                                     \
		return bare_##name(t);                                                       \
	}                                                                                    \
	static struct oom_val bare_##name(struct oom_tape *t)

void tape_case_add(const char *name, uint64_t width, tape_case_fn run);
void tape_case_within(const char *name, int thousandths);

/* A further input, as an operation before it would have left it: needs a gradient (float types,
 * unless only weights are trained) that nobody keeps. */
struct oom_val tape_input(struct oom_tape *t, uint16_t mono, uint64_t width, enum oom_dtype dt);
/* The same, [b, s, width] in the model's type. */
struct oom_val tape_in(struct oom_tape *t, uint64_t width);
/* The type weights and inputs have under the plan. */
enum oom_dtype tape_dtype(const struct oom_tape *t);
/* The architecture the cases run in, to be set up by a case that needs more of it. */
struct oom_arch *tape_arch(void);
/* The architecture of a config.json, for blocks that read keys or what their family made of them.  It lives
 * until another is asked for. */
const struct oom_arch *tape_config(const char *json);

/* Compares every row of measured/TABLE.csv with the case of its name; a row without a case and a
 * case without a row are failures too.  Returns how many failed, 0 for none. */
int tape_cases_check(const char *table);

#endif
