/* Headers of safetensors files, and the index that ties shards together.
 *
 * What the format promises is checked: offsets that follow each other without hole or overlap up to
 * the end of the file, and a size that follows from dtype and shape.  Numbers come as doubles, so
 * nothing above 2^53 is believed. */
#include "oomplan/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_json.h"

#define MAX_HEADER_BYTES 100000000u /* safetensors/src/tensor.rs, MAX_HEADER_SIZE */
#define MAX_INDEX_BYTES ((size_t)64 << 20)
#define MAX_FILES 4096
#define MAX_EXACT 9007199254740992.0 /* 2^53 */
#define INDEX_NAME "model.safetensors.index.json"
#define MAP_PREFIX "weight_map."

/* safetensors/src/tensor.rs, enum Dtype, with its serde names */
static const struct dtype {
	const char *name;
	uint32_t bits;
} dtypes[] = {
	{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
	{"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
	{"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
	{"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
	{"I64", 64},        {"U64", 64},
};

/* A tensor while the list grows: strings are offsets, for the buffer they stand in moves. */
struct entry {
	struct oom_tensor t;
	size_t name_at, file_at;
	uint64_t begin;
};

struct building {
	const char *folder; /* "" or ending in '/' */
	struct entry *entries;
	size_t n, capacity;
	char *chars;
	size_t n_chars, chars_capacity;
	struct oom_tensors totals;
	struct oom_error *err;
};

static enum oom_status no_memory(struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_MEMORY, "out of memory while reading tensor names");
}

static enum oom_status add_string(struct building *b, const char *s, size_t *at)
{
	const size_t size = strlen(s) + 1;

	if (b->chars_capacity - b->n_chars < size) {
		const size_t capacity = 2 * b->chars_capacity + size;
		char *grown = realloc(b->chars, capacity);

		if (!grown)
			return no_memory(b->err);
		b->chars = grown;
		b->chars_capacity = capacity;
	}
	memcpy(b->chars + b->n_chars, s, size);
	*at = b->n_chars;
	b->n_chars += size;
	return OOM_OK;
}

static enum oom_status add_entry(struct building *b, const struct entry *e, const char *name)
{
	struct entry *grown;

	if (b->n == b->capacity) {
		const size_t capacity = b->capacity ? 2 * b->capacity : 512;

		grown = realloc(b->entries, capacity * sizeof(*grown));
		if (!grown)
			return no_memory(b->err);
		b->entries = grown;
		b->capacity = capacity;
	}
	b->entries[b->n] = *e;
	return add_string(b, name, &b->entries[b->n++].name_at);
}

/* A count: integral, not negative, exact in a double. */
static bool as_count(const struct oom_key *k, uint64_t *v)
{
	if (!k || k->type != OOM_KEY_NUMBER || !(k->number >= 0 && k->number <= MAX_EXACT))
		return false;
	*v = (uint64_t)k->number;
	return !((double)*v < k->number);
}

/* The key NAME.SUFFIX; buf holds NAME, len long, and has room. */
static const struct oom_key *member(const struct oom_keys *keys, char *buf, size_t len,
				    const char *suffix)
{
	strcpy(buf + len, suffix);
	return oom_keys_find(keys, buf);
}

static enum oom_status read_shape(struct entry *e, const struct oom_keys *keys, char *buf,
				  size_t len, const struct oom_key *shape, struct oom_error *err)
{
	buf[len] = 0;
	if (shape->n_items > OOM_TENSOR_MAX_DIMS)
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "%s: tensor %.100s has %u dimensions, at most %d are known",
				     keys->file, buf, (unsigned)shape->n_items,
				     OOM_TENSOR_MAX_DIMS);
	e->t.n_dims = shape->n_items;
	e->t.elems = 1;
	for (uint32_t i = 0; i < shape->n_items; i++) {
		char suffix[24];

		snprintf(suffix, sizeof(suffix), ".shape.%u", (unsigned)i);
		if (!as_count(member(keys, buf, len, suffix), &e->t.shape[i])) {
			buf[len] = 0;
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: tensor %.100s: its shape is not whole numbers",
					     keys->file, buf);
		}
		if (e->t.shape[i] && e->t.elems > (uint64_t)MAX_EXACT / e->t.shape[i]) {
			buf[len] = 0;
			return oom_error_set(err, OOM_ERR_LIMIT,
					     "%s: tensor %.100s has more than 2^53 elements",
					     keys->file, buf);
		}
		e->t.elems *= e->t.shape[i];
	}
	return OOM_OK;
}

/* One tensor of a header.  *found stays false when the object is not a tensor at all (something
 * nested in one). */
static enum oom_status read_tensor(struct entry *e, bool *found, const struct oom_keys *keys,
				   char *buf, size_t len, struct oom_error *err)
{
	const struct oom_key *dtype = member(keys, buf, len, ".dtype");
	const struct oom_key *shape = member(keys, buf, len, ".shape");
	const struct oom_key *offsets = member(keys, buf, len, ".data_offsets");
	enum oom_status status;
	uint64_t begin, end;

	buf[len] = 0;
	if (!dtype && !shape && !offsets)
		return OOM_OK;
	if (!dtype || dtype->type != OOM_KEY_STRING || !shape || shape->type != OOM_KEY_LIST ||
	    !offsets || offsets->type != OOM_KEY_LIST || offsets->n_items != 2)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: tensor %.100s lacks one of dtype, shape, data_offsets",
				     keys->file, buf);
	status = read_shape(e, keys, buf, len, shape, err);
	if (status)
		return status;
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(dtypes[i].name, dtype->string) == 0) {
			e->t.dtype = dtypes[i].name;
			e->t.bytes = (e->t.elems * dtypes[i].bits + 7) / 8;
		}
	}
	if (!as_count(member(keys, buf, len, ".data_offsets.0"), &begin) ||
	    !as_count(member(keys, buf, len, ".data_offsets.1"), &end))
		begin = 1, end = 0;
	buf[len] = 0;
	if (!e->t.dtype)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: tensor %.100s has the unknown dtype '%.30s'", keys->file,
				     buf, dtype->string);
	if (end < begin || end - begin != e->t.bytes)
		return oom_error_set(
			err, OOM_ERR_INVALID,
			"%s: tensor %.100s: its data_offsets do not hold its shape in %s",
			keys->file, buf, e->t.dtype);
	e->begin = begin;
	e->t.is_known = true;
	*found = true;
	return OOM_OK;
}

