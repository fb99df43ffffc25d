/* What a step is a step of: how the model is called, what else is, and the loss that the training
 * loop makes outside of it. */
#ifndef OOM_OBJECTIVES_H
#define OOM_OBJECTIVES_H

#include "oomplan/model.h"
#include "tape/tape.h"

/* Forward passes of a step that generates: logits of the last token, or of all. */
enum oom_generating { OOM_GENERATING_NOT, OOM_GENERATING_LAST, OOM_GENERATING_ALL };

/* Whose loop runs the step: one's own, transformers' Trainer, or the Trainer that counts the labels of a step, which
 * it does where the model makes the loss. */
enum oom_loop { OOM_LOOP_PLAIN, OOM_LOOP_TRAINER, OOM_LOOP_COUNTING };

struct oom_objective {
	uint8_t loop;           /* enum oom_loop: of the library that the objective is from */
	uint8_t in_trainer;     /* and where the plan says that a Trainer runs it */
	uint8_t rows;           /* sequences that a forward pass takes for one of the micro-batch */
	uint8_t inputs;         /* tensors of ids, masks and labels on the card */
	bool no_labels;         /* the model gets none, and makes no loss */
	bool compares;          /* with a reference, where the plan says nothing else */
	bool completion;        /* logits are asked for of the answer alone */
	bool whole;             /* the loss calls all models itself; it gets nothing */
	bool lingers;           /* outputs keep their names through the optimizer's step and the next micro-batch */
	bool by_text;           /* each text of a sample is a pass of its own */
	bool online;            /* it learns from answers that the trained model gave */
	bool by_batch;          /* answers are given for one micro-batch at a time, all rows of it */
	bool last;              /* logits are asked for of the last token alone */
	bool rollouts;          /* fp32 scores of all answers of a step's samples stay on the card */
	uint16_t tasks;         /* it can be of, a bit each (enum oom_task); 0: any */
	const char *source;
	/* the loss, of the model's own (absent without labels) and its logits, which it consumes; NULL:
	 * the model's own it is */
	struct oom_val (*loss)(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			       struct oom_val logits);
};

const struct oom_objective *oom_objective_of(const struct oom_plan *p);
/* Whose loop runs the step. */
enum oom_loop oom_loop_of(const struct oom_plan *p);
/* Whether its loop is a Trainer's, whose optimizer has two groups of parameters. */
bool oom_two_groups(const struct oom_plan *p);
/* What the model is trained for: what the plan says, what its objective needs, the type's usual. */
enum oom_task oom_task_of(const struct oom_plan *p, const struct oom_arch *a);
/* Classes of a classification head. */
uint64_t oom_labels_of(const struct oom_plan *p, const struct oom_arch *a);
/* Rows of the embeddings: the config's, or as many as resize_token_embeddings is asked for. */
uint64_t oom_vocab_of(const struct oom_plan *p, const struct oom_arch *a);
/* The reference the plan comes to: OOM_REF_MODEL, _ADAPTER or _NONE. */
enum oom_reference oom_reference_of(const struct oom_plan *p);
/* One forward pass with everything that is called in it; the loss. */
struct oom_val oom_objective_forward(struct oom_tape *t, const struct oom_arch *a, bool train);

#endif
