/* Loaded before the program (LD_PRELOAD): the clock says OOM_CLOCK seconds, and OOM_CLOCK_STEP (may be
 * negative) more at every look; the monotonic one stands still. */
#include <stdlib.h>
#include <time.h>

static time_t looked;

time_t time(time_t *out)
{
	const char *at = getenv("OOM_CLOCK"), *step = getenv("OOM_CLOCK_STEP");
	const time_t t = (time_t)(at ? atoll(at) : 0) + looked++ * (time_t)(step ? atoll(step) : 0);

	if (out)
		*out = t;
	return t;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	t->tv_sec = clock == CLOCK_REALTIME ? time(NULL) : 0;
	t->tv_nsec = 0;
	return 0;
}
