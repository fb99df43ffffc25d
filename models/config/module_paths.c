/* Module paths out of the table: one line per set of types, children in parentheses behind their parent. */
#include "config/module_paths.h"

#include <stdio.h>
#include <string.h>

#include "embedded.h"

/* ---- the table ---- */

static bool names_type(const char *line, const char *type)
{
	const size_t n = strlen(type);

	for (const char *p = line; *p && *p != '\t'; p += strcspn(p, " \t"), p += *p == ' ')
		if (strcspn(p, " \t") == n && !strncmp(p, type, n))
			return true;
	return false;
}

const char *oom_module_paths(const char *model_type, const char *task)
{
	const struct oom_embedded *f = oom_embedded_find("module_paths.tsv");
	char of_task[96];

	if (task) {
		const char *own;

		snprintf(of_task, sizeof(of_task), "%.64s:%.24s", model_type, task);
		own = oom_module_paths(of_task, NULL);
		if (own)
			return own;
	}
	for (const char *line = f ? (const char *)f->bytes : ""; *line;
	     line += strcspn(line, "\n"), line += *line == '\n')
		if (names_type(line, model_type))
			return line + strcspn(line, "\t\n") + 1;
	return NULL;
}

/* ---- a walk over its leaves ---- */

enum { DEPTH = 16 };

struct walk {
	bool parents;                   /* modules that have children, too */
	const char *at;
	char path[OOM_PATH_SIZE];
	size_t begin[DEPTH];            /* of the children's names, level by level */
	size_t level;
	size_t cut;                     /* where the path of the parent told last goes on; 0: it was a leaf */
};

/* The next leaf in w->path; false: none is left. */
static bool next_leaf(struct walk *w)
{
	while (*w->at && *w->at != '\n') {
		const size_t n = strcspn(w->at, ",()\n"), from = w->begin[w->level];
		const char end = w->at[n];

		if (w->cut)
			w->path[w->cut - 1] = '.';
		w->cut = 0;
		if (n)
			snprintf(w->path + from, sizeof(w->path) - from, "%.*s", (int)n, w->at);
		w->at += n;
		if (end == '(') {
			size_t len = strlen(w->path);

			w->at++;
			if (w->level + 1 == DEPTH || len + 2 > sizeof(w->path))
				return false;
			w->path[len++] = '.';
			w->path[len] = 0;
			w->begin[++w->level] = len;
			if (!w->parents)
				continue;
			w->path[len - 1] = 0;           /* until the first child's name is read */
			w->cut = len;
			return true;
		}
		if (end == ',')
			w->at++;
		if (end == ')') {
			/* the leaf before it first: the parenthesis again at the next call */
			if (n)
				return true;
			w->at++;
			w->level -= w->level > 0;
			w->at += *w->at == ',';
			continue;
		}
		if (n)
			return true;
	}
	return false;
}

/* ---- which leaf ---- */

static bool has_part(const char *path, const char *const *words)
{
	for (; *words; words++)
		for (const char *p = strstr(path, *words); p; p = strstr(p + 1, *words))
			if (p == path || p[-1] == '.')
				return true;
	return false;
}

static enum oom_model_part part_of(const char *path)
{
	static const char *const towers[] = {"vision_tower", "vision_model", "visual.", "visual", "vision_encoder", "vision_embed_tokens", "image_encoder", "vit", "audio_tower", "audio_model", "audio_encoder", "vqmodel", "aligner_model", "high_res", "low_res", NULL},
				 *const projectors[] = {"multi_modal_projector", "mm_projector", "connector", "aligner", "embed_vision", "vision_projection", "visual.merger", "visual.deepstack", "perceiver", "qformer", "language_projection", NULL};

	return has_part(path, projectors) ? OOM_PART_PROJECTOR :
	       has_part(path, towers)	  ? OOM_PART_TOWER :
					    OOM_PART_TEXT;
}

