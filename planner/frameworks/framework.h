/* A framework: its keys and what they mean in knobs.
 *
 * Private to planner/.  One descriptor is one `const struct framework` in a file of its own, listed
 * in table.c.  Most keys are rows: key, knob, words.  What no row can say (precision of two keys,
 * batch sizes that divide each other) is the `finish` hook's, which sees the keys and sets knobs.
 *
 * Rows serve both ways: where a row's map is one to one, the key can be written from the knob
 * (row_word()). */
#ifndef OOM_FRAMEWORKS_FRAMEWORK_H
#define OOM_FRAMEWORKS_FRAMEWORK_H

#include "doc.h"
#include "oomplan/reading.h"

enum {
	FW_MAX_PARTS = 16,      /* files of one run */
	FW_MAX_FACTS = 128,     /* knobs of one file, internal ones included */
	FW_MAX_WITHHELD = 32    /* of these, the ones a placeholder stands for */
};

/* Who says a thing wins over who says it later in this list, if both stand in files. */
enum fw_role { FW_TRAINER, FW_LAUNCHER, FW_ENGINE };

/* A key.  Exactly one of: `knob`, `hook`, `note`, or none of them (no effect on memory). */
struct fw_row {
	/* "a.b": levels joined by dots; a last '*' stands for any end ("wandb_*").  A row of a map
	 * covers all below it that has no row itself. */
	const char *key;
	/* A knob's name, or an internal fact's ("@dtype"), which is not printed. */
	const char *knob;
	/* "word>value;word>;wor*>value;*>=": words of the file (compared as oom_same_word; a last
	 * '*' stands for any end), the knob's value, and further knobs behind blanks ("fsdp1
	 * zero=3").  Nothing behind '>': nothing is set.  '=' as value: the word as it stands, read
	 * by the knob, as where there is no map. */
	const char *map;
	/* The knob's value where the key is absent; NULL: none. */
	const char *def;
	/* Where the default, or else the meaning, was read. */
	const char *source;
	/* Bears on memory and is not modelled: what it does, and in which direction.  Told where the
	 * value is not off. */
	const char *note;
	/* The finish hook reads it. */
	bool hook;
	/* What has to stand beside the key where it is new to a file, "key=value"; NULL: nothing. */
	const char *needs;
	/* A fact of the part without which nobody reads the key ("@distributed": a recipe of several devices); NULL: it is
	 * always read.  Who would read it is the fact "@other-program". */
	const char *only;
	/* The first transformers that no longer takes the key, "4.46"; NULL: today's does. */
	const char *gone;
};

/* The usual row: key, knob, map, default, source; NULL where there is none. */
#define FW_KEY(k, n, m, d, s) {.key = k, .knob = n, .map = m, .def = d, .source = s}

struct fw_part;

struct framework {
	const char *name, *summary;
	const char *version;    /* what defaults were read from */
	enum fw_role role;
	/* Blank-separated keys of which a file of this framework has one at least; "a+b": both. */
	const char *marks;
	/* Blank-separated keys of which it has none; NULL: any. */
	const char *never;
	/* Blank-separated names of programs that are nobody else's, without ".py"; NULL: none. */
	const char *programs;
	/* Blank-separated names of the programs that its commands start ("swift*", "main_*": a last '*' stands for any
	 * end), scripts without ".py" and folder: the defaults of others are said to be a guess.  NULL: any. */
	const char *commands;
	/* NULL-terminated lists, each ending with a NULL key; earlier rows win. */
	const struct fw_row *const *rows;
	/* Blank-separated keys without effect on memory, with '*' as in rows; NULL-terminated list. */
	const char *const *idle;
	/* The knob loop's word for what runs its steps; NULL: a loop of its own. */
	const char *loop;
	/* Its trainer wraps the model in nn.DataParallel where a process that nothing launched sees several GPUs. */
	bool wraps_replicas;
	/* Defaults of the rows in its first list alone count: the others belong to somebody else. */
	bool own_defaults;
	/* Programs are their users' own, which decide what no option says; ones that are known have the fact
	 * "@known-script". */
	bool own_scripts;
	/* Asked only where no other knows the file; its defaults are nobody's. */
	bool last_resort;
	/* After the rows; may be NULL. */
	void (*finish)(struct fw_part *part);
	/* The config.json of the model that its keys describe in place of a name, owned by the reading, and in *why
	 * what was taken for granted; NULL, and *why is what is missing.  NULL: models are always named. */
	const char *(*describe)(const struct fw_part *part, const char **why);
};

