/* A model by its name or the text of a config.  Included after cmocka.h. */
#ifndef OOM_TESTS_MODEL_OF_H
#define OOM_TESTS_MODEL_OF_H

#include <string.h>

#include "oomplan/model.h"

static inline struct oom_model *model_of(const char *config, struct oom_keys *keys)
{
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;

	memset(keys, 0, sizeof(*keys));
	if (*config == '{')
		assert_int_equal(oom_keys_parse(keys, config, strlen(config), "test", &err), OOM_OK);
	else
		assert_int_equal(oom_keys_read_model(keys, config, &err), OOM_OK);
	if (oom_model_new(&m, keys, &err))
		fail_msg("%s: %s", config, err.text);
	return m;
}

#endif
