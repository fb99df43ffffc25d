/* Kinds of adapters: what each trains, by hand from PEFT's code (tuners/X/layer.py), and what it refuses.
 * Their bytes are held against measured runs by tests/accuracy/peft.csv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/engine.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"
#include "knobs.h"
#include "priced.h"

/* d = 64, feed-forward 192, 4 heads of 16, 2 of keys: q is 64 x 64, v is 32 x 64, down is 64 x 192 */
#define LLAMA(tie) \
	"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 3, " \
	"\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 500, " \
	"\"tie_word_embeddings\": " tie "}"

static struct oom_plan with(const char *text)
{
	struct oom_plan p = oom_plan_default();

	set(&p, "micro-batch=2 seq-len=64 precision=bf16 lora-targets=q_proj+v_proj+down_proj");
	set(&p, text);
	return p;
}

/* litgpt's joined matrix: 96 of its 128 columns are copied into zeros, in bf16 for 2 x 64 tokens in each of three layers;
 * as transformers' Phi-3 has it, and as two layers. */
static void what_is_copied_into_zeros_stays(void **state)
{
	static const char joined[] = "{\"model_type\": \"phi3\", \"hidden_size\": 64, \"intermediate_size\": 192, "
				     "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
				     "\"vocab_size\": 500, \"pad_token_id\": 0}";
	static const struct {
		const char *model, *plan;
		uint64_t kept;
	} cases[] = {
		{joined, "lora-r=4 autocast-adapter-dtype=false lora-targets=qkv_proj", 96},
		{LLAMA("true"), "lora-r=4 autocast-adapter-dtype=false lora-targets=q_proj+v_proj", 96},
		{LLAMA("true"), "lora-r=4 lora-targets=o_proj+down_proj", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = with(cases[i].plan);
		const uint64_t before = must(cases[i].model, &p).saved_bytes;

		set(&p, "lora-zero-pad=true");
		assert_int_equal(must(cases[i].model, &p).saved_bytes - before, 3 * cases[i].kept * 2 * 64 * 2);
	}
}

static void parameters_are_peft_s(void **state)
{
	static const struct {
		const char *plan;
		uint64_t a_layer, besides;
	} cases[] = {
		/* r (in + out) of each */
		{"lora-r=4", 4 * (128 + 96 + 256), 0},
		{"lora-r=4 idle-adapters=3", 4 * (128 + 96 + 256), 0},
		{"lora-r=4 use-dora=true", 4 * 480 + 64 + 32 + 64, 0},
		{"lora-r=4 peft-type=dora", 4 * 480 + 160, 0},
		/* A, B, E and, in 16 bit, a ranknum that trains */
		{"lora-r=4 peft-type=adalora", 4 * 480 + 3 * 5, 0},
		{"lora-r=4 peft-type=adalora precision=fp32", 4 * 480 + 3 * 4, 0},
		/* results of q and v, the input of down */
		{"peft-type=ia3", 64 + 32 + 192, 0},
		/* an entry for every output, r besides */
		{"lora-r=8 peft-type=vera", 64 + 32 + 64 + 3 * 8, 0},
		{"lora-r=8 peft-type=miss", 8 * (64 + 32 + 64), 0},
		{"lora-r=4 peft-type=loha", 2 * 4 * 480, 0},
		/* 64 = 8 x 8, 32 = 4 x 8, 192 = 12 x 16: the larger factors are whole but for
		 * down_proj's of 8 x 16 at r = 4 */
		{"lora-r=4 peft-type=lokr", (64 + 64) + (4 * 8 + 8 * 8) + (8 * 12 + 4 * (8 + 16)), 0},
		{"lora-r=10 peft-type=fourierft", 30, 0},
		/* blocks of 16 x 15 / 2 */
		{"lora-r=16 peft-type=oft", (4 + 4 + 12) * 120, 0},
		/* a column of every reflection */
		{"lora-r=4 peft-type=hra", 4 * (64 + 64 + 192), 0},
		/* a row of ten logits for each piece of 32: four times 2 + 2, 2 + 1, 6 + 2 of them; the bank */
		{"lora-r=4 peft-type=vblora num-vectors=10 vector-length=32", 4 * 15 * 10, 10 * 32},
		/* blocks of 4 along the inputs, a scale for every output */
		{"lora-r=4 peft-type=boft", 4 * (64 + 64 + 192) + 64 + 32 + 64, 0},
		/* five tokens and a gate */
		{"peft-type=adaption-prompt num-virtual-tokens=5", 5 * 64 + 1, 0},
		{"peft-type=prompt-tuning num-virtual-tokens=5", 0, 5 * 64},
		{"peft-type=p-tuning num-virtual-tokens=5 encoder-hidden-size=32", 0,
		 5 * 64 + 64 * 32 + 32 + 32 * 32 + 32 + 32 * 64 + 64},
		/* keys and values of 32 for three layers; or made of 5 x 32 by two linear layers */
		{"peft-type=prefix-tuning num-virtual-tokens=5", 0, 5 * 3 * 2 * 32},
		{"peft-type=prefix-tuning num-virtual-tokens=5 encoder-hidden-size=48", 0,
		 5 * 32 + 32 * 48 + 48 + 48 * 192 + 192},
		{"lora-r=4 trainable-tokens=7", 4 * 480, 7 * 64},
		/* copies of weights of 64: two norms per layer, one at the end */
		{"peft-type=ln-tuning lora-targets=input_layernorm", 64, 0},
		{"peft-type=ln-tuning lora-targets=input_layernorm+norm", 64, 64},
		{"peft-type=ln-tuning lora-targets=all-linear", 2 * 64, 64},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = with(cases[i].plan);
		const struct oom_eval e = must(LLAMA("true"), &p);
		const uint64_t want = 3 * cases[i].a_layer + cases[i].besides;

		assert_true(oom_plan_adapted(&p));
		assert_null(oom_plan_broken(&p, NULL));
		if (e.trainable_params != want)
			fail_msg("%s: %llu trained, %llu by hand", cases[i].plan,
				 (unsigned long long)e.trainable_params, (unsigned long long)want);
	}
}

/* Layers 0 and 2 of three; biases of a model that has some (qwen2: q, k, v). */
static void chosen_layers_and_biases(void **state)
{
	static const char qwen[] =
		"{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 192, "
		"\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
		"\"vocab_size\": 500}";
	struct oom_plan p = with("lora-r=4 layers-to-transform=0+2");

	(void)state;
	assert_int_equal(must(LLAMA("true"), &p).trainable_params, 2 * 4 * 480);
	p = with("lora-r=4 lora-bias=lora-only");
	assert_int_equal(must(qwen, &p).trainable_params, 3 * (4 * 480 + 64 + 32));
	p = with("lora-r=4 lora-bias=all");
	assert_int_equal(must(qwen, &p).trainable_params, 3 * (4 * 480 + 64 + 32 + 32));
}

/* Weight and bias of 64, in a norm of each of three layers and the last one. */
static void norms_with_biases(void **state)
{
	static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 3, "
				   "\"n_positions\": 128, \"vocab_size\": 500}";
	const struct oom_plan p = with("peft-type=ln-tuning lora-targets=ln_1+ln_f");

	(void)state;
	assert_int_equal(must(gpt2, &p).trainable_params, 4 * 2 * 64);
	assert_true(oom_plan_norms(&p));
}

/* Where nobody names them, the norms of PEFT's table (utils/constants.py): of Qwen one per layer, none of Gemma 3's
 * queries and keys.  A type that the table does not have gives all: StableLM's two per layer and the last, with biases. */
static void norms_by_default(void **state)
{
#define SIZES "\"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, " \
	      "\"num_key_value_heads\": 2, \"vocab_size\": 500, \"head_dim\": 16}"
	const struct oom_plan p = with("peft-type=ln-tuning lora-targets=all-linear");

	(void)state;
	assert_int_equal(must("{\"model_type\": \"qwen2\", " SIZES, &p).trainable_params, 3 * 64);
	assert_int_equal(must("{\"model_type\": \"qwen3\", " SIZES, &p).trainable_params, 3 * 64);
	assert_int_equal(must("{\"model_type\": \"gemma3_text\", " SIZES, &p).trainable_params, 3 * 4 * 64 + 64);
	assert_int_equal(must("{\"model_type\": \"stablelm\", " SIZES, &p).trainable_params, 7 * 2 * 64);
#undef SIZES
}

static void what_peft_refuses(void **state)
{
	static const struct {
		const char *plan, *says;
	} cases[] = {
		{"lora-r=4 layers-to-transform=7", "match"},
		{"lora-r=4 lora-targets=nosuch", "nosuch"},
		{"peft-type=ia3 lora-targets=embed_tokens", "embed"},
		{"lora-r=5 peft-type=boft", "block size"},
		{"lora-r=4 peft-type=vblora", "does not divide"},
		{"peft-type=ln-tuning lora-targets=nosuch", "nosuch"},
		{"peft-type=ln-tuning lora-targets=input_layernorm+q_proj", "linear layer"},
	};
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = with(cases[i].plan);

		if (price(LLAMA("true"), &p, &e, &err) != OOM_ERR_INVALID || !strstr(err.text, cases[i].says))
			fail_msg("%s: \"%s\"", cases[i].plan, err.text);
	}
}

