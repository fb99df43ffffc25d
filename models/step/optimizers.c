/* Optimizers: the state each keeps for a tensor and the temporaries of its step.
 *
 * Unit: bytes, one tensor at a time; `rounded` collects allocator blocks (multiples of 512).  Not
 * counted: scalars on the host.  Sources stand in each entry. */
#include "optimizers.h"

#include <string.h>

static uint64_t block(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

static uint64_t put(uint64_t bytes, uint64_t *rounded)
{
	*rounded += block(bytes);
	return bytes;
}

/* k states in the parameter's own type (torch.optim: zeros_like(param)). */
static uint64_t same(const struct oom_param *p, uint64_t *r, int k)
{
	uint64_t sum = 0;

	for (int i = 0; i < k; i++)
		sum += put(p->elems * oom_dtype_bytes((enum oom_dtype)p->dt), r);
	return sum;
}

static uint64_t fp32(const struct oom_param *p, uint64_t *r, int k)
{
	uint64_t sum = 0;

	for (int i = 0; i < k; i++)
		sum += put(p->elems * 4, r);
	return sum;
}

static bool in_eight_bits(const struct oom_param *p, bool emb32)
{
	return p->elems >= 4096 && !(emb32 && p->flags & OOM_P_EMBEDDING);
}

/* bitsandbytes: 8-bit states with an fp32 absmax per 256 elements from 4096 elements on; fp32
 * below; paged states of 100 000 elements and more live in managed memory, their absmax on the
 * device (bitsandbytes/optim/optimizer.py). */
static uint64_t eight_bit(const struct oom_param *p, uint64_t *r, int k, bool paged, bool emb32)
{
	uint64_t sum = 0;
	const bool off = paged && p->elems >= OOM_PAGED_FROM;

	if (!in_eight_bits(p, emb32))
		return off ? 0 : fp32(p, r, k);
	for (int i = 0; i < k; i++) {
		if (!off)
			sum += put(p->elems, r);
		sum += put((p->elems + 255) / 256 * 4, r);
	}
	return sum;
}

static uint64_t st_none(const struct oom_param *p, uint64_t *r) { (void)p; (void)r; return 0; }
static uint64_t st_same1(const struct oom_param *p, uint64_t *r) { return same(p, r, 1); }
static uint64_t st_same2(const struct oom_param *p, uint64_t *r) { return same(p, r, 2); }
static uint64_t st_same3(const struct oom_param *p, uint64_t *r) { return same(p, r, 3); }
static uint64_t st_same4(const struct oom_param *p, uint64_t *r) { return same(p, r, 4); }
static uint64_t st_fused(const struct oom_param *p, uint64_t *r)
{
	return same(p, r, 2) + put(4, r);
}
static uint64_t st_fp32_1(const struct oom_param *p, uint64_t *r) { return fp32(p, r, 1); }
static uint64_t st_fp32_2(const struct oom_param *p, uint64_t *r) { return fp32(p, r, 2); }
static uint64_t st_8bit(const struct oom_param *p, uint64_t *r)
{
	return eight_bit(p, r, 2, false, false);
}
static uint64_t st_8bit_emb(const struct oom_param *p, uint64_t *r)
{
	return eight_bit(p, r, 2, false, true);
}
static uint64_t st_paged(const struct oom_param *p, uint64_t *r)
{
	return eight_bit(p, r, 2, true, false);
}
static uint64_t st_lion8(const struct oom_param *p, uint64_t *r)
{
	return eight_bit(p, r, 1, false, false);
}
static uint64_t st_paged32(const struct oom_param *p, uint64_t *r)
{
	return p->elems >= OOM_PAGED_FROM ? 0 : fp32(p, r, 2);
}
static uint64_t st_paged_lion8(const struct oom_param *p, uint64_t *r)
{
	return eight_bit(p, r, 1, true, false);
}
static uint64_t st_paged_lion32(const struct oom_param *p, uint64_t *r)
{
	return p->elems >= OOM_PAGED_FROM ? 0 : fp32(p, r, 1);
}

/* Row and column moments of a matrix, a full one of a vector; the update's RMS is a device
 * scalar. */
static uint64_t st_adafactor(const struct oom_param *p, uint64_t *r)
{
	if (!p->rows)
		return put(p->elems * 4, r) + put(4, r);
	return put(p->elems / p->cols * 4, r) + put(p->elems / (p->mid ? p->mid : p->rows) * 4, r) +
	       put(4, r);
}

/* CAME: momentum and two factored pairs (arXiv:2307.02047). */
static uint64_t st_came(const struct oom_param *p, uint64_t *r)
{
	uint64_t sum = put(p->elems * 4, r);

	if (!p->rows)
		return sum + put(p->elems * 4, r);
	for (int i = 0; i < 2; i++)
		sum += put(p->elems / p->cols * 4, r) + put(p->elems / p->rows * 4, r);
	return sum;
}

/* Adam-mini: one momentum element each, one second moment per row (arXiv:2406.16793). */
static uint64_t st_mini(const struct oom_param *p, uint64_t *r)
{
	return put(p->elems * 4, r) + put((p->rows ? p->rows : 1) * 4, r);
}

/* GaLore, rank 128: moments in the projected space and the projector (arXiv:2403.03507). */
static uint64_t galore(const struct oom_param *p, uint64_t *r, uint64_t rank, bool projector)
{
	const uint64_t m = p->rows < p->cols ? p->rows : p->cols,
		       n = p->rows < p->cols ? p->cols : p->rows;

	if (!p->rows || !(p->flags & OOM_P_LINEAR) || p->flags & OOM_P_HEAD || m <= rank)
		return same(p, r, 2);
	return put(rank * n * 4, r) + put(rank * n * 4, r) + (projector ? put(m * rank * 4, r) : 0);
}
static uint64_t st_galore(const struct oom_param *p, uint64_t *r)
{
	return galore(p, r, 128, true);
}
static uint64_t st_apollo(const struct oom_param *p, uint64_t *r)
{
	return galore(p, r, 256, false);
}

/* Muon keeps momentum for hidden matrices; embeddings, head and vectors stay with AdamW. */
static uint64_t st_muon(const struct oom_param *p, uint64_t *r)
{
	return p->rows && p->flags & OOM_P_LINEAR && !(p->flags & OOM_P_HEAD) ? same(p, r, 1) :
										same(p, r, 2);
}

/* Shampoo: two preconditioners and their inverse roots a matrix, plus momentum; blocks of at most
 * 8192 (a guess at the usual block size).  SOAP: moments plus L, R and their eigenvectors
 * (arXiv:2409.11321), sides above 10 000 skipped. */
static uint64_t st_shampoo(const struct oom_param *p, uint64_t *r)
{
	uint64_t sum = fp32(p, r, 1), m = p->rows, n = p->cols;

	if (!m)
		return sum;
	m = m < 8192 ? m : 8192;
	n = n < 8192 ? n : 8192;
	return sum + put(m * m * 8, r) + put(n * n * 8, r);
}
static uint64_t st_soap(const struct oom_param *p, uint64_t *r)
{
	uint64_t sum = fp32(p, r, 2);

	if (p->rows && p->rows <= 10000)
		sum += put((uint64_t)p->rows * p->rows * 8, r);
	if (p->rows && p->cols <= 10000)
		sum += put((uint64_t)p->cols * p->cols * 8, r);
	return sum;
}
/* torchao 4-bit Adam: two 4-bit states, an fp32 scale per 128 elements; vectors below 4096
 * elements stay fp32. */
static uint64_t st_4bit(const struct oom_param *p, uint64_t *r)
{
	if (p->elems < 4096)
		return fp32(p, r, 2);
	return put(p->elems / 2, r) + put(p->elems / 2, r) + put(p->elems / 128 * 4, r) +
	       put(p->elems / 128 * 4, r);
}

/* ---- step temporaries ---- */

static void t_none(const struct oom_param *p, size_t n, uint64_t state, uint64_t out[2])
{
	(void)p; (void)n; (void)state;
	out[0] = out[1] = 0;
}

/* torch.optim skips parameters whose .grad is None. */
static bool stepped(const struct oom_param *p)
{
	return p->trainable && p->grad >= 0;
}

/* foreach AdamW: torch._foreach_sqrt(exp_avg_sqs) is a list as large as one state
 * (torch/optim/adam.py). */
static void t_foreach(const struct oom_param *p, size_t n, uint64_t state, uint64_t out[2])
{
	uint64_t one = 0;

	(void)state;
	for (size_t i = 0; i < n; i++)
		if (stepped(&p[i]))
			one += block(p[i].elems * oom_dtype_bytes((enum oom_dtype)p[i].dt)) *
			       p[i].count;
	out[0] = out[1] = one;
}

/* Norms without a bias (RMS norms) are registered after a layer's other modules, whenever they
 * run: the tensor stepped before the next matrix is the matrix before (modeling_llama.py). */
static bool registered_later(const struct oom_param *p, size_t i, size_t n)
{
	return p[i].flags & OOM_P_NORM && p[i].in_layer && i && p[i - 1].in_layer &&
	       !(p[i - 1].flags & OOM_P_NORM) && (i + 1 == n || !(p[i + 1].flags & OOM_P_NORM));
}

/* transformers' Adafactor: per tensor an fp32 gradient and an fp32 weight (16-bit ones are
 * converted), grad^2 and grad^2 + eps, while the previous tensor's update is still referenced; of
 * a matrix then grad^2 + eps, the two factors and their product (transformers/optimization.py
 * step, _approx_sq_grad).  A convolution's factors are many: its last two dimensions are short. */
static void t_adafactor(const struct oom_param *p, size_t n, uint64_t state, uint64_t out[2])
{
	uint64_t prev = 0, best = 0, held = 0, first = 0, now;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		const uint64_t f = block(p[i].elems * 4), copies = p[i].dt == OOM_F32 ? 2 : 4;
		uint64_t factors = 0;

		if (!stepped(&p[i]))
			continue;
		if (p[i].rows)
			factors = block(p[i].elems / p[i].cols * 4) +
				  block(p[i].elems / (p[i].mid ? p[i].mid : p[i].rows) * 4);
		now = (prev > factors ? prev : factors) + copies * f;
		best = now > best ? now : best;
		/* in the first step the states of later tensors do not exist yet */
		for (uint16_t k = 0; k < p[i].count; k++)
			st_adafactor(&p[i], &held);
		first = held + now > first ? held + now : first;
		if (!registered_later(p, i, n))
			prev = f;
	}
	out[0] = first > held ? first - held : 0;
	out[1] = best;
}

