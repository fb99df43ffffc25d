/* What to change, in order: one table of cause x work -> levers.
 *
 * The work is what was going on: training, inference, loading, ... A training's levers are never offered
 * for work that trains nothing. Order of the levers: what costs nothing first, what changes results
 * last (playbook M1, M4). What the run has set already is not advised again. */

#include "tables.h"

#define BIT(x) (1u << (x))

/* ---- the table ---- */

#define ANY 0xffffffffu
#define TRAINING BIT(OOM_WORK_TRAINING)
#define INFERENCE BIT(OOM_WORK_INFERENCE)
#define EVAL BIT(OOM_WORK_EVAL)
#define LOADING BIT(OOM_WORK_LOADING)
#define SAVING BIT(OOM_WORK_SAVING)
#define SETUP BIT(OOM_WORK_SETUP)
#define SERVER_SETUP BIT(OOM_WORK_SERVER_SETUP)
#define DATA BIT(OOM_WORK_DATA)
#define COMPILING BIT(OOM_WORK_COMPILING)
#define COLLECTIVE BIT(OOM_WORK_COLLECTIVE)
#define TESTING BIT(OOM_WORK_TESTING)
#define UNKNOWN BIT(OOM_WORK_UNKNOWN)
#define CAUSE(name) BIT(OOM_CAUSE_##name)
#define DO(...) {__VA_ARGS__}
#define V(name) OOM_LEVER_##name

