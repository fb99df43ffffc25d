/* Megatron-Bridge's LoRA: what adapters are, what frozen layers keep, what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "launch.h"
#include "megatron/parts.h"
#include "oomplan/config.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "oomplan/plan.h"

/* Llama 3 8B over two tensor ranks, one micro-batch of 4,096 tokens. */
static struct oom_megatron llama(int64_t r, int64_t targets)
{
	const char *words[] = {"layers", "32", "hidden", "4096", "ffn_hidden", "14336", "heads", "32", "query_groups", "8",
			       "seq", "4096", "vocab", "128256", "swiglu", "1", "bias_linear", "0", "normalization",
			       "RMSNorm", "hidden_dropout", "0", "attention_dropout", "0", "tp", "2", "sequence_parallel",
			       "1", "attention_resolved", "fused", "attention_mask_in_dataloader", "0",
			       "tied_embeddings", "0", NULL};
	struct oom_megatron m = launch(words);
	struct oom_error err = {{0}};

	assert_int_equal(oom_megatron_derive(&m, &err), OOM_OK);
	m.lora_r = r;
	m.lora_targets = targets;
	return m;
}

#define ALL ((1 << OOM_MG_TARGETS) - 1)

/* Rank 16: A and B of 4,096 to 6,144 (queries, keys and values as one), 4,096 to 4,096, 4,096 to 28,672 (gate and up as
 * one), 14,336 to 4,096; a half of each on either of two ranks (utils.py ParallelLinearAdapter). */
static void test_sizes(void **state)
{
	const double layer = 16.0 * (4096 + 6144 + 4096 + 4096 + 4096 + 28672 + 14336 + 4096);
	struct oom_megatron m = llama(16, ALL);
	struct oom_mg_rank lora, full;
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_megatron_rank(&m, 0, &lora, &err), OOM_OK);
	assert_true(lora.trained_params == (uint64_t)(32 * layer / 2));
	/* gradients and master weights are of adapters alone, states two numbers of them */
	assert_true(rows_of(&lora, OOM_MG_ROW_GRADS) == 4 * 32 * layer / 2);
	assert_true(rows_of(&lora, OOM_MG_ROW_MASTER) == 4 * 32 * layer / 2);
	assert_true((double)lora.optimizer_bytes == 8 * 32 * layer / 2);
	m = llama(0, 0);
	assert_int_equal(oom_megatron_rank(&m, 0, &full, &err), OOM_OK);
	assert_true(full.params == lora.params && full.trained_params == full.params);
	assert_true(full.static_bytes > 8 * lora.static_bytes);
}

/* The difference that a layer's adapter makes, in bytes: what a frozen layer keeps without it, and what it keeps with. */
static double kept(int64_t targets, double dropout)
{
	struct oom_megatron m = llama(16, targets);

	m.lora_dropout = dropout;
	return oom_mg_layer(&m, false, 4096, 0).saved;
}

static void test_kept(void **state)
{
	const double T = 4096, h = 4096, f = 14336, none = kept(0, 0);
	struct oom_megatron m = llama(0, 0);

	(void)state;
	/* frozen: neither the norms' outputs, divided by the sequence, nor the input of the last product (TransformerEngine
	 * module/linear.py saved_inputmat); the attention keeps its own output */
	assert_true(oom_mg_layer(&m, false, 4096, 0).saved - none == 2 * T * h / 2 * 2 + 2 * T * f / 2);
	/* the norm's output whole, and A's */
	assert_true(kept(1 << OOM_MG_LINEAR_QKV, 0) - none == 2 * T * h + 2 * T * 16);
	assert_true(kept(1 << OOM_MG_LINEAR_PROJ, 0) - none == 2 * T * 16);
	assert_true(kept(1 << OOM_MG_LINEAR_FC1, 0) - none == 2 * T * h + 2 * T * 16);
	assert_true(kept(1 << OOM_MG_LINEAR_FC2, 0) - none == 2 * T * f / 2 + 2 * T * 16);
	/* dropout makes another input, and a mask of a byte */
	assert_true(kept(1 << OOM_MG_LINEAR_PROJ, 0.1) - kept(1 << OOM_MG_LINEAR_PROJ, 0) == 3 * T * h / 2);
	assert_true(kept(1 << OOM_MG_LINEAR_FC1, 0.1) - kept(1 << OOM_MG_LINEAR_FC1, 0) == T * h);
}

/* Two of three products of a frozen layer remain: its inputs' gradients, without its weights'. */
static void test_work(void **state)
{
	struct oom_megatron lora = llama(16, 1 << OOM_MG_LINEAR_QKV), full = llama(0, 0);
	const struct oom_work a = oom_mg_work(&lora), b = oom_mg_work(&full);

	(void)state;
	assert_true(a.product_flops > b.product_flops * 2 / 3 && a.product_flops < b.product_flops * 0.69);
	assert_true(fabs(a.attention_flops - b.attention_flops) < 1);
	/* nothing hides what tensor ranks add up while there are no weights' gradients */
	assert_true(a.tensor_behind == 0 && b.tensor_behind > 0);
	/* ten kernels an adapter */
	assert_true(a.launches + a.launches_back == b.launches + b.launches_back + 10 * 32);
}

static const char small[] = "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
			    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
			    "\"vocab_size\": 1024}";

/* The error that a plan gets, or "". */
static const char *refusal(const char *knobs)
{
	static struct oom_error err;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_eval eval;
	char text[200], *rest = text, *word;

	err.text[0] = 0;
	assert_int_equal(oom_keys_parse(&keys, small, strlen(small), "small", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	snprintf(text, sizeof(text), "engine=megatron precision=bf16 seq-len=256 %s", knobs);
	while ((word = strtok_r(rest, " ", &rest))) {
		char *value = strchr(word, '=');

		*value++ = 0;
		assert_int_equal(oom_plan_set(&p, oom_knob_find(word), value, &err), OOM_OK);
	}
	oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &eval, &err);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return err.text;
}

static void test_refusals(void **state)
{
	(void)state;
	assert_string_equal(refusal("lora-r=8"), "");
	assert_string_equal(refusal("lora-r=8 lora-targets=q_proj+linear_fc2 gpus=8 tp=4 zero=1"), "");
	assert_non_null(strstr(refusal("lora-r=8 lora-targets=router"), "\"router\" is none of the modules"));
	assert_non_null(strstr(refusal("lora-r=6 gpus=4 tp=4"), "does not divide over 4 tensor-parallel ranks"));
	assert_non_null(strstr(refusal("lora-r=8 modules-to-save=lm_head"), "nothing else of PEFT's"));
	assert_non_null(strstr(refusal("lora-r=8 gpus=4 zero=3"), "without Megatron-FSDP"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_work),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
