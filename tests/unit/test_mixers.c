/* State-space and linear-attention families: parameters by hand, and what their loops keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/model.h"

static struct oom_eval price_plan(const char *json, const struct oom_plan *p)
{
	char path[] = "/tmp/oomplan-mixers-XXXXXX";
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_model *model = NULL;
	struct oom_error err = {{0}};
	struct oom_keys keys;
	struct oom_eval e;
	FILE *f;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	fputs(json, f);
	fclose(f);
	memset(&e, 0, sizeof(e));
	if (oom_keys_read(&keys, path, &err) || oom_model_new(&model, &keys, &err) || !ev ||
	    oom_evaluate(ev, model, p, 0, &e, &err))
		fail_msg("%s", err.text);
	unlink(path);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	return e;
}

static struct oom_plan plan_of(int64_t batch, int64_t tokens, int64_t checkpointing, int64_t scan)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.micro_batch = batch;
	p.seq_len = tokens;
	p.grad_ckpt = checkpointing;
	p.scan = scan;
	return p;
}

static struct oom_eval price(const char *json, int64_t batch, int64_t tokens, int64_t checkpointing)
{
	const struct oom_plan p = plan_of(batch, tokens, checkpointing, OOM_SCAN_LOOP);

	return price_plan(json, &p);
}

#define MAMBA2 "{\"model_type\":\"mamba2\",\"vocab_size\":1000,\"hidden_size\":256,\"num_hidden_layers\":3,\"num_heads\":8," \
	"\"head_dim\":64,\"state_size\":32,\"n_groups\":2,\"chunk_size\":64}"
#define DELTA "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":1000,\"hidden_size\":256,\"intermediate_size\":512,\"num_hidden_layers\":1," \
	"\"layer_types\":[\"linear_attention\"],\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,\"linear_num_key_heads\":2," \
	"\"linear_num_value_heads\":4,\"linear_key_head_dim\":64,\"linear_value_head_dim\":64}"
#define MAMBA "{\"model_type\":\"mamba\",\"vocab_size\":1000,\"hidden_size\":128,\"num_hidden_layers\":1,\"state_size\":16}"
#define WIDE "{\"model_type\":\"mamba\",\"vocab_size\":1000,\"hidden_size\":128,\"num_hidden_layers\":1,\"state_size\":16777216}"

/* Hand calculations from the shapes of the published classes. */
static void parameters(void **state)
{
	/* in_proj (2 * 512 + 2 * 2 * 32 + 8) x 256, conv 640 x (4 + 1), out_proj 256 x 512,
	 * A_log, D and dt_bias of 8, norms */
	const uint64_t mamba2 = 1160 * 256 + 640 * 5 + 256 * 512 + 3 * 8 + 512 + 256;
	/* in_proj_qkv 512 x 256, in_proj_z 256 x 256, a and b 4 x 256, conv 512 x 4, A_log and
	 * dt_bias, norm, out_proj, two norms, feed-forward */
	const uint64_t delta = 512 * 256 + 256 * 256 + 2 * 4 * 256 + 512 * 4 + 2 * 4 + 64 +
			       256 * 256 + 2 * 256 + 3 * 512 * 256;

	(void)state;
	assert_int_equal(price(MAMBA2, 1, 64, OOM_CKPT_NONE).total_params,
			 2 * 1000 * 256 + 256 + 3 * mamba2);
	assert_int_equal(price(DELTA, 1, 64, OOM_CKPT_NONE).total_params,
			 2 * 1000 * 256 + 256 + delta);
}

/* The triangular inverse of the delta rule keeps i + i * i fp32 elements at row i = 1..63 for every
 * head of every chunk of 64 tokens: 2016 + 85344.  Four heads, eight chunks: they are a third of
 * what 512 tokens keep in all. */
static void delta_rule_keeps_its_rows(void **state)
{
	const uint64_t rows = UINT64_C(4) * (2016 + 85344) * 4 * 8;
	const struct oom_eval e = price(DELTA, 1, 512, OOM_CKPT_NONE);

	(void)state;
	assert_true(e.saved_bytes > rows);
	assert_true(e.saved_bytes < 4 * rows);
}

/* Loops over chunks and tokens keep the same for every turn, whichever of them are recorded: the
 * third difference of equally spaced lengths vanishes (Mamba 2 carries its states by a square
 * matrix of the chunks), but for the rounding of every allocation to 512 bytes. */
