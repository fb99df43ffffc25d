/* What trains: adapters on layers chosen by name, number and pattern, copies, tokens and parts that are frozen.  A row is a
 * plan and the trained parameters as a sum of modules made by hand, with PEFT's rules (named beside it; PEFT 0.20).
 *
 * A small Llama: words and head apart, three layers of width 64 and feed-forward 128, four heads of 16, two of keys and
 * values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <string.h>

#include "oomplan/ladder.h"
#include "knobs.h"

enum { V = 1000, H = 64, F = 128, L = 3, KV = 32 };
#define LLAMA \
	"{\"model_type\": \"llama\", \"vocab_size\": 1000, \"hidden_size\": 64, \"intermediate_size\": 128, " \
	"\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"tie_word_embeddings\": false}"
#define BERT \
	"{\"model_type\": \"bert\", \"vocab_size\": 1000, \"hidden_size\": 64, \"intermediate_size\": 128, " \
	"\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"max_position_embeddings\": 512}"
/* A and B of rank r on a layer */
#define LORA(r, in, out) ((r) * ((in) + (out)))
#define Q(r) LORA(r, H, H)
#define K(r) LORA(r, H, KV)
#define O(r) LORA(r, H, H)
#define UP(r) LORA(r, H, F)
#define DOWN(r) LORA(r, F, H)
#define ALL(r) (Q(r) + 2 * K(r) + O(r) + 2 * UP(r) + DOWN(r))
/* the model itself */
#define LAYER (H * H + 2 * H * KV + H * H + 3 * H * F + 2 * H)
#define WHOLE (2 * V * H + L * LAYER + H)

static const struct row {
	const char *plan;
	uint64_t trained;
} of_llama[] = {
	{"", WHOLE},

	/* LoRA; PEFT's targets of Llama are q_proj and v_proj (utils/constants.py) */
	{"lora-r=8", L * (Q(8) + K(8))},
	{"lora-r=4", L * (Q(4) + K(4))},
	{"lora-r=8 lora-targets=q_proj", L *Q(8)},
	{"lora-r=8 lora-targets=k_proj+down_proj", L * (K(8) + DOWN(8))},
	{"lora-r=8 lora-targets=all-linear", L *ALL(8)},
	{"lora-r=8 lora-targets=q_proj+lm_head", L *Q(8) + LORA(8, H, V)},
	{"lora-r=8 lora-targets=embed_tokens", LORA(8, V, H)},
	{"lora-r=8 lora-targets=all-linear qlora=true", L *ALL(8)},
	{"lora-r=8 lora-targets=all-linear base-weights=int8", L *ALL(8)},
	/* what LoRA begins with and how it is scaled are no other matrices (tuners/lora/config.py init_lora_weights,
	 * use_rslora; optimizers/loraplus.py) */
	{"lora-r=8 peft-type=rslora", L * (Q(8) + K(8))},
	{"lora-r=8 peft-type=lora+", L * (Q(8) + K(8))},
	{"lora-r=8 peft-type=pissa", L * (Q(8) + K(8))},
	{"lora-r=8 peft-type=olora", L * (Q(8) + K(8))},
	{"lora-r=8 peft-type=loftq qlora=true", L * (Q(8) + K(8))},

	/* the whole path is compared: its end, or all of it by a regular expression (tuners_utils.py
	 * check_target_module_exists) */
	{"lora-r=8 lora-targets=self_attn.q_proj", L *Q(8)},
	{"lora-r=8 lora-targets=model.layers.1.self_attn.q_proj", Q(8)},
	{"lora-r=8 lora-targets=.*layers\\.[02]\\..*\\.(q|v)_proj", 2 * (Q(8) + K(8))},
	{"lora-r=8 lora-targets=.*_proj", L *ALL(8)},
	{"lora-r=8 exclude-modules=v_proj", L *Q(8)},
	{"lora-r=8 lora-targets=all-linear exclude-modules=gate_proj+up_proj", L * (ALL(8) - 2 * UP(8))},
	{"lora-r=8 exclude-modules=layers.0.self_attn.q_proj", L * (Q(8) + K(8)) - Q(8)},

	/* some layers alone */
	{"lora-r=8 layers-to-transform=1", Q(8) + K(8)},
	{"lora-r=8 layers-to-transform=0+2", 2 * (Q(8) + K(8))},
	{"lora-r=8 layers-to-transform=0 lora-targets=q_proj+lm_head", Q(8)},

	/* ranks of their own (utils/other.py get_pattern_key) */
	{"lora-r=8 rank-pattern=v_proj:4", L * (Q(8) + K(4))},
	{"lora-r=8 rank-pattern=q_proj:16+v_proj:2", L * (Q(16) + K(2))},
	{"lora-r=8 rank-pattern=layers.1.self_attn.q_proj:1", L * (Q(8) + K(8)) - Q(8) + Q(1)},

	/* DoRA: a magnitude per output (tuners/lora/dora.py) */
	{"lora-r=8 use-dora=true", L * (Q(8) + H + K(8) + KV)},
	{"lora-r=8 lora-targets=all-linear peft-type=dora", L * (ALL(8) + 3 * H + 2 * KV + 2 * F)},

	/* beside the adapters */
	{"lora-r=8 modules-to-save=lm_head", L * (Q(8) + K(8)) + V *H},
	{"lora-r=8 modules-to-save=lm_head+embed_tokens", L * (Q(8) + K(8)) + 2 * V *H},
	/* whatever ends in the word, the norms of all layers among them */
	{"lora-r=8 modules-to-save=norm", L * (Q(8) + K(8)) + (2 * L + 1) * H},
	{"lora-r=8 modules-to-save=post_attention_layernorm", L * (Q(8) + K(8)) + L * H},
	{"lora-r=8 trainable-tokens=5", L * (Q(8) + K(8)) + 5 * H},
	{"lora-r=8 idle-adapters=2", L * (Q(8) + K(8))},
	{"lora-r=8 lora-bias=all", L * (Q(8) + K(8))},          /* there is no bias */

	/* other kinds */
	{"peft-type=ln-tuning", L * 2 * H + H},
	{"peft-type=prompt-tuning num-virtual-tokens=10", 10 * H},
	/* keys and values of each layer, as wide as the grouped heads (tuners/prefix_tuning/model.py) */
	{"peft-type=prefix-tuning num-virtual-tokens=10", 10 * L * 2 * KV},
	/* an embedding and three layers of the encoder (tuners/p_tuning/model.py) */
	{"peft-type=p-tuning num-virtual-tokens=10", 10 * H + 3 * (H * H + H)},
	/* one vector of rank and one of outputs; A and B are shared and frozen (tuners/vera/layer.py) */
	{"peft-type=vera lora-r=8 lora-targets=q_proj", L * (8 + H)},
	/* k_proj, v_proj and the input of down_proj (utils/constants.py) */
	{"peft-type=ia3 lora-targets=k_proj+v_proj+down_proj", L * (2 * KV + F)},

	/* without adapters */
	{"freeze=embed_tokens", WHOLE - V *H},
	{"freeze=embed_tokens+lm_head", WHOLE - 2 * V *H},
	{"train=lm_head", V *H},
	{"train=q_proj+v_proj", L * (H * H + H * KV)},
	{"train=.*layernorm.*", L * 2 * H},
	{"freeze=.*layers\\.[01]\\..*", WHOLE - 2 * LAYER},
};

