/* Between the files that find the answer to a crash: who ran, and what that program calls the things
 * that can be changed. */
#ifndef OOM_DIAGNOSE_ANSWER_H
#define OOM_DIAGNOSE_ANSWER_H

#include <assert.h>

#include "parts.h"

/* What a program does when its forward pass runs. */
enum oom_activity {
	OOM_ACTIVITY_EITHER, OOM_ACTIVITY_TRAINS, OOM_ACTIVITY_INFERS, OOM_ACTIVITY_SERVES,
	/* either, as others call it: it trains with its own trainer, or in a loop of theirs */
	OOM_ACTIVITY_TESTS, OOM_ACTIVITY_LIBRARY, OOM_ACTIVITIES
};

static inline bool oom_does_either(enum oom_activity a)
{
	return a == OOM_ACTIVITY_EITHER || a == OOM_ACTIVITY_LIBRARY;
}

enum { OOM_PROGRAM_MARKS = 20, OOM_PROGRAM_BASES = 8 };
struct oom_program {
	const char *name;       /* "vllm"; "": none showed, the runtime speaks */
	const char *title;      /* of a sentence: "vLLM" */
	enum oom_activity activity;
	const char *dialect;    /* of dialect.c */
	const char *marks[OOM_PROGRAM_MARKS];
	const char *trains_with; /* its dialect in a training, where it has one beside its own; NULL: the same */
	/* programs that it is built on: a log that names it is its, whatever its innermost frames lie in */
	const char *built_on[OOM_PROGRAM_BASES];
};
/* The program of a decoded crash, or what its runtime is called. Never NULL. */
const struct oom_program *oom_program_of(const struct oom_crash *c);
/* What its users call things, in a training or not. */
const char *oom_program_dialect(const struct oom_crash *c, bool trains);
/* The program whose framework reads the run's keys, where it is another than the words around the message name and none that
 * it is built on; "": none. */
const char *oom_program_reading(const struct oom_crash *c, const char *framework);
/* Fills c->program. */
void oom_decode_program(struct oom_crash *c, const char *begin, const char *at, const char *end);

