/* Every value of every knob, written in every format: what does not come back when the text is read is named in it.
 *
 * A walk over the tables of knobs and formats: each change of one knob is made to the first of some plans that takes it; one that
 * none of them takes is left out.  The text alone is read again, by the reader of its
 * framework, into a plan that knows nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "among.h"
#include "emit/parts.h"
#include "frameworks/parts.h"
#include "knobs.h"
#include "oomplan/emit.h"
#include "oomplan/engine.h"
#include "oomplan/model.h"
#include "oomplan/rules.h"

#define LORA " lora-r=8 lora-targets=q_proj+v_proj"

/* Where changes begin. */
static const char *const plans[] = {
	"precision=bf16-amp",
	"precision=bf16-amp" LORA,
	"precision=bf16-amp base-weights=nf4" LORA,
	"precision=bf16-amp base-weights=gptq" LORA,
	"precision=bf16-amp engine=deepspeed zero=3 gpus=8",
	"precision=bf16-amp engine=fsdp1 zero=3 gpus=8",
	"precision=bf16-amp engine=fsdp2 zero=3 gpus=16 nodes=2",
	"precision=bf16 engine=torchtune zero=3 gpus=8",
	"precision=bf16 engine=fsdp2 zero=3 gpus=16 nodes=2 compile=true",
	"precision=bf16 engine=megatron gpus=16 tp=2 pp=2 nodes=2",
	"precision=bf16-amp objective=dpo",
	"precision=bf16-amp objective=grpo completion-len=128 seq-len=512",
	"precision=bf16-amp objective=contrastive texts=2 task=embedding",
	"precision=bf16-amp task=seq-cls",
	"precision=bf16-amp loss=chunked-nll",
	"precision=bf16-amp fp8=tensorwise compile=true",
};

/* Knobs that no file of a training run says: what the card, the host and the data are, what is installed, what is asked of
 * the answer; a global batch is the micro-batch, its accumulation and the GPUs together. */
static const char elsewhere[] =
	"margin compute-capability gpus-per-node moe-imbalance rank0-contexts prefetch-factor low-cpu-mem scan transformers torch "
	"bitsandbytes peft deepspeed accelerate network-gbps global-batch";

/* The i-th value of a knob to be tried; NULL past the last. */
static const char *value_at(const struct oom_option *k, size_t i, char buf[40])
{
	static const char *const names[] = {"q_proj", NULL}, *const flags[] = {"true", "false", NULL};
	const double step[] = {1, 3, 64};

	switch (k->kind) {
	case OOM_OPTION_CHOICE: return k->choice(i) ? k->choice(i)->name : NULL;
	case OOM_OPTION_FLAG: return i < 2 ? flags[i] : NULL;
	case OOM_OPTION_NAMES: return i < 1 ? names[i] : NULL;
	case OOM_OPTION_REAL: snprintf(buf, 40, "%g", k->max > 0.25 ? 0.25 : k->max / 2); return i < 1 ? buf : NULL;
	case OOM_OPTION_COUNT: snprintf(buf, 40, "%.0f", step[i < 3 ? i : 0]); return i < 3 ? buf : NULL;
	default: return NULL;
	}
}

static unsigned n_tried, n_lost;
static char last[600];

/* Does the text, or what is told beside it, name the knob? */
static bool named(const struct emit_target *t, const struct oom_emitted *e, const char *knob)
{
	char word[80];

	snprintf(word, sizeof(word), "--%s ", knob);
	for (size_t i = 0; i < e->n_unsaid; i++) {
		if (t->comment && !strstr(e->text, e->unsaid[i]))
			fail_msg("%s: \"%s\" is not in the text", t->format.name, e->unsaid[i]);
		if (strstr(e->unsaid[i], word))
			return true;
	}
	for (size_t i = 0; i < e->n_spared; i++) {
		if (t->comment && !strstr(e->text, e->spared[i]))
			fail_msg("%s: \"%s\" is not in the text", t->format.name, e->spared[i]);
		if (strstr(e->spared[i], word))
			return true;
	}
	return false;
}

static void lost(const struct emit_target *t, const char *from, const char *change, const char *knob, const char *was, const char *is)
{
	char line[600];

	snprintf(line, sizeof(line), "%s %s %s %s", t->format.name, knob, was, is);
	n_lost++;
	if (strcmp(line, last))
		print_error("%s: %s, %s: %s was %s, is read as %s\n", t->format.name, from, change, knob, was, is);
	snprintf(last, sizeof(last), "%s", line);
}

