/* Blocks one at a time, against sums made by hand.
 *
 * A case is a function of a tensor x [B, S, H], as a layer gets it: the caller's, so that it is no part
 * of the sums.  What the layer's forward pass did is counted in bytes as PyTorch rounds them: all that it
 * allocated, what of that its backward pass still needs when the step's forward is through, and the
 * elements of its parameters.  Of a test's expected numbers every term is one tensor, and the comment
 * beside it says which operation makes it and, of what is saved, whose derivative reads it
 * (PyTorch tools/autograd/derivatives.yaml). */
#ifndef BLOCK_CASE_H
#define BLOCK_CASE_H

#include "blocks/blocks.h"

/* The batch, its tokens, and the width of a token: small, and whole multiples of 512 bytes. */
enum { B = 2, S = 32, N = B * S, H = 64 };
/* A tensor of n elements of so many bytes, rounded up as the caching allocator does. */
static inline uint64_t bytes_of(uint64_t n, uint64_t each)
{
	return (n * each + 511) / 512 * 512;
}
/* One of so many elements per token; the same per sequence; one of a few numbers (512 bytes). */
#define TOKENS(width, each) bytes_of((uint64_t)N * (width), each)
#define SEQUENCES(width, each) bytes_of((uint64_t)B * (width), each)
#define SCALAR 512

typedef struct oom_val (*block_fn)(struct oom_tape *t, struct oom_val x);
struct block_sums {
	uint64_t allocated, saved, params;
};

/* The architecture the next cases run in; block_begin empties it. */
struct oom_arch *block_arch(void);
void block_begin(void);
/* plan: "precision=bf16;attn=sdpa", as the command line spells the knobs. */
struct block_sums block_run(block_fn fn, const char *plan);
/* Fails unless the block's numbers are these; lists what it made when they are not. */
void block_expect(const char *name, block_fn fn, const char *plan, struct block_sums want);
#define EXPECT(fn, plan, ...) block_expect(#fn, fn, plan, (struct block_sums){__VA_ARGS__})

#endif
