/* Shares of the data sheet, by generation, and links.
 *
 * The shares were fitted to published throughputs (README.md; tests/tools/score_throughput.py compares);
 * they take in what no data sheet names: clocks under load, tails of
 * waves, gaps between kernels.  Links are data sheets' and what nccl-tests reach of them. */
#include "cards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/units.h"
#include "step/engines.h"

#define GB 1e9

static const struct oom_card_class classes[] = {
	/* makers of whom no row was published (estimated) */
	{"", NULL, 0, false, false, "other", 0.60, 1.0, 0.45, 0.75, 96, 100, 0.125, 22, 20, 25 * GB, 0},
	/* AMD's are benchmarks of parts.  MI300X: products of a Llama 70B's shapes at 493 to 580 of 1,307 Tflop/s, and as much
	 * less of short inner sizes as 450 elements take; torch.nn.functional.linear, which autocast calls, at 420 and 288
	 * where torch.matmul has 546 and 493: what casts, copies and biases move, at 1.6 TB/s (ROCm/TransformerEngine,
	 * issues 72 and 73) */
	{"amd", NULL, 0, true, true, "CDNA", 0.47, 1.5, 0.20, 0.29, 450, 304, 0.08, 22, 20, 50 * GB, 3},
	/* MI350X, under ROCm 7: 1,104 of 2,300 Tflop/s, 901 over an inner size of 1,280, linear no slower than matmul (a
	 * public table of such shapes of January 2026); copies and fused attention as an MI300X's (Azure's benchmarking
	 * guide, ND MI300X v5: 4.1 of 5.3 TB/s).  GPTs of 30 million to 10 billion parameters
	 * then take 0.79 to 1.11 of what that table says */
	{"amd", "CDNA4", 0, true, true, "CDNA 4", 0.48, 1.5, 0.32, 0.775, 357, 256, 0.068, 22, 20, 50 * GB, 2},
	{"intel", NULL, 0, false, true, "Gaudi", 0.77, 0.965, 0.48, 0.90, 0, 0, 0.25, 22, 20, 37 * GB, 2},
	/* one source: two TITAN Xp under fp16 autocast, which have no units for it */
	{"nvidia", NULL, 3, false, false, "before Volta", 0.50, 0.06, 0.50, 0.75, 32, 56, 1, 22, 20, 3 * GB, 1},
	{"nvidia", NULL, 7, false, true, "Volta", 0.545, 1.521, 0.445, 0.946, 48, 80, 0.125, 22, 20, 3.1 * GB, 8},
	{"nvidia", NULL, 7.5, false, false, "Turing", 0.667, 0.339, 0.714, 0.935, 48, 72, 0.125, 22, 20, 3 * GB, 3},
	/* Attention: FlashAttention reaches 25 to 40 % of its peak, FlashAttention-2 50 to 73 % (Dao 2023, arXiv:2307.08691, abstract), which
	 * are 0.34 to 0.55 and 0.69 to 1.0 of what products sustain; rows say "flash" of either.  0.58 is between them, and how far the
	 * one or the other is from it is in the interval (interval.c). */
	{"nvidia", NULL, 8, false, true, "A100", 0.729, 1.528, 0.58, 0.946, 96, 108, 0.0625, 22, 20, 25 * GB, 27},
	{"nvidia", NULL, 8.6, false, false, "Ampere without HBM", 0.997, 0.295, 0.714, 0.935, 32, 84, 0.25, 22, 20, 3 * GB, 6},
	{"nvidia", NULL, 8.9, false, false, "Ada", 0.997, 0.400, 0.714, 0.944, 48, 128, 0.25, 22, 20, 3 * GB, 10},
	{"nvidia", NULL, 9, false, true, "Hopper", 0.729, 2.179, 0.281, 0.609, 128, 132, 0.067, 22, 20, 50 * GB, 26},
	{"nvidia", NULL, 10, false, true, "Blackwell", 0.700, 1.744, 0.643, 0.554, 192, 148, 0.033, 22, 20, 50 * GB, 8},
	/* Of one source, an RTX 5090 and an RTX PRO 6000 (data/throughput.csv, rp-rtx-*): 0.80 of the data sheet's tensor cores over a whole step
	 * of GPT-2, as clocks go above the 2.4 GHz that it is stated at.  Attention and memory are Ada's. */
	{"nvidia", NULL, 12, false, false, "Blackwell without HBM", 1.050, 0.640, 0.714, 0.944, 48, 170, 0.25, 22, 20, 3 * GB, 2},
};
enum { N_CLASSES = sizeof(classes) / sizeof(classes[0]), A100 = 7 };

