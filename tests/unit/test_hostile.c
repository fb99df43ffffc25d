/* No config, however hostile, crashes, wraps or prices nonsense.  Every key that a model type has
 * (data/model_types.jsonl) is set to values that no model has; the answer is an error with words or
 * an evaluation that is sound: peaks at least their ends, buckets that add up, totals below an
 * exbibyte.  OOM_HOSTILE=all tries every value instead of a sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <signal.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "oomplan/model.h"
#include "oomplan/plan.h"
#include "knobs.h"

static const char *const values[] = {"0",     "-1", "1",    "3",    "0.5",    "2147483648", "1e308",
				     "65536", "[]", "null", "true", "\"x\"", "4611686018427387904"};
enum { VALUES = sizeof(values) / sizeof(values[0]) };

/* knobs apart by blanks; every one of them meets every key in turn */
static const char *const plans[] = {
	"micro-batch=2 seq-len=128",
	"micro-batch=2 seq-len=128 precision=amp-bf16 grad-ckpt=full lora-r=8",
	"micro-batch=2 seq-len=128 engine=megatron gpus=4 tp=2 pp=2 precision=bf16",
	"micro-batch=1 seq-len=64 engine=fsdp2 gpus=2 images=1 attn=eager padding-mask=true",
	"micro-batch=1 seq-len=64 lora-r=4 lora-targets=all-linear lora-bias=all grad-accum=2",
};
enum { PLANS = sizeof(plans) / sizeof(plans[0]) };

static char now[200];           /* what is tried */
static size_t asked, priced, refused, unnamed, wrong;

static sigjmp_buf before;

static void crashed(int sig)
{
	(void)sig;
	siglongjmp(before, 1);
}

static void complain(const char *what)
{
	if (wrong++ < 400)
		print_error("%s: %s\n", now, what);
}

static void sound(const struct oom_eval *e)
{
	const uint64_t limit = (uint64_t)1 << 60;
	uint64_t sum = 0;

	for (int i = 0; i < OOM_BUCKETS; i++)
		sum += e->bucket[i];
	if (sum != e->overall_peak)
		complain("who is alive does not add up to the peak");
	for (int i = 0; i < OOM_PHASES; i++)
		if (e->end[i] > e->peak[i])
			complain("a phase ends above its peak");
	if (!e->total_params)
		complain("no parameters");
	if (e->overall_peak >= limit || e->used_bytes >= limit || e->used_bytes < e->overall_peak ||
	    e->host_pinned_bytes >= limit)
		complain("absurd totals");
	if (e->overall_peak < e->param_bytes / 2)
		complain("the peak is less than the weights");
}

/* The key as the message must say it: a type that is priced without it is refused for it.  Under
 * the first plan: the others ask for what the type cannot do. */
static void names(const char *key, size_t plan, const char *text)
{
	refused++;
	if (key && !plan && !strstr(text, key)) {
		unnamed++;
		print_message("without the key: %s: %s\n", now, text);
	}
}

/* False: refused. */
static bool price(const struct oom_model *m, const char *key, size_t plan)
{
	struct oom_plan p = oom_plan_default();
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {""};
	struct oom_eval e;
	bool priced_it = true;

	assert_non_null(ev);
	set(&p, plans[plan]);
	if (oom_model_task(m) == OOM_TASK_IMAGE_CLS)
		p.seq_len = 0;
	err.text[0] = 0;
	if (oom_evaluate(ev, m, &p, OOM_EVAL_BUCKETS, &e, &err)) {
		if (!err.text[0])
			complain("refused without a word");
		if (strstr(err.text, "internal error"))
			complain(err.text);
		names(key, plan, err.text);
		priced_it = false;
	} else {
		priced++;
		sound(&e);
	}
	oom_evaluator_free(ev);
	return priced_it;
}

/* A config of the type alone is priced; key is then what is wrong with the one below. */
static bool plain(const char *type)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {""};
	char json[200];
	bool ok;

	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", type);
	ok = !oom_keys_parse(&keys, json, strlen(json), type, &err) && !oom_model_new(&m, &keys, &err) &&
	     price(m, NULL, 0);
	oom_model_free(m);
	oom_keys_release(&keys);
	return ok;
}

static void try(const char *type, bool known, const char *key, const char *value, size_t plan)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {""};
	char json[300];

	asked++;
	snprintf(now, sizeof(now), "%s %s=%s plan %zu", type, key, value, plan);
	snprintf(json, sizeof(json), "{\"model_type\": \"%s\", \"%s\": %s}", type, key, value);
	if (sigsetjmp(before, 1)) {             /* what it held is lost: the test has failed */
		complain("crashed");
		return;
	}
	if (oom_keys_parse(&keys, json, strlen(json), type, &err) || oom_model_new(&m, &keys, &err)) {
		if (!err.text[0])
			complain("refused without a word");
		names(known ? key : NULL, plan, err.text);
	} else {
		price(m, known ? key : NULL, plan);
	}
	oom_model_free(m);
	oom_keys_release(&keys);
}

static bool structural(const cJSON *key)
{
	return (cJSON_IsNumber(key) || cJSON_IsNull(key) || cJSON_IsArray(key)) &&
	       !strstr(key->string, "dropout") && !strstr(key->string, "token_id") &&
	       !strstr(key->string, "drop");
}

static void try_type(const char *line)
{
	const bool all = getenv("OOM_HOSTILE") != NULL;
	const char *tab = strchr(line, '\t');
	cJSON *root = cJSON_Parse(tab + 1);
	char type[100];
	uint32_t turn = 0;
	bool known;

	assert_non_null(root);
	snprintf(type, sizeof(type), "%.*s", (int)(tab - line), line);
	snprintf(now, sizeof(now), "%s", type);
	known = plain(type);
	for (const char *c = type; *c; c++)
		turn = turn * 31 + (unsigned char)*c;
	for (const cJSON *k = cJSON_GetObjectItem(root, "defaults")->child; k; k = k->next) {
		if (!structural(k))
			continue;
		turn++;
		for (size_t i = 0; i < VALUES; i++)
			for (size_t j = 0; all ? j < PLANS : j < 1; j++)
				/* nothing at all is tried of every key, the others in turn */
				if (all || i == turn % VALUES || (!i && turn % 2))
					try(type, known, k->string, values[i], all ? j : turn / 2 % PLANS);
	}
	cJSON_Delete(root);
}

static void no_config_crashes_or_wraps(void **state)
{
	const int signals[] = {SIGFPE, SIGSEGV, SIGABRT, SIGBUS};
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/model_types.jsonl", "r");
	size_t cap = 0;
	char *line = NULL;

	(void)state;
	assert_non_null(f);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &(struct sigaction){.sa_handler = crashed}, NULL);
	while (getline(&line, &cap, f) > 0)
		try_type(line);
	free(line);
	fclose(f);
	print_message("%zu asked, %zu priced, %zu refused, %zu of them without the key, %zu wrong\n", asked,
		      priced, refused, unnamed, wrong);
	assert_int_equal(wrong, 0);
	assert_int_equal(unnamed, 0);           /* of every value tried on every key, too (OOM_HOSTILE=all) */
	assert_true(priced > asked / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_config_crashes_or_wraps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
