/* Storages, parameters and buffers of a tape, call by call: references, scratch, what autocast casts and keeps, what a policy
 * of selective checkpointing keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "ops/ops.h"
#include "tape/tape.h"
#include "recorded_tape.h"

/* ---- references ---- */

static void a_storage_lives_as_long_as_somebody_holds_it(void **state)
{
	struct oom_tape *t = tape("");
	struct oom_val x = tensor(t), y;

	(void)state;
	assert_int_equal(t->refs[x.sto], 1);
	y = oom_share(t, x);
	assert_int_equal(t->refs[x.sto], 2);
	oom_drop(t, x);
	assert_int_equal(oom_tape_held(t, 0), x.sto);
	oom_done(t, oom_keep(y));               /* kept: left alone */
	assert_int_equal(t->refs[x.sto], 1);
	oom_done(t, y);
	assert_int_equal(oom_tape_held(t, 0), -1);
	assert_int_equal(t->streams[t->stream].n, 2);   /* one birth, one death */
	drop(t);
}

static void using_what_is_gone(void **state)
{
	struct oom_tape *t = tape("");
	struct oom_val x = tensor(t);

	(void)state;
	oom_drop(t, x);
	oom_drop(t, x);
	assert_int_equal(t->status, OOM_ERR_LIMIT);
	assert_string_equal(t->err.text, "module.x is given up twice");
	oom_tape_reset(t, NULL, &plan);
	t->scope = "module";
	x = tensor(t);
	oom_drop(t, x);
	oom_ref(t, x.sto);
	assert_string_equal(t->err.text, "module.x is used after it was given up");
	oom_tape_reset(t, NULL, &plan);
	oom_drop(t, oom_none());                /* an absent tensor is nobody's */
	oom_ref(t, -1);
	drop(t);
}

/* Nothing wide is nothing: no row, and what is made of it is nothing, too. */
static void tensors_without_elements(void **state)
{
	struct oom_tape *t = tape("");
	const struct oom_val x = oom_new(t, "x", t->m_bs, D(0), OOM_F32);

	(void)state;
	assert_int_equal(x.sto, -1);
	assert_int_equal(t->n_rows, 0);
	assert_int_equal(oom_new_like(t, "y", x, OOM_DT_BF16).sto, -1);
	drop(t);
}

static void alike_but_for_the_type(void **state)
{
	struct oom_tape *t = tape("");
	struct oom_val x = tensor(t), y;

	(void)state;
	x.perm = true;
	y = oom_new_like(t, "y", x, OOM_DT_BF16);
	assert_int_equal(y.mono, x.mono);
	assert_int_equal(y.width, x.width);
	assert_int_equal(y.dt, OOM_DT_BF16);
	assert_true(y.perm);
	assert_int_not_equal(y.sto, x.sto);
	oom_drop(t, x);
	oom_drop(t, y);
	drop(t);
}

/* Scratch is there while a kernel runs: born and dead at once; held, until it is given up. */
static void scratch(void **state)
{
	struct oom_tape *t = tape("");
	struct oom_val held = oom_scratch_hold(t, "held", t->m_b, 8, OOM_F32);

	(void)state;
	oom_scratch(t, "kernel", t->m_b, 16, OOM_F32);
	assert_int_equal(t->n_rows, 2);
	assert_int_equal(t->refs[0], 1);
	assert_int_equal(t->refs[1], 0);
	oom_drop(t, held);
	assert_int_equal(oom_tape_held(t, 0), -1);
	drop(t);
}

/* What is as wide as the vocabulary, and per token, is logits. */
static void logits_are_told_by_their_width(void **state)
{
	struct oom_tape *t = tape("");

	(void)state;
	t->vocab = 1000;
	oom_drop(t, oom_new(t, "y", t->m_bs, D(1000), OOM_F32));
	oom_drop(t, oom_new(t, "y", OOM_MONO_ONE, D(1000), OOM_F32));
	oom_drop(t, oom_new(t, "y", t->m_bs, D(999), OOM_F32));
	assert_int_equal(t->rows[0].cat, OOM_CAT_LOGITS);
	assert_int_equal(t->rows[1].cat, OOM_CAT_TEMP);
	assert_int_equal(t->rows[2].cat, OOM_CAT_TEMP);
	drop(t);
}

/* A config may give a size as 0: rows of no width are an error of the recording, not a division. */
static void rows_of_no_width(void **state)
{
	struct oom_tape *t = tape("");

	(void)state;
	assert_int_equal(oom_rows_of(t, 100, 25), 4);
	assert_int_equal(oom_rows_of(t, 100, 0), 1);
	assert_int_equal(t->status, OOM_ERR_INVALID);
	assert_non_null(strstr(t->err.text, "module: rows of no width"));
	oom_tape_reset(t, NULL, &plan);
	drop(t);
}