/* A card with a compute capability is of the maker whose classes begin at one, be its maker named or not. */
static bool of_maker(const struct oom_card_class *c, const struct oom_gpu *gpu)
{
	if (c->architecture && strcmp(c->architecture, gpu->architecture))
		return false;
	return gpu->compute_capability > 0 ? c->from > 0 : !strcmp(c->vendor, gpu->vendor);
}

/* By maker, then by generation; a user's table may name neither. */
const struct oom_card_class *oom_card_class(const struct oom_gpu *gpu)
{
	const struct oom_card_class *best = &classes[0];

	if (!gpu)
		return &classes[A100];
	for (size_t i = 1; i < N_CLASSES; i++)
		if (of_maker(&classes[i], gpu) &&
		    (best == &classes[0] || gpu->compute_capability >= classes[i].from))
			best = &classes[i];
	return best;
}

size_t oom_card_class_count(void)
{
	return N_CLASSES;
}

const struct oom_card_class *oom_card_class_at(size_t i)
{
	return &classes[i];
}

/* The number before a unit: "NVLink4 900 GB/s" states both directions. */
static double stated(const char *text, const char *unit)
{
	const char *end = strstr(text, unit), *from = end;

	while (end && from > text && strchr("0123456789.", from[-1]))
		from--;
	return end && from < end ? oom_strtod(from, NULL) : 0;
}

/* A lane of generation 3 carries about 1 GB/s, each generation twice as much; 0.8 of it arrives
 * (cudaMemcpy from pinned memory: 12, 25 and 50 GB/s over sixteen). */
static double pcie(const struct oom_gpu *gpu)
{
	const char *at = gpu ? strstr(gpu->interconnect, "PCIe ") : NULL;
	const double sm = gpu ? gpu->compute_capability : 8;
	double generation = at ? oom_strtod(at + 5, NULL) : 0;

	if (!(generation >= 1 && generation <= 9))
		generation = sm >= 9 ? 5 : sm >= 8 || sm <= 0 ? 4 : 3;
	return (at && strstr(at, "x8") ? 0.5 : 1) * 12.5 * GB *
	       (double)(1 << (int)generation) / 8;
}

/* What a ring of one node's GPUs carries past each of them, one way: nccl-tests' bus bandwidth, about
 * three quarters of NVLink's (A100: 235 of 300, H100: 360 of 450 GB/s); over PCIe, where cards share
 * switches and pass through the host, under half (RTX 4090: 10 of 25). */
#define NVLINK_REACHED 0.77
#define PCIE_REACHED 0.45

static double link_of(const struct oom_gpu *gpu, double host, bool *nvlink)
{
	const double said = gpu ? stated(gpu->interconnect, " GB/s") / 2 * GB : 0;
	double link = said;

	if (!said && gpu && strstr(gpu->interconnect, "NVLink"))
		link = gpu->compute_capability >= 10 ? 900 * GB :
		       gpu->compute_capability >= 9  ? 450 * GB :
		       gpu->compute_capability >= 8  ? 300 * GB :
						       150 * GB;
	if (!gpu)
		link = 300 * GB;
	*nvlink = link > host;
	return *nvlink ? link * NVLINK_REACHED : host * PCIE_REACHED;
}

/* A card of the same units under less power clocks lower and at less voltage, and so loses less than it
 * saves: an H100 of 500 W does not do 5/7 of one of 700 W.  Power goes with the clock times the voltage
 * squared, between the clock itself and its cube; of 0.5, 0.6, 0.67, 0.8 and 1 as exponents, 0.5 and 0.6 were
 * best on sources left out (README.md). */
#define POWER_EXPONENT 0.6
#define POWER_NAMED 400                 /* watts at which per_watt is stated */

/* FLOPs per second that large products sustain: the smaller of what the units do and what the power
 * feeds; near both, less than either. */
