/* What a card reaches of its data sheet. */
#ifndef OOM_TIME_CARDS_H
#define OOM_TIME_CARDS_H

#include <stdbool.h>

#include "oomplan/gpu.h"
#include "oomplan/plan.h"

/* Cards of one generation reach alike shares of what their data sheets say. */
struct oom_card_class {
	const char *vendor;             /* as in data/gpus.csv */
	const char *architecture;       /* the only one it is of, where makers give generations no number */
	double from;                    /* compute capability */
	bool benched;                   /* the shares are those of benchmarks of its parts, not fitted to rows */
	bool stacked;                   /* HBM, and a data sheet whose rates accumulate in fp32 at full speed */
	const char *name;
	/* large products: share of the tensor cores' peak where power does not end it, and what a
	 * watt of a board of 400 W sustains, in TFLOP/s; fused attention kernels: share of these */
	double products, per_watt, attention;
	double memory;                  /* share of the bandwidth */
	/* What a product's shape takes.  A tile of a product loads before it multiplies and stores after: as long
	 * as so many elements more of its inner size would take.  Tiles come in waves over the card's units, the
	 * last of which is filled by half on average. */
	double lead, units;
	double fp32;                    /* fp32 peak (TF32 off, torch's default) over the 16-bit one */
	double python_us, engine_us;    /* a launch from Python, from autograd's threads */
	double network;                 /* bytes per second per GPU to other nodes where nobody says */
	/* who published the complete rows that it was fitted to: 0, and it is a guess */
	int sources;
};
const struct oom_card_class *oom_card_class(const struct oom_gpu *gpu);

/* Whether the version of torch, which nobody named, decides which kernel attention is. */
bool oom_attention_by_version(const struct oom_gpu *gpu, const struct oom_plan *p);

/* Of a network's data sheet. */
#define OOM_NETWORK_REACHED 0.75
/* A card as a step meets it: flops and bytes per second, what can be reached included. */
struct oom_speed {
	const struct oom_card_class *of;
	double peak;                    /* of the data sheet, in the plan's number format */
	double products, fp32, fp32_products, attention, wide, batched, wide_batched, memory;         /* wide: on fp32 */
	double stream;                  /* bytes per second of kernels that go through whole tensors once */
	double cast_bytes;              /* of an element that products read in 8 bits */
	double python_s, engine_s;
	double pcie;                    /* to the host, one way */
	double link, network;           /* one GPU's, to its node and to others, one way */
	bool nvlink;
};
void oom_speed_of(const struct oom_gpu *gpu, const struct oom_plan *plan, struct oom_speed *out);
/* As if the card were of that class: what fits and their tests try. */
void oom_speed_as(const struct oom_card_class *c, const struct oom_gpu *gpu,
		  const struct oom_plan *plan, struct oom_speed *out);
/* Of a machine, to others: the plan's own before its card's; 0: nobody says. */
double oom_network_gbps(const struct oom_plan *plan, const struct oom_gpu *gpu);
size_t oom_card_class_count(void);
const struct oom_card_class *oom_card_class_at(size_t i);

#endif
