/* The step that every plain causal decoder takes: XModel.forward and XForCausalLM.forward.
 *
 * ids -> table -> [what the family prepares] -> layers -> final norm -> head and loss
 *
 * A family declares what differs, and writes its block. */
#ifndef OOM_DECODER_H
#define OOM_DECODER_H

#include "blocks/blocks.h"
#include "tape/frame.h"

struct oom_decoder {
	const char *embed;              /* module of the token table */
	const char *norm;               /* module of the final norm, of the kind a->norm */
	const char *head;               /* module of the language-model head; NULL: lm_head */
	/* the model makes position ids and hands them to every layer */
	bool position_ids;
	bool rope;                      /* tables of all of head_dim, in the model's type */
	bool rope_part;                 /* tables of the part of a head that is rotated */
	bool window;                    /* the mask is of a->window tokens */
	bool kinds;                     /* layers differ, as a->kind says */
	bool scaled_embed;              /* the table's module scales what it looks up */
	bool last_apart;                /* the last layer differs from the others */
	/* sizeof the family's layer struct, at most OOM_CTX_BYTES; 0: struct oom_decoder_layer */
	size_t layer_size;
	oom_block_fn block;
	/* From the embeddings x (named in f, `inputs_embeds`) to the first layer's input; what all
	 * layers share gets its name here (oom_name_shared) and its place in l.  NULL: the causal
	 * mask, and the rotary tables if there are any. */
	struct oom_val (*prepare)(struct oom_frame *f, const struct oom_arch *a,
				  struct oom_decoder_layer *l, struct oom_val x);
	/* From the last layer's output to the head's input; NULL: the final norm. */
	struct oom_val (*finish)(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
};

/* XModel.forward alone, for a family with a head of its own; its names are gone when the head begins.
 * *embed gets the token table. */
struct oom_val oom_decoder_model(struct oom_tape *t, const struct oom_arch *a,
				 const struct oom_decoder *d, struct oom_val *embed);
struct oom_val oom_decoder_step(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_decoder *d);
/* Prepares what a prepare of NULL does, for one that does more. */
void oom_decoder_shares(struct oom_frame *f, const struct oom_arch *a, const struct oom_decoder *d,
			struct oom_decoder_layer *l, enum oom_dtype dt);

#endif
