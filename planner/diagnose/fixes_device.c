/* The words of fixes for the device, the card and the release that refused: PyTorch names its devices in its calls, cards
 * before Ampere compute no bfloat16, and what old releases lack is of no use to new ones. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

/* Every one of them, as far as there is room. */
static void replace(char *text, size_t size, const char *from, const char *to)
{
	const size_t n = strlen(from), m = strlen(to);

	for (char *p = text; (p = strstr(p, from)) != NULL; p += m) {
		if (strlen(text) - n + m + 1 > size)
			return;
		memmove(p + m, p + n, strlen(p + n) + 1);
		memcpy(p, to, m);
	}
}

/* torch.autocast("xpu"), torch.mps.empty_cache() */
static void of_device(const char *device, char *text, size_t size)
{
	char word[24];

	snprintf(word, sizeof(word), "\"%s\"", device);
	replace(text, size, "\"cuda\"", word);
	snprintf(word, sizeof(word), "torch.%s.", device);
	replace(text, size, "torch.cuda.", word);
}

/* bfloat16 is computed from compute capability 8.0 on (CUDA programming guide, arithmetic instructions); options have the
 * same name for float16 but for Lightning's. */
static void of_old_card(const char *which, char *text, size_t size)
{
	static const struct {
		const char *from, *to;
	} words[] = {{" (fp16=True before Ampere)", ""}, {"bf16-mixed", "16-mixed"}, {"float16 or bfloat16", "float16"}, {"bfloat16", "float16"}, {"fp16 or bf16", "fp16"}, {"bf16", "fp16"}};

	if (!strstr(text, "bf16") && !strstr(text, "bfloat16"))
		return;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		replace(text, size, words[i].from, words[i].to);
	if (strlen(text) + strlen(which) + 24 < size) {
		strcat(text, " (");
		strcat(text, which);
		strcat(text, " has no bfloat16)");
	}
}

void oom_fixes_on_device(const struct oom_crash *c, struct oom_crash_answer *a)
{
	/* torch.autocast is in every release that words its message so */
	const bool new = oom_format_is(c, OOM_FORMAT_SENTENCE) && !oom_format_is(c, OOM_FORMAT_OLD);
	const char *const device = oom_device_word(c);

	for (size_t i = 0; i < a->n_fix; i++) {
		if (new || device)
			replace(a->fix[i], sizeof(a->fix[0]), " (torch.cuda.amp before PyTorch 1.10)", "");
		if (device)
			of_device(device, a->fix[i], sizeof(a->fix[0]));
		if (c->amd)
			replace(a->fix[i], sizeof(a->fix[0]), "nvidia-smi", "rocm-smi");
		if (c->old_card || c->before_bf16)
			of_old_card(c->old_card ? "that card" : "a card of that size", a->fix[i], sizeof(a->fix[0]));
	}
}
