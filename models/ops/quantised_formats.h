/* The formats of weights in few bits: a row each. */
#ifndef OOMPLAN_OPS_QUANTISED_FORMATS_H
#define OOMPLAN_OPS_QUANTISED_FORMATS_H

#include "ops.h"

/* n elements of a weight, which form so many groups; twice: their scales are quantised themselves */
struct oom_packed {
	uint64_t n, groups;
	bool twice;
};

struct oom_quantised_format {
	size_t (*blocks)(const struct oom_packed *w, uint64_t block[OOM_QUANTISED_BLOCKS]);
	uint32_t group;         /* elements of a row that share a scale, unless the checkpoint says; 0: it has no say */
	/* buffers beside the weight; may be NULL */
	void (*beside)(struct oom_tape *t, uint64_t out, uint64_t in);
	/* what comes before a weight is dequantised; may be NULL */
	void (*scales)(struct oom_tape *t, uint64_t n);
	struct oom_val (*product)(struct oom_tape *t, const char *name, int32_t node,
				  struct oom_val x, struct oom_val bias, uint64_t in,
				  struct oom_dim out);
	const char *node;
	bool casts;             /* what comes in is cast to one type */
	/* NULL: that of to */
	enum oom_dtype (*to_of)(const struct oom_plan *plan);
	enum oom_dtype to;
	uint8_t temps;          /* more tensors of the weight's size while it is dequantised */
	/* how long it takes to make a weight whole, in NF4's times; 0: its products read the codes */
	double unpacks;
	bool made_on_card;      /* of weights that are loaded in 16 bit, one after the other */
	bool repeats;           /* backward repeats the weight for every sequence of the batch */
	bool head;              /* the head is stored so, too */
	bool buffers;           /* its modules register what they hold as buffers, which no engine divides; not as parameters */
	uint8_t tables;         /* of words, in the type of the model, that are held beside the one in use */
	bool through_fp16;      /* dequantised to fp16, which is what was quantised, before it is cast to the type of the product */
	enum oom_lora_over over;
};

/* The format of a base; NULL: its weights are whole. */
const struct oom_quantised_format *oom_quantised_format(enum oom_base base);

#endif
