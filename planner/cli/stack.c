/* A stack that is too small ends a program without a word, wherever it happened to be; so it is asked
 * for at the start.  On Linux the stack of the first thread grows up to the limit of the moment. */
#include "stack.h"

#include <sys/resource.h>

#include "cli.h"

/* What is enough for JSON nested as deep as cJSON follows it (1,000 levels) was measured as 200 KiB. */
static const rlim_t comfortable = 1 << 20, least = 256 << 10;

bool oom_stack_enough(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur >= comfortable)
		return true;
	limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > comfortable
				 ? comfortable
				 : limit.rlim_max;
	if (limit.rlim_cur >= least) {
		setrlimit(RLIMIT_STACK, &limit);
		return true;
	}
	oom_complain(OOM_EXIT_INPUT,
		     "the stack may not grow beyond %llu KiB (ulimit -s), and 256 KiB are needed",
		     (unsigned long long)(limit.rlim_cur >> 10));
	return false;
}
