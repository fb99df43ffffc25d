/* Loaded before the program (LD_PRELOAD): a handler that asks for no SA_RESTART, and a signal for it two
 * thousand times a second, so that whatever waits is interrupted. */
#include <signal.h>
#include <stddef.h>
#include <sys/time.h>

static void nothing(int sig)
{
	(void)sig;
}

__attribute__((constructor)) static void start(void)
{
	const struct sigaction sa = {.sa_handler = nothing};
	const struct itimerval often = {{0, 500}, {0, 500}};

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}
