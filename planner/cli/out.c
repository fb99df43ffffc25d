/* Output that arrives whole or is an error. */
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_OUTPUT = 3 };

/* The signals that end the program, and with it the file that is being written. */
static const int ends[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};

/* The temporary file, for the handler too; "" when there is none. */
static char temp[PATH_MAX];
static char target[PATH_MAX];
static volatile sig_atomic_t temp_exists;

/* The last files that this command has written: another output of it under the same name would replace one. */
static struct stat written[8];
static size_t n_written;

/* unlink, signal, raise and _exit are async-signal-safe (POSIX.1-2008, 2.4.3). */
static void on_signal(int sig)
{
	if (temp_exists)
		unlink(temp);
	if (sig == SIGPIPE)
		_exit(EXIT_OUTPUT);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* A handler that came with the process (a profiler's, a preloaded library's) must not end a read or a
 * write half way: stdio takes EINTR for an error. */
static void restart_calls(void)
{
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction sa;

		if (sigaction(sig, NULL, &sa) || sa.sa_flags & SA_RESTART)
			continue;
		if (!(sa.sa_flags & SA_SIGINFO) &&
		    (sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN))
			continue;
		sa.sa_flags |= SA_RESTART;
		sigaction(sig, &sa, NULL);
	}
}

void oom_out_start(void)
{
	/* A file opened later must not land on a closed standard descriptor and receive the report.
	 * The wrong direction on purpose: using it fails with EBADF, as it should. */
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			_exit(EXIT_OUTPUT);
	restart_calls();
	/* past `ulimit -f` a write fails with EFBIG and is reported like a full disk */
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct sigaction sa = {.sa_handler = on_signal}, old;

		/* what the caller chose to ignore stays ignored, except the pipe: that is our own
		 * business */
		if (!sigaction(ends[i], NULL, &old) && old.sa_handler == SIG_IGN &&
		    ends[i] != SIGPIPE)
			continue;
		sigaction(ends[i], &sa, NULL);
	}
}

static enum oom_status failed(const char *name, struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_IO, "%.300s: %s", name, strerror(errno ? errno : EIO));
}

/* The mode the finished file gets: that of the file it replaces, else the usual one. */
static mode_t final_mode(const struct stat *old)
{
	mode_t mask;

	if (old)
		return old->st_mode & 07777;
	mask = umask(0);
	umask(mask);
	return 0666 & ~mask;
}

/* A signal that arrives while the file is made waits until the handler can know of the file: it would be
 * delivered as the call returns, before `temp_exists`.  Threads are started after this. */
static int make_temp(void)
{
	sigset_t wait, before;
	int fd;

	sigemptyset(&wait);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&wait, ends[i]);
	sigprocmask(SIG_BLOCK, &wait, &before);
	fd = mkstemp(temp);
	temp_exists = fd >= 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return fd;
}

/* A device or a pipe, which nothing replaces.  Opening a pipe waits for its reader, for ever if none comes: two seconds
 * are enough, as they are for a pipe that is read (input/open.h). */
static enum oom_status open_special(struct oom_out *out, const char *path, struct oom_error *err)
{
	const struct timespec tick = {.tv_nsec = 10 * 1000 * 1000};
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

	for (int i = 0; i < 200 && fd < 0 && errno == ENXIO; i++) {
		nanosleep(&tick, NULL);         /* a signal only shortens it */
		fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	}
	if (fd < 0 && errno == ENXIO)
		return oom_error_set(err, OOM_ERR_IO, "%.300s: a pipe that nobody reads", path);
	if (fd >= 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0)
		out->file = fdopen(fd, "wb");
	if (!out->file)
		failed(path, err);
	if (!out->file && fd >= 0)
		close(fd);
	return out->file ? OOM_OK : OOM_ERR_IO;
}

static bool is_written(const struct stat *st)
{
	const size_t most = sizeof(written) / sizeof(written[0]);

	for (size_t i = 0; i < n_written && i < most; i++)
		if (written[i].st_dev == st->st_dev && written[i].st_ino == st->st_ino)
			return true;
	return false;
}

