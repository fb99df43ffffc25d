/* Optimizers as data: the states each keeps for a tensor, and the temporaries of its step.
 *
 * A slot says which tensors it belongs to, how many elements it has and how wide they are.  The
 * step's temporaries are played into a sink, in the order in which the library allocates them: one
 * sink counts bytes (optimizer_sums.c), another is the replayed allocator.  Scalars on the host
 * are not counted.  Sources stand in each entry. */
#include "step/optimizers.h"
#include "tape/sums.h"

#include <string.h>

#include "oomplan/engine.h"

/* ---- step temporaries ---- */

void oom_update_in_place(const struct oom_optimizer *o, const struct oom_stepped *s,
			 struct oom_sink *sink)
{
	for (size_t i = oom_next_stepped(s, SIZE_MAX); s->first && i < s->n;
	     i = oom_next_stepped(s, i))
		for (uint16_t k = 0; k < s->p[i].count; k++)
			oom_slots_make(o, &s->p[i], s->master, sink);
}

/* Of a tensor, as the parameter's own type; an fp32 master's is 4 bytes wide. */
static uint64_t like_param(const struct oom_param *p, bool master)
{
	return p->elems * (master ? 4 : oom_dtype_bytes((enum oom_dtype)p->dt));
}

/* Lists of temporaries, each as large as one state, that are all there at the end of the step. */
static void with_lists(const struct oom_optimizer *o, const struct oom_stepped *s, struct oom_sink *sink, int lists)
{
	int32_t first = -1, last = -1;

	oom_update_in_place(o, s, sink);
	for (int list = 0; list < lists; list++)
		for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i))
			for (uint16_t k = 0; k < s->p[i].count; k++) {
				last = oom_sink_take(sink, like_param(&s->p[i], s->master));
				first = first < 0 ? last : first;
			}
	for (int32_t b = first; b >= 0 && b <= last; b++)
		oom_sink_give(sink, b);
}

/* torch._foreach_sqrt(exp_avg_sqs) is a list (torch/optim/adam.py _multi_tensor_adam). */
static void foreach(const struct oom_optimizer *o, const struct oom_stepped *s,
		    struct oom_sink *sink)
{
	with_lists(o, s, sink, 1);
}

/* Adagrad: the roots of its sums, and a list of gradients times the rate (torch/optim/adagrad.py
 * _multi_tensor_adagrad without weight decay).  Adam before 2.1: the roots, and the roots plus epsilon. */
static void two_lists(const struct oom_optimizer *o, const struct oom_stepped *s,
		      struct oom_sink *sink)
{
	with_lists(o, s, sink, 2);
}

/* (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), a tensor at a time; the one before is
 * referenced until the next quotient is there (torch/optim/adam.py _single_tensor_adam). */
static void one_by_one(const struct oom_optimizer *o, const struct oom_stepped *s,
		       struct oom_sink *sink)
{
	int32_t denom = -1;

	oom_update_in_place(o, s, sink);
	for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i)) {
		const uint64_t bytes = like_param(&s->p[i], s->master);
		const int32_t root = oom_sink_take(sink, bytes), next = oom_sink_take(sink, bytes);

		oom_sink_give(sink, root);
		oom_sink_give(sink, denom);
		denom = next;
	}
	oom_sink_give(sink, denom);
}

/* The means of a matrix' columns are sums in several parts (traces of an H100: 132 MiB for 4,096 columns of a table of
 * 32,000 rows).  A stack of matrices has enough columns to fill the card without. */
static uint64_t parts_of_columns(const struct oom_param *p)
{
	const uint64_t rows = p->mid ? p->mid : p->rows;

	return p->elems == rows * p->cols ? oom_sum_bytes(rows, p->cols) : 0;
}

/* transformers' Adafactor, tensor by tensor (transformers/optimization.py step, _approx_sq_grad):
 * 16-bit gradients and weights are converted to fp32, grad^2 and grad^2 + eps stand beside the
 * previous tensor's update, which is still referenced; then the two factors and their product.  Its kernels read or
 * write 4 bytes of a 16-bit parameter 25.5 times: two conversions and the copy back 1.5 each, the weights' and the update's
 * norms 1 each, square and sum 2 each, their means 1 each, the factors' product 1, mul_ 3, div_, mul_ and neg 2 each,
 * add_ 3.  1.2 billion take 57 ms on an H100 (data/h100_steps.csv), where these bytes take 44. */
