/* A slice of a card as drivers, labels and people write it: "NVIDIA H100 80GB HBM3 MIG 3g.40gb" (torch),
 * "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb" (the label nvidia.com/gpu.product), "nvidia.com/mig-3g.40gb" (a resource),
 * "H100 3g.40gb". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gpu_slice.h"

/* Where "3g.40gb" begins, behind a letter's end; NULL: nowhere. */
static const char *profile_in(const char *word)
{
	for (const char *s = word; *s; s++)
		if (isdigit((unsigned char)s[0]) && (s[1] == 'g' || s[1] == 'G') && s[2] == '.' &&
		    isdigit((unsigned char)s[3]) && (s == word || !isalnum((unsigned char)s[-1])))
			return s;
	return NULL;
}

/* What stands before it, without the word MIG and the domain of a resource. */
static void parent_of(const char *word, const char *profile, char *out, size_t size)
{
	static const char resource[] = "nvidia.com/";
	size_t n;

	if (!strncasecmp(word, resource, sizeof(resource) - 1))
		word += sizeof(resource) - 1;
	n = (size_t)(profile - word);
	while (n && strchr(" -_/", word[n - 1]))
		n--;
	if (n >= 3 && !strncasecmp(word + n - 3, "mig", 3) && (n == 3 || strchr(" -_/", word[n - 4])))
		n -= 3;
	while (n && strchr(" -_/", word[n - 1]))
		n--;
	snprintf(out, size, "%.*s", (int)n, word);
}

static bool is_of(const struct oom_gpus *gpus, const struct oom_gpu *g, const char *parent, const char *profile)
{
	const char *const mig = strstr(g->name, " MIG ");
	const size_t n = mig ? strlen(mig + 5) : 0;
	char card[sizeof(g->name)];

	/* "+me" behind it is an engine for media, no memory */
	if (!mig || strncasecmp(mig + 5, profile, n) || (profile[n] && profile[n] != '+'))
		return false;
	snprintf(card, sizeof(card), "%.*s", (int)(mig - g->name), g->name);
	return !*parent || oom_gpu_may_be(gpus, parent, card);
}

bool oom_gpu_slice(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out, char note[256])
{
	const char *const profile = profile_in(word);
	const struct oom_gpu *pick = NULL;
	char parent[128], names[160] = "";
	size_t used = 0, found = 0;

	if (!profile)
		return false;
	parent_of(word, profile, parent, sizeof(parent));
	for (size_t i = 0; i < gpus->n; i++) {
		const struct oom_gpu *g = &gpus->items[i];

		if (!is_of(gpus, g, parent, profile))
			continue;
		if (used < sizeof(names) - 1)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", found ? ", " : "", g->name);
		found++;
		if (!pick || g->capacity_bytes < pick->capacity_bytes)
			pick = g;
	}
	if (!pick)
		return false;
	if (found > 1 && note)
		snprintf(note, 256, "\"%.40s\" may be %.90s: the smaller reported capacity is used (%.60s)", word, names,
			 pick->name);
	*out = *pick;
	return true;
}
