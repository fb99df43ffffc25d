/* BERT and what the types like it differ in. */
#ifndef OOM_BERT_H
#define OOM_BERT_H

#include "blocks/encoder.h"

enum bert_attention {
	BERT_ALL,
	BERT_WINDOW,                    /* the keys of a window (Longformer) */
	BERT_BLOCKS,                    /* blocks of keys, in long sequences (BigBird) */
	BERT_NYSTROM,
	BERT_YOSO,
};
/* The head of a classifier: the pooler's, or RoBERTa's with an activation of its own. */
enum bert_cls { BERT_POOLER, BERT_CLS_TANH, BERT_CLS_GELU, BERT_CLS_ACT };
/* How long a pre-norm layer holds what it feeds to its feed-forward. */
enum bert_normed { BERT_UNTIL_DENSE, BERT_UNTIL_ACT, BERT_UNTIL_END };

/* What the embeddings look up. */
struct bert_ids {
	struct oom_val positions;
	struct oom_val types;           /* zeros that the model made; none where they are gathered */
};

struct bert_kind {
	/* embeddings */
	bool ids_positions;             /* positions made from the ids, one row per token */
	bool zero_types;                /* types are fresh zeros, not gathered from a buffer */
	bool shown_types;               /* types are a view of the buffer, not gathered from it */
	bool no_types;
	bool add_inplace;               /* embeddings += position_embeddings */
	bool no_embed_norm;
	bool no_buffer;                 /* position ids are made, not kept */
	bool more_positions;            /* two more than max_position_embeddings */
	const char *embed_key;          /* the embeddings' width, where it is not the model's */
	const char *head_key;           /* the same of the language model's head */
	/* the encoder maps the embeddings, and the model keeps what it was given (RemBERT) */
	bool maps_in;
	/* what follows the words, which have a name in f; NULL: types, then positions */
	struct oom_val (*embed)(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				const struct bert_ids *ids);
	void (*read)(struct oom_arch *a);       /* keys of the type's own; may be NULL */
	/* layers */
	bool pre_norm;
	/* of pre_norm: the norm before attention, and those after it; NULL: LayerNorm */
	const char *norm, *later_norms;
	bool no_ff_dropout;
	bool written_out;               /* no kernel but the eager one */
	bool softmax_fp32;              /* of it: eager_attention_forward */
	bool names_weights;             /* of it: the layer holds the weights to its end ... */
	bool keeps_weights;             /* ... and its caller until the next layer has */
	bool float_mask;                /* (1 - mask) * min, always there, [b, 1, 1, s] */
	bool adapters;                  /* a bottleneck for every language (X-MOD) */
	enum bert_normed normed;
	enum bert_attention attention;
	/* heads */
	enum bert_cls cls;
	bool gelu_heads;                /* heads use gelu whatever hidden_act is */
	bool no_transform;              /* a language model head that is the decoder alone */
	bool no_spare_bias;             /* no second bias when nothing is tied */
	/* the head's module and its norm; NULL: as oom_mlm_loss has them */
	const char *head, *head_norm;
	bool head_first;                /* classes make their heads before their bodies */
	bool idle_pooler;               /* a pooler in the language model too ... */
	bool pooler_always;             /* ... and beside a classifier that has its own head */
	bool untied;                    /* tie_word_embeddings does nothing */
	enum oom_task task;             /* by default; 0: a masked language model */
	const char *approximation;      /* what activations are approximated as; NULL: nothing */
};
static inline const struct bert_kind *bert_kind(const struct oom_arch *a)
{
	return a->type->kind;
}

/* What the config has besides. */
struct bert {
	bool causal, cross, pre_norm, bias;
	uint64_t d_head;                /* width of the language model's head */
	uint64_t window;                /* Longformer's */
	uint64_t block, random, full_to;        /* BigBird's, and up to where all keys are met */
	uint64_t task_types;            /* ERNIE's; 0: none */
	bool entity_queries;            /* LUKE's, between words and entities */
	union {
		struct {
			uint64_t rows[2], width[2];     /* shapes, sounds */
			bool on[2], joined;
		} roc;
		struct {
			uint64_t languages, width;
			bool norm;
		} xmod;
		struct {
			uint64_t rows, width;
			bool tied;
		} luke;
		struct {
			uint64_t depth, width, rows[2];
		} markup;
		struct {
			uint64_t rows;
		} layout;
		struct {
			uint32_t n, rows[64];
		} tapas;
	};
};
OOM_OWN(bert, struct bert);

/* The forward pass and the loss (bert.c). */
struct oom_val bert_step(struct oom_tape *t, const struct oom_arch *a);
/* The embeddings, without what brings them to the model's width; *word gets the table of words
 * (bert_input.c).  types: what bert_zero_types made. */
struct oom_val bert_embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val types,
			       struct oom_val *word);
/* token_type_ids as X.forward makes them before it calls the embeddings, named in its frame f; none
 * for types without. */
struct oom_val bert_zero_types(struct oom_frame *f, const struct oom_arch *a);
/* Of struct bert_kind: embed and read of the types that have more than words, positions and
 * types. */
struct oom_val bert_embed_positions_first(struct oom_frame *f, const struct oom_arch *a,
					  struct oom_val x, const struct bert_ids *ids);
struct oom_val bert_embed_roc(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			      const struct bert_ids *ids);
struct oom_val bert_embed_luke(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			       const struct bert_ids *ids);
struct oom_val bert_embed_layoutlm(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				   const struct bert_ids *ids);
struct oom_val bert_embed_markuplm(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				   const struct bert_ids *ids);
struct oom_val bert_embed_tapas(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				const struct bert_ids *ids);
void bert_read_roc(struct oom_arch *a);
void bert_read_luke(struct oom_arch *a);
void bert_read_layoutlm(struct oom_arch *a);
void bert_read_markuplm(struct oom_arch *a);
void bert_read_tapas(struct oom_arch *a);

#endif
