/* Tables that can be continued.
 *
 * The state is one line: format, version, fingerprint of the sweep, cells, rows and bytes that
 * count.  It is replaced by rename, after the rows it speaks of were handed to the system. */
#include "partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "out.h"

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

/* Opens the table for this process alone: a second one that writes it is refused.  Whoever held the
 * lock before may have renamed the file in the meantime; then the name is another file's. */
static enum oom_status open_locked(struct oom_partial *p, struct oom_error *err)
{
	struct stat held, named;
	bool ours = false;

	for (int tries = 0; !ours && tries < 8; tries++) {
		const int fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

		if (fd < 0)
			return failed(p->path, err);
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			const bool busy = errno == EWOULDBLOCK;

			failed(p->path, err);
			close(fd);
			return busy ? oom_error_set(err, OOM_ERR_INVALID,
						    "%.300s is being written by another process",
						    p->path) :
				      OOM_ERR_IO;
		}
		ours = !fstat(fd, &held) && !stat(p->path, &named) &&
		       held.st_ino == named.st_ino && held.st_dev == named.st_dev;
		if (ours)
			p->file = fdopen(fd, "r+b");
		if (!p->file)
			close(fd);
	}
	return p->file ? OOM_OK : failed(p->path, err);
}

/* The first bytes count; what follows them is written again. */
static enum oom_status resume_at(struct oom_partial *p, uint64_t bytes, struct oom_error *err)
{
	struct stat st;

	if (fstat(fileno(p->file), &st))
		return failed(p->path, err);
	if ((uint64_t)st.st_size < bytes)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%.300s is shorter than its state says: remove both and start "
				     "again",
				     p->path);
	if (ftruncate(fileno(p->file), (off_t)bytes) || fseeko(p->file, 0, SEEK_END))
		return failed(p->path, err);
	return OOM_OK;
}

/* A state without a row: it belongs to a table that was finished, by a process that was killed before it
 * removed its state.  (Or the machine went down: then there is nothing to continue either.) */
static bool is_stale(const struct oom_partial *p)
{
	struct stat st;

	return !fstat(fileno(p->file), &st) && !st.st_size;
}

/* Where the locked file is to be written on. */
static enum oom_status place(struct oom_partial *p, bool resume, struct oom_error *err)
{
	uint64_t was = 0, bytes = 0;

	if (!read_state(p, &was, &bytes) || is_stale(p)) {
		p->cells = p->rows = 0;
		return resume_at(p, 0, err);
	}
	if (!resume)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%.300s is left from an earlier run: --resume continues it, or "
				     "remove it",
				     p->path);
	if (was != p->fingerprint)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%.300s belongs to another sweep: repeat its axes, knobs, columns "
				     "and conditions, or remove it",
				     p->path);
	/* a header alone is written again */
	return resume_at(p, p->cells ? bytes : 0, err);
}

enum oom_status oom_partial_open(struct oom_partial *p, const char *target, uint64_t fingerprint,
				 bool resume, struct oom_error *err)
{
	enum oom_status st;

	memset(p, 0, sizeof(*p));
	p->fingerprint = fingerprint;
	st = oom_out_resolve(target, p->target, err);
	if (st)
		return st;
	if (strlen(p->target) >= PATH_MAX - 20)
		return oom_error_set(err, OOM_ERR_INVALID, "%.100s...: the name is too long",
				     target);
	snprintf(p->path, PATH_MAX, "%.*s.partial", PATH_MAX - 20, p->target);
	snprintf(p->state, PATH_MAX, "%.*s.partial.state", PATH_MAX - 20, p->target);
	st = open_locked(p, err);
	if (!st)
		st = place(p, resume, err);
	if (st)
		oom_partial_leave(p);
	return st;
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
	/* renamed while it is locked: nobody else takes it for a table to be continued */
	if (!bad && rename(p->path, p->target)) {
		bad = true;
		failed(p->target, err);
	}
	if (!bad)
		unlink(p->state);
	if (fclose(p->file) && !bad) {
		bad = true;
		failed(p->target, err);
	}
	p->file = NULL;
	return bad ? OOM_ERR_IO : OOM_OK;
}

void oom_partial_leave(struct oom_partial *p)
{
	if (p->file)
		fclose(p->file);
	p->file = NULL;
}