/* The first row that meets both. */
static const struct {
	unsigned causes, works;
	unsigned phases;        /* 0: any */
	enum oom_lever levers[OOM_MAX_LEVERS];
} rows[] = {
	{CAUSE(NOT_OOM), ANY, 0, DO(V(READ))},
	{CAUSE(SHM), ANY, 0, DO(V(SHM), V(WORKERS))},
	{CAUSE(HOST_RAM), DATA, 0, DO(V(WORKERS), V(HOST))},
	{CAUSE(HOST_RAM), LOADING | SERVER_SETUP, 0, DO(V(LOAD_HOST), V(HOST))},
	/* states are made after the weights were read */
	{CAUSE(HOST_RAM), SETUP, 0, DO(V(HOST), V(LOAD_HOST))},
	{CAUSE(HOST_RAM), SAVING, 0, DO(V(SAVE), V(HOST))},
	{CAUSE(HOST_RAM), EVAL, 0, DO(V(EVAL_HOST), V(HOST), V(WORKERS))},
	{CAUSE(HOST_RAM), TRAINING, 0, DO(V(HOST), V(WORKERS), V(LOAD_HOST))},
	{CAUSE(HOST_RAM), INFERENCE, 0, DO(V(HOST), V(LOAD_HOST))},
	{CAUSE(HOST_RAM), ANY, 0, DO(V(HOST), V(WORKERS), V(LOAD_HOST))},
	{CAUSE(EVAL_LOGITS), ANY, 0, DO(V(EVAL), V(EVAL_BATCH))},
	{CAUSE(LONGEST_BATCH), ANY, 0, DO(V(LONGEST), V(BATCH), V(RECOMPUTE))},
	{CAUSE(STEP_2), ANY, 0, DO(V(OPTIMIZER), V(SHARD), V(PRECISION), V(ADAPTER))},
	{CAUSE(LEAK), EVAL, 0, DO(V(EVAL), V(EVAL_BATCH))},
	{CAUSE(LEAK), ANY, 0, DO(V(LEAK))},
	{CAUSE(KV_CACHE), INFERENCE, 0, DO(V(KV), V(REQUESTS), V(QUANT), V(SPREAD))},
	{CAUSE(KV_CACHE), ANY, 0, DO(V(KV), V(QUANT), V(SPREAD))},
	{CAUSE(WRONG_CAPACITY), ANY, 0, DO(V(CAPACITY))},
	{CAUSE(WATERMARK_CAP), ANY, 0, DO(V(WATERMARK), V(QUANT))},
	{CAUSE(BUFFER_LIMIT), LOADING, BIT(OOM_CRASH_LOAD), DO(V(LOAD), V(QUANT), V(LIMIT))},
	{CAUSE(BUFFER_LIMIT), ANY, 0, DO(V(LIMIT))},
	{CAUSE(FRACTION_CAP), INFERENCE | SERVER_SETUP, 0, DO(V(CAP), V(REQUESTS))},
	{CAUSE(FRACTION_CAP), TRAINING, 0, DO(V(CAP), V(BATCH))},
	{CAUSE(FRACTION_CAP), ANY, 0, DO(V(CAP))},
	{CAUSE(OTHER_PROCESS), SERVER_SETUP | INFERENCE, 0, DO(V(OTHERS), V(ROOM))},
	{CAUSE(OTHER_PROCESS), TESTING, 0, DO(V(TESTS), V(OTHERS))},
	{CAUSE(OTHER_PROCESS), ANY, 0, DO(V(OTHERS))},
	{CAUSE(FRAGMENTATION), TRAINING, 0, DO(V(FRAGMENT), V(BATCH), V(LONGEST), V(RECOMPUTE), V(PRECISION))},
	{CAUSE(FRAGMENTATION), INFERENCE | SERVER_SETUP, 0, DO(V(FRAGMENT), V(REQUESTS), V(CONTEXT))},
	{CAUSE(FRAGMENTATION), LOADING, 0, DO(V(FRAGMENT), V(LOAD))},
	{CAUSE(FRAGMENTATION), EVAL, 0, DO(V(FRAGMENT), V(EVAL_BATCH), V(EVAL))},
	{CAUSE(FRAGMENTATION), SAVING, 0, DO(V(FRAGMENT), V(SAVE))},
	{CAUSE(FRAGMENTATION), SETUP, 0, DO(V(FRAGMENT), V(SHARD), V(QUANT))},
	{CAUSE(FRAGMENTATION), UNKNOWN, 0, DO(V(FRAGMENT), V(LESS))},
	{CAUSE(FRAGMENTATION), ANY, 0, DO(V(FRAGMENT))},
	/* too much, or nobody knows why */
	/* activations are gone by then: a smaller batch frees nothing */
	{ANY, TRAINING, BIT(OOM_CRASH_OPTIMIZER), DO(V(OPTIMIZER), V(SHARD), V(ADAPTER))},
	{ANY, TRAINING, 0, DO(V(BATCH), V(RECOMPUTE), V(PRECISION), V(LOGITS), V(OPTIMIZER), V(SHARD))},
	{ANY, INFERENCE, 0, DO(V(REQUESTS), V(CONTEXT), V(ROOM), V(TILE), V(QUANT), V(OFFLOAD))},
	{ANY, EVAL, 0, DO(V(EVAL_BATCH), V(EVAL))},
	/* no numbers, before anything ran: who else is there is the first question */
	{CAUSE(UNKNOWN), LOADING, BIT(OOM_CRASH_TO_DEVICE), DO(V(OTHERS), V(LOAD), V(QUANT), V(OFFLOAD))},
	{ANY, LOADING, BIT(OOM_CRASH_TO_DEVICE), DO(V(PLACE), V(LOAD), V(QUANT), V(OFFLOAD))},
	{ANY, LOADING, 0, DO(V(LOAD), V(QUANT), V(OFFLOAD), V(SPREAD))},
	{ANY, SAVING, 0, DO(V(SAVE))},
	{ANY, SERVER_SETUP, 0, DO(V(ROOM), V(REQUESTS), V(GRAPHS), V(CONTEXT), V(SPREAD), V(QUANT))},
	{CAUSE(TOO_LARGE), SETUP, 0, DO(V(SHARD), V(QUANT), V(OFFLOAD), V(OTHERS))},
	{ANY, SETUP, 0, DO(V(OTHERS), V(SHARD), V(QUANT), V(OFFLOAD))},
	{CAUSE(UNKNOWN), DATA, 0, DO(V(WORKERS), V(SHM), V(HOST))},
	{ANY, DATA, 0, DO(V(WORKERS), V(PINNED))},
	{ANY, COMPILING, 0, DO(V(COMPILE))},
	{ANY, COLLECTIVE, 0, DO(V(COLLECTIVE), V(OTHERS))},
	{ANY, TESTING, 0, DO(V(TESTS), V(OTHERS))},
};

