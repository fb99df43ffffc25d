/* Layers of the BART line of encoder-decoders: self-attention, cross-attention, feed-forward, each
 * with its norm before or after it.  Families give the embeddings, positions and heads around
 * them. */
#ifndef OOM_ENCDEC_H
#define OOM_ENCDEC_H

#include "blocks.h"

enum oom_encdec_flag {
	OOM_ED_PRE_NORM = 1,            /* norms before the sub-layers, else after */
	OOM_ED_CLAMP = 2,               /* encoder layers clamp fp16 */
	/* queries scaled, then q, k and v copied into heads; keys without bias (Whisper) */
	OOM_ED_CONTIGUOUS = 4,
	/* attention written out with bmm, whatever the plan asks for (TrOCR, SpeechT5) */
	OOM_ED_BMM = 8,
	/* attention written out with matmul, whatever the plan asks for */
	OOM_ED_EAGER = 32,
	/* eager softmax in fp32, back to the scores' type, queries scaled before (Seamless v2) */
	OOM_ED_FP32_SOFTMAX = 128,
	/* after the feed-forward the activations' dropout; fc2's input in its weight's type */
	OOM_ED_NLLB = 64,
	OOM_ED_NO_BIAS = 16,            /* no biases in attention (Pegasus-X, BigBird-Pegasus) */
};

/* extra[] of encoder-decoders; a family's own begin at ENCDEC_EXTRA. */
enum { ENC_FF, DEC_FF, ENC_HEADS, DEC_HEADS, ENC_LAYERS, ENCDEC_EXTRA };
/* Reads the sizes that BART's descendants name alike; head_dim follows. */
void oom_encdec_sizes(struct oom_arch *a);

/* One stack of layers; the context of oom_layers. */
struct oom_encdec {
	const struct oom_arch *a;
	struct oom_val mask, cross_mask, encoded;
	uint64_t kv_heads;                      /* 0: as many as heads */
	/* cross_width: of what idle cross-attention would read; 0 = d_model */
	uint64_t heads, ff, cross_width;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	unsigned flags;
	bool decoder;
	/* no encoder: cross-attention exists but is not called */
	bool alone;
	/* what some architectures put in the place of the usual; NULL: the usual.  The second
	 * result of self_attention (a reference to its probabilities, or none) goes to *weights. */
	struct oom_val (*self_attention)(struct oom_tape *t, const struct oom_encdec *s,
					 uint32_t layer, struct oom_val x, struct oom_val *weights);
	struct oom_val (*feed_forward)(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x);
};

/* An oom_block_fn over a struct oom_encdec. */
struct oom_val oom_encdec_layer(struct oom_tape *t, const void *ctx, uint32_t layer,
				struct oom_val x);
/* The usual attention of the stack's kind; consumes x. */
struct oom_val oom_encdec_attention(struct oom_tape *t, const struct oom_encdec *s,
				    struct oom_val x, bool cross, struct oom_val *weights);
/* The mask of a stack of this kind, made as its attention needs it. */
struct oom_val oom_encdec_mask(struct oom_tape *t, unsigned flags, bool causal, enum oom_dtype dt,
			       uint16_t mq, uint16_t mk);
/* fc2(dropout(act(fc1(x)))): what a layer's feed-forward is, for functions that replace it now
 * and then.  Consumes x. */
struct oom_val oom_encdec_feed_forward(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val x);

#endif
