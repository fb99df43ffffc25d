/* The ledger, as a tape: one row for every storage a training step owns, and the order in which
 * they come and go.
 *
 * A family writes its forward pass once, in the operations of ops.h, over symbolic tensors (struct
 * oom_val).  Every operation allocates what the real one allocates and saves what its derivative
 * needs; backward.c then walks the recorded nodes in autograd's order.  What remains is a list of
 * rows (storages, sized as a monomial in batch and sequence times a static width) and a list of
 * events (row born, row freed), from which timeline.c reads any peak.
 *
 * Layers of one kind are recorded three times (first, middle, last) and the middle one is given a
 * multiplicity, so the tape is closed-form in depth.  With `expand` every layer is recorded, which
 * the allocator replay needs.
 *
 * Rules every operation keeps:
 *   - it consumes its inputs unless they are borrowed (frame.h) or passed as oom_keep(x);
 *   - it saves inputs before it makes its output, and saves outputs after (checkpointing's early
 *   stop depends on it);
 *   - sizes are rounded to 512 bytes each, as the CUDA caching allocator does
 *   (c10/cuda/CUDACachingAllocator.cpp). */
#ifndef OOM_TAPE_H
#define OOM_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/module_paths.h"
#include "oomplan/model.h"
#include "records.h"

struct oom_arch;

struct oom_tape {
	const struct oom_plan *plan;
	struct oom_selection selection;
	const struct oom_arch *arch, *teacher;  /* teacher: NULL: none */
	enum oom_status status;
	struct oom_error err;
	bool of_config;         /* err is about the config's sizes */

	struct oom_row *rows;
	int32_t *refs;
	size_t n_rows, cap_rows;
	struct oom_node *nodes;
	size_t n_nodes, cap_nodes;
	struct oom_param *params;
	size_t n_params, cap_params, cursor;
	struct oom_ckpt *ckpts;
	size_t n_ckpts, cap_ckpts;
	/* copies of the blocks' contexts: OOM_MAX_CTX of them, taken with the first */
	unsigned char (*ctx)[OOM_CTX_BYTES];
	size_t n_ctx;
	/* of checkpointed layers, in order, a reference each: what the policy keeps; those of the layer
	 * being recomputed are [at, end) */
	struct {
		int32_t *row;
		size_t n, cap, at, end;
		size_t products;        /* met in this layer so far */
	} kept;
	/* what nodes of the run that a checkpoint repeats hold by themselves, a reference each */
	struct {
		int32_t *row;
		size_t n, cap;
	} again;
	struct oom_val also;            /* what the block being run returns beside its first (oom_block_returns) */
	int32_t held[OOM_MAX_HELD];     /* shared tensors alive for recomputation */
	/* the first layer's checkpoint of the stack that shares them */
	int32_t held_node[OOM_MAX_HELD];
	int32_t stack_node;             /* that of the stack run last */
	int32_t returned_zeros;         /* 1 + the row of zeros that a compiled backward pass was handed; 0: none */
	size_t n_held;
	struct oom_layer_rec *layers;
	size_t n_layers, cap_layers;
	uint32_t reps[OOM_MAX_RUNS];
	size_t n_reps;
	bool repeating;                 /* between the marks of a repeated run */
	int32_t late[OOM_MAX_HELD];     /* shared rows given up there, which die at its end */
	size_t n_late;
	struct oom_unit *units;
	/* unit: the next one of the pass being recorded */
	size_t n_units, cap_units, unit;
	struct oom_var vars[OOM_MAX_VARS];
	size_t n_vars;
	struct oom_mono monos[OOM_MAX_MONOS];
	size_t n_monos;
	struct oom_sums *sums;          /* taken with the first recording; NULL: none, and no memory for it */
	struct oom_stream streams[OOM_STREAMS];
	enum oom_stream_id stream;
	struct oom_cond conds[OOM_MAX_CONDS];
	size_t n_conds;         /* OOM_MAX_CONDS + 1: there are more than are remembered */
	uint64_t val_b, val_s, val_t;   /* the sizes recorded with */
	/* what the model is trained for, and the classes of a classification head */
	enum oom_task task;
	uint64_t n_labels;
	uint64_t buffer_bytes, buffer_rounded;

