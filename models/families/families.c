/* The registry of families, and what is done with any of them. */
#include <stdio.h>
#include <string.h>

#include "blocks/decoder.h"
#include "config/keys.h"

#define FAMILY(name) extern const struct oom_family oom_family_##name;
#include "list.h"
#undef FAMILY

const struct oom_family *const oom_families[] = {
#define FAMILY(name) &oom_family_##name,
#include "list.h"
#undef FAMILY
	NULL
};

/* The row of a model type; NULL: the table does not have it. */
static const struct oom_family_type *type_of(const struct oom_family_type *t, const char *model_type)
{
	for (; t && t->name; t++)
		if (!strcmp(t->name, model_type))
			return t;
	return NULL;
}

const struct oom_family *oom_family_find(const char *model_type)
{
	for (size_t i = 0; oom_families[i]; i++)
		if (type_of(oom_families[i]->types, model_type))
			return oom_families[i];
	return NULL;
}

const struct oom_family *oom_family_remote(const struct oom_keys *row, char model_type[64])
{
	const struct oom_key *as = oom_keys_find(row, "as");
	const struct oom_family *f = as && as->type == OOM_KEY_STRING ? oom_family_find(as->string) :
									NULL;

	if (f && !type_of(f->inner_types, model_type))
		snprintf(model_type, 64, "%s", as->string);
	return f;
}

const struct oom_family_info *oom_family_at(size_t i)
{
	return i < sizeof(oom_families) / sizeof(oom_families[0]) - 1 ? &oom_families[i]->info :
									 NULL;
}

void oom_family_parse(const struct oom_family *f, struct oom_arch *a)
{
	a->type = type_of(f->types, a->model_type);
	if (!a->type)
		a->type = type_of(f->inner_types, a->model_type);
	if (!a->type)                           /* text parts of multimodal models go by other words */
		a->type = f->types;
	a->norm = f->norm;
	if (f->task)
		a->default_task = f->task;
	if (f->keys)
		oom_read_rows(a, f->keys);
	if (f->parse)
		f->parse(a);
}

struct oom_val oom_family_step(const struct oom_family *f, struct oom_tape *t,
			       const struct oom_arch *a)
{
	struct oom_val loss = f->step ? f->step(t, a) : oom_decoder_step(t, a, f->decoder);

	if (a->class_warning && t->plan->task == OOM_TASK_AUTO)
		oom_tape_warn(t, a->class_warning);
	if (t->plan->audio_seconds > 0 && !a->vlm && !a->frame)
		oom_tape_warn(t, "audio is not counted for this model type: a run on it takes more");
	if (t->plan->video_frames > 0 && !a->vlm)
		oom_tape_warn(t, "video is not counted for this model type: a run on it takes more");
	if (t->plan->images > (t->task == OOM_TASK_IMAGE_CLS) && !a->vlm)
		oom_tape_warn(t, "images are not counted for this model type: a run on them takes more");
	return loss;
}
