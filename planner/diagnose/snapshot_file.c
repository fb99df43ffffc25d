/* The file of a memory snapshot: its bytes, and which of its devices is told of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/open.h"
#include "oomplan/snapshot.h"
#include "snapshot_parts.h"

enum { MAX_BYTES = 1 << 29, MAX_DEVICES = 1024 };

bool oom_snapshot_is(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;

	return size > 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5;
}

static enum oom_status read_all(const struct oom_pickle *p, const char *name,
				struct oom_snapshot *out, struct oom_error *err)
{
	/* torch.cuda.memory_snapshot() gives the segments alone */
	const node *root = &p->nodes[p->root],
		   *segments = root->kind == OOM_PICKLE_LIST ? root : oom_node_list(p, root, "segments"),
		   *traces = oom_node_list(p, root, "device_traces");
	struct oom_snapshot_device each[OOM_SNAPSHOT_DEVICES] = {{0}};
	size_t devices = traces ? traces->n : 0, n_each = 0;
	enum oom_status st = OOM_OK;
	bool any = false;

	if (root->kind == OOM_PICKLE_LIST && (!root->n || !oom_node_get(p, &p->nodes[root->u.items[0]], "total_size")))
		segments = NULL;
	if (!segments)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: a pickle, but no memory snapshot: the key \"segments\" "
				     "(torch.cuda.memory._snapshot) "
				     "is needed",
				     name);
	for (uint32_t i = 0; i < segments->n; i++) {
		const uint64_t d = oom_node_number(p, &p->nodes[segments->u.items[i]], "device");

		if (d >= MAX_DEVICES)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: segment %u is on device %llu: not below %d", name,
					     i, (unsigned long long)d, MAX_DEVICES);
		if (d >= devices)
			devices = (size_t)d + 1;
	}
	if (devices > MAX_DEVICES)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %zu devices: not above %d", name,
				     devices, MAX_DEVICES);
	for (size_t d = 0; !st && d < devices; d++) {
		struct oom_snapshot_reader r = {.p = p, .segments = segments, .device = (int64_t)d};
		const node *trace = traces && d < traces->n ? &p->nodes[traces->u.items[d]] : NULL;

		if (trace && trace->kind != OOM_PICKLE_LIST)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: device_traces[%zu] is no list", name, d);
		st = oom_snapshot_device(&r, trace, err);
		if (st)
			break;
		if (n_each < OOM_SNAPSHOT_DEVICES && (r.out.peak_bytes || r.out.n_events))
			each[n_each++] = (struct oom_snapshot_device){(int64_t)d, r.out.peak_bytes, r.out.oom};
		if (!any || r.out.oom > out->oom || (r.out.oom == out->oom && r.out.peak_bytes > out->peak_bytes))
			*out = r.out;
		any = true;
	}
	if (!st && !any)
		st = oom_error_set(err, OOM_ERR_INVALID,
				   "%s: an empty snapshot: no segment, no event", name);
	out->n_devices = devices;
	memcpy(out->each, each, sizeof(each));
	out->n_each = n_each;
	return st;
}

enum oom_status oom_snapshot_parse(struct oom_snapshot *out, const void *bytes, size_t size,
				   const char *name, struct oom_error *err)
{
	struct oom_pickle p = {0};
	struct oom_snapshot found = {0};
	struct oom_error why = {{0}};
	enum oom_status st = oom_pickle_parse(&p, bytes, size, &why);

	if (st)
		return oom_error_set(err, st, "%s: %s", name, why.text);
	st = read_all(&p, name, &found, err);
	oom_pickle_release(&p);
	if (!st)
		*out = found;
	return st;
}

enum oom_status oom_snapshot_read(struct oom_snapshot *out, const char *path, struct oom_error *err)
{
	FILE *f = oom_input_open(path, err);
	size_t size = 0, cap = 1 << 20;
	uint8_t *buf = malloc(cap);
	enum oom_status st = OOM_OK;

	if (!f)
		st = OOM_ERR_IO;
	while (!st && buf) {
		const size_t got = fread(buf + size, 1, cap - size, f);

		size += got;
		if (!got)
			break;
		if (size == cap) {
			uint8_t *q = cap < MAX_BYTES ? realloc(buf, cap * 2) : NULL;

			if (!q) {
				st = oom_error_set(err, OOM_ERR_LIMIT,
						   "%s: more than %zu bytes: record with a smaller "
						   "max_entries",
						   path, cap);
				break;
			}
			buf = q;
			cap *= 2;
		}
	}
	if (!st && !buf)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!st && ferror(f))
		st = oom_error_set(err, OOM_ERR_IO, "%s: cannot be read", path);
	if (!st)
		st = oom_snapshot_parse(out, buf, size, path, err);
	oom_input_close(f);
	free(buf);
	return st;
}