/* megatron_model.c: models of which pretrain_gpt.py builds the layers from arguments; ends with a NULL type.  Of several
 * that the arguments fit the first is the one that is read. */
struct fw_megatron_kind {
	const char *type;       /* transformers' */
	const char *mark;       /* the argument that tells it from others below; NULL: none */
	const char *besides;    /* arguments that all of the type have, blank-separated; "" */
	bool experts;
};

extern const struct fw_megatron_kind fw_megatron_kinds[];

/* megatron_model.c: describe of Megatron-LM's arguments. */
const char *fw_megatron_model(const struct fw_part *part, const char **why);
/* ms_swift.c: kinds of adapters that ms-swift makes; ends with a NULL kind. */
struct fw_swift_tuner {
	const char *kind;       /* the knob peft-type's; "": LoRA */
	const char *word;       /* of tuner_type */
	const char *rank;       /* the key of what a plan calls its rank */
	const char *otherwise;  /* where the key is absent */
	const char *dropout;    /* where it has not LoRA's; NULL: it has */
};

extern const struct fw_swift_tuner fw_swift_tuners[];

#define FW_SEVERAL_AT_ONCE "so many layers are recomputed at once, and alive together: more than is priced"
/* engines.c: layers recomputed one by one from the first on (method "block"; told where "uniform" takes several at once), and the share of the optimizer that
 * waits in host memory, under the framework's names of Megatron-core's arguments. */
void fw_megatron_blocks(struct fw_part *part, const char *method, const char *layers);
void fw_megatron_offload(struct fw_part *part, const char *fraction);

/* table.c: NULL past the end. */
const struct framework *framework_at(size_t i);

/* ---- for finish hooks ---- */

/* The key's node, or NULL where it is absent or null. */
const struct doc_node *fw_key(const struct fw_part *part, const char *key);
/* The key's whole number above 0 and below 1e8. */
int64_t fw_whole_or(const struct fw_part *part, const char *key, int64_t otherwise);
bool fw_on(const struct fw_part *part, const char *key);        /* true */
bool fw_off(const struct fw_part *part, const char *key);       /* false in so many words */
/* The text of a scalar; "" where there is none. */
const char *fw_text(const struct fw_part *part, const char *key);
/* What a knob or fact has by now in this part; "" where nothing. */
const char *fw_fact(const struct fw_part *part, const char *knob);
bool fw_fact_is(const struct fw_part *part, const char *knob, const char *value);
/* Did a file say it, not a default? */
bool fw_fact_from_file(const struct fw_part *part, const char *knob);

/* The knob has this value because of a key of the file (shown with it; NULL: of none: then it is a
 * default).  source: why, in words or a file of the framework; may be NULL.  The value is copied. */
void fw_set(struct fw_part *part, const char *knob, const char *value, const char *key,
	    const char *source);
void fw_set_whole(struct fw_part *part, const char *knob, int64_t value, const char *key,
		  const char *source);
/* Only where nothing was set. */
void fw_default(struct fw_part *part, const char *knob, const char *value, const char *source);
void fw_unset(struct fw_part *part, const char *knob);
/* The value is open: the files do not decide it; why. */
void fw_open(struct fw_part *part, const char *knob, const char *why);
/* The file leaves the knob to a variable that it does not set: no default of anybody is taken for it.
 * The knob's name must outlive the part. */
