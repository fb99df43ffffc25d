/* The work of a step, priced by hand: products, attention, launches and bytes of small models, and the ledger of its time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "card.h"
#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "tape/tape.h"

static void price_model(const char *name, struct oom_plan *p, struct oom_eval *e)
{
	char path[600];
	struct oom_keys keys;
	struct oom_model *m;
	struct oom_error err = {{0}};
	struct oom_evaluator *ev = oom_evaluator_new();

	memset(&keys, 0, sizeof(keys));
	snprintf(path, sizeof(path), "%s/data/models/%s.json", OOM_SOURCE_ROOT, name);
	assert_int_equal(oom_keys_read_model(&keys, path, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	if (oom_evaluate(ev, m, p, 0, e, &err))
		fail_msg("%s", err.text);
	oom_model_free(m);
	oom_keys_release(&keys);
	oom_evaluator_free(ev);
}

static void price(struct oom_plan *p, struct oom_eval *e)
{
	price_model("Llama-3.2-1B", p, e);
}

static struct oom_plan four_of_512(void)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.micro_batch = 4;
	p.seq_len = 512;
	p.attn = OOM_ATTN_FLASH;
	return p;
}

/* Llama-3.2-1B: 16 layers of 2 x 2048^2 + 2 x 2048 x 512 + 3 x 2048 x 8192 = 60,817,408 elements, a head
 * of 128256 x 2048: 1,235,746,816; forward and two gradients take 6 operations for each and token.
 * Scores: half of 2 x 2 x 2048 x s a layer and token, once forward and 2.5 times backward. */
static void products_and_attention(void **state)
{
	const double n = 4 * 512, matrices = 1235746816.0;
	struct oom_plan p = four_of_512();
	struct oom_eval e;

	(void)state;
	price(&p, &e);
	assert_true(fabs(e.work.product_flops / (6 * n * matrices) - 1) < 1e-9);
	assert_true(fabs(e.work.attention_flops / (16 * n * 2 * 2048 * 512 * 3.5) - 1) < 1e-9);
	assert_true(e.work.fp32_flops == 0 && e.work.batched_flops == 0);
	/* a layer writes 23,552 elements per token forward and 20,480 as gradients of inputs, the head 128,256 and 2,048;
	 * its products' inner sizes are the same two sums */
	assert_true(fabs(e.work.written / (n * 834816) - 1) < 1e-9 && fabs(e.work.depth / 834816 - 1) < 1e-9);
	/* without a fused kernel: both halves, in two batched products with two gradients each */
	p.attn = OOM_ATTN_EAGER;
	price(&p, &e);
	assert_true(fabs(e.work.batched_flops / (16 * n * 2 * 2 * 2048 * 512 * 3) - 1) < 1e-9);
	assert_true(e.work.attention_flops == 0);
	assert_true(e.work.wide_flops == 0 && e.work.wide_batched_flops == 0);
	/* beside 4-bit layers that are prepared and not under autocast all is fp32 (peft/utils/other.py
	 * prepare_model_for_kbit_training; bitsandbytes' Linear4bit gives back its input's type): of 32 heads over 8,
	 * for which PyTorch then has no fused kernel (Context.cpp, check_batch_size_and_num_heads_dense) */
	p.attn = OOM_ATTN_SDPA;
	p.lora_r = 8;
	strcpy(p.lora_targets, "all-linear");
	p.qlora = p.kbit_prepare = true;
	price(&p, &e);
	assert_true(e.work.wide_batched_flops > 0 && e.work.wide_batched_flops >= e.work.batched_flops);
	p.precision = OOM_BF16_AMP;
	price(&p, &e);
	assert_true(e.work.attention_flops > 0 && e.work.wide_batched_flops == 0 && e.work.wide_flops == 0);
}