static void adafactor(const struct oom_optimizer *o, const struct oom_stepped *s,
		      struct oom_sink *sink)
{
	int32_t update = -1, grad = -1, weight = -1;

	for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i)) {
		const struct oom_param *p = &s->p[i];
		const uint64_t f = p->elems * 4, row = p->rows ? p->elems / p->cols * 4 : 0,
			       col = p->rows ? p->elems / (p->mid ? p->mid : p->rows) * 4 : 0;
		const bool wide = p->dt == OOM_F32 || s->master;
		int32_t square, sum, rows = -1, cols = -1;

		oom_sink_give(sink, grad);         /* names of the tensor before, one by one */
		grad = wide ? -1 : oom_sink_take(sink, f);
		for (uint16_t k = 0; s->first && k < p->count; k++)
			oom_slots_make(o, p, s->master, sink);
		oom_sink_give(sink, weight);
		weight = wide ? -1 : oom_sink_take(sink, f);
		square = oom_sink_take(sink, f);
		sum = oom_sink_take(sink, f);
		oom_sink_give(sink, square);
		oom_sink_give(sink, update);
		if (row) {
			const uint64_t parts = s->sum_buffers ? parts_of_columns(p) : 0;

			oom_sink_give(sink, parts ? oom_sink_take(sink, parts) : -1);
			rows = oom_sink_take(sink, row);
			cols = oom_sink_take(sink, col);
		}
		update = oom_sink_take(sink, f);
		oom_sink_give(sink, rows);
		oom_sink_give(sink, cols);
		oom_sink_give(sink, sum);
		oom_sink_give(sink, oom_sink_take(sink, f));  /* -update */
	}
	oom_sink_give(sink, update);
	oom_sink_give(sink, grad);
	oom_sink_give(sink, weight);
}

/* Roots of one matrix's preconditioners at a time: about four bf16 copies of it (a guess from their
 * formulas; a measured run would settle it). */
static void roots(const struct oom_optimizer *o, const struct oom_stepped *s, struct oom_sink *sink)
{
	oom_update_in_place(o, s, sink);
	for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i))
		if (s->p[i].rows)
			oom_sink_give(sink, oom_sink_take(sink, s->p[i].elems * 8));
}

/* Newton-Schulz on one matrix at a time: the update in the gradient's type, its 16-bit copy and the
 * next one, two squares of the shorter side; then AdamW's list for all the others
 * (torch/optim/_muon.py _zeropower_via_newtonschulz, _single_tensor_muon). */
static void newton_schulz(const struct oom_optimizer *o, const struct oom_stepped *s,
			  struct oom_sink *sink)
{
	int32_t first = -1, last = -1;

	oom_update_in_place(o, s, sink);
	for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i)) {
		const struct oom_param *p = &s->p[i];
		const uint64_t side = p->rows < p->cols ? p->rows : p->cols, own = like_param(p, s->master);
		int32_t b;

		if (!oom_hidden_matrix(p))
			continue;
		b = oom_sink_take(sink, own);
		for (int k = own > 2 * p->elems ? 0 : 1; k < 2; k++)
			oom_sink_take(sink, 2 * p->elems);
		oom_sink_take(sink, 2 * side * side);
		last = oom_sink_take(sink, 2 * side * side);
		for (; b <= last; b++)
			oom_sink_give(sink, b);
	}
	for (size_t i = oom_next_stepped(s, SIZE_MAX); i < s->n; i = oom_next_stepped(s, i))
		for (uint16_t k = 0; !oom_hidden_matrix(&s->p[i]) && k < s->p[i].count; k++) {
			last = oom_sink_take(sink, like_param(&s->p[i], s->master));
			first = first < 0 ? last : first;
		}
	for (int32_t b = first; b >= 0 && b <= last; b++)
		oom_sink_give(sink, b);
}

/* ---- the table ---- */

#define TORCH "pytorch torch/optim"
#define BNB "bitsandbytes optim/optimizer.py"

