/* A launch of Megatron as words of its arguments: what tests of its engine begin with.  Included after cmocka.h. */
#ifndef OOM_TESTS_LAUNCH_H
#define OOM_TESTS_LAUNCH_H

#include "oomplan/megatron.h"

static struct oom_megatron launch(const char *const *words)
{
	struct oom_megatron m = oom_megatron_default();
	struct oom_error err = {{0}};

	for (size_t i = 0; words[i]; i += 2)
		assert_int_equal(oom_megatron_set(&m, oom_mg_arg_find(words[i]), words[i + 1],
						  &err),
				 OOM_OK);
	return m;
}

static inline double rows_of(const struct oom_mg_rank *r, enum oom_mg_row_kind kind)
{
	double sum = 0;

	for (size_t i = 0; i < r->n_rows; i++)
		sum += r->row[i].kind == kind ? (double)r->row[i].bytes : 0;
	return sum;
}

/* A dense GPT of 12 h^2 matrix elements per layer, on one rank but where pp says so; then column and
 * value by pairs. */
static inline struct oom_mg_rank dense_rank(int64_t layers, int64_t pp, const char *const *more)
{
	const char *words[40] = {"hidden", "1024", "heads", "16", "vocab", "32768", "seq", "2048",
				 "max_pos", "2048", "bias_linear", "0", "hidden_dropout", "0",
				 "attention_mask_in_dataloader", "0"};
	struct oom_megatron m;
	struct oom_mg_rank r;
	size_t n = 16;

	while (*more && n < 39)
		words[n++] = *more++;
	words[n] = NULL;
	m = launch(words);
	m.layers = layers;
	m.pp = m.n_gpus = pp;
	m.num_microbatches = 8;
	assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
	assert_int_equal(oom_megatron_rank(&m, pp - 1, &r, NULL), OOM_OK);
	return r;
}
#define RANK(layers, pp, ...) dense_rank(layers, pp, (const char *const[]){__VA_ARGS__, NULL})

#endif