/* Programs that draw or speak rather than serve have their own order: weights wait on the host, the
 * decoder works in tiles. */
static const enum oom_lever of_pictures[OOM_MAX_LEVERS] = DO(V(OFFLOAD), V(TILE), V(CONTEXT), V(REQUESTS), V(QUANT), V(ROOM));
/* It has moved what it could of the weights by itself, and died in a block of the model. */
static const enum oom_lever of_drawn_blocks[OOM_MAX_LEVERS] = DO(V(CONTEXT), V(OFFLOAD), V(REQUESTS), V(TILE), V(QUANT), V(ROOM));
/* Several are drawn at once, by the line that ran or by an option: fewer of them cost nothing. */
static const enum oom_lever of_many_pictures[OOM_MAX_LEVERS] = DO(V(REQUESTS), V(CONTEXT), V(OFFLOAD), V(TILE), V(QUANT), V(ROOM));
/* Frames show what was computed, and it was no loading. */
static const enum oom_lever of_large_inputs[OOM_MAX_LEVERS] = DO(V(HOST), V(CONTEXT));
static const enum oom_lever of_kept_graphs[OOM_MAX_LEVERS] = DO(V(NO_GRAD), V(LEAK));
static const enum oom_lever of_pools[OOM_MAX_LEVERS] = DO(V(GRAPHS), V(FRAGMENT), V(LESS));
static const enum oom_lever of_one_memory[OOM_MAX_LEVERS] = DO(V(QUANT), V(LESS));
static const enum oom_lever of_pinned[OOM_MAX_LEVERS] = DO(V(PINNED), V(WORKERS), V(HOST));
static const enum oom_lever of_host_inputs[OOM_MAX_LEVERS] = DO(V(HOST));
static const enum oom_lever of_states_and_others[OOM_MAX_LEVERS] = DO(V(SHARD), V(ADAPTER), V(OPTIMIZER), V(OTHERS));
static const enum oom_lever of_host_evaluations[OOM_MAX_LEVERS] = DO(V(EVAL_HOST));
static const enum oom_lever of_host_steps[OOM_MAX_LEVERS] = DO(V(WORKERS), V(HOST));
static const enum oom_lever of_layers[OOM_MAX_LEVERS] = DO(V(KV), V(OFFLOAD), V(REQUESTS), V(QUANT), V(SPREAD), V(OTHERS));
/* Nothing says whether weights or cache were made: fewer layers on the card are less of both. */
static const enum oom_lever of_layers_or_cache[OOM_MAX_LEVERS] = DO(V(OFFLOAD), V(KV), V(REQUESTS), V(QUANT), V(SPREAD), V(OTHERS));
/* Weights and cache have their share by then: what is captured beside them needs room, or is left out. */
static const enum oom_lever of_graphs[OOM_MAX_LEVERS] = DO(V(ROOM), V(GRAPHS), V(REQUESTS), V(CONTEXT), V(SPREAD));
/* By the model's name: no batch is small enough for weights, or states, that are larger than the card. */
static const enum oom_lever of_weights[OOM_MAX_LEVERS] = DO(V(SPREAD), V(QUANT), V(OFFLOAD));
/* a part that draws waits on the host piece by piece, or is made smaller */
static const enum oom_lever of_drawing_weights[OOM_MAX_LEVERS] = DO(V(OFFLOAD), V(QUANT), V(SPREAD));
/* whoever started a script on a card that is too small may have no second one */
static const enum oom_lever of_own_weights[OOM_MAX_LEVERS] = DO(V(QUANT), V(OFFLOAD), V(SPREAD));
static const enum oom_lever of_engines[OOM_MAX_LEVERS] = DO(V(ROOM), V(OTHERS));
/* Between two shares that are wrong both: what weights and what runs beside them take. */
static const enum oom_lever of_no_share[OOM_MAX_LEVERS] = DO(V(SPREAD), V(QUANT), V(GRAPHS), V(REQUESTS));
/* The weights fit the share, and the trial run of the longest context took the rest. */
static const enum oom_lever of_trial_runs[OOM_MAX_LEVERS] = DO(V(CONTEXT), V(REQUESTS), V(QUANT), V(SPREAD));
/* The weights have taken the share, which is nearly all of the card. */
static const enum oom_lever of_no_blocks[OOM_MAX_LEVERS] = DO(V(QUANT), V(SPREAD), V(KV));
static const enum oom_lever of_servers[OOM_MAX_LEVERS] = DO(V(ROOM), V(REQUESTS), V(CONTEXT), V(QUANT), V(SPREAD));

