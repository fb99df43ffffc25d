/* Plans over a grid of questions, as users ask them: how many of those that are recommended could not
 * be launched, how many change something needlessly, and how many answers "none fits" are wrong.
 *
 * All is counted without the search: a plan is held against the table of rules with what the question
 * itself breaks excused; each of its changes is undone by itself; and where nothing was found, a list of
 * set-ups written down here is tried one by one.  Asked of any such grid: at most 2 % broken, at most
 * 5 % wrong, none needless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/answer.h"
#include "oomplan/rules.h"

static const char *const models[] = {"GPT-2", "Llama-3.2-1B", "Llama-3.1-8B", "Qwen2.5-7B",
				     "Mixtral-8x7B", "BERT-large", "T5-base", "ViT-B-16"};
static const char *const cards[] = {"T4", "V100-SXM2-16GB", "RTX-4090", "A100-40G", "MI300X"};
static const int64_t gpus[] = {1, 4};
static const struct {
	const char *knob[4], *value[4];
} setups[] = {
	{{"precision"}, {"fp32"}},
	{{"precision", "micro-batch"}, {"amp-bf16", "16"}},
	{{"precision", "seq-len", "micro-batch"}, {"bf16", "2048", "1"}},
	{{"precision", "lora-r", "seq-len", "micro-batch"}, {"bf16-amp", "16", "49152", "2"}},
	{{"precision", "optimizer"}, {"amp-fp16", "adamw-8bit"}},
	{{"precision", "attn", "loss"}, {"amp-fp16", "eager", "fused"}},
};

struct grid {
	struct oom_evaluator *ev;
	struct oom_question q;
	int asked, changed, broken, none, wrong, undone, needless;
};

static bool set(struct oom_plan *p, const char *knob, const char *value)
{
	return !oom_plan_set(p, oom_knob_find(knob), value, NULL);
}

/* Does this plan run and fit? */
static bool does(const struct grid *g, const struct oom_compat *c, const struct oom_plan *asked,
		 const struct oom_plan *p)
{
	struct oom_compat_set excused = oom_compat_broken(c, asked, asked);
	struct oom_eval e;
	bool fits;

	return oom_compat_allows(c, p, asked, &excused) && oom_compat_launches(c, p) &&
	       !oom_judge(g->ev, g->q.model, p, g->q.gpu->capacity_bytes, OOM_EVAL_FAST, &e, &fits,
			  NULL) &&
	       fits;
}

/* Anything that does, of what needs the least: one sequence at a time, everything recomputed, every
 * engine with and without offload, the smallest states. */
static bool anything(const struct grid *g, const struct oom_compat *c, const struct oom_plan *asked)
{
	static const char *const ways[][5] = {
		/* engine, zero, offload of the optimizer, of parameters, step in backward */
		{"hf", "0", "none", "none", "false"},	     {"hf", "0", "none", "none", "true"},
		{"deepspeed", "1", "none", "none", "false"}, {"deepspeed", "2", "none", "none", "false"},
		{"deepspeed", "3", "none", "none", "false"}, {"deepspeed", "2", "cpu", "none", "false"},
		{"deepspeed", "3", "cpu", "none", "false"},  {"deepspeed", "3", "cpu", "cpu", "false"},
		{"fsdp2", "3", "none", "none", "false"},     {"fsdp2", "3", "none", "cpu", "false"},
	};
	static const char *const knobs[] = {"engine", "zero", "offload-optimizer", "offload-params",
					    "optimizer-in-backward"};
	static const char *const states[] = {NULL, "adamw-8bit", "paged-adamw-8bit"};

	for (int k = 0; k < 10 * 3 * 16; k++) {
		const char *const *way = ways[k / 48];
		const char *optimizer = states[k / 16 % 3];
		struct oom_plan p = *asked;
		bool ok = true;

		for (int i = 0; i < 5; i++)
			ok &= set(&p, knobs[i], way[i]);
		if (optimizer)
			ok &= set(&p, "optimizer", optimizer);
		if (k & 1)
			p.fused_ce = OOM_LOSS_FUSED;
		p.grad_ckpt = k & 2 ? OOM_CKPT_FULL : asked->grad_ckpt;
		if (k & 4 && p.precision == OOM_FP32)
			p.precision = oom_capability(&p) < 8 ? OOM_AMP_FP16 : OOM_AMP_BF16;
		if (k & 8 && p.attn == OOM_ATTN_EAGER)
			p.attn = OOM_ATTN_SDPA;
		if (!p.step_in_backward) {
			p.grad_accum *= p.micro_batch;
			p.micro_batch = 1;
		}
		if (ok && does(g, c, asked, &p))
			return true;
	}
	return false;
}

/* Knobs that make one change together; exact: it may be bought by time. */
static const struct {
	const char *knob[9];
	bool exact;
} changes[] = {
	{{"precision"}, false},
	{{"optimizer"}, false},
	{{"optimizer-in-backward"}, false},
	{{"offload-optimizer", "offload-params"}, false},
	{{"attn"}, true},
	{{"loss", "liger-kernels"}, true},
	{{"grad-ckpt"}, true},
	{{"allocator"}, true},
	{{"micro-batch", "grad-accum"}, true},
	{{"engine", "zero", "gradient-as-bucket-view", "hybrid-shard", "offload-optimizer", "offload-params"}, true},
};

