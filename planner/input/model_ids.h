/* What bundled models are called elsewhere: data/model_ids.csv.  Private to planner/. */
#ifndef OOM_INPUT_MODEL_IDS_H
#define OOM_INPUT_MODEL_IDS_H

#include <stdbool.h>
#include <stddef.h>

struct oom_model_id {
	char bundled[64], hub_id[96];
	/* "llama3_1/8B full lora": the stem of the configs of torchtune's recipes, and which there are;
	 * "": none (pytorch/torchtune recipes/configs @bd2a0fc) */
	char torchtune[96];
};

/* The row of a bundled model's name, its hub id, or a model of the same shape (of any organisation,
 * also as unsloth names its 4-bit copies).  False: none. */
bool oom_model_id_find(const char *name, struct oom_model_id *out);

#endif
