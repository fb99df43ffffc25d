/* What a tape is made of: rows (storages), symbolic tensors, parameters, nodes of the graph, events, units, and the
 * limits of one recording.  tape.h says how they come about. */
#ifndef OOM_TAPE_RECORDS_H
#define OOM_TAPE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/module_paths.h"
#include "dtype.h"
#include "oomplan/plan.h"
#include "sizes.h"

struct oom_tape;

/* Who a row belongs to, for the composition at the peak (columns pk_* of the runs file). */
enum oom_cat {
	OOM_CAT_TEMP,
	OOM_CAT_SAVED,
	OOM_CAT_AMP,
	OOM_CAT_LOGITS,
	OOM_CAT_GRAD,
	OOM_CAT_RECOMPUTE,
	OOM_CAT_COMM,
	OOM_CATS
};

/* How much of a row one rank holds: all of it, its part of what the ranks divide between them,
 * all of it with the padding that equal parts need, or, whatever the row's own size, as much as the plan gives a
 * bucket, or what its part of the gradients cuts off. */
enum oom_share { OOM_SHARE_WHOLE, OOM_SHARE_PART, OOM_SHARE_PADDED, OOM_SHARE_BUCKET, OOM_SHARE_EDGES };
struct oom_ranks {
	uint64_t n;             /* that divide the model's states, at least 1 */
	double pad;             /* what equal parts hold together over what there is, at least 1 */
	uint64_t bucket;        /* bytes of the bucket in which gradients are reduced */
	uint64_t edges;         /* bytes beside a rank's part of gradients that belong to the tensors it cuts, at most */
};
static inline uint64_t oom_shared_bytes(uint64_t bytes, enum oom_share how, struct oom_ranks r)
{
	if (how == OOM_SHARE_BUCKET)
		return r.bucket;
	if (how == OOM_SHARE_EDGES)
		return r.edges;
	if (how == OOM_SHARE_WHOLE || (how == OOM_SHARE_PADDED && r.pad <= 1))
		return bytes;
	if (how == OOM_SHARE_PADDED)
		return (uint64_t)((double)bytes * r.pad);
	return r.pad > 1 ? (uint64_t)((double)bytes / (double)r.n * r.pad) + 1 :
			   (bytes + r.n - 1) / r.n;
}

/* What the sizes of a step depend on: sequences, tokens of each, target tokens of each, and the
 * ranks that share its states. */
struct oom_batch {
	uint64_t b, s, t;
	struct oom_ranks ranks;
};

struct oom_row {
	uint64_t width;         /* static factor, elements */
	const char *name;       /* operation or tensor */
	const char *scope;      /* module */
	const char *text;       /* the width as written in the code */
	int32_t node;           /* nodes recorded before its birth */
	uint16_t mono;
	uint16_t group;         /* layer group of its birth; 0 = outside */
	uint16_t mult;          /* layers its record stands for */
	uint8_t dt;
	uint8_t cat;
	uint8_t born;           /* enum oom_stream_id */
	uint8_t share;          /* enum oom_share */
	uint8_t stream;         /* of the card, that allocates it; 0: the one that computes */
	bool backward : 1;      /* born in the backward pass */
	bool shared : 1;        /* by all layers: a mask, a rotary table */
	bool product : 1;       /* of matrices: cuBLAS makes it */
	bool inside : 1;        /* of a kernel that writes another row: nothing that is made of it is counted as time */
	/* its block comes back when another stream is through with it: with what opened that wait last, or itself opens one */
	bool joins_wait : 1, opens_wait : 1;
};
_Static_assert(sizeof(struct oom_row) <= 48, "a replay copies one for every layer: most of a search's fresh memory");

/* A symbolic tensor: a reference to a storage, its shape as (monomial x width), and its place in
 * the graph. */
struct oom_val {
	uint64_t width;
	const char *text;       /* of the width; may be NULL */
	int32_t sto;            /* row, or -1 for a persistent or absent storage */
	int32_t node;           /* producer >= 0; -1 none; <= -2 parameter -2-node */
	uint16_t mono;
	uint8_t slot;           /* which output of the producer */
	uint8_t dt;
	bool rg;                /* requires grad */
	bool kept;              /* the operation must not consume it */
	bool perm;              /* memory is [b, s, h, d] behind a transposed [b, h, s, d] view */
};