static void loops_are_linear(void **state)
{
	static const char *const models[] = {MAMBA2, DELTA, MAMBA};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		const double a = (double)price(models[i], 2, 512, OOM_CKPT_NONE).saved_bytes;
		const double b = (double)price(models[i], 2, 1024, OOM_CKPT_NONE).saved_bytes;
		const double c = (double)price(models[i], 2, 1536, OOM_CKPT_NONE).saved_bytes;
		const double d = (double)price(models[i], 2, 2048, OOM_CKPT_NONE).saved_bytes;

		assert_true(d - 3 * c + 3 * b - a < a / 500 && d - 3 * c + 3 * b - a > -a / 500);
		assert_true(b > 1.8 * a);
	}
}

/* A selective scan lays out discrete_A and deltaB_u, [b, d_inner, s, d_state] in fp32, keeps the
 * first, the product with B before it, and in the loop an fp32 state and its 16-bit copy a
 * token: 4 + 4 + 4 + 2 bytes of each element at least. */
static void selective_scan_keeps_states(void **state)
{
	const uint64_t elements = UINT64_C(2) * 256 * 512 * 16;         /* b, d_inner, s, d_state */
	const struct oom_eval e = price(MAMBA, 2, 512, OOM_CKPT_NONE);

	(void)state;
	assert_true(e.saved_bytes > elements * 14);
	assert_true(e.saved_bytes < elements * 18);
}

/* Checkpointing: between the passes only each layer's input is kept; the loops' turns do not
 * show up in the forward. */
static void checkpointed_loops_keep_nothing(void **state)
{
	const struct oom_eval all = price(MAMBA, 2, 512, OOM_CKPT_NONE),
			      ckpt = price(MAMBA, 2, 512, OOM_CKPT_FULL);

	(void)state;
	assert_true(ckpt.saved_bytes < all.saved_bytes / 4);
	assert_true(ckpt.peak[OOM_PHASE_FWD1] < all.peak[OOM_PHASE_FWD1]);
}

/* Peaks within one part in a thousand. */
static void near(uint64_t got, uint64_t measured)
{
	if (got > measured + measured / 1000 || got + measured / 1000 < measured)
		fail_msg("%llu, measured %llu", (unsigned long long)got,
			 (unsigned long long)measured);
}

/* Origin: transformers 5.12.1 and torch 2.14.1, every allocation of a traced step counted: the class
 * takes the associative scan, and the loop where use_associative_scan is false. */
static void associative_scan_as_measured(void **state)
{
	static const char falcon[] =
		"{\"model_type\":\"falcon_mamba\",\"vocab_size\":1000,\"hidden_size\":128,\"num_hidden_layers\":2,\"state_size\":16}";
	static const char by_loop[] =
		"{\"model_type\":\"mamba\",\"vocab_size\":1000,\"hidden_size\":128,\"num_hidden_layers\":1,\"state_size\":16,"
		"\"use_associative_scan\":false}";
	static const struct {
		const char *json;
		int64_t tokens, precision, ckpt;
		uint64_t saved, fwd1, bwd1;
	} rows[] = {
		{MAMBA, 512, OOM_BF16, OOM_CKPT_NONE, 121795072, 175298048, 167020032},
		{MAMBA, 300, OOM_BF16, OOM_CKPT_NONE, 71098880, 102633984, 97924608},
		{MAMBA, 300, OOM_BF16, OOM_CKPT_FULL, 3322368, 81067520, 103352320},
		{falcon, 77, OOM_AMP_BF16, OOM_CKPT_NONE, 36386816, 46632960, 44781568},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = plan_of(2, rows[i].tokens, rows[i].ckpt, OOM_SCAN_ASSOCIATIVE);
		struct oom_eval e;

		p.precision = rows[i].precision;
		e = price_plan(rows[i].json, &p);
		assert_int_equal(e.saved_bytes, rows[i].saved);
		near(e.peak[OOM_PHASE_FWD1], rows[i].fwd1);
		near(e.peak[OOM_PHASE_BWD1], rows[i].bwd1);
		if (i)
			continue;
		e = price_plan(by_loop, &p);
		assert_int_equal(e.saved_bytes, 71643648);
		assert_int_equal(e.saved_bytes, price(MAMBA, 2, 512, OOM_CKPT_NONE).saved_bytes);
	}
}

