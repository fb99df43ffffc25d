/* The buffer of a kernel that sums rows in several parts: each part's threads write what they have into it, 4 outputs
 * of 32 threads, in fp32 (aten/src/ATen/native/cuda/Reduce.cuh setReduceConfig, global_memory_size).  There are as many
 * parts as fill the card, 16 blocks of 128 threads a multiprocessor, of which H100 and H200 have 132.  Other cards are
 * counted as these: an A100's 108 make a buffer a fifth smaller, a B200's 148 one an eighth larger, where rows suffice. */
#ifndef OOM_SUMS_H
#define OOM_SUMS_H

#include <stdbool.h>

#include "tape/round.h"

enum { OOM_SUM_THREADS = 128, OOM_SUM_BLOCKS = 16 * 132 };

/* Whether sums of so many columns are made by such a kernel: four outputs a thread, and threads for all of a block. */
static inline bool oom_sum_divides(uint64_t cols)
{
	return cols % 4 == 0 && cols >= OOM_SUM_THREADS;
}
/* Parts that fill the card with so many columns: 66 of 4,096. */
static inline uint64_t oom_sum_fills(uint64_t cols)
{
	return oom_ceil_div(OOM_SUM_BLOCKS, oom_ceil_div(cols, OOM_SUM_THREADS));
}
/* Into how many parts a sum over so many rows is divided where k would fill the card; 0: one block has it all (lengths.c). */
uint64_t oom_sum_parts(uint64_t rows, uint64_t k);
/* Bytes of the buffer; 0: there is none.  32,000 rows of 4,096 columns: 132 MiB. */
static inline uint64_t oom_sum_bytes(uint64_t rows, uint64_t cols)
{
	return oom_sum_divides(cols) ? oom_sum_parts(rows, oom_sum_fills(cols)) * OOM_SUM_THREADS * cols * 4 : 0;
}

#endif
