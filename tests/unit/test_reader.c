/* Reading a config's keys: which spelling counts, whose default, what is refused, and which key is named in a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "blocks/image.h"
#include "config/arch.h"

static struct oom_keys file, type;

/* A reader of one config with the defaults and aliases of one type behind it. */
static struct oom_reader reader(const char *json, const char *defaults)
{
	struct oom_error err = {{0}};

	oom_keys_release(&file);
	oom_keys_release(&type);
	if (oom_keys_parse(&file, json, strlen(json), "config.json", &err) ||
	    oom_keys_parse(&type, defaults, strlen(defaults), "defaults", &err))
		fail_msg("%s", err.text);
	return (struct oom_reader){.keys = &file, .defaults = &type, .prefix = "", .family = "test"};
}

static int release(void **state)
{
	(void)state;
	oom_keys_release(&file);
	oom_keys_release(&type);
	return 0;
}

#define ALIASES "\"aliases\": {\"n_embd\": \"hidden_size\"}"

/* The key itself, then its other spelling, then the type's default under either. */
static void which_spelling_counts(void **state)
{
	static const struct {
		const char *json, *defaults;
		uint64_t size;
	} cases[] = {
		{"{\"hidden_size\": 5}", "{}", 5},
		{"{\"n_embd\": 6}", "{" ALIASES "}", 6},
		{"{\"n_embd\": 6, \"hidden_size\": 5}", "{" ALIASES "}", 5},
		{"{}", "{\"defaults\": {\"hidden_size\": 7}, " ALIASES "}", 7},
		{"{}", "{\"defaults\": {\"n_embd\": 8}, " ALIASES "}", 8},
		{"{\"n_embd\": 6}", "{\"defaults\": {\"hidden_size\": 7}, " ALIASES "}", 6},
		{"{\"n_embd\": 6}", "{}", 9},           /* the type does not know that word: the caller's default */
		{"{\"hidden_size\": null}", "{}", 9},
		{"{\"hidden_size\": null}", "{\"defaults\": {\"hidden_size\": 7}}", 9}, /* as Python's None */
		{"{\"hidden_size\": 0}", "{}", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_reader r = reader(cases[i].json, cases[i].defaults);
		const uint64_t got = oom_read_count_or(&r, "hidden_size", 9);

		if (r.status || got != cases[i].size)
			fail_msg("%s, %s: %llu %s", cases[i].json, cases[i].defaults, (unsigned long long)got, r.err.text);
	}
}

/* Of an unknown type other traditions' words are taken, too. */
static void other_traditions_words(void **state)
{
	struct oom_reader r = reader("{\"n_embd\": 6, \"n_layer\": 3, \"n_head\": 2}", "{}");
	size_t words = 0;

	(void)state;
	r.loose = true;
	assert_int_equal(oom_read_count_or(&r, "hidden_size", 9), 6);
	assert_int_equal(oom_read_count_or(&r, "num_hidden_layers", 9), 3);
	assert_int_equal(oom_read_count_or(&r, "num_attention_heads", 9), 2);
	while (oom_read_other_word("hidden_size", words))
		words++;
	assert_in_range(words, 2, 20);
	assert_null(oom_read_other_word("no_such_size", 0));
}

/* A sub config's keys stand behind its prefix; what the composition says of an absent one comes before the type's. */
static void sub_configs(void **state)
{
	static const char composition[] = "{\"text_config\": {\"hidden_size\": 11, \"num_hidden_layers\": 12}}";
	struct oom_keys over = {0};
	struct oom_error err = {{0}};
	struct oom_reader r = reader("{\"hidden_size\": 5, \"text_config\": {\"hidden_size\": 6}}",
				     "{\"defaults\": {\"hidden_size\": 7, \"num_hidden_layers\": 8, \"vocab_size\": 9}}");

	(void)state;
	r.prefix = "text_config.";
	assert_int_equal(oom_read_count_or(&r, "hidden_size", 1), 6);
	assert_int_equal(oom_read_count_or(&r, "num_hidden_layers", 1), 8);
	assert_int_equal(oom_keys_parse(&over, composition, strlen(composition), "composition", &err), OOM_OK);
	r.over = &over;
	r.over_prefix = "text_config.";
	assert_int_equal(oom_read_count_or(&r, "hidden_size", 1), 6);
	assert_int_equal(oom_read_count_or(&r, "num_hidden_layers", 1), 12);
	assert_int_equal(oom_read_count_or(&r, "vocab_size", 1), 9);
	assert_null(oom_read_explicit(&r, "num_hidden_layers"));
	assert_non_null(oom_read_explicit(&r, "hidden_size"));
	oom_keys_release(&over);
}

static void values_of_each_kind(void **state)
{
	struct oom_reader r = reader("{\"on\": true, \"off\": false, \"one\": 1, \"share\": 0.25, \"word\": \"silu\", "
				     "\"list\": [1, 2.5, \"x\", true, null], \"nothing\": null, \"minus\": -3}", "{}");

	(void)state;
	assert_true(oom_read_bool(&r, "on", false));
	assert_false(oom_read_bool(&r, "off", true));
	assert_true(oom_read_bool(&r, "one", false));           /* Python's truth */
	assert_true(oom_read_bool(&r, "nothing", true));
	assert_true(oom_read_bool(&r, "absent", true));
	assert_true(oom_read_real(&r, "share", 1) == 0.25);
	assert_true(oom_read_real(&r, "minus", 1) == -3);
	assert_true(oom_read_real(&r, "absent", 0.5) == 0.5);
	assert_string_equal(oom_read_string(&r, "word", "gelu"), "silu");
	assert_string_equal(oom_read_string(&r, "absent", "gelu"), "gelu");
	assert_string_equal(oom_read_string(&r, "one", "gelu"), "gelu");
	assert_true(oom_read_item_real(&r, "list", 0, 9) == 1 && oom_read_item_real(&r, "list", 1, 9) == 2.5);
	assert_true(oom_read_item_real(&r, "list", 2, 9) == 9 && oom_read_item_real(&r, "list", 3, 9) == 1);
	assert_true(oom_read_item_real(&r, "list", 4, 9) == 9 && oom_read_item_real(&r, "list", 5, 9) == 9);
	assert_true(oom_read_item_real(&r, "one", 0, 9) == 9);
	assert_string_equal(oom_read_item(&r, "list", 2), "x");
	assert_null(oom_read_item(&r, "list", 0));
	assert_null(oom_read_item(&r, "word", 0));
	assert_int_equal(r.status, OOM_OK);
}

/* Each refusal names the file, the line, the key as the file spells it, and what was expected. */
static void refusals(void **state)
{
	static const struct {
		const char *json, *defaults, *says;
		char kind;
	} cases[] = {
		{"{}", "{}", "config.json: key \"n\" is missing; model type test needs it", 'c'},
		{"{\n\"n\": null}", "{}", "config.json:2: \"n\" is null; model type test needs a number", 'c'},
		{"{\n\"n\": 0}", "{}", "config.json:2: \"n\" is 0; expected a whole number from 1 to 2^40 (model type test)", 'c'},
		{"{\n\"n\": 1.5}", "{}", "config.json:2: \"n\" is 1.5; expected a whole number from 1 to 2^40 (model type test)", 'c'},
		{"{\n\"n\": 1099511627777}", "{}",
		 "config.json:2: \"n\" is 1099511627777; expected a whole number from 1 to 2^40 (model type test)", 'c'},
		{"{\n\"n\": NaN}", "{}", "config.json:2: \"n\" is nan; expected a whole number from 1 to 2^40 (model type test)", 'c'},
		{"{\n\"n\": \"many\"}", "{}", "config.json:2: \"n\" must be a number (model type test)", 'c'},
		{"{\n\"m\": -1}", "{\"aliases\": {\"m\": \"n\"}}",
		 "config.json:2: \"m\" is -1; expected a whole number from 1 to 2^40 (model type test)", 'c'},
		{"{\n\"n\": \"yes\"}", "{}", "config.json:2: \"n\" must be true or false", 'b'},
		{"{\n\"n\": [true]}", "{}", "config.json:2: \"n\" must be true or false", 'b'},
		{"{\n\"n\": \"half\"}", "{}", "config.json:2: \"n\" must be a number", 'r'},
		{"{\n\"n\": 1e13}", "{}", "config.json:2: \"n\" is 1e+13; expected a number up to 2^40", 'r'},
		{"{\n\"n\": -1e13}", "{}", "config.json:2: \"n\" is -1e+13; expected a number up to 2^40", 'r'},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_reader r = reader(cases[i].json, cases[i].defaults);

		switch (cases[i].kind) {
		case 'c': assert_true(oom_read_count(&r, "n", 1) >= 1); break;
		case 'b': oom_read_bool(&r, "n", false); break;
		default: oom_read_real(&r, "n", 0); break;
		}
		assert_int_equal(r.status, OOM_ERR_INVALID);
		if (strcmp(r.err.text, cases[i].says))
			fail_msg("%s: \"%s\", expected \"%s\"", cases[i].json, r.err.text, cases[i].says);
	}
}

/* To a refusal that comes later belongs the size that is behind it: one beyond all models, or one that is nothing. */
static void the_size_behind_a_refusal(void **state)
{
	struct oom_error err = {"the step needs too much"};
	struct oom_reader r = reader("{\"hidden_size\": 17000000, \"vocab_size\": 100}", "{}");

	(void)state;
	oom_read_count(&r, "vocab_size", 1);
	oom_read_count(&r, "hidden_size", 1);
	oom_read_explain(&r, OOM_SUSPECT_LARGE, &err);
	assert_string_equal(err.text, "the step needs too much; \"hidden_size\" in the config is 17000000");
	r = reader("{\"groups\": 0, \"vocab_size\": 100}", "{}");
	oom_read_count_or(&r, "vocab_size", 1);
	oom_read_count_or(&r, "groups", 1);
	strcpy(err.text, "rows of no width");
	oom_read_explain(&r, OOM_SUSPECT_NOTHING, &err);
	assert_string_equal(err.text, "rows of no width; \"groups\" in the config is 0");
	/* a key that is named already is not named again; one that the file spells otherwise is */
	r = reader("{\"n_embd\": 100}", "{" ALIASES "}");
	oom_read_count_or(&r, "hidden_size", 1);
	strcpy(err.text, "hidden_size (100) is not a multiple of 7");
	oom_read_explain(&r, OOM_SUSPECT_LARGE, &err);
	assert_string_equal(err.text, "hidden_size (100) is not a multiple of 7 (hidden_size: \"n_embd\" in the config)");
}

/* Where the config alone is refused, the size that is furthest from the type's own is named: neither a number that is no
 * size, nor one that the message has, nor any beside it. */
static void the_strangest_size(void **state)
{
	static const char own[] = "{\"defaults\": {\"n\": 8, \"m\": 64, \"k\": null, \"side\": [224, 224], \"rope_theta\": 1e4, "
				  "\"max_positions\": 2}, \"aliases\": {\"older\": \"n\"}}";
	static const struct {
		const char *json, *said, *more;
		enum oom_suspects whom;
	} cases[] = {
		{"{\"n\": 9, \"m\": 1, \"rope_theta\": 1e8}", "no model",
		 "; of the config's sizes \"m\" is furthest from the type's own: 1, not 64", OOM_SUSPECT_ANY},
		{"{\"older\": 9, \"m\": 64}", "no model",
		 "; of the config's sizes \"older\" is furthest from the type's own: 9, not 8", OOM_SUSPECT_ANY},
		{"{\"n\": 9, \"m\": 1}", "n (9) does not divide", "", OOM_SUSPECT_ANY},
		{"{\"m\": 1, \"act\": \"foo\"}", "act is unknown", "", OOM_SUSPECT_ANY},
		{"{\"n\": 8}", "no model", "", OOM_SUSPECT_ANY},
		{"{\"n\": 8, \"k\": 3}", "no model",
		 "; of the config's sizes \"k\" is furthest from the type's own: 3, not null", OOM_SUSPECT_ANY},
		{"{\"n\": null}", "no model",
		 "; of the config's sizes \"n\" is furthest from the type's own: null, not 8", OOM_SUSPECT_ANY},
		{"{\"n\": 800, \"side\": 65536}", "too much",
		 "; of the config's sizes \"side\" is furthest from the type's own: 65536, not 224", OOM_SUSPECT_LARGE},
		/* a plan may be too large as well: sizes of other models are no reason */
		{"{\"n\": 80, \"max_positions\": 1048576}", "too much", "", OOM_SUSPECT_LARGE},
		{"{\"n\": 1}", "lora-targets match nothing", "", OOM_SUSPECT_NOTHING},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_reader r = reader(cases[i].json, own);
		struct oom_error err = {""};
		char want[300];

		snprintf(want, sizeof(want), "%s%s", cases[i].said, cases[i].more);
		strcpy(err.text, cases[i].said);
		oom_read_explain(&r, cases[i].whom, &err);
		assert_string_equal(err.text, want);
	}
}

static void where_a_depth_comes_from(void **state)
{
	struct oom_reader r = reader("{\"hidden_size\": 12, \"n_layer\": 12, \"decoder_depth\": 7}", "{}");

	(void)state;
	assert_string_equal(oom_read_where(&r, 12), "n_layer");         /* not the size that happens to be equal */
	assert_string_equal(oom_read_where(&r, 7), "decoder_depth");
	assert_string_equal(oom_read_where(&r, 5), "num_hidden_layers");
}

/* Classes: as many as have names, else as many as it says, else two (transformers configuration_utils.py). */
static void classes(void **state)
{
	static const struct {
		const char *json;
		uint64_t n;
	} cases[] = {
		{"{}", 2},
		{"{\"num_labels\": 5}", 5},
		{"{\"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}}", 3},
		{"{\"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}, \"num_labels\": 5}", 3},
		{"{\"id2label\": {}, \"num_labels\": 5}", 5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_reader r = reader(cases[i].json, "{}");

		assert_int_equal(oom_read_labels(&r), cases[i].n);
		assert_int_equal(r.status, OOM_OK);
	}
}

/* ---- of images ---- */

static void lists_of_counts(void **state)
{
	uint64_t out[4] = {0};
	double real[3];
	struct oom_reader r = reader("{\"depths\": [2, 3, 4], \"none\": [], \"wrong\": [2, 0, 4], \"long\": [1, 1, 1, 1, 1], "
				     "\"half\": [1.5], \"reals\": [0.5, 1]}", "{}");

	(void)state;
	assert_int_equal(oom_read_counts(&r, "depths", out, 4), 3);
	assert_true(out[0] == 2 && out[1] == 3 && out[2] == 4);
	oom_read_stages(&r, "depths", out, 4, 3);
	oom_read_reals(&r, "reals", real, 3, 9);
	assert_true(real[0] == 0.5 && real[1] == 1 && real[2] == 9);
	assert_int_equal(r.status, OOM_OK);
	for (size_t i = 0; i < 5; i++) {
		static const char *const keys[] = {"none", "wrong", "long", "half", "absent"};

		r = (struct oom_reader){.keys = &file, .defaults = &type, .prefix = "", .family = "test"};
		assert_int_equal(oom_read_counts(&r, keys[i], out, 4), 0);
		assert_int_equal(r.status, OOM_ERR_INVALID);
		assert_non_null(strstr(r.err.text, keys[i]));
		assert_non_null(strstr(r.err.text, "must list 1 to 4 counts between 1 and 2^20"));
	}
	r = (struct oom_reader){.keys = &file, .defaults = &type, .prefix = "", .family = "test"};
	oom_read_stages(&r, "depths", out, 4, 4);
	assert_string_equal(r.err.text, "depths must list a count for each of 4 stages");
}

/* MobileNet's channels (transformers modeling_mobilenet_v2.py make_divisible): to the nearest multiple, not below the least,
 * and never more than a tenth down. */
static void channels_of_mobile_nets(void **state)
{
	static const struct {
		double value;
		uint64_t divisor, least, channels;
	} cases[] = {
		{16, 8, 8, 16}, {17, 8, 8, 16}, {20, 8, 8, 24}, {12, 8, 8, 16}, {3, 8, 8, 8}, {11.2, 8, 8, 16}, {33.6, 8, 8, 32},
		{1, 8, 16, 16}, {1792, 8, 8, 1792}, {22.4, 8, 8, 24}, {4, 4, 4, 4},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (oom_make_divisible(cases[i].value, cases[i].divisor, cases[i].least) != cases[i].channels)
			fail_msg("%g: %llu", cases[i].value,
				 (unsigned long long)oom_make_divisible(cases[i].value, cases[i].divisor, cases[i].least));
}

static void images(void **state)
{
	static const struct {
		const char *json;
		uint64_t side, channels;
		const char *says;
	} cases[] = {
		{"{}", 224, 3, ""},
		{"{\"image_size\": 384, \"num_channels\": 1}", 384, 1, ""},
		{"{\"image_size\": [256, 256]}", 256, 3, ""},
		{"{\"image_size\": 0}", 0, 3, "image_size must lie in 1..65536"},
		{"{\"image_size\": 65537}", 65537, 3, "image_size must lie in 1..65536"},
		{"{\"num_channels\": 0}", 224, 0, "num_channels must lie in 1..65536"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_arch *a = test_calloc(1, sizeof(*a));

		a->rd = reader(cases[i].json, "{}");
		oom_read_image(a, 224);
		assert_int_equal(a->image_size, cases[i].side);
		assert_int_equal(a->channels, cases[i].channels);
		assert_int_equal(a->default_task, OOM_TASK_IMAGE_CLS);
		assert_non_null(strstr(a->rd.err.text, cases[i].says));
		assert_int_equal(a->rd.status != OOM_OK, *cases[i].says != 0);
		test_free(a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(which_spelling_counts, release),
		cmocka_unit_test_teardown(other_traditions_words, release),
		cmocka_unit_test_teardown(sub_configs, release),
		cmocka_unit_test_teardown(values_of_each_kind, release),
		cmocka_unit_test_teardown(refusals, release),
		cmocka_unit_test_teardown(the_size_behind_a_refusal, release),
		cmocka_unit_test_teardown(the_strangest_size, release),
		cmocka_unit_test_teardown(where_a_depth_comes_from, release),
		cmocka_unit_test_teardown(classes, release),
		cmocka_unit_test_teardown(lists_of_counts, release),
		cmocka_unit_test(channels_of_mobile_nets),
		cmocka_unit_test_teardown(images, release),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
