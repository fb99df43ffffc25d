/* Copies of models in fewer bits, by how their names end.
 *
 * Such a copy has the shape of the model that it was made of, and a quantization_config of its own, with which
 * transformers loads it (quantizers/auto.py).  What an ending stands for is what those who make most of these copies
 * write: 4 bits in groups of 128 for GPTQ and AWQ, the defaults of AutoGPTQ and AutoAWQ; of the main branches of
 * TheBloke's copies the largest models' have no groups and take some percent less.  unsloth's are made with
 * BitsAndBytesConfig(load_in_4bit, nf4, double quantisation) (unsloth/models/loader.py); those it calls dynamic leave a
 * few layers in 16 bit, which differ by model and are not known here. */
#include "input/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BITSANDBYTES "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"nf4\"," \
		     "\"bnb_4bit_use_double_quant\":true}"
#define GROUPED(method, bits) "{\"quant_method\":\"" method "\",\"bits\":" bits ",\"group_size\":128}"

/* The longer one of two that end alike stands first. */
static const struct {
	const char *ending, *quantised;
} copies[] = {
	{"-unsloth-bnb-4bit", BITSANDBYTES},
	{"-bnb-4bit", BITSANDBYTES},
	{"-GPTQ-Int8", GROUPED("gptq", "8")},
	{"-GPTQ-Int4", GROUPED("gptq", "4")},
	{"-AWQ-INT4", GROUPED("awq", "4")},     /* hugging-quants' */
	{"-Int8", GROUPED("gptq", "8")},        /* Qwen's of 2023 */
	{"-Int4", GROUPED("gptq", "4")},
	{"-GPTQ", GROUPED("gptq", "4")},
	{"-AWQ", GROUPED("awq", "4")},
};

enum { COPIES = sizeof(copies) / sizeof(copies[0]) };

static size_t copy_of(const char *name)
{
	const size_t n = strlen(name);
	size_t i = 0;

	for (; i < COPIES; i++) {
		const size_t end = strlen(copies[i].ending);

		if (n > end && !strcasecmp(name + n - end, copies[i].ending))
			break;
	}
	return i;
}

const char *oom_copy_ending(const char *name)
{
	const size_t i = copy_of(name);

	return i < COPIES ? name + strlen(name) - strlen(copies[i].ending) : NULL;
}

enum oom_status oom_copy_keys(struct oom_keys *out, const char *ending, const char *config, size_t n, const char *name,
			      struct oom_error *err)
{
	const char *quantised = BITSANDBYTES;
	enum oom_status st;
	size_t size;
	char *text;

	for (size_t i = COPIES; i--;)
		if (!strcasecmp(ending, copies[i].ending))
			quantised = copies[i].quantised;
	/* behind the last key, before the brace that closes the config */
	while (n && config[n - 1] != '}')
		n--;
	size = n + strlen(quantised) + 32;
	text = malloc(size);
	if (!n || !text) {
		free(text);
		return oom_error_set(err, n ? OOM_ERR_MEMORY : OOM_ERR_PARSE, n ? "out of host memory" : "%s: no config", name);
	}
	snprintf(text, size, "%.*s,\"quantization_config\":%s}", (int)(n - 1), config, quantised);
	st = oom_keys_parse(out, text, strlen(text), name, err);
	free(text);
	return st;
}
