/* Scripts and what they would run, by hand from POSIX sh's and bash's rules: words, branches, files
 * that they write; hostile ones end with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/arguments.h"
#include "frameworks/shell.h"

/* All commands, words joined by '|', commands by ';'; an unknown word has '?' in front. */
static void shown(const char *script, char *out, size_t size)
{
	struct oom_error err = {{0}};
	struct oom_shell *sh = NULL;
	const struct oom_shell_command *c;
	size_t used = 0;

	if (oom_shell_read(script, strlen(script), "t.sh", &sh, &err))
		fail_msg("%s", err.text);
	out[0] = 0;
	for (size_t i = 0; (c = oom_shell_command_at(sh, i)) != NULL; i++)
		for (size_t k = 0; k < c->n && used < size; k++)
			used += (size_t)snprintf(out + used, size - used, "%s%s%s",
						 k ? "|" : i ? ";" : "", c->words[k].known ? "?" : "",
						 c->words[k].text);
	oom_shell_free(sh);
}

static void test_words(void **state)
{
	static const struct {
		const char *script, *commands;
	} cases[] = {
		{"run a 'b c' \"d $X\" # no\n", "run|a|b c|?d $X"},
		{"X=1\nrun --a=$X ${X}2 \\\n  end\n", "run|--a=1|12|end"},
		{"A='x y'; run $A \"$A\"\n", "run|x|y|x y"},
		{"run ${N:-4} ${M-5} ${1:-6} $2\n", "run|4|5|6|?$2"},
		{"N=8; run ${N:+yes} ${U:+no}end $((N * 2 + 1)) $((N*$N)) $(expr $N \\* 4)\n",
		 "run|yes|end|17|64|32"},
		{"A=(a 'b c' # one\n d)\nA+=(e)\nrun \"${A[@]}\" ${#A[@]} ${A[1]}\n",
		 "run|a|b c|d|e|4|b|c"},
		{"if [ -z \"$1\" ]; then N=1; else N=2; fi; run $N\n", "run|1"},
		{"M=fp8\nif [[ $M == bf16 ]]; then run b; elif [[ $M == fp* && 1 -lt 2 ]]; then run f; "
		 "else run e; fi\n", "run|f"},
		{"if [ -f /there ]; then run a; else run b; fi\n", "run|a;run|b"},
		{"case $MODE in x) run x ;; y|'') run y ;; *) run z ;; esac\n", "run|y"},
		{"for i in 3 4; do run $i; done\n", "run|3"},
		{"while [ \"$1\" != \"\" ]; do run $1; shift; done\nrun end\n", "run|end"},
		{"f() { run in; }\nfunction g { run g; }\nf\n", "run|in;run|g;f"},
		{"A=1 B=2 run x; run $A\n", "A=1|B=2|run|x;run|?$A"},
		{"C='go $V'; V=9; bash -c \"$C x\" && true || run no\n", "go|9|x"},
		{"eval run \"a b\"\nX=\"p q\"; eval $X\n", "run|a|b;p|q"},
		{"run a 2>&1 | tee log > out.txt &\n", "run|a;tee|log"},
		{"#SBATCH -N 3\n#SBATCH --gres=gpu:a100:4\nrun $SLURM_NNODES $SLURM_GPUS_ON_NODE\n",
		 "run|3|4"},
		{"run $(date +%F) `pwd`/x\n", "run|?$(date_+%F)|?`pwd`/x"},
		{"[ -z \"$W\" ] && W=5\n[ -n \"$W\" ] || W=6\nrun $W\n", "run|5"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char got[400];

		shown(cases[i].script, got, sizeof(got));
		if (strcmp(got, cases[i].commands))
			fail_msg("%s\ngave %s\nnot  %s", cases[i].script, got, cases[i].commands);
	}
}

static void test_files(void **state)
{
	static const char script[] = "N=2\ncat <<EOT > ds.json\n{\"batch\": $N, \"x\": \"y\"}\nEOT\n"
				     "cat > raw.txt <<'E'\n$N\nE\necho '{}' > e.json\n";
	struct oom_error err = {{0}};
	struct oom_shell *sh = NULL;

	(void)state;
	assert_int_equal(oom_shell_read(script, sizeof(script) - 1, "t.sh", &sh, &err), OOM_OK);
	assert_string_equal(oom_shell_file_at(sh, 0)->name, "ds.json");
	assert_string_equal(oom_shell_file_at(sh, 0)->text, "{\"batch\": 2, \"x\": \"y\"}\n");
	assert_string_equal(oom_shell_file_at(sh, 1)->text, "$N\n");
	assert_string_equal(oom_shell_file_at(sh, 2)->text, "{}");
	assert_null(oom_shell_file_at(sh, 3));
	oom_shell_free(sh);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *script, *told;
	} cases[] = {
		{"run\nrun \"a\n", "t.sh:2: \" is never closed"},
		{"run 'a\n", "t.sh:1: ' is never closed"},
		{"X=${Y\n", "t.sh:1: ${ is never closed"},
		{"A=(a\n", "an array is never closed"},
		{"\nif true; then run\n", "\"fi\" is missing"},
	};
	struct oom_shell *sh;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};

		assert_int_not_equal(oom_shell_read(cases[i].script, strlen(cases[i].script), "t.sh", &sh,
						    &err), OOM_OK);
		if (!strstr(err.text, cases[i].told))
			fail_msg("%s: %s", cases[i].script, err.text);
	}
}

