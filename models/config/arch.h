/* The normalised architecture: what a family reads out of a config.json, in the field's words.
 *
 * A family fills what it needs; the blocks of blocks.h are written against these fields.  Exotic
 * keys stay with the family, which may read them again while it emits (struct oom_arch keeps the
 * reader). */
#ifndef OOM_ARCH_H
#define OOM_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/config.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"

#define OOM_MAX_LAYERS 2000

enum oom_act {
	OOM_ACT_SILU,
	OOM_ACT_GELU,
	OOM_ACT_GELU_NEW,
	OOM_ACT_GELU_FAST,
	OOM_ACT_QUICK_GELU,
	OOM_ACT_RELU,
	OOM_ACT_RELU2,
	OOM_ACT_TANH,
	OOM_ACT_SIGMOID,
	OOM_ACT_GELU_TANH,
	OOM_ACT_HARDSWISH,
	OOM_ACT_MISH,
	OOM_ACT_LEAKY_RELU,
	OOM_ACT_NONE,
	OOM_ACT_LAPLACE,
	OOM_ACT_RELU6,
	OOM_ACT_GELU_PYTHON,
	OOM_ACT_GELU_CLIPPED
};

enum oom_norm {
	OOM_NORM_RMS,
	OOM_NORM_RMS_PLUS1,
	OOM_NORM_LAYER,
	OOM_NORM_LAYER_NO_BIAS,
	OOM_NORM_LAYER_PLAIN,
	OOM_NORM_RMS_FUSED,
	OOM_NORM_RMS_FP32,
	OOM_NORM_LAYER_FP32,
	OOM_NORM_LAYER_WRITTEN_OUT,
	OOM_NORM_RMS_PLAIN,
	OOM_NORM_RMS_FP32_W,
	OOM_NORM_LAYER_1P               /* weight + 1, outside autocast (Nemotron) */
};

struct oom_decoder;
struct oom_family;
struct oom_tape;
struct oom_val;
struct oom_key_row;
struct oom_type_targets;
struct oom_vlm;

/* Reads keys with the model type's defaults behind them; remembers the first failure and which
 * keys were used. */
struct oom_reader {
	const struct oom_keys *keys;
	const struct oom_keys *defaults;
	const char *prefix;             /* "" or "text_config." */
	/* defaults that stand before the type's own (of an absent sub config), or NULL */
	const struct oom_keys *over;
	const char *over_prefix;
	enum oom_status status;
	struct oom_error err;
	const char *family;             /* the type in messages */
	bool loose;                     /* other traditions' words for a size are taken too */
	/* of the sizes that the file itself gives, the largest and one that is 0 or less; NULL: none */
	const struct oom_key *largest, *nothing;
};

/* Rotary positions in one dimension, or in time, height and width: merged in every layer, or once
 * for all (and spread over neighbouring elements in every layer). */
enum oom_rope_axes { OOM_ROPE_1D, OOM_ROPE_3D_LAYER, OOM_ROPE_3D, OOM_ROPE_3D_SPREAD };

/* Room for a family's own settings. */
#define OOM_OWN_BYTES 2048

struct oom_arch {
	const struct oom_family *family;
	const struct oom_family_type *type;     /* the row of model_type in the family's table */
	const struct oom_type_targets *targets; /* and in that of its targets, of a composition its text model's; NULL: none */
	struct oom_reader rd;
	char model_type[64];
	char config_type[64];   /* the config's own: that of the composition around a text model */
	enum oom_task default_task;
	/* what is said of a step whose task nobody names, where architectures names a class that none of the tasks is; or NULL */
	const char *class_warning;
	/* sizes */
	uint64_t vocab, d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, v_head_dim, d_embed;
	uint64_t input_vocab;   /* words of the input's table, where the head's are others (FSMT); 0: vocab */
	uint64_t max_positions, type_vocab, window;
	bool router_logits;     /* output_router_logits: the routers' own loss is added */
	uint64_t config_labels; /* classes of a classification head, unless the plan says */
	/* switches */
	enum oom_act act;
	enum oom_norm norm;
	/* logits are handed on in fp32, whatever the loss does (Mllama, Moshi) */
	bool float_logits;
	/* logits times a constant before the loss (Granite, Cohere) */
	bool scale_logits;
	/* the class's name has none of LOSS_MAPPING's (transformers loss/loss_utils.py): a warning stands between logits and loss,
	 * and Dynamo ends a graph there */
	bool loss_apart;
	bool tie, qkv_bias, o_bias, mlp_bias, qk_norm, head_bias, scale_embed, gated;
	double dropout, attn_dropout, act_dropout, embed_dropout, classifier_dropout;
	double rotary_share;            /* of head_dim that is rotated; 0 = no rotary embedding */
	double softcap_attn, softcap_logits;
	/* mixture of experts */
	uint64_t n_experts, top_k, d_expert, n_shared, d_shared;
	/* encoder-decoder: layers of the encoder, whose heads and feed-forward are n_heads and d_ff,
	 * and the second stack */
	uint64_t enc_layers, dec_layers, dec_heads, dec_ff;
	/* vision */
	uint64_t image_size, patch, channels;
	uint64_t image_step;    /* sides that windows fill whole are multiples of it; 0: of the patch */
	/* audio: elements of one frame of the input features (0: the input is token ids), and the
	 * frames of a clip where the architecture fixes them (0: seq_len of them) */
	uint64_t frame, frames;
	/* layers that are not alike */
	uint8_t kind[OOM_MAX_LAYERS];
	bool kinds;
	/* whatever else a family wants to remember: a struct of its own (OOM_OWN) */
	_Alignas(max_align_t) unsigned char own[OOM_OWN_BYTES];
	bool approximate;
	char warning[800];
	uint8_t rope_axes;              /* enum oom_rope_axes */
	/* other modalities beside a text model whose sizes the fields above are (vision.h);
	 * owned by the model */
	struct oom_vlm *vlm;
};

