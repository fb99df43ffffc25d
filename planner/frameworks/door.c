/* Which door a file goes through, and text made UTF-8 before it does. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "arguments.h"
#include "input/config_json.h"

/* UTF-16 of one byte order into UTF-8; returns the new size.  out holds 3 bytes per unit. */
static size_t from_utf16(unsigned char *out, const unsigned char *in, size_t size, bool big)
{
	size_t n = 0;

	for (size_t i = 0; i + 1 < size; i += 2) {
		uint32_t u = big ? (uint32_t)in[i] << 8 | in[i + 1] : (uint32_t)in[i + 1] << 8 | in[i];

		if (u >= 0xd800 && u < 0xdc00 && i + 3 < size) {
			const uint32_t low = big ? (uint32_t)in[i + 2] << 8 | in[i + 3] :
						   (uint32_t)in[i + 3] << 8 | in[i + 2];

			if (low >= 0xdc00 && low < 0xe000) {
				u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
				i += 2;
			}
		}
		if (u < 0x80) {
			out[n++] = (unsigned char)u;
		} else if (u < 0x800) {
			out[n++] = (unsigned char)(0xc0 | u >> 6);
			out[n++] = (unsigned char)(0x80 | (u & 63));
		} else if (u < 0x10000) {
			out[n++] = (unsigned char)(0xe0 | u >> 12);
			out[n++] = (unsigned char)(0x80 | (u >> 6 & 63));
			out[n++] = (unsigned char)(0x80 | (u & 63));
		} else {
			out[n++] = (unsigned char)(0xf0 | u >> 18);
			out[n++] = (unsigned char)(0x80 | (u >> 12 & 63));
			out[n++] = (unsigned char)(0x80 | (u >> 6 & 63));
			out[n++] = (unsigned char)(0x80 | (u & 63));
		}
	}
	return n;
}

/* Takes a byte order mark off; text may be replaced. */
static enum oom_status normalise(char **text, size_t *size, const char *file,
				 struct oom_error *err)
{
	unsigned char *t = (unsigned char *)*text, *out;
	const bool little = *size >= 2 && t[0] == 0xff && t[1] == 0xfe,
		   big = *size >= 2 && t[0] == 0xfe && t[1] == 0xff;

	if (*size >= 3 && !memcmp(t, "\xef\xbb\xbf", 3)) {
		memmove(t, t + 3, *size - 3 + 1);
		*size -= 3;
		return OOM_OK;
	}
	if (!little && !big)
		return OOM_OK;
	out = malloc(*size / 2 * 3 + 1);
	if (!out)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
	*size = from_utf16(out, t + 2, *size - 2, big);
	out[*size] = 0;
	free(*text);
	*text = (char *)out;
	return OOM_OK;
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* The first character that is no blank. */
static char first_of(const char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	return *text;
}

static bool has_line(const char *text, const char *begins)
{
	const size_t n = strlen(begins);

	for (const char *p = text; p; p++) {
		if (!strncmp(p, begins, n))
			return true;
		p = strchr(p, '\n');
		if (!p)
			break;
	}
	return false;
}

static bool is_json(const char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	return *text == '{' && (text[1] == '"' || isspace((unsigned char)text[1]));
}

/* A line that starts a program, or options alone. */
static bool is_command(const char *text)
{
	static const char *const words[] = {"torchrun ", "accelerate launch", "deepspeed ", "python ",
					    "python3 ", "srun ", "swift ", "llamafactory-cli ", "trl ",
					    "tune run", "axolotl train", "litgpt ", "CUDA_VISIBLE_DEVICES=",
					    "NPROC_PER_NODE=", OOM_ALLOCATOR_VARIABLE "=", OOM_ALLOCATOR_VARIABLE_2_9 "="};

	if (!strncmp(text, "--", 2) && isalpha((unsigned char)text[2]))
		return true;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (has_line(text, words[i]))
			return true;
	return false;
}

static bool first_line_has(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	return at && at < text + strcspn(text, "\n");
}

static bool is_shell(const char *text)
{
	return (!strncmp(text, "#!", 2) && first_line_has(text, "sh")) || is_command(text);
}

static bool is_python(const char *text)
{
	return has_line(text, "import ") || has_line(text, "from transformers import") ||
	       has_line(text, "from unsloth import") || has_line(text, "from trl import");
}

/* A script, or a module of configs. */
static enum oom_status read_python(struct doc *doc, const char *text, size_t size, const char *file, struct oom_error *err)
{
	return (python_is_registry(text) ? doc_read_registry : doc_read_python)(doc, text, size, file, err);
}

static bool is_toml(const char *text)
{
	return first_of(text) == '[' && has_line(text, "[training]");
}

static bool is_dockerfile(const char *text)
{
	return has_line(text, "FROM ") && has_line(text, "RUN ");
}

/* Every line is a requirement, a comment or an option, and one of them names a version. */
static bool is_requirements(const char *text)
{
	bool versions = false;

	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
		const size_t n = strcspn(p, "\n"), name = strcspn(p, "=<>~![;# \r\n");

		if (!n || *p == '#' || *p == '-' || *p == '\r')
			continue;
		if (!isalnum((unsigned char)*p) || memchr(p, ':', name < n ? name : n) ||
		    (p[name] == ' ' && !strchr("=<>~!;#@", p[name + strspn(p + name, " ")])))
			return false;
		versions |= p[name] && p[name + 1] == '=' && strchr("=<>~!", p[name]);
	}
	return versions;
}