/* What can be changed. */
enum oom_lever {
	OOM_LEVER_NONE,
	OOM_LEVER_BATCH,        /* training: a smaller micro-batch, accumulated */
	OOM_LEVER_RECOMPUTE, OOM_LEVER_PRECISION, OOM_LEVER_LOGITS, OOM_LEVER_OPTIMIZER,
	OOM_LEVER_SHARD, OOM_LEVER_LENGTH, OOM_LEVER_ADAPTER,
	OOM_LEVER_REQUESTS,     /* inference: fewer or smaller things at once */
	OOM_LEVER_CONTEXT,      /* inference: shorter context, smaller image */
	OOM_LEVER_KV,           /* the share or type of the KV cache */
	OOM_LEVER_ROOM,         /* leave more beside weights and cache for activations */
	OOM_LEVER_GRAPHS, OOM_LEVER_QUANT, OOM_LEVER_SPREAD, OOM_LEVER_OFFLOAD, OOM_LEVER_TILE,
	OOM_LEVER_NO_GRAD, OOM_LEVER_EVAL, OOM_LEVER_EVAL_BATCH, OOM_LEVER_SAVE, OOM_LEVER_LOAD,
	OOM_LEVER_LOAD_HOST, OOM_LEVER_WORKERS, OOM_LEVER_SHM, OOM_LEVER_PINNED, OOM_LEVER_HOST,
	OOM_LEVER_FRAGMENT, OOM_LEVER_OTHERS, OOM_LEVER_CAP, OOM_LEVER_WATERMARK, OOM_LEVER_LIMIT,
	OOM_LEVER_CAPACITY, OOM_LEVER_LONGEST, OOM_LEVER_LEAK, OOM_LEVER_DISK, OOM_LEVER_READ,
	OOM_LEVER_COMPILE, OOM_LEVER_COLLECTIVE, OOM_LEVER_TESTS, OOM_LEVER_KERNEL,
	OOM_LEVER_SCORES,       /* attention that keeps its scores */
	OOM_LEVER_SCRATCH,      /* the buffers of a computation graph */
	OOM_LEVER_GATHER,       /* what is gathered from other ranks at once */
	OOM_LEVER_ARRAY,        /* one array in host memory */
	OOM_LEVER_DRIVER,       /* a refusal that is not for want of memory */
	OOM_LEVER_PLACE,        /* what is moved to the device at once */
	OOM_LEVER_EXPORT,       /* a model traced for another runtime */
	OOM_LEVER_SPLIT,        /* pieces, where there are no expandable segments */
	OOM_LEVER_LOAD_SMALL,   /* weights that do not fit even quantised */
	OOM_LEVER_PAGEFILE,     /* what Windows promises beyond its RAM */
	OOM_LEVER_RESTORE,      /* a checkpoint read beside a run's own states */
	OOM_LEVER_TILE_SMALL,   /* smaller pieces, where it works in pieces already */
	OOM_LEVER_SAVE_ALONE,   /* a checkpoint of one process */
	OOM_LEVER_PIXELS,       /* how large images are that a model sees */
	OOM_LEVER_SCALE,        /* what is scaled up to the size of an image */
	OOM_LEVER_PAIRS,        /* all of one set against all of another */
	OOM_LEVER_EDGES,        /* a graph's messages, one for every edge */
	OOM_LEVER_FOREACH,      /* an optimizer's temporaries of all parameters at once */
	OOM_LEVER_RAYS,         /* images rendered along rays */
	OOM_LEVER_POINTS,       /* clouds of points, voxels */
	OOM_LEVER_RESTART,      /* what a notebook's cells made before */
	OOM_LEVER_MAPS,         /* inference: what a convolution puts out, as large as its image */
	/* no option pulls these: they have no bit of oom_crash.set */
	OOM_LEVER_LESS,         /* less of whatever it is, where nobody says what ran */
	OOM_LEVER_WIDE,         /* one weight that is larger than the card */
	OOM_LEVER_SAVE_HOST,    /* what saving takes of the host's memory */
	OOM_LEVER_KEEP,         /* what was kept in the host's memory before */
	OOM_LEVER_ARRAY_HUGE,   /* one array that no host holds */
	OOM_LEVER_UNLOAD,       /* models that were loaded before and stay */
	OOM_LEVER_MORE,         /* what is sharded, over more cards */
	OOM_LEVER_SHAPES,       /* what goes into a loss, where no card holds it */
	OOM_LEVER_EVAL_HOST,    /* an evaluation's outputs, in the host's memory */
	OOM_LEVER_OFFLOAD_LAYERS, /* a part that is larger than the card, piece by piece */
	OOM_LEVER_MERGE,        /* adapters put into the weights of their base */
	OOM_LEVERS
};
/* A bit of oom_crash.set. */
static_assert(OOM_LEVER_LESS <= 64, "a bit for each that an option pulls");
#define OOM_SET(lever) ((lever) < OOM_LEVER_LESS ? UINT64_C(1) << ((unsigned)(lever) & 63) : 0)
/* Fills c->set: the levers that the run has pulled already, by its options around at. */
void oom_decode_settings(struct oom_crash *c, const char *begin, const char *end);
/* settings_signs.c: what shows otherwise; and whether a launcher was told of more nodes than one. */
bool oom_several_nodes(const char *begin, const char *end);
/* settings_keys.c: what the tables of training frameworks say of an option of that name; a lever that another value than no
 * pulls (of a batch: than one); OOM_LEVER_NONE, OOM_ABOUT_ELSE: nothing, or not all of them the same. */
enum oom_lever oom_lever_of_key(const char *name, size_t n);
/* settings_states.c: among whom the model is divided, and what of it lies elsewhere. */
void oom_settings_of_states(struct oom_crash *c, const char *begin, const char *end);
void oom_settings_by_signs(struct oom_crash *c, const char *begin, const char *end);
/* limits.c: fills c->memory_limit and c->drafts. */
void oom_decode_limit(struct oom_crash *c, const char *begin, const char *end);
void oom_decode_cards(struct oom_crash *c, const char *begin, const char *end);        /* named_cards.c */
/* Is it the "x" of "8xA100"?  named_cards.c */
bool oom_is_times(const char *begin, const char *p);
void oom_decode_model_name(struct oom_crash *c, const char *begin, const char *end);
/* The name of a model is that of a copy of fewer bits. */
bool oom_name_is_quantised(const char *from, const char *to);
/* told.c: notes an option of that name (n bytes, with its dashes and prefix from "spelled" on) and value, if the
 * answers have a use for it. */
