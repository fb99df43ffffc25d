/* Lengths: formats, quantiles, and the longest of a batch against a Monte Carlo of 10^6 batches. */
#include <math.h>
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

#include "oomplan/lengths.h"

static enum oom_status read_text(struct oom_lengths *l, const char *text, struct oom_error *err)
{
	char path[] = "/tmp/lengths-XXXXXX";
	const int fd = mkstemp(path);
	enum oom_status st;

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	st = oom_lengths_read(l, path, NULL, err);
	unlink(path);
	return st;
}

static void test_formats(void **state)
{
	static const char *const same[] = {
		"3\n5\n5\n9\n", "3\r\n5\r\n5\r\n9", "id,length,x\na,3,0\nb,5,0\nc,5,0\nd,9,0\n",
		"{\"length\": 3}\n{\"id\": 1, \"length\":5}\n{\"length\": 5}\n{\"length\": 9}\n",
		"length\n3\n5\n5\n9\n",
		/* a key inside a text or an inner object is none;
		 * escapes; lists count */
		"{\"text\": \"\\\"length\\\": 7\", \"meta\": {\"length\": 8}, \"length\": "
		"3}\n{\"length\":5}\n{\"length\":5}\n"
		"{\"length\":9}\n",
		"{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": "
		"[1,2,3,4,5]}\n{\"x\":[7],\"input_ids\":[1,[2],\"a,b\",4,5]}\n"
		"{\"input_ids\":[1,2,3,4,5,6,7,8,9]}\n",
		"name,\"n_tokens\"\n\"a, b\",3\nc,\"5\"\n\"d\"\"e\",5\nf,9\n"};
	struct oom_lengths l;
	struct oom_error err = {{0}};

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		assert_int_equal(read_text(&l, same[i], &err), OOM_OK);
		assert_int_equal(l.total, 4);
		assert_int_equal(l.n, 3);
		assert_true(l.mean == 5.5);
		assert_int_equal(oom_lengths_quantile(&l, 0.5), 5);
		assert_int_equal(oom_lengths_quantile(&l, 1), 9);
		oom_lengths_release(&l);
	}
	assert_int_equal(read_text(&l, "words only\nmore words\n", &err), OOM_ERR_INVALID);
	assert_int_equal(read_text(&l, "", &err), OOM_ERR_INVALID);
	assert_int_equal(oom_lengths_read(&l, "lognormal:-3:1", NULL, &err), OOM_ERR_INVALID);
	assert_int_equal(oom_lengths_read(&l, "/no/such/file", NULL, &err), OOM_ERR_IO);
	assert_int_equal(read_text(&l, "7\n-1\n1e30\nnan\n8\n", &err), OOM_OK);
	assert_int_equal(l.total, 2);
	assert_int_equal(l.skipped, 3);
	oom_lengths_release(&l);
}

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static int by_size(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void test_monte_carlo(void **state)
{
	enum { BATCHES = 1000000, B = 8 };
	struct oom_lengths l;
	struct oom_error err = {{0}};
	uint32_t *longest = malloc(BATCHES * sizeof(*longest)),
		 *pool = malloc(1000000 * sizeof(*pool));
	uint64_t seed = 88172645463325252u;
	size_t n = 0;
	double mean = 0;

	(void)state;
	assert_int_equal(oom_lengths_read(&l, "lognormal:300:0.7", NULL, &err), OOM_OK);
	for (size_t i = 0; i < l.n; i++)
		for (uint64_t k = 0; k < l.items[i].count; k++)
			pool[n++] = l.items[i].tokens;
	for (int i = 0; i < BATCHES; i++) {
		longest[i] = 0;
		for (int k = 0; k < B; k++) {
			const uint32_t x = pool[next(&seed) % n];

			longest[i] = x > longest[i] ? x : longest[i];
		}
		mean += longest[i];
	}
	qsort(longest, BATCHES, sizeof(*longest), by_size);
	assert_true(fabs(oom_lengths_longest_mean(&l, B) / (mean / BATCHES) - 1) < 0.01);
	for (int q = 10; q <= 99; q += 10) {
		const double ours = oom_lengths_longest(&l, B, q / 100.0),
			     theirs = longest[(size_t)q * BATCHES / 100];

		assert_true(fabs(ours / theirs - 1) < 0.01);
	}
	free(longest);
	free(pool);
	oom_lengths_release(&l);
}

/* The padding of sorted groups of 50 batches, and of sorted batches under a budget, against 2000
 * groups drawn. */
static void test_strategies(void **state)
{
	enum { B = 8, GROUP = 50 * B, ROUNDS = 2000, POOL = 200000 };
	struct oom_lengths l;
	struct oom_error err = {{0}};
	struct oom_lengths_report r;
	uint32_t *pool = malloc(1000000 * sizeof(*pool)), group[GROUP];
	uint64_t seed = 88172645463325252u;
	double real = 0, padded = 0, batch = 0, budget, sum = 0, total = 0;
	size_t n = 0;

	(void)state;
	assert_int_equal(oom_lengths_read(&l, "lognormal:300:0.7", NULL, &err), OOM_OK);
	for (size_t i = 0; i < l.n; i++)
		for (uint64_t k = 0; k < l.items[i].count; k++)
			pool[n++] = l.items[i].tokens;
	r = oom_lengths_report(&l, B, (double)l.total / B);
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < GROUP; k++)
			group[k] = pool[next(&seed) % n];
		qsort(group, GROUP, sizeof(*group), by_size);
		for (int k = 0; k < GROUP; k++) {
			real += group[k];
			padded += group[k / B * B + B - 1];
		}
	}
	assert_true(fabs(r.batching[OOM_BATCH_BY_LENGTH].padding_share - (1 - real / padded)) <
		    0.01);
	/* the budget: the pool is sorted already */
	budget = B * r.mean_batch_tokens;
	for (size_t i = 0; i < n; i++) {
		if ((batch + 1) * pool[i] > budget && batch > 0) {
			total += batch * pool[i - 1];
			batch = 0;
		}
		batch++;
		sum += pool[i];
	}
	total += batch * pool[n - 1];
	assert_true(fabs(r.batching[OOM_BATCH_BUDGET].padding_share - (1 - sum / total)) < 0.01);
	assert_true(r.batching[OOM_BATCH_BUDGET].worst_batch_tokens <
		    r.batching[OOM_BATCH_LONGEST].worst_batch_tokens);
	free(pool);
	oom_lengths_release(&l);
}

