/* The compatibility table: every rule is broken by a plan written for it, and nothing that is
 * recommended breaks one.
 *
 * A plan for a rule is made from the rule's own condition, read a second time here by a simpler
 * reader; models, cards and a few rules that need more are named below.  What the rules say has its
 * sources in data/compat.csv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "model_of.h"
#include "oomplan/oomplan.h"

/* One model for each thing that a condition may ask of it: what of the class is 0 or 1, and other
 * words of facts. */
static const struct {
	const char *fact, *model;
} models[] = {
	{"class.checkpointing=0", "{\"model_type\":\"ctrl\"}"},
	{"class.flash=0", "T5-base"},
	{"class.sdpa=0", "{\"model_type\":\"bloom\"}"},
	{"class.wraps=0", "BERT-base"},
	{"class.cut!=1", "{\"model_type\":\"gpt_neox\"}"},
	{"class.liger=0", "{\"model_type\":\"gpt_neox\"}"},
	{"class.batchnorm=1", "{\"model_type\":\"resnet\"}"},
	{"class.fp16-overflow=1", "T5-base"},
	{"model.experts>=1", "Mixtral-8x7B"},
	{"model.head-dim>256",
	 "{\"model_type\":\"llama\",\"hidden_size\":1024,\"num_attention_heads\":2,"
	 "\"num_key_value_heads\":2,\"head_dim\":512,\"num_hidden_layers\":2,"
	 "\"intermediate_size\":256,\"vocab_size\":1000}"},
	{"model.type!=llama|llama4", "GPT-2"},
	{"model.type!=llama|qwen3", "GPT-2"},
	{"model.task!=causal-lm|", "ViT-B-16"},
	{"model.task=image-text",
	 "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\","
	 "\"num_hidden_layers\":2},\"vision_config\":{\"model_type\":\"clip_vision_model\"}}"},
};

static const char *model_for(const char *when)
{
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
		if (strstr(when, models[i].fact))
			return models[i].model;
	return "Llama-3.2-1B";
}

static struct oom_gpu card_for(const char *when)
{
	struct oom_gpu g = {.name = "card", .vendor = "nvidia", .compute_capability = 8};

	if (strstr(when, "card.vendor=amd") || strstr(when, "card.vendor=intel") ||
	    strstr(when, "card.vendor!=nvidia")) {
		snprintf(g.vendor, sizeof(g.vendor), strstr(when, "=intel") ? "intel" : "amd");
		g.compute_capability = 0;
	} else if (strstr(when, "card.cc<7")) {
		g.compute_capability = 6;
	} else if (strstr(when, "card.cc<8")) {
		g.compute_capability = 7.5;
	}
	return g;
}

/* Sets the knob of one term so that the term holds: the first value of a list, a number at the end
 * of a range, another word than those that are excluded. */
static void obey(struct oom_plan *p, const char *name, const char *op, const char *value)
{
	const struct oom_option *k = oom_knob_find(name);
	char word[300];
	int64_t *at;

	if (!strcmp(name, "library")) {
		k = oom_knob_find("optimizer");
		if (*op != '!')
			assert_int_equal(oom_plan_set(p, k, strstr(value, "bits") ? "adamw-8bit" :
									  "adamw-4bit",
						      NULL),
					 OOM_OK);
		return;
	}
	if (!strcmp(name, "run.framework")) {
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(value, "|"), value);
		assert_true(oom_framework_number(word) > 0);
		if (*op != '!')
			p->framework = oom_framework_number(word);
		return;
	}
	if (!k)
		fail_msg("no knob %s", name);
	at = oom_plan_field(p, k);
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(value, "|"), value);
	if (!strcmp(value, "asked"))
		return;
	assert_int_equal(oom_plan_set(p, k, word, NULL), OOM_OK);
	if (!strcmp(op, "<"))
		--*at;
	else if (!strcmp(op, ">"))
		++*at;
	else if (!strcmp(op, "!=") && !strcmp(name, "optimizer"))
		assert_int_equal(oom_plan_set(p, k, "sgd", NULL), OOM_OK);
	else if (!strcmp(op, "!="))
		*at = k->kind == OOM_OPTION_CHOICE ? (*at + 1) % 2 : *at + 1;
}