/* A tensor's cast, which a compiled graph makes once.  The latest are remembered: a layer's products read no more
 * tensors at a time. */
struct oom_twin {
	struct oom_val x, cast;
};
enum { OOM_TWINS = 8 };

/* A static width and the expression it came from. */
struct oom_dim {
	uint64_t n;
	const char *text;
};
#define D(expr) ((struct oom_dim){(uint64_t)(expr), #expr})

enum oom_param_flags {
	OOM_P_EMBEDDING = 1, OOM_P_FROZEN = 2, OOM_P_HEAD = 4, OOM_P_LINEAR = 8, OOM_P_EXPERT = 16,
	OOM_P_LORA = 32,
	OOM_P_QUANTISED = 64, OOM_P_FP32 = 128, OOM_P_BUFFER = 256, OOM_P_NORM = 512, OOM_P_UNUSED = 1024,
	OOM_P_SAVED = 2048,     /* a trained copy beside its frozen module (modules_to_save) */
	OOM_P_IDLE = 8192,      /* of an adapter that is there and not used */
	OOM_P_BESIDE = 4096,    /* of another model, which has weights of its own */
	OOM_P_SHARED = 16384,   /* of experts that every token goes through */
};
struct oom_param {
	uint64_t elems;
	const char *name, *scope, *within;
	uint32_t flags;
	uint32_t rows, cols, mid; /* of a matrix (cols = last dimension, mid = the one before it
				   * when there are three); rows 0 for vectors */
	uint16_t count;         /* layers it stands for */
	uint8_t dt;
	bool trainable;
	bool in_layer;          /* of a stack of layers */
	uint8_t adapted;        /* the plan's LoRA: 0 not asked yet, 1 leaves it, 2 adapts it */
	uint32_t unit;          /* 1 + the layer it belongs to; 0: none */
	int32_t number;         /* selection.layer when it was made */
	uint8_t part;           /* and selection.part */
	uint8_t first;          /* registered before the rest of its model, in this order; 0: where it is recorded */
	/* while recording */
	int32_t grad;           /* row, or -1 */
	bool grad_view;         /* a view: what comes next is not added in place */
	uint16_t edges, got;    /* nodes that use it, and those whose gradient has come */
	int32_t amp;            /* row of the autocast copy, or -1 */
	int32_t amp_node;
	uint32_t amp_region;
};

/* How much one recording can hold beside what grows; more is an error.  In brackets what the known
 * models need at most. */
enum {
	OOM_MAX_EDGES = 4,      /* inputs of a node [4] */
	OOM_MAX_SAVED = 18,     /* tensors that a node saves [16] */
	OOM_MAX_OUTS = 6,       /* outputs of a node [4] */
	OOM_MAX_HELD = 192,     /* tensors that the layers of a checkpointed stack share [14], and graphs of what they hand on */
	OOM_MAX_RETURNED = 4,   /* tensors that a model returns beside the loss [2] */
	OOM_MAX_CTX = 64,       /* stacks of layers, of a second model too [32] ... */
	OOM_CTX_BYTES = 1024,   /* ... and the bytes its blocks are told */
	OOM_MAX_RUNS = 512,     /* runs of layers recorded; repeated ones of all passes [53] */
	OOM_MAX_STACK = UINT16_MAX,     /* layers of a stack: a row's multiplicity has 16 bits */
	OOM_MAX_EXPANDED = 2000,        /* layers recorded one by one, for replays */
	OOM_MAX_ROWS = 1 << 29,         /* an event is a row shifted by two bits, in 32 */
};

struct oom_edge {
	uint64_t width;
	int32_t to;             /* node >= 0, parameter <= -2, -1 none */
	uint16_t mono;
	uint8_t slot, dt;
};
/* Temporaries of a derivative, alive together: of the operand's size, boolean ones of its size, one
 * element. */
