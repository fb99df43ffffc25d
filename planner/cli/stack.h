/* Room on the stack, before anything needs it. */
#ifndef OOM_CLI_STACK_H
#define OOM_CLI_STACK_H

#include <stdbool.h>

/* Raises the limit where `ulimit -s` left it lower than is comfortable and higher is allowed.  False,
 * with the reason on standard error, when what is allowed would not do for the deepest input that
 * the readers take. */
bool oom_stack_enough(void);

#endif