	/* modes */
	bool expand, grad, train, in_bwd, recompute, stopped, dry, packing;
	bool amp;
	uint8_t amp_dt;
	uint32_t amp_region, amp_seq;
	/* the embeddings' output where it is a leaf that needs a gradient: autocast caches its copy as a weight's */
	struct oom_leaf {
		struct oom_val x, copy;
		uint32_t region;
	} leaf;
	struct oom_twin twins[OOM_TWINS];       /* the latest casts; and the one that gives place to the next */
	uint8_t next_twin;
	struct oom_val token_rows;              /* rows of the words' table that train; or none */
	int32_t token_table;                    /* the node of that table */
	/* trained tokens stand before the sequence; they and both, names of the model's caller */
	bool prompted;
	struct oom_val prompts[6];
	struct oom_val prefix;          /* trained keys and values of all layers; or none */
	struct {
		int32_t *row;
		size_t n, cap;
	} cached;                       /* keys and values that a cache holds until the model returns */
	/* what routers returned, held until the model returns (blocks/router_loss.c); per token over all layers: experts,
	 * chosen ones, pairs of both; the first router's node */
	struct oom_routed {
		int32_t *row, first;
		size_t n, cap;
		uint64_t experts, chosen, pairs, of_one;        /* of_one: pairs of a layer */
		uint8_t dt;
		bool counted;
	} routed;
	struct oom_val bank;            /* vectors of which all layers' adapters are put together; or none */
	bool joined;                    /* some layer has taken its part of the prefix */
	uint64_t shared_in, shared_out;         /* the widest layers whose adapters share buffers */
	struct oom_embedding_adapter adapter;   /* waits for oom_input_grads; a none: none */
	uint32_t packs, pack_limit;
	int32_t checkpoint;     /* while packing: the node of the layer that is checkpointed */
	uint16_t group, n_groups, mult;
	bool in_layer;
	bool frozen;            /* parameters made now are not trained */
	bool layers_alike;      /* the layers being recorded share one set of weights */
	/* replaces token embeddings by image features once the embeddings are there; NULL: no
	 * images */
	struct oom_val (*merge)(struct oom_tape *t, void *ctx, struct oom_val x);
	void *merge_ctx;
	/* the table of the words that the merged features join, which features may be looked up in as well (Chameleon) */
	struct oom_val table;
	/* changes what the first n layers of the next stack return, from outside of them and of their checkpoints, and is told
	 * when the stack is over; all zero: nobody is */
	struct oom_behind {
		struct oom_val (*fn)(struct oom_tape *t, void *ctx, uint32_t layer, struct oom_val x);
		void (*over)(struct oom_tape *t, void *ctx);
		void *ctx;
		uint32_t n;
	} behind;
	/* what cross-attention layers of a text model attend to (Mllama): states of so many tokens, a mask, and which of the
	 * text's rows attend to any; borrowed until `over` is called, when the model has returned */
	struct oom_crossed {
		bool there;
		uint16_t tokens, len;   /* of all sequences, of one */
		struct oom_val x, mask, rows;
		void (*over)(struct oom_tape *t, void *ctx);
		void *ctx;
	} crossed;
	uint64_t pixels;        /* image elements that a sample brings along (besides its text) */
	uint64_t pixel_mask;    /* and whole numbers that say which of them are padding */
	uint64_t token_mask;    /* and, for every token, those that say what it attends to */
	bool token_types;       /* and a type of every token */
	/* masks are made whatever a kernel could do without, for images are attended both ways */
	bool typed_mask;
	/* the mask that hides nothing is spread over the keys, which fused attention kernels refuse (blocks/inputs.c) */
	bool spread_mask;
	uint8_t shift;          /* enum oom_shift: how the class aligns logits and labels */
	bool outer_head;        /* two stacks have the head and the loss of a causal model around them (Florence 2) */
	bool loss_outside;      /* of the causal model, whose last hidden states are gone by then */
	const char *scope;
	uint16_t m_b, m_s, m_bs, m_bss;
	uint64_t vocab;         /* rows this wide are logits */
	const char *warning[OOM_WARNINGS];      /* what of the step is only approximated, then NULLs */
	bool fused;             /* the head was fused with its loss */
	bool approximate;       /* something of the plan is only approximated */
	/* The model makes no loss: what it returns is worked on outside.  Which of the outputs is its
	 * logits (-1: none passed the doors of blocks/loss.c), and the tokens it makes them of. */
	bool tokens_served;             /* a head over every token was recorded (blocks/tokens.h) */
	bool no_labels;
	int logits_at;
	uint16_t m_logits;      /* OOM_MONO_ONE: all tokens */
	/* Parameters of models beside the trained one (references, teachers), which make no gradient. */
	struct oom_beside {
		struct oom_param *params;
		size_t n, cap, cursor;
		bool running;   /* their forward pass is being recorded: the two tables are swapped */
		uint64_t bytes, rounded, elems; /* of those with weights of their own */
	} beside;
	/* what the model returns beside the loss, given up once it has returned (oom_returns) */
	struct oom_val outputs[OOM_MAX_RETURNED];
	size_t n_outputs;
	/* of the trained model's evaluation: their sizes and types; logits_at is its own there */
	struct oom_val evaluated[OOM_MAX_RETURNED];
	size_t n_evaluated;
	bool evaluated_logits;
	bool depth_asked;               /* a family has asked for the depth: num-layers has a meaning */
	/* a second result of the layer just run (attention weights), owned by whoever takes it */
	struct oom_val side;
};