/* Weights come to the card layer by layer: what fills it are the samples that run through them. */
static const enum oom_lever of_calibrations[OOM_MAX_LEVERS] = DO(V(REQUESTS), V(CONTEXT), V(OFFLOAD));
static const enum oom_lever of_evaluations[OOM_MAX_LEVERS] = DO(V(EVAL_BATCH), V(EVAL));
/* A sum that keeps graphs if it outlives the step: nobody said that it does. */
static const enum oom_lever of_sums[OOM_MAX_LEVERS] = DO(V(LEAK), V(BATCH), V(PRECISION));

/* More is held than the card has, by a training whose batch is one. */
static const enum oom_lever of_lent[OOM_MAX_LEVERS] = DO(V(ADAPTER), V(OPTIMIZER), V(RECOMPUTE), V(LENGTH));
/* Full before the request came: what lies there throughout is the model, a batch only passes. */
static const enum oom_lever of_full_cards[OOM_MAX_LEVERS] = DO(V(QUANT), V(OFFLOAD), V(SPREAD), V(CONTEXT), V(REQUESTS));

/* A script of one's own, which nobody made for inference alone. */
static const enum oom_lever of_own_scripts[OOM_MAX_LEVERS] = DO(V(REQUESTS), V(NO_GRAD), V(CONTEXT), V(QUANT), V(OFFLOAD));
static const enum oom_lever of_own_full[OOM_MAX_LEVERS] = DO(V(NO_GRAD), V(REQUESTS), V(CONTEXT), V(QUANT));
/* Of a script of one's own that has no weights of billions: what it makes before it works, or who else is there. */
static const enum oom_lever of_own_setups[OOM_MAX_LEVERS] = DO(V(LESS), V(OTHERS));
static const enum oom_lever of_silent_setups[OOM_MAX_LEVERS] = DO(V(OTHERS), V(LESS));
/* One picture, clip or recording after the other: there is no batch to halve, unless the command says so. */
static const enum oom_lever of_own_inputs[OOM_MAX_LEVERS] = DO(V(CONTEXT), V(NO_GRAD), V(REQUESTS), V(QUANT));
static const enum oom_lever of_own_full_inputs[OOM_MAX_LEVERS] = DO(V(NO_GRAD), V(CONTEXT), V(QUANT), V(REQUESTS));
static const enum oom_lever of_refusals[OOM_MAX_LEVERS] = DO(V(DRIVER), V(OTHERS), V(CAP));
static const enum oom_lever of_drawn_refusals[OOM_MAX_LEVERS] = DO(V(DRIVER), V(CONTEXT), V(OTHERS), V(CAP));
static const enum oom_lever of_kept_scores[OOM_MAX_LEVERS] = DO(V(EVAL), V(EVAL_BATCH));
static const enum oom_lever of_training_loads[OOM_MAX_LEVERS] = DO(V(LOAD), V(SHARD));
static const enum oom_lever of_restored[OOM_MAX_LEVERS] = DO(V(RESTORE));
static const enum oom_lever of_traces[OOM_MAX_LEVERS] = DO(V(EXPORT), V(QUANT), V(OTHERS));
static const enum oom_lever of_compiled_steps[OOM_MAX_LEVERS] = DO(V(COMPILE), V(BATCH), V(RECOMPUTE), V(SHARD), V(PRECISION), V(OPTIMIZER));

