/* What BERT-like encoders share: residual outputs, masked-LM and classification heads,
 * embeddings of ids. */
#ifndef OOM_ENCODER_H
#define OOM_ENCODER_H

#include "blocks.h"
#include "config/keys.h"

/* The keys that nearly every encoder has, and those that BERT and its descendants have besides. */
#define OOM_ENCODER_KEYS \
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), \
		MUST(max_positions, "max_position_embeddings")
#define OOM_BERT_KEYS \
	OOM_ENCODER_KEYS, OR(type_vocab, "type_vocab_size", 2), ACT(act, "hidden_act", "gelu"), \
		REAL(dropout, "hidden_dropout_prob", 0.1), \
		REAL(attn_dropout, "attention_probs_dropout_prob", 0.1)

/* nn.Embedding of the ids, d wide, and its gradients where PEFT asks for them; *word gets the
 * table. */
struct oom_val oom_word_embeddings(struct oom_tape *t, const struct oom_arch *a, const char *module,
				   struct oom_dim d, struct oom_val *word);
/* position_embeddings of one row of positions for the whole batch. */
struct oom_val oom_position_embeddings(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_dim d);
/* token_type_embeddings of fresh zeros, or of the types given. */
struct oom_val oom_zero_types(struct oom_tape *t, const struct oom_arch *a, struct oom_dim d);
struct oom_val oom_type_embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_dim d,
				   struct oom_val types);
/* A buffer of zeros, cut and expanded over the batch: one row of types. */
struct oom_val oom_buffered_types(struct oom_tape *t);

/* dense, dropout, then h + input, normed when `norm` names one (BertSelfOutput, BertOutput); from
 * and input are given up when that is done. */
struct oom_val oom_output(struct oom_tape *t, double dropout, const char *norm, struct oom_val from,
			  struct oom_val input);

/* The head of a masked (or causal) language model and its loss. */
struct oom_mlm {
	uint64_t d;             /* width of the transform */
	enum oom_act act;
	bool no_transform;      /* the decoder alone */
	bool spare_bias;        /* predictions.bias beside decoder.bias when nothing is tied */
	bool upcast;            /* masked-LM loss in fp32 (ForMaskedLMLoss) */
	bool add_bias;          /* decoder without a bias, one added afterwards */
	const char *owner;      /* the module that the bias belongs to; NULL: predictions */
	const char *norm;       /* of the transform; NULL: LayerNorm */
	const char *within;     /* a module around the transform, where its names alone do not say which; may be NULL */
};
/* dense, activation, norm, decoder, loss; a fused head takes h itself, and the transform idles.
 * h is given up when the loss is done. */
struct oom_val oom_mlm_loss(struct oom_tape *t, const struct oom_arch *a, const struct oom_mlm *m,
			    struct oom_val h, struct oom_val word);
/* Whether a head whose transform goes from width `in` to d is fused with its loss: the fused
 * product takes what the model returns, without the transform, so both must be of one width. */
bool oom_fuses_mlm_head(struct oom_tape *t, uint64_t in, uint64_t d);
/* The transform's parameters where it does not run. */
void oom_idle_transform(struct oom_tape *t, const char *norm, uint64_t d);
/* A classification head on the first token: dropout, dense, activation, dropout, projection.  h,
 * the model's output, is given up when the loss is done. */
struct oom_token_head {
	const char *dense, *out;        /* module names */
	enum oom_act act;
	double dropout;                 /* the first one; the second is a->classifier_dropout */
};
struct oom_val oom_token_head(struct oom_tape *t, const struct oom_arch *a,
			      const struct oom_token_head *head, struct oom_val h);
/* The same with dense and out_proj (RobertaClassificationHead). */
struct oom_val oom_cls_head(struct oom_tape *t, const struct oom_arch *a, enum oom_act act,
			    struct oom_val h);
/* The same with dense and tanh, no dropout first, and classifier (BertPooler). */
struct oom_val oom_pooler_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h);
/* A pooler that runs although nothing of the loss comes from it: what it gives, which the model's outputs
 * hold until the loss is returned. */
struct oom_val oom_idle_pooler(struct oom_tape *t, const struct oom_arch *a, struct oom_val h);

/* The attention weights that the model's caller still holds from the layer before the i-th, x wide
 * in type, where the layers return (hidden, weights) and write their attention out; absent where
 * autograd keeps them anyway. */
struct oom_val oom_written_weights_before(struct oom_tape *t, const struct oom_arch *a, uint32_t i,
					  enum oom_dtype x);

/* padding_idx + cumsum(ids != padding_idx): one row per token. */
struct oom_val oom_positions_from_ids(struct oom_tape *t);

/* Runs step as if the plan had not asked for checkpointing, which transformers refuses for the
 * type, and states so. */
struct oom_val oom_without_checkpointing(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val (*step)(struct oom_tape *t,
								const struct oom_arch *a));

/* The six embeddings of a box: of its corners (x, y, x, y), height and width, from four tables of
 * the widths given.  The box has a name in f; `difference` names what height and width are looked
 * up by. */
void oom_box_embeddings(struct oom_frame *f, uint64_t rows, const struct oom_dim width[4],
			const char *difference, struct oom_val e[6]);

/* Hidden states that a model keeps of every layer while it runs without gradients (a list of them, a
 * cache): owned by step(), whose layers add to it. */
struct oom_kept {
	bool in_training;               /* and not in evaluations alone */
	bool without_grad;              /* and in any pass where autograd has no use for them */
	struct oom_val x[2 * OOM_MAX_LAYERS];
	size_t n;
};
/* Keeps a reference to x until oom_kept_drop, in evaluation only: training keeps it for backward
 * anyway. */
void oom_kept_add(struct oom_tape *t, struct oom_kept *k, struct oom_val x);
void oom_kept_drop(struct oom_tape *t, struct oom_kept *k);

/* DeBERTa: clamp(+-relative_pos + span, 0, 2 span - 1), indices [s, s]. */
struct oom_val oom_relative_positions(struct oom_tape *t, bool negate);

#endif
