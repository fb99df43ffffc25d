/* The registry of families. */
#include <string.h>

#include "arch.h"

#define FAMILY(name) extern const struct oom_family oom_family_##name;
#include "families/list.h"
#undef FAMILY

const struct oom_family *const oom_families[] = {
#define FAMILY(name) &oom_family_##name,
#include "families/list.h"
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
	static struct oom_family_info infos[64];        /* filled once per entry; identical values each time */

	for (size_t j = 0; j <= i; j++)
		if (!oom_families[j] || j == sizeof(infos) / sizeof(infos[0]))
			return NULL;
	infos[i] = (struct oom_family_info){oom_families[i]->name, oom_families[i]->summary, oom_families[i]->source,
					    oom_families[i]->types};
	return &infos[i];
}