void fw_withhold(struct fw_part *part, const char *knob);
bool fw_is_withheld(const struct fw_part *part, const char *knob);
/* The key bears on memory and is not modelled. */
void fw_unmodelled(struct fw_part *part, const char *key, const char *note);
/* What the key's value leaves open is said elsewhere in the file: it is not told. */
void fw_answered(struct fw_part *part, const char *key);
/* A sentence about a key that was used. */
void fw_note(struct fw_part *part, const char *key, const char *note);
/* Another file of the run, named by `key`: looked for beside the part's file and in the folders
 * above it.  Where it is not found, false. */
bool fw_follow(struct fw_part *part, const char *key, const char *path);
/* A script of the shell that stands in the file under `key`, run in `folder` beside it ("": its own); false: nothing
 * in it trains, which is said. */
bool fw_read_shell(struct fw_part *part, const char *key, const char *text, const char *folder);
/* A map within the file read as a file of another framework ("deepspeed: {...}"). */
void fw_nested(struct fw_part *part, const char *key, const char *framework);

/* engines.c: a "deepspeed" key: a map, a file that is found, or one of which only the name is known
 * ("ds_z3_offload_config.json"), which then is said to be a guess. */
void fw_take_deepspeed(struct fw_part *part, const char *key);
/* deepspeed.c: what is offloaded below the stage that does it counts for nothing: parameters are of stage 3 alone, the
 * optimizer of 1 to 3 (deepspeed/runtime/engine.py).  key: what asked for it. */
/* DeepSpeed-Chat's adapters, deepspeed_chat.c: where they are put, which `key` says a part of. */
void fw_take_chat_lora(struct fw_part *part, const char *key);
void fw_keep_offload_of_stage(struct fw_part *part, const char *key);
/* Is the file that this key names known by its name alone? */
bool fw_by_name(const struct fw_part *part, const char *key);
/* A file of accelerate's of which only the name is known ("deepspeed_zero3.yaml", "fsdp2.yaml"). */
void fw_name_accelerate(struct fw_part *part, const char *key, const char *path);
/* transformers' "fsdp" and "fsdp_config" keys, also axolotl's. */
void fw_take_fsdp(struct fw_part *part, const char *key, const char *config,
		  const char *default_version);
/* When accelerate's FSDP1 gathers a unit for its backward pass: keys that may say so, ends with NULL (NULL: none may),
 * and else its default.  Under another engine the knob says nothing. */
void fw_take_prefetch(struct fw_part *part, const char *const *keys);
/* Micro-batches of as many rows as the most tokens of a card hold, whatever their lengths: priced as rows of full length.
 * key: the tokens', asked: the one that switches them on; why: where the code that fills them stands. */
void fw_take_token_rows(struct fw_part *part, const char *key, const char *asked, int64_t otherwise, const char *why);
/* FSDP whose shards are replicated, of given degrees (0: not said): settled when the cards of all files are known, see
 * settle_counts.c. */
void fw_take_replicas(struct fw_part *part, int64_t shards, int64_t replicas, const char *key);
/* RL whose update computes the logits of prompt and answer alike (no logits_to_keep, which TRL's has): source says
 * where.  After seq-len and the objective. */
void fw_take_whole_logits(struct fw_part *part, const char *source);
/* GRPO's "beta", or what it is where the key is absent: above 0 the distance from a reference is in the loss, a second model
 * or with adapters the model without them.  To be called when objective, engine and adapters are known. */
void fw_compare_by_beta(struct fw_part *part, double otherwise, const char *source);
/* LISA (arXiv:2403.17919): n layers at a time train beside embeddings, norms and head; which ones changes,
 * the first ones are priced. */
void fw_take_lisa(struct fw_part *part, const char *key);
/* torchao's float8 linear layers under a recipe of --fp8, because of this key; `gather`: the key that has shards gathered
 * in 8 bit, NULL: none. */
void fw_take_fp8(struct fw_part *part, const char *recipe, const char *key, const char *gather, const char *source);
/* The same of accelerate's mixed_precision: fp8, where its backend is torchao's. */
void fw_accelerate_fp8(struct fw_part *part, const char *backend, const char *gather);
/* Where the knob "compile" is on: a backend or a mode that keeps other things than it prices.  Keys;
 * NULL: none. */
void fw_take_compile(struct fw_part *part, const char *backend, const char *mode);