static const char *bits_of(const struct oom_plan *p)
{
	const struct emission e = {.plan = p, .model = ""};

	return emit_base_bits(&e);
}

static void compare(const struct emit_target *t, const char *from, const char *change, const struct oom_plan *want,
		    const struct oom_plan *got, const struct oom_emitted *e)
{
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[160], b[160];

		oom_plan_get(want, k, a, sizeof(a));
		oom_plan_get(got, k, b, sizeof(b));
		/* the kernels of another library hold the same base */
		if (!strcmp(k->name, "qlora") || (!strcmp(k->name, "base-weights") && !strcmp(bits_of(want), bits_of(got))))
			continue;
		/* what nobody asked for */
		if ((!strcmp(k->name, "precision") && oom_plan_precision_open(want)) ||
		    (!strcmp(k->name, "eval-batch") && want->eval_batch == oom_plan_default().eval_batch) ||
		    (!strcmp(k->name, "loop") && !want->loop) ||
		    (!strncmp(k->name, "eval-", 5) && got->evaluates == OOM_EVALUATES_NO))
			continue;
		if (!strcmp(a, b) || (k->kind == OOM_OPTION_CHOICE && (!strcmp(a, "auto") || !strcmp(a, "unsaid"))) ||
		    among(elsewhere, k->name) || among(t->elsewhere, k->name) || named(t, e, k->name))
			continue;
		lost(t, from, change, k->name, a, b);
	}
}

/* The plan through a format. */
static void through(const struct emit_target *t, const struct oom_plan *plan, const char *from, const char *change)
{
	static const struct oom_gpu card = {.name = "A100-SXM4-80GB", .memory_gb = 80};
	const struct oom_emit_run run = {.model = "org/model", .gpu = &card};
	struct oom_plan want = *plan, got = oom_plan_default();
	struct oom_reading *r = NULL;
	struct oom_error err = {{0}};
	struct oom_emitted e;

	n_tried++;
	if (oom_emit(t->format.name, plan, &run, &e, &err))
		fail_msg("%s: %s, %s: %s", t->format.name, from, change, err.text);
	if (!t->line && oom_reading_of_text(&r, t->reads_as, e.text, e.size, t->framework, &err))
		fail_msg("%s: %s, %s: %s\n%s", t->format.name, from, change, err.text, e.text);
	if (r) {
		if (!*want.lora_targets)        /* the family's own, which files spell out or leave to PEFT */
			memcpy(got.lora_targets, want.lora_targets, sizeof(got.lora_targets));
		oom_reading_apply(r, &got, NULL, NULL);
		oom_plan_relax(&want);
		oom_plan_relax(&got);
		oom_engine_recast(&want);
		oom_engine_recast(&got);
		compare(t, from, change, &want, &got, &e);
	}
	oom_reading_free(r);
	oom_emitted_release(&e);
}

static void everywhere(const struct oom_plan *p, const char *from, const char *change)
{
	for (const struct emit_target *t = emit_targets; t->format.name; t++)
		if (!t->line && strcmp(t->format.name, "slurm"))        /* frames around the line of torchrun */
			through(t, p, from, change);
}

static bool change(const char *from, const struct oom_option *k, const char *value)
{
	struct oom_plan p = oom_plan_default(), before;
	struct oom_error err = {{0}};
	char text[120];

	set(&p, from);
	before = p;
	if (oom_plan_set(&p, k, value, &err) || !memcmp(&p, &before, sizeof(p)) || oom_plan_check(&p, &err))
		return false;
	snprintf(text, sizeof(text), "%s=%s", k->name, value);
	everywhere(&p, from, text);
	return true;
}

static void nothing_is_lost_in_silence(void **state)
{
	static bool done[500][40];
	char buf[40];

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		struct oom_plan p = oom_plan_default();

		set(&p, plans[i]);
		everywhere(&p, plans[i], "as it stands");
		for (size_t k = 0; oom_knob_at(k); k++)
			for (size_t v = 0; value_at(oom_knob_at(k), v, buf); v++)
				if (k < 500 && v < 40 && !done[k][v])
					done[k][v] = change(plans[i], oom_knob_at(k), value_at(oom_knob_at(k), v, buf));
	}
	assert_true(n_tried > 5000);
	if (n_lost)
		fail_msg("%u of %u lost in silence", n_lost, n_tried);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_in_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
