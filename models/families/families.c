/* The registry of families. */
#include <string.h>

#include "config/arch.h"

#define FAMILY(name) extern const struct oom_family oom_family_##name;
#include "list.h"
#undef FAMILY

const struct oom_family *const oom_families[] = {
#define FAMILY(name) &oom_family_##name,
#include "list.h"
#undef FAMILY
	NULL
};

const struct oom_family *oom_family_find(const char *model_type)
{
	for (size_t i = 0; oom_families[i]; i++)
		for (size_t j = 0; oom_families[i]->types[j]; j++)
			if (!strcmp(oom_families[i]->types[j], model_type))
				return oom_families[i];
	return NULL;
}

const struct oom_family_info *oom_family_at(size_t i)
{
	/* identical at each call */
	static struct oom_family_info infos[sizeof(oom_families) / sizeof(oom_families[0])];
	const struct oom_family *f;

	if (i >= sizeof(infos) / sizeof(infos[0]) - 1)
		return NULL;
	f = oom_families[i];
	infos[i] = (struct oom_family_info){f->name, f->summary, f->source, f->types};
	return &infos[i];
}