static double sustained(const struct oom_gpu *gpu, double units, double per_watt)
{
	const double watts = gpu ? gpu->tdp_w : POWER_NAMED,
		     fed = pow(watts / POWER_NAMED, POWER_EXPONENT) * POWER_NAMED * per_watt * 1e12,
		     r = units / fed;

	return fed > 0 ? units / sqrt(sqrt(1 + r * r * r * r)) : units;
}

/* Of what products of 4,096 and 8,192 a side reach alone, those of a step do so much: the classes' 227 of an A100's 274
 * Tflop/s, 141 of an RTX 4090's 169, 65 of an A10's 78 (a public table of such loops on six cards).  An L40S, whose 249
 * are 1.7 times what its class gets of as much power, is told by this; cards of the same units that were not measured
 * alone are not. */
#define OF_ALONE 0.83

static double large_products(const struct oom_card_class *c, const struct oom_gpu *gpu, double peak)
{
	return gpu && gpu->matmul_tflops > 0 ? OF_ALONE * gpu->matmul_tflops * 1e12 :
					       sustained(gpu, c->products * peak * 1e12, c->per_watt);
}

/* Products in fp32 come close to the peak of their units (an A100: BERT at 16 of 19.5 Tflop/s) but where power ends them
 * first: steps of an L40S and an MI325X, whose data sheets say 92 and 163, come to 25 and 45 (milabench, config/scaling). */
#define FP32_UNITS 0.85
#define FP32_PER_WATT 0.12

/* Nor do a step's do better than large ones alone did (fp32 of zzc0721/torch-performance-test-data, database.md, of 1,024 to 10,240 a
 * side): 4.35 Tflop/s of a T4, whose 70 W hold its clocks down, and 25 of an RTX 3090, for the 6.9 and 29 of what is above. */
static double large_fp32_products(const struct oom_gpu *gpu, double peak)
{
	const double reached = sustained(gpu, peak * 1e12 * FP32_UNITS, FP32_PER_WATT),
		     alone = gpu ? gpu->fp32_matmul_tflops * 1e12 : 0;

	return alone > 0 && alone < reached ? alone : reached;
}

/* How much faster products are in fewer bits, and what casting an element that they read takes: row-wise and later
 * recipes with the casts in it, from end-to-end effects (row-wise 0.92 to 1.05; Megatron-Bridge MXFP8 1.16, NVFP4 1.04 over
 * that). Tensor-wise on Hopper they are 1.8 times as fast, and each element is read in 16 bits and written in 8, for two products
 * in two orders: 4 bytes, less where torch.compile casts within other kernels. So the gain grows with a layer's width:
 * torchtitan publishes 1.28 for 8B and 1.62 for 405B, llm-foundry 1.35, NVIDIA's DGX Cloud 1.3. */
static const struct narrower {
	double times, cast;
} narrower[] = {
	[OOM_FP8_NONE] = {1, 0}, [OOM_FP8_TENSORWISE] = {1.8, 4}, [OOM_FP8_ROWWISE] = {1.05, 0},
	[OOM_FP8_BLOCKWISE] = {1.3, 0}, [OOM_FP8_MXFP8] = {1.35, 0}, [OOM_FP8_NVFP4] = {1.5, 0},
};

/* The same of TransformerEngine's products from Blackwell on, whose formats are the units' own and where power
 * ends 16-bit products first: half of the rows of Megatron-Bridge's performance summaries (26.02 to 26.06), the
 * other half of which they hold on (README.md). */
#define TE_NARROW_FROM 10
static const struct narrower te_narrower[] = {
	[OOM_FP8_NONE] = {1, 0}, [OOM_FP8_TENSORWISE] = {2.0, 0}, [OOM_FP8_ROWWISE] = {1.8, 0},
	[OOM_FP8_BLOCKWISE] = {1.8, 0}, [OOM_FP8_MXFP8] = {1.8, 0}, [OOM_FP8_NVFP4] = {3.0, 0},
};

/* From Hopper on cuDNN's attention, which TransformerEngine calls, leaves PyTorch's behind: on an H100
 * flash-attention 2 reaches 335 TFLOP/s forward and backward and 35 % of the peak, kernels made for the
 * card 550 to 740 (Dao 2023, arXiv:2307.08691, section 4.1; Shah et al. 2024, arXiv:2407.08608, figures 5
 * and 6).  The classes' shares are of older kernels still, ALiBi's among them. */
