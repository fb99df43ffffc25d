/* What options of a Megatron launch come to: 8-bit storage, Muon, divided and local layers, deferred buffers, offload. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "launch.h"
#include "megatron/parts.h"
#include "oomplan/plan.h"
#include "step/replay.h"

/* By hand from TransformerEngine's quantizer.cpp: rows and transpose on Hopper, rows alone on Blackwell,
 * for the four layers' 48 h^2 elements; two of the four stay in 16 bit where the ends do.  As parameters
 * they are two bytes on Hopper (nothing changes) and one on Blackwell. */
static void test_fp8(void **state)
{
	const double e = 48.0 * 1024 * 1024;
	struct {
		const char *gpu, *recipe, *ends, *gather;
		double fixed, kept;
	} rows[] = {{"H100", "tensorwise", "0", "0", 2, 0}, {"B200", "delayed", "0", "0", 1, 0},
		    {"H100", "tensorwise", "1", "0", 1, 0}, {"B200", "mxfp8", "0", "0", 2.0625, 0},
		    {"H100", "tensorwise", "0", "1", 0, 0}, {"B200", "tensorwise", "0", "1", 0, -1}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct oom_mg_rank plain = RANK(4, 1, "gpu", rows[i].gpu),
					 r = RANK(4, 1, "gpu", rows[i].gpu, "fp8", "hybrid",
						  "fp8_recipe", rows[i].recipe, "first_last_bf16",
						  rows[i].ends, "fp8_param_gather", rows[i].gather);

		assert_true((double)r.fixed_bytes - (double)plain.fixed_bytes == rows[i].fixed * e);
		assert_true((double)r.static_bytes - (double)plain.static_bytes == rows[i].kept * e);
		assert_true(r.activation_bytes < plain.activation_bytes);
	}
}

/* Momentum of matrices, Adam's two for the rest (is_muon_managed_matrix_parameter); the word of older
 * launches divides them between the ranks. */
static void test_muon(void **state)
{
	const double matrices = 24.0 * 1024 * 1024;
	const struct oom_mg_rank r = RANK(2, 1, "optimizer", "muon"),
				 shared = RANK(2, 1, "optimizer", "dist_muon");

	(void)state;
	assert_int_equal(shared.optimizer_bytes, r.optimizer_bytes);    /* on one rank the same */
	assert_true((double)r.optimizer_bytes ==
		    4 * matrices + 8 * ((double)r.params - matrices));
}

/* A launch by column and value, on as many GPUs as it says. */
static struct oom_mg_rank first_rank(const char *const *words)
{
	struct oom_megatron m = launch(words);
	struct oom_mg_rank r;

	assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
	assert_int_equal(oom_megatron_rank(&m, 0, &r, NULL), OOM_OK);
	return r;
}
#define BASE "hidden", "1024", "heads", "16", "vocab", "32768", "seq", "2048", "max_pos", "2048", "bias_linear", "0"
#define FIRST(...) first_rank((const char *const[]){BASE, __VA_ARGS__, NULL})

/* A layer-wise optimizer gives four ranks a quarter each, master weights as well (layer_wise_optimizer.py);
 * Megatron-FSDP divides all 18 B (2 + 4 + 4 + 8) between steps; embedding and loss in the place of a layer each
 * leave one of eight to the first of four stages, which has four passes in flight. */
static void test_divided(void **state)
{
	const struct oom_mg_rank alone = FIRST("layers", "4", "n_gpus", "4", "optimizer", "muon"),
				 shared = FIRST("layers", "4", "n_gpus", "4", "optimizer", "dist_muon"),
				 fsdp = FIRST("layers", "4", "n_gpus", "4", "fsdp", "megatron"),
				 ends = FIRST("layers", "6", "pp", "4", "n_gpus", "4", "num_microbatches", "8",
					      "account_embedding_in_split", "1", "account_loss_in_split", "1"),
				 one = FIRST("layers", "4", "pp", "4", "n_gpus", "4", "num_microbatches", "8");

	(void)state;
	assert_int_equal(shared.optimizer_bytes, alone.optimizer_bytes / 4);
	assert_int_equal(alone.static_bytes - shared.static_bytes,
			 (alone.optimizer_bytes + 4 * alone.params) / 4 * 3);
	assert_int_equal(fsdp.static_bytes, 18 * fsdp.params / 4);
	assert_int_equal(ends.activation_bytes, one.activation_bytes);
	assert_int_equal(ends.params, one.params);
}

/* Local layers write b a s s scores of 2 B into the global memory buffer, which stays (GlobalMemoryBuffer); with
 * tensor and sequence parallelism 2 B of b a s s / 2, or T h if that is more; TransformerEngine has none. */
static void test_local(void **state)
{
	const double s = 2048, h = 1024;
	const struct oom_mg_rank te = RANK(2, 1, "attention_resolved", "unfused"),
				 local = RANK(2, 1, "transformer_impl", "local", "attention_resolved", "unfused");
	double found[2] = {0, 0};

	(void)state;
	for (size_t i = 0; i < local.n_rows; i++)
		if (!strcmp(local.row[i].name, "global memory buffer"))
			found[0] = (double)local.row[i].bytes;
	for (size_t i = 0; i < te.n_rows; i++)
		if (!strcmp(te.row[i].name, "global memory buffer"))
			found[1] = (double)te.row[i].bytes;
	assert_true(found[0] == 2 * 16 * s * s && found[0] > 2 * s * h);
	assert_true(found[1] == 0);
}

/* The last rank's buffers of eight micro-batches less the one at work; nothing on one rank. */
static void test_deferred(void **state)
{
	const double t = 2048;
	const struct oom_mg_rank with = RANK(4, 2, "defer_embedding_wgrad", "1"),
				 without = RANK(4, 2, "defer_embedding_wgrad", "0");

	(void)state;
	assert_true((double)with.peak_bytes - (double)without.peak_bytes ==
		    7 * 2 * t * (32768 + 1024));
	assert_true(RANK(4, 1, "defer_embedding_wgrad", "1").peak_bytes ==
		    RANK(4, 1, "defer_embedding_wgrad", "0").peak_bytes);
}

/* The projection's inputs, 2 T h per layer, wait in host memory: all but the last layer's, and one is on
 * its way back.  Tensors of less than a million elements stay. */
static void test_offloaded(void **state)
{
	const double one = 2 * 2048.0 * 1024;
	const struct oom_mg_rank with = RANK(8, 1, "fine_grained_offload", "core_proj attn_proj"),
				 without = RANK(8, 1, "fine_grained_offload", "0"),
				 small = RANK(8, 1, "fine_grained_offload", "attn_proj", "seq", "512");

	(void)state;
	assert_true((double)with.host_bytes == 8 * one);
	assert_true((double)without.activation_bytes - (double)with.activation_bytes == 8 * one);
	assert_true((double)without.peak_bytes - (double)with.peak_bytes == 6 * one);
	assert_int_equal(small.host_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_muon),
		cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_divided),
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_offloaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