void oom_told_note(struct oom_crash *c, const char *spelled, const char *name, size_t n, const char *value);
/* weight_bits.c: fills c->weight_bits by an option and its value, which is no "false"; among how many cards they are divided, 1: it does not say */
void oom_weight_bits_note(struct oom_crash *c, const char *name, size_t n, const char *value);
unsigned oom_weight_cards(const struct oom_crash *c);
/* An option that is told by switching it off. */
bool oom_told_off(const char *name, size_t n);
/* The number that an option was given, by its name in the words; 1 for one without a number; 0: it is not told. */
double oom_told(const struct oom_crash *c, const char *name);
/* What to leave out that takes memory, of the host or the card; NULL: nothing of the kind is told. */
const char *oom_told_cost(const struct oom_crash *c, bool host);
/* What the words call an option, and the least that it can be; negative: it has no number. */
const char *oom_told_as(const struct oom_crash_told *t);
double oom_told_least(const struct oom_crash_told *t);
/* What an option is about, whatever its program calls it: scripts of one's own have names that no table knows. */
enum oom_told_about {
	OOM_ABOUT_ELSE, OOM_ABOUT_BATCH, OOM_ABOUT_EVAL_BATCH, OOM_ABOUT_LENGTH, OOM_ABOUT_SIDE,
	OOM_ABOUT_PIXELS,
	OOM_ABOUT_TILE,         /* how large the pieces are that it works in */
	OOM_ABOUT_MADE,         /* how much is generated */
	OOM_ABOUT_COUNT,        /* environments, frames, points, rays: of whatever there are many at once */
	OOM_ABOUTS
};
enum oom_told_about oom_told_about(const struct oom_crash_told *t);
/* told_names.c: the same of a name; told_batch.c: the batch that a log prints, or that was tried. */
enum oom_told_about oom_told_about_name(const char *name, size_t n);
enum oom_told_about oom_about_of_key(const char *name, size_t n);       /* settings_keys.c */
/* A batch of one was tried, whatever the command says. */
void oom_told_batch_of_one(struct oom_crash *c);
/* "It works with batchsize=1": what failed had more. */
bool oom_batch_helped(const char *begin, const char *p, const char *end);
void oom_told_printed(struct oom_crash *c, const char *begin, const char *end);
/* The sentence that p stands in; up to the end of the n-th from there. */
const char *oom_sentence_begin(const char *begin, const char *p);
const char *oom_sentence_end(const char *p, const char *end, int n);
/* tried.c: bits of the levers that the text says were tried without success, and what the n-th of them is called. */
uint64_t oom_tried(const char *begin, const char *end);
const char *oom_tried_called(uint64_t levers, size_t n);
/* The first option that is about it; NULL: none is told. */
const struct oom_crash_told *oom_told_first(const struct oom_crash *c, enum oom_told_about about);
/* The n bytes at p are that name, whichever line it is spelled with. */
bool oom_told_same(const char *p, size_t n, const char *name);
/* Words of a lever with the run's own numbers in them, and without what it has set; where they name no option of the
 * run's that the lever is about, that one goes before them. NULL: nothing is left. */
const char *oom_told_words(const struct oom_crash *c, enum oom_lever lever, const char *words, char *buf, size_t size);
/* given.c: notes an option and its value; takes clauses out of words that name one as the run has it already. */
void oom_given_note(struct oom_crash *c, const char *name, size_t n, const char *value);
void oom_given_drop(const struct oom_crash *c, char *words);
/* told_words.c: takes the clause that "at" lies in out of the words. */
void oom_words_drop(char *words, const char *at);
/* What the n-th of such bits is called: "gradient checkpointing"; NULL behind the last. */
const char *oom_setting_called(uint64_t levers, size_t n);

