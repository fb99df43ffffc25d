/* Small arithmetic on sizes: 64 bits throughout, no check for overflow (sizes are bounded before). */
#ifndef OOM_ROUND_H
#define OOM_ROUND_H

#include <stdint.h>

/* CUDA's caching allocator gives out multiples of 512 bytes (c10/cuda/CUDACachingAllocator.cpp,
 * kMinBlockSize). */
enum { OOM_BLOCK = 512 };

static inline uint64_t oom_most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}
static inline uint64_t oom_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
/* How many pieces of k hold x: 100 in pieces of 64 are 2. */
static inline uint64_t oom_ceil_div(uint64_t x, uint64_t k)
{
	return (x + k - 1) / k;
}
/* x up to a multiple of k: 100 up to 64s is 128. */
static inline uint64_t oom_round_up(uint64_t x, uint64_t k)
{
	return oom_ceil_div(x, k) * k;
}
/* What the allocator takes for a tensor of so many bytes: 700 take 1024, 0 none. */
static inline uint64_t oom_block(uint64_t bytes)
{
	return (bytes + OOM_BLOCK - 1) & ~(uint64_t)(OOM_BLOCK - 1);
}

#endif