/* Every length has its own levels: another one, and a single token, are counted anew by the same
 * evaluator. */
static void associative_scan_of_any_length(void **state)
{
	struct oom_plan p = plan_of(2, 1, OOM_CKPT_NONE, OOM_SCAN_ASSOCIATIVE);
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_model *model = NULL;
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	uint64_t before = 0;
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	if (oom_keys_parse(&keys, MAMBA, strlen(MAMBA), "config.json", &err) ||
	    oom_model_new(&model, &keys, &err) || !ev)
		fail_msg("%s", err.text);
	for (p.seq_len = 1; p.seq_len <= 33; p.seq_len++) {
		if (oom_evaluate(ev, model, &p, 0, &e, &err))
			fail_msg("%s", err.text);
		assert_int_equal(e.saved_bytes, price_plan(MAMBA, &p).saved_bytes);
		assert_true(e.saved_bytes > before);
		before = e.saved_bytes;
	}
	p.seq_len = 100000000;
	assert_int_equal(oom_evaluate(ev, model, &p, 0, &e, &err), OOM_OK);
	assert_true(e.saved_bytes / 100000000 >= before / 34);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	/* 2^24 states of 256 channels and 10^8 tokens: 2^58 elements */
	model = NULL;
	ev = oom_evaluator_new();
	if (oom_keys_parse(&keys, WIDE, strlen(WIDE), "config.json", &err) ||
	    oom_model_new(&model, &keys, &err) || !ev)
		fail_msg("%s", err.text);
	assert_int_equal(oom_evaluate(ev, model, &p, 0, &e, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "100000000 tokens"));
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
}

/* Sizes that make no model are errors with the numbers in them, not sums that overflow. */
static void impossible_sizes(void **state)
{
	static const char *const bad[] = {
		"{\"model_type\":\"mamba2\",\"vocab_size\":1000,\"hidden_size\":256,\"num_hidden_layers\":3,\"num_heads\":7}",
		"{\"model_type\":\"mamba2\",\"vocab_size\":1000,\"hidden_size\":256,\"num_hidden_layers\":3,\"num_heads\":8,\"chunk_size\":1099511627776}",
		"{\"model_type\":\"qwen3_next\",\"linear_num_key_heads\":3}",
		"{\"model_type\":\"jamba\",\"mamba_d_state\":1099511627776}",
		"{\"model_type\":\"recurrent_gemma\",\"block_types\":[]}",
		"{\"model_type\":\"hrm_text\",\"H_cycles\":1000}",
		"{\"model_type\":\"laguna\",\"num_key_value_heads\":5}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char path[] = "/tmp/oomplan-mixers-XXXXXX";
		struct oom_model *model = NULL;
		struct oom_error err = {{0}};
		struct oom_keys keys;
		int fd = mkstemp(path);
		FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

		assert_non_null(f);
		fputs(bad[i], f);
		fclose(f);
		assert_int_equal(oom_keys_read(&keys, path, &err), OOM_OK);
		assert_int_equal(oom_model_new(&model, &keys, &err), OOM_ERR_INVALID);
		assert_true(strlen(err.text) > 10);
		oom_keys_release(&keys);
		unlink(path);
	}
}

/* What torch counted of two layers of Bamba's default config, the second of them attention: inv_freq twice, of whole
 * heads of 128 although its configuration asks for half of them (transformers 5.12, BambaRotaryEmbedding). */
static void bamba_turns_whole_heads(void **state)
{
	(void)state;
	assert_int_equal(price("{\"model_type\": \"bamba\", \"num_hidden_layers\": 2, \"attn_layer_indices\": [1]}", 2, 256,
			       OOM_CKPT_FULL).buffer_bytes,
			 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters),
		cmocka_unit_test(delta_rule_keeps_its_rows),
		cmocka_unit_test(loops_are_linear),
		cmocka_unit_test(selective_scan_keeps_states),
		cmocka_unit_test(checkpointed_loops_keep_nothing),
		cmocka_unit_test(associative_scan_as_measured),
		cmocka_unit_test(associative_scan_of_any_length),
		cmocka_unit_test(impossible_sizes),
		cmocka_unit_test(bamba_turns_whole_heads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
