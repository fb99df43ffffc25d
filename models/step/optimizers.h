/* What optimizers keep, and what their steps need. */
#ifndef OOM_OPTIMIZERS_H
#define OOM_OPTIMIZERS_H

#include "oomplan/option.h"
#include "tape/tape.h"

#define OOM_MAX_OPTIMIZERS 64
/* Paged states with fewer elements than this stay on the card (bitsandbytes optim/optimizer.py,
 * get_state_buffer). */
#define OOM_PAGED_FROM 100000
/* Tensors with fewer elements than this have fp32 states where others have 8-bit ones (bitsandbytes,
 * min_8bit_size), and stay on the card where others are offloaded (torchao optim/cpu_offload.py,
 * minimal_size). */
#define OOM_SMALL_TENSOR 4096

/* Which parameters have a slot. */
enum oom_slot_of {
	OOM_OF_ALL,
	OOM_OF_MATRICES, OOM_OF_VECTORS,
	/* those of at least 4096 elements, and those of fewer (bitsandbytes, min_8bit_size) */
	OOM_OF_LARGE, OOM_OF_SMALL,
	/* the same, but embeddings count as small (GlobalOptimManager's overrides) */
	OOM_OF_LARGE_BUT_EMBEDDINGS, OOM_OF_SMALL_AND_EMBEDDINGS,
	/* large ones whose size is a multiple of k elements, and all others (torchao optim/adam.py,
	 * _new_buffer) */
	OOM_OF_BLOCKS, OOM_OF_NOT_BLOCKS,
	/* weights of hidden linear layers, and all others */
	OOM_OF_HIDDEN, OOM_OF_NOT_HIDDEN,
	/* hidden matrices whose shorter side exceeds the slot's rank k, and all others */
	OOM_OF_PROJECTED, OOM_OF_NOT_PROJECTED
};
/* The number of elements of a slot. */
enum oom_extent {
	OOM_PER_ELEMENT,
	OOM_PER_ROW,            /* one per row of a matrix; one for a vector */
	OOM_PER_COLUMN,         /* one per column of each stacked matrix; none for a vector */
	OOM_PER_BLOCK,          /* one per k elements */
	OOM_PER_TENSOR,
	OOM_TABLE_OF_16,        /* the values of 4-bit codes, a table per tensor */
	OOM_TABLE_OF_256,
	OOM_LONG_BY_RANK,       /* longer side x k */
	OOM_SHORT_BY_RANK,
	OOM_ROWS_SQUARED,       /* a preconditioner and its root: side^2, at most k^2 */
	OOM_COLUMNS_SQUARED,
	OOM_ROWS_SQUARED_UP_TO, /* the same, but none for sides above k */
	OOM_COLUMNS_SQUARED_UP_TO,
	OOM_ONCE                /* k elements, made with the first tensor that has it */
};

/* One state tensor that the optimizer keeps for a parameter. */
struct oom_slot {
	uint8_t of;             /* enum oom_slot_of */
	uint8_t extent;         /* enum oom_extent */
	uint8_t half_bytes;     /* half bytes per element: 1 is four bits, 8 is fp32; 0: the parameter's */
	bool paged;             /* in managed memory if it has at least OOM_PAGED_FROM elements */
	uint32_t k;
};

/* What receives the tensors of an optimizer step: a counter of bytes, or the replayed allocator.  Handles are
 * numbered in the order of allocation. */
struct oom_sink {
	/* allocate and free a block; NULL: bytes are only counted */
	int32_t (*put)(void *ctx, uint64_t bytes);
	void (*drop)(void *ctx, int32_t block);
	void *ctx;
	struct oom_taken {
		uint64_t bytes;
		int32_t block;
	} *taken;
	size_t n, cap;
	uint64_t now, peak;     /* bytes of the blocks alive, and their peak */
	bool once;              /* what all tensors share has been made */
	bool failed;            /* out of memory */
};
int32_t oom_sink_take(struct oom_sink *s, uint64_t bytes);
/* Frees a tensor.  Negative handles are ignored. */
void oom_sink_give(struct oom_sink *s, int32_t handle);
void oom_sink_release(struct oom_sink *s);

