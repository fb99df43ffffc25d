/* Names of modules, as lists and as regular expressions over their paths. */
#include "plan/pattern.h"

#include <string.h>

bool oom_is_pattern(const char *text)
{
	return strpbrk(text, "\\*?|()[]{}^$") != NULL;
}

static bool ends_with(const char *path, const char *name, size_t n)
{
	const size_t all = strlen(path);

	return all >= n && !strncmp(path + all - n, name, n) && (all == n || path[all - n - 1] == '.');
}

/* Anywhere, but "layers.1" is not "layers.10". */
static bool touches(const char *path, const char *name, size_t n)
{
	const bool digit = n && name[n - 1] >= '0' && name[n - 1] <= '9';

	for (const char *at = path; *at; at++)
		if (!strncmp(at, name, n) && !(digit && at[n] >= '0' && at[n] <= '9'))
			return n > 0;
	return false;
}

static bool any_name(const char *names, const char *path,
		     bool (*is)(const char *path, const char *name, size_t n))
{
	for (const char *p = names; *p; p += p[strcspn(p, "+")] ? strcspn(p, "+") + 1 : strcspn(p, "+"))
		if (is(path, p, strcspn(p, "+")))
			return true;
	return false;
}

bool oom_targets_name(const char *targets, const char *path)
{
	return oom_is_pattern(targets) ? oom_pattern_matches(targets, path) :
					 any_name(targets, path, ends_with);
}

bool oom_names_touch(const char *names, const char *path)
{
	return oom_is_pattern(names) ? oom_pattern_search(names, path) :
				       any_name(names, path, touches);
}

bool oom_names_count(const char *names)
{
	const char *digit = strpbrk(names, "0123456789");

	if (oom_is_pattern(names))
		return digit != NULL;
	/* a part of a name that is all digits */
	for (; digit; digit = strpbrk(digit + strspn(digit, "0123456789"), "0123456789")) {
		const char *end = digit + strspn(digit, "0123456789");

		if ((digit == names || digit[-1] == '.') && (!*end || *end == '.' || *end == '+'))
			return true;
	}
	return false;
}
