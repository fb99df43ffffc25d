/* Inside a reading: its files ("parts"), their facts, its entries.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_PARTS_H
#define OOM_FRAMEWORKS_PARTS_H

#include "framework.h"

#define NO_SETTING SIZE_MAX

/* Of an internal fact: its knob is open and has no value in that part. */
#define FW_OPEN_PREFIX "@open."

/* A knob's value, or an internal one ("@dtype"). */
struct fact {
	const char *knob, *value;
	size_t setting;         /* index; NO_SETTING: none */
	bool from_file, open;
	const char *key;        /* of a default: the absent key; "" */
	const char *source;     /* where that was read; "" */
	const char *why;        /* of an open one; "" */
};

struct fw_part {
	struct oom_reading *reading;
	const struct framework *fw;
	struct doc doc;
	const struct doc_node *root;    /* doc's, or of a map within another part's */
	const char *file, *prefix;      /* prefix: of keys within another file ("deepspeed.") */
	size_t first_setting;
	unsigned n_unknown;
	/* Of a command: the part of the file of settings that it names, and then what the command says is but
	 * what stands above it; or the name of one that was not found.  NULL: none. */
	struct fw_part *config;
	const char *missing_config;
	/* Of a command: the script that it starts, whose own defaults were read; NULL: it was not at hand. */
	const char *script;
	bool no_adapters;       /* its adapters are behind a switch that is off */
	const char *own_trainer;        /* a class that it makes and no library has; NULL: none */
	/* Of such a file: the command, whose keys stand above its own. */
	const struct fw_part *command;
	/* Knobs that the file sets to what it does not say ("${BATCH}"): no default may stand in. */
	const char *withheld[FW_MAX_WITHHELD];
	size_t n_withheld;
	struct fact facts[FW_MAX_FACTS];
	size_t n_facts;
};

struct oom_reading {
	struct doc texts;               /* owns all texts that are not a part's */
	struct fw_part *parts[FW_MAX_PARTS];
	size_t n_parts;
	struct oom_setting *settings;
	size_t n_settings, capacity;
	struct oom_reading_knob *knobs;
	size_t n_knobs;
	/* all parts' facts, the winner of each */
	struct fw_part *all;
	int64_t transformers, torch;    /* OOM_VERSION as who reads knows them; 0: from files alone */
	int64_t gpus;                   /* as who reads knows them; 0: from files alone */
	bool other_engine;              /* who reads has named one that the files' own stands below */
	bool out_of_memory;
};

/* A formatted text that lives as long as the reading; "" when memory is out. */
const char *reading_text(struct oom_reading *r, const char *fmt, ...) OOM_PRINTF(2, 3);
/* Index of a new entry, or NO_SETTING. */
size_t reading_add(struct oom_reading *r, const struct oom_setting *s);
/* One more part, empty; NULL when memory is out, which the reading then ends with.  There is room for it: else
 * part_too_many. */
struct fw_part *part_new(struct oom_reading *r);
/* A part that led to nothing goes again; the reading ends with a status that says that memory is out.  part may be
 * NULL. */
void part_drop(struct oom_reading *r, struct fw_part *part, enum oom_status st);
enum oom_status part_too_many(const char *path, struct oom_error *err);
/* Whose file it is, of a part whose document was read; *out is the part. */
enum oom_status part_recognise(struct fw_part *part, const char *framework, struct fw_part **out,
			       struct oom_error *err);
/* Opens one more part; NULL with an error.  file: path, or NULL with a root in `of`. */
enum oom_status part_read(struct oom_reading *r, const char *path, const char *framework,
			  struct fw_part **out, struct oom_error *err);
/* dir/path beside a file or in a folder above it; false: there is none. */
bool part_find_beside(char *buf, size_t size, const char *file, const char *path);
/* named_config.c: whose file the settings are that a command names; then its entries and facts. */
void part_take_config(struct fw_part *p);
void part_run_config(struct fw_part *p);
/* python_trainers.c: what a trainer of this class trains, a script's own one derived from TRL's too; NULL: none is known. */
const char *python_trainer_objective(const char *class);
/* Trainers without a config class of their own, and the trainer beside a config class, say the objective. */
void python_named(struct fw_part *p);
void python_objective_by_trainer(struct fw_part *p, const char *config);
/* A trainer that no library has: a script's own. */
bool python_own_trainer(const char *class);
/* script_options.c: what the script that a command starts takes where the command says nothing. */
void part_take_script(struct fw_part *p);
void part_follow_script(struct fw_part *p);
/* A trainer of pairs by its loss, which the key says: another objective's (trl_objective.c). */
void part_pair_loss(struct fw_part *p, const char *key);
/* called_script.c: the shell script that a shell script calls. */
void part_follow_called(struct fw_part *p);
/* Keys to entries and facts, then the hook. */
void part_run(struct fw_part *part);
/* told.c: what only a stranger's program, or a key that nobody knows, decides is said to be a guess. */
void part_tell(struct fw_part *p);
/* The same of what stands beside the command that is read. */
void part_tell_others(struct fw_part *p);
struct fact *part_fact(const struct fw_part *part, const char *knob);

/* values.c: "${a.b}" and "${VAR:-word}" replaced where the file itself says what they are. */
void resolve_references(struct doc *doc);
/* Is the value left to somebody else: "${VAR}", "{{ x }}", "<your model>", "!!python/..."? */
bool node_is_placeholder(const struct doc_node *node);
/* Names of modules, as the knob lora-targets spells them; returns buf. */
const char *names_of(const struct doc_node *node, char *buf, size_t size);

/* A reading of texts that describe one run together, and of one; a name says through which door it goes.  framework: NULL or a name. */
struct oom_reading_text {
	const char *name, *text;
	size_t size;
};
enum oom_status oom_reading_of_texts(struct oom_reading **out, const struct oom_reading_text *texts, size_t n, const char *framework,
				     struct oom_error *err);
enum oom_status oom_reading_of_text(struct oom_reading **out, const char *name, const char *text,
				    size_t size, const char *framework, struct oom_error *err);

/* recognise.c */
const struct framework *framework_find(const char *name);
const struct framework *recognise(const struct doc_node *root);
/* The descriptor that is asked last, for a file that recognise() does not know; NULL: not its either. */
const struct framework *recognise_at_last(const struct doc_node *root);
/* OOM_ERR_UNKNOWN with what the file has, and which frameworks there are. */
enum oom_status not_recognised(const struct doc *doc, struct oom_error *err);

/* settle.c: what follows from all files together, in r->all. */
void reading_settle(struct oom_reading *r);
/* settle_counts.c: cards and rows; a knob's number, or otherwise. */
int64_t part_whole(const struct fw_part *all, const char *knob, int64_t otherwise);
void reading_settle_all_micro(struct fw_part *all);
void reading_settle_batch(struct fw_part *all);
void reading_settle_replicas(struct fw_part *all);
void reading_settle_one_process(struct fw_part *all);
/* settle_age.c: the part of it that versions decide */
void reading_settle_age(struct oom_reading *r);
/* apply.c: the word of a reading ("4-nf4" of base-bits) that is priced with just this ("base-weights=nf4"); NULL: none. */
const char *reading_word_of(const char *knob, const char *set);
/* Do the files say a word of it that is priced as another one ("ppo" of objective)? */
bool reading_is_replaced(const struct oom_reading *r, const char *knob);

#endif
