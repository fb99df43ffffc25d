/* What llama.c calls of llama_parts.c. */
#ifndef OOM_FAMILIES_LLAMA_H
#define OOM_FAMILIES_LLAMA_H

#include "../blocks.h"

/* Mllama's cross-attention layers, which text alone passes by. */
void oom_llama_cross_unused(struct oom_tape *t, const struct oom_arch *a, uint64_t layers);
/* Phi-4's image and audio embeddings: weights alone when the batch is text. */
void oom_llama_phi4_unused(struct oom_tape *t, const struct oom_arch *a);

#endif
