/* Memory of the shell reader: one bound for all, given back at once. */
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

struct chunk {
	struct chunk *next;
	max_align_t data[];
};

void shell_fail(struct oom_shell *sh, enum oom_status status, unsigned line, const char *text)
{
	if (!sh->status)
		sh->status = oom_error_set(sh->err, status, "%s:%u: %s", sh->file, line, text);
}

void *shell_alloc(struct oom_shell *sh, size_t size)
{
	struct chunk *c;

	if (sh->status)
		return NULL;
	if (size > SHELL_MEMORY_MAX || sh->used > SHELL_MEMORY_MAX - size) {
		sh->status = oom_error_set(sh->err, OOM_ERR_LIMIT,
					   "%s: what it expands to takes more than %d MiB", sh->file,
					   SHELL_MEMORY_MAX >> 20);
		return NULL;
	}
	c = calloc(1, sizeof(*c) + size);
	if (!c) {
		sh->status = oom_error_set(sh->err, OOM_ERR_MEMORY, "out of host memory");
		return NULL;
	}
	sh->used += size + 64;          /* small pieces cost the allocator's own bytes too */
	c->next = sh->memory;
	sh->memory = c;
	return c->data;
}

bool shell_grow(struct oom_shell *sh, void *array, size_t n, size_t *room, size_t size)
{
	const size_t want = *room ? *room * 2 : 8;
	void *old, *grown;

	if (n < *room)
		return !sh->status;
	grown = shell_alloc(sh, want * size);
	if (!grown)
		return false;
	memcpy(&old, array, sizeof(old));
	if (n)
		memcpy(grown, old, n * size);
	memcpy(array, &grown, sizeof(grown));
	*room = want;
	return true;
}

char *shell_copy(struct oom_shell *sh, const char *text, size_t n)
{
	char *copy = shell_alloc(sh, n + 1);

	if (copy && n)
		memcpy(copy, text, n);
	return copy;
}

void shell_push(struct oom_shell *sh, struct words *w, struct oom_shell_word word)
{
	if (shell_grow(sh, &w->items, w->n, &w->room, sizeof(*w->items)))
		w->items[w->n++] = word;
}

struct variable *shell_variable(struct oom_shell *sh, const char *name, size_t n, bool make)
{
	struct variable *v;

	for (size_t i = 0; i < sh->n_variables; i++)
		if (!strncmp(sh->variables[i].name, name, n) && !sh->variables[i].name[n])
			return &sh->variables[i];
	if (!make || !shell_grow(sh, &sh->variables, sh->n_variables, &sh->variables_room,
				 sizeof(*v)))
		return NULL;
	/* each look-up walks them all */
	if (sh->n_variables == 4096) {
		shell_fail(sh, OOM_ERR_LIMIT, 0, "more than 4096 variables");
		return NULL;
	}
	v = &sh->variables[sh->n_variables];
	*v = (struct variable){.name = shell_copy(sh, name, n)};
	if (!v->name)
		return NULL;
	sh->n_variables++;
	return v;
}

void oom_shell_free(struct oom_shell *sh)
{
	struct chunk *next;

	if (!sh)
		return;
	for (struct chunk *c = sh->memory; c; c = next) {
		next = c->next;
		free(c);
	}
	free(sh);
}

void shell_set_words(struct oom_shell *sh, const char *const *words, size_t n)
{
	for (size_t i = 0; i < 9; i++) {
		const char digit = (char)('1' + i);
		struct variable *v = shell_variable(sh, &digit, 1, i < n);

		if (v)
			v->value = (struct words){0};
		if (v && i < n)
			shell_push(sh, &v->value, (struct oom_shell_word){shell_copy(sh, words[i], strlen(words[i])), OOM_SHELL_KNOWN, 0});
	}
	sh->n_words = n;
}
