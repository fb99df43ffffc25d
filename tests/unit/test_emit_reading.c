/* What is written of files that were read: what they asked for and no plan has is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/parts.h"
#include "oomplan/emit.h"
#include "oomplan/option.h"
#include "emitted.h"
#include "knobs.h"

static const struct oom_gpu card = {.name = "A100-SXM4-80GB", .memory_gb = 80};
static const struct oom_emit_run run = {.model = "org/model", .gpu = &card};

/* Files of a run whose objective no plan has: what is written in its place is another run, which is said unless the user
 * asked for that. */
static void what_no_plan_has_is_named(void **state)
{
	static const struct {
		const char *estimator, *asked, *lost;
	} cases[] = {
		{"gae", NULL, "--objective ppo of the files, which was priced as sft"},
		{"rloo", NULL, "--objective rloo of the files, which was priced as grpo"},
		{"grpo", NULL, NULL},
		{"gae", "objective=grpo", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan plan = oom_plan_default();
		struct oom_emit_run of_files = run;
		struct oom_error err = {{0}};
		struct oom_reading *r;
		struct oom_emitted e;
		char text[400], lost[800];

		snprintf(text, sizeof(text), "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=%s "
			 "actor_rollout_ref.model.path=org/model actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
			 "data.max_prompt_length=256 data.max_response_length=256 trainer.n_gpus_per_node=4\n", cases[i].estimator);
		assert_int_equal(oom_reading_of_text(&r, "run.sh", text, strlen(text), NULL, &err), OOM_OK);
		oom_reading_apply(r, &plan, NULL, NULL);
		if (cases[i].asked)
			set(&plan, cases[i].asked);
		of_files.reading = r;
		assert_int_equal(oom_emit("verl", &plan, &of_files, &e, &err), OOM_OK);
		joined(&e, lost, sizeof(lost));
		if (cases[i].lost ? !strstr(lost, cases[i].lost) || !strstr(e.text, cases[i].lost) : strstr(lost, "of the files") != NULL)
			fail_msg("%s: lost \"%s\"\n%s", cases[i].estimator, lost, e.text);
		oom_emitted_release(&e);
		oom_reading_free(r);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(what_no_plan_has_is_named)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