/* A crash as answers are looked for: what was at work, why it died, and what follows from both. */
struct oom_asked {
	const struct oom_crash *c;
	enum oom_crash_work work;
	enum oom_cause cause;
	const enum oom_lever *levers;   /* in their order; NULL: the text does not say what ran */
	bool of_memory;                 /* there was not enough of it, or nobody knows */
};
/* Not the likeliest cause, but likely: what is kept from step to step. */
bool oom_perhaps_leaks(const struct oom_asked *q);
/* fixes_text.c: what stands before the levers in general. Returns what the run has already. */
uint64_t oom_fixes_of_text(const struct oom_asked *q, struct oom_crash_answer *a);
/* fixes.c: what to change, for that cause. The levers that would have been named if the run had not pulled them. */
uint64_t oom_fixes(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a);
/* fixes_order.c: at most so many, in order; those behind the last are 0. NULL: nobody knows what ran. */
enum { OOM_MAX_LEVERS = 6 };
const enum oom_lever *oom_levers(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause);
/* fixes_order_training.c: the same where weights, gradients and states are in the way; where these are made; and in a step by
 * what it is of. NULL: they are not, or nothing is known. */
const enum oom_lever *oom_levers_of_states(const struct oom_crash *c);
const enum oom_lever *oom_levers_of_states_made(const struct oom_crash *c);
const enum oom_lever *oom_levers_of_step(const struct oom_crash *c);
/* A script of somebody's own: no program shows, or only the library of a model that has no vocabulary. */
static inline bool oom_own_script(const struct oom_crash *c)
{
	const struct oom_program *const p = oom_program_of(c);

	return !*p->name || (p->activity == OOM_ACTIVITY_LIBRARY && !c->language && c->task != OOM_TASK_UNKNOWN);
}
/* What the program that ran calls it; and whether in words of its own, not everybody's. */
const char *oom_lever_of(const struct oom_crash *c, enum oom_lever lever);
bool oom_lever_own(const struct oom_crash *c, enum oom_lever lever);
bool oom_swaps_blocks(const struct oom_crash *c);
/* People speak of cards more than twice as large as the one that the message is about. */
bool oom_other_card(const struct oom_crash *c);
/* Refused though more than the request is said to be free: a smaller one need not fare better. */
bool oom_plenty(const struct oom_crash *c);
/* part_words.c: by the first word of the table that stands there; tried: the size of the request */
enum oom_crash_part oom_part_near(const char *from, const char *to, bool layered, uint64_t tried);
enum oom_crash_part oom_part_deep(const char *from, const char *to);
/* facts.c: several processes of one run hold the same on one card. */
bool oom_ranks_share_card(const struct oom_crash *c);
/* evidence.c; set: levers that the run has already */
void oom_observe(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, uint64_t set, struct oom_crash_answer *a);
/* One more line of it; NULL: there are enough. */
char *oom_evidence_slot(struct oom_crash_answer *a);
/* facts.c: of all weights by the shape that options give, 0: they give none, or divide them; how full the host was; an option
 * that only a training has; and what they say. */
double oom_parameters_of_shape(const char *begin, const char *end);
void oom_decode_host_use(struct oom_crash *c, const char *begin, const char *end);
bool oom_told_to_train(const char *begin, const char *end);
void oom_observe_facts(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a);
/* What tells a host that fills by and by: first where that was seen, last where it only may be so. */
extern const char oom_who_grows[];
bool oom_host_grew(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause);
bool oom_states_beyond_cards(const struct oom_crash *c, enum oom_crash_work work);
bool oom_states_exceed_host(const struct oom_crash *c);
void oom_fixes_of_facts(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a);
/* helped.c: what the text says would do, first. */
void oom_decode_helped(struct oom_crash *c, const char *begin, const char *end);
void oom_fix_helped(const struct oom_crash *c, struct oom_crash_answer *a);
/* evidence_sizes.c */
void oom_observe_shape(const struct oom_crash *c, struct oom_crash_answer *a);
void oom_observe_parameters(const struct oom_crash *c, enum oom_crash_work work, struct oom_crash_answer *a);
/* size.c: the rows of logits that a request is exactly, by the length and the batch that the run was told and its family's
 * vocabulary, and the bytes of each number; 0: it is not.  And c->part by that, where nothing else shows it. */