static struct oom_plan plan_for(const char *when)
{
	struct oom_plan p = oom_plan_default();
	char copy[sizeof(((struct oom_compat_rule *)0)->when)];

	memcpy(copy, when, strlen(when) + 1);
	for (char *term = strtok(copy, "&"); term; term = strtok(NULL, "&")) {
		char name[40], op[3] = "";
		const char *value;
		size_t n;

		term += strspn(term, " ");
		term[strcspn(term, " ")] = 0;
		n = strcspn(term, "!=<>");
		snprintf(name, sizeof(name), "%.*s", (int)n, term);
		snprintf(op, sizeof(op), "%.*s", (int)strspn(term + n, "!=<>"), term + n);
		value = term + n + strlen(op);
		if (strncmp(name, "class.", 6) && strncmp(name, "card.", 5) &&
		    strncmp(name, "model.", 6))
			obey(&p, name, op, value);
	}
	return p;
}

static void test_every_rule(void **state)
{
	struct oom_compat_rule rule, *r = &rule;
	size_t i = 0;

	(void)state;
	for (; oom_compat_rule_at(i, r); i++) {
		struct oom_keys keys;
		struct oom_model *m = model_of(model_for(r->when), &keys);
		const struct oom_gpu card = card_for(r->when);
		struct oom_plan p = plan_for(r->when), asked = p;
		struct oom_compat_set broken, none = {{0}};
		struct oom_error err;
		struct oom_compat c;

		p.compute_capability = card.compute_capability;
		if (strstr(r->when, "task=image-text"))
			p.task = OOM_TASK_IMAGE_TEXT;
		if (strstr(r->when, "micro-batch!=asked"))
			asked.micro_batch++;
		if (strstr(r->when, "attn!=asked"))
			asked.attn = OOM_ATTN_EAGER;
		assert_int_equal(oom_compat_init(&c, m, &p, &card, &err), OOM_OK);
		broken = oom_compat_broken(&c, &p, &asked);
		if (!oom_compat_has(&broken, i))
			fail_msg("%s: not broken by %s", r->name, r->when);
		/* a search may not take it, unless that was asked for */
		if (r->verdict != OOM_CONDITIONAL && oom_compat_allows(&c, &p, &asked, &none))
			fail_msg("%s: allowed", r->name);
		assert_true(oom_compat_allows(&c, &p, &asked, &broken));
		/* what is put in its place is no longer broken */
		if (*r->instead && r->verdict <= OOM_BECOMES_OTHER && !strstr(r->when, "asked")) {
			if (!oom_compat_mend(&c, &p))
				fail_msg("%s: not mended", r->name);
			broken = oom_compat_broken(&c, &p, NULL);
			if (oom_compat_has(&broken, i))
				fail_msg("%s: %s does not mend it", r->name, r->instead);
			/* nor refused for another reason */
			oom_plan_relax(&p);
			if (!oom_plan_check(&asked, NULL) && oom_plan_check(&p, &err))
				fail_msg("%s: %s: %s", r->name, r->instead, err.text);
		}
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	assert_true(i >= 50);
}

/* What one framework refuses another one runs: the plan alone breaks no such rule. */
static void test_frameworks(void **state)
{
	struct oom_compat_rule r;
	size_t n = 0;

	(void)state;
	for (size_t i = 0; oom_compat_rule_at(i, &r); i++) {
		struct oom_keys keys;
		struct oom_model *m = model_of(model_for(r.when), &keys);
		struct oom_plan p = plan_for(r.when);
		struct oom_compat_set broken;
		struct oom_compat c;

		if (strstr(r.when, "run.framework=")) {
			n++;
			p.framework = oom_framework_number("verl");
			assert_int_equal(oom_compat_init(&c, m, &p, NULL, NULL), OOM_OK);
			broken = oom_compat_broken(&c, &p, NULL);
			assert_false(oom_compat_has(&broken, i));
			p.framework = 0;
			assert_int_equal(oom_compat_init(&c, m, &p, NULL, NULL), OOM_OK);
			broken = oom_compat_broken(&c, &p, NULL);
			assert_false(oom_compat_has(&broken, i));
		}
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	assert_true(n >= 8);
	assert_int_equal(oom_framework_number(NULL), 0);
	assert_int_equal(oom_framework_number("nosuch"), 0);
	assert_string_equal(oom_emit_framework("slurm"), "trl");
	assert_string_equal(oom_emit_framework("axolotl"), "axolotl");
	assert_null(oom_emit_framework("patch"));
}

/* A rule without a name, a sentence or a source cannot be told to anybody. */
static void test_rows_are_whole(void **state)
{
	struct oom_compat_rule rule, other, *r = &rule;
	size_t i = 0, read = 0;

	(void)state;
	for (; oom_compat_rule_at(i, r); i++) {
		assert_true(*r->name && *r->when && *r->happens && *r->source);
		read += *r->checked != 0;
		assert_int_equal(r->verdict == OOM_CONDITIONAL, *r->setting != 0);
		assert_true(r->happens[strlen(r->happens) - 1] != '.' || strchr(r->happens, '"'));
		for (size_t k = 0; k < i && oom_compat_rule_at(k, &other); k++)
			assert_string_not_equal(r->name, other.name);
	}
	/* every source was opened */
	assert_int_equal(read, i);
}

/* What looking up changed: bitsandbytes 0.50 has kernels for the CPU and managed memory beside CUDA's;
 * accelerate takes a Lion for DeepSpeed's own. */
static void test_looked_up(void **state)
{
	static const struct {
		const char *engine, *optimizer, *offload;
		int64_t zero;
		bool launches;
	} cases[] = {{"fsdp1", "adamw-8bit", "offload-params", 3, true},
		     {"deepspeed", "lion", "offload-optimizer", 2, true},
		     {"deepspeed", "adamw-loop", "offload-optimizer", 2, true},
		     {"deepspeed", "lion-8bit", "offload-optimizer", 2, false},
		     {"deepspeed", "sgd", "offload-optimizer", 2, false},
		     {"fsdp2", "adamw-8bit", "offload-params", 3, false}};
	struct oom_keys keys;
	struct oom_model *m = model_of("Llama-3.2-1B", &keys);
	struct oom_compat c;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();

		p.gpus = 2;
		p.zero_stage = cases[i].zero;
		assert_int_equal(oom_plan_set(&p, oom_knob_find("engine"), cases[i].engine, NULL), OOM_OK);
		assert_int_equal(oom_plan_set(&p, oom_knob_find("optimizer"), cases[i].optimizer, NULL), OOM_OK);
		assert_int_equal(oom_plan_set(&p, oom_knob_find(cases[i].offload), "cpu", NULL), OOM_OK);
		assert_int_equal(oom_compat_init(&c, m, &p, NULL, NULL), OOM_OK);
		if (oom_compat_launches(&c, &p) != cases[i].launches)
			fail_msg("%s with %s", cases[i].engine, cases[i].optimizer);
	}
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* accelerate 1.x, accelerator.py prepare_model: what is trained and not fp32 is taken to it where mixed precision is on.
 * Without autocast, with adapters and with axolotl's own FSDP2 nothing is. */
static void test_raised_by_fsdp(void **state)
{
	static const struct {
		const char *engine, *precision, *framework;
		int64_t zero, lora_r;
		bool launches;
	} cases[] = {{"fsdp2", "bf16-amp", NULL, 3, 0, false},	   {"fsdp1", "bf16-amp", NULL, 3, 0, false},
		     {"fsdp1", "bf16-amp", "trl", 2, 0, false},	   {"fsdp2", "amp-bf16", NULL, 3, 0, true},
		     {"fsdp2", "bf16", NULL, 3, 0, true},	   {"fsdp2", "bf16-amp", NULL, 3, 8, true},
		     {"fsdp2", "bf16-amp", "axolotl", 3, 0, true}, {"hf", "bf16-amp", NULL, 0, 0, true}};
	struct oom_keys keys;
	struct oom_model *m = model_of("Llama-3.2-1B", &keys);
	struct oom_compat c;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();

		p.gpus = 2;
		p.zero_stage = cases[i].zero;
		p.lora_r = cases[i].lora_r;
		p.framework = oom_framework_number(cases[i].framework);
		assert_int_equal(oom_plan_set(&p, oom_knob_find("engine"), cases[i].engine, NULL), OOM_OK);
		assert_int_equal(oom_plan_set(&p, oom_knob_find("precision"), cases[i].precision, NULL), OOM_OK);
		assert_int_equal(oom_compat_init(&c, m, &p, NULL, NULL), OOM_OK);
		if (oom_compat_launches(&c, &p) != cases[i].launches)
			fail_msg("%s, %s", cases[i].engine, cases[i].precision);
		if (!cases[i].launches)
			assert_true(oom_compat_mend(&c, &p) && p.precision == OOM_AMP_BF16);
	}
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* A plan as most people would launch it breaks nothing on any card. */
static void test_plain_plans(void **state)
{
	static const char *const names[] = {"Llama-3.2-1B", "GPT-2", "BERT-base", "ViT-B-16", "Qwen3-8B"};
	const struct oom_gpu a100 = {.vendor = "nvidia", .compute_capability = 8};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct oom_keys keys;
		struct oom_model *m = model_of(names[i], &keys);
		struct oom_plan p = oom_plan_default();
		struct oom_compat_set broken;
		struct oom_compat_rule r;
		struct oom_compat c;

		p.precision = OOM_AMP_BF16;
		p.grad_ckpt = OOM_CKPT_FULL;
		assert_int_equal(oom_compat_init(&c, m, &p, &a100, NULL), OOM_OK);
		broken = oom_compat_broken(&c, &p, NULL);
		for (size_t k = 0; oom_compat_next(&broken, &k) && oom_compat_rule_at(k, &r); k++)
			fail_msg("%s breaks %s", names[i], r.name);
		assert_false(oom_compat_mend(&c, &p));
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* Advice that an engine cannot follow is not taken: torchtune's recipes have no fp16 (recipes/full_finetune_single_device.py
 * refuses torch.float16), so that on a T4 a run of theirs begins from fp32. */
static void test_advice_within_the_rules(void **state)
{
	const struct oom_gpu t4 = {.vendor = "nvidia", .compute_capability = 7.5};
	struct oom_keys keys;
	struct oom_model *m = model_of("Llama-3.2-1B", &keys);
	struct oom_plan p = oom_plan_default();
	struct oom_compat c;

	(void)state;
	p.engine = OOM_ENGINE_TORCHTUNE;
	p.gpus = 2;
	p.precision = OOM_BF16;
	p.precision_unasked = 1;
	p.compute_capability = 7.5;
	oom_plan_settle(&p);
	assert_int_equal(oom_plan_check(&p, NULL), OOM_OK);
	assert_int_equal(oom_compat_init(&c, m, &p, &t4, NULL), OOM_OK);
	assert_true(oom_compat_mend(&c, &p));
	assert_int_equal(p.precision, OOM_FP32);
	assert_int_equal(oom_plan_check(&p, NULL), OOM_OK);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_rule),
		cmocka_unit_test(test_frameworks),
		cmocka_unit_test(test_rows_are_whole),
		cmocka_unit_test(test_looked_up),
		cmocka_unit_test(test_raised_by_fsdp),
		cmocka_unit_test(test_plain_plans),
		cmocka_unit_test(test_advice_within_the_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
