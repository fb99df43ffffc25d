/* Files that users name, and pipes: opened so that nobody waits for ever. */
#include "input/open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Whether bytes or their end come within two seconds: 0, or ETIMEDOUT.  Without a writer poll() says
 * nothing, and read() says the end. */
static int wait_for_writer(int fd)
{
	const struct timespec tick = {.tv_nsec = 10 * 1000 * 1000};

	for (int i = 0; i < 200; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (poll(&p, 1, 0) > 0)
			return 0;
		nanosleep(&tick, NULL);         /* a signal only shortens it */
	}
	return ETIMEDOUT;
}

/* A pipe, ready to be read as a file is; NULL with errno. */
static FILE *open_pipe(const char *path)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char first;
	ssize_t got = -1;
	FILE *f = NULL;

	if (fd < 0)
		return NULL;
	if (wait_for_writer(fd)) {
		got = read(fd, &first, 1);
		if (!got)
			errno = ETIMEDOUT;
		else if (got < 0 && errno == EAGAIN)
			errno = 0;              /* there is a writer, and it is slow */
	} else {
		errno = 0;
	}
	if ((got > 0 || !errno) && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0)
		f = fdopen(fd, "rb");
	if (f && got > 0)
		ungetc((unsigned char)first, f);
	if (!f) {
		const int why = errno;

		close(fd);
		errno = why;
	}
	return f;
}

FILE *oom_input_open(const char *path, struct oom_error *err)
{
	struct stat st;
	FILE *f;
	int why;

	if (!strcmp(path, "-"))
		return stdin;
	f = stat(path, &st) == 0 && S_ISFIFO(st.st_mode) ? open_pipe(path) : fopen(path, "rb");
	why = errno;
	if (!f && why == ETIMEDOUT)
		oom_error_set(err, OOM_ERR_IO, "%s: a pipe that nobody writes to", path);
	else if (!f)
		oom_error_set(err, OOM_ERR_IO, "%s: %s", path, strerror(why));
	errno = why;
	return f;
}

void oom_input_close(FILE *f)
{
	if (f && f != stdin)
		fclose(f);
}