struct door {
	const char *suffixes;           /* joined by blanks; NULL: none */
	bool (*by_text)(const char *text);      /* where no suffix says; NULL: never */
	enum oom_status (*read)(struct doc *doc, const char *text, size_t size, const char *file,
				struct oom_error *err);
};

/* The last takes what no other does. */
static const struct door doors[] = {
	{".json", is_json, doc_read_json},
	{".toml", is_toml, doc_read_toml},
	{".sh .bash .slurm .sbatch .zsh", is_shell, doc_read_shell},
	{".ipynb", NULL, doc_read_notebook},
	{".py", is_python, read_python},
	{".args", NULL, doc_read_pairs},
	{"requirements.txt", is_requirements, doc_read_requirements},
	{"Dockerfile .dockerfile", is_dockerfile, doc_read_dockerfile},
	{".yaml .yml", NULL, doc_read_yaml},
};
enum { N_DOORS = sizeof(doors) / sizeof(doors[0]) };

static const struct door *door_of(const char *path, const char *text)
{
	if (python_run_of(path))
		path = ".py";
	for (size_t i = 0; i < N_DOORS; i++)
		for (const char *w = doors[i].suffixes; *w; w += strspn(w, " ")) {
			char suffix[24];
			const size_t n = strcspn(w, " ");

			snprintf(suffix, sizeof(suffix), "%.*s", (int)n, w);
			if (ends_with(path, suffix))
				return &doors[i];
			w += n;
		}
	for (size_t i = 0; i < N_DOORS; i++)
		if (doors[i].by_text && doors[i].by_text(text))
			return &doors[i];
	return &doors[N_DOORS - 1];
}

/* The comment that a file begins with: what it is for is often said there. */
static void keep_head(struct doc *doc, const char *text)
{
	const char *end = text;

	while (*end == '#' || *end == '\n' || *end == '\r') {
		end += strcspn(end, "\n");
		end += *end == '\n';
	}
	if (end > text)
		doc->head = doc_text(doc, text, (size_t)(end - text) < 8192 ? (size_t)(end - text) : 8192);
}

/* Megatron-LM's test recipes spell options as on a command line: "--bf16: true". */
static void strip_dashes(struct doc_node *node)
{
	for (struct doc_node *c = node->child; c; c = c->next) {
		if (c->key && !strncmp(c->key, "--", 2))
			c->key += 2;
		strip_dashes(c);
	}
}

enum oom_status doc_read_text(struct doc *doc, const char *text, size_t size, const char *name,
			      struct oom_error *err)
{
	const enum oom_status st = door_of(name, text)->read(doc, text, size, name, err);

	if (!st) {
		keep_head(doc, text);
		if (doc->root)
			strip_dashes(doc->root);
	}
	return st;
}

enum oom_status doc_read(struct doc *doc, const char *path, struct oom_error *err)
{
	const char *file = strcmp(path, "-") ? path : "standard input", *run = python_run_of(path);
	char *text = NULL, *own = run ? strndup(path, (size_t)(run - path) - 1) : NULL;
	size_t size = 0;
	enum oom_status st = run && !own ? oom_error_set(err, OOM_ERR_MEMORY, "out of host memory") :
					   oom_read_text(&text, &size, own ? own : path, DOC_MAX_BYTES, err);

	free(own);
	if (!st)
		st = normalise(&text, &size, file, err);
	if (!st)
		st = doc_read_text(doc, text, size, file, err);
	free(text);
	return st;
}
