/* Files as parts of a reading: whose they are, and what they lead to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arguments.h"
#include "parts.h"

enum { PATH = 512 };

enum oom_status part_too_many(const char *path, struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_LIMIT, "%s: more than %d files for one run", path,
			     FW_MAX_PARTS);
}

struct fw_part *part_new(struct oom_reading *r)
{
	struct fw_part *p = calloc(1, sizeof(*p));

	if (!p) {
		r->out_of_memory = true;
		return NULL;
	}
	p->reading = r;
	p->prefix = "";
	r->parts[r->n_parts++] = p;
	return p;
}

void part_drop(struct oom_reading *r, struct fw_part *part, enum oom_status st)
{
	r->out_of_memory |= st == OOM_ERR_MEMORY;
	for (size_t i = 0; part && i < r->n_parts; i++)
		if (r->parts[i] == part) {
			memmove(&r->parts[i], &r->parts[i + 1], (--r->n_parts - i) * sizeof(*r->parts));
			doc_release(&part->doc);
			free(part);
			return;
		}
}

enum oom_status part_recognise(struct fw_part *p, const char *framework, struct fw_part **out,
			       struct oom_error *err)
{
	p->file = p->doc.file;
	p->root = p->doc.root;
	resolve_references(&p->doc);
	p->fw = framework ? framework_find(framework) : recognise(p->root);
	if (!framework)
		part_take_config(p);
	if (p->fw && p->root)
		part_take_script(p);
	else if (!framework)
		part_follow_script(p);
	if (!p->fw && !framework)
		part_follow_called(p);
	if (!p->fw && !framework) {
		p->fw = recognise_at_last(p->root);
		if (p->fw)
			part_take_script(p);
	}
	if (!p->fw && framework)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "%s: no framework of that name",
				     framework);
	/* a framework that is named does not make something of nothing */
	if (!p->root)
		return not_recognised(&p->doc, err);
	/* what would have told may not have been read */
	if (!p->fw && p->reading->out_of_memory)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", p->file);
	if (!p->fw)
		return not_recognised(&p->doc, err);
	*out = p;
	return OOM_OK;
}

enum oom_status part_read(struct oom_reading *r, const char *path, const char *framework,
			  struct fw_part **out, struct oom_error *err)
{
	struct fw_part *p;
	enum oom_status st;

	if (r->n_parts == FW_MAX_PARTS)
		return part_too_many(path, err);
	p = part_new(r);
	if (!p)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", path);
	st = doc_read(&p->doc, path, err);
	if (st)
		return st;
	return part_recognise(p, framework, out, err);
}

void fw_nested(struct fw_part *above, const char *key, const char *framework)
{
	const struct doc_node *node = fw_key(above, key);
	struct oom_reading *r = above->reading;
	struct fw_part *p;

	if (!node || node->kind != DOC_MAP || r->n_parts == FW_MAX_PARTS)
		return;
	p = part_new(r);
	if (!p)
		return;
	p->file = above->file;
	p->root = node;
	/* what stands around a program is no level of its keys */
	p->prefix = *key == '(' ? above->prefix : reading_text(r, "%s%s.", above->prefix, key);
	p->fw = framework_find(framework);
	part_run(p);
}

/* dir/path, if that is a regular file */
static bool is_file(char *buf, size_t size, const char *dir, size_t dir_len, const char *path)
{
	struct stat st;

	if ((size_t)snprintf(buf, size, "%.*s%s", (int)dir_len, dir, path) >= size)
		return false;
	return stat(buf, &st) == 0 && S_ISREG(st.st_mode);
}

/* Beside the file, then in the folders above it: where a repository's files start counting. */
bool part_find_beside(char *buf, size_t size, const char *file, const char *path)
{
	char dir[PATH];
	size_t len;

	if (*path == '/')
		return is_file(buf, size, "", 0, path);
	if ((size_t)snprintf(dir, sizeof(dir), "%s", file) >= sizeof(dir))
		return false;
	for (int up = 0; up < 8; up++) {
		const char *slash = strrchr(dir, '/');

		len = slash ? (size_t)(slash - dir) + 1 : 0;
		if (is_file(buf, size, dir, len, path))
			return true;
		if (!len)
			return false;
		dir[len - 1] = 0;
	}
	return false;
}

bool fw_follow(struct fw_part *p, const char *key, const char *path)
{
	struct oom_reading *r = p->reading;
	const size_t before = r->n_parts;
	struct oom_error err = {{0}};
	struct fw_part *other;
	enum oom_status st;
	char found[PATH];

	if (!part_find_beside(found, sizeof(found), p->file, path))
		return false;
	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i]->file && !strcmp(r->parts[i]->file, found))
			return true;
	st = part_read(r, found, NULL, &other, &err);
	if (st) {
		/* none was begun where there are too many */
		part_drop(r, r->n_parts > before ? r->parts[before] : NULL, st);
		fw_unmodelled(p, key, reading_text(r, "not read: %s", err.text));
		return true;
	}
	part_run(other);
	return true;
}

bool fw_read_shell(struct fw_part *p, const char *key, const char *text, const char *folder)
{
	struct oom_error err = {{0}};
	struct oom_reading *r = p->reading;
	const char *slash = strrchr(p->file, '/'), *name;
	struct fw_part *c = r->n_parts < FW_MAX_PARTS ? part_new(r) : NULL;
	enum oom_status st;

	if (!c)
		return false;
	/* no file of its own, but what it names lies in the folder that it is run in */
	name = reading_text(r, "%.*s%s%s%s:%s", slash ? (int)(slash + 1 - p->file) : 0, p->file, folder, *folder ? "/" : "",
			    slash ? slash + 1 : p->file, key);
	st = doc_read_shell(&c->doc, text, strlen(text), name, &err);
	st = st ? st : part_recognise(c, NULL, &c, &err);
	if (st) {
		part_drop(r, c, st);
		fw_unmodelled(p, key, reading_text(r, "not read: %s", err.text));
		return false;
	}
	part_run(c);
	return true;
}