#define TE_FROM 9
#define TE_ATTENTION 2.2

/* AMD's TransformerEngine leaves PyTorch's kernels of the time behind as well: its attention is composable_kernel's and
 * AITER's assembly (NVTE_FUSED_ATTN_CK, NVTE_CK_USES_BWD_V3), it casts in kernels of its own and not under autocast, and what
 * is left moves at what copies do, 4.1 of an MI300X's 5.3 TB/s (Azure's benchmarking guide, ND MI300X v5).  The factors are
 * those of NVIDIA's newest cards; Llama 2 70B's LoRA on eight MI300X and MI325X goes with them from 0.58 and 0.49 of what is
 * published to 0.96 and 0.82, and four rows of MI350X and MI355X, which nothing was chosen by, from 0.54-0.61 to 0.74-0.87
 * (mlcommons/training_results v5.0 and v5.1, AMD/benchmarks). */
#define TE_MEMORY_AMD 0.775

static bool te_of_amd(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	return gpu && !strcmp(gpu->vendor, "amd") && oom_engine_core_layers(p);
}

/* PyTorch's own attention puts it first as well, on a Hopper and a Blackwell of data centres (aten, native/transformers/
 * cuda/sdp_utils.cpp, check_prefer_cudnn_attention: in 2.13 and 2.14, not in 2.9), and did so under 2.11: 440 Tflop/s forward
 * and backward over 16,384 and 32,768 tokens of a 1B on an H100 (data/h100_steps.csv), where published rows, of older
 * versions, have 160 to 200.  So a run whose version nobody names is taken for one of those. */
#define CUDNN_SINCE OOM_VERSION(2, 11)

static int64_t torch_of(const struct oom_plan *p)
{
	return p->torch ? p->torch : p->torch_named;
}

static bool has_cudnn(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	const double sm = gpu ? gpu->compute_capability : 0;

	return p->attn == OOM_ATTN_SDPA && p->precision != OOM_FP32 && (sm == 9 || sm == 10) && !oom_engine_core_layers(p);
}

bool oom_attention_by_version(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	return has_cudnn(gpu, p) && !torch_of(p);
}

static bool cudnn_attention(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	if (oom_engine_core_layers(p))
		return p->attn != OOM_ATTN_EAGER && gpu && (gpu->compute_capability >= TE_FROM || te_of_amd(gpu, p));
	return has_cudnn(gpu, p) && torch_of(p) >= CUDNN_SINCE;
}

/* Batched products outside of a fused kernel, as a share of large products with weights: heads are 64 to
 * 128 wide, so that the units wait for scores to be written.  One number for all classes, fitted as
 * their shares are (0.08 to 0.40 were tried; README.md). */
#define BATCHED 0.13
/* The same on fp32, whose units are slower and scores twice as large (BERT on a V100 of 16 GB, an RTX 8000 and a V100 of
 * 32 GB in data/throughput.csv; 0.13 to 0.45 were tried). */
#define WIDE_BATCHED 0.2
/* Megatron-core's own, under a fused softmax: fitted to the rows of one GPU of the only source that shows it, and
 * held on its rows of two (data/throughput.csv, mli-006 to 012). */
#define CORE_BATCHED 3.0

/* Fused attention on fp32, which is PyTorch's memory-efficient kernel, as a share of the fp32 units: BERT of 512 tokens on an
 * H100 leaves it 0.3 and on an A100 more (milabench, config/scaling and README.md).  Deterministic algorithms halve it: 40
 * layers of Llama 2 13B over two sequences of 8,192 take 33 s more in fp32 than in 16 bit on an H100 and 78 s more on an
 * A100 (universal-llm-trainer, docs/gpu_test.md: LoRA and QLoRA without autocast), 0.15 and 0.19. */
#define WIDE_ATTENTION 0.35

/* Updates of weights and states, which go through large tensors once, reach more of the bandwidth than kernels within layers, whose
 * share takes in what lies between them: AdamW 2.2 to 2.7 of an H100's 3.35 TB/s in bf16 and fp32, SGD 2.6 (data/h100_steps.csv), lists
 * of tensors 6.9 of a B200's 8 (stas00/ml-engineering, training/performance/README.md). */