static const char *of_program(const struct oom_crash *c, enum oom_lever l)
{
	const enum oom_crash_work work = oom_crash_work(c);
	/* what a training loads, saves or sets up is set where the training is */
	const bool trains = work == OOM_WORK_TRAINING || (c->trains && work != OOM_WORK_INFERENCE);

	return oom_lever_in(oom_program_dialect(c, trains), oom_runtime_named(c->framework)->as.dialect, l);
}

/* How a model of a library keeps its scores is the library's to say, whoever calls it. */
static const char *of_library(const struct oom_crash *c, enum oom_lever l)
{
	const struct oom_program *const p = oom_program_of(c);

	return l == OOM_LEVER_SCORES && p->activity == OOM_ACTIVITY_LIBRARY ? oom_lever_in(p->dialect, oom_runtime_named(c->framework)->as.dialect, l) : NULL;
}

/* In words of its own, not everybody's. */
bool oom_lever_own(const struct oom_crash *c, enum oom_lever l)
{
	return of_program(c, l) && of_program(c, l) != oom_lever_in("torch", "torch", l);
}

/* What divides the model needs no second card: blocks of it wait on the host. */
bool oom_swaps_blocks(const struct oom_crash *c)
{
	return oom_lever_own(c, OOM_LEVER_SHARD) && strstr(oom_lever_of(c, OOM_LEVER_SHARD), "swap");
}

/* Where the program has everybody's words, what its model works on has narrower ones; a vocabulary is everybody's. */
const char *oom_lever_of(const struct oom_crash *c, enum oom_lever l)
{
	const char *const text = of_program(c, l), *const task = oom_task_dialect(c), *const theirs = of_library(c, l);

	if (theirs)
		return theirs;
	/* a trainer of texts that was given pictures or recordings has no tokenizer's length */
	if (l == OOM_LEVER_LENGTH && text && task && !c->language && strstr(text, "tokenizer"))
		return oom_lever_in(task, "torch", l);
	return !text || !task || c->language || !oom_runtime_is(c, OOM_RUNTIME_TORCH | OOM_RUNTIME_HOST) || oom_lever_own(c, l) ? text : oom_lever_in(task, "torch", l);
}

/* Refused though more than the request is said to be free: a smaller one need not fare better. */
bool oom_plenty(const struct oom_crash *c)
{
	return c->known[OOM_CRASH_TRIED] && c->known[OOM_CRASH_FREE] && c->bytes[OOM_CRASH_FREE] / 2 > c->bytes[OOM_CRASH_TRIED];
}

/* Its own tensors take the card but for three hundredths, a judgement: what a context and its libraries take of a large card; or
 * but for a context, where what was asked for is next to nothing. */
static bool fills_alone(const struct oom_crash *c)
{
	const double total = (double)c->bytes[OOM_CRASH_TOTAL], reserved = (double)c->bytes[OOM_CRASH_RESERVED_TOTAL],
		     process = (double)c->bytes[OOM_CRASH_PROCESS], held = process > reserved ? process : reserved, context = 600 * 1048576.0;

	return total > 0 && (held >= 0.97 * total || (c->known[OOM_CRASH_FREE] && (double)c->bytes[OOM_CRASH_TRIED] < 0.01 * total && total - held - (double)c->bytes[OOM_CRASH_FREE] < context)) && (double)c->bytes[OOM_CRASH_ALLOCATED] > 0.75 * total &&
	       !oom_alone_too_large(c) && oom_runtime_is(c, OOM_RUNTIME_CARD);
}

