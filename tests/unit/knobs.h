/* Knobs of a plan as a text, "precision=bf16 lora-r=8".  Included after cmocka.h. */
#ifndef OOM_TESTS_KNOBS_H
#define OOM_TESTS_KNOBS_H

#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"

static void set(struct oom_plan *p, const char *text)
{
	char copy[600], *save = NULL;
	struct oom_error err = {{0}};

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *value = strchr(w, '=');

		assert_non_null(value);
		*value++ = 0;
		assert_non_null(oom_knob_find(w));
		if (oom_plan_set(p, oom_knob_find(w), value, &err))
			fail_msg("%s: %s", text, err.text);
	}
}

#endif
