/* The variable by which PyTorch's allocator is told, as every file and every piece of advice spells it. 2.9 renamed it
 * PYTORCH_ALLOC_CONF and still takes the old name (pytorch c10/core/AllocatorConfig.h, c10/cuda/CUDAAllocatorConfig.h). */
#ifndef OOM_PLANNER_ALLOCATOR_VARIABLE_H
#define OOM_PLANNER_ALLOCATOR_VARIABLE_H

#define OOM_ALLOCATOR_VARIABLE "PYTORCH_CUDA_ALLOC_CONF"
#define OOM_ALLOCATOR_VARIABLE_2_9 "PYTORCH_ALLOC_CONF"
#define OOM_EXPANDABLE "expandable_segments:True"
#define OOM_ALLOCATOR_EXPANDABLE OOM_ALLOCATOR_VARIABLE "=" OOM_EXPANDABLE

#endif