/* ---- parameters and buffers ---- */

/* A block that runs again meets its parameters again. */
static void parameters_are_made_once(void **state)
{
	struct oom_tape *t = tape("");
	struct oom_val first = oom_param(t, "weight", 4, 8, 0), bias = oom_param(t, "bias", 0, 4, 0);

	(void)state;
	assert_int_equal(t->n_params, 2);
	assert_int_equal(first.width, 32);
	assert_int_equal(bias.width, 4);
	assert_true(first.rg && first.node <= -2 && first.sto < 0);
	t->cursor = 0;
	assert_int_equal(oom_param(t, "weight", 4, 8, 0).node, first.node);
	assert_int_equal(t->n_params, 2);
	oom_param_stacked(t, first, 2);
	assert_int_equal(t->params[0].mid, 2);
	drop(t);
}

static void parameters_beyond_all_models(void **state)
{
	struct oom_tape *t = tape("");

	(void)state;
	oom_param(t, "weight", 1ull << 40, 1ull << 40, 0);
	assert_int_equal(t->status, OOM_ERR_INVALID);
	assert_string_equal(t->err.text, "module.weight has more than 2^52 elements");
	oom_tape_reset(t, NULL, &plan);
	drop(t);
}

/* Buffers: exact bytes, and blocks of the allocator; the evaluation meets the same ones again. */
static void buffers(void **state)
{
	struct oom_tape *t = tape("");

	(void)state;
	oom_buffer(t, 16, OOM_F32);
	oom_buffer(t, 200, OOM_I64);
	assert_int_equal(t->buffer_bytes, 64 + 1600);
	assert_int_equal(t->buffer_rounded, 512 + 2048);
	t->stream = OOM_STREAM_EVAL;
	oom_buffer(t, 16, OOM_F32);
	assert_int_equal(t->buffer_bytes, 64 + 1600);
	t->stream = OOM_STREAM_FWD;
	drop(t);
}

/* Type and training of a parameter under a plan: from_pretrained's dtype; PEFT's adapters in fp32 unless told otherwise;
 * bitsandbytes' codes in bytes; prepare_model_for_kbit_training casts the rest to fp32 and freezes it. */