/* .slots and .n_slots from one list, which is written once. */
#define SLOTS(...) \
	.slots = {__VA_ARGS__}, .n_slots = sizeof((struct oom_slot[]){__VA_ARGS__}) / sizeof(struct oom_slot)
#define SAME {OOM_OF_ALL, OOM_PER_ELEMENT, 0, false, 0}         /* torch: zeros_like(param) */
#define FP32 {OOM_OF_ALL, OOM_PER_ELEMENT, 8, false, 0}
/* 8-bit states with an fp32 absmax per 256 elements, fp32 below 4096 elements; two code books of
 * 256 fp32 values that all tensors share come with the first that needs them (optimizer.py
 * init_state). */
#define CODE_BOOKS(of) {of, OOM_ONCE, 8, false, 256}, {of, OOM_ONCE, 8, false, 256}
#define BYTES(of, page) {of, OOM_PER_ELEMENT, 2, page, 0}
#define ABSMAX(of) {of, OOM_PER_BLOCK, 8, false, 256}
#define WIDE(of, page) {of, OOM_PER_ELEMENT, 8, page, 0}
#define TWO_IN_8BIT(large, small, page) \
	SLOTS(CODE_BOOKS(large), BYTES(large, page), BYTES(large, page), ABSMAX(large), \
	      ABSMAX(large), WIDE(small, page), WIDE(small, page))
#define ONE_IN_8BIT(page) \
	SLOTS(CODE_BOOKS(OOM_OF_LARGE), BYTES(OOM_OF_LARGE, page), ABSMAX(OOM_OF_LARGE), \
	      WIDE(OOM_OF_SMALL, page))
#define PAGED {OOM_OF_ALL, OOM_PER_ELEMENT, 8, true, 0}
/* torchao: codes, an fp32 scale for each block of k, and beside the codes the values they stand for;
 * tensors that are no whole number of blocks, or small, as the parameter.  The step is compiled into
 * kernels that need no temporary of a tensor's size (estimated: no GPU has been read). */
#define TORCHAO "torchao optim/adam.py"
#define IN_BLOCKS(half, k) {OOM_OF_BLOCKS, OOM_PER_ELEMENT, half, false, k}, {OOM_OF_BLOCKS, OOM_PER_BLOCK, 8, false, k}
#define CODES(table, k) {OOM_OF_BLOCKS, table, 8, false, k}
#define UNBLOCKED(k) {OOM_OF_NOT_BLOCKS, OOM_PER_ELEMENT, 0, false, k}, {OOM_OF_NOT_BLOCKS, OOM_PER_ELEMENT, 0, false, k}
#define ROW(which) {which, OOM_PER_ROW, 8, false, 0}
#define COLUMN(which) {which, OOM_PER_COLUMN, 8, false, 0}

