/* Encoders whose queries meet some of the keys, and a layout beside a text: their default
 * configurations against the measuring harness's loop (transformers 5.12, PyTorch 2.14, emulated
 * CUDA). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "priced.h"

static double off(uint64_t ours, double theirs)
{
	const double d = (double)ours / theirs - 1;

	return d < 0 ? -d : d;
}

/* AdamW (foreach), eager attention, two classes; the fields are those of a run's spec and row. */
static void measured(void **state)
{
	static const struct {
		const char *type;
		enum oom_task task;
		int64_t layers, batch, seq;
		enum oom_precision precision;
		bool mask, ckpt;
		double eval, forward, backward, overall, tolerance;
	} rows[] = {
		{"longformer", OOM_TASK_MASKED_LM, 0, 16, 512, OOM_AMP_FP16, false, false,
		 2766850048, 11481573376, 11956251648, 12832366592, 0.0005},
		{"longformer", OOM_TASK_SEQ_CLS, 0, 2, 2048, OOM_BF16, true, false,
		 566262272, 4490214912, 4466617856, 4928151040, 0.002},
		{"big_bird", OOM_TASK_SEQ_CLS, 0, 2, 2048, OOM_AMP_BF16, true, false,
		 1518043136, 7967008768, 7606626816, 8986772480, 0.002},
		{"lilt", OOM_TASK_SEQ_CLS, 0, 4, 512, OOM_AMP_BF16, false, true,
		 912193536, 1016461312, 1247656448, 2306081792, 0.004},
		{"lilt", OOM_TASK_SEQ_CLS, 1, 2, 256, OOM_BF16, false, false,
		 90076672, 104740352, 130988544, 324376064, 0.004},
		{"led", OOM_TASK_SEQ2SEQ, 2, 4, 512, OOM_BF16, false, true,
		 689079808, 722679296, 928564736, 1440912896, 0.0001},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;
		char json[80];

		p.task = rows[i].task;
		p.num_layers = rows[i].layers;
		p.micro_batch = rows[i].batch;
		p.seq_len = rows[i].seq;
		p.precision = rows[i].precision;
		p.padding_mask = rows[i].mask;
		p.grad_ckpt = rows[i].ckpt ? OOM_CKPT_FULL : OOM_CKPT_NONE;
		p.attn = OOM_ATTN_EAGER;
		p.softmax_product = p.casts_backwards = p.cublas_workspaces = p.segments_down = p.sum_buffers = p.view_sums = 0;          /* emulated, by the CPU's kernels */
		p.optimizer = 0;                /* adamw */
		p.num_labels = 2;
		p.convert_outputs_fp32 = false;
		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", rows[i].type);
		e = must(json, &p);
		if (off(e.peak[OOM_PHASE_EVAL], rows[i].eval) > rows[i].tolerance ||
		    off(e.peak[OOM_PHASE_FWD1], rows[i].forward) > rows[i].tolerance ||
		    off(e.peak[OOM_PHASE_BWD1], rows[i].backward) > rows[i].tolerance ||
		    off(e.overall_peak, rows[i].overall) > rows[i].tolerance)
			fail_msg("%s, row %zu: eval %llu, forward %llu, backward %llu, overall %llu",
				 rows[i].type, i, (unsigned long long)e.peak[OOM_PHASE_EVAL],
				 (unsigned long long)e.peak[OOM_PHASE_FWD1],
				 (unsigned long long)e.peak[OOM_PHASE_BWD1],
				 (unsigned long long)e.overall_peak);
	}
}

/* Longformer works on whole windows (512): one token costs what 512 do but for the inputs, the
 * masked-LM head and the labels. */
static void windows_are_whole(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval a, b;

	(void)state;
	p.task = OOM_TASK_SEQ_CLS;
	p.micro_batch = 1;
	p.seq_len = 513;
	a = must("{\"model_type\": \"longformer\"}", &p);
	p.seq_len = 1024;
	b = must("{\"model_type\": \"longformer\"}", &p);
	assert_true(off(a.peak[OOM_PHASE_FWD1], (double)b.peak[OOM_PHASE_FWD1]) < 0.01);
	p.seq_len = 512;
	b = must("{\"model_type\": \"longformer\"}", &p);
	assert_true(a.saved_bytes > b.saved_bytes);
}

/* BigBird falls back on full attention up to (5 + 2 x 3) blocks of 64 tokens. */
static void blocks_need_length(void **state)
{
	struct oom_plan p = oom_plan_default();
	uint64_t at[2];

	(void)state;
	p.task = OOM_TASK_SEQ_CLS;
	p.micro_batch = 1;
	for (int i = 0; i < 2; i++) {
		p.seq_len = i ? 4096 : 704;
		at[i] = must("{\"model_type\": \"big_bird\"}", &p).saved_bytes;
	}
	/* full attention would grow with the square of the length: 33 times */
	assert_true(at[1] < 10 * at[0]);
}

/* Sizes in other libraries: said, not guessed. */
static void elsewhere(void **state)
{
	static const char *const types[] = {"timm_wrapper", "dinat"};
	const struct oom_plan p = oom_plan_default();

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_eval e;
		char json[80];

		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", types[i]);
		assert_int_equal(price(json, &p, &e, &err), OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, i ? "natten" : "timm"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(measured),
		cmocka_unit_test(windows_are_whole),
		cmocka_unit_test(blocks_need_length),
		cmocka_unit_test(elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