static void policies(void **state)
{
	static const struct {
		const char *plan;
		uint32_t flags;
		const char *name;
		enum oom_dtype dt;
		bool trains;
	} cases[] = {
		{"precision=fp32", 0, "weight", OOM_F32, true},
		{"precision=amp-bf16", 0, "weight", OOM_F32, true},
		{"precision=bf16", 0, "weight", OOM_DT_BF16, true},
		{"precision=fp16-amp", 0, "weight", OOM_DT_F16, true},
		{"precision=bf16", OOM_P_FP32, "weight", OOM_F32, true},
		{"precision=bf16", OOM_P_FROZEN, "weight", OOM_DT_BF16, false},
		{"precision=bf16 lora-r=8", 0, "weight", OOM_DT_BF16, false},
		{"precision=bf16 lora-r=8", OOM_P_LORA, "lora_A", OOM_F32, true},
		{"precision=bf16 lora-r=8 autocast-adapter-dtype=false", OOM_P_LORA, "lora_A", OOM_DT_BF16, true},
		{"precision=bf16 lora-r=8", OOM_P_SAVED, "weight", OOM_DT_BF16, true},
		{"precision=bf16 lora-r=8", OOM_P_LORA | OOM_P_IDLE, "lora_A", OOM_F32, false},
		{"precision=bf16 lora-r=8", 0, "bias", OOM_DT_BF16, false},
		{"precision=bf16 lora-r=8 lora-bias=all", 0, "bias", OOM_DT_BF16, true},
		{"precision=bf16 lora-r=8 lora-bias=all", 0, "in_proj_bias", OOM_DT_BF16, true},
		{"precision=bf16 lora-r=8 qlora=true", OOM_P_QUANTISED, "weight", OOM_U8, false},
		{"precision=fp32 lora-r=8 qlora=true", 0, "weight", OOM_DT_BF16, false},
		{"precision=fp16 lora-r=8 qlora=true", 0, "weight", OOM_DT_F16, false},
		{"precision=bf16 lora-r=8 qlora=true kbit-prepare=true", 0, "weight", OOM_F32, false},
		{"precision=bf16 lora-r=8 qlora=true kbit-prepare=true", OOM_P_QUANTISED, "weight", OOM_U8, false},
		{"precision=bf16 lora-r=8 qlora=true kbit-prepare=true kbit-recast=true", OOM_P_NORM, "weight", OOM_F32, false},
		{"precision=bf16 lora-r=8 qlora=true kbit-prepare=true kbit-recast=true", OOM_P_EMBEDDING, "weight",
		 OOM_DT_BF16, false},
		{"precision=bf16 lora-r=8 qlora=true kbit-prepare=true kbit-recast=true", OOM_P_HEAD | OOM_P_LINEAR, "weight",
		 OOM_DT_BF16, false},
		{"precision=bf16 lora-r=8 qlora=true autocast-adapter-dtype=false", OOM_P_LORA, "lora_A", OOM_F32, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_tape *t = tape(cases[i].plan);
		struct oom_param p = {.name = cases[i].name, .flags = cases[i].flags, .elems = 1};

		oom_param_policy(t, &p);
		if (p.dt != cases[i].dt || p.trainable != cases[i].trains)
			fail_msg("%s, %s with flags %u: type %u, %s", cases[i].plan, cases[i].name, cases[i].flags, p.dt,
				 p.trainable ? "trains" : "frozen");
		drop(t);
	}
}

/* ---- autocast (aten/src/ATen/autocast_mode.cpp, cached_cast) ---- */

static void a_trained_weight_is_cast_once(void **state)
{
	struct oom_tape *t = tape("precision=amp-bf16");
	struct oom_val w = oom_param(t, "weight", 8, 8, 0), a, b;

	(void)state;
	t->amp = true;
	t->amp_dt = OOM_DT_BF16;
	oom_amp_enter(t);
	a = oom_amp_cast(t, w);
	b = oom_amp_cast(t, w);
	assert_int_equal(a.dt, OOM_DT_BF16);
	assert_int_equal(a.sto, b.sto);
	assert_int_equal(t->rows[a.sto].cat, OOM_CAT_AMP);
	oom_drop(t, a);
	oom_drop(t, b);
	assert_int_equal(oom_tape_held(t, 0), a.sto);   /* the cache holds it ... */
	oom_amp_leave(t);
	assert_int_equal(oom_tape_held(t, 0), -1);      /* ... until the outermost region is left */
	oom_amp_enter(t);
	a = oom_amp_cast(t, w);
	assert_int_not_equal(a.sto, b.sto);             /* and it is cast anew in the next */
	oom_drop(t, a);
	oom_amp_leave(t);
	oom_tape_reset(t, NULL, &plan);
	drop(t);
}

static void what_is_cast_anew(void **state)
{
	struct oom_tape *t = tape("precision=amp-bf16");
	struct oom_val w = oom_param(t, "weight", 8, 8, OOM_P_FROZEN), a, b, x = tensor(t);

	(void)state;
	t->amp = true;
	t->amp_dt = OOM_DT_BF16;
	oom_amp_enter(t);
	a = oom_amp_cast(t, w);                         /* a frozen weight needs no gradient */
	b = oom_amp_cast(t, w);
	assert_int_not_equal(a.sto, b.sto);
	oom_drop(t, a);
	oom_drop(t, b);
	x = oom_amp_cast(t, x);                         /* nor is an activation a leaf */
	assert_int_equal(x.dt, OOM_DT_BF16);
	a = oom_amp_cast(t, oom_keep(x));               /* it is in the type already */
	assert_int_equal(a.sto, x.sto);
	oom_drop(t, x);
	x = oom_new(t, "ids", t->m_bs, D(1), OOM_I64);
	assert_int_equal(oom_amp_cast(t, x).sto, x.sto);        /* no float */
	oom_drop(t, x);
	oom_amp_leave(t);
	assert_int_equal(oom_tape_held(t, 0), -1);
	oom_tape_reset(t, NULL, &plan);
	drop(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_storage_lives_as_long_as_somebody_holds_it),
		cmocka_unit_test(using_what_is_gone),
		cmocka_unit_test(tensors_without_elements),
		cmocka_unit_test(alike_but_for_the_type),
		cmocka_unit_test(scratch),
		cmocka_unit_test(logits_are_told_by_their_width),
		cmocka_unit_test(rows_of_no_width),
		cmocka_unit_test(parameters_are_made_once),
		cmocka_unit_test(parameters_beyond_all_models),
		cmocka_unit_test(buffers),
		cmocka_unit_test(policies),
		cmocka_unit_test(a_trained_weight_is_cast_once),
		cmocka_unit_test(what_is_cast_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
