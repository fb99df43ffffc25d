/* One training step of one rank, as it happens.
 *
 *   load    the weights come
 *   start   the engine sets itself up; the batch is there
 *   step    (forward, backward) x accumulation, optimizer step, gradients given up
 *   eval    a forward pass without gradients
 *
 * A schedule is that order over two kinds of storage: the rows of the tape, which a pass is played
 * over, and holdings, which live from one moment of the step to another.  Everything that is said
 * about memory is read from it: any phase's peak and end, who is alive then (phases.c), what the
 * caching allocator makes of it (replay.c). */
#ifndef OOM_SCHEDULE_H
#define OOM_SCHEDULE_H

#include "oomplan/model.h"
#include "step/optimizers.h"
#include "tape/compiled.h"

enum oom_moment_of_step {
	OOM_AT_LOAD,
	OOM_AT_START,
	OOM_AT_FORWARD,
	OOM_AT_OUTPUT,          /* the forward's operations are through */
	OOM_AT_BACKWARD,
	OOM_AT_STEP,            /* the optimizer's; the last backward is through */
	OOM_AT_STEP_END,        /* zero_grad(set_to_none=True) */
	OOM_AT_NEVER            /* lives on */
};
enum oom_place { OOM_ON_GPU, OOM_IN_PINNED, OOM_IN_PAGEABLE, OOM_ON_NVME, OOM_PLACES };
/* How the allocator meets a holding. */
enum oom_pieces {
	OOM_IN_ONE,             /* one block */
	OOM_PER_PARAM,          /* each parameter's share of it */
	OOM_PER_UNIT,           /* a layer's parameters in one, after they have been joined (FSDP1) */
	OOM_PER_STATE,          /* each state of the optimizer, as the update makes it */
	OOM_PER_TRAINED,        /* each trained parameter's share of it */
	OOM_PER_BESIDE,         /* each parameter of the models beside the trained one, then the rest */
	OOM_PER_INPUT           /* ids, labels, mask */
};

/* A storage of the step that is not an operation's, or many of one kind. */
struct oom_holding {
	const char *name;
	uint64_t bytes;         /* of this rank, in whole allocator blocks; 0: there is none */
	uint8_t bucket;         /* enum oom_bucket */
	uint8_t place;          /* enum oom_place */
	uint8_t from, until;    /* enum oom_moment_of_step; until is exclusive */
	uint8_t pieces;         /* enum oom_pieces */
	bool training;          /* not in an evaluation */
};

/* The holdings that passes know by name; what a pass adds beside them has no number. */
enum oom_holding_id {
	OOM_HOLD_WEIGHTS, OOM_HOLD_BUFFERS, OOM_HOLD_INPUTS, OOM_HOLD_GRADS, OOM_HOLD_MASTER,
	OOM_HOLD_STATE, OOM_HOLD_KNOWN
};
enum { OOM_MAX_HOLDINGS = 16 };

/* What a rank runs of the model, in the order of the forward: all of it, or some of the layers with
 * or without what comes before and after them. */
enum oom_part_id { OOM_PART_BEFORE, OOM_PART_LAYER, OOM_PART_AFTER, OOM_PARTS };
struct oom_chain {
	bool whole;
	uint64_t times[OOM_PARTS];      /* else: how many of each part */
	uint64_t first;                 /* and which layer is its first */
};

/* The model as a rank's passes meet it: elements, and the bytes an undivided GPU would hold. */
struct oom_model_sums {
	uint64_t total, trainable;      /* elements */
	uint64_t hidden;                /* size; what DeepSpeed's "auto" values are made of */
	uint64_t layer;                 /* elements of a block, the wrapped unit */
	uint64_t params, grads;         /* bytes, rounded by the allocator */
	uint64_t trained;               /* bytes of what trains, with or without a gradient */
	uint64_t scales;                /* of params: what quantised ones have beside their codes */
	uint64_t largest;               /* bytes of the largest trained weight */
	uint64_t small;                 /* elements of parameters below ZeRO-3's persistence threshold */
	bool half;                      /* weights are stored in 16 bit */
	/* the optimizer's sums as the tape stores weights, and over an fp32 master of them */
	const struct oom_state_sums *state, *master_state;
};

struct oom_schedule {
	struct oom_model_sums in;
	struct oom_holding hold[OOM_MAX_HOLDINGS];
	size_t n_hold;
	struct oom_ranks ranks;         /* that divide the states, and their padding */
	/* the optimizer steps an fp32 master (or fp32 shards), and parts of the parameters */
	bool master, divided;
	/* a mean of the weights: bytes of its elements over the weights', and what its update makes of every
	 * tensor, at once (of all together) or one after another: so many tensors as wide as the mean */
	struct oom_mean {
		uint64_t wider;
		uint8_t temps;
		bool at_once;
		bool part;              /* of the rank's part of every tensor */
	} mean;
	uint64_t temps[2];              /* of the optimizer step, first and later; 0 if elsewhere */
	bool accumulates;               /* a second micro-batch finds the first one's gradients */
	/* gradients outlive the step, as zeros that the next backward adds to */
	bool grads_stay;
	/* what zero_grad lets go is freed only as the next forward begins */
	bool grads_linger;
	/* what was gathered in the forward and given up serves again when the next has come */
	bool gathers_wait;
	struct oom_chain chain;
	uint64_t chain_grads;           /* of a part: bytes of its gradients */
};

/* Rows along which FSDP2 cuts a parameter: dimension 0, which is experts, rows or elements; parts are
 * padded to the first one's size (torch/distributed/fsdp/_fully_shard/_fsdp_param.py
 * _init_sharded_param).  rank.c. */
uint64_t oom_cut_rows(const struct oom_param *q);
/* Adds a holding; returns it for more to be said. */
struct oom_holding *oom_add_holding(struct oom_schedule *s, const char *name, enum oom_bucket bucket,
			     uint64_t bytes, enum oom_moment_of_step from,
			     enum oom_moment_of_step until);
/* An empty schedule of a model: its weights, buffers and inputs, and the optimizer's state, all on
 * the card and whole. */
void oom_schedule_init(struct oom_schedule *s, const struct oom_model_sums *in, uint64_t buffers,
		       uint64_t inputs);
/* Bytes of communication buffers on the card. */
uint64_t oom_buffers_of(const struct oom_schedule *s);
/* Bytes of all holdings in a place. */
uint64_t oom_held_in(const struct oom_schedule *s, enum oom_place place);

#endif