static const struct oom_optimizer table[] = {
	{.choice = {"adamw", "AdamW, foreach implementation: one temporary as large as a state", "adamw_torch adam",
	  TORCH "/adamw.py", OOM_EXACT}, SLOTS(SAME, SAME), .lists = true, .update = foreach,
	 .megatron = "adam",
	 .eight_bit = "adamw-8bit-embfp32", .eight_bit_all = "adamw-8bit", .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"adamw-fused", "AdamW, fused kernel: no temporaries", "adamw_torch_fused",
	  TORCH "/adamw.py fused=True", OOM_EXACT}, SLOTS(SAME, SAME, {OOM_OF_ALL, OOM_PER_TENSOR, 8, false, 0}), .megatron = "adam",
	 .eight_bit = "adamw-8bit-embfp32", .eight_bit_all = "adamw-8bit", .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"adamw-loop", "AdamW tensor by tensor (foreach=False): temporaries of the largest", "",
	  TORCH "/adam.py _single_tensor_adam", OOM_EXACT}, SLOTS(SAME, SAME), .update = one_by_one,
	 .eight_bit = "adamw-8bit-embfp32", .eight_bit_all = "adamw-8bit", .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"adamw-8bit", "AdamW with 8-bit states in blocks of 256", "", BNB, OOM_NUMERICS},
	 TWO_IN_8BIT(OOM_OF_LARGE, OOM_OF_SMALL, false), .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"adamw-8bit-embfp32", "the same, embeddings in fp32 as HF Trainer registers them", "adamw_bnb_8bit adamw_8bit",
	  "transformers trainer.py, " BNB, OOM_NUMERICS},
	 TWO_IN_8BIT(OOM_OF_LARGE_BUT_EMBEDDINGS, OOM_OF_SMALL_AND_EMBEDDINGS, false), .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"paged-adamw-8bit", "8-bit states that page to host memory", "paged_adamw_8bit", BNB, OOM_NUMERICS},
	 TWO_IN_8BIT(OOM_OF_LARGE, OOM_OF_SMALL, true)},
	{.choice = {"paged-adamw", "fp32 states that page to host memory", "paged_adamw_32bit", BNB, OOM_PLACEMENT},
	 SLOTS(PAGED, PAGED)},
	{.choice = {"adamw-bnb32", "bitsandbytes AdamW with fp32 states", "", BNB, OOM_EXACT}, SLOTS(FP32, FP32),
	 .eight_bit = "adamw-8bit-embfp32", .eight_bit_all = "adamw-8bit", .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"adamw-4bit", "torchao AdamW with 4-bit states", "adamw_torch_4bit ao_adamw_4bit",
	  TORCHAO ", subclass_4bit.py", OOM_NUMERICS},
	 SLOTS(IN_BLOCKS(1, 128), CODES(OOM_TABLE_OF_16, 128), IN_BLOCKS(1, 128), CODES(OOM_TABLE_OF_16, 128), UNBLOCKED(128))},
	{.choice = {"adamw-torchao-8bit", "torchao AdamW with 8-bit states", "adamw_torch_8bit ao_adamw_8bit",
	  TORCHAO ", subclass_8bit.py", OOM_NUMERICS},
	 SLOTS(IN_BLOCKS(2, 256), CODES(OOM_TABLE_OF_256, 256), IN_BLOCKS(2, 256), CODES(OOM_TABLE_OF_256, 256), UNBLOCKED(256)),
	 .sharded = "adamw-4bit"},
	{.choice = {"adamw-torchao-fp8", "torchao AdamW with fp8 states", "ao_adamw_fp8",
	  TORCHAO ", subclass_fp8.py", OOM_NUMERICS},
	 SLOTS(IN_BLOCKS(2, 256), IN_BLOCKS(2, 256), UNBLOCKED(256)), .sharded = "adamw-4bit"},
	{.choice = {"adafactor", "factored second moment, no first", "adafactor",
	  "transformers optimization.py", OOM_NUMERICS},
	 SLOTS(ROW(OOM_OF_MATRICES), COLUMN(OOM_OF_MATRICES), {OOM_OF_VECTORS, OOM_PER_ELEMENT, 8, false, 0},
	       {OOM_OF_ALL, OOM_PER_TENSOR, 8, false, 0}), .moves = 25.5, .update = adafactor},
	{.choice = {"sgd", "plain SGD, no state", "sgd", TORCH "/sgd.py", OOM_NUMERICS}},
	{.choice = {"sgd-momentum", "SGD with momentum", "", TORCH "/sgd.py", OOM_NUMERICS}, SLOTS(SAME), .megatron = "sgd"},
	{.choice = {"lion", "Lion, fp32 momentum", "lion_32bit", BNB " lion.py", OOM_NUMERICS}, SLOTS(FP32)},
	{.choice = {"lion-8bit", "Lion, 8-bit momentum", "lion_8bit", BNB " lion.py", OOM_NUMERICS},
	 ONE_IN_8BIT(false)},
	{.choice = {"paged-lion-8bit", "8-bit momentum that pages to host memory", "paged_lion_8bit", BNB, OOM_NUMERICS},
	 ONE_IN_8BIT(true)},
	{.choice = {"paged-lion", "fp32 momentum that pages to host memory", "paged_lion_32bit", BNB, OOM_NUMERICS},
	 SLOTS(PAGED)},
	{.choice = {"amsgrad", "AdamW with a third buffer", "", TORCH "/adamw.py amsgrad=True", OOM_NUMERICS},
	 SLOTS(SAME, SAME, SAME), .lists = true, .update = foreach},
	{.choice = {"rmsprop", "RMSprop, one square average", "rmsprop", TORCH "/rmsprop.py", OOM_NUMERICS}, SLOTS(SAME),
	 .lists = true, .update = foreach},
	{.choice = {"adagrad", "Adagrad, one sum", "adagrad", TORCH "/adagrad.py", OOM_NUMERICS}, SLOTS(SAME), .lists = true,
	 .early = true, .update = two_lists},
	{.choice = {"adam-mini", "one second moment per row", "", "arXiv:2406.16793", OOM_NUMERICS}, SLOTS(FP32, ROW(OOM_OF_ALL))},
	{.choice = {"galore", "Adam in a rank-128 projection", "galore_adamw galore_adamw_layerwise",
	  "arXiv:2403.03507", OOM_NUMERICS},
	 SLOTS({OOM_OF_PROJECTED, OOM_LONG_BY_RANK, 8, false, 128}, {OOM_OF_PROJECTED, OOM_LONG_BY_RANK, 8, false, 128},
	       {OOM_OF_PROJECTED, OOM_SHORT_BY_RANK, 8, false, 128}, {OOM_OF_NOT_PROJECTED, OOM_PER_ELEMENT, 0, false, 128},
	       {OOM_OF_NOT_PROJECTED, OOM_PER_ELEMENT, 0, false, 128})},
	{.choice = {"apollo", "rank-256 random projection, no projector kept", "apollo_adamw",
	  "arXiv:2412.05270", OOM_NUMERICS},
	 SLOTS({OOM_OF_PROJECTED, OOM_LONG_BY_RANK, 8, false, 256}, {OOM_OF_PROJECTED, OOM_LONG_BY_RANK, 8, false, 256},
	       {OOM_OF_NOT_PROJECTED, OOM_PER_ELEMENT, 0, false, 256}, {OOM_OF_NOT_PROJECTED, OOM_PER_ELEMENT, 0, false, 256})},
	/* torch._foreach_add(exp_avg_sq_sqrt, eps) is a list beside the roots' (2.0 torch/optim/adamw.py _multi_tensor_adamw) */
	{.choice = {"adamw-two-lists", "AdamW as PyTorch 2.0's foreach implementation: two temporaries as large as a state", "",
	  TORCH "/adamw.py of 2.0; pytorch/pytorch#104898", OOM_EXACT}, SLOTS(SAME, SAME), .lists = true, .update = two_lists,
	 .eight_bit = "adamw-8bit-embfp32", .eight_bit_all = "adamw-8bit", .paged = "paged-adamw-8bit", .sharded = "adamw-torchao-8bit"},
	{.choice = {"muon", "momentum for hidden matrices, AdamW (foreach) for the rest", "muon",
	  TORCH "/_muon.py", OOM_NUMERICS},
	 SLOTS({OOM_OF_HIDDEN, OOM_PER_ELEMENT, 0, false, 0}, {OOM_OF_NOT_HIDDEN, OOM_PER_ELEMENT, 0, false, 0},
	       {OOM_OF_NOT_HIDDEN, OOM_PER_ELEMENT, 0, false, 0}), .update = newton_schulz, .megatron = "muon"},
	{.choice = {"shampoo", "two preconditioners per matrix", "", "arXiv:1802.09568", OOM_NUMERICS},
	 /* blocks of at most 8192 (a guess at the usual block size) */
	 SLOTS(FP32, {OOM_OF_MATRICES, OOM_ROWS_SQUARED, 16, false, 8192}, {OOM_OF_MATRICES, OOM_COLUMNS_SQUARED, 16, false, 8192}),
	 .update = roots},
	{.choice = {"soap", "Adam in Shampoo's eigenbasis", "", "arXiv:2409.11321", OOM_NUMERICS},
	 SLOTS(FP32, FP32, {OOM_OF_MATRICES, OOM_ROWS_SQUARED_UP_TO, 16, false, 10000},
	       {OOM_OF_MATRICES, OOM_COLUMNS_SQUARED_UP_TO, 16, false, 10000}), .update = roots},
	{.choice = {"came", "confidence-guided Adafactor", "", "arXiv:2307.02047", OOM_NUMERICS},
	 SLOTS(FP32, {OOM_OF_VECTORS, OOM_PER_ELEMENT, 8, false, 0}, ROW(OOM_OF_MATRICES), COLUMN(OOM_OF_MATRICES),
	       ROW(OOM_OF_MATRICES), COLUMN(OOM_OF_MATRICES)), .update = adafactor},
	{.choice = {"sophia", "momentum and a Hessian diagonal", "", "arXiv:2305.14342", OOM_NUMERICS}, SLOTS(SAME, SAME)},
	{.choice = {"schedule-free", "z and the second moment", "schedule_free_adamw", "arXiv:2405.15682", OOM_NUMERICS},
	 SLOTS(SAME, SAME), .lists = true, .update = foreach},
	{.choice = {"prodigy", "four buffers: two moments, s and the start", "", "arXiv:2306.06101", OOM_NUMERICS},
	 SLOTS(SAME, SAME, SAME, SAME)},
	{.choice = {"lamb", "AdamW with layer-wise rates", "", "arXiv:1904.00962", OOM_NUMERICS}, SLOTS(SAME, SAME),
	 .lists = true, .update = foreach},
	{.choice = {"lars", "SGD momentum with layer-wise rates", "", "arXiv:1708.03888", OOM_NUMERICS}, SLOTS(SAME)},
	{.choice = {"lomo", "update fused into backward: no state, gradients die at once", "lomo adalomo",
	  "arXiv:2306.09782", OOM_NUMERICS}, .in_backward = true},
	{.choice = {"none", "no optimizer step", "", "-", OOM_SCIENCE}},
};

