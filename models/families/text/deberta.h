/* What both versions of DeBERTa share (deberta.c). */
#ifndef OOM_DEBERTA_H
#define OOM_DEBERTA_H

#include "blocks/encoder.h"

/* pos_att_type, as a list or as "p2c|c2p": which terms the scores have. */
void oom_deberta_terms(struct oom_reader *r, uint64_t *c2p, uint64_t *p2c);
/* torch.gather of relative scores, which keeps its input besides the index (derivatives.yaml:
 * gather_backward(grad, self, dim, index)).  Consumes x. */
struct oom_val oom_deberta_look_up(struct oom_tape *t, uint64_t heads, struct oom_val x,
				   struct oom_val index);
/* Words, positions where `biased`, types, normed, masked and dropped out; *word gets the table. */
struct oom_val oom_deberta_embeddings(struct oom_tape *t, const struct oom_arch *a, bool biased,
				      struct oom_val (*norm)(struct oom_tape *t, struct oom_val x),
				      struct oom_val *word);

#endif