struct oom_temps {
	uint8_t full, flags, scalar;
};

/* A lookup's result is permuted, so that its gradient is copied; a layer's second run has made the ids again. */
enum oom_lookup { OOM_LOOKUP_TURNED = 1, OOM_LOOKUP_AGAIN = 2 };

struct oom_node {
	struct oom_edge edge[OOM_MAX_EDGES];
	uint64_t width;         /* of output 0 */
	uint64_t aux_width;     /* what the rule needs besides */
	int32_t saved[OOM_MAX_SAVED];
	/* and by kind (ops.h): */
	union {
		uint32_t ckpt;                  /* OOM_NODE_CKPT: which one */
		struct oom_temps temps;         /* OOM_NODE_UNARY */
		struct {
			uint16_t heads, d, length;      /* fused attention */
		};
		bool added;     /* OOM_NODE_LINEAR: addmm, whose bias is one of its operands */
		struct {        /* OOM_NODE_SOFTMAX */
			bool zeros;     /* of a compiled model that returns its logits too */
			bool product;   /* its gradient is made of gradient times result, a tensor of its own */
		};
		uint16_t sequences;             /* OOM_NODE_ROWS: taken one by one; 0: all at once */
		/* OOM_NODE_CONV: the weight's gradient is not laid out as the weight */
		bool turned;
	};
	uint16_t mono, aux_mono;
	uint8_t dt, kind, n_edge, n_saved, n_out;
	uint8_t n_packed;       /* dry runs: tensors it would save */
	uint8_t perm;           /* attention: which of q, k, v, out lie as [b, s, h, d]; a lookup: enum oom_lookup */
	const char *name, *scope;
	/* of each output while in backward: its gradient's storage, as [b, s, h, d], a view with
	 * gaps, there at all */
	int32_t grad[OOM_MAX_OUTS];
	bool gperm[OOM_MAX_OUTS], ggaps[OOM_MAX_OUTS], has[OOM_MAX_OUTS];
};

/* A checkpointed layer: the one kind of node that is the tape's own; the others are ops.h's. */
enum { OOM_NODE_CKPT };

enum oom_stream_id { OOM_STREAM_FWD, OOM_STREAM_BWD, OOM_STREAM_EVAL, OOM_STREAMS };
/* event = row << 2 | kind */
enum oom_event_kind { OOM_EV_ALLOC, OOM_EV_FREE, OOM_EV_FREE_ALL, OOM_EV_GRAD };
struct oom_stream {
	int32_t *ev;
	size_t n, cap;
};
/* markers: -1 - 2 * k begins and -2 - 2 * k ends the region repeated reps[k] times; from
 * -OOM_UNIT_MARK down, in the same way, the layer units[k] begins and ends */
#define OOM_UNIT_MARK (1 << 20)
static inline bool oom_ev_is_unit(int32_t ev)
{
	return ev <= -OOM_UNIT_MARK;
}
static inline size_t oom_ev_unit(int32_t ev)
{
	return (size_t)(-OOM_UNIT_MARK - ev) / 2;
}
static inline bool oom_ev_unit_ends(int32_t ev)
{
	return (-OOM_UNIT_MARK - ev) & 1;
}

/* One layer as it was recorded, standing for `mult` equal ones: what sharded engines gather and
 * reduce at once. */
struct oom_unit {
	int32_t node0, node1;           /* its nodes of the training forward */
	uint32_t param0, param1;        /* its parameters */
	uint16_t mult;
};

struct oom_layer_rec {
	int32_t node0, node1;
	uint32_t unit0, unit1;
	uint16_t group, reps;
	uint32_t layers;        /* it stands for */
};

/* A layer: its input x is borrowed, its result a temporary (frame.h). */
typedef struct oom_val (*oom_block_fn)(struct oom_tape *t, const void *ctx, uint32_t layer,
				       struct oom_val x);