static void launches_and_what_trains(void **state)
{
	const double n = 4 * 512, matrices = 1235746816.0, layers = 16 * 60817408.0;
	struct oom_plan p = four_of_512();
	struct oom_eval e;
	double launches, bytes;

	(void)state;
	price(&p, &e);
	/* PyTorch's profiler lists about 60 kernels per layer forward and as many backward; not a tenth
	 * and not ten times as many */
	assert_true(e.work.launches > 16 * 20 && e.work.launches < 16 * 120);
	assert_true(e.work.units == 16);
	launches = e.work.launches;
	bytes = e.work.bytes;
	/* launches do not depend on the batch, bytes do */
	p.micro_batch = 8;
	price(&p, &e);
	assert_true(e.work.launches == launches && e.work.bytes > 1.5 * bytes);
	/* checkpointing runs the layers, not the head, once more */
	p.micro_batch = 4;
	p.grad_ckpt = OOM_CKPT_FULL;
	price(&p, &e);
	assert_true(e.work.product_flops <= 6 * n * matrices + 2 * n * layers);
	assert_true(e.work.product_flops > 6 * n * matrices + 1.7 * n * layers);
	assert_true(e.work.launches > 1.5 * launches);
	/* frozen weights have no gradient: 4 in place of 6, and the adapters */
	p.grad_ckpt = OOM_CKPT_NONE;
	p.lora_r = 8;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+v_proj");
	price(&p, &e);
	assert_true(e.work.product_flops + e.work.fp32_flops > 4 * n * matrices &&
		    e.work.product_flops < 4.4 * n * matrices);
	/* and norms that train alone leave every product with one */
	p.peft_type = OOM_ADAPTER_LN_TUNING;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "input_layernorm");
	price(&p, &e);
	assert_true(fabs(e.work.product_flops / (4 * n * matrices) - 1) < 1e-9);
	/* of two layers that train, and a head that does not: 6 for them, 4 for all others */
	p.peft_type = OOM_ADAPTER_LORA;
	p.lora_r = 0;
	snprintf(p.train, sizeof(p.train), "model.layers.14+model.layers.15");
	price(&p, &e);
	assert_true(fabs(e.work.product_flops / (4 * n * matrices + 2 * n * 2 * 60817408.0) - 1) < 1e-9);
}

/* A padding mask makes PyTorch take its memory-efficient kernel, which computes the scores above the diagonal too. */
static void padded(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double scores;

	(void)state;
	p.precision = OOM_BF16;
	p.seq_len = 512;
	p.attn = OOM_ATTN_SDPA;
	price(&p, &e);
	scores = e.work.attention_flops;
	p.padding_mask = true;
	price(&p, &e);
	assert_true(fabs(e.work.attention_flops / (2 * scores) - 1) < 1e-9);
}

/* Each of the 7 layers' 4-bit weights is made whole in each direction, by Python: three launches' worth beside the kernels, which
 * a checkpoint asks for once more. */
static void unpacked(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double launches[2][2];

	(void)state;
	p.precision = OOM_BF16_AMP;
	p.seq_len = 512;
	p.attn = OOM_ATTN_SDPA;
	p.lora_r = 16;
	strcpy(p.lora_targets, "all-linear");
	for (int again = 0; again < 2; again++)
		for (int bits = 0; bits < 2; bits++) {
			p.grad_ckpt = again ? OOM_CKPT_FULL : OOM_CKPT_NONE;
			p.qlora = bits;
			price(&p, &e);
			launches[again][bits] = e.work.launches;
		}
	assert_true(launches[0][1] - launches[0][0] >= 3 * 2 * 16 * 7);
	assert_true(launches[1][1] - launches[1][0] >= 3 * 3 * 16 * 7);
}

