/* Rows of config keys: what each kind of row reads, what a silent config means, and how a bad value is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/keys.h"

struct own {
	uint64_t groups, wide;
	bool clips;
	double ratio;
};
OOM_OWN(own, struct own);

static const struct oom_key_row rows[] = {
	OOM_DECODER_KEYS,
	OOM_GROUPED_KEYS,
	LIKE(d_ff, "intermediate_size", 4, d_model),
	QUOTIENT(v_head_dim, "v_head_dim", d_model, n_heads),
	OOM_USUAL_KEYS,
	OOM_BIAS_KEYS(true),
	ACT(act, "hidden_act", "gelu"),
	OR_OWN(struct own, groups, "n_groups", 7),
	LIKE_OWN(struct own, wide, "wide", 2, d_ff),
	FLAG_OWN(struct own, clips, "clip.on", false),
	REAL_OWN(struct own, ratio, "clip.ratio", 0.5),
	OOM_KEYS_END,
};

#define SIZES "\"vocab_size\": 100, \"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4"

/* A reader over the text, with the defaults of a type behind it. */
static void read_with(struct oom_arch *a, struct oom_keys *keys, struct oom_keys *defaults, const char *json,
		      const char *behind)
{
	struct oom_error err = {{0}};

	memset(a, 0, sizeof(*a));
	if (oom_keys_parse(keys, json, strlen(json), "config.json", &err) ||
	    oom_keys_parse(defaults, behind, strlen(behind), "defaults", &err))
		fail_msg("%s", err.text);
	a->rd = (struct oom_reader){.keys = keys, .defaults = defaults, .prefix = "", .family = "test"};
	oom_read_rows(a, rows);
}

static void release(struct oom_keys *keys, struct oom_keys *defaults)
{
	oom_keys_release(keys);
	oom_keys_release(defaults);
}

static void a_silent_config(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{" SIZES "}", "{}");
	assert_int_equal(a.rd.status, OOM_OK);
	assert_int_equal(a.vocab, 100);
	assert_int_equal(a.d_model, 64);
	assert_int_equal(a.n_layers, 3);
	assert_int_equal(a.n_kv_heads, 4);              /* as many as queries have */
	assert_int_equal(a.head_dim, 16);               /* 64 / 4 */
	assert_int_equal(a.d_ff, 256);                  /* 4 x 64 */
	assert_int_equal(a.v_head_dim, 16);
	assert_int_equal(a.max_positions, 0);
	assert_false(a.tie);
	assert_true(a.qkv_bias && a.o_bias);
	assert_true(a.attn_dropout == 0);
	assert_int_equal(a.act, OOM_ACT_GELU);
	assert_int_equal(own_of(&a)->groups, 7);
	assert_int_equal(own_of(&a)->wide, 512);        /* twice a field that an earlier row filled */
	assert_false(own_of(&a)->clips);
	assert_true(own_of(&a)->ratio == 0.5);
	release(&keys, &defaults);
}

static void a_config_that_says_all(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults,
		  "{" SIZES ", \"num_key_value_heads\": 2, \"head_dim\": 24, \"intermediate_size\": 90, \"v_head_dim\": 8,"
		  "\"max_position_embeddings\": 512, \"tie_word_embeddings\": true, \"attention_dropout\": 0.25,"
		  "\"attention_bias\": false, \"hidden_act\": \"silu\", \"n_groups\": 3, \"wide\": 5,"
		  "\"clip\": {\"on\": true, \"ratio\": 0.75}}",
		  "{}");
	assert_int_equal(a.rd.status, OOM_OK);
	assert_int_equal(a.n_kv_heads, 2);
	assert_int_equal(a.head_dim, 24);
	assert_int_equal(a.d_ff, 90);
	assert_int_equal(a.v_head_dim, 8);
	assert_int_equal(a.max_positions, 512);
	assert_true(a.tie);
	assert_true(a.attn_dropout == 0.25);
	assert_false(a.qkv_bias || a.o_bias);
	assert_int_equal(a.act, OOM_ACT_SILU);
	assert_int_equal(own_of(&a)->groups, 3);
	assert_int_equal(own_of(&a)->wide, 5);
	assert_true(own_of(&a)->clips);
	assert_true(own_of(&a)->ratio == 0.75);
	release(&keys, &defaults);
}

