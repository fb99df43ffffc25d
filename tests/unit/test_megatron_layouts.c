/* How Megatron lays layers over pipeline ranks: uneven splits, layouts in its own letters, and what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "megatron/parts.h"
#include "oomplan/plan.h"

/* A launch of so many layers on pp ranks of vpp chunks, dense layers and no experts. */
static struct oom_megatron staged(int64_t layers, int64_t pp, int64_t vpp)
{
	struct oom_megatron m = oom_megatron_default();

	m.layers = layers;
	m.hidden = 512;
	m.heads = 8;
	m.vocab = 51200;
	m.pp = m.n_gpus = pp;
	m.vpp = vpp;
	return m;
}

/* What each stage holds. */
static void laid_out(const struct oom_megatron *m, char *out, size_t size)
{
	const int64_t v = m->vpp ? m->vpp : 1;
	struct mg_chunk c[MG_CHUNKS];
	size_t n = 0;

	for (int64_t k = 0; k < m->pp * v; k++) {
		oom_mg_chunks(m, k % m->pp, c);
		n += (size_t)snprintf(out + n, size - n, "%s%s%lld%.*s%s", k ? " " : "",
				      c[k / m->pp].embedding ? "E" : "",
				      (long long)(c[k / m->pp].dense + c[k / m->pp].moe),
				      (int)c[k / m->pp].mtp, "mm", c[k / m->pp].loss ? "L" : "");
	}
}

/* Layers that do not divide.  Llama 3.1 405B (126) and Qwen3 235B (94) count embedding and loss as
 * layers; DeepSeek-V3's layouts (61) are those of Megatron-Bridge 067f987 recipes/deepseek/h100/
 * deepseek_v3.py _get_deepseek_v3_pipeline_layout; where rounding up leaves stages empty, torchtitan
 * b5bcd76 _generate_llm_fqn_per_model_part(8, 9): 11 effective layers, extra ones on the first
 * three stages, one less at both ends. */
static void test_uneven(void **state)
{
	static const struct {
		int64_t layers, pp, vpp, mtp;
		const char *stages, *layout;
	} rows[] = {
		{126, 8, 0, 0, "E15 16 16 16 16 16 16 15L", ""},
		{94, 4, 2, 0, "E11 12 12 12 12 12 12 11L", ""},
		{61, 4, 0, 1, "E16 16 16 13mL", "Et*16|t*16|t*16|t*13mL"},
		{61, 4, 2, 0, "E8 8 8 8 8 8 8 5L", "Et*8|t*8|t*8|t*8|t*8|t*8|t*8|t*5L"},
		{9, 8, 0, 0, "E1 2 2 1 1 1 1 0L", "Et|t*2|t*2|t|t|t|t|L"},
		{8, 4, 0, 0, "E2 2 2 2L", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_megatron m = staged(rows[i].layers, rows[i].pp, rows[i].vpp), again;
		char text[512];

		m.mtp_layers = rows[i].mtp;
		assert_int_equal(oom_megatron_derive(&m, NULL), OOM_OK);
		laid_out(&m, text, sizeof(text));
		assert_string_equal(text, rows[i].stages);
		oom_mg_write_layout(&m, text, sizeof(text));
		assert_string_equal(text, rows[i].layout);
		/* said in Megatron's words it is the same */
		again = staged(rows[i].layers, rows[i].pp, rows[i].vpp);
		again.mtp_layers = rows[i].mtp;
		snprintf(again.layout, sizeof(again.layout), "%s", text);
		assert_int_equal(oom_megatron_derive(&again, NULL), OOM_OK);
		laid_out(&again, text, sizeof(text));
		assert_string_equal(text, rows[i].stages);
	}
}

/* Megatron's own example (from_str), and what its assertions refuse. */
static void test_layouts(void **state)
{
	static const struct {
		const char *text, *expanded;
	} rows[] = {{"Ettt|(tt|)*3,m|L", "Ettt|tt|tt|tt|m|L"},
		    {"xy", NULL}, {"E(t", NULL}, {"Et*0L", NULL}, {"*3", NULL},
		    {"Et*999999999999999999L", NULL}, {"(t|)*3t*2L", "t|t|t|ttL"}};
	static const struct {
		int64_t layers, first, last, embedding;
		const char *layout, *words;
	} bad[] = {{16, 3, 0, 0, "", "divide"}, {16, 20, 0, 0, "", "first"}, {16, 4, 4, 1, "", "exclude"},
		   {16, 0, 0, 1, "", "divide"}, {2, 0, 0, 0, "Et|tL", "stages"},
		   {16, 0, 0, 0, "Et|t|t|tL", "layers"}};
	char out[64];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const enum oom_status st = oom_mg_expand_layout(rows[i].text, out, sizeof(out), NULL);

		assert_int_equal(st, rows[i].expanded ? OOM_OK : OOM_ERR_INVALID);
		if (rows[i].expanded)
			assert_string_equal(out, rows[i].expanded);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct oom_megatron m = staged(bad[i].layers, 4, 0);
		struct oom_error err = {{0}};

		m.first_stage_layers = bad[i].first;
		m.last_stage_layers = bad[i].last;
		m.account_embedding = bad[i].embedding;
		snprintf(m.layout, sizeof(m.layout), "%s", bad[i].layout);
		assert_int_equal(oom_megatron_derive(&m, &err), OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, bad[i].words));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uneven),
		cmocka_unit_test(test_layouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
