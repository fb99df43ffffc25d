/* Which parameters a plan trains where it says so by name: --freeze, --train, --train-last, and the
 * parts of a composition.  Names are transformers' own (config/module_paths.h). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/arch.h"
#include "plan/pattern.h"
#include "tape.h"

#define TASK_NAME(id, name, ...) [id] = name,
static const char *const tasks[] = {OOM_TASKS(TASK_NAME)};

static bool parts_differ(const struct oom_plan *p)
{
	return p->freeze_tower || p->freeze_projector || p->freeze_language;
}

void oom_selection_reset(struct oom_tape *t)
{
	const struct oom_plan *p = t->plan;
	struct oom_selection *s = &t->selection;
	bool named;

	memset(s, 0, sizeof(*s));
	s->layer = -1;
	s->by_name = *p->freeze || *p->train || p->train_last || parts_differ(p);
	/* nobody else asks for a name */
	named = s->by_name || oom_plan_adapted(p);
	s->paths = named && t->arch ? oom_module_paths(t->arch->config_type, tasks[t->task]) : NULL;
	s->each = oom_names_count(p->freeze) || oom_names_count(p->train) ||
		  (oom_plan_adapted(p) && (*p->layers_to_transform || oom_names_count(p->lora_targets) ||
					   oom_names_count(p->exclude_modules) || oom_names_count(p->modules_to_save) ||
					   strpbrk(p->rank_pattern, ".")));
}

void oom_selection_pass(struct oom_tape *t)
{
	memset(t->selection.stacks, 0, sizeof(t->selection.stacks));
	t->selection.part = OOM_PART_TEXT;
	t->selection.layer = -1;
	t->selection.shared = false;
	t->selection.within = NULL;
	t->prompted = t->joined = false;
	for (size_t i = 0; i < sizeof(t->prompts) / sizeof(t->prompts[0]); i++)
		t->prompts[i] = oom_none();
	t->token_rows = t->bank = oom_none();
}

static bool equal(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* Modules of the same word before p, in its layer or outside of all. */
static uint32_t met_before(const struct oom_tape *t, const struct oom_param *p, const char *word)
{
	uint32_t n = 0;

	for (const struct oom_param *q = p; q-- > t->params;) {
		if (q->unit != p->unit && p->unit)
			break;
		n += q->unit == p->unit && q->number == p->number && q->part == p->part && equal(q->name, p->name) && equal(q->scope, word) &&
		     equal(q->within, p->within) && !((q->flags ^ p->flags) & OOM_P_SHARED);
	}
	return n;
}

/* A parameter told with its module ("encoder_attn_layer_norm.weight") where nothing else says which: the module's path
 * less its last word, which the parameter's name has. */
static bool path_of_told(const struct oom_tape *t, const struct oom_param *p, const struct oom_module_at *there,
			 char path[OOM_PATH_SIZE])
{
	const size_t n = strcspn(p->name, ".");
	struct oom_module_at at = *there;
	char word[40];
	char *last;

	if (*at.word || !p->name[n] || n >= sizeof(word))
		return false;
	snprintf(word, sizeof(word), "%.*s", (int)n, p->name);
	at.word = word;
	if (!oom_module_path(t->selection.paths, &at, path))
		return false;
	last = strrchr(path, '.');
	if (last)
		*last = 0;
	return last != NULL;
}

bool oom_param_path(const struct oom_tape *t, const struct oom_param *p, char path[OOM_PATH_SIZE])
{
	const struct oom_selection *s = &t->selection;
	/* a parameter of the layer itself (BEiT's lambda_1) lies in no module of it */
	const char *scope = p->scope && !(s->layer >= 0 && equal(p->scope, s->outside)) ? p->scope : "",
		   *dot = strrchr(scope, '.');
	char outer[64];
	const struct oom_module_at at = {
		.word = dot ? dot + 1 : scope,
		.part = (enum oom_model_part)s->part,
		.stack = s->stack,
		.layer = s->layer,
		.nth = met_before(t, p, scope),
		.shared = (p->flags & OOM_P_SHARED) != 0,
		.plain = equal(p->name, "weight") || equal(p->name, "bias"),
		/* "decoder.embed_tokens" lies in the decoder */
		.within = p->within || !dot || dot - scope >= (ptrdiff_t)sizeof(outer) ? p->within : outer,
	};

	if (at.within == outer)
		snprintf(outer, sizeof(outer), "%.*s", (int)(dot - scope), scope);
	return path_of_told(t, p, &at, path) || oom_module_path(s->paths, &at, path);
}

bool oom_word_path(const struct oom_tape *t, const char *word, char path[OOM_PATH_SIZE])
{
	const struct oom_selection *s = &t->selection;
	const struct oom_module_at at = {.word = word, .part = (enum oom_model_part)s->part, .stack = s->stack,
					 .layer = s->layer, .plain = true, .within = s->within};

	return oom_module_path(s->paths, &at, path);
}

static bool part_frozen(const struct oom_plan *p, enum oom_model_part part)
{
	return part == OOM_PART_TOWER	  ? p->freeze_tower :
	       part == OOM_PART_PROJECTOR ? p->freeze_projector :
					    p->freeze_language;
}

bool oom_selection_frozen_part(const struct oom_tape *t)
{
	return parts_differ(t->plan) && part_frozen(t->plan, (enum oom_model_part)t->selection.part);
}

/* The last layers of a stack that is text's. */
static bool among_last(const struct oom_tape *t)
{
	const struct oom_selection *s = &t->selection;

	return s->part == OOM_PART_TEXT && s->layer >= 0 &&
	       s->layer + t->plan->train_last >= (int64_t)s->depth;
}

/* A tied matrix goes by its first name in named_parameters(): that of the head where the head is registered before
 * the model (modeling_xlm_roberta.py, modeling_camembert.py). */
static bool named_by_head(const struct oom_tape *t, const struct oom_param *p)
{
	const bool head = t->task == OOM_TASK_MASKED_LM || t->task == OOM_TASK_CAUSAL_LM;

	return head && t->arch->tie && p->flags & OOM_P_EMBEDDING && p->rows == t->arch->vocab && t->selection.paths &&
	       !strncmp(t->selection.paths, "lm_head", 7);
}

void oom_select(struct oom_tape *t, struct oom_param *p)
{
	struct oom_selection *s = &t->selection;
	const struct oom_plan *plan = t->plan;
	char path[OOM_PATH_SIZE + 80];
	bool frozen, named, trained;

	if (!s->by_name || p->flags & OOM_P_LORA || oom_plan_adapted(plan))
		return;
	if (!oom_param_path(t, p, path) && (*plan->freeze || *plan->train))
		oom_tape_warn(t, "freeze and train: the names of some modules of this model are guesses, and with them "
			     "what trains: look at the number of trainable parameters");
	if (named_by_head(t, p))
		snprintf(path, sizeof(path), "lm_head.decoder");
	snprintf(path + strlen(path), 80, ".%.70s", p->name);
	frozen = *plan->freeze && oom_names_touch(plan->freeze, path);
	named = *plan->train && oom_names_touch(plan->train, path);
	s->froze |= frozen;
	s->trained |= named;
	trained = named || (plan->train_last ? among_last(t) : !*plan->train);
	if (frozen || !trained || oom_selection_frozen_part(t))
		p->trainable = false;
}
