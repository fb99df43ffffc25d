/* The step that every plain causal decoder takes: XModel.forward and XForCausalLM.forward.
 *
 * ids -> table -> [what the family prepares] -> layers -> final norm -> head and loss
 *
 * and the layer that most of them have:
 *
 *     x = x + mixer(norm(x))
 *     x = x + feed_forward(norm(x))
 *
 * A family declares what differs: in a plain layer the mixer and the feed-forward, else a block that
 * it writes itself. */
#ifndef OOM_DECODER_H
#define OOM_DECODER_H

#include "blocks/blocks.h"
#include "tape/frame.h"

/* A part of a layer over the normed x, consumed.  layer: the layer's frame; kind: what the arch says of the layer. */
typedef struct oom_val (*oom_part_fn)(struct oom_frame *layer, const struct oom_decoder_layer *l,
				      uint8_t kind, struct oom_val x);

struct oom_decoder {
	const char *embed;              /* module of the token table */
	uint64_t more_rows;             /* of that table, beside the vocabulary's */
	const char *norm;               /* module of the final norm, of the kind a->norm; NULL: none */
	const char *head;               /* module of the language-model head; NULL: lm_head */
	/* the model makes position ids and hands them to every layer */
	bool position_ids;
	bool rope;                      /* tables of all of head_dim, in the model's type */
	bool rope_part;                 /* tables of the part of a head that is rotated */
	bool window;                    /* the mask is of a->window tokens */
	bool bare;                      /* layers share nothing: neither mask nor positions */
	bool kinds;                     /* layers differ, as a->kind says */
	/* the same of one layer at this depth, where a->kind does not say it alone; NULL: it does */
	uint8_t (*kind_of)(struct oom_tape *t, const struct oom_arch *a, uint64_t i);
	bool scaled_embed;              /* the table's module scales what it looks up */
	bool gemma_embed;               /* ... by a buffer (oom_scaled_embedding) */
	bool multiplied;                /* the model itself scales the embeddings */
	uint64_t passed;                /* layers that this step passes by, the others being alike */
	bool last_apart;                /* the last layer differs from the others */
	/* sizeof the family's layer struct, at most OOM_CTX_BYTES; 0: struct oom_decoder_layer */
	size_t layer_size;
	/* A layer; NULL: oom_plain_layer. */
	oom_block_fn block;
	/* Of oom_plain_layer. */
	oom_part_fn mixer;              /* attention or what stands for it; NULL: oom_plain_attention */
	oom_part_fn feed_forward;       /* NULL: gated, of a->d_ff */
	const char *norms[2];           /* NULL: input_layernorm, post_attention_layernorm */
	/* From the embeddings x (named in f, `inputs_embeds`) to the first layer's input; what all
	 * layers share gets its name here (oom_name_shared) and its place in l.  NULL: the causal
	 * mask, and the rotary tables if there are any. */
	struct oom_val (*prepare)(struct oom_frame *f, const struct oom_arch *a,
				  struct oom_decoder_layer *l, struct oom_val x);
	/* From the last layer's output to the head's input; NULL: the final norm. */
	struct oom_val (*finish)(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
};
/* For the row of a family. */
#define OOM_DECODER(...) &(const struct oom_decoder){__VA_ARGS__}

/* XModel.forward alone, for a family with a head of its own; its names are gone when the head begins.
 * *embed gets the token table. */
struct oom_val oom_decoder_model(struct oom_tape *t, const struct oom_arch *a,
				 const struct oom_decoder *d, struct oom_val *embed);
struct oom_val oom_decoder_step(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_decoder *d);
/* Prepares what a prepare of NULL does, for one that does more. */
void oom_decoder_shares(struct oom_frame *f, const struct oom_arch *a, const struct oom_decoder *d,
			struct oom_decoder_layer *l, enum oom_dtype dt);
/* The masks of layers with and without a window, told apart by a bit of kind[]: a mask that no layer
 * takes is the model's alone.  some: there is a sliding one at all. */
void oom_decoder_masks(struct oom_frame *f, struct oom_decoder_layer *l, uint8_t bit, bool some,
		       enum oom_dtype dt);

/* The layer above, of a ctx that begins with struct oom_decoder_layer; and its usual attention. */
struct oom_val oom_plain_layer(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x);
struct oom_val oom_plain_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				   uint8_t kind, struct oom_val x);

#endif
