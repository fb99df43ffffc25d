/* No tensor outlives its pass.  Every model type is recorded with the defaults of its own, under
 * plans that take every path through a family (kernels, checkpointing, adapters, 4-bit weights, a
 * fused head, images); after the backward pass and after the evaluation pass nothing may be held but
 * the parameters' gradients.  A family that forgets to give up a name is named here with the row.  And no
 * stream runs a layer that the forward pass does not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "step/program.h"
#include "knobs.h"

/* knobs apart by blanks */
static const char *const plans[] = {
	"precision=bf16 micro-batch=2 seq-len=64",
	"precision=amp-fp16 attn=eager padding-mask=true micro-batch=2 seq-len=96 images=1",
	"precision=amp-bf16 grad-ckpt=full micro-batch=2 seq-len=96 loss=sliced images=1",
	"precision=bf16 attn=eager grad-ckpt=full lora-r=8 lora-targets=all-linear micro-batch=1",
	"precision=bf16 qlora=true lora-r=8 kbit-prepare=true micro-batch=2 attn=flash",
	"precision=bf16 base-weights=int8 lora-r=8 lora-targets=all-linear grad-ckpt=full micro-batch=2 seq-len=64",
	"precision=fp32 loss=fused micro-batch=1 seq-len=640",
	"precision=bf16 loss=chunked-nll micro-batch=2 seq-len=640 keep-outputs=true",
	"precision=amp-bf16 objective=dpo grad-ckpt=full micro-batch=2 seq-len=96 images=1",
	"precision=bf16 objective=orpo micro-batch=2 seq-len=64",
	"precision=bf16-amp objective=grpo reference=adapter lora-r=8 lora-targets=all-linear "
	"micro-batch=1 seq-len=300",
	"precision=amp-bf16 loss=sft micro-batch=2 seq-len=64 keep-outputs=true",
	"precision=bf16 label-smoothing=0.1 micro-batch=2 seq-len=64",
	"precision=amp-bf16 grad-ckpt=selective micro-batch=2 seq-len=96 lora-r=8 "
	"lora-targets=all-linear images=1",
	"precision=bf16 attn=eager grad-ckpt=selective-attention micro-batch=2 seq-len=64",
	"precision=bf16 attn=eager grad-ckpt=selective-op micro-batch=2 seq-len=64",
};
enum { PLANS = sizeof(plans) / sizeof(plans[0]) };

static struct oom_plan plan_of(const char *words, bool image)
{
	struct oom_plan p = oom_plan_default();

	set(&p, words);
	if (image)
		p.seq_len = 0;
	return p;
}

/* Engines that gather and reduce layer by layer look every one up: a stream that runs a layer, runs one
 * of the forward's. */
static int strangers(const struct oom_tape *t)
{
	int n = 0;

	for (int k = 0; k < OOM_STREAMS; k++)
		for (size_t i = 0; i < t->streams[k].n; i++)
			if (oom_ev_is_unit(t->streams[k].ev[i]))
				n += oom_ev_unit(t->streams[k].ev[i]) >= t->n_units;
	return n;
}

/* Leaks of one type under one plan; 1 more in *recorded if it could be recorded. */
static int leaks(struct oom_tape *t, const char *type, const struct oom_model *m, size_t plan,
		 size_t *recorded)
{
	struct oom_plan p = plan_of(plans[plan], oom_model_task(m) == OOM_TASK_IMAGE_CLS);
	struct oom_error err;
	int n = 0;

	if (oom_record(t, m, &p, false, &err)) {
		if (strstr(err.text, "given up"))       /* used or given up once too often */
			print_error("%s, plan %zu: %s\n", type, plan, err.text);
		return strstr(err.text, "given up") != NULL;
	}
	++*recorded;
	for (int32_t i = oom_tape_held(t, 0); i >= 0; i = oom_tape_held(t, i + 1))
		if (!n++)
			print_error("%s, plan %zu: %s pass: %s.%s is still held\n", type, plan,
				    t->rows[i].born == OOM_STREAM_EVAL ? "evaluation" : "training",
				    t->rows[i].scope, t->rows[i].name);
	if (strangers(t) && !n++)
		print_error("%s, plan %zu: a layer that the forward pass has not\n", type, plan);
	return n != 0;
}

static int leaks_of_type(struct oom_tape *t, const char *type, size_t *recorded)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err;
	char json[200];
	int n = 0;

	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", type);
	if (!oom_keys_parse(&keys, json, strlen(json), type, &err) &&
	    !oom_model_new(&m, &keys, &err))
		for (size_t i = 0; i < PLANS; i++)
			n += leaks(t, type, m, i, recorded);
	oom_model_free(m);
	oom_keys_release(&keys);
	return n;
}

static void nothing_outlives_its_pass(void **state)
{
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/model_types.jsonl", "r");
	struct oom_tape *t = calloc(1, sizeof(*t));
	size_t recorded = 0, cap = 0;
	char *line = NULL;
	int n = 0;

	(void)state;
	assert_non_null(f);
	assert_non_null(t);
	while (getline(&line, &cap, f) > 0) {
		line[strcspn(line, "\t")] = 0;
		n += leaks_of_type(t, line, &recorded);
	}
	free(line);
	fclose(f);
	oom_tape_release(t);
	free(t);
	assert_int_equal(n, 0);
	/* some 360 types price with nothing but their defaults; not every plan suits each */
	assert_true(recorded > 1700);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_outlives_its_pass)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
