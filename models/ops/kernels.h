/* Which of a model's modules Triton kernels take the place of: Liger's, or Unsloth's as fms-acceleration has them. */
#ifndef OOM_KERNELS_H
#define OOM_KERNELS_H

#include "tape/tape.h"

enum oom_kernel {
	OOM_KERNEL_NORM = 1,
	OOM_KERNEL_GLU = 2,
	OOM_KERNEL_ROPE = 4,
	OOM_KERNEL_SUMS = 8,    /* the norm's backward sums its weight's gradient, frozen or not; Unsloth's has none */
	OOM_KERNEL_LORA = 16    /* a base of few bits and its adapter in one function */
};

static inline bool oom_kernel_runs(const struct oom_tape *t, enum oom_kernel k)
{
	static const uint8_t runs[] = {
		[OOM_LIGER_NORM] = OOM_KERNEL_NORM | OOM_KERNEL_SUMS,
		[OOM_LIGER_GLU] = OOM_KERNEL_GLU,
		[OOM_LIGER_ALL] = OOM_KERNEL_NORM | OOM_KERNEL_GLU | OOM_KERNEL_ROPE | OOM_KERNEL_SUMS,
		[OOM_LIGER_FAST] = OOM_KERNEL_NORM | OOM_KERNEL_ROPE,
		[OOM_LIGER_FAST_LORA] = OOM_KERNEL_NORM | OOM_KERNEL_ROPE | OOM_KERNEL_LORA,
	};
	const size_t at = (size_t)t->plan->liger_kernels;

	return at < sizeof(runs) && runs[at] & k;
}

#endif
