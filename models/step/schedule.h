/* One training step of one rank, in the order in which it happens.
 *
 *   load    the weights are loaded
 *   start   the engine sets itself up, and the batch is on the card
 *   step    (forward, backward) x accumulation, optimizer step, gradients freed
 *   eval    a forward pass without gradients
 *
 * A schedule is that order over two kinds of storage: the rows of the tape, which forward and backward passes
 * allocate and free, and holdings, which live from one moment of the step to another.  Everything that is
 * said about memory is read from it: the peak and the end of each phase and what is alive then (phases.c),
 * and what the caching allocator reserves (replay.c). */
#ifndef OOM_SCHEDULE_H
#define OOM_SCHEDULE_H

#include "oomplan/model.h"
#include "step/optimizers.h"
#include "tape/compiled.h"

enum oom_moment_of_step {
	OOM_AT_LOAD,
	OOM_AT_START,
	OOM_AT_FORWARD,
	OOM_AT_OUTPUT,          /* the forward pass is complete */
	OOM_AT_BACKWARD,
	OOM_AT_STEP,            /* the optimizer's step; the last backward pass is complete */
	OOM_AT_STEP_END,        /* zero_grad(set_to_none=True) */
	OOM_AT_NEVER            /* it is never freed */
};
enum oom_place { OOM_ON_GPU, OOM_IN_PINNED, OOM_IN_PAGEABLE, OOM_ON_NVME, OOM_PLACES };
/* The blocks in which a holding is allocated. */
enum oom_pieces {
	OOM_IN_ONE,             /* one block */
	OOM_PER_PARAM,          /* one per parameter */
	OOM_PER_UNIT,           /* one per layer, whose parameters have been joined (FSDP1) */
	OOM_PER_STATE,          /* one per optimizer state, as the update makes it */
	OOM_PER_FLAT_STATE,     /* the same of a flat partition's */
	OOM_PER_TRAINED,        /* one per trained parameter */
	OOM_PER_BESIDE,         /* one per parameter of models beside the trained one, then the rest */
	OOM_PER_INPUT,          /* one each for ids, labels and mask */
	OOM_PER_GATHER          /* one per parameter that ZeRO-3 has gathered, on a stream of its own */
};

/* A storage of the step that no operation allocates, or many of the same kind. */
struct oom_holding {
	const char *name;
	uint64_t bytes;         /* of this rank, in whole blocks of the allocator; 0: there is none */
	uint8_t bucket;         /* enum oom_bucket */
	uint8_t place;          /* enum oom_place */
	uint8_t from, until;    /* enum oom_moment_of_step; `until` is exclusive */
	uint8_t pieces;         /* enum oom_pieces */
	bool training;          /* it does not exist during an evaluation */
};

/* The holdings that passes know by name.  Those that a pass adds have no number. */
enum oom_holding_id {
	OOM_HOLD_WEIGHTS, OOM_HOLD_BUFFERS, OOM_HOLD_INPUTS, OOM_HOLD_GRADS, OOM_HOLD_MASTER,
	OOM_HOLD_STATE, OOM_HOLD_KNOWN
};
enum { OOM_MAX_HOLDINGS = 16 };

/* The part of the model that a rank runs: all of it, or some of the layers, with or without what comes before
 * and after the layers in the forward pass. */
enum oom_part_id { OOM_PART_BEFORE, OOM_PART_LAYER, OOM_PART_AFTER, OOM_PARTS };
struct oom_chain {
	bool whole;
	uint64_t times[OOM_PARTS];      /* otherwise: how often it runs each part */
	uint64_t first;                 /* the number of its first layer */
};