/* Many families fill their settings by rows alone. */
#if defined(__GNUC__)
#define OOM_MAY_BE_UNUSED __attribute__((unused))
#else
#define OOM_MAY_BE_UNUSED
#endif
/* OOM_OWN(mpt, struct mpt) gives a family its settings: mpt_of(a) to read them (a recording never
 * writes), mpt_own(a) to fill them while the config is read.  They are plain data: an arch is copied
 * by assignment. */
#define OOM_OWN(name, type) \
	_Static_assert(sizeof(type) <= OOM_OWN_BYTES, "OOM_OWN_BYTES is too small for " #type); \
	static inline const type *name##_of(const struct oom_arch *a) \
	{ \
		return (const type *)(const void *)a->own; \
	} \
	OOM_MAY_BE_UNUSED static inline type *name##_own(struct oom_arch *a) \
	{ \
		return (type *)(void *)a->own; \
	} \
	_Static_assert(sizeof(type) > 0, "")

/* OOM_KIND(lfm2, struct lfm2_kind) gives lfm2_kind_of(a): what the arch's row of the types table says. */
#define OOM_KIND(name, type_kind) \
	OOM_MAY_BE_UNUSED static inline const type_kind *name##_kind_of(const struct oom_arch *a) \
	{ \
		return (const type_kind *)a->type->kind; \
	} \
	_Static_assert(sizeof(type_kind) > 0, "")

struct oom_type_targets {
	const char *type;
	const char *targets;            /* NULL: the family's */
	/* the norms that PEFT's LN tuning takes of it where nobody says which (peft/utils/constants.py
	 * TRANSFORMERS_MODELS_TO_LNTUNING_TARGET_MODULES_MAPPING); NULL: PEFT wants them said, and all are counted */
	const char *norms;
};

/* How a family's `unasked` begins, and the sentence of a tower that no step runs: what it takes, and what a run is on. */
#define OOM_WORDS_ALONE "priced as a step on words alone"
#define OOM_ON_WORDS_ALONE(takes, on) \
	OOM_WORDS_ALONE ": what " takes " is not counted for this model type, and a run on " on " takes more"

/* One model family: its types, how its keys are read, how its step is emitted. */
struct oom_family {
	union {
		struct oom_family_info info;    /* for the public list */
		struct {
			const char *name;
			const char *summary;
			const char *source;
			/* ends with a row without name; a->type->kind says what a type has */
			const struct oom_family_type *types;
		};
	};
	/* types that only a composition's text model has; ends alike, or NULL */
	const struct oom_family_type *inner_types;
	const char *lora_targets;               /* PEFT's default for its types */
	/* types whose layers have other names: PEFT's default, or all linear layers where it has none; and those of which it
	 * knows the norms; ends with a row without name, or NULL */
	const struct oom_type_targets *type_targets;
	/* its masks do not see where a packed sequence's samples begin: no position_ids are handed to create_causal_mask */
	bool one_sample;
	/* what is said where architectures names the base class of a type, which trains on something else; or NULL */
	const char *base_class;
	/* what is said of a plan without images and audio for a config with towers: a static sentence or ""; NULL: nothing */
	const char *(*unasked)(const struct oom_arch *a, enum oom_task task);
	/* what its types have unless parse says otherwise */
	enum oom_task task;
	enum oom_norm norm;
	const struct oom_key_row *keys;         /* read first (keys.h); may be NULL */
	/* Fills from arch's reader what no row can; failures are left in arch->rd.  May be NULL
	 * where there are rows. */
	void (*parse)(struct oom_arch *a);
	/* The step of a plain causal decoder (blocks/decoder.h), which the one below may vary, or NULL. */
	const struct oom_decoder *decoder;
	/* Where it is there, it is the family's: emits forward and loss; returns the loss (or the logits when the task has none). */
	struct oom_val (*step)(struct oom_tape *t, const struct oom_arch *a);
};

/* The table of a family that has one type. */
#define OOM_TYPE(word) (const struct oom_family_type[]){{word, NULL}, {NULL, NULL}}

extern const struct oom_family *const oom_families[];   /* NULL-terminated; families.c */
const struct oom_family *oom_family_find(const char *model_type);
/* The family of a type whose code lies in its models' repositories, by the type's row of
 * data/remote_types.jsonl; model_type becomes the type of transformers whose layers it has, unless the
 * family knows it by its own name.  NULL: the row is none of those. */
const struct oom_family *oom_family_remote(const struct oom_keys *row, char model_type[64]);
/* Reads the config as family f reads it: a->type, the rows, the rest. */
void oom_family_parse(const struct oom_family *f, struct oom_arch *a);
/* Emits f's step. */
struct oom_val oom_family_step(const struct oom_family *f, struct oom_tape *t,
			       const struct oom_arch *a);

/* ---- reading ---- */

/* A count in [min, 2^40]: the config's, else the type's default; a missing or impossible one
 * fails with key and line. */
uint64_t oom_read_count(struct oom_reader *r, const char *key, uint64_t min);
/* Adds to a message about an impossible model which of the file's sizes may be behind it: one beyond all models; one that
 * is nothing; or, where the config alone is refused, the one that is furthest from the type's own.  And what the file
 * calls the keys in it, where that is an older name ("hidden_size": n_embd). */
enum oom_suspects { OOM_SUSPECT_LARGE, OOM_SUSPECT_NOTHING, OOM_SUSPECT_ANY };
void oom_read_explain(const struct oom_reader *r, enum oom_suspects whom, struct oom_error *err);
/* The file's key that gives so many layers, or "num_hidden_layers" (of a default). */
const char *oom_read_where(const struct oom_reader *r, uint64_t layers);
/* The same, falling back to def when neither the config nor the defaults have it (or it is
 * null). */
uint64_t oom_read_count_or(struct oom_reader *r, const char *key, uint64_t def);
bool oom_read_bool(struct oom_reader *r, const char *key, bool def);
/* Up to 2^40 either way. */
double oom_read_real(struct oom_reader *r, const char *key, double def);
const char *oom_read_string(struct oom_reader *r, const char *key, const char *def);
enum oom_act oom_read_act(struct oom_reader *r, const char *key, const char *def);
/* The key as written (aliases applied, config before defaults), or NULL.  Explicit: the config's
 * own only. */
const struct oom_key *oom_read_key(struct oom_reader *r, const char *key);
const struct oom_key *oom_read_explicit(struct oom_reader *r, const char *key);
/* The i-th word in use for the size `key`, or NULL (structure.c). */
const char *oom_read_other_word(const char *key, size_t i);
/* Element i of a list key as a string / a number; NULL / def when absent. */
const char *oom_read_item(struct oom_reader *r, const char *key, uint32_t i);
double oom_read_item_real(struct oom_reader *r, const char *key, uint32_t i, double def);
void oom_read_fail(struct oom_reader *r, const char *fmt, ...) OOM_PRINTF(2, 3);
/* classes of a classification head: num_labels, else the size of id2label, else 2 */
uint64_t oom_read_labels(struct oom_reader *r);

/* What is said of layer i. */
static inline uint8_t oom_layer_kind(const struct oom_arch *a, uint64_t i)
{
	return i < OOM_MAX_LAYERS ? a->kind[i] : 0;
}

/* Elements of a head that rotary tables are made for: pairs, of an odd number one more
 * (`torch.arange(0, dim, 2)`). */
static inline uint64_t oom_rot_dim(const struct oom_arch *a)
{
	const uint64_t n = (uint64_t)((double)a->head_dim * a->rotary_share);

	return n < a->head_dim ? n + n % 2 : n;
}

#endif
