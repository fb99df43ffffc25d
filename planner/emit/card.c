/* What clouds' catalogues call a card. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/emit.h"

/* A card as SkyPilot and dstack call it: RTX4090, RTX6000-Ada (RTX6000Ada for dstack), RTXPRO6000,
 * A6000, A100-80GB; form factor and, where a field of its own states it, the size are left out. */
const char *oom_gpu_listed(const struct oom_gpu *g, bool sky, char out[80])
{
	const char *p = g->name;
	size_t n = 0;

	if (!strncmp(p, "RTX-", 4)) {
		p += strncmp(p, "RTX-A", 5) ? 0 : 4;
		for (; *p && n < 64 && strncmp(p, "-Blackwell", 10); p++) {
			if (*p == '-' && isdigit((unsigned char)p[1]) &&
			    !strcmp(p + 1 + strspn(p + 1, "0123456789"), "GB"))
				break;
			if (*p != '-' || (sky && !strcmp(p, "-Ada")))
				out[n++] = *p;
		}
		out[n] = 0;
		return out;
	}
	n = strcspn(p, "-");
	snprintf(out, 80, "%.*s%s", (int)(n < 64 ? n : 64), p,
		 strstr(p, "-NVL") ? (sky ? "-NVL" : "NVL") : "");
	if (sky && ((!strcmp(out, "A100") && g->memory_gb > 60) ||
		    (!strcmp(out, "V100") && g->memory_gb > 20)))
		strcat(out, g->memory_gb > 60 ? "-80GB" : "-32GB");
	return out;
}