/* Rows of an embedding train where the class adds some to vocab_size (Moshi's one, modeling_moshi.py), and a model whose table
 * is not found is refused, not priced without them. */
static void rows_of_longer_tables(void **state)
{
	const struct oom_plan p = with("lora-r=4 lora-targets=q_proj+linear trainable-tokens=7"), q = with("lora-r=4 lora-targets=q_proj+linear"),
			      r = with("lora-r=4 lora-targets=all-linear trainable-tokens=7 task=image-cls");
	static const char moshi[] = "{\"model_type\": \"moshi\", \"hidden_size\": 64, \"ffn_dim\": 128, \"num_hidden_layers\": 2, "
				    "\"num_attention_heads\": 4, \"head_dim\": 16, \"vocab_size\": 500}";
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	assert_int_equal(must(moshi, &p).trainable_params - must(moshi, &q).trainable_params, 7 * 64);
	assert_int_equal(price("{\"model_type\": \"vit\", \"num_hidden_layers\": 2}", &r, &e, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "trainable-tokens"));
}

static void rules_of_kinds(void **state)
{
	static const char *const broken[] = {
		"peft-type=vera", "peft-type=prompt-tuning", "lora-r=4 num-virtual-tokens=3",
		"lora-r=4 encoder-hidden-size=3", "trainable-tokens=3", "lora-bias=all", "use-dora=true",
		"lora-r=4 peft-type=loha use-dora=true"};

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		struct oom_plan p = oom_plan_default();

		set(&p, broken[i]);
		if (!oom_plan_broken(&p, NULL))
			fail_msg("%s breaks no rule", broken[i]);
	}
}