/* Each line doubles what the one before it made; blocks within blocks; a variable that holds itself. */
static void test_bounds(void **state)
{
	static char script[60000];
	struct oom_error err = {{0}};
	struct oom_shell *sh = NULL;
	size_t n = (size_t)sprintf(script, "A0=xxxxxxxxxxxxxxxx\n");

	(void)state;
	for (int i = 1; i < 60; i++)
		n += (size_t)sprintf(script + n, "A%d=\"$A%d$A%d\"\n", i, i - 1, i - 1);
	assert_int_equal(oom_shell_read(script, n, "t.sh", &sh, &err), OOM_ERR_LIMIT);
	for (n = 0; n < 50000; n += 2)
		memcpy(script + n, "{ ", 2);
	assert_int_equal(oom_shell_read(script, n, "t.sh", &sh, &err), OOM_ERR_LIMIT);
	for (n = 0; n < 50000; n += 3)
		memcpy(script + n, "${a", 3);
	assert_int_not_equal(oom_shell_read(script, n, "t.sh", &sh, &err), OOM_OK);
	n = (size_t)sprintf(script, "A='$A'; eval \"A=\\\"$A$A\\\"\"; bash -c 'bash -c \"$A\"'\n");
	if (!oom_shell_read(script, n, "t.sh", &sh, &err))
		oom_shell_free(sh);
	n = (size_t)sprintf(script, "C='bash -c \"$C\"'; bash -c \"$C\"\n");
	assert_int_equal(oom_shell_read(script, n, "t.sh", &sh, &err), OOM_ERR_LIMIT);
}

static const char *text_at(const struct doc *d, const char *path)
{
	const struct doc_node *node = doc_find(d, path);

	return node ? node->text : "(none)";
}

static void test_command_lines(void **state)
{
	static const char line[] =
		"A=1 nohup torchrun --standalone --nproc_per_node 4 tools/train.py conf.yaml --a 1 --b=2 --flag "
		"--list x y --neg -1 --map '{\"k\": [1, \"two\"]}' model.rank=8 +extra.x=null\n";
	struct oom_error err = {{0}};
	struct doc d = {.root = NULL};

	(void)state;
	assert_int_equal(doc_read_shell(&d, line, sizeof(line) - 1, "t.sh", &err), OOM_OK);
	assert_string_equal(text_at(&d, "(launcher).A="), "1");
	assert_string_equal(text_at(&d, "(launcher).name"), "torchrun");
	assert_string_equal(text_at(&d, "(launcher).nproc_per_node"), "4");
	assert_string_equal(text_at(&d, "(launcher).standalone"), "true");
	assert_string_equal(text_at(&d, "(program)"), "tools/train.py");
	assert_string_equal(text_at(&d, "(words).0"), "conf.yaml");
	assert_string_equal(text_at(&d, "a"), "1");
	assert_string_equal(text_at(&d, "b"), "2");
	assert_string_equal(text_at(&d, "flag"), "true");
	assert_string_equal(text_at(&d, "list.1"), "y");
	assert_string_equal(text_at(&d, "neg"), "-1");
	assert_string_equal(text_at(&d, "map.k.1"), "two");
	assert_string_equal(text_at(&d, "model.rank"), "8");
	assert_string_equal(text_at(&d, "extra.x"), "null");
	doc_release(&d);
	assert_int_equal(doc_read_shell(&d, "ls -l\n", 6, "t.sh", &err), OOM_ERR_UNKNOWN);
	assert_non_null(strstr(err.text, "no line that starts a training program"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),	 cmocka_unit_test(test_files),
		cmocka_unit_test(test_refusals), cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_command_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
