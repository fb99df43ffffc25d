/* device_map="auto" against what transformers lays out itself.
 *
 * Origin of the table: transformers 5.12.1, integrations/accelerate.py get_balanced_memory and
 * infer_auto_device_map, run on the bundled configs (bf16 weights on the meta device, cards with
 * 400 GB free): weights on the fullest GPU, and which one it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"

static const struct {
	const char *model;
	int gpus;
	uint32_t fullest;
	uint64_t bytes;
} layouts[] = {
	{"Llama-3.1-8B", 2, 1, 8902713856},  {"Llama-3.1-8B", 3, 2, 5849145856},
	{"Llama-3.1-8B", 4, 1, 4362240000},  {"Llama-3.1-8B", 8, 1, 2181120000},
	{"Llama-3.2-1B", 2, 0, 1255194624},  {"Llama-3.2-1B", 3, 1, 973144064},
	{"Llama-3.2-1B", 4, 1, 729858048},
	/* the embedding fits no card's share but the last one's, and all follow it */
	{"Llama-3.2-1B", 8, 7, 2471629056},  {"GPT-2", 2, 1, 127584768},
	{"GPT-2", 3, 1, 99230208},	     {"GPT-2", 4, 3, 99233280},
	{"GPT-2", 8, 7, 248879616},	     {"Gemma-2-2B", 2, 1, 2647449088},
	{"Gemma-2-2B", 3, 1, 1868783616},    {"Gemma-2-2B", 4, 1, 1401587712},
	{"Gemma-2-2B", 8, 7, 5228684802},    {"Qwen2.5-7B", 2, 1, 8547851776},
	{"Qwen2.5-7B", 3, 1, 5593387008},    {"Qwen2.5-7B", 4, 1, 4195040256},
	{"Qwen2.5-7B", 8, 1, 2330577920},    {"Mixtral-8x7B", 2, 1, 46702797312},
	{"Mixtral-8x7B", 3, 2, 32190095872}, {"Mixtral-8x7B", 4, 1, 26122862592},
	{"Mixtral-8x7B", 8, 1, 14512701440}, {"SmolLM2-135M", 8, 7, 269030272},
};

struct subject {
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_evaluator *ev;
};

static struct subject subject(const char *name)
{
	struct subject s = {{0}, NULL, oom_evaluator_new()};
	struct oom_error err = {{0}};
	char path[256];

	snprintf(path, sizeof(path), OOM_SOURCE_ROOT "/data/models/%s.json", name);
	if (oom_keys_read_model(&s.keys, path, &err) || oom_model_new(&s.model, &s.keys, &err))
		fail_msg("%s", err.text);
	return s;
}

static void release(struct subject *s)
{
	oom_evaluator_free(s->ev);
	oom_model_free(s->model);
	oom_keys_release(&s->keys);
}

static struct oom_eval price(const struct subject *s, const struct oom_plan *p)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	memset(&e, 0, sizeof(e));
	if (oom_evaluate(s->ev, s->model, p, OOM_EVAL_BUCKETS, &e, &err))
		fail_msg("%s", err.text);
	return e;
}

static struct oom_plan mapped(int gpus)
{
	struct oom_plan p = oom_plan_default();

	p.engine = gpus > 1 ? OOM_ENGINE_DEVICE_MAP : OOM_ENGINE_HF;
	p.gpus = gpus;
	p.precision = OOM_BF16;
	p.micro_batch = 1;
	p.seq_len = 8;
	return p;
}

/* A tiny batch and frozen weights: they alone decide which GPU is the fullest.  Adapters of rank 1
 * are counted here, small tensors rounded up. */
static void as_transformers_lays_out(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		struct subject s = subject(layouts[i].model);
		struct oom_plan p = mapped(layouts[i].gpus);
		struct oom_eval e;
		int64_t off;

		p.lora_r = 1;
		strcpy(p.lora_targets, "all-linear");
		e = price(&s, &p);
		off = (int64_t)(e.param_bytes - layouts[i].bytes);
		if (off < -65536 || off > (int64_t)layouts[i].bytes / 200 ||
		    e.stage != layouts[i].fullest)
			fail_msg("%s on %d GPUs: GPU %u with %llu bytes", layouts[i].model,
				 layouts[i].gpus, e.stage, (unsigned long long)e.param_bytes);
		release(&s);
	}
}

/* Everything on the last of eight GPUs is the whole model on one: the same phases but for the
 * batch, which stays on the first. */
static void all_on_one_is_one(void **state)
{
	static const struct {
		int precision, ckpt, accum, lora;
	} cases[] = {{OOM_BF16, 0, 1, 0},
		     {OOM_AMP_BF16, 0, 2, 0},
		     {OOM_AMP_BF16, 1, 1, 0},
		     {OOM_FP32, 0, 4, 8}};
	static const char *const models[] = {"Llama-3.2-1B", "Gemma-2-2B", "GPT-2"};

	(void)state;
	for (size_t m = 0; m < 3; m++) {
		struct subject s = subject(models[m]);

		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			struct oom_plan one = mapped(1), eight = mapped(8);
			struct oom_eval a, b;

			one.precision = eight.precision = cases[i].precision;
			one.grad_ckpt = eight.grad_ckpt = cases[i].ckpt;
			one.grad_accum = eight.grad_accum = cases[i].accum;
			one.lora_r = eight.lora_r = cases[i].lora;
			strcpy(one.lora_targets, "all-linear");
			strcpy(eight.lora_targets, "all-linear");
			one.seq_len = eight.seq_len = 256;
			a = price(&s, &one);
			b = price(&s, &eight);
			for (int p = OOM_PHASE_FWD1; p <= OOM_PHASE_EVAL; p++) {
				const int64_t off = (int64_t)(a.peak[p] - b.peak[p]);

				/* ids and labels, 2 x 256 x 8 bytes; divisions by the number of
				 * layers leave remainders */
				if (llabs(off - 4096) >= 4096)
					fail_msg("%s %zu %s: %lld", models[m], i,
						 oom_phase_column(p), (long long)off);
			}
		}
		release(&s);
	}
}