/* Virtual tokens lengthen every sequence, and take a table no larger. */
static void prompts_are_longer_sequences(void **state)
{
	struct oom_plan p = with("peft-type=prompt-tuning num-virtual-tokens=64 attn=sdpa"),
			q = with("lora-r=1 lora-targets=q_proj seq-len=128");
	const struct oom_eval prompted = must(LLAMA("true"), &p), longer = must(LLAMA("true"), &q);

	(void)state;
	assert_in_range(prompted.overall_peak, longer.overall_peak * 9 / 10, longer.overall_peak * 11 / 10);
	assert_true(prompted.input_bytes < longer.input_bytes);
	oom_plan_unadapt(&p);
	assert_false(oom_plan_adapted(&p));
	assert_false(oom_plan_prompted(&p));
	oom_plan_adapt(&p);
	assert_int_equal(p.lora_r, 16);
}

/* --lora-r alone is a question: the targets that stand for none named exist in every model type that is
 * priced at all, under either kind of step (images have no tokens). */
static void default_targets_exist(void **state)
{
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/model_types.jsonl", "r");
	size_t cap = 0, priced = 0;
	char *line = NULL;

	(void)state;
	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		struct oom_plan p = oom_plan_default();
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_error err = {{0}};
		struct oom_eval e;
		char json[120];

		snprintf(json, sizeof(json), "{\"model_type\": \"%.*s\"}", (int)strcspn(line, "\t"), line);
		if (!oom_keys_parse(&keys, json, strlen(json), "config.json", &err) &&
		    !oom_model_new(&m, &keys, &err)) {
			p.lora_r = 4;
			p.micro_batch = 1;
			p.seq_len = oom_model_task(m) == OOM_TASK_IMAGE_CLS ? 0 : 64;
			snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", oom_model_lora_targets(m));
			if (!oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err))
				priced++;
			else if (strstr(err.text, "match no layer"))
				fail_msg("%s: %s", json, err.text);
		}
		oom_evaluator_free(ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	assert_true(priced > 300);
	free(line);
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_copied_into_zeros_stays),
		cmocka_unit_test(parameters_are_peft_s),
		cmocka_unit_test(chosen_layers_and_biases),
		cmocka_unit_test(norms_with_biases), cmocka_unit_test(norms_by_default),
		cmocka_unit_test(what_peft_refuses),
		cmocka_unit_test(rows_of_longer_tables),
		cmocka_unit_test(rules_of_kinds),
		cmocka_unit_test(default_targets_exist),
		cmocka_unit_test(prompts_are_longer_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
