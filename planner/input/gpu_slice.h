/* Slices of cards. */
#ifndef OOM_GPU_SLICE_H
#define OOM_GPU_SLICE_H

#include <stdbool.h>

#include "oomplan/gpu.h"

/* The slice that a word names with its card's name before it; false: it names none that the table has.  Of several cards'
 * the smallest, and the note says which there are. */
bool oom_gpu_slice(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out, char note[256]);

#endif
