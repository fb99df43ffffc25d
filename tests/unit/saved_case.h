/* What one layer of a small model leaves for its backward pass, tensor by tensor.
 *
 * A row is a config, a plan, and every tensor that the middle one of three layers held when the forward pass of two
 * sequences of 56 tokens was through: the operation that made it, how many elements it has as a formula over the
 * config's sizes, and the bytes of each.  The lists are those of transformers 5.12.1 and PyTorch 2.14 with storages
 * counted as CUDA makes them (tests/tools/measured/model_parts.py prints them); the formulas restate the measured shapes.
 *
 * A fourth layer must add exactly these tensors, each in blocks of 512 bytes, to what three leave.  Left out are types whose
 * fourth layer is of another kind than the second, and scalars, which torch.tensor() makes on the host. */
#ifndef OOM_TESTS_SAVED_CASE_H
#define OOM_TESTS_SAVED_CASE_H

#include "parts_case.h"

/* Sequences, their tokens, and all tokens; heads of keys and values where they are grouped. */
enum { B = 2, S = 56, N = B * S, KV = 2 };

struct kept {
	const char *what;       /* the module's last word, and PyTorch's operation */
	uint64_t elems;
	unsigned each;          /* bytes */
};
enum { MAX_KEPT = 80 };
struct saved_layer {
	const char *type, *keys;
	enum oom_task task;
	const char *plan;       /* "precision=bf16;attn=sdpa" */
	struct kept kept[MAX_KEPT];
};

/* Fails after the last row when any was wrong, having said which tensors are missing and which are too many. */
void saved_check(const struct saved_layer *rows, size_t n);
#define SAVED_TEST(rows)                                                                        \
	static void test_##rows(void **state)                                                   \
	{                                                                                       \
		(void)state;                                                                    \
		saved_check(rows, sizeof(rows) / sizeof((rows)[0]));                            \
	}

#endif