struct oom_ckpt {
	oom_block_fn fn;
	const void *ctx;
	uint32_t layer, packs, param0;
	uint32_t unit0;         /* the first unit within it: of a checkpointed stage its layers */
	uint32_t kept0, kept1;  /* outputs that the plan's policy keeps for the recomputation */
	bool spread_mask;       /* as struct oom_tape has it where the block was first run */
	struct oom_val x;
	struct oom_val also;    /* what the block returns beside its first, if that has a gradient: its size */
};
/* Which operations a policy of selective checkpointing may keep the outputs of. */
enum oom_kept_of { OOM_KEPT_PRODUCT = 1, OOM_KEPT_ATTENTION = 2 };

/* Labels padded and shifted (transformers since 4.45), or logits cut and copied by the class
 * itself, in fp32 or as they are. */
enum oom_shift { OOM_SHIFT_LABELS, OOM_SHIFT_LOGITS_FP32, OOM_SHIFT_LOGITS };

/* An adapter on an embedding: A and B, the ids it looks up among `rows`, and what the base made. */
struct oom_embedding_adapter {
	struct oom_val a, b, m, ids, of;        /* m: DoRA's magnitudes, or none */
	uint64_t rows;
	struct oom_dim out;
};

/* Where the recording is among the model's modules, and what names in the plan have met. */
struct oom_selection {
	const char *paths;      /* of the model type (config/module_paths.h) */
	bool by_name;           /* the plan chooses what trains */
	bool each;              /* it tells equal layers apart: every one is recorded by itself */
	uint8_t part;           /* enum oom_model_part */
	int64_t layer;          /* number in its stack; -1: outside */
	bool shared;            /* in a mixture's shared experts */
	/* NULL, or a module that the name must lie in, where a layer has two with equal modules ("linear_attn") */
	const char *within;
	const char *outside;    /* the scope that the layer was entered with: no module of its own */
	uint32_t depth;         /* layers of that stack */
	uint32_t stack, stacks[OOM_PART_PROJECTOR + 1]; /* its number; those begun, by part */
	bool froze, trained;    /* --freeze and --train met a parameter */
};

/* Arithmetic of what is recorded, per monomial. */
struct oom_tally {
	double flops[OOM_MAX_MONOS];    /* of products with weights */
	double attn[OOM_MAX_MONOS];     /* of products within attention */
	/* of attn, what fused kernels leave out above the diagonal */
	double skipped[OOM_MAX_MONOS];
	/* of attn, batched products outside of a fused kernel */
	double batched[OOM_MAX_MONOS];
	/* of attn, in a fused kernel on fp32, without what it leaves out */
	double wide[OOM_MAX_MONOS];
	/* of batched, on fp32 */
	double wide_batched[OOM_MAX_MONOS];
	/* of flops, in 16 and in 32 bit; thin products count as the tiles they fill */
	double rated[2][OOM_MAX_MONOS];
	/* of both, what weights that train have */
	double trained[OOM_MAX_MONOS], trained_rated[2][OOM_MAX_MONOS];
	/* of products in 16 bit: elements that they write forward, and for their inputs' gradients */
	double written[2][OOM_MAX_MONOS];
	/* their inner sizes, summed over calls: of the forward pass, and of inputs' gradients */
	double depth[2];
	double weights_read;            /* bytes, by products */
	double twice[OOM_MAX_MONOS];    /* bytes that a kernel of the forward pass reads a second time */
	double unpacked, unpackings;    /* elements of 4-bit weights made whole; how many weights */
};
/* What a training step asks of a card, as sums over monomials, made when it is recorded
 * (step/time/work.h): products with weights and inside of attention, each of the forward pass and of what
 * the backward pass computes again, and bytes.  Launches do not depend on the batch. */
struct oom_work_sums {
	struct oom_tally pass[2];
	double bytes[OOM_MAX_MONOS];
	double launches, launches_back, units, tensors, trained;
};
/* What is counted while a step is recorded: memory that one recording after another is lent. */
struct oom_sums {
	struct oom_tally tally;         /* of what was recorded so far */
	struct oom_tally alone;         /* of what no backward follows */
	/* both together: of the training forward; of what its backward recomputes */
	double flops_fwd[OOM_MAX_MONOS], flops_again[OOM_MAX_MONOS];
	struct oom_work_sums work;
};

#endif