/* q, k, v, o with biases; feed-forward with biases; norms; embeddings; pooler or head by task */
#define LIN(in, out) ((in) * (out) + (out))
#define BERT_LAYER (4 * LIN(H, H) + LIN(H, F) + LIN(F, H) + 4 * H)

static const struct row of_bert[] = {
	/* query and value (utils/constants.py) */
	{"lora-r=8", L * 2 * LORA(8, H, H)},
	/* "dense" is three layers of each, and of the head's transform */
	{"lora-r=8 lora-targets=dense", L * (LORA(8, H, H) + LORA(8, H, F) + LORA(8, F, H)) + LORA(8, H, H)},
	{"lora-r=8 lora-targets=attention.output.dense", L *LORA(8, H, H)},
	/* every bias: those of the adapted layers and all others */
	{"lora-r=8 lora-bias=lora-only", L * 2 * (LORA(8, H, H) + H)},
	/* a classifier's head is a linear layer like the others, and the pooler is */
	{"task=seq-cls lora-r=8 lora-targets=all-linear",
	 L * (4 * LORA(8, H, H) + LORA(8, H, F) + LORA(8, F, H)) + LORA(8, H, H) + LORA(8, H, 2)},
	{"task=seq-cls train=classifier", LIN(H, 2)},
	{"task=seq-cls freeze=embeddings",
	 L *BERT_LAYER + LIN(H, H) + LIN(H, 2)},
};

/* Scales that lie in a layer and in none of its modules are not the embeddings': what transformers 5.12 counts. */
#define BEIT "{\"model_type\": \"beit\", \"num_hidden_layers\": 4}"
static const struct row of_beit[] = {
	{"task=image-cls freeze=embed|wte|word_embeddings", 28357634},
};