/* Newton-Schulz on one matrix at a time: about four bf16 copies of the largest (formulas: a
 * guess). */
static void t_muon(const struct oom_param *p, size_t n, uint64_t state, uint64_t out[2])
{
	uint64_t best = 0;

	(void)state;
	for (size_t i = 0; i < n; i++)
		if (stepped(&p[i]) && p[i].rows && p[i].elems * 8 > best)
			best = p[i].elems * 8;
	out[0] = out[1] = best;
}

#define TORCH "pytorch torch/optim"
#define BNB "bitsandbytes optim/optimizer.py"
static const struct oom_optimizer table[] = {
	{{"adamw", "AdamW, foreach implementation: one temporary as large as a state", TORCH "/adamw.py", OOM_EXACT},
	 "adamw_torch", st_same2, t_foreach, 2, 0},
	{{"adamw-fused", "AdamW, fused kernel: no temporaries", TORCH "/adamw.py fused=True", OOM_EXACT},
	 "adamw_torch_fused", st_fused, t_none, 2, 0},
	{{"adamw-8bit", "AdamW with 8-bit states in blocks of 256", BNB, OOM_NUMERICS}, "adamw_bnb_8bit", st_8bit, t_none, 2, 0},
	{{"adamw-8bit-embfp32", "the same, embeddings in fp32 as HF Trainer registers them", "transformers trainer.py, " BNB,
	  OOM_NUMERICS}, "adamw_bnb_8bit", st_8bit_emb, t_none, 2, 0},
	{{"paged-adamw-8bit", "8-bit states that page to host memory", BNB, OOM_NUMERICS}, "paged_adamw_8bit", st_paged, t_none, 2, 2},
	{{"paged-adamw", "fp32 states that page to host memory", BNB, OOM_PLACEMENT}, "paged_adamw_32bit", st_paged32, t_none, 2, 8},
	{{"adamw-bnb32", "bitsandbytes AdamW with fp32 states", BNB, OOM_EXACT}, "adamw_bnb", st_fp32_2, t_none, 2, 0},
	{{"adamw-4bit", "torchao AdamW with 4-bit states", "torchao optim README", OOM_NUMERICS}, "adamw_torch_4bit", st_4bit,
	 t_none, 2, 0},
	{{"adafactor", "factored second moment, no first", "transformers optimization.py", OOM_NUMERICS}, "adafactor",
	 st_adafactor, t_adafactor, 2, 0},
	{{"sgd", "plain SGD, no state", TORCH "/sgd.py", OOM_NUMERICS}, "sgd", st_none, t_none, 0, 0},
	{{"sgd-momentum", "SGD with momentum", TORCH "/sgd.py", OOM_NUMERICS}, "sgd", st_same1, t_none, 1, 0},
	{{"lion", "Lion, fp32 momentum", BNB " lion.py", OOM_NUMERICS}, "lion_32bit", st_fp32_1, t_none, 1, 0},
	{{"lion-8bit", "Lion, 8-bit momentum", BNB " lion.py", OOM_NUMERICS}, "lion_8bit", st_lion8, t_none, 1, 0},
	{{"paged-lion-8bit", "8-bit momentum that pages to host memory", BNB, OOM_NUMERICS}, "paged_lion_8bit", st_paged_lion8,
	 t_none, 1, 1},
	{{"paged-lion", "fp32 momentum that pages to host memory", BNB, OOM_NUMERICS}, "paged_lion_32bit", st_paged_lion32,
	 t_none, 1, 4},
	{{"amsgrad", "AdamW with a third buffer", TORCH "/adamw.py amsgrad=True", OOM_NUMERICS}, "", st_same3, t_foreach, 3, 0},
	{{"rmsprop", "RMSprop, one square average", TORCH "/rmsprop.py", OOM_NUMERICS}, "rmsprop", st_same1, t_foreach, 1, 0},
	{{"adagrad", "Adagrad, one sum", TORCH "/adagrad.py", OOM_NUMERICS}, "adagrad", st_same1, t_foreach, 1, 0},
	{{"adam-mini", "one second moment a row", "arXiv:2406.16793", OOM_NUMERICS}, "", st_mini, t_none, 2, 0},
	{{"galore", "Adam in a rank-128 projection", "arXiv:2403.03507", OOM_NUMERICS}, "galore_adamw", st_galore, t_none, 3, 0},
	{{"apollo", "rank-256 random projection, no projector kept", "arXiv:2412.05270", OOM_NUMERICS}, "apollo_adamw", st_apollo,
	 t_none, 2, 0},
	{{"muon", "momentum for hidden matrices, AdamW for the rest", "KellerJordan/Muon", OOM_NUMERICS}, "", st_muon, t_muon, 2, 0},
	{{"shampoo", "two preconditioners a matrix", "arXiv:1802.09568", OOM_NUMERICS}, "", st_shampoo, t_muon, 3, 0},
	{{"soap", "Adam in Shampoo's eigenbasis", "arXiv:2409.11321", OOM_NUMERICS}, "", st_soap, t_muon, 4, 0},
	{{"came", "confidence-guided Adafactor", "arXiv:2307.02047", OOM_NUMERICS}, "", st_came, t_adafactor, 5, 0},
	{{"sophia", "momentum and a Hessian diagonal", "arXiv:2305.14342", OOM_NUMERICS}, "", st_same2, t_none, 2, 0},
	{{"schedule-free", "z and the second moment", "arXiv:2405.15682", OOM_NUMERICS}, "schedule_free_adamw", st_same2, t_foreach,
	 2, 0},
	{{"prodigy", "four buffers: two moments, s and the start", "arXiv:2306.06101", OOM_NUMERICS}, "", st_same4, t_none, 4, 0},
	{{"lamb", "AdamW with layer-wise rates", "arXiv:1904.00962", OOM_NUMERICS}, "", st_same2, t_foreach, 2, 0},
	{{"lars", "SGD momentum with layer-wise rates", "arXiv:1708.03888", OOM_NUMERICS}, "", st_same1, t_none, 1, 0},
	{{"lomo", "update fused into backward: no state, gradients die at once", "arXiv:2306.09782", OOM_NUMERICS}, "lomo", st_none,
	 t_none, 0, 0},
	{{"none", "no optimizer step", "-", OOM_SCIENCE}, "", st_none, t_none, 0, 0},
};

_Static_assert(sizeof(table) / sizeof(table[0]) <= OOM_MAX_OPTIMIZERS,
	       "struct program keeps sums for each");

const struct oom_optimizer *oom_optimizer_at(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? &table[i] : NULL;
}

const struct oom_choice *oom_optimizer_choice(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? &table[i].choice : NULL;
}

bool oom_optimizer_quantises(const struct oom_optimizer *o, const struct oom_param *p)
{
	return strstr(o->choice.name, "8bit") && in_eight_bits(p, o->state == st_8bit_emb);
}
