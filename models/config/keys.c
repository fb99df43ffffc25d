/* Reading rows of config keys; keys.h says what a row is. */
#include "keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t count_at(const struct oom_arch *a, uint16_t at)
{
	return *(const uint64_t *)(const void *)((const unsigned char *)a + at);
}

/* What a silent config means. */
static uint64_t default_count(const struct oom_arch *a, const struct oom_key_row *k)
{
	uint64_t over;

	switch (k->kind) {
	case OOM_KEY_ROW_LIKE: return (uint64_t)(k->def * (double)count_at(a, k->like));
	case OOM_KEY_ROW_QUOTIENT:
		over = count_at(a, k->over);
		return over ? count_at(a, k->like) / over : 0;
	default: return (uint64_t)k->def;
	}
}

static uint64_t read_count(struct oom_arch *a, const struct oom_key_row *k)
{
	const struct oom_key *given = k->key ? oom_read_key(&a->rd, k->key) : NULL;

	if (k->kind != OOM_KEY_ROW_COUNT && (!given || given->type == OOM_KEY_NULL))
		return default_count(a, k);
	return oom_read_count(&a->rd, k->key, k->min);
}

void oom_read_rows(struct oom_arch *a, const struct oom_key_row *k)
{
	struct oom_reader *r = &a->rd;

	for (; k->kind; k++) {
		void *to = (unsigned char *)a + k->to;

		switch (k->kind) {
		case OOM_KEY_ROW_FLAG: *(bool *)to = oom_read_bool(r, k->key, k->def > 0); break;
		case OOM_KEY_ROW_REAL: *(double *)to = oom_read_real(r, k->key, k->def); break;
		case OOM_KEY_ROW_ACT:
			*(enum oom_act *)to = oom_read_act(r, k->key, k->word);
			break;
		default: *(uint64_t *)to = read_count(a, k); break;
		}
	}
	if (!a->n_kv_heads)
		a->n_kv_heads = a->n_heads;
	if (!a->head_dim && a->n_heads)
		a->head_dim = a->d_model / a->n_heads;
}

void oom_check_heads(struct oom_arch *a)
{
	if (a->n_heads && a->d_model % a->n_heads)
		oom_read_fail(&a->rd, "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

void oom_warn(struct oom_arch *a, const char *fmt, ...)
{
	const size_t n = strlen(a->warning);
	char sentence[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, args);
	va_end(args);
	if (!strstr(a->warning, sentence))
		snprintf(a->warning + n, sizeof(a->warning) - n, "%s%s", n ? " " : "", sentence);
}

void oom_warn_kernels(struct oom_arch *a, const char *without, const char *with)
{
	oom_warn(a, "%s: counted as it runs without %s; with %s training needs far less.", a->model_type,
		 without, with);
}

void oom_check_experts(struct oom_arch *a)
{
	if (a->top_k > a->n_experts)
		oom_read_fail(&a->rd, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

bool oom_read_says(struct oom_arch *a, const char *key, uint64_t i, const char *word, bool silent)
{
	const char *said = oom_read_item(&a->rd, key, (uint32_t)i);

	return said ? !strcmp(said, word) : silent;
}

bool oom_read_listed(struct oom_arch *a, const char *key)
{
	const struct oom_key *k = oom_read_key(&a->rd, key);

	return k && k->type == OOM_KEY_LIST;
}

bool oom_read_lists(struct oom_arch *a, const char *key, uint64_t i)
{
	const struct oom_key *k = oom_read_key(&a->rd, key);
	bool there = false;

	for (uint32_t j = 0; k && k->type == OOM_KEY_LIST && j < k->n_items; j++)
		there |= oom_read_item_real(&a->rd, key, j, -1) == (double)i;
	return there;
}

double oom_read_rotary(struct oom_arch *a, double silent)
{
	silent = oom_read_real(&a->rd, "partial_rotary_factor", silent);
	return oom_read_real(&a->rd, "rope_parameters.partial_rotary_factor", silent);
}

uint64_t oom_read_sliding(struct oom_arch *a)
{
	const struct oom_key *k = oom_read_key(&a->rd, "sliding_window");
	const bool some = k && k->type == OOM_KEY_NUMBER && k->number >= 1 && k->number < 1e9;

	return some ? (uint64_t)k->number : 0;
}

bool oom_read_every(struct oom_arch *a, const char *period, const char *offset, uint8_t bit)
{
	const uint64_t every = oom_read_count(&a->rd, period, 1),
		       first = oom_read_count(&a->rd, offset, 0);
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++)
		if (i % every == first) {
			a->kind[i] |= bit;
			any = true;
		}
	return any;
}
