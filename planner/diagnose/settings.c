/* What the run has set already: options in its command line, its configuration or its script, around the message.
 *
 * Advice to set what is set is none. Only settings that are on are looked for; a printed configuration names all
 * others too. */
#include "answer.h"

static const struct {
	const char *word;
	enum oom_lever lever;
} rows[] = {
	{"gradient_checkpointing=True", OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing: true", OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing true", OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing True", OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing=\"unsloth\"", OOM_LEVER_RECOMPUTE},
	{"--gradient_checkpointing\n", OOM_LEVER_RECOMPUTE},
	{"--gradient_checkpointing ", OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing_enable()", OOM_LEVER_RECOMPUTE},
	{"enable_activation_checkpointing=True", OOM_LEVER_RECOMPUTE},
	{"--grad-checkpoint", OOM_LEVER_RECOMPUTE},
	{"--recompute-activations", OOM_LEVER_RECOMPUTE},
	{"--recompute-granularity", OOM_LEVER_RECOMPUTE},
	{"--checkpoint-activations", OOM_LEVER_RECOMPUTE},
	{"bf16=True", OOM_LEVER_PRECISION},
	{"bf16: true", OOM_LEVER_PRECISION},
	{"--bf16", OOM_LEVER_PRECISION},
	{"mixed_precision=\"bf16\"", OOM_LEVER_PRECISION},
	{"mixed_precision bf16", OOM_LEVER_PRECISION},
	{"mixed_precision=bf16", OOM_LEVER_PRECISION},
	{"use_liger_kernel=True", OOM_LEVER_LOGITS},
	{"use_liger_kernel: true", OOM_LEVER_LOGITS},
	{"enable_liger_kernel: true", OOM_LEVER_LOGITS},
	{"cut_cross_entropy: true", OOM_LEVER_LOGITS},
	{"adamw_8bit", OOM_LEVER_OPTIMIZER},
	{"adamw_bnb_8bit", OOM_LEVER_OPTIMIZER},
	{"paged_adamw", OOM_LEVER_OPTIMIZER},
	{"AdamW8bit", OOM_LEVER_OPTIMIZER},
	{"--use_8bit_adam", OOM_LEVER_OPTIMIZER},
	{"load_in_4bit=True", OOM_LEVER_QUANT},
	{"load_in_4bit: true", OOM_LEVER_QUANT},
	{"--load_in_4bit", OOM_LEVER_QUANT},
	{"enforce_eager=True", OOM_LEVER_GRAPHS},
	{"--enforce-eager", OOM_LEVER_GRAPHS},
	{"--disable-cuda-graph", OOM_LEVER_GRAPHS},
	{"--novram", OOM_LEVER_OFFLOAD},
	{"enable_sequential_cpu_offload()", OOM_LEVER_OFFLOAD},
	{"enable_vae_tiling()", OOM_LEVER_TILE},
	{"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", OOM_LEVER_FRAGMENT},
	{"export PYTORCH_ALLOC_CONF=expandable_segments:True", OOM_LEVER_FRAGMENT},
	{"\"] = \"expandable_segments:True", OOM_LEVER_FRAGMENT},
	{"'] = 'expandable_segments:True", OOM_LEVER_FRAGMENT},
};
static const struct {
	enum oom_lever lever;
	const char *called;
} names[] = {
	{OOM_LEVER_BATCH, "a batch of one"},
	{OOM_LEVER_RECOMPUTE, "gradient checkpointing"},
	{OOM_LEVER_PRECISION, "16-bit training"},
	{OOM_LEVER_LOGITS, "a fused loss"},
	{OOM_LEVER_OPTIMIZER, "an 8-bit optimizer"},
	{OOM_LEVER_QUANT, "4-bit weights"},
	{OOM_LEVER_GRAPHS, "no CUDA graphs"},
	{OOM_LEVER_OFFLOAD, "weights on the host"},
	{OOM_LEVER_TILE, "a tiled decoder"},
	{OOM_LEVER_FRAGMENT, "expandable segments"},
};

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

/* "per_device_train_batch_size=1", "--batch-size 1", "micro_batch_size: 1": one, and not an evaluation's or a loader's
 * part of a longer name. */
static bool batch_of_one(const char *begin, const char *end)
{
	static const char *const words[] = {"batch_size", "batch-size", "batch_size_per_gpu", "batch size"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *from = p, *q = p + strlen(words[i]);

			while (from > begin && letter(from[-1]))
				from--;
			while (q < end && (*q == ' ' || *q == '=' || *q == ':' || *q == '"' || *q == '\''))
				q++;
			if (q > p + strlen(words[i]) && q < end && *q == '1' && (q + 1 == end || !((q[1] >= '0' && q[1] <= '9') || q[1] == '.')) &&
			    !oom_text_find(from, p, "eval") && !oom_text_find(from, p, "val_") && !oom_text_find(from, p, "test") &&
			    !oom_text_find(from, p, "infer"))
				return true;
		}
	return false;
}

void oom_decode_settings(struct oom_crash *c, const char *begin, const char *end)
{
	c->set = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!(c->set & OOM_SET(rows[i].lever)) && oom_text_find(begin, end, rows[i].word))
			c->set |= OOM_SET(rows[i].lever);
	if (batch_of_one(begin, end))
		c->set |= OOM_SET(OOM_LEVER_BATCH);
}

const char *oom_setting_called(const struct oom_crash *c, size_t n)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((c->set & OOM_SET(names[i].lever)) && !n--)
			return names[i].called;
	return NULL;
}