/* The depth the plan asks for, else the config's. */
static inline uint64_t oom_depth(struct oom_tape *t, uint64_t n)
{
	t->depth_asked = true;
	return t->plan->num_layers ? (uint64_t)t->plan->num_layers : n;
}

/* An absent tensor. */
static inline struct oom_val oom_none(void)
{
	return (struct oom_val){.sto = -1, .node = -1};
}
static inline bool oom_is_none(struct oom_val x)
{
	return !x.width;
}

/* Is autograd to record what is done with x? */
static inline bool oom_wants_grad(const struct oom_tape *t, struct oom_val x)
{
	return t->grad && x.rg;
}

static inline struct oom_val oom_keep(struct oom_val x)
{
	x.kept = true;
	return x;
}

/* How many times as long a product of sides `in` and `out` takes as its operations ask: tiles that it
 * does not fill, rows that do not begin on a line of memory.  At least 1. */
double oom_product_tiles(uint64_t in, uint64_t out, enum oom_dtype dt);
/* Whether w trains, also where no gradients are recorded: under a checkpoint that computes it again. */
bool oom_trains(const struct oom_tape *t, struct oom_val w);
/* Counts the work of a product of x with a weight of `in` x `out`: 2 x in x out for each of x's
 * rows, and the bytes of the weight.  It has a gradient of its input, and of the weight if that trains. */
void oom_tape_product(struct oom_tape *t, struct oom_val x, uint64_t in, uint64_t out, bool trains);
/* cuBLAS writes this storage (negative: none). */
static inline void oom_of_cublas(struct oom_tape *t, int32_t sto)
{
	if (sto >= 0 && !t->stopped)
		t->rows[sto].product = true;
}
/* The same where the caller knows how much it is: a convolution. */
void oom_tape_flops(struct oom_tape *t, uint16_t mono, double flops, enum oom_dtype dt, bool trains);
/* A kernel of the forward pass reads x a second time, as one does that needs sums over all of it first; its backward
 * reads x and the gradient so. */
void oom_tape_twice(struct oom_tape *t, struct oom_val x);
/* Bytes that go through memory besides, whatever the batch is. */
void oom_tape_moves(struct oom_tape *t, double bytes);
/* Empties the tape, keeping its memory. */
void oom_tape_reset(struct oom_tape *t, const struct oom_arch *arch, const struct oom_plan *plan);
void oom_tape_release(struct oom_tape *t);
/* No cast is remembered. */
void oom_twins_reset(struct oom_tape *t);
/* Sets the status, and the sentence that goes with it; the first failure stands. */
void oom_tape_fail(struct oom_tape *t, enum oom_status status, const char *fmt, ...) OOM_PRINTF(3, 4);
/* The same where the config's sizes make no model: which of them may be behind it is added later (oom_read_explain). */
void oom_tape_impossible(struct oom_tape *t, enum oom_status status, const char *fmt, ...) OOM_PRINTF(3, 4);
/* Says what of the step is only approximated or not counted; told once, however often it is said. */
void oom_tape_warn(struct oom_tape *t, const char *sentence);
/* Makes room for `need` elements of an array of the tape's, which begins with so many as a usual tape has (a copy costs
 * more than pages that nobody touches); false: the status is out of memory. */