enum oom_status oom_out_resolve(const char *path, char file[PATH_MAX], struct oom_error *err)
{
	struct stat st;
	const bool exists = !stat(path, &st);

	if (exists && is_written(&st))
		return oom_error_set(err, OOM_ERR_INVALID, "%.300s: this command has written it already: give each output a name",
				     path);
	if (!exists && !lstat(path, &st))
		return oom_error_set(err, OOM_ERR_IO, "%.300s: a symbolic link that leads to no file", path);
	if (!(exists && realpath(path, file)) && snprintf(file, PATH_MAX, "%s", path) >= PATH_MAX)
		return oom_error_set(err, OOM_ERR_INVALID, "%.100s...: the name is too long", path);
	return OOM_OK;
}

enum oom_status oom_out_open(struct oom_out *out, const char *path, struct oom_error *err)
{
	enum oom_status status;
	struct stat st;
	bool exists;
	int fd;

	memset(out, 0, sizeof(*out));
	out->name = path;
	temp[0] = 0;
	if (!path || !strcmp(path, "-")) {
		out->name = "standard output";
		out->file = stdout;
		return OOM_OK;
	}
	exists = !stat(path, &st);
	if (exists && !S_ISREG(st.st_mode))
		return open_special(out, path, err);
	status = oom_out_resolve(path, target, err);
	if (status)
		return status;
	if (snprintf(temp, sizeof(temp), "%.4080s.XXXXXX", target) != (int)strlen(target) + 7) {
		temp[0] = 0;
		return oom_error_set(err, OOM_ERR_INVALID, "%.100s...: the name is too long", path);
	}
	fd = make_temp();
	if (fd < 0 || fchmod(fd, final_mode(exists ? &st : NULL)) ||
	    !(out->file = fdopen(fd, "wb"))) {
		failed(path, err);
		if (fd >= 0)
			close(fd);
		oom_out_discard(out);
		return OOM_ERR_IO;
	}
	return OOM_OK;
}

void oom_out_discard(struct oom_out *out)
{
	if (out->file && out->file != stdout)
		fclose(out->file);
	out->file = NULL;
	if (temp_exists)
		unlink(temp);
	temp_exists = 0;
	temp[0] = 0;
}

enum oom_status oom_out_close(struct oom_out *out, struct oom_error *err)
{
	bool bad;

	if (!out->file)
		return OOM_OK;
	if (out->file == stdout) {
		out->file = NULL;
		return oom_out_flush(err);
	}
	errno = 0;
	bad = fflush(out->file) || ferror(out->file) || (temp_exists && fsync(fileno(out->file)));
	if (!bad) {
		if (temp_exists && !fstat(fileno(out->file), &written[n_written % (sizeof(written) / sizeof(written[0]))]))
			n_written++;
		bad = fclose(out->file) != 0;
		out->file = NULL;
	}
	if (bad || (temp_exists && rename(temp, target))) {
		failed(out->name, err);
		oom_out_discard(out);
		return OOM_ERR_IO;
	}
	temp_exists = 0;
	temp[0] = 0;
	return OOM_OK;
}

static bool incomplete;
static bool told;               /* that standard output was lost */

void oom_out_incomplete(void)
{
	incomplete = true;
}

enum oom_status oom_out_flush(struct oom_error *err)
{
	bool bad;

	errno = 0;
	bad = fflush(stdout) || ferror(stdout);
	if (bad && !errno) {
		/* An earlier write failed and its reason is gone.  The output is already
		 * incomplete: one more byte brings the reason back. */
		clearerr(stdout);
		putchar('\n');
		fflush(stdout);
	}
	if (!bad && incomplete)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory: the output is incomplete");
	if (!bad)
		return OOM_OK;
	failed("standard output", err);
	if (told && err)
		err->text[0] = 0;       /* who writes a table says it, and the command's end comes after */
	told = true;
	return OOM_ERR_IO;
}
