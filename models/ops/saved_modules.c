/* Modules that PEFT trains whole beside adapters (modules_to_save): which they are, and their copies. */
#include <string.h>

#include "adapters.h"
#include "plan/pattern.h"

/* _set_trainable (peft/utils/other.py): key.endswith(name), whole words or not; of a path its last part. */
static bool ends_with_one(const char *names, const char *path)
{
	const size_t len = strlen(path);

	if (!*names)
		return false;
	if (oom_targets_name(names, path))
		return true;
	for (const char *s = names; *s; s += strcspn(s, "+"), s += *s == '+') {
		const size_t n = strcspn(s, "+");

		if (n && n <= len && !strncmp(path + len - n, s, n))
			return true;
	}
	return false;
}

/* What is saved whole beside the plan's own names.  Trained tokens need a task_type, and with that of a classifier its head is
 * a module to save (peft_model.py, PeftModelForSequenceClassification and PeftModelForTokenClassification). */
static const char *heads_saved(const struct oom_plan *p)
{
	const bool classifies = p->task == OOM_TASK_SEQ_CLS || p->task == OOM_TASK_TOKEN_CLS;

	return classifies && (oom_plan_prompted(p) || oom_adapter_of(p)->cached) ? "classifier+score" : "";
}

bool oom_saves(const struct oom_plan *p, const char *word)
{
	return oom_plan_adapted(p) && (ends_with_one(p->modules_to_save, word) || ends_with_one(heads_saved(p), word));
}

static bool saves_above(const struct oom_plan *p, char path[OOM_PATH_SIZE])
{
	char *dot;

	while ((dot = strrchr(path, '.'))) {
		*dot = 0;
		if (oom_saves(p, path))
			return true;
	}
	return false;
}

static bool saves_any(const struct oom_plan *p)
{
	return oom_plan_adapted(p) && (*p->modules_to_save || *heads_saved(p));
}

bool oom_saves_around(const struct oom_tape *t, const struct oom_param *p)
{
	char path[OOM_PATH_SIZE];

	return saves_any(t->plan) && oom_param_path(t, p, path) && saves_above(t->plan, path);
}

/* The same of a module by its name: a tied head's weight is the embeddings'. */
static bool saves_around_module(const struct oom_tape *t, const char *word)
{
	char path[OOM_PATH_SIZE];

	return saves_any(t->plan) && oom_word_path(t, word, path) && saves_above(t->plan, path);
}

struct oom_val oom_saved_copy(struct oom_tape *t, const char *word, struct oom_val w)
{
	const struct oom_param *p = w.node <= -2 ? &t->params[-2 - w.node] : NULL;
	const char *scope = t->scope;
	struct oom_val copy;

	if (!p || !(oom_saves(t->plan, word) || oom_saves_around(t, p) || saves_around_module(t, word)))
		return w;
	t->scope = word;
	copy = oom_param(t, p->rows ? "modules_to_save.weight" : "modules_to_save.bias", p->rows, p->cols,
			 (p->flags & (OOM_P_EMBEDDING | OOM_P_HEAD)) | OOM_P_SAVED);
	t->scope = scope;
	return copy;
}
