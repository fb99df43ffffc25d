/* What both versions of DeBERTa share (deberta.c). */
#ifndef OOM_DEBERTA_H
#define OOM_DEBERTA_H

#include "blocks/encoder.h"

#define OOM_DEBERTA_KEYS \
	OOM_ENCODER_KEYS, LIKE(d_embed, "embedding_size", 1, d_model), \
		OR(type_vocab, "type_vocab_size", 0), ACT(act, "hidden_act", "gelu"), \
		REAL(dropout, "hidden_dropout_prob", 0.1), \
		REAL(attn_dropout, "attention_probs_dropout_prob", 0.1), \
		FLAG(tie, "tie_word_embeddings", true)

/* pos_att_type, as a list or as "p2c|c2p": which terms the scores have. */
void oom_deberta_terms(struct oom_reader *r, bool *c2p, bool *p2c);
/* torch.gather of relative scores, which keeps its input besides the index (derivatives.yaml:
 * gather_backward(grad, self, dim, index)).  Consumes x. */
struct oom_val oom_deberta_look_up(struct oom_tape *t, uint64_t heads, struct oom_val x,
				   struct oom_val index);
/* Words, positions where `biased`, types, normed, masked and dropped out; *word gets the table. */
struct oom_val oom_deberta_embeddings(struct oom_tape *t, const struct oom_arch *a, bool biased,
				      struct oom_val (*norm)(struct oom_tape *t, struct oom_val x),
				      struct oom_val *word);
struct oom_val oom_deberta_mask(struct oom_tape *t);
/* The language model's head, the older or the newer one, or the classifier's. */
struct oom_val oom_deberta_heads(struct oom_tape *t, const struct oom_arch *a, bool legacy,
				 double pooler_dropout, struct oom_val x, struct oom_val word);

#endif
