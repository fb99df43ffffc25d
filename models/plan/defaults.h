/* Defaults and limits that the table of knobs and the rules between knobs both need. */
#ifndef OOM_PLAN_DEFAULTS_H
#define OOM_PLAN_DEFAULTS_H

/* deepspeed/runtime/zero/config.py */
#define OOM_DEFAULT_REDUCE_BUCKET 500000000
#define OOM_DEFAULT_MAX_LIVE 1000000000
#define OOM_DEFAULT_PREFETCH 50000000
#define OOM_DEFAULT_PERSISTENCE 100000
#define OOM_DEFAULT_SUB_GROUP 1000000000
/* trl/trainer/grpo_config.py max_completion_length */
#define OOM_DEFAULT_COMPLETION 256
/* each is a forward pass of its own in the recording */
#define OOM_MOST_TEXTS 8
/* torch.utils.data.DataLoader */
#define OOM_DEFAULT_PREFETCH_FACTOR 2

/* The most GPUs of one node that a device map is laid over. */
#define OOM_MAP_GPUS 64

#endif