enum oom_usual { OOM_USUAL_FEW = 64, OOM_USUAL_NODES = 512, OOM_USUAL_ROWS = 1024 };
bool oom_tape_grow_now(struct oom_tape *t, void **p, size_t *cap, enum oom_usual usual, size_t need, size_t size);
static inline bool oom_tape_grow(struct oom_tape *t, void **p, size_t *cap, enum oom_usual usual, size_t need,
				 size_t size)
{
	return need <= *cap || oom_tape_grow_now(t, p, cap, usual, need, size);
}

/* n elements in rows of width.  A config may say 0: an error of the recording, and whatever is made of
 * it then is not priced. */
static inline uint64_t oom_rows_of(struct oom_tape *t, uint64_t n, uint64_t width)
{
	if (width)
		return n / width;
	oom_tape_fail(t, OOM_ERR_INVALID, "%s: rows of no width: the config gives one of its sizes as 0",
		      t->scope);
	return 1;
}

/* The output of an operation of this kind: fresh, or in a recomputed layer what its forward kept. */
struct oom_val oom_new_kept(struct oom_tape *t, enum oom_kept_of kind, const char *name, uint16_t mono,
			    struct oom_dim width, enum oom_dtype dt);
/* Whether the next one of this kind is there already. */
bool oom_has_kept(const struct oom_tape *t, enum oom_kept_of kind);
/* Gives up what a recomputation has left of a layer's. */
void oom_drop_kept(struct oom_tape *t);
/* A fresh storage with one reference. */
struct oom_val oom_new(struct oom_tape *t, const char *name, uint16_t mono, struct oom_dim width,
		       enum oom_dtype dt);
struct oom_val oom_new_like(struct oom_tape *t, const char *name, struct oom_val x,
			    enum oom_dtype dt);
void oom_ref(struct oom_tape *t, int32_t sto);
void oom_unref(struct oom_tape *t, int32_t sto);
/* Events by hand: for the backward pass. */
void oom_tape_event(struct oom_tape *t, int32_t row, enum oom_event_kind kind);
void oom_tape_mark(struct oom_tape *t, size_t rep, bool end);
void oom_tape_mark_unit(struct oom_tape *t, size_t unit, bool end);
/* Remembers layers recorded together; false: out of memory. */
bool oom_tape_layers(struct oom_tape *t, const struct oom_layer_rec *r);
/* A layer of the pass begins (returns its number), and ends. */
size_t oom_unit_begin(struct oom_tape *t);
void oom_unit_end(struct oom_tape *t, size_t unit);
/* Begins a region that is repeated reps times and puts its number into *rep, for the mark at its
 * end; false and a status when there are too many. */
bool oom_tape_repeat(struct oom_tape *t, uint32_t reps, size_t *rep);
/* Gives x up. */
void oom_drop(struct oom_tape *t, struct oom_val x);
/* The first row from `from` on that somebody still holds, gradients of parameters apart; -1: none.
 * A recording has none, or a name was forgotten. */
int32_t oom_tape_held(const struct oom_tape *t, int32_t from);
/* Gives x up unless it is kept: what every operation does with its inputs. */
void oom_done(struct oom_tape *t, struct oom_val x);
/* A second reference to x's storage. */
struct oom_val oom_share(struct oom_tape *t, struct oom_val x);
/* Scratch of one kernel: allocated and freed at once (all of them alive together). */
void oom_scratch(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width, enum oom_dtype dt);
struct oom_val oom_scratch_hold(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width, enum oom_dtype dt);

/* Begins, and ends, the forward pass of a model beside the trained one. */
void oom_tape_beside(struct oom_tape *t, bool on);
/* The next parameter of the module being built (the same one again when a block is recomputed). */
struct oom_val oom_param(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols, uint32_t flags);
/* The type that weights and buffers without one of their own are loaded in. */
enum oom_dtype oom_loaded_dtype(const struct oom_plan *p);
/* Under the plan: trainable or not, stored as what (param_policy.c). */
void oom_param_policy(const struct oom_tape *t, struct oom_param *p);
/* The type that layers of four bits compute in, and that the layers beside them have. */
enum oom_dtype oom_four_bit_dtype(const struct oom_plan *p);
/* The plan's choice by name (selection.c): at the beginning of a recording and of each pass; for a
 * parameter just made; its full path; whether the part of a composition being recorded is frozen. */