static bool one_input(const struct oom_crash *c)
{
	return oom_task_dialect(c) && c->task != OOM_TASK_GRAPHS && c->task != OOM_TASK_AGENTS && !oom_told_first(c, OOM_ABOUT_BATCH);
}

/* "pipe([prompt] * 5", "num_images_per_prompt=4". */
static bool draws_many(const struct oom_crash *c)
{
	const char *p = strstr(c->own_line, "]");

	if (oom_told(c, "num_images_per_prompt") > 1 || oom_told(c, "n_samples") > 1)
		return true;
	if (!p)
		return false;
	p += 1 + strspn(p + 1, " ");
	p += *p == '*' ? 1 + strspn(p + 1, " ") : 0;
	return p[-1] != ']' && ((*p >= '2' && *p <= '9') || (*p == '1' && p[1] >= '0' && p[1] <= '9'));
}

/* What the format or the cause alone decides. */
static const enum oom_lever *of_cause(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	if (oom_format_of(c)->first[0])
		return oom_format_of(c)->first;
	/* the card is shared by the engine and a trainer: what the engine was told to take can be less */
	if (cause == OOM_CAUSE_OTHER_PROCESS && c->engine && oom_program_of(c)->activity == OOM_ACTIVITY_TRAINS && oom_lever_own(c, OOM_LEVER_ROOM))
		return of_engines;
	/* weights and their states do not fit the card even if all others leave it */
	if (cause == OOM_CAUSE_OTHER_PROCESS && work == OOM_WORK_TRAINING && oom_weights_too_large(c, work) && oom_states_surely(c, work))
		return of_states_and_others;
	if (c->states_over && cause == OOM_CAUSE_FRAGMENTATION && work == OOM_WORK_TRAINING)
		return of_states_and_others;
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_EVAL && oom_runtime_is(c, OOM_RUNTIME_HOST))
		return of_host_evaluations;
	/* what the card's programs do with less of is what the host has more of */
	if (cause == OOM_CAUSE_HOST_RAM && c->unified)
		return of_one_memory;
	/* the refusal names what to do without */
	if (cause == OOM_CAUSE_HOST_RAM && c->pinned && work == OOM_WORK_DATA && !oom_lever_own(c, OOM_LEVER_WORKERS))
		return of_pinned;
	/* one volume, picture or recording after the other: what it makes fills the host, no model does */
	if (cause == OOM_CAUSE_HOST_RAM && work == OOM_WORK_INFERENCE && !c->language && oom_task_dialect(c))
		return of_large_inputs;
	if (cause == OOM_CAUSE_HOST_RAM && work == OOM_WORK_INFERENCE && oom_host_computed(c))
		return of_host_inputs;
	/* its model was read long ago; what comes from step to step is data */
	if (cause == OOM_CAUSE_HOST_RAM && work == OOM_WORK_TRAINING && (c->stepped || c->grew) && !oom_host_array(c))
		return of_host_steps;
	if (cause == OOM_CAUSE_KV_CACHE && c->two_ways)
		return of_no_share;
	if (cause == OOM_CAUSE_KV_CACHE && oom_format_is(c, OOM_FORMAT_BUDGET) && !c->known[OOM_CRASH_TRIED] && oom_told(c, "gpu_memory_utilization") >= 0.9 && !oom_told(c, "max_model_len"))
		return oom_cache_beside_weights(c) ? of_trial_runs : of_no_blocks;
	/* idle, but in the pools of recorded graphs: no setting of the allocator joins those */
	if (cause == OOM_CAUSE_FRAGMENTATION && c->bytes[OOM_CRASH_PRIVATE_POOL] > c->bytes[OOM_CRASH_TRIED] && oom_lever_of(c, OOM_LEVER_GRAPHS))
		return of_pools;
	/* in its model, not where outputs are joined */
	if (cause == OOM_CAUSE_EVAL_LOGITS && c->cause[0].confidence < 0.8)
		/* a statement of the script's own that calls nothing computes with what was kept */
		return *c->own_line && !strchr(c->own_line, '(') ? of_kept_scores : of_evaluations;
	/* graphs that nobody goes back through */
	if (cause == OOM_CAUSE_LEAK && work == OOM_WORK_INFERENCE && oom_own_script(c) && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return of_kept_graphs;
	if (cause == OOM_CAUSE_LEAK && work == OOM_WORK_TRAINING && c->cause[0].confidence < 0.65)
		return of_sums;
	return cause != OOM_CAUSE_UNKNOWN || !oom_plenty(c) ? NULL : work == OOM_WORK_INFERENCE && oom_lever_own(c, OOM_LEVER_TILE) ? of_drawn_refusals : of_refusals;
}