/* The same model on Megatron: what tensor parallelism divides, and what it sends. */
static void megatron(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval one, two;
	const double n = 4 * 512, h = 2048;

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	p.precision = OOM_BF16;
	p.micro_batch = 4;
	p.seq_len = 512;
	p.attn = OOM_ATTN_FLASH;
	price(&p, &one);
	assert_true(fabs(one.work.product_flops / (6 * n * 1235746816.0) - 1) < 0.01);
	/* queries, keys and values are one product here, gate and up another: 14,336 gradients of inputs a layer */
	assert_true(fabs(one.work.written / (n * 736512) - 1) < 0.01 && fabs(one.work.depth / 736512 - 1) < 0.01);
	assert_true(one.work.tensor_bytes == 0 && one.work.pipeline_bytes == 0);
	p.gpus = p.tp = 2;
	p.sp = 1;
	price(&p, &two);
	assert_true(fabs(one.work.product_flops / two.work.product_flops - 2) < 0.01);
	/* a weight is read three times in 16 bit, and its gradient read and written in 32 */
	assert_true(fabs(one.work.streamed / (14 * 1235814400.0) - 1) < 0.01);
	/* the backward ones travel beside the weights' gradients: two of four */
	assert_true(one.work.tensor_behind == 0 && fabs(two.work.tensor_behind - 0.5) < 1e-9);
	/* two all-reduces forward and two backward per layer: 2 (t - 1) / t of n h 16-bit elements */
	assert_true(fabs(two.work.tensor_bytes / (16 * 4 * n * h * 2) - 1) < 1e-9);
	p.tp = 1;
	p.sp = 0;
	p.pp = 2;
	p.grad_accum = 2;
	price(&p, &two);
	assert_true(two.work.product_flops < 0.7 * one.work.product_flops);
	assert_true(two.work.pipeline_bytes == 2 * n * h * 2);
}

/* Products of several experts are grouped, and take longer than one expert's per rank does. */
static void experts_alone(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval alone, grouped;

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	p.precision = OOM_BF16;
	p.seq_len = 512;
	p.attn = OOM_ATTN_FLASH;
	p.gpus = p.ep = 8;
	price_model("Mixtral-8x7B", &p, &alone);
	p.ep = 4;
	price_model("Mixtral-8x7B", &p, &grouped);
	assert_true(fabs(alone.work.model_flops / grouped.work.model_flops - 1) < 1e-9);
	assert_true(alone.work.product_flops < 0.98 * grouped.work.product_flops);
}

/* Every part has its row, said in full, and the rows add up to the step. */
static void ledger(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_time_row rows[OOM_TIME_PART_COUNT];
	struct oom_plan p = oom_plan_default();
	struct oom_step_time t;
	struct oom_eval e;
	double sum = 0;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.gpus = 16;
	p.nodes = 2;
	p.grad_accum = 4;
	e.work.product_flops = 1e14;
	e.work.attention_flops = 1e13;
	e.work.bytes = 1e11;
	e.grad_bytes = e.param_bytes = 10000000000;
	e.offloaded_bytes = 1000000000;
	t = oom_step_time(&p, &e, &g);
	oom_step_time_explain(&p, &e, &g, rows);
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++) {
		sum += rows[i].seconds;
		assert_int_equal(rows[i].part, i);
		assert_true(*rows[i].formula && *rows[i].source && *rows[i].inputs);
		assert_true(strlen(rows[i].inputs) < sizeof(rows[i].inputs) - 1);
	}
	assert_true(fabs(sum - t.total_s) < 1e-12 * t.total_s);
	/* 100 TFLOP a micro-step, 4 of them */
	assert_non_null(strstr(rows[OOM_TIME_PRODUCTS].inputs, "(100 + 0 for their shapes) Tflop"));
	assert_non_null(strstr(rows[OOM_TIME_PRODUCTS].inputs, "x 4"));
	assert_non_null(strstr(rows[OOM_TIME_GRADIENTS].inputs, "a guess"));
	p.seq_len = 0;
	assert_true(oom_step_tokens(&p) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_and_attention),
		cmocka_unit_test(launches_and_what_trains),
		cmocka_unit_test(padded),
		cmocka_unit_test(unpacked),
		cmocka_unit_test(megatron),
		cmocka_unit_test(experts_alone),
		cmocka_unit_test(ledger),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