static struct oom_plan plan(const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	p.micro_batch = 2;
	p.seq_len = 32;
	return p;
}

/* As every command does: the family's targets where the plan names none. */
static enum oom_status price(const char *json, struct oom_plan p, struct oom_eval *e, struct oom_error *err)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	char note[300];
	enum oom_status st = oom_keys_parse(&keys, json, strlen(json), "config.json", err);

	assert_non_null(ev);
	if (!st)
		st = oom_model_new(&m, &keys, err);
	if (!st) {
		oom_plan_settle_for(&p, m, note);
		st = oom_evaluate(ev, m, &p, OOM_EVAL_FAST, e, err);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return st;
}

static int wrong(const char *json, const struct row *rows, size_t n)
{
	int bad = 0;

	for (size_t i = 0; i < n; i++) {
		const struct oom_plan p = plan(rows[i].plan);
		struct oom_error err = {{0}};
		struct oom_eval e;

		if (price(json, p, &e, &err)) {
			print_error("%s: %s\n", rows[i].plan, err.text);
			bad++;
		} else if (e.trainable_params != rows[i].trained) {
			print_error("%s: %llu parameters are trained, not %llu\n", rows[i].plan,
				    (unsigned long long)e.trainable_params, (unsigned long long)rows[i].trained);
			bad++;
		}
	}
	return bad;
}

static void sums(void **state)
{
	(void)state;
	assert_int_equal(wrong(LLAMA, of_llama, sizeof(of_llama) / sizeof(of_llama[0])) +
				 wrong(BERT, of_bert, sizeof(of_bert) / sizeof(of_bert[0])) + wrong(BEIT, of_beit, 1), 0);
}

/* A number names a layer and whatever else ends in it: of twelve 1 and 11, which are trained whole, without adapters (PEFT
 * tuners/tuners_utils.py inject_adapter: key.endswith, before their own layers are met). */
static void layers_saved_by_number(void **state)
{
	const struct oom_plan p = plan("lora-r=8 modules-to-save=1 num-layers=12");
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	assert_int_equal(price(LLAMA, p, &e, &err), OOM_OK);
	assert_int_equal(e.trainable_params, 10 * (Q(8) + K(8)) + 2 * LAYER);
}

/* Names that choose nothing, and choices that leave nothing: a sentence with the names that there are. */
static void refusals(void **state)
{
	static const struct {
		const char *plan, *says;
	} cases[] = {
		{"lora-r=8 lora-targets=query", "lora-targets \"query\" match no layer of this model; it has: all-linear, embed_tokens, q_proj"},
		{"lora-r=8 rank-pattern=v_proj", "rank-pattern: \"v_proj\": expected NAME:RANK, a rank of 1 to 8192"},
		{"lora-r=8 rank-pattern=v_proj:0", "rank-pattern: \"v_proj:0\": expected NAME:RANK"},
		{"lora-r=8 rank-pattern=v_proj:9000", "rank-pattern: \"v_proj:9000\": expected NAME:RANK"},
		{"lora-r=8 rank-pattern=k_proj:4", "rank-pattern: \"k_proj\" is no module with an adapter"},
		{"freeze=nothing_like_it", "freeze \"nothing_like_it\" matches no parameter of this model; its modules: embed_tokens"},
		{"train=nothing_like_it", "train \"nothing_like_it\" matches no parameter of this model"},
		{"freeze=.*", "nothing is left to train"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan(cases[i].plan);
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_equal(price(LLAMA, p, &e, &err), OOM_ERR_INVALID);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%s: %s", cases[i].plan, err.text);
	}
}

/* Whatever trains, the parts are whole: what is trained is at most what there is, adapters come on top of the model, and
 * gradients are of what is trained. */
static void what_trains_is_there(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(of_llama) / sizeof(of_llama[0]); i++) {
		const struct oom_plan p = plan(of_llama[i].plan);
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_equal(price(LLAMA, p, &e, &err), OOM_OK);
		assert_true(e.trainable_params <= e.total_params);
		assert_true(e.total_params >= WHOLE);
		if (!oom_plan_adapted(&p))
			assert_int_equal(e.total_params, WHOLE);
		else if (!p.idle_adapters && p.peft_type == OOM_ADAPTER_LORA)
			assert_int_equal(e.total_params, WHOLE + e.trainable_params);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums), cmocka_unit_test(layers_saved_by_number),
		cmocka_unit_test(refusals),
		cmocka_unit_test(what_trains_is_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