/* The parameters that an optimizer updates. */
struct oom_stepped {
	const struct oom_param *p;
	size_t n;
	/* it updates fp32 copies of 16-bit parameters (an fp32 master copy) */
	bool master;
	bool first;             /* the first step, which makes the states */
	/* norms and biases after all others: the groups with and without decay of a Trainer (transformers trainer.py
	 * create_optimizer) */
	bool groups;
	bool sum_buffers;       /* a kernel's sums over rows have a buffer for their parts */
};

#define OOM_MAX_SLOTS 8
/* One entry of the table (optimizers.c). */
struct oom_optimizer {
	struct oom_choice choice;       /* its setting is the word for optim= in TrainingArguments */
	struct oom_slot slots[OOM_MAX_SLOTS];
	uint8_t n_slots;
	/* the update is fused into the backward pass, in which gradients are freed one by one */
	bool in_backward;
	/* the knob's words for its forms with 8-bit states as transformers' Trainer makes them, and in a loop that
	 * leaves embeddings to bitsandbytes; with paged 8-bit states; and with those that FSDP2 can shard; NULL: none */
	const char *eight_bit, *eight_bit_all, *paged, *sharded;
	/* the word for Megatron-core's --optimizer; NULL: it does not have this optimizer */
	const char *megatron;
	/* its states are allocated when it is constructed, before the first step */
	bool early;
	/* its temporaries exist for all tensors at once (foreach), not for one tensor at a time */
	bool lists;
	/* how often its kernels read or write 4 bytes of a parameter, where it works tensor by tensor on fp32; 0: as states,
	 * weights and gradients are read and written once */
	double moves;
	/* Plays the temporaries of the step and, in the first step, the states as they are allocated
	 * (oom_slots_make).  NULL: it updates in place (oom_update_in_place). */
	void (*update)(const struct oom_optimizer *o, const struct oom_stepped *s,
		       struct oom_sink *sink);
};
const struct oom_optimizer *oom_optimizer_at(size_t i);
const struct oom_choice *oom_optimizer_choice(size_t i);

/* Whether its states are kept in blocks that have a scale each. */
bool oom_optimizer_in_blocks(const struct oom_optimizer *o);
/* Whether every tensor has states by its elements alone, whatever its shape. */
bool oom_optimizer_by_element(const struct oom_optimizer *o);
/* Whether states belong to a matrix as a whole (its factors, its projection), so that they are not in proportion to
 * its rows. */
bool oom_optimizer_of_whole_matrices(const struct oom_optimizer *o);
/* True for a matrix that is neither an embedding nor the head. */
bool oom_hidden_matrix(const struct oom_param *p);
/* The bytes of p's slot on the card; *paged receives those in managed memory.  0 if p does not have it. */
uint64_t oom_slot_bytes(const struct oom_slot *s, const struct oom_param *p, bool master,
			uint64_t *paged);
/* Allocates p's states, a block each.  Returns their bytes. */
uint64_t oom_slots_make(const struct oom_optimizer *o, const struct oom_param *p, bool master,
			struct oom_sink *sink);
/* The update that only allocates the states, without temporaries. */
void oom_update_in_place(const struct oom_optimizer *o, const struct oom_stepped *s,
			 struct oom_sink *sink);
/* The index of the next parameter after `after` that is updated, that is, that has a gradient, in the order in
 * which modules register parameters, group by group. */
size_t oom_next_stepped(const struct oom_stepped *s, size_t after);

/* The sums of an optimizer over all parameters: exact bytes, bytes of allocator blocks, the peak of temporaries
 * above states and gradients in the first and in later steps, and bytes in managed memory. */
struct oom_state_sums {
	uint64_t bytes, rounded, temps[2], paged;
	uint64_t small;                 /* the part of `rounded` in tensors below OOM_SMALL_TENSOR elements */
	uint64_t again;                 /* what all tensors share, as many times more as an optimizer for each makes it */
	bool shared;                    /* what all tensors share is included */
};
/* Computes the sums.  OOM_ERR_MEMORY. */
enum oom_status oom_optimizer_sums(const struct oom_optimizer *o, struct oom_stepped of, struct oom_state_sums *out);

#endif