void oom_selection_reset(struct oom_tape *t);
void oom_selection_pass(struct oom_tape *t);
void oom_select(struct oom_tape *t, struct oom_param *p);
bool oom_param_path(const struct oom_tape *t, const struct oom_param *p, char path[OOM_PATH_SIZE]);
/* The path of the module of this name where the recording is. */
bool oom_word_path(const struct oom_tape *t, const char *word, char path[OOM_PATH_SIZE]);
bool oom_selection_frozen_part(const struct oom_tape *t);
/* Says that the matrix p is a stack of matrices of `mid` rows (experts): what factored
 * optimizers need. */
void oom_param_stacked(struct oom_tape *t, struct oom_val p, uint64_t mid);
/* The class makes parameter p before what it runs earlier, and optimizers step it first: 1 is before 2, before all others. */
void oom_param_first(struct oom_tape *t, struct oom_val p, uint8_t order);
/* The same of those recorded from `from` on (a cursor) until now. */
void oom_params_first(struct oom_tape *t, size_t from, uint8_t order);
/* A persistent buffer of the model (rotary frequencies, position ids). */
void oom_buffer(struct oom_tape *t, uint64_t elems, enum oom_dtype dt);

/* Nodes. */
int32_t oom_node(struct oom_tape *t, uint8_t kind, const char *name);
void oom_node_edge(struct oom_tape *t, int32_t node, struct oom_val x);
void oom_node_save(struct oom_tape *t, int32_t node, struct oom_val x);
/* The node keeps x by itself, past the hooks of a checkpoint: within one, that holds it to its
 * backward. */
void oom_node_hold(struct oom_tape *t, int32_t node, struct oom_val x);
/* Makes x output `slot` of node. */
struct oom_val oom_node_out(struct oom_tape *t, int32_t node, uint8_t slot, struct oom_val x);
/* Nodes from the given one on were made for nothing that the loss sees: they go, with what they saved. */
void oom_graph_dies(struct oom_tape *t, size_t from);

/* Autocast regions: the weight-cast cache lives until the outermost one is left. */
void oom_amp_enter(struct oom_tape *t);
void oom_amp_leave(struct oom_tape *t);
/* The 16-bit copy autocast feeds to a matrix multiply (x itself when nothing is to be cast). */
struct oom_val oom_amp_cast(struct oom_tape *t, struct oom_val x);
/* The same of an operation's arguments, none among them perhaps, in the order in which they are cast. */
void oom_amp_cast_all(struct oom_tape *t, struct oom_val *const *arg, int n);

/* Runs fn for layers [0, n): kind[i] tells which layers are alike (NULL: all).  Applies activation
 * checkpointing when the plan asks for it. */
struct oom_val oom_layers_sized(struct oom_tape *t, uint32_t n, const uint8_t *kind,
				oom_block_fn fn, const void *ctx, size_t ctx_size,
				struct oom_val x);
/* ctx (any struct) is copied: blocks are run again in the backward pass. */
#define oom_layers(t, n, kind, fn, ctx, x) oom_layers_sized(t, n, kind, fn, ctx, sizeof(*(ctx)), x)
/* A stack whose layers differ or hold tensors of one another: every layer recorded by itself.
 * Called within a checkpointed layer, the inner one is checkpointed within it (stages around
 * layers).  ctx comes from oom_layer_ctx. */
struct oom_val oom_layer_alone(struct oom_tape *t, uint32_t i, oom_block_fn fn, const void *ctx,
			       struct oom_val x);
/* A copy of ctx (at most OOM_CTX_BYTES) that lives as long as the recording; NULL and a status when
 * there are too many. */
void *oom_layer_ctx(struct oom_tape *t, const void *ctx, size_t size);
/* x, which stays the caller's, is returned by the block being run beside its first: attention weights, as a rule.
 * Nobody uses it, and a reentrant checkpoint gives it a gradient of zeros (torch/csrc/autograd/python_function.cpp,
 * PyNode::apply: materialize_grads). */
void oom_block_returns(struct oom_tape *t, struct oom_val x);
/* Runs a layer on its input, which stays the caller's. */
struct oom_val oom_layer_run(struct oom_tape *t, const struct oom_ckpt *c);
/* Remembers a checkpointed layer; false: out of memory. */
bool oom_tape_ckpt(struct oom_tape *t, const struct oom_ckpt *c);
/* Gives up a tensor that all layers share (mask, rotary tables): under checkpointing the blocks'
 * closures hold it until the first layer that had it has been recomputed. */
void oom_drop_shared(struct oom_tape *t, struct oom_val x);

#endif