/* Sums over the model: elements, and the bytes that a GPU without sharding would hold. */
struct oom_model_sums {
	uint64_t total, trainable;      /* elements */
	uint64_t hidden;                /* hidden size, from which DeepSpeed's "auto" values follow */
	uint64_t layer;                 /* elements of a layer, the unit that is wrapped */
	uint64_t params, grads;         /* bytes, rounded by the allocator */
	/* trainable parameters in blocks of the allocator, with or without a gradient: as they are, and in fp32 */
	uint64_t trained, trained_wide;
	uint64_t tensors;               /* parameters that have a gradient */
	/* the part of params that no rank shares with others: what quantised weights have beside their codes, or all
	 * of them; and the elements of the latter */
	uint64_t whole, whole_elems;
	uint64_t largest;               /* bytes of the largest trained weight */
	uint64_t small;                 /* elements of parameters below ZeRO-3's persistence threshold */
	bool half;                      /* weights are stored in 16 bit */
	/* the optimizer's sums with weights as the tape stores them, and with an fp32 master copy */
	const struct oom_state_sums *state, *master_state;
};

/* Waits that are open at once. */
enum { OOM_MOST_WAITS = 4 };

struct oom_schedule {
	struct oom_model_sums in;
	struct oom_holding hold[OOM_MAX_HOLDINGS];
	size_t n_hold;
	struct oom_ranks ranks;         /* the ranks that share the states, and their padding */
	/* the optimizer updates an fp32 master copy (or fp32 shards); it updates shards of the parameters */
	bool master, divided;
	/* A running mean of the weights: by how much its elements are wider than the weights', and how many
	 * temporaries of its width its update makes, for all tensors at once or for one after another. */
	struct oom_mean {
		uint64_t wider;
		uint8_t temps;
		bool at_once;
		bool part;              /* the mean is sharded: this rank has its part of every tensor */
	} mean;
	/* ZeRO's flat partition: elements of the rank's part and of what the optimizer is given at a time, and the bytes of
	 * an element in which its gradients are joined and then cast; 0: they are not */
	struct oom_flat {
		uint64_t part, group;
		uint8_t joined, cast;
		bool leave;             /* the gradients are given up once they are cast, before the states come */
	} flat;
	uint64_t temps[2];              /* temporaries of the first and of later optimizer steps; 0 if not on the card */
	uint64_t copied_back;           /* bytes that a step of the host brings to the card, to be cast there */
	bool accumulates;               /* later micro-batches find gradients of the first */
	/* gradients outlive the step as zeros, to which the next backward pass adds */
	bool grads_stay;
	/* they are given up before the optimizer's step, which has the rank's part of them */
	bool grads_leave;
	/* what zero_grad releases is freed only when the next forward pass begins */
	bool grads_linger;
	/* of how many units' memory in a forward and in a backward pass another stream may still read what was freed
	 * (replay_waiting.c) */
	uint8_t waits[2];
	/* ranks after a node's first are ahead of what they are sent while FSDP1 wraps (replay_holdings.c) */
	bool later_ahead;
	/* the model is whole on the card before FSDP1 divides it */
	bool whole_first;
	/* ZeRO-3: elements of a parameter that is not always whole, at least, and those that a module sends for ahead */
	struct oom_ahead {
		uint64_t least, elems;
	} ahead;
	struct oom_chain chain;
	uint64_t chain_grads;           /* bytes of the gradients of the rank's part */
};

/* The number of rows along which FSDP2 shards a parameter, that is, its dimension 0: experts, rows or
 * elements.  Shards are padded to the size of the first one (torch/distributed/fsdp/_fully_shard/
 * _fsdp_param.py, _init_sharded_param).  In rank.c. */
uint64_t oom_cut_rows(const struct oom_param *q);
/* Adds a holding and returns it, so that the caller can set its other fields. */
struct oom_holding *oom_add_holding(struct oom_schedule *s, const char *name, enum oom_bucket bucket,
			     uint64_t bytes, enum oom_moment_of_step from,
			     enum oom_moment_of_step until);
/* Begins a schedule: the model's weights, buffers and inputs and the optimizer's state, all of it on the card
 * and not sharded. */
void oom_schedule_init(struct oom_schedule *s, const struct oom_model_sums *in, uint64_t buffers,
		       uint64_t inputs);
/* The bytes of communication buffers on the card. */
uint64_t oom_buffers_of(const struct oom_schedule *s);
/* The bytes of all holdings in one place. */
uint64_t oom_held_in(const struct oom_schedule *s, enum oom_place place);

#endif
