/* How far off a step time may be. */
#include <math.h>

#include "steptime_as.h"

/* Residuals of the published rows, all classes of cards together: for one GPU, for one node, and for several. */
double oom_step_time_interval(const struct oom_plan *p)
{
	return p->gpus <= 1 ? 1.35 : p->nodes <= 1 ? 1.38 : 1.45;
}

/* How far off a step may be, as a logarithm: what published rows of one set-up scatter by; how well
 * its class of cards is known; and each part that is a guess, by its share of the step.  The first
 * two are what rows of sources left out of a fit were off by (README.md, tests/accuracy/throughput.c
 * --cross); of the parts, those that few rows show are given twice the factor that seemed likely. */
#define SCATTER 0.19
#define OVER_NODES 0.21

/* What set-ups leave open of some models.  The published rows, of set-ups that state everything and of others, each predicted
 * by a fit without its source and each source counting once: of mixtures of experts 72 of 100 were in the interval (12
 * sources), of images 78 (6), over several nodes 83 (42), of all 88 (97).  With these they are 91, 85, 87 and 89.  Which kernels run the
 * experts, which dispatcher carries their tokens, whether graphs launch them and how even the routing is no set-up says
 * whole; and images are read and decoded by the host meanwhile. */
#define OF_EXPERTS 0.30
#define OF_IMAGES 0.15

static double unknown_kind(const struct oom_plan *p, const struct oom_eval *e)
{
	/* a dense model's weights are all met by a token */
	if ((double)e->active_params < 0.9 * (double)e->total_params)
		return OF_EXPERTS;
	return p->task == OOM_TASK_IMAGE_CLS ? OF_IMAGES : 0;
}

static double unknown_class(const struct oom_card_class *c)
{
	/* nobody's rows: a generation of a maker whose others are known (0.54, 0.66 and 2.06 came out where the only source of
	 * one was left out), by benchmarks of its parts, or another maker's cards */
	if (!c->sources)
		return !*c->vendor ? 0.80 : c->benched ? 0.40 : 0.60;
	return c->sources >= 4 ? 0.12 : c->sources == 3 ? 0.25 : c->sources == 2 ? 0.28 : 0.30;
}

/* Cards of a generation are not all alike: where fewer than four sources show a card, sources left out of a fit are off by 0.21
 * (15 cards' rows), by 0.14 where four and more do. */
#define FEW_SOURCES 4
#define UNKNOWN_CARD 0.15

/* A step for no card is an A100's. */
static double unknown_card(const struct oom_gpu *gpu)
{
	return !gpu || gpu->step_sources >= FEW_SOURCES ? 0 : UNKNOWN_CARD;
}

static double guess(const struct oom_plan *p, const struct oom_gpu *gpu, enum oom_time_part part)
{
	const bool told = oom_network_gbps(p, gpu) > 0;

	switch (part) {
	case OOM_TIME_LAUNCHES: return 0.7;             /* the processor is not known */
	case OOM_TIME_UNPACKING: return 0.4;
	/* packed samples attend to themselves alone, and how long they are nobody said: from almost nothing to all of it */
	/* of fused kernels no knob says the version: FlashAttention-2 is about twice as fast as the first on an A100
	 * (Dao 2023, arXiv:2307.08691, abstract), the third 1.5 to 2 times as fast as it on an H100 (arXiv:2407.08608); whether
	 * PyTorch's own is cuDNN's, 2.2 times as fast as older ones, goes by a version that nobody named */
	case OOM_TIME_ATTENTION: return p->packing ? 0.7 : p->attn == OOM_ATTN_EAGER ? 0 : oom_attention_by_version(gpu, p) ? 0.4 : 0.3;
	case OOM_TIME_HOST: return 0.6;                 /* nor its memory */
	case OOM_TIME_BUBBLE: return 0.25;
	case OOM_TIME_TENSOR:
	case OOM_TIME_EXPERT:
	case OOM_TIME_CONTEXT: return 0.4;
	case OOM_TIME_PIPELINE:
	case OOM_TIME_GRADIENTS: return p->nodes > 1 && !told ? 0.7 : 0.4;
	case OOM_TIME_PRODUCTS: return p->fp8 ? 0.25 : 0;
	case OOM_TIME_TRAFFIC: return p->compile ? 0.3 : 0;
	default: return 0;
	}
}

/* How far the step moves with what launching takes.  The card's own time c and launching's l are joined as
 * (c^4 + l^4)^(1/4) (steptime.c), so that l moves it by l^4 / (c^4 + l^4), which is much where both are alike and little
 * of l shows. */
static double launched(const double part[OOM_TIME_PART_COUNT], double total)
{
	const double card = part[OOM_TIME_PRODUCTS] + part[OOM_TIME_ATTENTION] + part[OOM_TIME_TRAFFIC] +
			    part[OOM_TIME_UNPACKING],
		     both = card + part[OOM_TIME_LAUNCHES], r = both > 0 ? card / both : 1;

	return (1 - r * r * r * r) * both / total;
}

/* Rows of sources left out of a fit are nearer than those of sources that nobody had looked at, as the parts of a step were mended
 * by what the former showed: 79 % of theirs are within 1.25 and 96 % within 1.5, each source counting once; of thirteen sets of rows that
 * were priced before anything was changed for them (README.md) it was 67 to 73 % and 90 to 94 %.  With 1.3 times as large
 * errors the left-out rows are at 66 and 91 %.  The interval is to hold 85 % of such, wider towards slower steps, as a slow host or
 * network and evaluations in between happen more often than what makes a step faster. */
#define SLOWER 1.4
#define QUICKER 1.2

void oom_time_interval(const struct oom_card_class *c, const struct oom_plan *p, const struct oom_eval *e,
		       const struct oom_gpu *gpu, struct oom_step_time *t)
{
	const double class = unknown_class(c), card = unknown_card(gpu), kind = unknown_kind(p, e);
	double sum = SCATTER * SCATTER + class * class + card * card + kind * kind, spread;

	if (p->nodes > 1)
		sum += OVER_NODES * OVER_NODES;
	for (int i = 0; i < OOM_TIME_PART_COUNT && t->total_s > 0; i++) {
		const double share = i == OOM_TIME_LAUNCHES ? launched(t->part_s, t->total_s) : t->part_s[i] / t->total_s,
			     u = guess(p, gpu, (enum oom_time_part)i) * share;

		sum += u * u;
	}
	spread = sqrt(sum);
	t->low_s = t->total_s * exp(-QUICKER * spread);
	t->high_s = t->total_s * exp(SLOWER * spread);
}
