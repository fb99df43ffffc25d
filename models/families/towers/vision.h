/* Compositions: a text family beside the towers and projectors of another modality.
 *
 * A row of multimodal/vlm_list.h names the sub configs and one function that emits everything but the text
 * model; the text family runs as it is, with the text config as its config.  Towers are described
 * by numbers and switches (struct oom_tower) and emitted by one generic encoder, so that a new
 * one is a row of the table in tower_types.c. */
#ifndef OOM_VISION_H
#define OOM_VISION_H

#include "blocks/blocks.h"

#define OOM_PARTS 5     /* sub configs of one composition */
#define OOM_DEEPEST 32  /* layers of a tower whose features a text model takes */

/* A sub config: its place in the file and the defaults of its own model type. */
struct oom_part {
	char type[64], prefix[96], over_prefix[96];
	struct oom_keys defaults;               /* owned */
	struct oom_reader rd;
};

struct oom_composition;
struct oom_vlm {
	char type[64];                          /* the composition's own model type */
	const struct oom_composition *kind;
	const struct oom_family *text;
	/* what the text family does when nothing else is said */
	enum oom_task text_task;
	/* as a causal language model the text model stands alone */
	bool alone;
	bool text_tie;                          /* head and embedding, as the text config says */
	struct oom_arch text_arch;              /* the text model alone, tied so; layers refer to it */
	bool unknown_text;                      /* the text config's type is not modelled */
	struct oom_reader outer;
	struct oom_part part[OOM_PARTS];        /* [0]: the text's */
	size_t n_parts;
};

/* Opens the next sub config, that of the composition's key (vlm_parts.c). */
void oom_vlm_open_part(struct oom_vlm *v, const char *key);

/* One emission: readers of its own, so that a model may be recorded by several threads. */
struct oom_emit {
	struct oom_tape *t;
	const struct oom_arch *a;               /* the text's sizes */
	const struct oom_vlm *v;
	struct oom_reader outer, part[OOM_PARTS];
	uint64_t pictures;                      /* of a sample: its images, and what its video's frames are to the tower */
	uint16_t m_images;                      /* of the batch */
	bool images;                            /* they are there */
	bool merged;                            /* and features of theirs */
	struct oom_frame *output;               /* of the model, which holds the features */
	struct oom_val tokens;                  /* which of the tokens are an image's */
	struct oom_val features;                /* and what stands there */
	struct oom_val words;                   /* the embedded words that they are merged with */
	int stacks;                             /* of the text model that are through */
	/* features of inner layers, which are added behind the text's first ones (deepstack.c) */
	struct oom_val deep[OOM_DEEPEST];
	uint32_t n_deep;
	/* tokens of the tower running: all images', one image's */
	uint16_t m_tokens, m_len;
};

/* What get_input_embeddings of a tower's class names, which is hooked under checkpoints (oom_hooked): its patches, its
 * embeddings as a whole, nothing (the class has no such function, and no module of the usual name). */
enum oom_hook { OOM_HOOK_PATCHES, OOM_HOOK_EMBEDDINGS, OOM_HOOK_NONE };