double oom_logits_rows(const struct oom_crash *c, unsigned *each);
bool oom_copies_all(const struct oom_crash *c);
/* In a training of all weights the request is one number of *each bytes for every parameter, by the model's name, of so many
 * ranks one's part (1: all of them); 0: it is not. */
unsigned oom_copy_of_parameters(const struct oom_crash *c, unsigned *each);
void oom_part_by_size(struct oom_crash *c);
/* fixes.c: it is for want of memory in a training that has run for some steps, and its samples have lengths. */
bool oom_after_steps(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause);
/* fixes_open.c: of a size that no batch grows to by itself */
bool oom_one_is_large(const struct oom_crash *c);
/* layers.c: fills c->asked_layers, c->cache_layer_bytes and c->device_free; how many layers fit, by the option of those words */
void oom_decode_layers(struct oom_crash *c, const char *begin, const char *end);
void oom_fixes_of_layers(const struct oom_crash *c, const char *offload, struct oom_crash_answer *a);
void oom_decode_places(struct oom_crash *c, const char *begin, const char *end);        /* places.c */
/* fixes_cache.c: the same of a message about a KV cache; and its arithmetic, as evidence. */
void oom_fixes_of_cache(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a);
/* The weights fit the share: what took the rest was the trial run. */
bool oom_cache_beside_weights(const struct oom_crash *c);
bool oom_cache_has_sizes(const struct oom_crash *c);     /* all that can be changed of it is said with its numbers */
void oom_observe_cache(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a);
/* fixes_numbers.c: what the message's own numbers say would do, first; offload: the words for layers on the host. */
void oom_fixes_of_numbers(const struct oom_crash *c, enum oom_cause cause, const char *offload, struct oom_crash_answer *a);
/* Before what was tried without success; fixes_numbers.c: the run's own options before advice in general. */
extern const char oom_further[];
void oom_fixes_told_first(struct oom_crash_answer *a);
/* One more lever, in the words of what ran and with the run's own numbers, behind a condition ("" for none). */
void oom_fix_lever(const struct oom_crash *c, struct oom_crash_answer *a, const char *condition, enum oom_lever lever);
/* fixes_words.c: the lever that stands in this one's place, by the cause, by what is set and by what the program has. */
enum oom_lever oom_fix_instead(const struct oom_crash *c, enum oom_cause cause, enum oom_lever lever);
/* What a lever is called in this answer; NULL: the program has none. */
const char *oom_fix_words(const struct oom_crash *c, enum oom_lever l);
/* fixes_left_out.c: a server that takes a share of the card when it starts, and makes its cache of it; most of the card is
 * this process's own; a lever that changes nothing here; one that the run has already. */
bool oom_takes_share(const struct oom_crash *c);
bool oom_beyond_share(const struct oom_crash *c);
bool oom_mostly_own(const struct oom_crash *c);
bool oom_few_tokens(const struct oom_crash *c);
bool oom_lever_pointless(const struct oom_crash *c, enum oom_cause cause, enum oom_lever l);
bool oom_lever_is_set(const struct oom_crash *c, enum oom_lever l);
/* fixes_open.c: where the text does not say what ran. */
void oom_fixes_open(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a);
/* fixes_host.c: one array in the host's memory, before and behind what gives it more of that; so many GiB that a second
 * copy of weights is not meant, or that no host has it. */