static int by_begin(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->t.bytes > y->t.bytes) - (x->t.bytes < y->t.bytes);
}

/* No holes, no overlaps, up to the end of the file. */
static enum oom_status check_offsets(struct entry *entries, size_t n, uint64_t data_bytes,
				     const char *file, struct oom_error *err)
{
	uint64_t at = 0;

	if (n)
		qsort(entries, n, sizeof(*entries), by_begin);
	for (size_t i = 0; i < n; i++) {
		if (entries[i].begin != at)
			return oom_error_set(
				err, OOM_ERR_INVALID,
				"%s: tensors leave a hole or overlap at byte %llu of the data",
				file, (unsigned long long)at);
		at += entries[i].t.bytes;
	}
	if (at > data_bytes)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: cut short: %llu of %llu bytes of tensors are there", file,
				     (unsigned long long)data_bytes, (unsigned long long)at);
	if (at < data_bytes)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %llu bytes after the last tensor",
				     file, (unsigned long long)(data_bytes - at));
	return OOM_OK;
}

static enum oom_status add_header(struct building *b, const struct oom_keys *keys, const char *file,
				  uint64_t data_bytes)
{
	const size_t first = b->n;
	enum oom_status status;
	size_t longest = 0, file_at;
	char *buf;

	for (size_t i = 0; i < keys->n; i++)
		if (keys->items[i].type == OOM_KEY_OBJECT && strlen(keys->items[i].path) > longest)
			longest = strlen(keys->items[i].path);
	buf = malloc(longest + 32);
	if (!buf)
		return no_memory(b->err);
	status = add_string(b, file, &file_at);
	for (size_t i = 0; !status && i < keys->n; i++) {
		const struct oom_key *k = &keys->items[i];
		struct entry e = {.file_at = file_at};
		bool found = false;

		if (k->type != OOM_KEY_OBJECT || strcmp(k->path, "__metadata__") == 0)
			continue;
		strcpy(buf, k->path);
		status = read_tensor(&e, &found, keys, buf, strlen(buf), b->err);
		if (!status && found)
			status = add_entry(b, &e, k->path);
	}
	free(buf);
	return status ? status
		      : check_offsets(b->entries + first, b->n - first, data_bytes, keys->file,
				      b->err);
}

/* One file's header.  An absent one gives OOM_ERR_IO with *absent set. */
static enum oom_status add_file(struct building *b, const char *file, bool *absent)
{
	const size_t path_size = strlen(b->folder) + strlen(file) + 1;
	char *path = malloc(path_size), *text = NULL;
	enum oom_status status = OOM_OK;
	struct oom_keys keys = {0};
	unsigned char head[8];
	uint64_t length = 0, size;
	struct stat st;
	FILE *f = NULL;