/* A tower: patches, positions, a pre-norm encoder. */
struct oom_tower {
	uint64_t d, ff, layers, heads, kv_heads, head_dim;
	uint64_t side, patch, channels, frames, positions, merge;
	uint64_t run;                           /* layers up to those whose output is used */
	bool raw;                               /* and that before the last norm */
	/* what comes before the layers */
	bool patch_bias;
	bool patch_last;                        /* pixels already cut into patches: a linear layer */
	bool unfolds;                           /* after that, torch.nn.Unfold cut them */
	bool repeats;                   /* cosines and sines are made of half a head's angles anew in every layer, for queries and keys apart */
	bool turned;                    /* rows lie as the convolution left them, which the first norm keeps */
	bool times;                             /* a patch spans temporal_patch_size frames */
	bool class_token;                       /* among the patches */
	bool learned;                           /* positions, one per patch */
	bool bilinear;                          /* interpolated of four rows of the table, whatever the image's size */
	bool bare_places;                       /* a parameter that is added as it is */
	bool place_ids;                         /* their numbers are a buffer */
	/* rotary frequencies of all places are two buffers; the patches of all images are one sequence,
	 * which an additive mask keeps apart (Pixtral) */
	bool table, joined;
	bool selects;                           /* images that are padding are left out: a copy of the others, and a mask of all pixels */
	bool joins;                             /* tiles of all images are joined to one batch: a copy of the pixels */
	bool padded;                            /* images of a batch are padded to as many patches, which a mask hides */
	bool complex;                           /* one product with complex frequencies of all places, a buffer */
	bool frequencies;                       /* rotary frequencies of one place are a buffer */
	bool pre_norm, post_norm;
	bool norm_first;                /* before the positions */
	bool returned;          /* the pooled state of the class token is returned beside all others, and held */
	bool held;              /* so are the last layer's states, from before the norm */
	bool softmax_as_is;                     /* scores are not cast to fp32 */
	bool pool;                              /* SigLIP's attention pooling,
		which image features do not use */
	/* layers */
	bool fused_qkv, qkv_bias, o_bias, gated, mlp_bias, rope;
	bool qk_norm, qk_norm_full, qk_layer_norm;      /* over each head,
		or all; not an RMS norm */
	bool scale;                             /* a learned factor per channel on both branches */
	bool qwen;                              /* Qwen's manner: keys depth, num_heads, in_channels; modules q, k, v */
	bool apart;                             /* every image is attended by itself, the results are joined */
	bool no_deepstack;                      /* features of inner layers are not used */
	bool windowed;                          /* tokens lie window by window: in the layers, and are put back behind them */
	enum oom_hook hook;
	enum oom_norm norm;
	enum oom_act act;
	const char *o, *up, *down;              /* modules */
	/* and those with other names than norm1, norm2; pre_layernorm, post_layernorm; class_embedding, patch_embedding,
	 * position_embedding; the merger's ln_q, 0, 2 */
	const char *norms[2], *pre, *post, *token, *patches, *places, *merger[3];
	const char *width, *out;                /* keys; NULL: hidden_size, out_hidden_size */
};

/* Reads a tower of the given type; an unknown one fails the reader (tower_types.c). */
void oom_tower_read(struct oom_tower *w, struct oom_reader *r, const char *type);
/* Emits it: pixels to hidden states of e->m_tokens x d (tower.c). */
struct oom_val oom_tower_run(struct oom_emit *e, const struct oom_tower *w);
/* Reads the tower of part i and emits it. */
struct oom_val oom_tower_part(struct oom_emit *e, size_t i, struct oom_tower *w);
/* The same where its output is of no use. */
void oom_tower_weights(struct oom_emit *e, size_t i, struct oom_tower *w);
/* Sets e->m_tokens and e->m_len for n tokens per image. */
void oom_tower_tokens(struct oom_emit *e, uint64_t n);
/* features[:, 1:] or [:, :-1], copied where a batch of several makes it a view with gaps (llava.c). */
struct oom_val oom_without_class(struct oom_emit *e, struct oom_val x);
/* x in another order, by an index of groups of `group` rows. */
struct oom_val oom_reordered(struct oom_emit *e, const char *name, struct oom_val x, uint64_t group);
/* merge x merge tokens become one of merge^2 the width: a view of a permuted copy. */
struct oom_val oom_merge_tokens(struct oom_emit *e, struct oom_val x, uint64_t merge);

/* Layers whose class is no GradientCheckpointingLayer: checkpointing leaves them as they are. */
struct oom_val oom_plain_layers(struct oom_tape *t, uint64_t n, const uint8_t *kind, oom_block_fn fn, const void *ctx,
				size_t ctx_size, struct oom_val x);

/* The vision tower of Gemma 4 and its embedder (gemma4_vision.c). */
struct oom_val oom_gemma4_vision(struct oom_emit *e);

/* Merges features of another kind (audio) with the words, ahead of those that the emission returns (vlm.c). */
void oom_merge_before(struct oom_emit *e, struct oom_val f);

/* Has the text model add the features of inner layers, once its embeddings are there (deepstack.c). */
void oom_deepstack(struct oom_emit *e);

/* A side of an image or a patch: a number, or the first of a list. */
uint64_t oom_read_side(struct oom_reader *r, const char *key, uint64_t def);
/* How many elements a list has, def when it is absent or null. */
uint64_t oom_read_items(struct oom_reader *r, const char *key, uint64_t def);

