/* A recorded structure and what is fixed by it: inside of struct oom_evaluator. */
#ifndef OOM_PROGRAM_H
#define OOM_PROGRAM_H

#include "step/before.h"
#include "step/engines.h"
#include "step/optimizers.h"
#include "step/replay.h"
#include "tape/tape.h"
#include "step/variant.h"
#include "tape/timeline.h"
#include "step/time/work.h"

#define SLOTS 64
/* Replays whose results are kept: a ladder and a search ask for one plan several times. */
#define OOM_REPLAYS_KEPT 64
/* Structures with every layer recorded by itself that are kept for replays. */
#define FULL_SLOTS 6
/* Variants of one structure that are kept: engines and offloads that a search compares. */
#define OOM_VARIANTS 32
/* Bytes beyond which a row is refused: 64 TiB. */
#define OOM_ROW_LIMIT ((uint64_t)1 << 46)

struct oom_alive;

struct program {
	struct oom_tape tape;
	const struct oom_model *model;          /* and its print (families/model.h) */
	uint64_t print;
	uint64_t used;                          /* for least-recently-used replacement */
	struct oom_variant *variant[OOM_VARIANTS];      /* made when they are needed; NULL: not yet */
	/* sums over parameters, fixed by the structure */
	uint64_t total, trainable, active, param_bytes, param_rounded, grad_bytes, layer;
	/* of them, what stays whole on every rank: quantised weights' scales, or all of such weights */
	uint64_t whole_bytes, whole_rounded, whole_elems;
	/* trained parameters in blocks of the allocator, as they are and in fp32, and how many have a gradient */
	uint64_t trained_rounded, trained_wide, trained_tensors;
	uint64_t largest;                       /* bytes of a trained parameter */
	bool adapted;                           /* adapters are trained, not the model */
	/* for the sharded engines, by ranks and threshold last asked for */
	struct {
		int64_t ranks, threshold;
		uint64_t small, edges;
		double uneven;
	} shards;
	/* what the batch makes of the monomials and of the step's work, at the last one */
	struct {
		bool known;
		uint64_t b, s, t, mono[OOM_MAX_MONOS];
		double flops;
		struct oom_work work;
	} sized;
	struct oom_work fixed;                  /* of the work, what does not depend on the batch */
	/* by whether it steps an fp32 master, a bit for each optimizer: `state` has it */
	uint64_t summed[2];
	/* from here on: as malloc gives it until it is written, so that pages nobody asks for are never touched */
	struct oom_plan key;
	struct oom_work_term term[OOM_MAX_MONOS];
	/* by optimizer, and whether it steps an fp32 master */
	struct oom_state_sums state[OOM_MAX_OPTIMIZERS][2];
};
_Static_assert(OOM_MAX_OPTIMIZERS <= 64, "a bit for each optimizer");

struct oom_evaluator {
	struct program *slot[SLOTS];            /* made when they are needed; NULL: not yet */
	uint64_t clock;
	int last;                               /* slot answered from last */
	uint64_t *size;
	size_t cap_size;
	uint64_t *comm;                         /* likewise, of what passes send */
	size_t cap_comm;
	/* the graph's memory, lent to the tape being recorded */
	struct oom_node *nodes;
	size_t cap_nodes;
	void *ctx;                              /* and that of the blocks' contexts */
	struct oom_sums *sums;                  /* and of what is counted */
	struct program *full[FULL_SLOTS];       /* every layer recorded, for replays */
	size_t n_replayed;                      /* ever */
	uint64_t asked;                         /* evaluations, ever */
	bool as_asked;                          /* the one under way: no version, no engine changes its plan */
	struct oom_before before;
	bool starved;                           /* one had no memory, whoever heard of it */
	uint64_t budget;                        /* bytes of the card being asked about; 0: of none */
	bool verdict_only;                      /* and nothing else */
	struct oom_player player;
	/* from the player's bins on: as malloc gives it until it is written */
	oom_found found;
	/* the last replays: the plan without what a replay does not depend on, the card, and what came
	 * out */
	struct oom_replayed {
		const struct oom_model *model;
		uint64_t print;
		struct oom_plan plan;
		uint64_t limit;
		struct oom_replay_result result;
		bool replayed;
	} replayed[OOM_REPLAYS_KEPT];
};