/* The type's defaults come before a row's, and behind the config: null is as good as silence. */
static void defaults_of_the_type(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{\"hidden_size\": 32, \"n_groups\": null, \"attention_bias\": null}",
		  "{\"defaults\": {" SIZES ", \"n_groups\": 9, \"intermediate_size\": 77, \"attention_bias\": false},"
		  "\"aliases\": {\"n_embd\": \"hidden_size\"}}");
	assert_int_equal(a.rd.status, OOM_OK);
	assert_int_equal(a.d_model, 32);
	assert_int_equal(a.vocab, 100);
	assert_int_equal(a.head_dim, 8);
	assert_int_equal(a.d_ff, 77);
	assert_int_equal(own_of(&a)->groups, 7);        /* null in the config: the row's, as in Python */
	assert_true(a.qkv_bias);
	release(&keys, &defaults);

	/* an older name of a key leads to it */
	read_with(&a, &keys, &defaults, "{\"n_embd\": 48}",
		  "{\"defaults\": {" SIZES "}, \"aliases\": {\"n_embd\": \"hidden_size\"}}");
	assert_int_equal(a.rd.status, OOM_OK);
	assert_int_equal(a.d_model, 48);
	release(&keys, &defaults);
}

/* What no model has is refused with its key and its line; the first failure stands. */
static void impossible_values(void **state)
{
	static const struct {
		const char *json, *key;
	} cases[] = {
		{"{\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4}", "vocab_size"},
		{"{" SIZES ",\n\"num_key_value_heads\": 0}", "num_key_value_heads"},
		{"{" SIZES ",\n\"num_key_value_heads\": -2}", "num_key_value_heads"},
		{"{" SIZES ",\n\"head_dim\": 1.5}", "head_dim"},
		{"{" SIZES ",\n\"intermediate_size\": \"wide\"}", "intermediate_size"},
		{"{" SIZES ",\n\"intermediate_size\": 1e30}", "intermediate_size"},
		{"{" SIZES ",\n\"n_groups\": [1, 2]}", "n_groups"},
		{"{" SIZES ",\n\"attention_dropout\": \"none\"}", "attention_dropout"},
		{"{" SIZES ",\n\"hidden_act\": \"no_such_thing\"}", "no_such_thing"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys, defaults;
		struct oom_arch a;

		read_with(&a, &keys, &defaults, cases[i].json, "{}");
		if (!a.rd.status || !strstr(a.rd.err.text, cases[i].key))
			fail_msg("%s: \"%s\" does not name %s", cases[i].json, a.rd.err.text, cases[i].key);
		if (i && !strstr(a.rd.err.text, "config.json:2"))
			fail_msg("%s: \"%s\" does not name the line", cases[i].json, a.rd.err.text);
		release(&keys, &defaults);
	}
}

static void the_first_failure_stands(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{" SIZES ", \"head_dim\": -1, \"intermediate_size\": -1}", "{}");
	assert_non_null(strstr(a.rd.err.text, "head_dim"));
	assert_null(strstr(a.rd.err.text, "intermediate_size"));
	release(&keys, &defaults);
}

/* A quotient of nothing is 0, no division. */
static void a_quotient_over_nothing(void **state)
{
	static const struct oom_key_row over[] = {QUOTIENT(d_ff, "d_ff", d_model, n_heads), OOM_KEYS_END};
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{" SIZES "}", "{}");
	a.n_heads = 0;
	a.d_model = 64;
	oom_read_rows(&a, over);
	assert_int_equal(a.d_ff, 0);
	release(&keys, &defaults);
}

static void more_experts_than_there_are(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{" SIZES "}", "{}");
	a.n_experts = 8;
	a.top_k = 8;
	oom_check_experts(&a);
	assert_int_equal(a.rd.status, OOM_OK);
	a.top_k = 9;
	oom_check_experts(&a);
	assert_int_not_equal(a.rd.status, OOM_OK);
	assert_non_null(strstr(a.rd.err.text, "num_experts_per_tok (9) is more than the 8 experts"));
	release(&keys, &defaults);
}

/* Layer i has the trait where i leaves the offset over the period (Jamba's attn_layer_period and _offset). */
static void every_nth_layer(void **state)
{
	static const struct {
		uint64_t period, offset;
		const char *layers;     /* of eight, one letter each */
		bool any;
	} cases[] = {
		{1, 0, "xxxxxxxx", true}, {2, 0, "x.x.x.x.", true}, {2, 1, ".x.x.x.x", true},
		{8, 4, "....x...", true}, {3, 2, "..x..x..", true}, {2, 2, "........", false},
		{9, 8, "........", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys, defaults;
		struct oom_arch a;
		char json[300];

		snprintf(json, sizeof(json), "{" SIZES ", \"period\": %d, \"offset\": %d}", (int)cases[i].period,
			 (int)cases[i].offset);
		read_with(&a, &keys, &defaults, json, "{}");
		a.n_layers = 8;
		a.kind[0] = 1;          /* another trait's bit stays */
		assert_int_equal(oom_read_every(&a, "period", "offset", 4), cases[i].any);
		for (size_t k = 0; k < 8; k++)
			assert_int_equal(a.kind[k], (k ? 0 : 1) | (cases[i].layers[k] == 'x' ? 4 : 0));
		assert_int_equal(a.kind[8], 0);
		release(&keys, &defaults);
	}
}

/* What is said of layers one by one, and where the config is silent. */
static void lists_of_layers(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults,
		  "{" SIZES ", \"layer_types\": [\"sliding_attention\", \"full_attention\"], \"dense\": [0, 2], \"one\": 2}",
		  "{}");
	assert_true(oom_read_says(&a, "layer_types", 0, "sliding_attention", false));
	assert_false(oom_read_says(&a, "layer_types", 1, "sliding_attention", true));
	assert_true(oom_read_says(&a, "layer_types", 2, "sliding_attention", true));   /* past its end */
	assert_false(oom_read_says(&a, "no_such_list", 0, "sliding_attention", false));
	assert_true(oom_read_lists(&a, "dense", 0) && oom_read_lists(&a, "dense", 2));
	assert_false(oom_read_lists(&a, "dense", 1) || oom_read_lists(&a, "no_such_list", 0));
	assert_true(oom_read_listed(&a, "dense"));
	assert_false(oom_read_listed(&a, "one") || oom_read_listed(&a, "no_such_list"));
	assert_false(oom_read_lists(&a, "one", 2));     /* a number is no list */
	a.kind[2] = 5;
	assert_int_equal(oom_layer_kind(&a, 2), 5);
	assert_int_equal(oom_layer_kind(&a, OOM_MAX_LAYERS), 0);
	release(&keys, &defaults);
}

/* A window is a number of tokens or none; rope_parameters' word for the rotated share comes before the older key's. */
static void windows_and_shares(void **state)
{
	static const struct {
		const char *json;
		uint64_t window;
		double share;
	} cases[] = {
		{"{" SIZES "}", 0, 0.75},
		{"{" SIZES ", \"sliding_window\": 4096, \"partial_rotary_factor\": 0.5}", 4096, 0.5},
		{"{" SIZES ", \"sliding_window\": null, \"partial_rotary_factor\": 0.5,"
		 "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}}", 0, 0.25},
		{"{" SIZES ", \"sliding_window\": -1}", 0, 0.75},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys, defaults;
		struct oom_arch a;

		read_with(&a, &keys, &defaults, cases[i].json, "{}");
		assert_int_equal(oom_read_sliding(&a), cases[i].window);
		assert_true(oom_read_rotary(&a, 0.75) == cases[i].share);
		release(&keys, &defaults);
	}
}

static void a_warning(void **state)
{
	struct oom_keys keys, defaults;
	struct oom_arch a;

	(void)state;
	read_with(&a, &keys, &defaults, "{" SIZES "}", "{}");
	oom_warn(&a, "%d layers are %s", 3, "approximated");
	assert_string_equal(a.warning, "3 layers are approximated");
	oom_warn(&a, "%d layers are %s", 3, "approximated");
	oom_warn(&a, "heads are guessed");
	assert_string_equal(a.warning, "3 layers are approximated heads are guessed");
	assert_int_equal(a.rd.status, OOM_OK);
	release(&keys, &defaults);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_config),
		cmocka_unit_test(a_config_that_says_all),
		cmocka_unit_test(defaults_of_the_type),
		cmocka_unit_test(impossible_values),
		cmocka_unit_test(the_first_failure_stands),
		cmocka_unit_test(a_quotient_over_nothing),
		cmocka_unit_test(more_experts_than_there_are),
		cmocka_unit_test(every_nth_layer),
		cmocka_unit_test(lists_of_layers),
		cmocka_unit_test(windows_and_shares),
		cmocka_unit_test(a_warning),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