/* Who is alive at the peak adds up to it, and a GPU more never makes the fullest one fuller than
 * one GPU would be. */
static void composition(void **state)
{
	struct subject s = subject("Llama-3.1-8B");
	struct oom_plan p = mapped(1);
	struct oom_eval e;
	uint64_t whole;

	(void)state;
	p.seq_len = 2048;
	whole = price(&s, &p).overall_peak;
	for (int n = 2; n <= 16; n++) {
		uint64_t sum = 0;

		p = mapped(n);
		p.seq_len = 2048;
		e = price(&s, &p);
		for (int b = 0; b < OOM_BUCKETS; b++)
			sum += e.bucket[b];
		assert_true(sum == e.overall_peak);
		assert_true(e.overall_peak < whole && e.least_peak <= e.overall_peak);
		assert_int_equal(e.n_stages, n);
		assert_int_equal(oom_plan_data_parallel(&p), 1);
	}
	release(&s);
}

/* A rank of an encoder and a decoder frees gradients of hidden states that its neighbours made: none of its buckets
 * falls below nothing, at whatever batch. */
static void composition_of_a_decoder(void **state)
{
	struct subject s = subject("T5-base");

	(void)state;
	for (int n = 2; n <= 8; n *= 2)
		for (int rows = 4; rows <= 32; rows += 4) {
			struct oom_plan p = mapped(n);
			struct oom_eval e;
			uint64_t sum = 0;

			p.seq_len = 512;
			p.micro_batch = rows;
			p.grad_accum = 2;
			p.grad_ckpt = OOM_CKPT_FULL;
			p.attn = OOM_ATTN_EAGER;
			p.precision = OOM_BF16;
			e = price(&s, &p);
			for (int b = 0; b < OOM_BUCKETS; b++) {
				assert_true(e.bucket[b] <= e.overall_peak);
				sum += e.bucket[b];
			}
			assert_true(sum == e.overall_peak);
		}
	release(&s);
}

/* An evaluator that has priced many batches has compiled the walk: the bytes stay the same. */
static void compiled_is_walked(void **state)
{
	static const char *const models[] = {"Llama-3.1-8B", "Gemma-2-2B", "T5-base"};

	(void)state;
	for (size_t m = 0; m < 3; m++) {
		struct subject old = subject(models[m]);

		for (int i = 0; i < 64; i++) {
			struct subject fresh = old;
			struct oom_plan p = mapped(4);
			struct oom_eval a, b;

			p.precision = OOM_AMP_BF16;
			p.grad_accum = 2;
			p.micro_batch = 1 + i % 7;
			p.seq_len = 100 + 37 * i;
			fresh.ev = oom_evaluator_new();
			a = price(&old, &p);
			b = price(&fresh, &p);
			assert_memory_equal(a.peak, b.peak, sizeof(a.peak));
			oom_evaluator_free(fresh.ev);
		}
		release(&old);
	}
}

static struct oom_eval replayed(const struct subject *s, const struct oom_plan *p)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	memset(&e, 0, sizeof(e));
	if (oom_evaluate(s->ev, s->model, p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	assert_true(e.reserved_replayed);
	return e;
}

/* The fullest GPU's own layers are replayed.  Where one holds all of them it reserves what a GPU alone does,
 * but for the batch, which lies on the first one; where layers are spread it reserves less than that, and
 * never less than it allocates. */
static void reserved_by_replay(void **state)
{
	struct oom_plan one = mapped(1), p = mapped(8);
	struct subject s = subject("Llama-3.2-1B");
	struct oom_eval alone, part;
	double ratio;

	(void)state;
	one.micro_batch = p.micro_batch = 2;
	one.seq_len = p.seq_len = 512;
	alone = replayed(&s, &one);
	part = replayed(&s, &p);
	ratio = (double)part.reserved_bytes / (double)alone.reserved_bytes;
	assert_int_equal(part.stage, 7);
	assert_true(ratio > 0.99 && ratio < 1.01);
	for (int ckpt = 0; ckpt < 2; ckpt++)
		for (int gpus = 2; gpus <= 4; gpus++) {
			p.gpus = gpus;
			p.grad_ckpt = ckpt ? OOM_CKPT_FULL : OOM_CKPT_NONE;
			part = replayed(&s, &p);
			assert_true(part.reserved_bytes >= part.overall_peak);
			assert_true(part.reserved_bytes < alone.reserved_bytes);
		}
	release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_transformers_lays_out),
					   cmocka_unit_test(all_on_one_is_one),
					   cmocka_unit_test(composition),
					   cmocka_unit_test(composition_of_a_decoder),
					   cmocka_unit_test(reserved_by_replay),
					   cmocka_unit_test(compiled_is_walked)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
