/* T5's attention before and after it went through transformers' attention interface: peaks of second steps, emulated
 * (torch 2.14.1, every allocation with CUDA's sizes; transformers 5.12.1, and the same with the modeling files and
 * integrations/sdpa_attention.py of 5.17.0 in their place).  SDPA's bias has rows that do not lie together, which the emulation
 * was told to refuse for fused kernels; data/h100.csv has steps of a real card (t5-bf16-sdpa and the like). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "oomplan/option.h"
#include "priced.h"

/* T5Config's own sizes, so many layers a side */
#define T5(layers) "{\"model_type\":\"t5\",\"num_layers\":" #layers ",\"num_decoder_layers\":" #layers ",\"vocab_size\":32128,\"d_model\":512,\"d_kv\":64," \
	   "\"d_ff\":2048,\"num_heads\":8,\"relative_attention_num_buckets\":32,\"dropout_rate\":0.1}"

struct step {
	int precision, attn, padding, ckpt;
	int64_t batch, source, target;
	int fused;              /* AdamW, or else SGD */
	uint64_t forward, backward;
};

/* Under checkpoints the zeros that cross-attention adds to its scores ask for a gradient, as large as they are: with one sample
 * to a batch 2 to 4 % of the peak. */
static const struct step before[] = {
	{OOM_BF16, OOM_ATTN_EAGER, 0, 1, 1, 512, 512, 0, 165841920, 208975872},
	{OOM_BF16, OOM_ATTN_EAGER, 0, 1, 3, 512, 512, 0, 326831104, 423955456},
	{OOM_BF16, OOM_ATTN_EAGER, 1, 1, 1, 512, 512, 0, 171088896, 214222848},
	{OOM_AMP_BF16, OOM_ATTN_EAGER, 0, 1, 3, 512, 512, 0, 712201216, 760567296},
};

static const struct step after[] = {
	{OOM_BF16, OOM_ATTN_EAGER, 0, 0, 3, 200, 96, 1, 377258496, 395469312},
	{OOM_AMP_BF16, OOM_ATTN_EAGER, 1, 0, 3, 200, 96, 1, 742580736, 758678528},
	{OOM_BF16, OOM_ATTN_EAGER, 1, 1, 3, 200, 96, 1, 277923840, 342007296},
	{OOM_BF16, OOM_ATTN_SDPA, 0, 0, 3, 200, 96, 1, 393721344, 411932160},
	{OOM_AMP_BF16, OOM_ATTN_SDPA, 1, 0, 3, 200, 96, 1, 751210496, 767308288},
	{OOM_BF16, OOM_ATTN_SDPA, 1, 1, 3, 200, 96, 1, 277700608, 342007296},
	{OOM_BF16, OOM_ATTN_EAGER, 0, 1, 1, 512, 512, 0, 165841920, 201377792},
	{OOM_BF16, OOM_ATTN_EAGER, 0, 1, 3, 512, 512, 0, 318442496, 415566848},
	{OOM_BF16, OOM_ATTN_EAGER, 1, 1, 1, 512, 512, 0, 166894592, 201906176},
	{OOM_AMP_BF16, OOM_ATTN_EAGER, 0, 1, 3, 512, 512, 0, 695424000, 743790080},
	{OOM_BF16, OOM_ATTN_SDPA, 0, 1, 3, 512, 512, 0, 316869632, 413993984},
	{OOM_BF16, OOM_ATTN_SDPA, 1, 1, 1, 512, 512, 0, 166108160, 205832704},
	{OOM_AMP_BF16, OOM_ATTN_SDPA, 0, 1, 3, 512, 512, 0, 692278272, 740644352},
};

/* One sample of many tokens: the peak is the bias's own derivative, at the end of the encoder's backward pass.  Its gradient is
 * permuted and copied, the first layer still has that of its scores, and the zeros of cross-attention live as long as the graph. */
