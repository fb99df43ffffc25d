/* What an optimizer keeps and what its step needs. */
#ifndef OOM_OPTIMIZERS_H
#define OOM_OPTIMIZERS_H

#include "oomplan/option.h"
#include "tape/tape.h"

#define OOM_MAX_OPTIMIZERS 64
/* Paged states of fewer elements stay on the card (bitsandbytes optim/optimizer.py
 * get_state_buffer). */
#define OOM_PAGED_FROM 100000
/* Tensors of fewer elements stay in fp32 beside 8-bit states (bitsandbytes min_8bit_size) and on the
 * card beside offloaded ones (torchao optim/cpu_offload.py minimal_size). */
#define OOM_SMALL_TENSOR 4096

/* Which tensors have a slot. */
enum oom_slot_of {
	OOM_OF_ALL,
	OOM_OF_MATRICES, OOM_OF_VECTORS,
	/* from 4096 elements on, and below (bitsandbytes min_8bit_size) */
	OOM_OF_LARGE, OOM_OF_SMALL,
	/* the same, embeddings among the small ones (GlobalOptimManager overrides) */
	OOM_OF_LARGE_BUT_EMBEDDINGS, OOM_OF_SMALL_AND_EMBEDDINGS,
	/* large ones that are whole blocks of k elements, and all others (torchao optim/adam.py
	 * _new_buffer) */
	OOM_OF_BLOCKS, OOM_OF_NOT_BLOCKS,
	/* weights of hidden linear layers, and all others */
	OOM_OF_HIDDEN, OOM_OF_NOT_HIDDEN,
	/* hidden matrices whose shorter side exceeds the slot's rank k, and all others */
	OOM_OF_PROJECTED, OOM_OF_NOT_PROJECTED
};
/* How many elements a slot has. */
enum oom_extent {
	OOM_PER_ELEMENT,
	OOM_PER_ROW,            /* one per row of a matrix; one of a vector */
	OOM_PER_COLUMN,         /* of each stacked matrix; nothing of a vector */
	OOM_PER_BLOCK,          /* one per k elements */
	OOM_PER_TENSOR,
	OOM_TABLE_OF_16,        /* values that codes stand for, a table for each tensor */
	OOM_TABLE_OF_256,
	OOM_LONG_BY_RANK,       /* longer side x k */
	OOM_SHORT_BY_RANK,
	OOM_ROWS_SQUARED,       /* a side's preconditioner and its root: side^2, capped at k^2 */
	OOM_COLUMNS_SQUARED,
	OOM_ROWS_SQUARED_UP_TO, /* the same, none for sides above k */
	OOM_COLUMNS_SQUARED_UP_TO,
	OOM_ONCE                /* k elements, with the first tensor that it belongs to */
};

/* One state tensor that the optimizer keeps for a parameter. */
struct oom_slot {
	uint8_t of;             /* enum oom_slot_of */
	uint8_t extent;         /* enum oom_extent */
	uint8_t half_bytes;     /* of an element: 1 is four bits, 8 is fp32; 0: as the parameter */
	bool paged;             /* in managed memory when it has OOM_PAGED_FROM elements or more */
	uint32_t k;
};

/* Where a step's tensors go: a counter of bytes, or the replayed allocator.  Handles are numbers in
 * the order of taking. */
struct oom_sink {
	/* allocates and frees; NULL: bytes are only counted */
	int32_t (*put)(void *ctx, uint64_t bytes);
	void (*drop)(void *ctx, int32_t block);
	void *ctx;
	struct oom_taken {
		uint64_t bytes;
		int32_t block;
	} *taken;
	size_t n, cap;
	uint64_t now, peak;     /* whole blocks alive, and the most that were */
	bool once;              /* what tensors share has been made */
	bool failed;            /* out of memory */
};
int32_t oom_sink_take(struct oom_sink *s, uint64_t bytes);
/* Negative handles are nothing. */
void oom_sink_give(struct oom_sink *s, int32_t handle);
void oom_sink_release(struct oom_sink *s);

/* The parameters as an optimizer meets them. */
struct oom_stepped {
	const struct oom_param *p;
	size_t n;
	/* it steps fp32 copies of 16-bit parameters (an fp32 master) */
	bool master;
	bool first;             /* the first step, which makes the states */
};

#define OOM_MAX_SLOTS 8
/* One entry of the table (optimizers.c). */
struct oom_optimizer {
	struct oom_choice choice;       /* its setting: HF TrainingArguments optim= */
	struct oom_slot slots[OOM_MAX_SLOTS];
	uint8_t n_slots;
	/* gradients die one by one in the backward pass, with the update fused into it */
	bool in_backward;
	/* its form with 8-bit states, and with paged 8-bit states, in the knob's words; NULL: none */
	const char *eight_bit, *paged, *sharded;
	/* Megatron-core's --optimizer for it; NULL: it has none */
	const char *megatron;
	/* its states are made with it, before the first step */
	bool early;
	/* its temporaries are a list of all tensors, not one tensor's at a time */
	bool lists;
	/* Plays the step's temporaries, and in the first step the states as they come into being
	 * (oom_slots_make); NULL: it updates in place (oom_update_in_place). */
	void (*update)(const struct oom_optimizer *o, const struct oom_stepped *s,
		       struct oom_sink *sink);
};
const struct oom_optimizer *oom_optimizer_at(size_t i);
const struct oom_choice *oom_optimizer_choice(size_t i);

/* A matrix that is neither an embedding nor the head. */
bool oom_hidden_matrix(const struct oom_param *p);
/* Bytes of a slot of p on the card, and in managed memory when it is paged; 0 when p has none. */
uint64_t oom_slot_bytes(const struct oom_slot *s, const struct oom_param *p, bool master,
			uint64_t *paged);
/* Makes p's states, each its own block; returns their bytes. */
uint64_t oom_slots_make(const struct oom_optimizer *o, const struct oom_param *p, bool master,
			struct oom_sink *sink);
/* States as they come into being, no temporary. */
void oom_update_in_place(const struct oom_optimizer *o, const struct oom_stepped *s,
			 struct oom_sink *sink);
/* The parameters that are stepped (those that got a gradient), in the order in which modules
 * register them. */
size_t oom_next_stepped(const struct oom_stepped *s, size_t after);

/* What one optimizer makes of all parameters: exact bytes, allocator blocks, the highest temporary
 * above states and gradients in the first step and in later ones, bytes in managed memory. */
struct oom_state_sums {
	uint64_t bytes, rounded, temps[2], paged;
	uint64_t small;                 /* of rounded: tensors below OOM_SMALL_TENSOR elements */
	bool shared;                    /* what tensors share is among them */
	bool ready;
};
/* OOM_ERR_MEMORY, or OOM_OK. */
enum oom_status oom_optimizer_sums(const struct oom_optimizer *o, const struct oom_param *p,
				   size_t n, bool master, struct oom_state_sums *out);

#endif
