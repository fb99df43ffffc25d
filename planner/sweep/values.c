/* From a word to a value of an axis: cards, models, knobs. */
#include <stdlib.h>
#include <string.h>

#include "sweep.h"

void sweep_drop_models(struct oom_sweep *s)
{
	for (size_t i = 0; i < s->n_models; i++) {
		oom_model_free(s->model[i].made);
		s->model[i].made = NULL;
	}
}

static enum oom_status no_memory(struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
}

enum oom_status sweep_card(struct oom_sweep *s, const struct oom_gpu *g, int64_t *value,
			   struct oom_error *err)
{
	for (size_t i = s->n_cards; i-- > 0;)
		if (!strcmp(s->card[i].name, g->name)) {
			*value = (int64_t)i;
			return OOM_OK;
		}
	if (!sweep_room(&s->card, sizeof(*s->card), s->n_cards))
		return no_memory(err);
	s->card[s->n_cards] = *g;
	*value = (int64_t)s->n_cards++;
	return OOM_OK;
}

static enum oom_status gpu_value(struct oom_sweep *s, const char *word, int64_t *value,
				 struct oom_error *err)
{
	struct oom_gpu g;
	enum oom_status st = s->gpus.n ? OOM_OK : oom_gpus_load(&s->gpus, err);

	/* lists repeat their cards: the last one by its own name needs no search of the table */
	if (!st && s->n_cards && !strcmp(s->card[s->n_cards - 1].name, word)) {
		*value = (int64_t)s->n_cards - 1;
		return OOM_OK;
	}
	if (!st)
		st = oom_gpu_find(&s->gpus, word, &g, NULL, err);
	return st ? st : sweep_card(s, &g, value, err);
}

/* A model that cannot be read keeps its rows, with the reason. */
static enum oom_status model_value(struct oom_sweep *s, const char *word, int64_t *value,
				   struct oom_error *err)
{
	struct sweep_model *m;
	enum oom_status st;

	for (size_t i = s->n_models; i-- > 0;)
		if (!strcmp(s->model[i].word, word)) {
			*value = (int64_t)i;
			return OOM_OK;
		}
	if (s->n_models == SWEEP_MODELS)
		return oom_error_set(err, OOM_ERR_LIMIT, "more than %d models in one sweep",
				     SWEEP_MODELS);
	sweep_drop_models(s);
	if (!sweep_room(&s->model, sizeof(*s->model), s->n_models))
		return no_memory(err);
	m = &s->model[s->n_models];
	memset(m, 0, sizeof(*m));
	m->word = strdup(word);
	if (!m->word)
		return no_memory(err);
	st = oom_keys_read_model(&m->keys, word, &m->refused);
	if (st == OOM_ERR_MEMORY) {
		free(m->word);
		return no_memory(err);
	}
	if (st && !m->refused.text[0])
		oom_error_set(&m->refused, OOM_ERR_INVALID, "%s cannot be read", word);
	*value = (int64_t)s->n_models++;
	return OOM_OK;
}

/* One word of a knob: checked and read by the knob itself. */
static enum oom_status knob_value(struct oom_sweep *s, const struct oom_option *k, const char *word,
				  int64_t *value, struct oom_error *err)
{
	struct oom_value v;
	const enum oom_status st = oom_option_read(k, k->name, word, &v, err);

	if (st)
		return st;
	if (k->kind == OOM_OPTION_REAL)
		memcpy(value, &v.real, sizeof(*value));
	else if (k->kind != OOM_OPTION_NAMES)
		*value = v.whole;
	if (k->kind != OOM_OPTION_NAMES)
		return OOM_OK;
	for (size_t i = s->n_texts; i-- > 0;)
		if (!strcmp(s->text[i], v.names)) {
			*value = (int64_t)i;
			return OOM_OK;
		}
	if (!sweep_room(&s->text, sizeof(*s->text), s->n_texts) ||
	    !(s->text[s->n_texts] = strdup(v.names)))
		return no_memory(err);
	*value = (int64_t)s->n_texts++;
	return OOM_OK;
}

enum oom_status sweep_value(struct oom_sweep *s, const struct sweep_var *v, const char *word,
			    int64_t *value, struct oom_error *err)
{
	switch (v->kind) {
	case SWEEP_GPU: return gpu_value(s, word, value, err);
	case SWEEP_MODEL: return model_value(s, word, value, err);
	case SWEEP_KNOB: break;
	}
	return knob_value(s, v->knob, word, value, err);
}