static const char *last_word(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

/* The name of the module that holds a mixture's shared experts, where it is on the path; NULL: it is not. */
static const char *shared_experts(const char *path)
{
	const char *expert = strstr(path, ".shared_expert"), *mlp = strstr(path, ".shared_mlp.");

	if (expert && (!strncmp(expert, ".shared_expert.", 15) || !strncmp(expert, ".shared_experts.", 16)))
		return expert;
	return mlp;
}

/* The length of what stands before the layers' number, 0: outside of layers. */
static size_t stack_of(const char *path)
{
	const char *star = strstr(path, ".*.");

	return star ? (size_t)(star - path) : 0;
}

/* The leaf's place: its number among the stacks of its part (by what stands before the star), and
 * whether it is what is looked for. */
struct search {
	char stack[OOM_PATH_SIZE];      /* of the leaf met last */
	char own[OOM_PATH_SIZE];        /* the one asked for, or the last before it */
	uint32_t stacks, met;
	char found[OOM_PATH_SIZE];
	uint32_t found_stack;
};

/* NAME is on the path, one module or several ("layer.0"). */
static bool lies_in(const char *path, const char *name)
{
	const size_t n = strlen(name);

	for (const char *p = strstr(path, name); p; p = strstr(p + 1, name))
		if ((p == path || p[-1] == '.') && (p[n] == '.' || !p[n]))
			return true;
	return false;
}

static void consider(struct search *s, const char *path, const struct oom_module_at *at)
{
	const size_t n = stack_of(path);

	if (at->part != OOM_PART_ANY && part_of(path) != at->part)
		return;
	if (n && (strncmp(s->stack, path, n) || s->stack[n])) {
		memcpy(s->stack, path, n);
		s->stack[n] = 0;
		if (s->stacks++ <= at->stack)
			memcpy(s->own, s->stack, sizeof(s->own));
	}
	if ((n != 0) != (at->layer >= 0) || strcmp(last_word(path), at->word) || (shared_experts(path) != NULL) != at->shared)
		return;
	if (at->within && !lies_in(path, at->within))
		return;
	/* the stack asked for, or the last one that has such a module */
	if (n && s->met && s->stacks != s->found_stack) {
		if (s->found_stack > at->stack)
			return;
		s->met = 0;
	}
	s->found_stack = s->stacks;
	if (s->met++ <= at->nth)
		memcpy(s->found, path, strlen(path) + 1);
}

/* The first star becomes the layer's number, further ones (lists within a layer) that of the element. */
static void number(const char *path, int64_t layer, int64_t element, char out[OOM_PATH_SIZE])
{
	size_t used = 0;

	for (; *path && used + 24 < OOM_PATH_SIZE; path++) {
		if (*path != '*') {
			out[used++] = *path;
			continue;
		}
		used += (size_t)snprintf(out + used, 24, "%lld", (long long)(layer < 0 ? 0 : layer));
		layer = element;
	}
	out[used] = 0;
}

/* A Sequential of which one child has parameters (ResNet's classifier.1), and a list (Gemma 3n's altup_projections.*):
 * both have none of their own.
 * CHILDREN: the table behind the parenthesis. */
static void add_only_child(char path[OOM_PATH_SIZE], const char *children)
{
	const size_t n = strcspn(children, ",()\n"), used = strlen(path);

	if (n && children[n] == ')' && strspn(children, "*0123456789") == n && used + n + 2 < OOM_PATH_SIZE)
		snprintf(path + used, OOM_PATH_SIZE - used, ".%.*s", (int)n, children);
}

static void look_through(struct search *s, const char *paths, const struct oom_module_at *at, bool parents)
{
	struct walk w = {.at = paths ? paths : "", .parents = parents};

	memset(s, 0, sizeof(*s));
	while (next_leaf(&w)) {
		consider(s, w.path, at);
		if (at->plain && w.cut && !strcmp(s->found, w.path))
			add_only_child(s->found, w.at);
	}
}

/* A model without layers of text is no composition, though its own name may be a tower's ("vit", "vision_model"). */
static void look_for(struct search *s, const char *paths, const struct oom_module_at *at, bool parents)
{
	struct oom_module_at any = *at;

	look_through(s, paths, at, parents);
	if (at->part != OOM_PART_TEXT || s->stacks)
		return;
	any.part = OOM_PART_ANY;
	look_through(s, paths, &any, parents);
}

/* A type whose default config has experts in every layer: the dense layer of another config has the feed-forward in
 * the place of the mixture, whose shared experts have its layers' names.  False: there are none. */
static bool dense_like_shared(struct search *s, const char *paths, const struct oom_module_at *at)
{
	struct oom_module_at other = *at;
	const char *segment;
	char rest[OOM_PATH_SIZE];

	other.shared = true;
	look_for(s, paths, &other, false);
	segment = *s->found ? shared_experts(s->found) : NULL;
	if (!segment)
		return false;
	snprintf(rest, sizeof(rest), "%s", strchr(segment + 1, '.'));
	memcpy(s->found + (segment - s->found), rest, strlen(rest) + 1);
	return true;
}

static bool in_list(const char *path)
{
	const char *star = strchr(path, '*');

	return star && strchr(star + 1, '*');
}

static bool listed_outside(const char *path, const struct oom_module_at *at)
{
	const size_t n = strlen(path);

	return at->layer < 0 && n > 2 && !strcmp(path + n - 2, ".*");
}

bool oom_module_path(const char *paths, const struct oom_module_at *at, char path[OOM_PATH_SIZE])
{
	/* a type of which some modules are known to be mistaken for others */
	const bool approximate = paths && *paths == '?';
	struct search s;
	int64_t element = 0;

	if (approximate)
		paths++;
	look_for(&s, paths, at, false);
	if (!*s.found && !(!at->shared && at->layer >= 0 && dense_like_shared(&s, paths, at)))
		look_for(&s, paths, at, true);
	/* made before the layers, though the first of them owns it: T5's relative positions */
	if (!*s.found && at->layer < 0) {
		struct oom_module_at first = *at;

		first.layer = 0;
		first.stack = at->nth;
		first.nth = 0;
		look_for(&s, paths, &first, false);
		s.met += *s.found ? at->nth : 0;
	}
	/* elements of a list within the layer have the same names, and are met one after the other */
	if (s.met == 1 && at->nth && in_list(s.found)) {
		element = at->nth;
		s.met = at->nth + 1;
	}
	if (listed_outside(s.found, at)) {
		number(s.found, at->nth, 0, path);
		s.met = at->nth + 1;
	} else if (*s.found) {
		number(s.found, at->layer, element, path);
	} else if (at->layer >= 0) {
		snprintf(path, OOM_PATH_SIZE, "%.120s.%lld%s%.80s", *s.own ? s.own : "layers",
			 (long long)at->layer, *at->word ? "." : "", at->word);
	} else {
		snprintf(path, OOM_PATH_SIZE, "%.200s", at->word);
	}
	/* what is the layer's own, in no module of it, needs the stack's name only */
	return !approximate && (s.met > at->nth || (at->layer >= 0 && !*at->word && *s.own));
}
