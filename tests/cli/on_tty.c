/* on_tty COLUMNS COMMAND [ARG...]: runs it with standard output and standard error on a terminal that wide
 * (0: one that does not say), and copies what it shows; its exit status.  script(1) does as much, but stops
 * itself for ever when something pauses the program it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const int master = posix_openpt(O_RDWR | O_NOCTTY);
	struct winsize size = {.ws_row = 24};
	const char *name = master >= 0 && !grantpt(master) && !unlockpt(master) ? ptsname(master) : NULL;
	int status = 0, slave = name ? open(name, O_RDWR | O_NOCTTY) : -1;
	char buf[4096];
	ssize_t n;
	pid_t pid;

	if (argc < 3 || slave < 0) {
		perror("on_tty");
		return 99;
	}
	size.ws_col = (unsigned short)atoi(argv[1]);
	ioctl(slave, TIOCSWINSZ, &size);
	pid = fork();
	if (!pid) {
		dup2(slave, 1);
		dup2(slave, 2);
		close(slave);
		close(master);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	close(slave);
	/* EIO: nobody has the terminal any more */
	while ((n = read(master, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && write(1, buf, (size_t)n) != n)
			return 98;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
