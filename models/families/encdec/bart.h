/* BART and what the types like it differ in: bart_types.c reads their configs, bart.c runs them. */
#ifndef OOM_FAMILIES_BART_H
#define OOM_FAMILIES_BART_H

#include "blocks/encdec.h"

struct bart_kind {
	struct oom_encdec_kind layer;   /* pre_norm: with one more norm after each stack */
	bool embed_norm;                /* layernorm_embedding */
	bool norm_words;                /* in a decoder it is of the words alone, before positions are added */
	bool offset;                    /* two more positions than the config says */
	bool sinusoidal;                /* positions are a table that is not trained but counted */
	/* positions are a buffer, indexed without a gradient (fairseq's make_positions) */
	bool table;
	bool row;                       /* the decoder is given its positions: one row for the batch */
	bool logit_bias;
	bool names_ones;                /* the decoder's mask of ones has a name beside the causal mask's */
	bool decoder;                   /* a decoder only (TrOCR) */
	bool blocks;                    /* a block-sparse encoder (BigBird) */
	bool experts;
	bool speech;                    /* classes that take speech in place of text */
	bool prompts;                   /* use_prompt adds trained prompts to every layer (MVP) */
	bool relative_speech;           /* whose encoder has relative positions (Seamless M4T's first) */
};

struct bart {
	struct bart_kind kind;          /* the type's, as the config changes it */
	uint64_t sparse[2];             /* every so many-th layer has experts: encoder, decoder */
	uint64_t cross_width;           /* of what TrOCR's idle cross-attention would read */
	uint64_t block, random;         /* BigBird's */
	uint64_t full;                  /* tokens up to which attention is full; 0: at any length */
	bool speech;                    /* the class takes speech */
};
OOM_OWN(bart, struct bart);

/* The forward pass and the loss (bart.c). */
struct oom_val bart_step(struct oom_tape *t, const struct oom_arch *a);

#endif
