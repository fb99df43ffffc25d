/* How many of a card a word asks for: "8xA100-80G". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/gpu.h"

/* The number in front of or behind a card's name, which *name, length *n, is left without; 0: none. */
static int64_t count_in(const char *word, const char **name, size_t *n)
{
	const size_t digits = strspn(word, "0123456789"), size = strlen(word);
	const char *x = word + digits + strspn(word + digits, " "), *tail = word + size;

	*name = word;
	*n = size;
	if (digits && digits < 6 && (*x == 'x' || *x == 'X' || *x == '*')) {
		*name = x + 1 + strspn(x + 1, " ");
		*n = strlen(*name);
		return strtoll(word, NULL, 10);
	}
	while (tail > word && strspn(tail - 1, "0123456789"))
		tail--;
	if (tail == word || !*tail || strlen(tail) > 5)
		return 0;
	/* "A100:8", "A100 x8"; the x of a name ("RTX 3090") has no blank before it */
	if (tail[-1] == ':')
		*n = (size_t)(tail - 1 - word);
	else if (tail - word > 2 && (tail[-1] == 'x' || tail[-1] == 'X') && tail[-2] == ' ')
		*n = (size_t)(tail - 2 - word);
	return *n < size ? strtoll(tail, NULL, 10) : 0;
}

bool oom_gpu_counted(const char *word, struct oom_gpu_count *out)
{
	const char *name, *inner;
	size_t n = 0, m;
	const int64_t count = count_in(word, &name, &n);
	/* "2x8xH100", "2xH100:8": nodes, and the cards of each */
	const int64_t each = count && name != word ? count_in(name, &inner, &m) : 0;

	out->nodes = each ? count : 1;
	out->gpus = each ? count * each : count;
	if (each) {
		name = inner;
		n = m;
	}
	if (!count || !n || n >= sizeof(out->name))
		return false;
	snprintf(out->name, sizeof(out->name), "%.*s", (int)n, name);
	return true;
}