/* The column asked for, and one that is not there; a line longer than the reader's block. */
static void test_fields(void **state)
{
	struct oom_lengths l;
	struct oom_error err = {{0}};
	char path[] = "/tmp/lengths-XXXXXX", *line = malloc(5 << 20);
	const int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");

	(void)state;
	fputs("a,length,mine\n1,2,3\n", f);
	fflush(f);
	assert_int_equal(oom_lengths_read(&l, path, "mine", &err), OOM_OK);
	assert_int_equal(l.items[0].tokens, 3);
	oom_lengths_release(&l);
	assert_int_equal(oom_lengths_read(&l, path, "yours", &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "yours"));
	assert_int_equal(ftruncate(fd, 0), 0);
	rewind(f);
	memset(line, 'x', 5 << 20);
	fputs("{\"length\": 4}\n{\"text\": \"", f);
	fwrite(line, 1, 5 << 20, f);
	fputs("\", \"length\": 9}\n{\"length\": 6}\n", f);
	fclose(f);
	assert_int_equal(oom_lengths_read(&l, path, NULL, &err), OOM_OK);
	assert_int_equal(l.total, 2);
	assert_int_equal(l.skipped, 1);
	assert_int_equal(l.items[1].tokens, 6);
	oom_lengths_release(&l);
	unlink(path);
	free(line);
}

/* Uniform on 1..100, batches of one: F(50) = 0.5; the mean-sized plan dies at step 2 on average. */
static void test_report(void **state)
{
	struct oom_lengths l;
	struct oom_error err = {{0}};
	struct oom_lengths_report r;
	char text[400] = "";
	size_t n = 0;

	(void)state;
	for (int i = 1; i <= 100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%d\n", i);
	assert_int_equal(read_text(&l, text, &err), OOM_OK);
	r = oom_lengths_report(&l, 1, 1000);
	assert_int_equal(r.p50, 50);
	assert_int_equal(r.longest, 100);
	assert_true(r.mean_batch_tokens == 50.5);
	assert_true(r.death_step == 2);
	assert_int_equal(r.batching[OOM_BATCH_LONGEST].worst_tokens, 100);
	assert_true(fabs(r.batching[OOM_BATCH_MAX_LENGTH].padding_share - 0.495) < 1e-12);
	oom_lengths_release(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats),
					   cmocka_unit_test(test_monte_carlo),
					   cmocka_unit_test(test_strategies),
					   cmocka_unit_test(test_fields),
					   cmocka_unit_test(test_report)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