static double seconds(const struct grid *g, const struct oom_plan *p)
{
	struct oom_eval e;

	return oom_evaluate(g->ev, g->q.model, p, OOM_EVAL_FAST, &e, NULL) ?
		       0 :
		       1 / oom_step_time(p, &e, g->q.gpu).samples_per_s;
}

/* Does the plan without change k do as well?  Slower it may be by what the estimate cannot tell (factor;
 * 0: by anything). */
static bool without(struct grid *g, const struct oom_compat *c, const struct oom_plan *asked,
		    const struct oom_plan *p, size_t k, double factor)
{
	struct oom_plan q = *p, named = *asked;

	/* an engine may have another name for the asked precision: with it goes the name */
	named.engine = p->engine;
	named.zero_stage = p->zero_stage;
	oom_engine_respell(&named);
	if (named.precision == p->precision)
		q.precision = asked->precision;
	for (int i = 0; changes[k].knob[i]; i++) {
		char value[OOM_VALUE_SIZE];

		oom_plan_get(asked, oom_knob_find(changes[k].knob[i]), value, sizeof(value));
		assert_true(set(&q, changes[k].knob[i], value));
	}
	oom_engine_respell(&q);
	q.zero_said = p->zero_said;     /* undone by a word, which is no difference */
	if (!memcmp(&q, p, sizeof(q)))
		return false;
	g->undone++;
	oom_plan_relax(&q);
	return !oom_plan_broken(&q, NULL) && does(g, c, asked, &q) &&
	       (!factor || !changes[k].exact || seconds(g, &q) < seconds(g, p) * factor);
}

static void needed(struct grid *g, const struct oom_compat *c, const struct oom_plan *asked,
		   const struct oom_plan *p, double factor, const char *whose)
{
	for (size_t k = 0; k < sizeof(changes) / sizeof(changes[0]); k++)
		if (without(g, c, asked, p, k, factor)) {
			g->needless++;
			print_message("%s on %s x %lld: %s need no %s\n",
				      oom_model_type(g->q.model), g->q.gpu->name,
				      (long long)g->q.plan.gpus, whose, changes[k].knob[0]);
		}
}

static void ask(struct grid *g, struct oom_answer *a)
{
	const struct oom_plan *asked = &a->as_asked.plan;
	struct oom_compat_set excused;
	struct oom_compat c;

	if (oom_answer(g->ev, &g->q, a, NULL))
		return;
	g->asked++;
	assert_int_equal(oom_compat_init(&c, g->q.model, asked, g->q.gpu, NULL), OOM_OK);
	excused = oom_compat_broken(&c, asked, asked);
	if (a->from != OOM_FROM_ASKED && a->best.fits) {
		const bool good = oom_compat_launches(&c, &a->best.plan) &&
				  oom_compat_allows(&c, &a->best.plan, asked, &excused);

		g->changed++;
		g->broken += !good;
		if (!good)
			print_message("%s on %s x %lld breaks a rule\n", oom_model_type(g->q.model),
				      g->q.gpu->name, (long long)g->q.plan.gpus);
		needed(g, &c, &a->ladder.runs, &a->best.plan,
		       g->q.plan.gpus > 1 ? 1.38 : 1.35, "the cheapest plan");
		if (a->ladder.fits && !a->ladder.start_fits)
			needed(g, &c, &a->ladder.runs, &a->ladder.plan, 0, "the ladder");
	} else if (!a->best.fits) {
		const bool wrong = anything(g, &c, asked);

		g->none++;
		g->wrong += wrong;
		if (wrong)
			print_message("%s on %s x %lld: something does fit\n",
				      oom_model_type(g->q.model), g->q.gpu->name,
				      (long long)g->q.plan.gpus);
	}
}

static void test_grid(void **state)
{
	struct oom_answer *a = malloc(sizeof(*a));
	struct grid g = {.ev = oom_evaluator_new()};
	struct oom_gpus table = {0};

	(void)state;
	assert_non_null(a);
	assert_int_equal(oom_gpus_load(&table, NULL), OOM_OK);
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;

		assert_int_equal(oom_keys_read_model(&keys, models[i], NULL), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, NULL), OOM_OK);
		for (size_t k = 0; k < 5 * 2 * sizeof(setups) / sizeof(setups[0]); k++) {
			struct oom_gpu card;

			assert_int_equal(oom_gpu_find(&table, cards[k % 5], &card, NULL, NULL), OOM_OK);
			g.q = oom_question_default();
			g.q.model = m;
			g.q.gpu = &card;
			g.q.brief = true;
			g.q.plan.gpus = gpus[k / 5 % 2];
			for (int j = 0; j < 4 && setups[k / 10].knob[j]; j++)
				assert_true(set(&g.q.plan, setups[k / 10].knob[j], setups[k / 10].value[j]));
			ask(&g, a);
		}
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	print_message("%d questions; of %d plans with changes %d break a rule; of %d \"none fits\" %d are "
		      "wrong; of %d changes undone by themselves %d are needless\n",
		      g.asked, g.changed, g.broken, g.none, g.wrong, g.undone, g.needless);
	assert_true(g.changed > 100 && g.none > 3);
	assert_true(g.undone > 500 && !g.needless);
	assert_true(g.broken * 50 <= g.changed);
	assert_true(g.wrong * 20 <= g.none);
	oom_evaluator_free(g.ev);
	oom_gpus_release(&table);
	free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