/* hf.c: rows and keys of transformers' TrainingArguments and of PEFT and quantisation options as
 * scripts around it name them; for frameworks built on it. */
/* transformers' OptimizerNames in knobs' words, for rows' maps; of several words the first is the one that is written,
 * those that are gone stand last. */
#define HF_OPTIMIZERS \
	"adamw_torch>adamw;adamw_torch_fused>adamw-fused;adamw_bnb_8bit>adamw-8bit-embfp32;" \
	"adamw_8bit>adamw-8bit-embfp32;adamw_8bit>adamw-8bit;paged_adamw_8bit>paged-adamw-8bit;paged_adamw_32bit>paged-adamw;" \
	"adamw_torch_4bit>adamw-4bit;adamw_torch_8bit>adamw-torchao-8bit;lion_32bit>lion;lion_8bit>lion-8bit;" \
	"paged_lion_32bit>paged-lion;paged_lion_8bit>paged-lion-8bit;rmsprop>rmsprop;galore_adamw>galore;" \
	"apollo_adamw>apollo;schedule_free_adamw>schedule-free;sgd>sgd;adagrad>adagrad;adafactor>adafactor;lomo>lomo;" \
	"rmsprop_bnb>rmsprop;rmsprop_bnb_32bit>rmsprop;adamw_apex_fused>adamw-fused;adamw_anyprecision>adamw;" \
	"adamw_hf>adamw;paged_adamw>paged-adamw;"

extern const struct fw_row hf_training_rows[], hf_model_rows[];
extern const char hf_training_idle[], hf_model_idle[];
/* max_source_length and max_target_length of scripts whose rows have both. */
void hf_both_lengths(struct fw_part *part);
/* torch_compile, its backend and mode. */
void hf_compile(struct fw_part *part);
/* Liger's kernels where one of the keys (a list that ends with NULL) is on: norms, feed-forwards and rotary positions
 * beside the loss, as far as liger_kernel_config does not switch them off. */
void hf_liger(struct fw_part *part, const char *const *keys);
/* After them: engine, method, what computes, hf_compile(). */
void hf_finish(struct fw_part *part);

/* hf_scripts.c: keys of well-known scripts around Trainer, and what these scripts take where nothing
 * is said; which one it is follows from the program, or from keys that only it has. */
extern const struct fw_row hf_script_rows[];
extern const char hf_script_idle[];
void hf_script(struct fw_part *p);
void hf_objective_by_name(struct fw_part *p);

/* torchtitan.c: its name and flavor of a published model; false: it has none. */
bool torchtitan_flavor(const char *hub_id, const char **name, const char **flavor);

/* Were the defaults read that a command's own script has?  They are keys then. */
bool fw_script_read(const struct fw_part *part);
const struct doc *fw_doc(const struct fw_part *part);
/* The keys of the part; NULL: none. */
const struct doc_node *fw_root(const struct fw_part *part);
/* Is this library ("transformers", "torch") known to be older than OOM_VERSION(major, minor), by who reads or by a pip line
 * of the script? */
bool fw_older(const struct fw_part *part, const char *library, int major, int minor);
/* The comment that the file begins with; "" where there is none. */
const char *fw_head(const struct fw_part *part);

/* ---- rows both ways ---- */

/* The row of a key; NULL: none.  *idle: it stands in the list of keys without effect. */
const struct fw_row *framework_row(const struct framework *fw, const char *key, bool *idle);
/* Does it stand under its own name, in a row or in such a list, and not behind a '*' or below a map that does? */
bool framework_names(const struct framework *fw, const char *key);
/* One of blank-separated names, as keys are compared, a last '*' standing for any end; NULL: none. */
bool framework_lists(const char *list, const char *name);
/* What the map makes of a word of the file: into buf, NULL where the word is not known; "=" where
 * it stands as it is. */
const char *row_value(const struct fw_row *row, const char *word, char *buf, size_t size);
/* The word of the file for a knob's value: the first that means it and nothing else; into buf,
 * NULL where there is none. */
const char *row_word(const struct fw_row *row, const char *value, char *buf, size_t size);

#endif