void oom_fixes_host(const struct oom_crash *c, struct oom_crash_answer *a);
void oom_fixes_host_behind(const struct oom_crash *c, struct oom_crash_answer *a);
bool oom_host_array(const struct oom_crash *c);
/* The line that failed computes: no model was being loaded. */
bool oom_host_computed(const struct oom_crash *c);
bool oom_host_array_huge(const struct oom_crash *c);
/* What such a message was short of, in bytes; 0: it does not say. */
uint64_t oom_shortage(const struct oom_crash *c);
/* One more thing to do; what another says already is not said again. */
void oom_fix_add(struct oom_crash_answer *a, const char *prefix, const char *text);
/* What weights (and, in full training, their states) take on one card by the model's name; *each: bytes a parameter. */
double oom_card_bytes(const struct oom_crash *c, enum oom_crash_work work);
double oom_weights_bytes(const struct oom_crash *c, enum oom_crash_work work, double *each);
/* What is reserved and idle would have been enough, in one piece. */
bool oom_stranded_enough(const struct oom_crash *c);
/* Larger than the card even where all of it is kept in 16 bits: no batch is small enough. */
bool oom_states_surely(const struct oom_crash *c, enum oom_crash_work work);
bool oom_small_states_fit(const struct oom_crash *c);
/* What a training of all weights divides among cards, beside what it leaves on each, takes most of one: bytes; 0: it does not,
 * or the text does not say among how many. */
double oom_states_share(const struct oom_crash *c, enum oom_crash_work work);
bool oom_weights_too_large(const struct oom_crash *c, enum oom_crash_work work);
bool oom_alone_too_large(const struct oom_crash *c);
/* One request larger than all that the process held until then. */
bool oom_dwarfs_the_rest(const struct oom_crash *c);

struct oom_dialect {
	const char *name;
	const char *base;       /* where a lever is missing: another dialect; NULL: "torch" */
	const char *source;     /* where the words stand */
	/* the sources in which every option it names was looked up (tests/tools/check_words.py); "": not yet */
	const char *checked;
	const char *say[OOM_LEVERS];
	unsigned traits;        /* enum oom_dialect_trait; those of its bases are its own, too */
	const char *whole_share; /* the option, of this program alone, that is its share of the whole card; NULL: none */
	const char *device;     /* what PyTorch calls the device that this is the row of; NULL: "cuda" */
};
enum oom_dialect_trait {
	OOM_DIALECT_QUANTISES = 1,      /* it makes weights of fewer bits: its bits are what it makes, not what it was given */
	OOM_DIALECT_ENGINE = 2,         /* weights and cache lie outside of PyTorch's allocator */
	OOM_DIALECT_OFFLOADS = 8,       /* it moves weights to the host by itself, as far as what it computes needs the room */
	OOM_DIALECT_RECOMPUTES = 4,     /* its trainer recomputes activations unless it is told not to */
};
/* Each ends with a NULL name; the first row of the first is the base of all. */
extern const struct oom_dialect oom_dialects_training[], oom_dialects_devices[], oom_dialects_fields[], oom_dialects_serving[], oom_dialects_drawing[],
	oom_dialects_runtimes[], oom_dialects_tasks[];
/* task.c: fills c->task; the dialect of what a model works on, NULL: not known. */
void oom_decode_task(struct oom_crash *c, const char *begin, const char *at, const char *end);
const char *oom_task_dialect(const struct oom_crash *c);
/* How a program's users say it, on that runtime; NULL: there is no such thing there. */
bool oom_dialect_rests_on(const char *dialect, const char *base);   /* itself included */
/* Of the program that ran. */
bool oom_dialect_is(const struct oom_crash *c, enum oom_dialect_trait trait);
const char *oom_whole_share(const struct oom_crash *c);
/* What PyTorch calls the device whose allocator refused: "xpu"; NULL: "cuda", or none of PyTorch's. */
const char *oom_device_word(const struct oom_crash *c);
/* fixes_device.c: the same things to do, with the names that they have on this device, card and release. */
void oom_fixes_on_device(const struct oom_crash *c, struct oom_crash_answer *a);
/* fixes_left_out.c: PyTorch holds a tenth more than the card has, as only Windows lends it. */
bool oom_overcommitted(const struct oom_crash *c);
/* The text shows more cards than one that work together: a rank, an engine that shards, a second card. */
bool oom_several_cards(const struct oom_crash *c);
/* fixes_left_out.c: what others hold, if they do, would have been enough. */
bool oom_others_perhaps(const struct oom_crash *c);
/* Next to nothing was asked of a card that is full, and nothing says whose it is. */
bool oom_full_of_unknown(const struct oom_crash *c);
const char *oom_lever_in(const char *dialect, const char *runtime, enum oom_lever lever);

#endif