#define STREAMED 0.85

void oom_speed_of(const struct oom_gpu *gpu, const struct oom_plan *p, struct oom_speed *s)
{
	oom_speed_as(oom_card_class(gpu), gpu, p, s);
}

double oom_network_gbps(const struct oom_plan *p, const struct oom_gpu *gpu)
{
	return p->network_gbps > 0 ? (double)p->network_gbps : gpu ? gpu->network_gbps : 0;
}

static bool in_bf16(const struct oom_plan *p)
{
	return p->precision == OOM_BF16 || p->precision == OOM_AMP_BF16 || p->precision == OOM_BF16_AMP;
}

void oom_speed_as(const struct oom_card_class *c, const struct oom_gpu *gpu,
		  const struct oom_plan *p, struct oom_speed *s)
{
	double peak = 312, network = c->network, tf32 = 0, fp32, bandwidth;
	const struct narrower *bits;

	s->of = c;
	if (gpu) {
		peak = oom_plan_fp16(p) ? gpu->fp16_tflops : gpu->bf16_tflops;
		if (peak <= 0)
			peak = gpu->bf16_tflops > 0 ? gpu->bf16_tflops : gpu->fp16_tflops;
		if (peak <= 0)
			peak = 10;
		tf32 = p->tf32 && gpu->tf32_tflops > 0 ? gpu->tf32_tflops : 0;
	}
	s->products = large_products(c, gpu, peak);
	/* on the other units, which come close to their own, lower peak */
	fp32 = gpu && gpu->fp32_tflops > 0 ? gpu->fp32_tflops : peak * c->fp32;
	s->fp32 = large_fp32_products(gpu, fp32);
	/* TF32 on the tensor cores, which take twice as long for an element of it and as much power meanwhile */
	s->fp32_products = tf32 > 0 ? sustained(gpu, c->products * tf32 * 1e12, c->per_watt / 2) : s->fp32;
	s->peak = (p->precision != OOM_FP32 ? peak : s->fp32_products > s->fp32 ? tf32 : fp32) * 1e12;
	s->wide = s->fp32 * WIDE_ATTENTION;
	s->attention = p->precision == OOM_FP32 ? s->wide : s->products * c->attention;
	s->wide_batched = s->fp32_products > s->fp32 ? s->fp32_products * BATCHED : s->fp32 * WIDE_BATCHED;
	s->batched = p->precision == OOM_FP32 ? s->wide_batched : s->products * BATCHED;
	/* before Ampere there are no bf16 tensor cores: products run in fp32
	 * (torch/cuda/__init__.py, is_bf16_supported with including_emulation) */
	if (in_bf16(p) && gpu && gpu->compute_capability > 0 && gpu->compute_capability < 8) {
		s->products = s->fp32;
		s->attention = s->fp32 * c->attention;
		s->batched = s->wide_batched;
	}
	if (oom_engine_core_layers(p))
		s->batched *= CORE_BATCHED;
	if (cudnn_attention(gpu, p))
		s->attention *= TE_ATTENTION;
	bits = oom_engine_of(p)->core_layers && (c->from >= TE_NARROW_FROM || te_of_amd(gpu, p)) ? &te_narrower[p->fp8] :
													    &narrower[p->fp8];
	s->products *= bits->times;
	s->cast_bytes = bits->cast;
	bandwidth = (gpu && gpu->bandwidth_gb_s > 0 ? gpu->bandwidth_gb_s : 1555) * GB;
	s->memory = bandwidth * (te_of_amd(gpu, p) ? TE_MEMORY_AMD : c->memory);
	s->stream = bandwidth * STREAMED;
	s->python_s = c->python_us * 1e-6;
	s->engine_s = c->engine_us * 1e-6;
	s->pcie = pcie(gpu);
	s->link = link_of(gpu, s->pcie, &s->nvlink);
	if (oom_network_gbps(p, gpu) > 0) {
		/* a machine's, which its GPUs share */
		const double each = p->gpus > p->nodes ? (double)p->gpus / (double)p->nodes : 1;

		network = oom_network_gbps(p, gpu) / 8 * GB / each;
	}
	s->network = network * OOM_NETWORK_REACHED;
	if (s->network > s->link)
		s->network = s->link;
}