/* What each composition adds to its text model: image features of the text's width, or nothing. */
typedef struct oom_val oom_emit_fn(struct oom_emit *e);
struct oom_composition {
	const char *type;
	/* keys of the sub configs, the text's first; "" is the whole file */
	const char *part[OOM_PARTS];
	oom_emit_fn *emit;
	unsigned flags;
};
enum {
	OOM_VLM_FLAT = 1, /* old files hold the text's keys at the top */
	OOM_VLM_AUDIO = 256, /* trained as sequence to sequence, on text alone */
	OOM_VLM_TEXT_TIE = 2, /* tied as the text config says */
	/* tied where either config says so: it was saved in the text's (LlavaConfig.__post_init__) */
	OOM_VLM_EITHER_TIES = 128,
	OOM_VLM_RUNS = 16, /* emitted with all operations, not as weights alone */
	OOM_VLM_EXACT = 32, /* and measured */
	OOM_VLM_LIST = 64, /* features joined from a list */
	OOM_VLM_SHIFT_FP32 = 4,
	/* training takes token_type_ids; images attend to themselves both ways, so that masks are made
	 * (modeling_gemma3.py create_causal_mask_mapping) */
	OOM_VLM_TYPES = 512,
	/* the step takes mm_token_type_ids, of which places in three axes are made (modeling_qwen2_vl.py get_rope_index) */
	OOM_VLM_KINDS = 1024,
	OOM_VLM_FLATLY = 2048, /* no model within the model: what is made of images has names until the loss is there */
	OOM_VLM_HEAD = 131072, /* has a head of its own around the text model's two stacks */
	/* the text model works on a product of the embedded words, which stay until it returns (Granite's multiplier) */
	OOM_VLM_HOLDS = 262144,
	OOM_VLM_HEARS = 65536, /* takes audio beside images */
	OOM_VLM_FILMS = 524288, /* takes frames of a video; temporal_patch_size of them are an image to the tower */
	OOM_VLM_FIRST = 32768, /* images come before the words are embedded */
	OOM_VLM_OUTSIDE = 16384, /* the loss is made outside of the causal model, which has returned its logits */
	OOM_VLM_DROPS = 8192, /* the model within the model does not return the features */
	OOM_VLM_CROSSED = 4096, /* layers of the text model attend to the features, which no token stands for */
	OOM_VLM_SHIFT = 8, /* the class shifts the logits (enum oom_shift) */
};
const struct oom_composition *oom_composition_find(const char *type);
void oom_vlm_free(struct oom_vlm *v);
/* What is said where a plan asks for no images and audio (vlm_parts.c). */
const char *oom_vlm_unasked(const struct oom_arch *a, enum oom_task task);

/* Those that run with their images: llava.c, projectors.c, mergers.c. */
oom_emit_fn oom_emit_llava, oom_emit_llava_newline, oom_emit_next_video, oom_emit_onevision, oom_emit_video_llava, oom_emit_vipllava,
	oom_emit_mistral3, oom_emit_lighton;
oom_emit_fn oom_emit_gemma3, oom_emit_paligemma, oom_emit_aya, oom_emit_cohere2,
	oom_emit_deepseek_vl, oom_emit_idefics3, oom_emit_internvl, oom_emit_lfm2, oom_emit_paddle,
	oom_emit_video_llama, oom_emit_llama4;
oom_emit_fn oom_emit_qwen, oom_emit_glm, oom_emit_glm_ocr;
/* Weights alone, which return nothing: sam.c, resamplers.c, image_tokens.c, lone.c, gemma4.c,
 * speech.c. */
oom_emit_fn oom_emit_sam, oom_emit_hybrid, oom_emit_formula;
oom_emit_fn oom_emit_qformer_weights, oom_emit_blip2, oom_emit_blip2_weights, oom_emit_instructblip, oom_emit_instructblip_video, oom_emit_perceiver, oom_emit_aria, oom_emit_kosmos,
	oom_emit_kosmos25, oom_emit_pix2struct, oom_emit_minicpm, oom_emit_ernie;
oom_emit_fn oom_emit_chameleon, oom_emit_janus, oom_emit_emu3;
oom_emit_fn oom_emit_mllama;
oom_emit_fn oom_emit_idefics, oom_emit_florence, oom_emit_blip, oom_emit_ovis,
	oom_emit_fuyu, oom_emit_udop, oom_emit_minimax;
oom_emit_fn oom_emit_gemma4, oom_emit_gemma4_unified;
oom_emit_fn oom_emit_flamingo, oom_emit_music_flamingo, oom_emit_qwen2_audio, oom_emit_voxtral, oom_emit_voxtral_realtime,
	oom_emit_glmasr, oom_emit_granite_speech, oom_emit_vibevoice, oom_emit_omni, oom_emit_omni3;

#endif
