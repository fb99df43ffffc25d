/* The run that a crash's text gives, as it was priced. */
#include <string.h>

#include "diagnose.h"

void oom_priced_text(const struct oom_priced *r)
{
	if (!r)
		return;
	printf("run:   %s\n", r->given);
	if (*r->assumed)
		printf("       not in the text, so by default: %s\n", r->assumed);
	for (size_t i = 0; i < r->n_notes; i++)
		printf("       note: %s\n", r->note[i]);
	printf("price: %s\n", r->needs);
	if (*r->request)
		printf("       %s\n", r->request);
	if (*r->explains)
		printf("       %s\n", r->explains);
	if (*r->changed && !r->n_changes)
		printf("       %s\n", r->changed);
}

void oom_priced_do(const struct oom_priced *r)
{
	for (size_t i = 0; r && i < r->n_changes; i++)
		printf("%s %s%s%s%s\n", i ? "   " : "do:", r->change[i], i + 1 == r->n_changes ? "   [" : "", i + 1 == r->n_changes ? r->changed : "",
		       i + 1 == r->n_changes ? "]" : "");
}

bool oom_priced_says(const struct oom_priced *r, const char *fix)
{
	for (size_t i = 0; r && i < r->n_changes; i++)
		if ((*r->key[i] && strstr(fix, r->key[i])) || !strncmp(r->change[i], fix, strlen(fix)) || strstr(fix, r->change[i]))
			return true;
	return false;
}

static void text_or_null(struct oom_json *j, const char *key, const char *text)
{
	oom_json_text(j, key, *text ? text : NULL);
}

void oom_priced_json(struct oom_json *j, const struct oom_priced *r)
{
	oom_json_object(j, "given");
	oom_json_text(j, "run", r->given);
	text_or_null(j, "assumed", r->assumed);
	oom_json_array(j, "left_out");
	for (size_t i = 0; i < r->n_notes; i++)
		oom_json_text(j, NULL, r->note[i]);
	oom_json_end(j);
	oom_json_text(j, "model", r->model);
	oom_json_uint(j, "used_bytes", r->used_bytes);
	if (r->capacity_bytes) {
		oom_json_uint(j, "capacity_bytes", r->capacity_bytes);
		oom_json_bool(j, "fits", r->fits);
	} else {
		oom_json_null(j, "capacity_bytes");
		oom_json_null(j, "fits");
	}
	oom_json_text(j, "needs", r->needs);
	text_or_null(j, "request", r->request);
	text_or_null(j, "explains", r->explains);
	oom_json_array(j, "changes");
	for (size_t i = 0; i < r->n_changes; i++)
		oom_json_text(j, NULL, r->change[i]);
	oom_json_end(j);
	text_or_null(j, "changed", r->changed);
	if (r->changed_bytes)
		oom_json_uint(j, "changed_bytes", r->changed_bytes);
	else
		oom_json_null(j, "changed_bytes");
	oom_json_end(j);
}
