/* TEMPORARY: stands in for the generated embedding until data/embed.c is merged. */
#include "embedded.h"

#include <string.h>

__asm__(".section .rodata\n"
	"stub_model_types: .incbin \"" STUB_DIR "/model_types.jsonl\"\n"
	"stub_model_types_end: .byte 0\n"
	".previous\n");
extern const unsigned char stub_model_types[], stub_model_types_end[];

const struct oom_embedded *oom_embedded_find(const char *name)
{
	static struct oom_embedded one = {"model_types.jsonl", stub_model_types, 0};

	one.size = (size_t)(stub_model_types_end - stub_model_types);
	return strcmp(name, one.name) == 0 ? &one : NULL;
}