/* Too much, or nobody knows: by what was made, read or loaded, whatever was going on. */
static const enum oom_lever *of_part(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	const struct oom_program *const p = oom_program_of(c);
	const bool runs = work == OOM_WORK_INFERENCE || work == OOM_WORK_SERVER_SETUP;

	if (work != OOM_WORK_TRAINING && oom_beyond_share(c))
		return of_weights;
	/* a batch seldom is what is held beyond the card, and is not where it is one */
	if (oom_overcommitted(c) && work == OOM_WORK_TRAINING && (c->set & OOM_SET(OOM_LEVER_BATCH)))
		return of_lent;
	if (oom_overcommitted(c) && work == OOM_WORK_INFERENCE && (c->language || !oom_own_script(c)))
		return of_full_cards;
	if (c->part == OOM_PART_TRACE)
		return of_traces;
	if (c->part == OOM_PART_RESTORED)
		return of_restored;
	/* it is the engine beside the trainer that loads: its share is what can be less */
	if (work == OOM_WORK_LOADING && c->rolls && c->engine && c->engine_loads && oom_lever_own(c, OOM_LEVER_ROOM))
		return of_engines;
	/* a device map is no way to train on many */
	if (work == OOM_WORK_LOADING && c->phase == OOM_CRASH_LOAD && c->trains && oom_lever_own(c, OOM_LEVER_LOAD) && oom_lever_of(c, OOM_LEVER_SHARD))
		return of_training_loads;
	/* a card that weights alone have filled holds no second copy of them */
	if (cause == OOM_CAUSE_TOO_LARGE && work == OOM_WORK_LOADING && c->phase == OOM_CRASH_LOAD && !c->trains && p->activity == OOM_ACTIVITY_LIBRARY && oom_lever_own(c, OOM_LEVER_QUANT) &&
	    oom_mostly_own(c) && !(c->set & OOM_SET(OOM_LEVER_QUANT)))
		return of_own_weights;
	/* XLA compiles a whole step */
	if (work == OOM_WORK_COMPILING && c->trains && oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE))
		return of_compiled_steps;
	if (work == OOM_WORK_TRAINING)
		return oom_levers_of_states(c);
	if (oom_weights_too_large(c, work) && !c->language && oom_lever_own(c, OOM_LEVER_OFFLOAD_LAYERS))
		return of_drawing_weights;
	if (oom_weights_too_large(c, work) && (runs || work == OOM_WORK_LOADING || work == OOM_WORK_UNKNOWN))
		return *p->name ? of_weights : of_own_weights;
	return NULL;
}

