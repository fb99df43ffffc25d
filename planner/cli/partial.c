/* Tables that can be continued.
 *
 * The state is one line: format, version, fingerprint of the sweep, cells, rows and bytes that
 * count.  It is replaced by rename, after the rows it speaks of were handed to the system. */
#include "partial.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "oomplan-sweep/1"

static enum oom_status failed(const char *name, struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_IO, "%.300s: %s", name, strerror(errno ? errno : EIO));
}

/* *bytes: how much of the file counts.  False when there is no state that this program wrote. */
static bool read_state(struct oom_partial *p, uint64_t *fingerprint, uint64_t *bytes)
{
	FILE *f = fopen(p->state, "r");
	char format[32] = "", version[32] = "";
	int n = 0;

	if (!f)
		return false;
	n = fscanf(f, "%31s %31s %" SCNx64 " %" SCNu64 " %" SCNu64 " %" SCNu64, format, version,
		   fingerprint, &p->cells, &p->rows, bytes);
	fclose(f);
	return n == 6 && !strcmp(format, FORMAT) && !strcmp(version, OOMPLAN_VERSION);
}

static enum oom_status resume_at(struct oom_partial *p, uint64_t bytes, struct oom_error *err)
{
	struct stat st;

	p->file = fopen(p->path, "r+b");
	if (!p->file)
		return failed(p->path, err);
	if (fstat(fileno(p->file), &st) || (uint64_t)st.st_size < bytes) {
		fclose(p->file);
		p->file = NULL;
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%.300s is shorter than its state says: remove both and start "
				     "again",
				     p->path);
	}
	if (ftruncate(fileno(p->file), (off_t)bytes) || fseeko(p->file, 0, SEEK_END)) {
		failed(p->path, err);
		fclose(p->file);
		p->file = NULL;
		return OOM_ERR_IO;
	}
	return OOM_OK;
}

enum oom_status oom_partial_open(struct oom_partial *p, const char *target, uint64_t fingerprint,
				 bool resume, struct oom_error *err)
{
	uint64_t was = 0, bytes = 0;

	memset(p, 0, sizeof(*p));
	p->fingerprint = fingerprint;
	if (snprintf(p->target, PATH_MAX, "%s", target) >= PATH_MAX - 20)
		return oom_error_set(err, OOM_ERR_INVALID, "%.100s...: the name is too long",
				     target);
	snprintf(p->path, PATH_MAX, "%.*s.partial", PATH_MAX - 20, target);
	snprintf(p->state, PATH_MAX, "%.*s.partial.state", PATH_MAX - 20, target);
	if (read_state(p, &was, &bytes)) {
		if (!resume)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%.300s is left from an earlier run: --resume "
					     "continues it, or remove it",
					     p->path);
		if (was != fingerprint)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%.300s belongs to another sweep: repeat its axes, knobs, columns and conditions, or remove it", p->path);
		/* a header alone is written again */
		return resume_at(p, p->cells ? bytes : 0, err);
	}
	p->cells = p->rows = 0;
	p->file = fopen(p->path, "wb");
	return p->file ? OOM_OK : failed(p->path, err);
}

enum oom_status oom_partial_note(struct oom_partial *p, uint64_t cells, uint64_t rows,
				 struct oom_error *err)
{
	char temp[PATH_MAX + 4];
	FILE *f;
	bool bad;

	errno = 0;
	if (fflush(p->file) || ferror(p->file))
		return failed(p->path, err);
	snprintf(temp, sizeof(temp), "%s.new", p->state);
	f = fopen(temp, "w");
	if (!f)
		return failed(temp, err);
	fprintf(f, FORMAT " %s %016" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		OOMPLAN_VERSION, p->fingerprint, cells, rows, (uint64_t)ftello(p->file));
	bad = ferror(f) != 0;
	if (fclose(f) || bad || rename(temp, p->state)) {
		failed(p->state, err);
		unlink(temp);
		return OOM_ERR_IO;
	}
	return OOM_OK;
}

enum oom_status oom_partial_finish(struct oom_partial *p, struct oom_error *err)
{
	bool bad;

	errno = 0;
	bad = fflush(p->file) || ferror(p->file) || fsync(fileno(p->file));
	if (bad)
		failed(p->path, err);
	if (fclose(p->file) && !bad) {
		bad = true;
		failed(p->path, err);
	}
	p->file = NULL;
	if (bad)
		return OOM_ERR_IO;
	if (rename(p->path, p->target))
		return failed(p->target, err);
	unlink(p->state);
	return OOM_OK;
}

void oom_partial_leave(struct oom_partial *p)
{
	if (p->file)
		fclose(p->file);
	p->file = NULL;
}