static const struct step long_sources[] = {
	{OOM_BF16, OOM_ATTN_EAGER, 0, 1, 1, 2048, 128, 1, 743731200, 1089671168},
	{OOM_FP16, OOM_ATTN_EAGER, 1, 1, 1, 900, 1500, 1, 641411584, 869101056},
};

static struct oom_eval step_of(const char *config, const struct step *s, int64_t transformers)
{
	struct oom_plan p = oom_plan_default();

	p.task = OOM_TASK_SEQ2SEQ;
	p.transformers = transformers;
	p.precision = s->precision;
	p.attn = s->attn;
	p.padding_mask = s->padding;
	p.grad_ckpt = s->ckpt ? OOM_CKPT_FULL : OOM_CKPT_NONE;
	p.use_reentrant = OOM_REENTRANT_FALSE;
	p.micro_batch = s->batch;
	p.seq_len = s->source;
	p.tgt_len = s->target;
	p.softmax_product = p.view_sums = 0;
	assert_int_equal(oom_plan_set(&p, oom_knob_find("optimizer"), s->fused ? "adamw-fused" : "sgd", NULL), OOM_OK);
	oom_plan_resolve(&p);
	return must(config, &p);
}

static void hold(const struct step *steps, size_t n, int64_t transformers, int64_t slack)
{
	for (size_t i = 0; i < n; i++) {
		const struct oom_eval e = step_of(T5(3), &steps[i], transformers);
		const int64_t fwd = (int64_t)e.peak[OOM_PHASE_FWD2] - (int64_t)steps[i].forward,
			      bwd = (int64_t)e.peak[OOM_PHASE_BWD2] - (int64_t)steps[i].backward;

		if (llabs(fwd) > slack || llabs(bwd) > slack)
			fail_msg("step %zu: forward off by %lld, backward by %lld", i, (long long)fwd, (long long)bwd);
	}
}

static void written_out_in_fp32(void **state)
{
	(void)state;
	hold(before, sizeof(before) / sizeof(before[0]), OOM_VERSION(5, 12), 0);
}

/* 18 KB more for a mask of booleans, 0.8 MB less under checkpoints with one sample. */
static void by_the_interface(void **state)
{
	(void)state;
	hold(after, sizeof(after) / sizeof(after[0]), OOM_VERSION(5, 17), 800000);
}

static void biases_of_long_sources(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(long_sources) / sizeof(long_sources[0]); i++) {
		const struct step *s = &long_sources[i];
		const struct oom_eval e = step_of(T5(5), s, OOM_VERSION(5, 12));
		const double off = (double)e.peak[OOM_PHASE_BWD2] / (double)s->backward - 1;

		assert_int_equal(e.peak[OOM_PHASE_FWD2], s->forward);
		if (off < -0.015 || off > 0.001)
			fail_msg("step %zu: %+.4f", i, off);
	}
}

/* Eager attention in 16 bit keeps two bytes a score less than it did. */
static void softmax_in_the_type_of_the_scores(void **state)
{
	const struct step s = {OOM_BF16, OOM_ATTN_EAGER, 0, 0, 4, 512, 128, 1, 0, 0};
	/* three layers' self-attention of either side, and the decoder's over the encoder's tokens */
	const uint64_t scores = (uint64_t)3 * 4 * 8 * (512 * 512 + 128 * 128 + 128 * 512);
	const struct oom_eval was = step_of(T5(3), &s, OOM_VERSION(5, 12)), is = step_of(T5(3), &s, OOM_VERSION(5, 17));

	(void)state;
	assert_true(was.end[OOM_PHASE_FWD2] - is.end[OOM_PHASE_FWD2] > 2 * scores - 200000);
	assert_true(was.end[OOM_PHASE_FWD2] - is.end[OOM_PHASE_FWD2] < 2 * scores + 200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_out_in_fp32),
		cmocka_unit_test(by_the_interface),
		cmocka_unit_test(biases_of_long_sources),
		cmocka_unit_test(softmax_in_the_type_of_the_scores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
