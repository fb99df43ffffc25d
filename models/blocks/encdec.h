/* Layers of the BART line of encoder-decoders: self-attention, cross-attention, feed-forward, each
 * with its norm before or after it.  Families give the embeddings, positions and heads around
 * them. */
#ifndef OOM_ENCDEC_H
#define OOM_ENCDEC_H

#include "blocks.h"

/* How the attention of a stack is written. */
enum oom_encdec_kernel {
	OOM_ED_ASKED,           /* as the plan asks */
	OOM_ED_MATMUL,          /* with matmul, whatever the plan asks for */
	OOM_ED_BMM,             /* with bmm, whatever the plan asks for (TrOCR, SpeechT5, MVP) */
	/* queries scaled, then q, k and v copied into heads; keys without bias (Whisper) */
	OOM_ED_CONTIGUOUS,
};
/* What the layers of an architecture have in common. */
struct oom_encdec_kind {
	enum oom_encdec_kernel kernel;
	bool pre_norm;          /* norms before the sub-layers, else after */
	/* Encoder layers clamp fp16.  mBART, Pegasus, Blenderbot and M2M-100 always, others where a
	 * value is not finite: the step that needs most is one in which some are not. */
	bool clamp;
	/* eager softmax in fp32, back to the scores' type, queries scaled before (Seamless v2) */
	bool fp32_softmax;
	/* after the feed-forward the activations' dropout; fc2's input in its weight's type (NLLB) */
	bool cast_to_fc2;
	bool no_bias;           /* in attention (Pegasus-X, BigBird-Pegasus) */
};

/* One stack of layers; the context of oom_layers.  Its tensors are borrowed. */
struct oom_encdec {
	const struct oom_arch *a;
	struct oom_encdec_kind kind;
	struct oom_val mask, cross_mask, encoded;
	uint64_t layers, heads, ff;
	uint64_t kv_heads;              /* 0: as many as heads */
	uint64_t cross_width;           /* of what idle cross-attention would read; 0: d_model */
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder;
	/* no encoder: cross-attention exists but is not called */
	bool alone;
	/* what some architectures put in the place of the usual; NULL: the usual.  The second
	 * result of self_attention (its probabilities, or none) goes to *weights. */
	struct oom_val (*self_attention)(struct oom_tape *t, const struct oom_encdec *s,
					 uint32_t layer, struct oom_val x, struct oom_val *weights);
	struct oom_val (*feed_forward)(struct oom_tape *t, const struct oom_encdec *s,
				       uint32_t layer, struct oom_val x);
};
/* The stacks of a: the encoder over the batch's tokens, the decoder over m_t targets for each
 * sequence, and over what the encoder makes. */
struct oom_encdec oom_encoder_stack(const struct oom_tape *t, const struct oom_arch *a,
				    const struct oom_encdec_kind *kind);
struct oom_encdec oom_decoder_stack(struct oom_tape *t, const struct oom_arch *a,
				    const struct oom_encdec_kind *kind, uint16_t m_t);

/* The step's task: of a type that takes images the class for an image's text is that of seq2seq (UDOP, T5Gemma 2). */
enum oom_task oom_encdec_task(struct oom_tape *t, bool has_images);

/* The keys of the sizes that BART's descendants name alike. */
#define OOM_ENCDEC_KEYS \
	MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), MUST(enc_layers, "encoder_layers"), \
		OOM_ENCDEC_STACK_KEYS
#define OOM_ENCDEC_STACK_KEYS \
	MUST(dec_layers, "decoder_layers"), LIKE(n_layers, NULL, 1, dec_layers), \
		MUST(n_heads, "encoder_attention_heads"), MUST(dec_heads, "decoder_attention_heads"), \
		MUST(d_ff, "encoder_ffn_dim"), MUST(dec_ff, "decoder_ffn_dim")
#define OOM_ENCDEC_DROPOUT_KEYS(usual) \
	REAL(dropout, "dropout", usual), REAL(attn_dropout, "attention_dropout", 0), \
		REAL(act_dropout, "activation_dropout", 0)

/* The tables of token embeddings: one for all, or when nothing is tied one more for each stack,
 * which leaves the shared one idle.  The modules' names are in this order, NULL for BART's.  Without
 * encoder there is none for it. */
struct oom_encdec_tables {
	struct oom_val shared, encoder, decoder;
};
struct oom_encdec_tables oom_encdec_tables(struct oom_tape *t, const struct oom_arch *a,
					   const char *const names[3], bool encoder);

/* An oom_block_fn over a struct oom_encdec. */
struct oom_val oom_encdec_layer(struct oom_tape *t, const void *ctx, uint32_t layer,
				struct oom_val x);
/* All layers of the stack, at the depth asked for. */
struct oom_val oom_encdec_layers(struct oom_tape *t, const struct oom_encdec *s, struct oom_val x);
/* The usual attention of the stack's kind; consumes x. */
struct oom_val oom_encdec_attention(struct oom_tape *t, const struct oom_encdec *s,
				    struct oom_val x, bool cross, struct oom_val *weights);
/* The mask of a stack of this kind, made as its attention needs it. */
struct oom_val oom_encdec_mask(struct oom_tape *t, const struct oom_encdec *s, bool causal,
			       enum oom_dtype dt, uint16_t mq, uint16_t mk);
/* A decoder's two masks, names of f's. */
void oom_encdec_masks(struct oom_frame *f, struct oom_encdec *decoder, enum oom_dtype dt);
/* fc2(dropout(act(fc1(x)))): what a layer's feed-forward is, for functions that replace it now
 * and then.  Consumes x. */
struct oom_val oom_encdec_feed_forward(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val x);

/* Whether the task is seq2seq; else an error that says so. */
bool oom_seq2seq_only(struct oom_tape *t, const struct oom_arch *a);
/* The head and the loss over m_tokens targets. */
struct oom_val oom_seq2seq_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				struct oom_val embed, const char *head, uint16_t m_tokens);

#endif
