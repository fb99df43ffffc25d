/* Compositions: a text family beside the towers and projectors of another modality.
 *
 * A row of families/vlm.c names the sub configs and one function that emits everything but the text
 * model; the text family runs as it is, with the text config as its config.  Towers are described
 * by numbers and switches (struct oom_tower) and emitted by one generic encoder, so that a new
 * one is a row of the table in vision.c. */
#ifndef OOM_VISION_H
#define OOM_VISION_H

#include "blocks/blocks.h"

#define OOM_PARTS 5     /* sub configs of one composition */

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
	bool unknown_text;                      /* the text config's type is not modelled */
	struct oom_reader outer;
	struct oom_part part[OOM_PARTS];        /* [0]: the text's */
	size_t n_parts;
};

/* One emission: readers of its own, so that a model may be recorded by several threads. */
struct oom_emit {
	struct oom_tape *t;
	const struct oom_arch *a;               /* the text's sizes */
	const struct oom_vlm *v;
	struct oom_reader outer, part[OOM_PARTS];
	uint16_t m_images;                      /* images of the batch */
	bool images;                            /* they are there */
	bool merged;                            /* and features of theirs */
	struct oom_frame *output;               /* of the model, which holds the features */
	/* tokens of the tower running: all images', one image's */
	uint16_t m_tokens, m_len;
};

enum oom_tower_flag {
	OOM_TOWER_PATCH_BIAS = 1,
	OOM_TOWER_CLASS = 1 << 1,               /* a class token among the patches */
	OOM_TOWER_CLASS_FIRST = 1 << 2,         /* and it leads a learned position of its own */
	OOM_TOWER_PRE_NORM = 1 << 3, OOM_TOWER_POST_NORM = 1 << 4,
	OOM_TOWER_FUSED_QKV = 1 << 5, OOM_TOWER_QKV_BIAS = 1 << 6, OOM_TOWER_O_BIAS = 1 << 7,
	OOM_TOWER_QK_NORM = 1 << 8,             /* over each head */
	OOM_TOWER_QK_NORM_FULL = 1 << 9, OOM_TOWER_QK_LAYER_NORM = 1 << 10,
	OOM_TOWER_GATED = 1 << 11, OOM_TOWER_MLP_BIAS = 1 << 12,
	OOM_TOWER_SCALE = 1 << 13,              /* a learned factor a channel on both branches */
	OOM_TOWER_ROPE = 1 << 14,
	/* SigLIP's attention pooling, which image features do not use */
	OOM_TOWER_POOL = 1 << 15,
	OOM_TOWER_QWEN = 1 << 16,               /* keys depth, num_heads, in_channels */
	OOM_TOWER_POSITIONS = 1 << 17,          /* learned, one a patch */
	OOM_TOWER_FRAMES = 1 << 18,             /* a patch spans temporal_patch_size frames */
	/* pixels already cut into patches: a linear layer */
	OOM_TOWER_PATCH_LAST = 1 << 19,
};
struct oom_tower {
	uint64_t d, ff, layers, heads, kv_heads, head_dim;
	uint64_t side, patch, channels, frames, positions, merge;
	uint64_t run;                           /* layers up to those whose output is used */
	bool raw;                               /* and that before the last norm */
	unsigned flags;
	enum oom_norm norm;
	enum oom_act act;
	const char *o, *up, *down;
};

/* Reads a tower of the given type; an unknown one fails the reader.  NULL type: the part's own. */
void oom_tower_read(struct oom_tower *w, struct oom_reader *r, const char *type);
/* Emits it: pixels to hidden states of e->m_tokens x d. */
struct oom_val oom_tower_run(struct oom_emit *e, const struct oom_tower *w);
/* Sets e->m_tokens and e->m_len for n tokens an image. */
void oom_tower_tokens(struct oom_emit *e, uint64_t n);
/* merge x merge tokens become one of merge^2 the width: a view of a permuted copy. */
struct oom_val oom_merge_tokens(struct oom_emit *e, struct oom_val x, uint64_t merge);

