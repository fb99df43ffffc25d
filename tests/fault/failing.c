/* Loaded before the program (LD_PRELOAD): allocation number OOM_FAIL_AT fails, with OOM_FAIL_ON every
 * later one too.  OOM_FAIL_COUNT names a file that gets their number.  Of the C library's functions
 * what the program and its libraries use. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

static atomic_long made;

static int fails(void)
{
	static long at = -1;
	static int on;
	const long n = atomic_fetch_add(&made, 1) + 1;

	if (at < 0) {
		const char *word = getenv("OOM_FAIL_AT");

		at = word ? strtol(word, NULL, 10) : 0;
		on = getenv("OOM_FAIL_ON") != NULL;
	}
	if (!at || n < at || (n > at && !on))
		return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	return fails() ? NULL : __libc_realloc(p, size);
}

__attribute__((destructor)) static void tell(void)
{
	const char *name = getenv("OOM_FAIL_COUNT");
	const int fd = name ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
	char text[32];
	int n;

	if (fd < 0)
		return;
	n = snprintf(text, sizeof(text), "%ld\n", (long)atomic_load(&made));
	if (write(fd, text, (size_t)n) != n)
		_exit(99);
	close(fd);
}
