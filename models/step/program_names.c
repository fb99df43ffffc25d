/* Names that a plan chooses modules by, held against the modules that there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/adapters.h"
#include "step/program.h"

/* The last words of modules' paths, each once; linear: of linear layers and embeddings alone. */
static void words_of(const struct oom_tape *t, bool linear, char list[300])
{
	const char *seen[32];
	size_t n = 0, used = 0;

	list[0] = 0;
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *q = &t->params[i];
		size_t j = 0;

		if (!q->scope || q->flags & OOM_P_LORA ||
		    (linear && !(q->flags & (OOM_P_LINEAR | OOM_P_EMBEDDING))))
			continue;
		while (j < n && strcmp(seen[j], q->scope))
			j++;
		if (j < n || n == sizeof(seen) / sizeof(seen[0]))
			continue;
		seen[n++] = q->scope;
		if (used < 299)
			used += (size_t)snprintf(list + used, 300 - used, "%s%s", used ? ", " : "",
						 q->scope);
	}
}

/* LoRA whose targets name no layer trains nothing: refused, with the names that exist. */
static enum oom_status check_adapters(const struct oom_tape *t, const struct oom_plan *p,
				      struct oom_error *err)
{
	const bool norms = oom_adapter_of(p)->norms;
	const uint32_t mark = norms ? OOM_P_SAVED | OOM_P_NORM : oom_adapter_of(p)->attention ? OOM_P_SAVED : OOM_P_LORA;
	char list[300];

	if (!oom_plan_adapted(p))
		return OOM_OK;
	for (size_t i = 0; i < t->n_params; i++)
		if ((t->params[i].flags & mark) == mark)
			return OOM_OK;
	words_of(t, !norms, list);
	return oom_error_set(err, OOM_ERR_INVALID,
			     "lora-targets \"%s\" match no layer of this model; it has: "
			     "all-linear, %s",
			     p->lora_targets, list);
}

/* Each entry of rank-pattern is a name of an adapted module and a rank. */
static enum oom_status check_ranks(const struct oom_tape *t, const struct oom_plan *p, struct oom_error *err)
{
	for (const char *s = p->rank_pattern; oom_plan_adapted(p) && *s;) {
		const size_t n = strcspn(s, "+"), name = strcspn(s, ":");
		char key[OOM_NAMES_SIZE], *end, *last;
		bool found = false;
		unsigned long rank;

		rank = name < n ? strtoul(s + name + 1, &end, 10) : 0;
		if (!rank || rank > 8192 || end != s + n)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "rank-pattern: \"%.*s\": expected NAME:RANK, a rank of 1 to 8192", (int)n, s);
		snprintf(key, sizeof(key), "%.*s", (int)name, s);
		last = strrchr(key, '.') ? strrchr(key, '.') + 1 : key;
		for (size_t i = 0; i < t->n_params && !found; i++)
			found = t->params[i].flags & OOM_P_LORA && t->params[i].scope && !strcmp(t->params[i].scope, last);
		if (!found)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "rank-pattern: \"%s\" is no module with an adapter", key);
		s += n + (s[n] == '+');
	}
	return OOM_OK;
}

/* Nor is a name let pass that chooses nothing, or a choice that leaves nothing to train. */
static enum oom_status check_selection(const struct oom_tape *t, const struct oom_plan *p,
				       struct oom_error *err)
{
	const struct oom_selection *s = &t->selection;
	char list[300];

	if (!s->by_name || oom_plan_adapted(p))
		return OOM_OK;
	words_of(t, false, list);
	if (*p->freeze && !s->froze)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "freeze \"%s\" matches no parameter of this model; its modules: %s",
				     p->freeze, list);
	if (*p->train && !s->trained)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "train \"%s\" matches no parameter of this model; its modules: %s",
				     p->train, list);
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].trainable)
			return OOM_OK;
	return oom_error_set(err, OOM_ERR_INVALID,
			     "nothing is left to train: freeze, train, train-last and the freeze-... "
			     "of parts leave no parameter");
}

/* Names that choose modules must name some, and leave something to train. */
enum oom_status oom_names_check(const struct oom_tape *t, const struct oom_plan *p, struct oom_error *err)
{
	enum oom_status st = check_adapters(t, p, err);

	if (!st)
		st = check_ranks(t, p, err);
	return st ? st : check_selection(t, p, err);
}
