/* BERT and the types that differ from it in embeddings, norms and heads. */
#ifndef OOM_BERT_H
#define OOM_BERT_H

#include "blocks/encoder.h"

enum oom_bert_flags {
	BERT_IDS_POSITIONS = 1,         /* positions made from the ids, one row a token */
	/* token types are fresh zeros, not gathered from a buffer */
	BERT_ZERO_TYPES = 2,
	BERT_NO_TYPES = 4,
	BERT_ADD_INPLACE = 8,           /* embeddings += position_embeddings */
	BERT_NO_EMBED_NORM = 16,
	BERT_CLS_HEAD = 32,             /* RoBERTa's classification head in place of the pooler */
	BERT_GELU_HEADS = 64,           /* heads use gelu whatever hidden_act says */
	BERT_ELECTRA = 128,             /* a narrow embedding and its generator */
	BERT_PRE_NORM = 256,
	BERT_NO_FF_DROPOUT = 512,
	BERT_WRITTEN_OUT = 1024,        /* no kernel but the eager one */
	BERT_KEEPS_WEIGHTS = 2048,      /* layers return their attention weights */
	BERT_FLOAT_MASK = 4096,         /* (1 - mask) * min, always there, [b, 1, 1, s] */
	/* of FLOAT_MASK's: eager_attention_forward, softmax in fp32 */
	BERT_SOFTMAX_FP32 = 8192,
	BERT_IDLE_POOLER = 16384,       /* a pooler in the language model too */
	BERT_NO_TRANSFORM = 32768,      /* a language model head that is the decoder alone */
	BERT_UNTIED_BIAS = 65536,       /* no spare bias when nothing is tied */
	BERT_NO_BUFFER = 131072,        /* position ids are made, not kept */
	/* queries meet some of the keys only: approximated by as many keys in one place */
	BERT_FEW_KEYS = 1 << 18,
	/* queries meet the keys of a window, BERT_KEYS wide (Longformer) */
	BERT_WINDOW = 1 << 19,
	BERT_ACT_HEAD = 1 << 20,        /* the classification head uses hidden_act */
	BERT_ADAPTERS = 1 << 21,        /* a bottleneck for every language (X-MOD) */
	BERT_MORE_POSITIONS = 1 << 22,  /* two more than max_position_embeddings */
	BERT_POSITIONS_FIRST = 1 << 23, /* words + positions + types */
};
/* extra[]: the flags; a decoder; width of the head; keys a query meets, and the length up to which
 * it meets all; X-MOD's norms first */
enum { BERT_FLAGS, BERT_CAUSAL, BERT_D_HEAD, BERT_KEYS, BERT_FULL_TO, BERT_PRE, BERT_BLOCK,
       BERT_RANDOM };

/* Embeddings up to the first layer; *word gets the table of words, *output what the model
 * keeps of them while its layers run (bert_input.c). */
struct oom_val oom_bert_embeddings(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *word, struct oom_val *output);

#endif