/* The same before any work. */
static const enum oom_lever *of_setup(const struct oom_crash *c, enum oom_cause cause)
{
	const struct oom_program *const p = oom_program_of(c);

	if (p->activity == OOM_ACTIVITY_TRAINS && c->engine && oom_lever_own(c, OOM_LEVER_ROOM))
		return of_engines;
	if (oom_levers_of_states_made(c))
		return oom_levers_of_states_made(c);
	if ((!*p->name || oom_lever_own(c, OOM_LEVER_LESS)) && !c->language && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return cause == OOM_CAUSE_UNKNOWN ? of_silent_setups : of_own_setups;
	/* an engine that shards is made of weights that every rank moved to its card whole */
	if (c->phase == OOM_CRASH_INIT && c->sharded && oom_lever_own(c, OOM_LEVER_LOAD) && oom_lever_own(c, OOM_LEVER_SHARD))
		return of_training_loads;
	/* no sizes: who else is there is the first question */
	return c->known[OOM_CRASH_TRIED] || oom_runtime_is(c, OOM_RUNTIME_TORCH) ? NULL : of_silent_setups;
}

/* The same of what infers or serves. */
static const enum oom_lever *of_run(const struct oom_crash *c, enum oom_crash_work work)
{
	const bool compiled = oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE);

	if (work == OOM_WORK_INFERENCE && oom_dialect_is(c, OOM_DIALECT_QUANTISES))
		return of_calibrations;
	if (oom_dialect_is(c, OOM_DIALECT_OFFLOADS) && c->traceback && c->phase == OOM_CRASH_INFERENCE && c->part == OOM_PART_SAMPLER)
		return of_drawn_blocks;
	if (oom_lever_own(c, OOM_LEVER_TILE) && !compiled)
		return c->phase == OOM_CRASH_INFERENCE && draws_many(c) ? of_many_pictures : of_pictures;
	if (!oom_lever_of(c, OOM_LEVER_GRAPHS) && oom_lever_own(c, OOM_LEVER_KV) && !compiled)
		return c->phase == OOM_CRASH_UNKNOWN && c->part == OOM_PART_UNKNOWN ? of_layers_or_cache : of_layers;
	if (work != OOM_WORK_INFERENCE)
		return NULL;
	if (oom_program_of(c)->activity == OOM_ACTIVITY_SERVES)
		return of_servers;
	/* no numbers, and a card that the text names and that holds few models: 4 GB, a judgement */
	if (!c->known[OOM_CRASH_TRIED] && c->card_named > 0 && c->card_named <= 4)
		return of_full_cards;
	/* without weights of billions it is not they that fill the card */
	if (fills_alone(c) && (!oom_own_script(c) || c->language))
		return of_full_cards;
	if (oom_own_script(c) && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return one_input(c) ? fills_alone(c) ? of_own_full_inputs : of_own_inputs : fills_alone(c) ? of_own_full : of_own_scripts;
	return NULL;
}

static const enum oom_lever *of_shortage(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	const enum oom_lever *levers = of_part(c, work, cause);

	if (!levers && work == OOM_WORK_TRAINING)
		levers = oom_levers_of_step(c);
	if (!levers && c->part == OOM_PART_GRAPHS && oom_program_of(c)->activity == OOM_ACTIVITY_SERVES)
		levers = of_graphs;
	if (!levers && work == OOM_WORK_SETUP)
		levers = of_setup(c, cause);
	if (!levers && (work == OOM_WORK_INFERENCE || work == OOM_WORK_SERVER_SETUP))
		levers = of_run(c, work);
	return levers;
}

const enum oom_lever *oom_levers(const struct oom_crash *c, enum oom_crash_work work,
				   enum oom_cause cause)
{
	const enum oom_lever *levers = of_cause(c, work, cause);

	if (!levers && (cause == OOM_CAUSE_TOO_LARGE || cause == OOM_CAUSE_UNKNOWN))
		levers = of_shortage(c, work, cause);
	for (size_t i = 0; !levers && i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((rows[i].causes & BIT(cause)) && (rows[i].works & BIT(work)) &&
		    (!rows[i].phases || rows[i].phases & BIT(c->phase)))
			levers = rows[i].levers;
	return levers;
}