	if (!path)
		return no_memory(b->err);
	snprintf(path, path_size, "%s%s", b->folder, file);
	*absent = false;
	if (stat(path, &st) != 0)
		*absent = errno == ENOENT;
	else if (S_ISREG(st.st_mode)) /* opening a pipe would wait for its writer */
		f = fopen(path, "rb");
	else
		errno = EINVAL;
	if (!f || fstat(fileno(f), &st) != 0) {
		status = oom_error_set(b->err, OOM_ERR_IO, "%s: %s", path, strerror(errno));
		goto out;
	}
	size = st.st_size > 0 ? (uint64_t)st.st_size : 0;
	if (size < sizeof(head) || fread(head, 1, sizeof(head), f) != sizeof(head)) {
		status = oom_error_set(b->err, OOM_ERR_INVALID,
				       "%s: too short for a safetensors file", path);
		goto out;
	}
	for (int i = 7; i >= 0; i--)
		length = length << 8 | head[i];
	if (length > MAX_HEADER_BYTES || length < 2) {
		status = oom_error_set(b->err, OOM_ERR_PARSE,
				       "%s: not a safetensors file (a header of %llu bytes; 2 to "
				       "100000000 are allowed)",
				       path, (unsigned long long)length);
		goto out;
	}
	if (length > size - sizeof(head)) {
		status = oom_error_set(b->err, OOM_ERR_INVALID, "%s: cut short within its header",
				       path);
		goto out;
	}
	text = malloc((size_t)length + 1);
	if (!text) {
		status = no_memory(b->err);
		goto out;
	}
	if (fread(text, 1, (size_t)length, f) != length) {
		status = oom_error_set(b->err, OOM_ERR_IO,
				       "%s: cannot be read to the end of its header", path);
		goto out;
	}
	text[length] = 0;
	status = oom_keys_parse_buffer(&keys, text, (size_t)length, path, b->err);
	if (!status)
		status = add_header(b, &keys, file, size - sizeof(head) - length);
	if (!status)
		b->totals.n_files++;
out:
	oom_keys_release(&keys);
	free(text);
	if (f)
		fclose(f);
	free(path);
	return status;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts names[0..*n) and drops repetitions. */
static void sort_distinct(const char **names, size_t *n)
{
	size_t kept = 0;

	if (*n)
		qsort(names, *n, sizeof(*names), by_text);
	for (size_t i = 0; i < *n; i++)
		if (kept == 0 || strcmp(names[i], names[kept - 1]) != 0)
			names[kept++] = names[i];
	*n = kept;
}

/* The tensors the index gives to a file that is not there. */
static enum oom_status add_absent(struct building *b, const struct oom_keys *index,
				  const char *file)
{
	struct entry e = {0};
	enum oom_status status = add_string(b, file, &e.file_at);

	for (size_t i = 0; !status && i < index->n; i++) {
		const struct oom_key *k = &index->items[i];

		if (k->type == OOM_KEY_STRING &&
		    strncmp(k->path, MAP_PREFIX, strlen(MAP_PREFIX)) == 0 &&
		    strcmp(k->string, file) == 0)
			status = add_entry(b, &e, k->path + strlen(MAP_PREFIX));
	}
	b->totals.n_missing_files++;
	return status;
}

static enum oom_status add_index(struct building *b, const char *path)
{
	const char **files = NULL;
	struct oom_keys index = {0};
	enum oom_status status;
	size_t size, n = 0;
	char *text = NULL;

	status = oom_read_text(&text, &size, path, MAX_INDEX_BYTES, b->err);
	if (!status)
		status = oom_keys_parse_buffer(&index, text, size, path, b->err);
	if (status)
		goto out;
	as_count(oom_keys_find(&index, "metadata.total_size"), &b->totals.index_bytes);
	as_count(oom_keys_find(&index, "metadata.total_parameters"), &b->totals.index_elems);
	files = malloc((index.n + 1) * sizeof(*files));
	if (!files) {
		status = no_memory(b->err);
		goto out;
	}
	for (size_t i = 0; i < index.n; i++) {
		const struct oom_key *k = &index.items[i];

		if (k->type == OOM_KEY_STRING &&
		    strncmp(k->path, MAP_PREFIX, strlen(MAP_PREFIX)) == 0)
			files[n++] = k->string;
	}
	sort_distinct(files, &n);
	if (n == 0)
		status = oom_error_set(b->err, OOM_ERR_INVALID,
				       "%s: no weight_map of tensor names to files", path);
	else if (n > MAX_FILES)
		status = oom_error_set(b->err, OOM_ERR_LIMIT, "%s: names more than %d files", path,
				       MAX_FILES);
	for (size_t i = 0; !status && i < n; i++) {
		bool absent = false;

		if (strchr(files[i], '/') || !*files[i]) {
			status = oom_error_set(b->err, OOM_ERR_INVALID,
					       "%s: '%.100s' is not the name of a file beside it",
					       path, files[i]);
			break;
		}
		status = add_file(b, files[i], &absent);
		if (status == OOM_ERR_IO && absent)
			status = add_absent(b, &index, files[i]);
	}
out:
	free(files);
	oom_keys_release(&index);
	free(text);
	return status;
}

/* Every *.safetensors of the folder, in order of name. */
static enum oom_status add_folder(struct building *b)
{
	static const char suffix[] = ".safetensors";
	char *names[MAX_FILES];
	enum oom_status status = OOM_OK;
	struct dirent *d;
	size_t n = 0;
	DIR *dir = opendir(b->folder);

