/* T5 and what its relatives put in the place of its parts (t5_parts.c). */
#ifndef OOM_FAMILIES_T5_H
#define OOM_FAMILIES_T5_H

#include "blocks/blocks.h"

/* When the decoder's result is multiplied by d_model^-0.5 before the head. */
enum t5_scale {
	T5_SCALE_SAID,          /* as scale_decoder_outputs says, or else tie_word_embeddings */
	T5_SCALE_TIED,          /* where the head is the embedding */
	T5_SCALE_NEVER
};

struct t5_kind {
	const char *feed_forward;       /* feed_forward_proj where the config is silent; NULL: relu */
	bool untied;                    /* tie_word_embeddings where the config is silent */
	bool each;                      /* every layer makes its own bias */
	bool table_once;                /* and only the first has a table (Switch) */
	bool experts;
	bool blocks;    /* the encoder attends within blocks and their neighbours (LongT5) */
	bool features;  /* the encoder is fed features of d_model (Pop2Piano) */
	bool layout;    /* image patches and boxes beside the text (UDOP) */
	bool own_head;  /* the head is never tied */
	bool forced_tie;        /* its config class ties the head, whatever the file says */
	bool fuses;     /* SDPA is a choice where attention goes by its name (_supports_sdpa) */
	bool looks;     /* fp16 is clamped only where an infinity is seen (LongT5, Switch) */
	enum t5_scale scale;
	/* untied, encoder and decoder have tables of their own beside the shared one */
	bool own_tables;
};
static inline const struct t5_kind *t5_kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

struct t5 {
	uint64_t buckets;
	uint64_t sparse[2];             /* every so many-th layer has experts: encoder, decoder */
	uint64_t block;                 /* LongT5's: local_radius + 1 tokens */
	uint64_t global_block;          /* tokens that a transient global one sums; with `global` */
	uint64_t composers;             /* Pop2Piano's */
	uint64_t biases, patch, coords; /* UDOP's: further tables of biases; patches, boxes */
	bool scale_out, global, router_bias;
};
OOM_OWN(t5, struct t5);

struct t5_stack {
	const struct oom_arch *a;
	struct oom_val bias, cross_bias, encoded;       /* shared by all layers */
	struct oom_val mask, cross_mask;                /* what a layer's own bias is added to */
	uint16_t m_tokens, m_len, m_src_len;
	bool decoder;
};

/* What one attention is between, all borrowed; len: the keys'. */
struct t5_heads {
	struct oom_val q, k, v, bias, mask;
	uint16_t len;
	bool cross;
};

static inline bool t5_by_name(const struct oom_tape *t)
{
	return t->plan->t5_attention == OOM_T5_INTERFACE;
}
/* True if that attention is torch's. */
bool t5_fuses(const struct oom_tape *t, const struct oom_arch *a);
/* The attention of transformers that have it by name (t5_interface.c). */
struct oom_val t5_by_interface(struct oom_tape *t, const struct t5_stack *s, const struct t5_heads *heads);
/* The forward pass and the loss (t5.c). */
struct oom_val t5_step(struct oom_tape *t, const struct oom_arch *a);
/* Whether the layer has experts, and these; consumes x. */
bool t5_is_sparse(const struct t5_stack *s, uint32_t layer);
struct oom_val t5_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
struct oom_val t5_norm(struct oom_tape *t, const char *name, struct oom_val x);
/* LongT5's bias of one block and its two neighbours with the mask added (dt: the scores' type), and the attention
 * that uses it, of which the first layer's also makes the mask; x is borrowed (t5_blocks.c). */
struct oom_val t5_block_bias(struct oom_frame *f, struct t5_stack *s, enum oom_dtype dt);
struct oom_val t5_block_attention(struct oom_tape *t, const struct t5_stack *s, uint32_t layer, struct oom_val x);
/* Parameters beside the text model that a step on text does not meet. */
void t5_idle_parts(struct oom_tape *t, const struct oom_arch *a);

#endif