_Static_assert(sizeof(table) / sizeof(table[0]) <= OOM_MAX_OPTIMIZERS,
	       "struct program keeps sums for each");

bool oom_optimizer_in_blocks(const struct oom_optimizer *o)
{
	for (size_t i = 0; i < o->n_slots; i++)
		if (o->slots[i].extent == OOM_PER_BLOCK)
			return true;
	return false;
}

bool oom_optimizer_by_element(const struct oom_optimizer *o)
{
	for (size_t i = 0; i < o->n_slots; i++)
		if (o->slots[i].of != OOM_OF_ALL || (o->slots[i].extent != OOM_PER_ELEMENT && o->slots[i].extent != OOM_PER_TENSOR))
			return false;
	return true;
}

bool oom_optimizer_of_whole_matrices(const struct oom_optimizer *o)
{
	for (size_t i = 0; i < o->n_slots; i++)
		switch ((enum oom_extent)o->slots[i].extent) {
		case OOM_LONG_BY_RANK: case OOM_SHORT_BY_RANK: case OOM_ROWS_SQUARED: case OOM_COLUMNS_SQUARED:
		case OOM_ROWS_SQUARED_UP_TO: case OOM_COLUMNS_SQUARED_UP_TO:
			return true;
		default: break;
		}
	return false;
}