	if (!dir)
		return oom_error_set(b->err, OOM_ERR_IO, "%s: %s", b->folder, strerror(errno));
	while (!status && (d = readdir(dir))) {
		const size_t len = strlen(d->d_name);

		if (len < sizeof(suffix) || strcmp(d->d_name + len - strlen(suffix), suffix) != 0)
			continue;
		if (n == MAX_FILES)
			status = oom_error_set(b->err, OOM_ERR_LIMIT, "%s: more than %d files",
					       b->folder, MAX_FILES);
		else if (!(names[n] = strdup(d->d_name)))
			status = no_memory(b->err);
		else
			n++;
	}
	closedir(dir);
	if (n)
		qsort(names, n, sizeof(names[0]), by_text);
	for (size_t i = 0; i < n; i++) {
		bool absent;

		if (!status)
			status = add_file(b, names[i], &absent);
		free(names[i]);
	}
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct oom_tensor *)a)->name, ((const struct oom_tensor *)b)->name);
}

static enum oom_status finish(struct oom_tensors *out, struct building *b)
{
	struct oom_tensor *items = malloc(b->n * sizeof(*items) + b->n_chars + 1);
	struct oom_tensors *t = &b->totals;
	char *chars;

	if (!items)
		return no_memory(b->err);
	chars = (char *)(items + b->n);
	if (b->n_chars)
		memcpy(chars, b->chars, b->n_chars);
	for (size_t i = 0; i < b->n; i++) {
		items[i] = b->entries[i].t;
		items[i].name = chars + b->entries[i].name_at;
		items[i].file = chars + b->entries[i].file_at;
	}
	if (b->n)
		qsort(items, b->n, sizeof(*items), by_name);
	for (size_t i = 0; i < b->n; i++) {
		if (i && strcmp(items[i].name, items[i - 1].name) == 0) {
			const enum oom_status status = oom_error_set(
				b->err, OOM_ERR_INVALID, "tensor %.100s is in both %.80s and %.80s",
				items[i].name, items[i - 1].file, items[i].file);

			free(items);
			return status;
		}
		/* a file's bytes are on a disk, so that their sum stays far below 2^64 */
		t->total_elems += items[i].elems;
		t->total_bytes += items[i].bytes;
	}
	t->items = items;
	t->arena = items;
	t->n = b->n;
	*out = *t;
	return OOM_OK;
}

static enum oom_status add_all(struct building *b, char *path, size_t len)
{
	struct stat st;
	bool absent;

	strcpy(path + len, "model.safetensors");
	if (stat(path, &st) == 0)
		return add_file(b, "model.safetensors", &absent);
	strcpy(path + len, INDEX_NAME);
	if (stat(path, &st) == 0)
		return add_index(b, path);
	return add_folder(b);
}

enum oom_status oom_tensors_read(struct oom_tensors *out, const char *path, struct oom_error *err)
{
	struct building b = {.err = err};
	size_t len = strlen(path);
	char *folder = malloc(len + 2), *scratch = malloc(len + 2 + sizeof(INDEX_NAME));
	enum oom_status status;
	struct stat st;
	bool absent;

	if (!folder || !scratch) {
		status = no_memory(err);
		goto out;
	}
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		snprintf(folder, len + 2, len && path[len - 1] == '/' ? "%s" : "%s/", path);
		strcpy(scratch, folder);
		b.folder = folder;
		status = add_all(&b, scratch, strlen(folder));
	} else {
		b.folder = "";
		status = add_file(&b, path, &absent);
	}
	if (!status)
		status = finish(out, &b);
out:
	free(b.chars);
	free(b.entries);
	free(scratch);
	free(folder);
	return status;
}

void oom_tensors_release(struct oom_tensors *tensors)
{
	if (!tensors)
		return;
	free(tensors->arena);
	*tensors = (struct oom_tensors){0};
}

const struct oom_tensor *oom_tensors_find(const struct oom_tensors *tensors, const char *name)
{
	const struct oom_tensor key = {.name = name};

	return tensors->n ? bsearch(&key, tensors->items, tensors->n, sizeof(key), by_name) : NULL;
}