/* A side of an image or a patch: a number, or the first of a list. */
uint64_t oom_read_side(struct oom_reader *r, const char *key, uint64_t def);
/* How many elements a list has, def when it is absent or null. */
uint64_t oom_read_items(struct oom_reader *r, const char *key, uint64_t def);

/* What each composition adds to its text model: image features of the text's width, or nothing. */
struct oom_composition {
	const char *type;
	/* keys of the sub configs, the text's first; "" is the whole file */
	const char *part[OOM_PARTS];
	struct oom_val (*emit)(struct oom_emit *e);
	unsigned flags;
};
enum {
	OOM_VLM_FLAT = 1, /* old files hold the text's keys at the top */
	OOM_VLM_AUDIO = 16, /* trained as sequence to sequence, on text alone */
	OOM_VLM_TEXT_TIE = 2, /* tied as the text config says */
	/* tied where either config says so: it was saved in the text's (LlavaConfig.__post_init__) */
	OOM_VLM_EITHER_TIES = 128,
	OOM_VLM_RUNS = 16, /* emitted with all operations, not as weights alone */
	OOM_VLM_EXACT = 32, /* and measured */
	OOM_VLM_LIST = 64, /* features joined from a list */
	OOM_VLM_SHIFT_FP32 = 4,
	OOM_VLM_SHIFT = 8, /* the class shifts the logits (enum oom_shift) */
};
const struct oom_composition *oom_composition_find(const char *type);
void oom_vlm_free(struct oom_vlm *v);

/* towers/projectors.c */
struct oom_val oom_emit_llava(struct oom_emit *e);
struct oom_val oom_emit_siglip(struct oom_emit *e);
struct oom_val oom_emit_qwen(struct oom_emit *e);
struct oom_val oom_emit_shuffle(struct oom_emit *e);
struct oom_val oom_emit_pixtral(struct oom_emit *e);
struct oom_val oom_emit_glm(struct oom_emit *e);
/* towers/: weights alone; they return nothing */
struct oom_val oom_emit_sam(struct oom_emit *e);
struct oom_val oom_emit_hybrid(struct oom_emit *e);
struct oom_val oom_emit_qformer(struct oom_emit *e);
struct oom_val oom_emit_perceiver(struct oom_emit *e);
struct oom_val oom_emit_aria(struct oom_emit *e);
struct oom_val oom_emit_chameleon(struct oom_emit *e);
struct oom_val oom_emit_janus(struct oom_emit *e);
struct oom_val oom_emit_ovis(struct oom_emit *e);
struct oom_val oom_emit_llama4(struct oom_emit *e);
struct oom_val oom_emit_fuyu(struct oom_emit *e);
struct oom_val oom_emit_florence(struct oom_emit *e);
struct oom_val oom_emit_emu3(struct oom_emit *e);
struct oom_val oom_emit_mllama(struct oom_emit *e);
struct oom_val oom_emit_ernie(struct oom_emit *e);
struct oom_val oom_emit_idefics(struct oom_emit *e);
struct oom_val oom_emit_gemma4(struct oom_emit *e);
struct oom_val oom_emit_blip(struct oom_emit *e);
struct oom_val oom_emit_pix2struct(struct oom_emit *e);
struct oom_val oom_emit_kosmos(struct oom_emit *e);
struct oom_val oom_emit_udop(struct oom_emit *e);
struct oom_val oom_emit_minicpm(struct oom_emit *e);
struct oom_val oom_emit_minimax(struct oom_emit *e);
struct oom_val oom_emit_formula(struct oom_emit *e);
struct oom_val oom_emit_omni(struct oom_emit *e);

/* towers/speech.c: weights alone */
struct oom_val oom_emit_whisper_tower(struct oom_emit *e);
struct oom_val oom_emit_granite_speech(struct oom_emit *e);
struct oom_val oom_emit_vibevoice(struct oom_emit *e);

#endif