const struct oom_optimizer *oom_optimizer_at(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? &table[i] : NULL;
}

const struct oom_choice *oom_optimizer_choice(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? &table[i].choice : NULL;
}

static int64_t named(const char *name)
{
	for (size_t i = 0; name && oom_optimizer_at(i); i++)
		if (!strcmp(table[i].choice.name, name))
			return (int64_t)i;
	return -1;
}

/* The first that has this one as a smaller form; -1: none. */
static int64_t larger(const char *name)
{
	for (size_t i = 0; oom_optimizer_at(i); i++) {
		const char *const forms[] = {table[i].eight_bit, table[i].eight_bit_all, table[i].paged, table[i].sharded};

		for (size_t k = 0; k < sizeof(forms) / sizeof(forms[0]); k++)
			if (forms[k] && !strcmp(forms[k], name))
				return (int64_t)i;
	}
	return -1;
}

struct oom_smaller_states oom_smaller_states(int64_t optimizer)
{
	const struct oom_optimizer *o = oom_optimizer_at((size_t)optimizer);
	struct oom_smaller_states s = {.quantised = named(o->eight_bit),
				       .paged = named(o->paged),
				       .sharded = named(o->sharded),
				       .least = named(o->sharded),
				       .whole = larger(o->choice.name)};

	while (s.least >= 0 && named(table[s.least].sharded) >= 0)
		s.least = named(table[s.least].sharded);
	while (s.whole >= 0 && larger(table[s.whole].choice.name) >= 0)
		s.whole = larger(table[s.whole].choice.name);
	return s;
}