/* oom_evaluate on a card of so many bytes: with OOM_EVAL_REPLAY, a plan whose cache would not fit is
 * replayed within what is there. */
enum oom_status oom_evaluate_on(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *plan, uint64_t budget, unsigned flags,
				struct oom_eval *out, struct oom_error *err);

enum oom_status oom_program_for(struct oom_evaluator *ev, const struct oom_model *m,
				const struct oom_plan *p, struct program **out,
				struct oom_error *err);
/* The same with every layer recorded by itself. */
enum oom_status oom_program_full(struct oom_evaluator *ev, const struct oom_model *m,
				 const struct oom_plan *p, struct program **out,
				 struct oom_error *err);
/* Brings g->sized to this batch. */
void oom_program_size(struct program *g, const struct oom_batch *at);
/* The same; and whether the recording takes the same branches there. */
bool oom_program_holds(struct program *g, const struct oom_batch *at);
/* Compute capability up to which kernels differ in what they allocate. */
double oom_kernels_of(const struct oom_plan *plan);
/* Tokens of every sequence that the batch does not hold: an adapter makes them. */
static inline uint64_t oom_virtual_tokens(const struct oom_plan *p)
{
	return oom_plan_prompted(p) ? (uint64_t)p->virtual_tokens : 0;
}
/* The sizes a plan gives the variables of the tape: batch, tokens, target tokens. */
void oom_batch_sizes(const struct oom_plan *p, uint64_t *b, uint64_t *s, uint64_t *tgt);
/* Records plan's step; expand: every layer by itself, for replays. */
enum oom_status oom_record(struct oom_tape *t, const struct oom_model *m, const struct oom_plan *p,
			   bool expand, struct oom_error *err);
/* Refuses names of modules that choose none, and a choice that leaves nothing to train (program_names.c). */
enum oom_status oom_names_check(const struct oom_tape *t, const struct oom_plan *p, struct oom_error *err);
/* Refuses more parameters than can be summed up; and sums them up, as the plan stores them (program_params.c). */
enum oom_status oom_program_bound(const struct oom_tape *t, struct oom_error *err);
void oom_program_sum(struct program *g, const struct oom_plan *p);
/* Bytes of one parameter as the plan stores it, and what the allocator makes of them. */
uint64_t oom_param_bytes(const struct oom_param *q, const struct oom_plan *p, uint64_t *rounded);
/* Whether it is a buffer that every rank has all of, whatever is sharded. */
bool oom_param_whole(const struct oom_param *q, const struct oom_plan *p);
/* What the optimizer at this index keeps, of the parameters as the tape stores them or of an fp32
 * master; NULL: out of memory.  A structure does not depend on its optimizer, only these sums do.
 * A parameter that no gradient reaches has no state. */
const struct oom_state_sums *oom_state_sums(struct program *g, int64_t optimizer, bool master);
/* Rounded bytes of every row at this batch, into ev->size. */
enum oom_status oom_row_sizes(struct oom_evaluator *ev, const struct oom_tape *t,
			      const struct oom_batch *at, struct oom_error *err);
/* Makes it the plan whose bytes are priced: precision, versions, engine and cached losses spelled out. */
void oom_plan_as_run(const struct oom_model *model, struct oom_plan *p);
/* oom_evaluate, and with alive who is there at the peak of each phase (OOM_PHASES of them). */
enum oom_status oom_evaluate_phases(struct oom_evaluator *ev, const struct oom_model *model,
				    const struct oom_plan *plan, unsigned flags,
				    struct oom_eval *out, struct oom_alive *alive,
				    struct oom_error *err);

/* Where the bytes of a row of this name and kind were read: PyTorch's or the library's own file;
 * fallback when the operation is the family's own. */
const char *oom_row_source(const char *name, enum oom_cat cat, const char *fallback);

#endif
